"""Writes files in the exact formats of public datasets."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedaction.federation.seeds import numpy_generator

Body = tuple[int, npt.NDArray[np.floating]]


def person(frames: int, seed: int, *, step: float = 0.05, joints: int = 25) -> npt.NDArray[np.float32]:
    """(T, V, 3): a body three metres away whose joints wander by `step` metres a frame."""
    random = numpy_generator(seed, "person")
    start = random.normal(loc=(0, 0, 3), scale=0.3, size=(joints, 3))
    wander = np.cumsum(random.normal(scale=step, size=(frames, joints, 3)), axis=0)
    return (start + wander).astype(np.float32)


def skeleton_lines(frames: Sequence[Sequence[Body]], joints: int = 25) -> list[str]:
    """The lines of an NTU .skeleton file: for each frame its bodies, each an id and (25, 3) positions."""
    lines = [str(len(frames))]
    for bodies in frames:
        lines.append(str(len(bodies)))
        for number, pose in bodies:
            lines.append(f"{number} 0 1 1 1 1 0 0.01119184 -0.256052 2")
            lines.append(str(joints))
            for x, y, z in pose:
                lines.append(
                    f"{x:.9g} {y:.9g} {z:.9g} 336.5812 192.8021 1184.537 489.4118 -0.2218947 0.03421978 0 -0.1 2"
                )
    return lines


def write_skeleton(path: Path, frames: Sequence[Sequence[Body]]) -> Path:
    """An NTU .skeleton file, with the line ends of the real ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\r\n" for line in skeleton_lines(frames)).encode())
    return path


def write_one_person(path: Path, frames: int, seed: int) -> npt.NDArray[np.float32]:
    """An NTU file with one body in all frames; returns its positions (1, T, 25, 3)."""
    poses = person(frames, seed)
    write_skeleton(path, [[(72057594037944738, pose)] for pose in poses])
    return poses[None]


def write_mat(path: Path, name: str, array: npt.NDArray[np.float64], kind: int = 6) -> Path:
    """A MATLAB 5 file with one matrix of doubles (class 6), not compressed. Other classes get the same bytes."""

    def element(code: int, data: bytes) -> bytes:
        return struct.pack("<II", code, len(data)) + data + bytes(-len(data) % 8)

    body = element(6, struct.pack("<II", kind, 0)) + element(5, struct.pack(f"<{array.ndim}i", *array.shape))
    body += element(1, name.encode()) + element(9, array.astype("<f8").tobytes(order="F"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + element(14, body))
    return path
