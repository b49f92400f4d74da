"""FDARN as a paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedaction.papers.cells import Draft
from fedaction.papers.fdarn.items import FDARN_ITEMS
from fedaction.papers.fdarn.setting import POSITIONS, SIZES, FdarnSetting, fdarn_setting
from fedaction.papers.item import ItemRow
from fedaction.papers.outcome import Value
from fedaction.papers.paper import Paper


class _FdarnPaper(Paper[FdarnSetting]):
    """FDARN (Yang et al., AAAI 2022): clients of different modalities."""

    name = "fdarn"
    title = "FDARN"
    items = FDARN_ITEMS
    rounds = 300

    def setting(self, data: str, scale: str) -> FdarnSetting:
        return fdarn_setting(data, scale)

    def minutes(self, row: ItemRow) -> float:
        """On the stage; pFedMe takes five steps where others take one."""
        epoch = {"fdarn": 0.35, "pfedme": 1.0, "metahar": 0.5}.get(row.method, 0.15)
        return epoch * row.overrides.get("local_epochs", 2)

    def notes(self, draft: Draft[FdarnSetting], table: Sequence[Value]) -> list[str]:
        return [*draft.bench.setting.remarks, *_note_sizes(draft), *super().notes(draft, table)]


def _note_sizes(draft: Draft[FdarnSetting]) -> Iterator[str]:
    """How many clients and samples the paper's own datasets have here, and in the paper."""
    if draft.bench.setting.own and not draft.item.protocol:
        for dataset in draft.bench.setting.federations:
            clients = draft.bench.clients(draft.bench.recipe(draft.item.rows[0], POSITIONS[dataset]))
            samples, theirs = sum(client.train + client.test for client in clients), SIZES[dataset]
            here = f"{dataset}: {len(clients)} clients, {samples:,} samples"
            yield f"{here}; the paper has {theirs[0]} and {theirs[1]:,}."


FDARN = _FdarnPaper()
