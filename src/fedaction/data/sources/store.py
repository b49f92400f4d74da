"""Skeletons that were imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from fedaction.data.client import ClientData
from fedaction.data.files import digest_files
from fedaction.data.sources.base import PeopleSource, SequenceSource, Tell, name_each
from fedaction.data.store import FRAMES, HEADER, clients_from_store


class StoreSource(SequenceSource, PeopleSource):
    """Your own data, imported with `fedaction data import`."""

    formerly: ClassVar[Mapping[str, str]] = {"test_share": "store_test"}
    replaced: ClassVar[Mapping[str, str]] = {"store_test": "test_share (a share) or hold_out (people)"}

    store_paths: tuple[str, ...]
    """Imported datasets; relative paths are looked up from where the command runs."""
    store_by: Literal["dataset", "subject", "dirichlet", "shards", "iid"] = "dataset"
    """How a dataset is dealt to clients: one client per dataset or person, or a partition."""
    store_clients: int = Field(0, ge=0)
    """How many clients to deal the data to; 0: as many as there are datasets or subjects."""
    store_alpha: float = Field(0.5, gt=0)
    """Concentration of the Dirichlet partition: the smaller, the less alike clients are."""
    test_share: float = Field(0.3, gt=0, lt=1)
    """Where nobody is held out: the share of samples kept for test, of whole people where a client knows several."""
    store_protocol: str = ""
    """One of the datasets' own splits in place of hold_out and test_share, such as cross_subject; empty: those."""

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        return clients_from_store(
            [Path(path) for path in self.store_paths],
            split=self.test_share,
            hold_out=self.hold_out,
            protocol=self.store_protocol,
            by=self.store_by,
            clients=self.store_clients or None,
            alpha=self.store_alpha,
            frames=self.frames,
            align=self.align,
            seed=seed,
            progress=tell,
        )

    def fingerprint(self, seed: int) -> dict[str, str]:
        """See `Source.fingerprint`."""
        folders = [Path(path) for path in self.store_paths]
        digests = [digest_files(folder, [folder / HEADER, folder / FRAMES]) for folder in folders]
        return dict(zip(name_each(self.store_paths), digests, strict=True))
