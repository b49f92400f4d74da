"""The edge paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fedaction.papers.cells import ItemCell, Workbench
from fedaction.papers.edge.items import EDGE_ITEMS, STUDENT, chains_of
from fedaction.papers.edge.models import (
    chain_of,
    distil_keys,
    distillations,
    note_networks,
    read_chain_curves,
    read_chains,
    student_of,
)
from fedaction.papers.edge.setting import EdgeSetting, edge_setting
from fedaction.papers.edge.times import note_savings, read_device_times, read_stage_times
from fedaction.papers.item import Item, ItemRow
from fedaction.papers.measure import Say, Values
from fedaction.papers.outcome import Value
from fedaction.papers.paper import Paper, note_stand_ins
from fedaction.papers.work import Work
from fedaction.server.devices import fleet_of

_REFUSED = {
    "engine": "{} trains no clients",
    "chain": "the rows of {} name their chains",
    "teacher": "one teacher is trained for all chains",
    "scratch": "a row of edge/fig3 is trained from scratch",
}
_CHAIN_EPOCHS = 200
"""Of each network in a chain at the paper's scale."""
_CHAIN_MINUTES = {34: 9.0, 30: 9.0, 28: 9.0, 26: 8.0, 24: 8.0, 22: 8.0, 18: 7.0}
"""Of a network by its depth, at the small scale on two cores."""


class EdgePaper(Paper[EdgeSetting]):
    """The edge paper (Jain et al., 2021): asynchronous learning on devices, from a distilled network."""

    name = "edge"
    title = "Edge"
    items = EDGE_ITEMS
    rounds = 80
    effort = f", {_CHAIN_EPOCHS} epochs of each network in a chain"
    refused = _REFUSED

    def setting(self, data: str, scale: str) -> EdgeSetting:
        """See `Paper`."""
        return edge_setting(data, scale)

    def minutes(self, row: ItemRow) -> float:
        """See `Paper`; clips pass through the frozen network once."""
        return 0.3

    def cost(self, item: Item, scale: str) -> str:
        """See `Paper`; one teacher serves all chains."""
        chains = chains_of(item)
        if scale == "tiny" or not (item.runs or chains):
            return "seconds"
        if scale == "paper":
            words = [f"{len(chains)} x {_CHAIN_EPOCHS} epochs"] if chains else []
            return ", ".join([*words, *([super().cost(item, scale)] if item.runs else [])])
        chains = chains or [STUDENT]
        depths = [*{chain[0] for chain in chains if chain[1:]}, *(d for chain in chains for d in chain[1:] or chain)]
        minutes = sum(_CHAIN_MINUTES[depth] for depth in depths) + sum(map(self.minutes, item.runs))
        return f"{max(1, round(minutes))} min"

    def needs(self, item: Item) -> str:
        """See `Paper`."""
        if chains := chains_of(item):
            return f"{len(chains)} distillations"
        return super().needs(item) + (", a distilled student" if item.runs else "")

    def work_count(self, item: Item) -> int:
        """See `Paper`."""
        return len(item.runs) + len(chains_of(item))

    def keys(self, item: Item, bench: Workbench[EdgeSetting]) -> set[str]:
        """See `Paper`; also of the student that rows start from, and of devices."""
        chains = chains_of(item)
        known = {"devices", "device"} if item.shows in ("times", "profiles") else set[str]()
        if chains or item.federated:
            known |= distil_keys(bench) - {"teacher", "scratch", *(("chain",) if chains else ())}
        return known.union(*(bench.known(row.method) for row in item.federated))

    def check(self, item: Item, bench: Workbench[EdgeSetting]) -> None:
        """See `Paper`."""
        if "devices" in bench.overrides:
            fleet_of(bench.overrides["devices"])
        for chain in chains_of(item):
            chain_of(item, bench, chain, bench.seeds[0])

    def run_keys(self, item: Item, bench: Workbench[EdgeSetting]) -> dict[str, Any]:
        """See `Paper`: the model file that runs start from."""
        student = student_of(item, bench)
        return {"pretrained": str(student.student)} if student else {}

    def before_runs(self, item: Item, bench: Workbench[EdgeSetting]) -> Iterator[Sequence[Work]]:
        """See `Paper`."""
        return distillations(item, bench)

    def length(self, item: Item, bench: Workbench[EdgeSetting]) -> int:
        """See `Paper`; of chains the epochs of a network."""
        chains = [chain_of(item, bench, chain, bench.seeds[0]).recipe.settings for chain in chains_of(item)]
        return max(max(chain.epochs) for chain in chains) if chains else super().length(item, bench)

    def read(self, item: Item, bench: Workbench[EdgeSetting], cells: Sequence[ItemCell], say: Say) -> Values:
        """See `Paper`."""
        if item.shows == "profiles":
            return read_device_times(item, bench), []
        if item.shows == "times" or chains_of(item):
            return read_chains(item, bench) + read_stage_times(item, bench), read_chain_curves(item, bench)
        return super().read(item, bench, cells, say)

    def notes(
        self, item: Item, bench: Workbench[EdgeSetting], cells: Sequence[ItemCell], table: Sequence[Value]
    ) -> list[str]:
        """See `Paper`."""
        if item.shows == "profiles":
            return []
        notes = [note_stand_ins(bench.setting.stand_ins), *note_networks(item, bench)]
        notes += note_savings(item, table) if item.shows == "times" else []
        return notes + super().notes(item, bench, cells, table)


EDGE = EdgePaper()
