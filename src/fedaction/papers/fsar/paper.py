"""FSAR and its supplement as a paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedaction.papers.cells import Draft
from fedaction.papers.fsar.figures import FIGURES
from fedaction.papers.fsar.setting import FsarSetting, fsar_setting
from fedaction.papers.fsar.tables import TABLES
from fedaction.papers.fsar.values import read_cka, read_coefficients, read_epsilon, read_sizes, read_topology
from fedaction.papers.item import Item, ItemRow
from fedaction.papers.outcome import Value
from fedaction.papers.paper import Paper

_READERS = {
    **{"sizes": read_sizes, "coefficients": read_coefficients, "cka": read_cka},
    **{"topology": read_topology, "epsilon": read_epsilon},
}


class _FsarPaper(Paper[FsarSetting]):
    """FSAR (Guo et al., ICCV 2023): skeletons, one dataset per client."""

    name = "fsar"
    title = "FSAR and its supplement"
    items = (*TABLES, *FIGURES)
    rounds = 300

    def setting(self, data: str, scale: str) -> FsarSetting:
        return fsar_setting(data, scale)

    def minutes(self, row: ItemRow) -> float:
        """FSAR has three streams, plain averaging one."""
        slower = {"ctrgcn": 2.5, "mstgcn": 2.0, "msg3d": 4.0}.get(row.overrides.get("backbone", ""), 1.0)
        epochs = row.times.get("local_epochs", 1) * row.overrides.get("local_epochs", 1)
        return slower * epochs * (1.2 if row.method == "fsar" else 0.6)

    def needs(self, item: Item) -> str:
        if item.shows == "sizes":
            return "the data"
        return super().needs(item) + ("; data with named views" if item.protocol else "")

    def read(self, draft: Draft[FsarSetting]) -> Iterable[Value]:
        return _READERS.get(draft.item.shows, super().read)(draft)

    def notes(self, draft: Draft[FsarSetting], table: Sequence[Value]) -> list[str]:
        """Where clients of a pair come from, and how an unseen client was tested."""
        notes = super().notes(draft, table)
        if draft.bench.setting.source["data"] == "stage" and any(column.among for column in draft.item.columns):
            notes.append(
                "On the stage the second client of a pair has the layout and the amounts of the one it stands for, "
                "but is another place."
            )
        runs = [cell.runs[0].recipe.run for cell in draft.cells if cell.runs and cell.column.unseen]
        if runs:
            temperature = runs[0].knn_temperature
            votes = f"votes by temperature {temperature:g}" if temperature else "equal votes"
            notes.append(f"Ours: k = {runs[0].knn_k}, {runs[0].knn_distance} distance, {votes}, on pooled features.")
        return notes


FSAR = _FsarPaper()
