"""How much an update weighs that started from an older model: s(x), x in server updates, 0 when it is fresh.

The edge paper's Algorithm 1; the three forms are FedAsync's (Xie et al., 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["constant", "polynomial", "hinge"]


@dataclass(frozen=True)
class Staleness:
    """s(x), which is 1 at x = 0 and never rises."""

    form: Form = "polynomial"
    """Constant: 1. polynomial: (1 + x)^-a. hinge: 1 up to b, then 1 / (a (x - b) + 1)."""
    a: float = 0.5
    """How fast it falls."""
    b: float = 4.0
    """The hinge's patience, in server updates."""
    offset: int = 0
    """Added to x: 0 counts the server's updates between download and upload; 1 is the paper's t - tau with t the
    number of the update itself, by which even a fresh one is one late."""

    def __call__(self, updates: int) -> float:
        """The weight of an update that is so many server updates old."""
        if updates < 0:
            raise ValueError(f"staleness counts server updates since a download, got {updates}")
        x = updates + self.offset
        if self.form == "polynomial":
            return (1.0 + x) ** -self.a
        if self.form == "hinge" and x > self.b:
            return 1.0 / (self.a * (x - self.b) + 1.0)
        return 1.0
