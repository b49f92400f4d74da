"""The edge paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar

from fedaction.papers.cells import Draft, Workbench
from fedaction.papers.edge.items import EDGE_ITEMS, STUDENT, chains_of
from fedaction.papers.edge.models import (
    distil_keys,
    distillations,
    note_networks,
    read_chains,
    shown_chains,
    student_of,
)
from fedaction.papers.edge.setting import EdgeSetting, edge_setting
from fedaction.papers.edge.times import note_savings, read_device_times, read_stage_times
from fedaction.papers.item import Item, ItemRow
from fedaction.papers.outcome import Value
from fedaction.papers.paper import Paper, note_stand_ins
from fedaction.papers.work import Work
from fedaction.server.devices import fleet_of

_CHAIN_EPOCHS = 200
"""Of each network in a chain at the paper's scale."""
_CHAIN_MINUTES = {34: 9.0, 30: 9.0, 28: 9.0, 26: 8.0, 24: 8.0, 22: 8.0, 18: 7.0}
"""Of a network by its depth, at the small scale on two cores."""
_Bench = Workbench[EdgeSetting]


class _EdgePaper(Paper[EdgeSetting]):
    """The edge paper (Jain et al., 2021): asynchronous learning on devices, from a distilled network."""

    name = "edge"
    title = "Edge"
    items = EDGE_ITEMS
    rounds = 80
    effort = f", {_CHAIN_EPOCHS} epochs of each network in a chain"
    refused: ClassVar = {
        "engine": "{} trains no clients",
        "chain": "the rows of {} name their chains",
        "teacher": "one teacher is trained for all chains",
        "scratch": "a row of edge/fig3 is trained from scratch",
    }

    def setting(self, data: str, scale: str) -> EdgeSetting:
        return edge_setting(data, scale)

    def minutes(self, row: ItemRow) -> float:
        return 0.3  # clips pass through the frozen network once

    def cost(self, item: Item, scale: str) -> str:
        chains = chains_of(item)
        if scale == "tiny" or not (item.runs or chains):
            return "seconds"
        if scale == "paper":
            words = [f"{len(chains)} x {_CHAIN_EPOCHS} epochs"] if chains else []
            return ", ".join([*words, *([super().cost(item, scale)] if item.runs else [])])
        chains = chains or [STUDENT]  # one teacher serves all chains
        depths = [*{chain[0] for chain in chains if chain[1:]}, *(d for chain in chains for d in chain[1:] or chain)]
        minutes = sum(_CHAIN_MINUTES[depth] for depth in depths) + sum(map(self.minutes, item.runs))
        return f"{max(1, round(minutes))} min"

    def needs(self, item: Item) -> str:
        if chains := chains_of(item):
            return f"{len(chains)} distillations"
        return super().needs(item) + (", a distilled student" if item.runs else "")

    def work_count(self, item: Item) -> int:
        return len(item.runs) + len(chains_of(item))

    def keys(self, item: Item, bench: _Bench) -> set[str]:
        """Also of the student that rows start from, and of devices."""
        chains = chains_of(item)
        known = {"devices", "device"} if item.shows in ("times", "profiles") else set[str]()
        if chains or item.federated:
            known |= distil_keys(bench) - {"teacher", "scratch", *(("chain",) if chains else ())}
        return known.union(*(bench.known(row.method) for row in item.federated))

    def check(self, item: Item, bench: _Bench) -> None:
        if "devices" in bench.overrides:
            fleet_of(bench.overrides["devices"])
        shown_chains(item, bench)

    def run_keys(self, item: Item, bench: _Bench) -> dict[str, Any]:
        student = student_of(item, bench)
        return {"pretrained": str(student.student)} if student else {}

    def before_runs(self, item: Item, bench: _Bench) -> Iterator[Sequence[Work]]:
        return distillations(item, bench)

    def length(self, item: Item, bench: _Bench) -> int:
        epochs = [max(work.recipe.settings.epochs) for work in shown_chains(item, bench)]
        return max(epochs) if epochs else super().length(item, bench)

    def read(self, draft: Draft[EdgeSetting]) -> Iterable[Value]:
        if draft.item.shows == "profiles":
            return read_device_times(draft)
        if draft.item.shows == "times" or chains_of(draft.item):
            return chain(read_chains(draft), read_stage_times(draft))
        return super().read(draft)

    def notes(self, draft: Draft[EdgeSetting], table: Sequence[Value]) -> list[str]:
        if draft.item.shows == "profiles":
            return []
        notes = [note_stand_ins(draft.bench.setting.stand_ins), *note_networks(draft.item, draft.bench)]
        notes += note_savings(draft.item, table) if draft.item.shows == "times" else []
        return notes + super().notes(draft, table)


EDGE = _EdgePaper()
