"""What a table or figure of a paper is: rows to run, columns to read, the printed values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from fedaction.methods import METHODS


@dataclass(frozen=True)
class ItemRow:
    """One line of a table, or one curve, bar or panel of a figure."""

    label: tuple[str, ...]
    """Its head, one part per column of heads, e.g. ("ST-GCN", "FSAR")."""
    method: str = ""
    """The method that is run; a paper's own word where the row is something else than a federated run."""
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Recipe keys that make the row, on top of the base recipe."""
    paper: Sequence[float | None] = ()
    """The printed value per column; None where the paper prints none or the text is damaged."""
    colour: str = ""
    """What a figure draws it in."""
    spread: Sequence[float | None] = ()
    """The printed standard deviation per column, where the paper prints them."""
    data: str = ""
    """The dataset of the paper that it is on, or how that is divided, where rows differ in it."""
    run: str = ""
    """What its runs are called, where the label says something else."""
    times: Mapping[str, int] = field(default_factory=dict[str, int])
    """Recipe keys that are so many times what the other rows have."""


@dataclass(frozen=True)
class Column:
    """One value of every row: a client's, or the mean over several."""

    label: str
    """The head."""
    client: int
    """Position of the client, group of clients or downstream dataset among the paper's."""
    among: tuple[int, ...] = ()
    """Positions of the clients that are federated; empty: all."""
    unseen: bool = False
    """The client takes no part in training and is tested by nearest neighbours."""
    of: Literal["client", "group", "all"] = "client"
    """A client; the mean over a group's clients (a modality's); or over all clients of the federation that the
    position belongs to."""
    metric: str = "accuracy"
    """"accuracy" of samples (of clips, say), or of whole "recordings"; or a score of an evaluation."""
    digits: tuple[int, int] | None = None
    """Decimals of our values and of the paper's, where they are not the item's."""
    federation: str = ""
    """The clients that are federated, in words, where they are not all."""

    @property
    def source(self) -> str:
        """Which of a row's runs it is read from, in words; "" where they are the same for all columns."""
        return f"unseen: {self.label}" if self.unseen else self.federation


@dataclass(frozen=True)
class Item:
    """A table or figure."""

    name: str
    """What the command calls it, e.g. "fsar/table1"."""
    title: str
    """What it is, e.g. "Table 1. Linear-Accuracy (%) ..."."""
    kind: Literal["table", "figure"]
    """Table or figure."""
    columns: tuple[Column, ...]
    """What is read of each row."""
    rows: tuple[ItemRow, ...]
    """What is run, in the paper's order."""
    shows: str = "accuracy"
    """What is read from the runs: a key of its paper's `measures`."""
    heads: tuple[str, ...] = ("model",)
    """Names of the parts of the rows' labels."""
    digits: tuple[int, int] = (1, 2)
    """Decimals of our values and of the paper's."""
    protocol: str = ""
    """How the data are split or divided, where it is not the usual way; see the paper's setting."""
    matrix: str = ""
    """Topology figures: "I", "U" or both."""
    mean: bool = True
    """Whether a table ends in a column with each row's mean."""
    across: str = "round"
    """What its runs are long in: rounds, or what a round is here."""
    notes: tuple[str, ...] = ()
    """What a reader must know about the printed values or the reading taken."""

    @property
    def paper(self) -> str:
        """The name of its paper."""
        return self.name.split("/")[0]

    @property
    def has_mean(self) -> bool:
        """Whether its rows end in their mean."""
        return self.mean and self.kind == "table"

    def digits_of(self, label: str) -> tuple[int, int]:
        """Decimals of the values of a column."""
        return next((column.digits for column in self.columns if column.label == label), None) or self.digits

    def describe(self, label: Sequence[str]) -> str:
        """A row's label on one line: "ST-GCN FSAR", but "tau=0.8 xi=0.6" where the bare parts would mean nothing."""
        if self.heads[-1] in ("model", "setting", "coefficient", "client", "task", "device"):
            return " ".join(label)
        return " ".join(f"{head}={part}" for head, part in zip(self.heads, label, strict=True))

    def run_label(self, row: ItemRow) -> str:
        """What a row's runs are called."""
        by_row = self.shows in ("accuracy", "sweep", "curves", "downstream")  # elsewhere heads are not the rows'
        return row.run or (self.describe(row.label) if by_row else " ".join(row.label))

    @property
    def federated(self) -> tuple[ItemRow, ...]:
        """Rows that are federated runs."""
        return tuple(row for row in self.rows if row.method in METHODS)

    @property
    def runs(self) -> list[ItemRow]:
        """A row for every run that it takes with one seed, if none is there yet."""
        runs: dict[object, ItemRow] = {}
        for row, column in product(self.federated, self.columns):
            clients = column.among, column.unseen and column.client
            runs[row.method, repr(sorted(row.overrides.items())), repr(row.times), row.data, clients] = row
        return list(runs.values())


def make_item(
    paper: str,
    place: str,
    title: str,
    columns: tuple[Column, ...],
    rows: tuple[ItemRow, ...],
    *notes: str,
    **keys: Any,
) -> Item:
    """The item of a paper, by the name that people use, at a place such as "table1" or, in a supplement, "s-fig3".

    Its name, its kind and the head of its title follow; `numeral`, among the other keys, is its number as printed.
    """
    kind, number = "table" if "table" in place else "figure", keys.pop("numeral", re.sub("[^0-9]", "", place))
    head = f"{paper}{' supplement' * place.startswith('s-')}, {kind.title()} {number}"
    return Item(f"{paper.lower()}/{place}", f"{head}. {title}", kind, columns, rows, notes=notes, **keys)
