"""Recipes of distillation: one flat TOML, read into frozen, validated settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from fedaction.data.sources import CLIP_SOURCES
from fedaction.data.sources.base import ClipSource
from fedaction.engines.base import OptimiserName
from fedaction.federation.settings import (
    HOW,
    RecipeError,
    Settings,
    check_choice,
    check_flat,
    hash_values,
    parse_settings,
)
from fedaction.methods.distillation import ClsTarget, KdLoss, Reduction
from fedaction.models.resnet3d import BLOCKS
from fedaction.runs.recipe import read_overrides, read_recipe

Keys = TypeVar("Keys", bound=Settings)


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, int) else value


class ClipSettings(Settings):
    """Keys that distillation and evaluation share."""

    seeds: tuple[int, ...] = Field((0,), min_length=1, json_schema_extra=HOW)
    """Everything that is drawn is drawn anew for each seed; results are means over them."""
    # Clips and a given teacher are hashed by what is in them, so the keys that name them do not count.
    data: str = Field("stage_video", json_schema_extra=HOW)
    """Where clips come from: stage_video (synthetic), video, arrays (NumPy files); clients are put together."""
    data_seed: int = Field(0, json_schema_extra=HOW)
    """What the data itself is drawn from; the same for every seed."""
    crop: int = Field(0, ge=0)
    """Side of the square that networks see, in pixels; at test the frame's middle; 0: the largest that fits."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of SGD."""
    device: Literal["auto", "cpu", "cuda"] = Field("auto", json_schema_extra=HOW)
    """auto, cpu or cuda."""
    tf32: bool = True
    """On a GPU: faster float32 products with 10-bit mantissas."""
    compile: bool = Field(False, json_schema_extra=HOW)
    """Whether networks that learn are fused with torch.compile: minutes at the start, faster steps on a GPU."""
    checkpoint_every: int = Field(5, ge=1, json_schema_extra=HOW)
    """Epochs between checkpoints."""

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        for key in ("protocols", "seeds", "retrieval_ks", "perturb_kinds", "perturb_levels"):
            values: tuple[Any, ...] = getattr(self, key, ())
            if len(set(values)) != len(values):
                raise ValueError(f"{key}: one is named twice in {list(values)}")
        return self


class DistilSettings(ClipSettings):
    """Keys that every recipe of distillation has. Defaults are the paper's, where it says."""

    name: str = Field("distil", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", json_schema_extra=HOW)
    """What the run is called: letters, digits, dots, dashes. Default: from the recipe's path."""
    chain: tuple[int, ...] = Field((34, 26, 18), min_length=1)
    """Depths from teacher over assistants to student; one alone is trained from scratch."""
    scratch: bool = Field(False, json_schema_extra=HOW)
    """Whether the student is also trained without a teacher, to compare with."""
    teacher: str = Field("", json_schema_extra=HOW)
    """A model file for the first of the chain, which is then not trained; "": none."""
    width: int = Field(64, ge=1)
    """Channels of the networks' first stage, doubled in each of the next three."""

    epochs: Annotated[tuple[PositiveInt, ...], Field(min_length=1), BeforeValidator(_as_tuple)] = (200,)
    """Passes over the training clips: one number for all of the chain, or one for each."""
    batch_size: int = Field(128, ge=1)
    """Clips per step; a smaller set is taken whole."""
    optimiser: OptimiserName = "sgd"
    """sgd, adam or adamw, as in torch.optim."""
    lr: float = Field(0.1, gt=0)
    """Learning rate."""
    lr_schedule: Literal["milestones", "cosine"] = "milestones"
    """How the learning rate falls: in steps, or along a half cosine to zero."""
    lr_milestones: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.25, 0.5, 0.75)
    """When it falls, as shares of the epochs: of 200 these are epochs 50, 100 and 150."""
    lr_factor: float = Field(0.1, gt=0, le=1)
    """What it is multiplied by at each milestone."""
    warmup_epochs: int = Field(0, ge=0)
    """Epochs over which the learning rate rises to its value."""
    weight_decay: float = Field(1e-3, ge=0)
    """L2 penalty on all weights (adamw: decoupled)."""
    clip_norm: float = Field(0.0, ge=0)
    """The largest gradient norm; 0: no limit."""

    alpha: float = Field(0.5, ge=0, le=1)
    """L = alpha L_cls + (1 - alpha) L_KD. The paper gives no value."""
    kd_loss: KdLoss = "squared"
    """L_KD: squared difference of logits (the paper), or kl, the divergence of softened probabilities (Hinton)."""
    kd_reduction: Reduction = "sum"
    """The squared difference is this over classes; sum is the equation as it is written. Over a batch: the mean."""
    temperature: float = Field(1.0, gt=0)
    """Softens the probabilities of kl, whose divergence is then multiplied by its square."""
    cls_target: ClsTarget = "label"
    """What L_cls is taken against: the true label, the teacher's best class, or its probabilities."""

    augment: bool = True
    """Random crops and mirrored clips in training; the teacher then looks at every batch, and no logits are kept."""
    augment_pad: int = Field(4, ge=0)
    """How far random crops may reach over the frame's edges, in pixels; the edge is repeated."""
    augment_flip: bool = True
    """Whether half of the clips are mirrored; not for actions in which left and right matter."""

    precision: Literal["fp32", "bf16"] = "fp32"
    """fp32, or on a GPU bf16: convolutions in bfloat16, weights and losses in float32."""
    channels_last: bool = True
    """Whether weights lie in memory with channels last, which GPUs like."""
    evaluate_every: int = Field(1, ge=1)
    """Epochs between tests."""

    @model_validator(mode="after")
    def _fits_together(self) -> DistilSettings:
        strange = [depth for depth in self.chain if depth not in BLOCKS]
        if strange:
            raise ValueError(f"chain: there is no ResNet-{strange[0]}; depths are {', '.join(map(str, BLOCKS))}")
        if any(smaller >= larger for larger, smaller in zip(self.chain, self.chain[1:], strict=False)):
            raise ValueError(f"chain: {list(self.chain)} must go down, from the teacher to the student")
        if len(self.epochs) not in (1, len(self.chain)):
            raise ValueError(
                f"epochs: {len(self.epochs)} numbers for a chain of {len(self.chain)}; give one, or as many"
            )
        if self.teacher and len(self.chain) < 2:
            raise ValueError("teacher: a chain of one has none; name the teacher's depth first in chain")
        if self.scratch and len(self.chain) < 2:
            raise ValueError("scratch: a chain of one is trained from scratch already; leave the key out")
        return self


DEFAULTS = 1
"""Raised whenever the default of a key that decides results changes, so that hashes tell the two apart."""


@dataclass(frozen=True)
class ClipRecipe(Generic[Keys]):
    """A validated recipe: a command's own keys, and those of the clips that it names."""

    settings: Keys
    source: ClipSource

    def flat(self) -> dict[str, Any]:
        """Every key with its value, defaults filled in: the resolved recipe."""
        return self.settings.model_dump() | self.source.model_dump()


class DistilRecipe(ClipRecipe[DistilSettings]):
    """A recipe of distillation."""

    def configuration(self, seed: int, data: str, teacher: str) -> str:
        """A hash of everything that decides a chain's result: keys, seed, the data's hash, a given teacher's hash."""
        keys = self.settings.deciding()
        return hash_values({"defaults": DEFAULTS, "keys": keys, "seed": seed, "data": data, "teacher": teacher})


def load_distil_recipe(path: Path | str, overrides: Sequence[str] = ()) -> DistilRecipe:
    """Reads a recipe (a file, or a name), with `key=value` overrides. Raises RecipeError."""
    return parse_distil_recipe(read_recipe(path) | read_overrides(overrides), str(path))


def parse_distil_recipe(values: Mapping[str, Any], origin: str = "the recipe") -> DistilRecipe:
    """Validates a recipe's values. Every key must belong to distillation or to the clips it names."""
    if "method" in values and "chain" not in values:
        raise RecipeError(f"{origin}: this is a recipe of a federated run; use `fedaction run` for it")
    return DistilRecipe(*parse_clip_recipe(values, DistilSettings, origin))


def parse_clip_recipe(values: Mapping[str, Any], kind: type[Keys], origin: str) -> tuple[Keys, ClipSource]:
    """A command's keys and those of the clips that it names, from one flat recipe."""
    check_flat(values, origin)
    check_choice({"data": "stage_video", **values}, "data", CLIP_SOURCES, origin)
    kinds = {"settings": kind, "source": CLIP_SOURCES[values.get("data", "stage_video")]}
    parsed = parse_settings(values, kinds, origin)
    settings, source = parsed["settings"], parsed["source"]
    assert isinstance(settings, kind) and isinstance(source, ClipSource)
    return settings, source
