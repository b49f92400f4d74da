"""Several processes: how many are worth starting, how workers behave, and how not to make one thing twice.

Loads no torch: workers start afresh ("spawn") and would each load it.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows, where two processes may do the same work
    fcntl = None


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_worker() -> None:
    """In a worker process: leave Ctrl-C to the parent, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


@contextmanager
def worker_pool(workers: int) -> Generator[ProcessPoolExecutor]:
    """Processes that start afresh and end with this one; what they have not begun when the block ends is dropped."""
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=start_worker)
    try:
        yield pool
    except BrokenProcessPool:
        raise ChildProcessError(
            "a worker process has died: perhaps memory ran out (use fewer workers), or the program that called this "
            'starts its work outside of `if __name__ == "__main__":`'
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """One process at a time makes what is to be at a place; however it ends, the next may go on."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(place.with_name(f".{place.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                warnings.warn(f"another process is making {place}: waiting for it", stacklevel=4)
                fcntl.flock(handle, fcntl.LOCK_EX)
            for left in place.parent.glob(f".{place.name}.*/"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(handle)
