"""Recipes of evaluation: what a network's features are good for, and how that is measured. All keys have defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from fedaction.engines.base import OptimiserName
from fedaction.evaluation.retrieval import KS, Pooling, Rule
from fedaction.federation.settings import HOW
from fedaction.models.resnet3d import BLOCKS
from fedaction.runs.recipe import read_overrides, read_recipe
from fedaction.training.distil_recipe import ClipRecipe, ClipSettings, DistilSettings, parse_clip_recipe

Protocol = Literal["retrieval", "probe", "finetune"]
PROTOCOLS: tuple[Protocol, ...] = ("retrieval", "probe", "finetune")

Perturbation = Literal["absolute", "filter"]

Share = Annotated[float, Field(gt=0, lt=1)]
Side = Annotated[int, Field(ge=112)]


class EvaluateSettings(ClipSettings):
    """Keys that every evaluation has. Defaults are FedVSSL's, where it says."""

    name: str = Field("evaluate", json_schema_extra=HOW)
    """What the evaluation is called. Default: from the recipe's path."""
    protocols: tuple[Protocol, ...] = Field(PROTOCOLS, min_length=1, json_schema_extra=HOW)
    """What is measured: retrieval, a linear probe, fine-tuning of the whole network."""

    clips: int = Field(10, ge=1)
    """Retrieval, probe and tests: clips of a recording, evenly spread; fewer where it has no room for so many."""
    clip_frames: int = Field(16, ge=1)
    """Frames of a clip; where all recordings are shorter: of the longest."""
    clip_stride: int = Field(1, ge=1)
    """Retrieval and probe: frames of a recording from one frame of a clip to the next; fewer, where it is short."""

    depth: int = 18
    """Of a network with random weights."""
    width: int = Field(64, ge=1)
    """Of a network with random weights: channels of the first stage."""
    stem: Literal["r3d", "hara"] = "r3d"
    """Of a network with random weights: FedVSSL's R3D, or Hara's, which `fedaction distil` trains."""
    strides: Literal["standard", "ctp", "own"] = "standard"
    """standard: 2 at stages 2 to 4, as FedVSSL evaluates; ctp: 1 at stage 4, for small clips; own: as in training."""

    pooling: Pooling = "mean"
    """Retrieval: mean of the last map, or max over squares of 2 x 2 (VCOP)."""
    retrieval_rule: Rule = "any"
    """Retrieval: whether any, or the majority, of the nearest must have the query's class."""
    retrieval_ks: tuple[PositiveInt, ...] = Field(KS, min_length=1)
    """Retrieval: numbers of neighbours; one above the gallery's size takes all of it."""
    video_rule: Literal["logits", "probabilities"] = "logits"
    """What is averaged over a recording's clips for its class. FedVSSL: logits; distillation: probabilities."""

    probe_epochs: int = Field(100, ge=1)
    """Probe: passes over the training clips."""
    probe_lr: float = Field(0.01, gt=0)
    """Probe: learning rate of SGD."""
    probe_milestones: tuple[Share, ...] = (0.6, 0.8)
    """Probe: when it falls to a tenth, as shares of the epochs: of 100 these are epochs 60 and 80."""
    probe_clips: Literal["fixed", "drawn", "both"] = "fixed"
    """Probe: on features of the same clips throughout; or (the paper) on clips drawn anew, as in fine-tuning."""
    probe_standardise: bool = True
    """Probe, fixed clips: features are brought to mean 0 and deviation 1 first, so that one rate fits any scale."""

    finetune_epochs: int = Field(150, ge=1)
    """Fine-tuning: passes over the training recordings, with a clip of each from anywhere in it."""
    finetune_stride: int = Field(2, ge=1)
    """Fine-tuning: frames of a recording from one frame of a clip to the next; fewer, where it is short."""
    finetune_optimiser: OptimiserName = "sgd"
    """Fine-tuning: sgd, adam or adamw, as in torch.optim."""
    finetune_lr: float = Field(0.01, gt=0)
    """Fine-tuning: learning rate."""
    finetune_milestones: tuple[Share, ...] = (0.4, 0.8)
    """Fine-tuning: when it falls to a tenth, as shares of the epochs: of 150 these are epochs 60 and 120."""
    finetune_clip_norm: float = Field(0.0, ge=0)
    """Fine-tuning: the largest gradient norm; 0: no limit."""
    augment: bool = True
    """Fine-tuning: whether clips are scaled, cut at random places, mirrored and given other colours."""
    augment_scales: tuple[Side | tuple[Side, Side], ...] = Field((112, 128, 144), min_length=1)
    """One is drawn: the frame's shorter side, or its longer and shorter side, for a crop of 112; others scale it."""
    augment_flip: float = Field(0.35, ge=0, le=1)
    """Probability that a clip is mirrored; 0 for actions in which left and right matter."""
    augment_chance: float = Field(0.2, ge=0, le=1)
    """Probability of another brightness, of another contrast, and of another hue; 0: colours stay."""
    augment_brightness: float = Field(32.0, ge=0)
    """At most so much is added or subtracted, of 255."""
    augment_contrast: float = Field(0.2, ge=0)
    """Contrast: a factor within exp(+-this)."""
    augment_hue: float = Field(12.0, ge=0)
    """Hue: at most so many steps of two degrees."""
    augment_saturation: float = Field(0.1, ge=0)
    """With the hue, saturation: a factor within exp(+-this)."""

    weight_decay: float = Field(5e-4, ge=0)
    """Probe and fine-tuning: L2 penalty."""
    batch_size: int = Field(32, ge=1)
    """Probe and fine-tuning: clips per step."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Probe and fine-tuning: dropout before the new classifier."""

    perturb: bool = Field(False, json_schema_extra=HOW)
    """Whether retrieval is measured under noise on the weights, too: w + k noise."""
    perturb_kinds: tuple[Perturbation, ...] = Field(("absolute", "filter"), min_length=1)
    """absolute: noise N(0, 1), as the paper says; filter: each filter's noise is as long as the filter."""
    perturb_levels: tuple[NonNegativeFloat, ...] = Field((0.0, 0.1, 0.2, 0.3, 0.4, 0.5), min_length=1)
    """The values of k."""
    perturb_draws: int = Field(3, ge=1)
    """Draws of the noise, for each seed."""

    feature_batch: int = Field(32, ge=1)
    """Clips at once where features are computed."""
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", json_schema_extra=HOW)
    """Fine-tuning: bf16 (on a GPU alone; convolutions in bfloat16), or fp32; auto: bf16 where there is a GPU."""

    @model_validator(mode="after")
    def _fits_together(self) -> EvaluateSettings:
        if self.depth not in BLOCKS:
            raise ValueError(f"depth: there is no ResNet-{self.depth}; depths are {', '.join(map(str, BLOCKS))}")
        return self

    def finetuning(self, precision: Literal["fp32", "bf16"], *, whole: bool = True) -> DistilSettings:
        """The same as keys of `training.trainer`, which fine-tunes. Nothing is tested before the last epoch.

        With `whole`, of fine-tuning the whole network; else of a probe on clips drawn anew.
        """
        same = ("batch_size", "momentum", "weight_decay", "augment", "tf32", "compile", "checkpoint_every")
        renamed = {"optimiser": "optimiser", "lr": "lr", "lr_milestones": "milestones", "clip_norm": "clip_norm"}
        keys = {key: getattr(self, f"finetune_{own}") for key, own in renamed.items()}
        if not whole:
            keys |= {"lr": self.probe_lr, "lr_milestones": self.probe_milestones}
        epochs = self.finetune_epochs if whole else self.probe_epochs
        keys |= {"epochs": (epochs,), "evaluate_every": epochs, "precision": precision}
        return DistilSettings.model_validate(keys | {key: getattr(self, key) for key in same})


class EvaluateRecipe(ClipRecipe[EvaluateSettings]):
    """A recipe of evaluation."""

    def deciding(self, precision: str) -> dict[str, Any]:
        """Keys that decide each result, with the precision that fine-tuning has here; not those of the data."""
        return self.settings.deciding(defaults=True) | {"precision": precision}


def load_evaluate_recipe(path: Path | str | None, overrides: Sequence[str] = ()) -> EvaluateRecipe:
    """Reads a recipe (a file, or a name), or starts from defaults, with `key=value` overrides. Raises RecipeError."""
    values = {} if path is None else read_recipe(path)
    return parse_evaluate_recipe(values | read_overrides(overrides), "--set" if path is None else str(path))


def parse_evaluate_recipe(values: Mapping[str, Any], origin: str = "the recipe") -> EvaluateRecipe:
    """Validates a recipe's values. Every key must belong to evaluation or to the clips it names."""
    return EvaluateRecipe(*parse_clip_recipe(values, EvaluateSettings, origin))
