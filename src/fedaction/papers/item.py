"""What a table or figure of a paper is: rows to run, columns to read, the printed values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

DATASETS = ("PKU I", "PKU II", "NTU 60", "NTU 120", "UESTC")
"""FSAR's clients, in the order of its columns."""

Kind = Literal["table", "figure"]
Runs = Literal["accuracy", "sizes", "coefficients", "curves", "sweep", "cka", "topology", "landscape", "epsilon"]
Learned = Literal["downstream", "perturbation", "traffic", "distances"]
Shows = Runs | Learned | Literal["chains", "times", "profiles"]
Of = Literal["client", "group", "all"]

DISTIL = "distil"
"""A row's method where it is a chain of networks that is distilled, not a federated run."""
RANDOM, SUPERVISED = "random", "supervised"
"""A row's method where a network is as it was drawn, or has learnt from labels: the ends of FedVSSL's scale."""
NO_RUN = (DISTIL, RANDOM, SUPERVISED)


@dataclass(frozen=True)
class Row:
    """One line of a table, or one curve, bar or panel of a figure.

    Attributes:
        label: its head, one part per column of heads, e.g. ("ST-GCN", "FSAR").
        method: the method that is run.
        overrides: recipe keys that make the row, on top of the base recipe.
        paper: the printed value per column; None where the paper prints none or the text is damaged.
        spread: the printed standard deviation per column, where the paper prints them.
        colour: what a figure draws it in.
        data: the dataset of the paper that it is on, or how that is divided, where rows differ in it.
    """

    label: tuple[str, ...]
    method: str = "fsar"
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    paper: Sequence[float | None] = ()
    colour: str = ""
    spread: Sequence[float | None] = ()
    data: str = ""


@dataclass(frozen=True)
class Column:
    """One value of every row: a client's, or the mean over several.

    Attributes:
        label: the head.
        client: position of the client, group of clients or downstream dataset among the paper's.
        among: positions of the clients that are federated; empty: all.
        unseen: the client takes no part in training and is tested by nearest neighbours.
        of: a client; the mean over a group's clients (a modality's); or over all clients of the federation that the
            position belongs to.
        metric: "accuracy" of samples (of clips, say), or of whole "recordings"; FedVSSL: a score of an evaluation.
        digits: decimals of our values and of the paper's, where they are not the item's.
    """

    label: str
    client: int
    among: tuple[int, ...] = ()
    unseen: bool = False
    of: Of = "client"
    metric: str = "accuracy"
    digits: tuple[int, int] | None = None


FIVE = tuple(Column(name, position) for position, name in enumerate(DATASETS))
"""The usual columns: every client of a federation of five."""


@dataclass(frozen=True)
class Item:
    """A table or figure.

    Attributes:
        name: what the command calls it, e.g. "fsar/table1".
        title: what it is, e.g. "Table 1. Linear-Accuracy (%) ...".
        kind: table or figure.
        shows: what is read from the runs.
        heads: names of the parts of the rows' labels.
        rows: what is run, in the paper's order.
        columns: what is read of each row.
        digits: decimals of our values and of the paper's.
        protocol: "views": the datasets' cross-view (NTU 120: cross-setup) split instead of cross-subject; "alone":
            one client of each modality.
        matrix: topology figures: "I", "U" or both.
        mean: whether a table ends in a column with each row's mean.
        across: what its runs are long in: rounds, or what a round is here.
        notes: what a reader must know about the printed values or the reading taken.
    """

    name: str
    title: str
    kind: Kind
    rows: tuple[Row, ...] = ()
    shows: Shows = "accuracy"
    heads: tuple[str, ...] = ("model",)
    columns: tuple[Column, ...] = FIVE
    digits: tuple[int, int] = (1, 2)
    protocol: Literal["", "views", "alone"] = ""
    matrix: str = ""
    mean: bool = True
    across: str = "round"
    notes: tuple[str, ...] = ()

    @property
    def paper(self) -> str:
        """Whose it is: "fsar", "fdarn", "edge" or "fedvssl"."""
        return self.name.split("/")[0]

    def digits_of(self, column: str) -> tuple[int, int]:
        """Decimals of a column's values."""
        own = [found.digits for found in self.columns if found.label == column]
        return (own[0] if own else None) or self.digits

    def describe(self, label: Sequence[str]) -> str:
        """A row's label on one line: "ST-GCN FSAR", but "tau=0.8 xi=0.6" where the parts would mean nothing alone."""
        if self.heads[-1] in ("model", "setting", "coefficient", "client", "task", "device"):
            return " ".join(label)
        return " ".join(f"{head}={part}" for head, part in zip(self.heads, label, strict=True))

    def run_label(self, row: Row) -> str:
        """What a row's runs are called."""
        if self.shows == "coefficients":
            return "FSAR"
        plain = self.shows in ("accuracy", "sweep", "curves", "downstream")
        return self.describe(row.label) if plain else " ".join(row.label)

    @property
    def runs(self) -> int:
        """How many runs it takes with one seed, if none is there yet."""
        return len(self._runs())

    @property
    def tuned(self) -> tuple[Row, ...]:
        """Rows that are federated runs."""
        if self.shows in ("sizes", "times", "profiles"):
            return ()
        return tuple(row for row in self.rows if row.method and row.method not in NO_RUN)

    @property
    def chains(self) -> list[tuple[int, ...]]:
        """Chains of networks that it shows, by depth, from the teacher to the student."""
        return list(dict.fromkeys(row.overrides["chain"] for row in self.rows if row.method == DISTIL))

    def _runs(self) -> list[Row]:
        """A row for every run."""
        found = {
            (
                row.method,
                repr(sorted(row.overrides.items())),
                row.data,
                column.among,
                column.unseen and column.client,
            ): row
            for row in self.tuned
            for column in self.columns
        }
        return list(found.values())

    @property
    def needs(self) -> str:
        """What has to be there, in words."""
        if self.shows in ("sizes", "profiles"):
            return "the data" if self.shows == "sizes" else "nothing"
        if self.chains:
            return f"{len(self.chains)} distillations"
        words = f"{self.runs} run{'s' if self.runs > 1 else ''}"
        if self.paper == "edge":
            words += ", a distilled student"
        if any(row.method == SUPERVISED for row in self.rows):
            words += ", a supervised network"
        if self.shows in ("downstream", "perturbation", "traffic"):
            words += ", evaluations"
        if self.shows in ("cka", "landscape", "epsilon"):
            words += f", {self.shows} analysis"
        words += "; a GPU, but for the tiny scale" if self.paper == "fedvssl" else ""
        return words + ("; data with named views" if self.protocol == "views" else "")

    def cost(self, scale: str) -> str:
        """How long it takes on two cores, or at the paper's scale how much there is to run; where no run is there."""
        if scale == "tiny" or not (self.runs or self.chains):
            return "seconds"
        if scale == "paper":
            words = [f"{len(self.chains)} x 200 epochs"] if self.chains else []
            central = sum(row.method == "centralvssl" for row in self._runs())
            words += [f"{central} x 90 epochs"] if central else []
            rounds = {"edge": 80, "fedvssl": 540}.get(self.paper, 300)
            return ", ".join([*words, *([f"{self.runs - central} x {rounds} rounds"] if self.runs > central else [])])
        if self.paper == "fedvssl":
            return f"{max(1, round(sum(map(_vssl_minutes, self._runs())) / 60))} h"
        minutes = {"fdarn": _fdarn_minutes, "edge": _edge_minutes}.get(self.paper, _minutes)
        chains = self.chains or ([(34, 26, 18)] if self.paper == "edge" else [])
        return f"{max(1, round(sum(map(minutes, self._runs())) + _chain_minutes(chains)))} min"


def _minutes(row: Row) -> float:
    """How long a run at the small scale takes on two cores, measured: FSAR has three streams, plain averaging one."""
    slower = {"ctrgcn": 2.5, "mstgcn": 2.0, "msg3d": 4.0}.get(row.overrides.get("backbone", ""), 1.0)
    return slower * row.overrides.get("local_epochs", 1) * (1.2 if row.method == "fsar" else 0.6)


def _fdarn_minutes(row: Row) -> float:
    """The same for FDARN and its baselines on the stage, roughly; pFedMe takes five steps where others take one."""
    epoch = {"fdarn": 0.35, "pfedme": 1.0, "metahar": 0.5}.get(row.method, 0.15)
    return epoch * row.overrides.get("local_epochs", 2)


def _edge_minutes(_: Row) -> float:
    """The same for a run that fine-tunes; clips pass through the frozen network once."""
    return 0.3


def _vssl_minutes(row: Row) -> float:
    """The same for pretraining on video, which wants a GPU. One client is trained on one core alone."""
    task = {"vcop": 190.0, "speed": 75.0}.get(row.overrides.get("pretext", ""), 80.0)
    central = 2.0 if row.data == "equal epochs" else 6.6  # as many epochs as the federation, or 3.3 times as many
    return task * (central if row.method == "centralvssl" else 1.0)


def _chain_minutes(chains: Sequence[tuple[int, ...]]) -> float:
    """The same for chains; one teacher serves all."""
    minutes = {34: 9.0, 30: 9.0, 28: 9.0, 26: 8.0, 24: 8.0, 22: 8.0, 18: 7.0}
    teachers = {chain[0] for chain in chains if len(chain) > 1}
    return sum(minutes[depth] for depth in teachers) + sum(
        minutes[depth] for chain in chains for depth in (chain[1:] or chain)
    )
