"""Three places with unlike skeletons, made on the stage, as stores on disk; and a post that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedaction.data.signals.imports import SignalOptions, import_signals
from fedaction.engines.flower.envelope import Kind
from fedaction.engines.flower.exchange import Bounce
from fedaction.engines.flower.site import Site
from fedaction.runs.recipe import Recipe, parse_recipe
from fedaction.runs.sites import SiteWorkshop
from fedaction.runs.study import load_clients
from fedaction.stage.stores import write_stage_stores
from tests.conftest import TINY
from tests.data.signals.made import phone_csv


def make_stores(folder: Path) -> dict[str, Path]:
    """A store for each place, with a layout and classes of its own."""
    return write_stage_stores(folder / "stores", recordings=(16, 13, 19), actions=(3, 4, 5), frames=12, seed=3)


def make_signals(folder: Path) -> dict[str, Path]:
    """A phone's and a watch's recordings, at places of their own: other people, other windows, the same classes."""
    paths: dict[str, Path] = {}
    for device, people, rate in (("phone", ("anna", "ben"), 25.0), ("watch", ("carl", "dora"), 20.0)):
        for who in people:
            phone_csv(folder / "raw" / device / f"{who}.csv", [("walk", 8), ("run", 6), ("stand", 6)], rate=rate)
        paths[device] = folder / device
        options = SignalOptions(window_s=1.0, hop_s=1.0)
        import_signals(folder / "raw" / device, paths[device], options=options, subject=r"(\w+)\.csv", device=device)
    return paths


def make_recipe(paths: dict[str, Path], method: str, **more: Any) -> Recipe:
    """A short run over those places."""
    values: dict[str, Any] = {
        **{"method": method, "data": "store", "store_paths": [str(path) for path in paths.values()], "frames": 12},
        **{"rounds": 3, "seeds": [4], "lr": 0.05, "batch_size": 4, "workers": 1, "device": "cpu"},
        **{"controls": [], **TINY, **more},
    }
    return parse_recipe(values)


def make_device_recipe(paths: dict[str, Path], method: str) -> Recipe:
    """A short run over those devices."""
    values: dict[str, Any] = {
        **{"method": method, "data": "signals", "signal_paths": [str(path) for path in paths.values()]},
        **{"signal_by": "dataset", "controls": [], "model_width": 4, "model_features": 6, "model_hidden": 8},
        **{"rounds": 2, "seeds": [4], "lr": 0.02, "batch_size": 8, "workers": 1, "device": "cpu"},
    }
    return parse_recipe(values)


def simulated(recipe: Recipe) -> dict[str, Any]:
    return dict(load_clients(recipe))


class HousePost:
    """A `Post` to sites in this process. A test may change, hold back or repeat what passes."""

    def __init__(self, sites: dict[int, Site]) -> None:
        self.sites, self.gone = sites, set[int]()
        self.change: Callable[[int, Kind, bytes], bytes | Bounce | None] = lambda node, kind, content: content
        """Of an answer: what arrives in its place; None: nothing."""
        self.seen: list[tuple[int, Kind, bytes, bytes]] = []
        """Everything that passed: node, kind, question, answer."""
        self._answers: dict[str, bytes | Bounce] = {}
        self._count = 0

    def nodes(self) -> set[int]:
        return {*self.sites} - self.gone

    def send(self, messages: Sequence[tuple[int, Kind, bytes]]) -> list[str | None]:
        ids: list[str | None] = []
        for node, kind, content in messages:
            self._count += 1
            id = f"message-{self._count}"
            ids.append(id)
            if node in self.gone:
                self._answers[id] = Bounce("gone", True)
                continue
            answer = self.sites[node].answer(content)
            self.seen.append((node, kind, content, answer))
            changed = self.change(node, kind, answer)
            if changed is not None:
                self._answers[id] = changed
        return ids

    def collect(self, ids: Sequence[str]) -> list[tuple[str, bytes | Bounce]]:
        return [(id, self._answers.pop(id)) for id in ids if id in self._answers]


def make_sites(paths: dict[str, Path], folder: Path, **more: Any) -> dict[int, Site]:
    """A site for each place, as node 101, 102, ..."""
    return {
        101 + number: Site(name, folder / name, SiteWorkshop(name, path, "cpu"), **more)
        for number, (name, path) in enumerate(paths.items())
    }
