"""Every table and figure of four papers, made again by one command each.

A paper is an object (`papers.paper.Paper`); all of them are in `PAPERS`.
"""

import difflib
from dataclasses import replace
from typing import Any

from fedaction.papers.cells import Workbench
from fedaction.papers.edge.paper import EDGE
from fedaction.papers.fdarn.paper import FDARN
from fedaction.papers.fedvssl.paper import FEDVSSL
from fedaction.papers.fsar.paper import FSAR
from fedaction.papers.item import Item, ItemRow
from fedaction.papers.outcome import Outcome
from fedaction.papers.paper import Paper
from fedaction.papers.regenerate import regenerate, runs_of, write_outcome
from fedaction.papers.setting import SCALES

PAPERS: tuple[Paper[Any], ...] = (FSAR, FDARN, EDGE, FEDVSSL)
"""All of them; a new one is a line here."""
ITEMS: dict[str, Item] = {item.name: item for paper in PAPERS for item in paper.items}
"""Every table and figure by the name that the command uses."""


def paper_of(item: Item) -> Paper[Any]:
    """The paper that an item is of."""
    return next(paper for paper in PAPERS if paper.name == item.paper)


def find_item(name: str, *texts: str) -> Item:
    """An item by name; with texts, its rows whose label (a part of it) begins with one of them, without case.

    A wrong name is a ValueError that names the nearest; so is a text that no row begins with.
    """
    if name not in ITEMS:
        close = difflib.get_close_matches(name, ITEMS, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no item {name!r}{hint}; `fedaction paper list` names all")
    item = ITEMS[name]
    for text in texts:
        if not any(_begins_with(row, text) for row in item.rows):
            labels = ", ".join(item.describe(row.label) for row in item.rows)
            raise ValueError(f"{name} has no row that begins with {text!r}; it has {labels}")
    rows = tuple(row for row in item.rows if any(_begins_with(row, text) for text in texts))
    return replace(item, rows=rows) if texts else item


def _begins_with(row: ItemRow, text: str) -> bool:
    return any(part.lower().startswith(text.lower()) for part in row.label)


__all__ = ["EDGE", "FDARN", "FEDVSSL", "FSAR", "ITEMS", "PAPERS", "SCALES", "Outcome", "Paper", "Workbench"]
__all__ += ["find_item", "paper_of", "regenerate", "runs_of", "write_outcome"]
