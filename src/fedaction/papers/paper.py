"""What a paper is: its items, its settings, and whatever else differs between papers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Generic

from fedaction.evaluation.accuracy import interval_of_clients
from fedaction.evaluation.controls import Simple
from fedaction.methods import METHODS
from fedaction.papers.cells import Draft, ItemCell, Workbench
from fedaction.papers.item import Item, ItemRow
from fedaction.papers.measure import read_accuracies, read_curves, read_landscape
from fedaction.papers.outcome import Value
from fedaction.papers.setting import S
from fedaction.papers.work import Work
from fedaction.runs.controls import ControlResult
from fedaction.runs.judge import judge_runs
from fedaction.runs.study import sum_up_seeds


class Paper(ABC, Generic[S]):
    """A paper: one object for each, in the list `fedaction.papers.PAPERS`."""

    name: str
    """What names of its items begin with, e.g. "fsar"."""
    title: str
    """What people call it."""
    items: Sequence[Item]
    """Its tables and figures of results."""
    rounds: int
    """Communication rounds of a run at the paper's scale."""
    effort: str = ""
    """What else has to be said of how long runs take; follows on "300 rounds a run"."""
    refused: ClassVar[Mapping[str, str]] = {}
    """Keys of `--set` that mean nothing for its items, and why; "{}" is the item's name."""

    # Before anything is run

    @abstractmethod
    def setting(self, data: str, scale: str) -> S:
        """What the command's `--data` and `--scale` mean here. Raises RecipeError with a message for people."""

    @abstractmethod
    def minutes(self, row: ItemRow) -> float:
        """How long a run at the small scale takes on two cores, measured, roughly."""

    def cost(self, item: Item, scale: str) -> str:
        """How long an item takes on two cores if no run is there; at the paper's scale, how much there is to run."""
        if scale == "tiny" or not item.runs:
            return "seconds"
        if scale == "paper":
            return f"{len(item.runs)} x {self.rounds} rounds"
        return f"{max(1, round(sum(map(self.minutes, item.runs))))} min"

    def needs(self, item: Item) -> str:
        """What has to be there for an item, in words."""
        runs = len(item.runs)
        words = [f"{runs} run{'s' if runs > 1 else ''}"] if runs else []
        if item.shows in ("cka", "landscape", "epsilon"):
            words.append(f"{item.shows} analysis")
        return ", ".join(words) or "nothing"

    def work_count(self, item: Item) -> int:
        """How many runs, or whatever stands in their place, an item takes with one seed."""
        return len(item.runs)

    def keys(self, item: Item, bench: Workbench[S]) -> set[str]:
        """Keys of `--set` that mean something for one of an item's rows."""
        return set[str]().union(*(bench.known(row.method or "fedavg") for row in item.rows))

    def check(self, item: Item, bench: Workbench[S]) -> None:
        """Raises RecipeError where keys for anything but runs cannot be used."""

    def run_keys(self, item: Item, bench: Workbench[S]) -> dict[str, Any]:
        """Recipe keys of all of an item's runs that follow from what was done before them."""
        return {}

    # What is carried out besides runs

    def before_runs(self, item: Item, bench: Workbench[S]) -> Iterator[Sequence[Work]]:
        """What an item needs before its runs, batch by batch; whatever is in a batch may run side by side."""
        return iter(())

    def after_runs(self, draft: Draft[S]) -> Iterator[Sequence[Work]]:
        """What an item needs once its runs are done, likewise."""
        return iter(())

    # What is written

    def length(self, item: Item, bench: Workbench[S]) -> int:
        """How many rounds (the item's `across`) its runs have; 0 where nothing is run."""
        return bench.overrides.get("rounds", bench.setting.base["rounds"]) if any(r.method for r in item.rows) else 0

    def read(self, draft: Draft[S]) -> Iterable[Value]:
        """An item's values, as it `shows` them, once all that it needs is done."""
        return {"landscape": read_landscape, "curves": read_curves}.get(draft.item.shows, read_accuracies)(draft)

    def notes(self, draft: Draft[S], table: Sequence[Value]) -> list[str]:
        """What the reader must know about these values, besides the item's own notes."""
        notes, seeds = list[str](), draft.bench.seeds
        if draft.item.shows == "accuracy" and draft.item.has_mean:
            notes.append("mean: over the row, ours and the paper's; the paper does not print it.")
        if draft.item.shows in ("accuracy", "curves"):
            notes += _note_controls(draft)
        if len(seeds) > 1 and draft.item.shows in ("topology", "landscape", "epsilon"):
            notes.append(f"The picture shows seed {seeds[0]}; numbers are over all seeds.")
        return notes


def _note_controls(draft: Draft[Any]) -> list[str]:
    """What a table must be compared with, and how far its values bear, for each split that its runs learn from."""
    by_data: dict[str, dict[Path, ItemCell]] = {}
    for cell in draft.cells:
        if cell.runs:
            by_data.setdefault(cell.row.data, {}).setdefault(cell.runs[0].folder, cell)
    return [note for data, cells in by_data.items() for note in _note_data(draft, data, [*cells.values()])]


def _note_data(draft: Draft[Any], data: str, cells: Sequence[ItemCell]) -> list[str]:
    """Of runs that learn from one dataset's data, by their splits."""
    by_split: list[tuple[object, list[ItemCell]]] = []
    for cell in cells:
        recipe = cell.runs[0].recipe
        if METHODS[recipe.run.method].overrides("task"):
            return []  # what is shown is not the accuracy of these runs
        if recipe.run.unseen:
            return _note_unseen(draft, cells)
        split = (recipe.run.data, recipe.run.data_seed, recipe.source)
        same = next((own for known, own in by_split if known == split), None)
        if same is None:
            by_split.append((split, [cell]))
        else:
            same.append(cell)
    if len(by_split) == 1:
        return _note_split(draft, data, cells)
    return [warning for _, own in by_split for warning in _warn(own, {})]


def _note_split(draft: Draft[Any], data: str, cells: Sequence[ItemCell]) -> list[str]:
    """The commonest class, a ridge classifier, how uncertain the test is; then what `runs.judge` warns of."""
    place = f"On the split of {data}" if data else "On the same split"
    controls = draft.bench.controls(cells[0].runs[0].recipe)
    intervals = [cell.runs[0].result["interval"] for cell in cells]
    return [*_say_floor(place, controls, intervals), *_warn(cells, controls)]


_FLOOR: dict[Simple, str] = {"majority": "always the commonest class", "ridge": "a ridge classifier on the input"}


def _say_floor(
    place: str, controls: Mapping[Simple, ControlResult], intervals: Iterable[tuple[float, float] | None]
) -> Iterator[str]:
    for name, result in controls.items():
        parts = ", ".join(f"{client} {100 * value:.1f}" for client, value in result["clients"].items())
        yield f"{place}, {_FLOOR[name]}: {100 * result['mean']:.1f} % on the mean over clients ({parts})."
    if widths := [50 * (high - low) for low, high in filter(None, intervals)]:
        yield f"{place}, other test samples would move a mean by up to {max(widths):.1f} points (95 %)."


def _note_unseen(draft: Draft[Any], cells: Sequence[ItemCell]) -> list[str]:
    """The same of a table in which each value is of a client that takes no part in its run."""
    recipe = cells[0].runs[0].recipe
    whole = draft.bench.controls(replace(recipe, run=recipe.run.model_copy(update={"unseen": ""})))
    shown = {cell.client for cell in cells}
    controls: dict[Simple, ControlResult] = {}
    for name, found in whole.items():
        clients = {client: value for client, value in found["clients"].items() if client in shown}
        controls[name] = {"mean": fmean(clients.values()), "clients": clients}
    rows: dict[str, list[ItemCell]] = {}
    for cell in cells:
        rows.setdefault(cell.runs[0].label, []).append(cell)
    results = {label: _sum_up_unseen(own) for label, own in rows.items()}
    warnings = judge_runs([(label, result, {"controls": controls}) for label, result in results.items()])
    return [*_say_floor("On the same tests", controls, [own["interval"] for own in results.values()]), *warnings]


def _sum_up_unseen(cells: Sequence[ItemCell]) -> dict[str, Any]:
    """Of a row, what `judge_runs` reads of a result."""
    accuracies = {cell.client: fmean(run.result["clients"][cell.client] or 0 for run in cell.runs) for cell in cells}
    runs = {cell.client: cell.runs[0].result for cell in cells}
    n = {client: result["n"][client] for client, result in runs.items() if client in result["n"]}
    never = {client: result["never"].get(client, []) for client, result in runs.items()}
    interval = interval_of_clients(accuracies, n, {})
    return {"mean": fmean(accuracies.values()), "interval": interval, "n": n, "never": never}


def _warn(cells: Sequence[ItemCell], controls: Mapping[Simple, ControlResult]) -> list[str]:
    """What a reader is warned of in the runs of one split; means over clients and seeds."""
    results = [(cell.runs[0].label, sum_up_seeds([run.result for run in cell.runs])) for cell in cells]
    return judge_runs([(label, result, {"controls": controls}) for label, result in results])


def note_stand_ins(stand_ins: Mapping[str, str]) -> str:
    """A note that says what each of the paper's datasets or modalities is replaced by."""
    return f"Stand-ins: {'; '.join(f'{ours} for {theirs}' for theirs, ours in stand_ins.items())}."
