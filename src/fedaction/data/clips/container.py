"""Video files, opened safely and closed for certain, and the frames they give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedaction.data.clips.boxes import check_boxes
from fedaction.federation.outside import allow, describe, refuse_damage, shorten

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

MOST_PIXELS = 2**24
"""Of a picture: twice 4K. A decoder may hold seventeen of them."""
_PLAYLISTS = frozenset({"hls", "concat", "dash", "sdp"})  # would open other files


class VideoError(ValueError):
    """A file that cannot be read as video, with the reason."""


def quarter_turns(frame: VideoFrame) -> int:
    """Quarter turns to the left that show a frame upright; odd angles and mirrorings are left as they are."""
    angle = frame.rotation
    return (angle // 90) % 4 if angle % 90 == 0 else 0


@contextmanager
def open_video(path: Path, threads: int) -> Iterator[tuple[InputContainer, VideoStream]]:
    """A file and its first video stream; closed at the end, whatever happens."""
    av = pyav()
    if not path.is_file():
        raise VideoError(f"{path} is not a file")
    size = path.stat().st_size
    if not size:
        raise VideoError(f"{path} is empty")
    with refuse_damage(path, "video", VideoError):
        check_boxes(path, size, VideoError)
    bounds = {"max_pixels": str(allow(MOST_PIXELS))}
    try:
        # As an absolute path and with one protocol, so that no name or playlist reaches another machine.
        # Metadata may be in any encoding, and nothing here needs it.
        container = av.open(
            str(path.absolute()),
            metadata_errors="ignore",
            options={"protocol_whitelist": "file", **bounds},  # also of decoders: some frames tell what the file is
        )
    except Exception as error:
        raise VideoError(f"{path} ({size} bytes) cannot be opened as video: {_reason(error)}") from None
    with refuse_damage(path, "video", VideoError), container:
        if _PLAYLISTS.intersection(container.format.name.split(",")):
            raise VideoError(f"{path} is a list of other files ({container.format.name}), not a video")
        streams = [s for s in container.streams.video if not s.disposition & s.disposition.attached_pic]
        if not streams:
            kinds = sorted({s.type for s in container.streams})
            raise VideoError(f"{path} has no video stream, only {', '.join(kinds) or 'nothing'}")
        if getattr(streams[0], "codec_context", None) is None:
            raise VideoError(f"{path} is encoded in a way that is not known here: convert it, to H.264 for example")
        streams[0].codec_context.options = bounds
        streams[0].codec_context.thread_count = threads
        streams[0].codec_context.thread_type = "SLICE" if threads == 1 else "AUTO"
        yield container, streams[0]


def packets(container: InputContainer, stream: VideoStream) -> Iterator[Any]:
    """Packets in the order of the file, up to its end or to where it breaks off; the last, empty ones flush."""
    from av.error import FFmpegError

    try:
        yield from container.demux(stream)
    except (FFmpegError, OSError):
        return


def decode_frames(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame]:
    """Frames from where the file stands. Packets that cannot be decoded are passed over."""
    from av.error import FFmpegError

    flushed = False
    for packet in packets(container, stream):
        flushed = not packet.size
        try:
            frames = packet.decode()
        except (FFmpegError, OSError):
            continue
        yield from frames
    if not flushed:  # the file broke off: some frames may still be inside the decoder
        try:
            yield from stream.decode(None)
        except (FFmpegError, OSError):
            return


def _reason(error: Exception) -> str:
    """The first line of an error, without the file's name, which the message has already."""
    strerror = getattr(error, "strerror", None)
    return describe(error) if strerror is None else shorten(strerror)


def pyav() -> Any:
    """The package av."""
    try:
        import av
    except ImportError:
        raise ImportError("video files need PyAV: pip install 'fedaction[video]', or pip install av") from None
    return av
