"""Three places with unlike skeletons, made on the stage, as stores on disk; and a post that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedaction.data.features import FeatureSet, save_features
from fedaction.data.signals.imports import SignalOptions, import_signals
from fedaction.data.store import StoreWriter
from fedaction.engines.flower.envelope import Kind, open_envelope
from fedaction.engines.flower.exchange import Bounce
from fedaction.engines.flower.site import Site
from fedaction.engines.messages import MOST_BYTES, unpack
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job, Update
from fedaction.models.files import clip_card, save_model
from fedaction.models.layers import initialise
from fedaction.models.resnet3d import ResNet3D
from fedaction.runs.recipe import Recipe, parse_recipe
from fedaction.runs.sites import SiteWorkshop
from fedaction.runs.study import load_clients
from fedaction.stage.federation import stage_federation
from fedaction.stage.stores import PLACES, write_stage_stores
from tests.conftest import TINY, UNLABELLED
from tests.data.clips.made import write_video
from tests.data.signals.made import phone_csv


def make_stores(folder: Path) -> dict[str, Path]:
    """A store for each place, with a layout and classes of its own."""
    return write_stage_stores(folder / "stores", recordings=(16, 13, 19), actions=(3, 4, 5), frames=12, seed=3)


def make_like_stores(
    folder: Path, recordings: int = 39, actions: int = 3, frames: int = 12, names: Sequence[str] = PLACES
) -> dict[str, Path]:
    """One place's recordings dealt to some sites: the same device and classes, so that all tensors can be shared."""
    (whole,) = stage_federation(
        clients=1, layouts=["kinect_v1"], train=[recordings], test=1, actions=[actions], seed=3, frames=frames
    )
    assert whole.info.layout is not None
    x, labels = whole.train.take(torch.arange(len(whole.train))).numpy(), whole.train.labels.tolist()
    order = sorted(range(len(labels)), key=lambda row: labels[row])  # each site has all classes
    paths = {name: folder / "like" / name for name in names}
    for place, (name, path) in enumerate(paths.items()):
        with StoreWriter(path, layout=whole.info.layout, classes=whole.info.classes) as writer:
            for row in order[place :: len(names)]:
                writer.add(x[row], label=labels[row], name=f"{name}-{row}")
            writer.finish()
    return paths


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


def make_videos(folder: Path) -> dict[str, Path]:
    """Two places with a few tiny videos each, of classes of their own: a square that goes right, down or nowhere."""
    paths: dict[str, Path] = {}
    for place, classes, count in (("hall", ("right", "down"), 4), ("yard", ("down", "still"), 3)):
        paths[place] = folder / "videos" / place
        for name in classes:
            step = {"right": (0, 1), "down": (1, 0), "still": (0, 0)}[name]
            for number in range(count):
                path = paths[place] / name / f"{number}.mp4"
                path.parent.mkdir(parents=True, exist_ok=True)
                pictures = [_square(place, number, n, step) for n in range(14)]
                write_video(path, len(pictures), codec="mpeg4", size=(32, 32), pictures=pictures)
    return paths


def _square(place: str, number: int, frame: int, step: tuple[int, int]) -> Any:
    """(32, 32, 3) uint8: a white square on the place's noise."""
    picture = np.random.default_rng([number, len(place)]).integers(0, 80, (32, 32, 3), dtype=np.uint8)
    top, left = ((number + frame * way) % 24 for way in step)
    picture[top : top + 8, left : left + 8] = 255
    return picture


def make_video_recipe(paths: dict[str, Path], method: str, **more: Any) -> Recipe:
    """A short run over those videos."""
    labelled = method not in UNLABELLED
    network = {"backbone": "resnet3d", "classifier": "shared"} if labelled else {"clip_size": 16}
    if not labelled:
        network |= {"pretext": "speed", "clip_frames": 4, "speed_strides": [0, 1, 2], "speed_easy": [0, 1]}
    values: dict[str, Any] = {
        **{"method": method, "data": "video", "video_paths": [str(path) for path in paths.values()]},
        **{"frames": 4 if labelled else 12, "video_side": 20, "video_crop": 16, "video_cache": "none"},
        **{"model_width": 2, "rounds": 2, "seeds": [4], "lr": 0.02, "batch_size": 4, "workers": 1, "device": "cpu"},
        **{"controls": [], **network, **more},
    }
    return parse_recipe(values)


def make_model(folder: Path) -> str:
    """A model file for the classes of one of the two places, with values that no seed would give."""
    network = ResNet3D(classes=2, width=2, stem_frames=3, pool=False)
    for name, part in network.named_modules():
        initialise(part, generator(77, name))
    for name, buffer in network.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.uniform_(0.5, 1.5, generator=generator(78, name))
    save_model(
        folder / "model.safetensors", network, clip_card(classes=("down", "right"), frames=4, resize=20, crop=16)
    )
    return str(folder / "model.safetensors")


def make_features(folder: Path, widths: tuple[int, int] = (12, 7)) -> dict[str, Path]:
    """A feature store at each of two places, of one modality each and of the same classes."""
    paths: dict[str, Path] = {}
    for modality, width in zip(("skeleton", "audio"), widths, strict=True):
        paths[modality] = folder / modality
        rng = np.random.default_rng(width)
        labels = np.arange(36) % 3
        store = FeatureSet(
            modality=modality,
            x=(rng.normal(size=(36, width)) + labels[:, None]).astype(np.float32),
            labels=labels.astype(np.int64),
            classes=("a", "b", "c"),
            subjects=tuple(f"{modality}-{number % 6}" for number in range(36)),
            names=tuple(f"{modality}/{number}" for number in range(36)),
            provenance={},
        )
        save_features(store, paths[modality])
    return paths


def make_feature_recipe(paths: dict[str, Path], method: str, **more: Any) -> Recipe:
    """A short run over those features."""
    values: dict[str, Any] = {
        **{"method": method, "data": "features", "feature_paths": [str(path) for path in paths.values()]},
        **{"feature_by": "dataset", "feature_deal": "all", "controls": [], "model_features": 6, "model_hidden": 8},
        **{"rounds": 3, "seeds": [4], "lr": 0.02, "batch_size": 8, "workers": 1, "device": "cpu", **more},
    }
    return parse_recipe(values)


def simulated(recipe: Recipe) -> dict[str, Any]:
    return dict(load_clients(recipe))


class SlowClock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class HousePost:
    """A `Post` to sites in this process. A test may change, hold back or repeat what passes."""

    def __init__(self, sites: dict[int, Site]) -> None:
        self.sites, self.gone = sites, set[int]()
        self.change: Callable[[int, Kind, bytes], bytes | Bounce | None] = lambda node, kind, content: content
        """Of an answer: what arrives in its place; None: nothing."""
        self.keys: dict[int, str] = {}
        """Fingerprints of nodes' keys."""
        self.seen: list[tuple[int, Kind, bytes, bytes]] = []
        """Everything that passed: node, kind, question, answer."""
        self._answers: dict[str, bytes | Bounce] = {}
        self._count = 0

    def nodes(self) -> set[int]:
        return {*self.sites} - self.gone

    def key(self, node: int) -> str:
        return self.keys.get(node, "")

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


class LatePost(HousePost):
    """A `HousePost` whose sites take time for training, on a clock that a test holds."""

    def __init__(self, sites: dict[int, Site], clock: SlowClock, seconds: Callable[[str], float]) -> None:
        """`seconds`: how long a site takes for a job, by its name."""
        super().__init__(sites)
        self._clock, self._seconds = clock, seconds
        self._due: dict[str, float] = {}
        self._about: dict[str, tuple[Kind, bytes]] = {}
        self.jobs: list[Job] = []
        """Those that were sent."""
        self.updates: list[tuple[Job, Update]] = []
        """Those that arrived, in their order, each with its job."""

    def send(self, messages: Sequence[tuple[int, Kind, bytes]]) -> list[str | None]:
        ids = super().send(messages)
        for id, (node, kind, content) in zip(ids, messages, strict=True):
            assert id is not None
            training = kind == "train" and node not in self.gone
            self._due[id] = self._clock.time + (self._seconds(self.sites[node].name) if training else 0.0)
            self._about[id] = kind, content
            if kind == "train":
                self.jobs.append(unpack(Job, open_envelope(content, MOST_BYTES).parts[0]))
        return ids

    def collect(self, ids: Sequence[str]) -> list[tuple[str, bytes | Bounce]]:
        came = super().collect([id for id in ids if self._due[id] <= self._clock.time])
        for id, answer in came:
            kind, question = self._about[id]
            if kind == "train" and isinstance(answer, bytes) and answer:
                job = unpack(Job, open_envelope(question, MOST_BYTES).parts[0])
                self.updates.append((job, unpack(Update, open_envelope(answer, MOST_BYTES).parts[0])))
        return came


def make_sites(paths: dict[str, Path], folder: Path, **more: Any) -> dict[int, Site]:
    """A site for each place, as node 101, 102, ..."""
    return {
        101 + number: Site(name, folder / name, SiteWorkshop(name, path, "cpu"), **more)
        for number, (name, path) in enumerate(paths.items())
    }
