"""What a paper's item is run on: which data stand in for its clients, and how large the runs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from fedaction.federation.settings import RecipeError
from fedaction.papers.item import Column, ItemRow

Scale = Literal["tiny", "small", "paper"]
SCALES: tuple[Scale, ...] = ("tiny", "small", "paper")


@dataclass(frozen=True)
class Setting:
    """Data and scale of a regeneration: what all papers have. Each has a setting of its own, with what it needs."""

    data: str
    """The word or path given to the command."""
    scale: Scale
    """Tiny, small or paper."""
    about: str
    """What the data are, for captions."""
    base: Mapping[str, Any]
    """Recipe keys that all rows share, without those of the data."""
    source: Mapping[str, Any]
    """Recipe keys of the data that all rows share."""
    positions: tuple[int, ...]
    """Which of the paper's clients, groups or datasets, as columns count them, have a stand-in."""

    def keys(self, among: Sequence[int] = ()) -> dict[str, Any]:
        """Recipe keys of a federation of the clients at some of the positions; of all that there are by default."""
        return {**self.base, **self.source}

    def row_keys(self, row: ItemRow) -> Mapping[str, Any] | None:
        """Recipe keys of a row at this scale, before the user's; None where the data have nothing for the row."""
        return {}

    def derived_keys(self, row: ItemRow, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Recipe keys of a row that follow from others; `given`: those that the user has set for all rows."""
        return {}

    def split(self, protocol: str) -> tuple[dict[str, Any], str]:
        """Recipe keys of an item's protocol, and why the data do not have it; "" where they do."""
        return {}, ""

    def federation(self, column: Column) -> tuple[tuple[int, ...], str]:
        """Positions of the clients that are federated for a column (empty: all), and a name for them or ""."""
        return column.among, column.source

    def group(self, position: int) -> str:
        """The group of clients (the modality, say) that stands in at one of the positions."""
        raise NotImplementedError(f"{type(self).__name__} has no groups, yet a column asks for that at {position}")

    def take_overrides(self, overrides: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """The setting with those of the user's keys that have one value per client; and the other keys."""
        return self, dict(overrides)


S = TypeVar("S", bound=Setting)
"""A paper's own kind of setting."""


def parse_scale(scale: str) -> Scale:
    """The scale of that name; RecipeError where there is none."""
    if scale not in SCALES:
        raise RecipeError(f"--scale {scale} is unknown; there are {', '.join(SCALES)}")
    return scale


def data_folder(data: str) -> Path:
    """The folder that `--data` names; RecipeError where it is none."""
    root = Path(data)
    if not root.is_dir():
        raise RecipeError(f"--data {data} is neither stage nor real nor a folder")
    return root


def find_videos(data: str, folders: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Keys of the video datasets below the folder that `--data` names; `folders`: what each one's is called."""
    root = data_folder(data)
    present = {name: folder for name, folder in folders.items() if (root / folder).is_dir()}
    return {name: {"video_set": folder, "video_root": str(root / folder)} for name, folder in present.items()}


def side_before_crop(crop: int) -> int:
    """The shorter side, in pixels, that videos are brought to before a square is cut: 128 for 112."""
    return round(crop * 8 / 7)
