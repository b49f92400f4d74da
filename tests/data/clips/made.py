"""Small videos whose frames say their own number: eight stripes, each black or white."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

STRIPES = 8


def picture(number: int, height: int = 48, width: int = 64) -> npt.NDArray[np.uint8]:
    """(H, W, 3): the number's binary digits from left to right."""
    bits = [(number >> bit) & 1 for bit in reversed(range(STRIPES))]
    row = np.array(bits, dtype=np.uint8)[np.arange(width) * STRIPES // width] * 255
    return np.broadcast_to(row[None, :, None], (height, width, 3)).copy()


def number_of(frame: npt.NDArray[np.uint8]) -> int:
    """The number that a decoded picture shows."""
    width = frame.shape[1]
    centres = (np.arange(STRIPES) * 2 + 1) * width // (2 * STRIPES)
    bits = frame[frame.shape[0] // 2, centres].mean(axis=-1) > 127
    return int("".join(str(int(bit)) for bit in bits), 2)


def numbers(clip: npt.NDArray[np.uint8]) -> list[int]:
    """The numbers of the frames of a clip."""
    return [number_of(frame) for frame in clip]


def write_video(
    path: Path,
    frames: int,
    *,
    codec: str = "libx264",
    pix_fmt: str = "yuv420p",
    size: tuple[int, int] = (48, 64),
    times: Sequence[int] | None = None,
    options: dict[str, str] | None = None,
    container: dict[str, str] | None = None,
    pictures: Sequence[npt.NDArray[np.uint8]] | None = None,
) -> Path:
    """A video of numbered frames, 25 a second or at the given times in 1/1000 s.

    Args:
        path: the suffix says the container.
        frames: how many.
        codec: of PyAV.
        pix_fmt: of the stream.
        size: height and width.
        times: of each frame, for a variable rate.
        options: of the codec, such as {"g": "12"} for the distance of key frames.
        container: options of the container.
        pictures: in place of numbers.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options=container or {}) as out:
        stream = out.add_stream(codec, rate=25, options=options or {})
        stream.height, stream.width = size
        stream.pix_fmt = pix_fmt
        base = Fraction(1, 1000) if times is not None else Fraction(1, 25)
        stream.codec_context.time_base = base
        for number in range(frames):
            shown = picture(number, *size) if pictures is None else pictures[number]
            frame = av.VideoFrame.from_ndarray(shown, "rgb24").reformat(format=pix_fmt)
            frame.pts, frame.time_base = (number if times is None else times[number]), base
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def write_sound(path: Path, seconds: float = 0.5) -> Path:
    """A sound file without pictures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("aac", rate=16000)
        samples = np.zeros((1, int(16000 * seconds)), dtype=np.float32)
        frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
        frame.sample_rate = 16000
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def turn(path: Path, quarter_turns_right: int) -> Path:
    """Writes into an MP4 file's track header that it is to be shown turned to the right, as phones do."""
    data = bytearray(path.read_bytes())
    place = data.index(b"tkhd") + 4
    matrix = place + (52 if data[place] == 1 else 40)
    cosine, sine = [(1, 0), (0, 1), (-1, 0), (0, -1)][quarter_turns_right % 4]
    one = 1 << 16
    data[matrix : matrix + 36] = struct.pack(
        ">9i", cosine * one, sine * one, 0, -sine * one, cosine * one, 0, 0, 0, 1 << 30
    )
    path.write_bytes(data)
    return path
