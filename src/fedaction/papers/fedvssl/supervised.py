"""The upper end of FedVSSL's scale: its network, trained on the labels of the recordings that others do without."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedaction.data.client import ClientData
from fedaction.data.clips.clips import join, recordings_of
from fedaction.data.clips.window import window_of
from fedaction.engines.base import choose_device, set_precision
from fedaction.federation.files import lock_folder, read_json, remove_partial, write_json
from fedaction.federation.progress import Progress
from fedaction.federation.settings import hash_values
from fedaction.models.files import Card, save_model
from fedaction.papers.work import Environment
from fedaction.runs.environment import environment
from fedaction.runs.metrics import read_rows
from fedaction.runs.recipe import Recipe
from fedaction.runs.study import load_clients
from fedaction.training.evaluate import RANDOM, Backbones, tuning_splits
from fedaction.training.evaluate_recipe import EvaluateSettings
from fedaction.training.protocols import Tuned, precision_on
from fedaction.training.trainer import Pretraining


@dataclass(frozen=True)
class Supervised:
    """A network trained with labels on all clients' recordings together; see `work.Work`.

    It is trained as evaluation fine-tunes, from random weights.

    Attributes:
        recipe: of the pretraining: whose recordings, which clips, which network.
        tuning: how it is trained.
        home: the folder of such networks.
        seed: its seed.
    """

    recipe: Recipe
    tuning: EvaluateSettings
    home: Path
    seed: int
    label: str = "supervised"

    @property
    def configuration(self) -> str:
        """See `Work`: a hash of what decides it, but for the seed."""
        source, tuning = self.recipe.source.deciding(), self.tuning.deciding()
        run = self.recipe.run
        return hash_values({"shape": self._shape, "data": [run.data, run.data_seed, source], "tuning": tuning})

    @property
    def folder(self) -> Path:
        """See `Work`."""
        return self.home / f"supervised-{self.configuration}" / f"seed-{self.seed}"

    @property
    def model(self) -> Path:
        """Its model file, without a classifier."""
        return self.folder / "model.safetensors"

    @property
    def done(self) -> bool:
        """See `Work`: the model file is what is written last."""
        return self.model.exists() and self._environment_file.exists()

    @property
    def environment(self) -> Environment:
        """See `Work`."""
        return Environment.parse(read_json(self._environment_file))

    @property
    def accuracy(self) -> float:
        """The share of the clients' test clips that it recognises, 0 to 1; of one that is done."""
        rows = read_rows(self.folder / "metrics.jsonl")
        return [row.value or 0.0 for row in rows if (row.split, row.name) == ("test", "accuracy")][-1]

    def execute(self, progress: Progress, one_core: bool = False) -> float:
        """See `Work`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(self.folder):
            remove_partial(self.folder)
            self._train(progress)
        return self.accuracy

    @property
    def _environment_file(self) -> Path:
        return self.folder / "environment.json"

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        """Frames and side of a clip, depth and width of the network."""
        keys = self.recipe.flat()
        return keys["clip_frames"], keys["clip_size"], keys["model_depth"], keys["model_width"] or 64

    def _train(self, progress: Progress) -> None:
        frames, side, depth, width = self._shape
        tuning, device = self.tuning, choose_device(self.tuning.device)
        clients = list(load_clients(self.recipe, progress).values())
        train, test = (join(splits) for splits in zip(*((c.train, c.test) for c in clients), strict=True))
        data = ClientData(clients[0].info, train, test)
        write_json(self._environment_file, environment(device))
        set_precision(tuning.tf32)
        window = window_of(data, side)
        learn, held_out = (recordings_of(split).on(device) for split in (train, test))
        splits = tuning_splits(tuning, learn, held_out, frames, window, device)
        backbone = Backbones(RANDOM, EvaluateSettings.model_validate({"depth": depth, "width": width})).of(self.seed)
        network = Tuned(backbone, len(data.info.classes), tuning.dropout)
        keys = tuning.finetuning(precision_on(tuning, device))
        training = Pretraining(network, depth, tuning.finetune_epochs, self.seed, keys, splits)
        training.execute(self.folder, self.configuration, self.label, progress)
        about = {"method": "supervised", "seed": self.seed, "configuration": self.configuration}
        stride, resize = self.recipe.source.clip or (1, window.frame[0])
        card = Card(classes=(), frames=frames, stride=stride, resize=resize, crop=side, provenance=about)
        save_model(self.model, network.backbone.cpu(), card)
