"""Loading what is large: the garbage collector looks through all of it again and again, and finds nothing."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Generator[None]:
    """The garbage collector rests meanwhile, unless it does so anyway."""
    works = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if works:
            gc.enable()


def load_torch() -> None:
    """Loads torch in a process of our own, where what it consists of is never looked through again."""
    with without_collection():
        import torch  # noqa: F401  # pyright: ignore[reportUnusedImport]
    gc.freeze()
