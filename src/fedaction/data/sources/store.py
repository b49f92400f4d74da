"""Skeletons that were imported."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from fedaction.data.client import ClientData
from fedaction.data.sources.base import SequenceSource, Tell
from fedaction.data.store import clients_from_store


class StoreSource(SequenceSource):
    """Your own data, imported with `fedaction data import`."""

    store_paths: tuple[str, ...]
    """Imported datasets; relative paths are looked up from where the command runs."""
    store_by: Literal["dataset", "subject", "dirichlet", "shards", "iid"] = "dataset"
    """How a dataset is dealt to clients: one client per dataset or person, or a partition."""
    store_clients: int = Field(0, ge=0)
    """How many clients to deal the data to; 0: as many as there are datasets or subjects."""
    store_alpha: float = Field(0.5, gt=0)
    """Concentration of the Dirichlet partition: the smaller, the less alike clients are."""
    store_test: float | tuple[str, ...] = 0.3
    """The share of samples (whole subjects where they are known) kept for testing, or the names of test subjects."""
    store_protocol: str = ""
    """One of the datasets' own splits in place of store_test, such as cross_subject; empty: store_test."""

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        split = list(self.store_test) if isinstance(self.store_test, tuple) else self.store_test
        return clients_from_store(
            [Path(path) for path in self.store_paths],
            split=split,
            protocol=self.store_protocol,
            by=self.store_by,
            clients=self.store_clients or None,
            alpha=self.store_alpha,
            frames=self.frames,
            align=self.align,
            seed=seed,
            progress=tell,
        )
