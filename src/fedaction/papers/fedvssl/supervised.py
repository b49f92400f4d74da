"""The upper end of FedVSSL's scale: its network, trained on the labels of the recordings that others do without."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedaction.data.client import ClientData
from fedaction.data.clips.clips import join, recordings_of
from fedaction.data.clips.window import window_of
from fedaction.engines.base import choose_device, set_precision
from fedaction.federation.files import lock_folder, read_sealed_json, remove_partial, write_sealed_json
from fedaction.federation.progress import Progress
from fedaction.federation.settings import hash_values
from fedaction.models.files import clip_card, save_model
from fedaction.papers.work import Work
from fedaction.runs.environment import environment
from fedaction.runs.metrics import read_rows
from fedaction.runs.recipe import Recipe
from fedaction.runs.study import load_clients, split_seed
from fedaction.training.evaluate import RANDOM, Backbones, tuning_splits
from fedaction.training.evaluate_recipe import EvaluateSettings
from fedaction.training.protocols import Tuned, precision_on
from fedaction.training.trainer import Pretraining

_RECORD = "data.json"  # what it learned from


@dataclass(frozen=True)
class Supervised(Work):
    """A network trained with labels on all clients' recordings together; see `Work`.

    It is trained as evaluation fine-tunes, from random weights.
    """

    recipe: Recipe
    """Of the pretraining: whose recordings, which clips, which network."""
    tuning: EvaluateSettings
    """How it is trained."""

    @property
    def model(self) -> Path:
        """Its model file, without a classifier."""
        return self.folder / "model.safetensors"

    @property
    def done(self) -> bool:
        """See `Work`: the model file is what is written last."""
        if not self.model.exists() or not (self.folder / "environment.json").exists():
            return False
        record = self.folder / _RECORD
        return not record.exists() or read_sealed_json(record).get("source") == self._source

    @property
    def _source(self) -> dict[str, str]:
        return self.recipe.source.fingerprint(split_seed(self.recipe))

    def execute(self, progress: Progress, one_core: bool = False) -> float:
        """See `Work`; the share of the clients' test clips that it recognises."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(self.folder):
            remove_partial(self.folder)
            record, source = self.folder / _RECORD, self._source
            before = read_sealed_json(record).get("source") if record.exists() else source
            if before != source:
                raise ValueError(
                    f"{self.folder} was begun with other recordings than there are now: bring those back, or choose "
                    "another --out"
                )
            write_sealed_json(record, {"source": source})
            self._train(progress)
        rows = read_rows(self.folder / "metrics.jsonl")
        return [row.value or 0.0 for row in rows if (row.split, row.name) == ("test", "accuracy")][-1]

    def _train(self, progress: Progress) -> None:
        frames, side, depth, width = _shape(self.recipe)
        tuning, device = self.tuning, choose_device(self.tuning.device)
        clients = list(load_clients(self.recipe, progress).values())
        train, test = (join(splits) for splits in zip(*((c.train, c.test) for c in clients), strict=True))
        data = ClientData(clients[0].info, train, test)
        write_sealed_json(self.folder / "environment.json", environment(device))
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
        card = clip_card(classes=(), frames=frames, stride=stride, resize=resize, crop=side, provenance=about)
        save_model(self.model, network.backbone.cpu(), card)


def supervise(recipe: Recipe, tuning: EvaluateSettings, home: Path, seed: int) -> Supervised:
    """The network of a seed; its folder below `home` is named by a hash of all that decides it but the seed."""
    data = [recipe.run.data, recipe.run.data_seed, recipe.source.deciding()]
    configuration = hash_values({"shape": _shape(recipe), "data": data, "tuning": tuning.deciding()})
    folder = home / f"supervised-{configuration}" / f"seed-{seed}"
    return Supervised("supervised", configuration, seed, folder, recipe, tuning)


def _shape(recipe: Recipe) -> tuple[int, int, int, int]:
    """Frames and side of a clip, depth and width of the network."""
    keys = recipe.flat()
    return keys["clip_frames"], keys["clip_size"], keys["model_depth"], keys["model_width"] or 64
