"""A trained network that is ready for use: from a recording, an array or a file, to the action in it.

    network = load_network("clinic.safetensors")      a model file, or what `fedaction export` made of one (.onnx)
    network = network_of_run("runs/fsar-demo-1", "clinic")
    network.predict(recording).label                  an array, or a path
    network(x)                                        logits of samples that are prepared already
    network.save("copy.safetensors")

Recordings are cut, mended and resized by `serve.recordings`; what is arithmetic is `models.steps`.
"""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from fedaction.federation.settings import nearest
from fedaction.models.files import Card, ModelFileError, load_model, save_model
from fedaction.models.folded import Folded
from fedaction.models.resnet3d import ResNet3D
from fedaction.models.steps import Prepared, Steps
from fedaction.runs.deploy import SERVER, read_index
from fedaction.runs.networks import check_models
from fedaction.serve.onnx import open_onnx
from fedaction.serve.recordings import cut_windows, list_recordings

Probabilities = npt.NDArray[np.float64]
Logits = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
_BATCH = 256


@dataclass(frozen=True)
class WindowScores:
    """What a network says of one window of a recording."""

    start: int
    """Its first reading, frame or row, counted from 0."""
    seconds: float | None
    """Where that is in the recording; None: unknown."""
    scores: Probabilities
    """(classes,) probabilities."""


@dataclass(frozen=True)
class Prediction:
    """What a network says of a recording."""

    label: str
    """The likeliest action."""
    confidence: float
    """Its probability: the mean over windows."""
    scores: dict[str, float]
    """The probability of every action, the likeliest first."""
    windows: tuple[WindowScores, ...]
    """What it says of each window; a skeleton has one."""


class Network:
    """A network and its card.

    Args:
        card: what it recognises, and how a recording becomes what it takes.
        module: the network; None: only `logits` is there (an ONNX file).
        logits: (N, *card.input.shape) recordings of the right length to (N, classes); default: by the module.
    """

    def __init__(
        self,
        card: Card,
        module: nn.Module | None,
        logits: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None,
    ) -> None:
        self.card, self.module = card, None if module is None else module.eval()
        self._logits = logits or self._by_module()

    def _by_module(self) -> Logits:
        module = self.module
        assert module is not None
        ready = Folded(module) if isinstance(module, ResNet3D) and module.classifier is not None else module
        whole = ready if self.card.input.kind == "video" else Prepared(Steps(self.card.input), ready)
        whole = whole.eval()
        device = next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))
        whole = whole.to(device)

        def logits(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
            with torch.inference_mode():
                own = x if x.flags.writeable and x.flags.c_contiguous else np.array(x)  # which torch takes as it is
                return whole(torch.from_numpy(own).to(device)).float().cpu().numpy()

        return logits

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the actions, in the order of the logits."""
        return self.card.classes

    def __call__(self, x: Any) -> Tensor:
        """(N, classes) logits of (N, *network shape) samples as the network was trained on: nothing is scaled."""
        if self.module is None:
            raise ModelFileError("an exported network prepares recordings itself: use `predict`, or `logits`")
        samples = torch.as_tensor(x)
        with torch.no_grad():
            return self.module(samples.float() if samples.dtype == torch.float64 else samples)

    def logits(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(N, classes) logits of (N, *card.input.shape) recordings that were resized but not centred or scaled."""
        return self._logits(x)

    def scores(self, x: npt.NDArray[Any]) -> Probabilities:
        """(N, classes) probabilities; see `logits`."""
        logits = self._logits(x).astype(np.float64)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    def predict(self, recording: Any, rate_hz: float | None = None) -> Prediction:
        """The action in one recording.

        Args:
            recording: an array as `serve.recordings.cut_windows` takes it, a torch tensor, or the path of a file.
            rate_hz: of signals, readings a second; None: the model's own.
        """
        if isinstance(recording, str | Path):
            takes = list(list_recordings(recording, self.card.input))
            if len(takes) != 1:
                raise ValueError(f"{recording} holds {len(takes)} recordings; predict them one by one")
            recording, own = takes[0].read()
            rate_hz = rate_hz or own
        return self.sum_up(list(self.stream(recording, rate_hz)))

    def stream(
        self, recording: Any, rate_hz: float | None = None, every: int | None = None
    ) -> Iterator[WindowScores]:
        """What it says of the windows of a recording, as they come; of a video, by its path, as it is decoded.

        `every`: of video, frames from one clip's beginning to the next's; None: clips do not overlap.
        """
        if not self.card.classes:
            raise ModelFileError("this network has no classifier, so it recognises nothing; train one on it first")
        if isinstance(recording, Path):
            from fedaction.serve.predict import Recogniser, predict

            for clip in predict(Recogniser(self.card, self._logits), recording, every):
                yield WindowScores(clip.frame, clip.seconds, clip.scores)
            return
        if isinstance(recording, Tensor):
            recording = recording.detach().cpu().numpy()
        windows = cut_windows(recording, self.card.input, rate_hz)
        for first in range(0, len(windows.x), _BATCH):
            some = slice(first, first + _BATCH)
            for start, row in zip(windows.starts[some], self.scores(windows.x[some]), strict=True):
                yield WindowScores(start, start / windows.rate_hz if windows.rate_hz else None, row)

    def sum_up(self, windows: Sequence[WindowScores]) -> Prediction:
        """The whole of a recording: the mean of its windows."""
        mean = np.mean([window.scores for window in windows], axis=0)
        order = np.argsort(-mean, kind="stable").tolist()
        scores = {self.card.classes[i]: float(mean[i]) for i in order}
        label = self.card.classes[order[0]]
        return Prediction(label, scores[label], scores, tuple(windows))

    def save(self, path: str | Path) -> None:
        """Writes a model file, whole or not at all."""
        if self.module is None:
            raise ModelFileError("an exported network cannot be written as a model file; copy the .onnx file")
        save_model(path, self.module, self.card)


def load_network(path: str | Path) -> Network:
    """Reads a model file (.safetensors) or an exported one (.onnx); what is wrong with it is a ModelFileError."""
    path = Path(path)
    if path.suffix == ".onnx":
        return Network(*open_onnx(path))
    if path.suffix == ".safetensors":
        network, card = load_model(path)
        return Network(card, network)
    raise ModelFileError(f"{path} is neither a model file (.safetensors) nor an exported one (.onnx)")


def find_model(place: str | Path, client: str | None = None) -> Path:
    """The file that a network is read from: itself; of a run's directory the server's, or a client's.

    Where a run has no network that all clients share, and no client is named, the error says which there are. A file
    that is not of the run as it now is, or not as it was written, is refused.
    """
    place = Path(place)
    if not place.is_dir():
        if client is not None:
            raise ValueError(f"{place} is one network; clients are those of a run's directory")
        return place
    file = _choose_model(place, client)
    check_models(place, file)
    return place / file


def _choose_model(place: Path, client: str | None) -> str:
    """Which of a run's model files is meant, by its path below the run's directory."""
    index = read_index(place)
    if index is None:
        if client is None and (place / SERVER).is_file():
            return SERVER
        raise ValueError(
            f"{place} has no model files; a run has them when it is done, and `fedaction resume` makes them"
        )
    clients, why = index["clients"], index["left_out"]
    if client is not None:
        if client not in clients:
            known = ", ".join(list(clients)[:20]) or f"none: {why}"
            raise ValueError(f"{place} has no client {client!r}{nearest(client, clients)}; there are {known}")
        return clients[client]
    if index["server"]:
        return index["server"]
    if len(clients) == 1:
        return next(iter(clients.values()))
    if not clients:
        raise ValueError(f"{place} has no model files: {why or 'no client has a network'}")
    more = f" and {len(clients) - 20} more" if len(clients) > 20 else ""
    raise ValueError(
        f"{place} has no network that all clients share, but one for each: say --client NAME (in Python client=), "
        f"one of {', '.join(list(clients)[:20])}{more}"
    )


def network_of_run(folder: str | Path, client: str | None = None) -> Network:
    """The network of a finished run: the one that all clients share, or a client's own.

    With `validation` it is that of the best round, else that of the last.
    """
    return load_network(find_model(folder, client))
