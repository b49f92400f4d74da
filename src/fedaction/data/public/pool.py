"""Reading many files in worker processes: results in order, few of them in memory at a time.

Loads no torch: workers start afresh ("spawn") and would each load it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from fedaction.data.public.base import Reader, SourceFile
from fedaction.federation.processes import cores, in_order_by, is_out_of_memory, worker_pool

_CHUNK_BYTES, _CHUNK_FILES = 2 * 2**20, 32  # of a task; long enough to make handing it over cheap
_SMALL_BYTES = 64 * 2**20  # up to here, workers take longer to start than this process to read


@dataclass(frozen=True)
class Content:
    """What came of one file."""

    frames: int = 0  # T of the file
    # (M_i, T_i, V, 3) of each sample, without trailing absent bodies. A span that reaches past the end is cut there.
    samples: tuple[npt.NDArray[np.float32], ...] = ()
    fault: str = ""  # why there are none; "" where there are


def read_sources(reader: Reader, sources: Sequence[SourceFile], workers: int) -> Generator[Content]:
    """The contents of files, in their order.

    Of workers, 1 is this process; 0: one for each core, or this one where there is little to read.
    """
    if workers < 0:
        raise ValueError(f"workers must be 0 (one for each core) or more, got {workers}")
    sizes = [source.path.stat().st_size for source in sources]
    workers = workers or (cores() if sum(sizes) > _SMALL_BYTES else 1)
    if workers == 1:
        for source in sources:
            yield _read(reader, source)
        return
    with worker_pool(workers) as pool:
        jobs = (partial(_read_chunk, reader, chunk) for chunk in _chunks(sources, sizes))
        for contents in in_order_by(pool, jobs, 2 * workers):
            yield from contents


def _chunks(sources: Sequence[SourceFile], sizes: Sequence[int]) -> Iterator[list[SourceFile]]:
    chunk: list[SourceFile] = []
    held = 0
    for source, size in zip(sources, sizes, strict=True):
        chunk.append(source)
        held += size
        if held >= _CHUNK_BYTES or len(chunk) >= _CHUNK_FILES:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


def _read_chunk(reader: Reader, chunk: list[SourceFile]) -> list[Content]:
    return [_read(reader, source) for source in chunk]


def _read(reader: Reader, source: SourceFile) -> Content:
    try:
        array = reader.read(source.path)
        cuts = (array[:, slice(*(sample.span or (None,)))] for sample in source.samples)
        return Content(array.shape[1], tuple(_without_absent(cut) for cut in cuts))
    except Exception as error:  # one strange file among a hundred thousand must not end the work
        if _is_of_memory(error):  # but no good file is to be left out for that
            raise MemoryError(f"reading {source.path}") from None
        return Content(
            fault=str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
        )


def _is_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or what led to it, says that memory has run out."""
    while error is not None and not is_out_of_memory(error):
        error = error.__cause__ or error.__context__
    return error is not None


def _without_absent(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Without the last bodies that are absent in all frames; the first one stays."""
    present = np.flatnonzero((array != 0).any(axis=(1, 2, 3)))
    return array[: present[-1] + 1 if len(present) else 1]
