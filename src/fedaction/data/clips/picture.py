"""From a decoded frame to pixels: scaled, in RGB, upright, cut."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedaction.data.clips.container import MOST_PIXELS, VideoError, pyav, quarter_turns
from fedaction.federation.outside import check_amount

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

Pixels = npt.NDArray[np.uint8]


def corner_of(height: int, width: int, side: int) -> tuple[int, int]:
    """First row and column of the square in a picture's middle."""
    if side > min(height, width):
        raise ValueError(
            f"pictures of {height} x {width} are smaller than the square of {side} to cut from them: "
            f"scale them first (short_side {side} or more)"
        )
    return (height - side) // 2, (width - side) // 2


class Painter:
    """Turns decoded frames into RGB pictures of one size: that which the first frame gets."""

    def __init__(self, path: Path, short_side: int | None, crop: int | None) -> None:
        av = pyav()
        from av.video.reformatter import VideoReformatter

        if min(short_side or 1, crop or 1) < 1:
            raise ValueError(f"short_side and crop must be at least 1, got {short_side} and {crop}")
        self._path, self._short_side, self._crop = path, short_side, crop
        # One for all frames: a frame's own would set up its tables anew each time. In one thread, which is faster for
        # pictures of this size; the argument came with PyAV 17, and before that there was but one.
        self._scaler = VideoReformatter()
        self._options: dict[str, Any] = {"threads": 1} if int(av.__version__.split(".")[0]) >= 17 else {}
        self._size: tuple[int, int] | None = None
        self._turns = 0

    def __call__(self, frame: VideoFrame) -> Pixels:
        """The whole picture, (H, W, 3). It lies in the frame's own memory: copy what you keep."""
        if self._size is None:
            self._size, self._turns = self._fit(frame.height, frame.width), quarter_turns(frame)
        height, width = self._size
        plane = self._scaler.reformat(
            frame, width, height, "rgb24", interpolation="BILINEAR", **self._options
        ).planes[0]
        flat = np.frombuffer(memoryview(plane), np.uint8)  # type: ignore[arg-type]  # PyAV's stubs do not say so
        picture = flat.reshape(-1, plane.line_size)[:height, : 3 * width].reshape(height, width, 3)
        return np.rot90(picture, self._turns) if self._turns else picture

    def cut(self, picture: Pixels) -> Pixels:
        """The square in the middle."""
        if self._crop is None:
            return picture
        try:
            top, left = corner_of(picture.shape[0], picture.shape[1], self._crop)
        except ValueError as error:
            raise VideoError(f"{self._path}: {error}") from None
        return picture[top : top + self._crop, left : left + self._crop]

    def _fit(self, height: int, width: int) -> tuple[int, int]:
        check_amount(height * width, MOST_PIXELS, self._path, "has pictures of", "pixels", VideoError)
        if not height * width:
            raise VideoError(f"{self._path}: pictures of {height} x {width} pixels")
        if self._short_side is None:
            return height, width
        scale = self._short_side / min(height, width)
        size = max(round(height * scale), 1), max(round(width * scale), 1)
        about = f"with pictures of {height} x {width} scales them to"
        check_amount(size[0] * size[1], MOST_PIXELS, self._path, about, "pixels", VideoError)
        return size
