"""FedVSSL as a paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fedaction.papers.cells import Draft, Workbench
from fedaction.papers.fedvssl import values
from fedaction.papers.fedvssl.items import CENTRAL, FEDVSSL_ITEMS, SHORT, SUPERVISED
from fedaction.papers.fedvssl.models import check_evaluations, evaluations
from fedaction.papers.fedvssl.setting import REFUSED, FedvsslSetting, fedvssl_setting
from fedaction.papers.item import Item, ItemRow
from fedaction.papers.outcome import Value
from fedaction.papers.paper import Paper, note_stand_ins
from fedaction.papers.work import Work

_READERS = {
    **{"downstream": values.read_downstream, "perturbation": values.read_perturbation},
    **{"traffic": values.read_traffic, "distances": values.read_distances},
}


class _FedvsslPaper(Paper[FedvsslSetting]):
    """FedVSSL (Rehman et al., ECCV 2022): video without labels, evaluated downstream."""

    name = "fedvssl"
    title = "FedVSSL"
    items = FEDVSSL_ITEMS
    rounds = 540
    effort = ", centralised 90 epochs; its small scale wants a GPU"
    refused = REFUSED

    def setting(self, data: str, scale: str) -> FedvsslSetting:
        return fedvssl_setting(data, scale)

    def minutes(self, row: ItemRow) -> float:
        """Without a GPU. One client is trained on a single core."""
        task = {"vcop": 760.0, "speed": 300.0}.get(row.overrides.get("pretext", ""), 320.0)
        central = 2.0 if row.data == SHORT else 6.6  # as many epochs as the federation, or 3.3 times as many
        return task * (central if row.method == CENTRAL else 1.0)

    def cost(self, item: Item, scale: str) -> str:
        if scale == "tiny" or not item.runs:
            return "seconds"
        if scale == "small":
            return f"{max(1, round(sum(map(self.minutes, item.runs)) / 60))} h"
        central = sum(row.method == CENTRAL for row in item.runs)
        federated = len(item.runs) - central
        words = [f"{central} x 90 epochs"] if central else []
        words += [f"{federated} x {self.rounds} rounds"] if federated else []
        return ", ".join(words)

    def needs(self, item: Item) -> str:
        words = [super().needs(item)]
        if any(row.method == SUPERVISED for row in item.rows):
            words.append("a supervised network")
        if item.shows in ("downstream", "perturbation", "traffic"):
            words.append("evaluations")
        return f"{', '.join(words)}; a GPU, but for the tiny scale"

    def keys(self, item: Item, bench: Workbench[FedvsslSetting]) -> set[str]:
        """Also of evaluations."""
        methods = {row.method for row in item.federated} or {"fedvssl"}  # whose data the supervised network has
        return bench.setting.evaluation_keys().union(*map(bench.known, methods))

    def check(self, item: Item, bench: Workbench[FedvsslSetting]) -> None:
        check_evaluations(bench)

    def after_runs(self, draft: Draft[FedvsslSetting]) -> Iterator[Sequence[Work]]:
        return evaluations(draft)

    def read(self, draft: Draft[FedvsslSetting]) -> Iterable[Value]:
        return _READERS.get(draft.item.shows, super().read)(draft)

    def notes(self, draft: Draft[FedvsslSetting], table: Sequence[Value]) -> list[str]:
        stand_ins = note_stand_ins(draft.bench.setting.stand_ins)
        return [stand_ins, *super().notes(draft, table), *values.note_datasets(draft)]


FEDVSSL = _FedvsslPaper()
