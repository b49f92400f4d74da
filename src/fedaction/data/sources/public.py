"""Skeletons of public datasets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from fedaction.data.client import ClientData
from fedaction.data.public.cache import digest_public, prepare_public
from fedaction.data.public.readers import READERS
from fedaction.data.sources.base import SequenceSource, Tell, data_root
from fedaction.data.store import clients_from_store
from fedaction.federation.settings import HOW

Split = Literal["cross_subject", "cross_view", "cross_setup"]


class PublicSource(SequenceSource):
    """Public datasets, which you bring: one client for each, with the dataset's own split."""

    public_sets: tuple[str, ...] = Field(min_length=1)
    """Public datasets, one client each, by the names of their readers, such as utd_mhad or ntu60."""
    public_root: str = Field("", json_schema_extra=HOW)
    """Folder that holds a folder for each dataset, named like it; empty: the environment variable FEDACTION_DATA."""
    public_split: Split | tuple[Split, ...] = "cross_subject"
    """Which of the datasets' splits: cross_subject, cross_view or cross_setup; or one for each of public_sets."""
    public_cache: str = Field("", json_schema_extra=HOW)
    """Folder where datasets are kept once read; empty: FEDACTION_CACHE, else ~/.cache/fedaction."""

    @field_validator("public_sets")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in READERS:
                raise ValueError(f"no reader is called {name!r}; there are {', '.join(READERS)}")
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is named twice")
        return names

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        place = data_root(self.public_root, "public_root", self.public_sets)
        count = len(self.public_sets)
        splits = (self.public_split,) * count if isinstance(self.public_split, str) else self.public_split
        if len(splits) != count:
            raise ValueError(
                f"public_split has {len(splits)} entries for {count} datasets; give one, or one for each"
            )
        clients: list[ClientData] = []
        for name, split in zip(self.public_sets, splits, strict=True):
            has = READERS[name].protocols
            if split not in has:
                raise ValueError(f"{name} has no split {split}; it has {', '.join(has)}")
            store = prepare_public(name, place / name, cache=self.public_cache or None, progress=tell)
            clients += clients_from_store(store, protocol=split, frames=self.frames, align=self.align, seed=seed)
        return clients

    def fingerprint(self, seed: int) -> dict[str, str]:
        """See `Source.fingerprint`."""
        place = data_root(self.public_root, "public_root", self.public_sets)
        return {name: digest_public(READERS[name], place / name) for name in self.public_sets}
