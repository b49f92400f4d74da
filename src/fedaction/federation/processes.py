"""Several processes, or threads: how many are worth starting, how workers behave, how not to make one thing twice.

Loads no torch: workers start afresh ("spawn") and would each load it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import TypeVar

_T = TypeVar("_T")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_ended(process: int) -> bool:
    """Whether there is no process with a number on this machine; where that cannot be told, there is one."""
    if os.name == "nt":  # to ask there is to end it
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def share_heap() -> None:
    """Lets threads that begin from here on use one heap, where the C library is GNU's.

    By itself it gives each thread one of its own, which keeps what was freed though another thread could use it.
    """
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # another C library
            ctypes.CDLL(None).mallopt(_MOST_HEAPS, 1)


_MOST_HEAPS = -8  # M_ARENA_MAX of malloc.h
_MEMORY = (
    "allocate memory",
    "out of memory",
    "can't start new thread",
    "storage size calculation overflowed",
    "too large to convert",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory has run out: Python's own, or torch's on a CPU or a GPU, by its words."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError | OverflowError) and any(words in str(error) for words in _MEMORY)


def in_order(jobs: Iterable[Callable[[], _T]], workers: int = 0) -> Iterator[_T]:
    """Results of jobs, in their order, by threads that are a few ahead of the one that is waited for.

    `workers`: how many; 0: one for each core.
    """
    workers = workers or cores()
    with ThreadPoolExecutor(workers, thread_name_prefix="jobs") as pool:
        yield from in_order_by(pool, jobs, 2 * workers)


def in_order_by(pool: Executor, jobs: Iterable[Callable[[], _T]], ahead: int) -> Iterator[_T]:
    """Results of jobs, in their order, by a pool that has at most `ahead` more than the one that is waited for."""
    pending: deque[Future[_T]] = deque()
    try:
        for job in jobs:
            pending.append(pool.submit(job))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def start_worker() -> None:
    """In a worker process: leave Ctrl-C to the parent, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


_GUARD = 'put what a program does under `if __name__ == "__main__":`, since worker processes read the program again'


def refuse_in_import() -> None:
    """Raises in a worker that is still reading the program which started it, and there came to the same call."""
    # What the standard library asks, too, before it starts a process.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(f"{_GUARD} (see the documentation of Python's multiprocessing)")


@contextmanager
def worker_pool(workers: int) -> Generator[ProcessPoolExecutor]:
    """Processes that start afresh and end with this one; what they have not begun when the block ends is dropped.

    Where memory runs out, or somebody stops this process, what they have begun is dropped, too: nobody waits for it.
    """
    refuse_in_import()
    others = {child.pid for child in multiprocessing.active_children()}
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=start_worker)
    try:
        yield pool
    except BrokenProcessPool:
        raise ChildProcessError(
            f"a worker process has died, see what it wrote: perhaps memory ran out (use fewer workers), or {_GUARD}"
        ) from None
    except (KeyboardInterrupt, SystemExit, MemoryError):
        for child in multiprocessing.active_children():
            if child.pid not in others:
                child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
