"""Small videos, written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedaction.data.clips.container import pyav


def write_clip(path: Path, clip: NDArray[np.uint8], rate: int) -> None:
    """Writes a clip (T, H, W, 3) as a video of `rate` frames a second; the path's suffix says the container."""
    av = pyav()
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.height, stream.width = clip.shape[1:3]
        stream.pix_fmt, stream.bit_rate = "yuv420p", 800_000
        for picture in clip:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24")))
        container.mux(stream.encode(None))
