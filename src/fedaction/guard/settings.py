"""Keys of a recipe about sites that cannot be trusted: what the server does about them, and who plays one."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from fedaction.federation.settings import Settings

GuardName = Literal["none", "norm", "median", "trimmed", "krum"]
"""What is done about updates that are well formed but may be meant to do harm."""
AttackName = Literal["none", "scale", "sign", "noise", "labels", "nan"]
"""What a hostile client of a simulation does."""


class GuardSettings(Settings):
    """Keys that every recipe has, in a group of their own."""

    guard: GuardName = "none"
    """none; norm: how far an update goes is bounded; median, trimmed: by entry, in place of the mean; krum: only the
    updates that are nearest to each other count. All within each scope and group: docs/robust.md."""
    guard_norm: float = Field(1.0, gt=0)
    """norm: the furthest an update may go from what its client was sent, as `guard_norm_unit` says."""
    guard_norm_unit: Literal["median", "absolute"] = "median"
    """Whether guard_norm is a multiple of the median over the round's updates, or the norm itself."""
    guard_trim: float = Field(0.2, gt=0, lt=0.5)
    """trimmed: the share of updates, rounded up, left out at either end of each entry."""
    guard_krum: int = Field(1, ge=1)
    """krum: how many attackers are expected in each scope and group, where 2 x this + 3 updates are needed."""
    guard_keep: int = Field(0, ge=0)
    """krum: how many updates are averaged; 0: all but the expected attackers' number, 1: Krum as first published."""
    weight_bound: float = Field(0.0, ge=0)
    """The most that an update may count in a mean, as a multiple of the median weight of the round; 0: no bound."""

    attack: AttackName = "none"
    """For experiments: what some clients do. scale, sign, noise: to what they learned; labels: learn from flipped
    ones; nan: send what is no number."""
    attackers: int | tuple[str, ...] = 0
    """For experiments: which clients do it, by name, or how many of them (drawn by the run's seed)."""
    attack_size: float = Field(0.0, ge=0)
    """scale, sign: the factor on what they learned (0: 1000 and 1); noise: its size as a multiple of that (0: 10)."""

    @field_validator("attack", mode="before")
    @classmethod
    def _name_nan(cls, value: Any) -> Any:
        """`--set attack=nan` is a number to TOML."""
        return "nan" if isinstance(value, float) and value != value else value

    @property
    def holds_round(self) -> bool:
        """Whether the server holds all updates that it combines at a time; else it folds each in as it comes."""
        streams = self.guard == "none" or (self.guard == "norm" and self.guard_norm_unit == "absolute")
        return not streams or self.weight_bound > 0
