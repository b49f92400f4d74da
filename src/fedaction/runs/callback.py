"""Callbacks: what a program wants to be told while its runs go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from fedaction.server.state import Row


class Callback(Protocol):
    """Is told of every round of every run. It may also have `on_start(method, seed, folder)` and `on_end()`.

    A study has several runs, one for each method and seed, one after another. A run that is resumed tells of the
    rounds that it does, not of those that were done before.
    """

    def on_round(self, rows: Sequence[Row]) -> object:
        """A round is done: its rows of metrics, as they are in metrics.jsonl."""
        ...


def tell_start(callbacks: Sequence[Any], method: str, seed: int, folder: Path) -> None:
    """Tells those who want to know that a run begins or goes on."""
    for callback in callbacks:
        if hasattr(callback, "on_start"):
            callback.on_start(method, seed, folder)


def tell_end(callbacks: Sequence[Any]) -> None:
    """Tells those who want to know that a run is done, or was interrupted."""
    for callback in callbacks:
        if hasattr(callback, "on_end"):
            callback.on_end()
