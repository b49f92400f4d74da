"""Derived randomness: every random number is a function of (run seed, purpose, who, when), so none is ever stored.

A run that is killed and resumed draws the same numbers, and so does a run whose clients come in another order.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose: `derive(7, "batches", client, round)`. Equal on every machine."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (seed, *purpose):
        # Type and length go in too, so that ("a", "bc"), ("ab", "c") and (1,), ("1",) differ.
        text = f"{type(part).__name__}:{part}".encode()
        digest.update(len(text).to_bytes(4, "little") + text)
    return int.from_bytes(digest.digest(), "little") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A fresh CPU torch generator for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *purpose))


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A fresh NumPy generator for one purpose."""
    return np.random.Generator(np.random.Philox(derive(seed, *purpose)))
