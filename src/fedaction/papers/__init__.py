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
    """An item by name; with texts, the rows that one of them names (see `_choose`).

    A wrong name is a ValueError that names the nearest; a text that names no row is one that lists the rows.
    """
    if name not in ITEMS:
        close = difflib.get_close_matches(name, ITEMS, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"there is no item {name!r}{hint}; `fedaction paper list` names all")
    item = ITEMS[name]
    chosen = [row.label for text in texts for row in _choose(item, text)]
    return replace(item, rows=tuple(row for row in item.rows if row.label in chosen)) if texts else item


def _choose(item: Item, text: str) -> list[ItemRow]:
    """The rows that a text names, without case; ValueError where there is none.

    The row whose whole label it is, "ST-GCN/FSAR"; else rows with a part that is the text; else those with a part
    that begins so.
    """
    wanted = text.lower()
    parts = [[part.lower() for part in row.label] for row in item.rows]
    fits = (
        [wanted in ("/".join(own), " ".join(own)) for own in parts],
        [wanted in own for own in parts],
        [any(part.startswith(wanted) for part in own) for own in parts],
    )
    for one in fits:
        if any(one):
            return [row for row, fit in zip(item.rows, one, strict=True) if fit]
    labels = ", ".join("/".join(row.label) for row in item.rows)
    raise ValueError(f"{item.name} has no row that begins with {text!r}; it has {labels}")


__all__ = ["EDGE", "FDARN", "FEDVSSL", "FSAR", "ITEMS", "PAPERS", "SCALES", "Outcome", "Paper", "Workbench"]
__all__ += ["find_item", "paper_of", "regenerate", "runs_of", "write_outcome"]
