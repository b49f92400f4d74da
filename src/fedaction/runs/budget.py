"""Methods compared at equal cost: after as many rounds, local epochs or seconds of training as all of them had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from fedaction.evaluation.accuracy import interval_of_clients
from fedaction.federation.outside import MOST_SETTINGS, parse_toml, read_text
from fedaction.methods.central import EVERYONE
from fedaction.runs.metrics import read_epochs, read_rows, read_seconds

Cost = Literal["rounds", "epochs", "time"]
"""What a method's training is measured in."""
COSTS: dict[Cost, str] = {"rounds": "rounds", "epochs": "local epochs", "time": "seconds of training"}
_SCORES = ("balanced_accuracy", "macro_f1")


class Tested(NamedTuple):
    """A round after which clients were tested, and what training had cost by then."""

    rounds: int
    epochs: float
    """Passes of the average client over its data; a client that was not asked in a round makes none."""
    time: float
    """Wall seconds of training, without tests; 0: not known of all rounds."""
    clients: Mapping[str, float]
    """Test accuracies, 0 to 1, without that of an unseen client."""
    scores: Mapping[str, float]
    """Means of the same clients' balanced accuracy and macro-F1, by name, as far as the run kept them."""

    @property
    def mean(self) -> float:
        """Over clients."""
        return fmean(self.clients.values())

    def cost(self, by: Cost) -> float:
        """What it had cost."""
        return float(getattr(self, by))


def read_course(home: Path) -> list[Tested]:
    """The tested rounds of one run, in their order."""
    rows = read_rows(home / "metrics.jsonl")
    recipe = parse_toml(read_text(home / "recipe.toml", MOST_SETTINGS), home / "recipe.toml")
    tests: dict[int, dict[str, float]] = {}
    scores: dict[tuple[int, str], dict[str, float]] = {}
    for row in rows:
        if row.split == "test" and row.value is not None and row.name in ("accuracy", *_SCORES):
            own = (
                tests.setdefault(row.round, {})
                if row.name == "accuracy"
                else scores.setdefault((row.round, row.name), {})
            )
            own[row.client] = float(row.value)
    trained = {row.client for row in rows if row.split == "train"}
    members = 1 if EVERYONE in trained else len(trained | {client for own in tests.values() for client in own})
    epochs = read_epochs(rows, recipe.get("local_epochs", 1))
    seconds = read_seconds(home / "clock.jsonl", "train")
    if not {*range(1, max(tests, default=0) + 1)} <= {*seconds}:  # what is left would count as all
        seconds = dict[int, float]()
    course: list[Tested] = []
    for round in sorted(tests):
        passes = sum(count for number, count in epochs.items() if number <= round)
        time = sum(value for number, value in seconds.items() if number <= round)
        known = {name: [v for c, v in scores.get((round, name), {}).items() if c in tests[round]] for name in _SCORES}
        means = {name: fmean(values) for name, values in known.items() if values}
        course.append(Tested(round, passes / members, time, tests[round], means))
    return course


def equal_budget(courses: Sequence[Sequence[Tested]], by: Cost) -> float:
    """What the cheapest of several runs cost to its end."""
    return min(course[-1].cost(by) for course in courses)


def at_budget(course: Sequence[Tested], by: Cost, budget: float) -> Tested | None:
    """The last test that a run had within a budget; None where its first was beyond it."""
    return next((test for test in reversed(course) if test.cost(by) <= budget * (1 + 1e-9)), None)


def find_homes(folder: Path, method: str) -> list[Path]:
    """The directories of a method's runs in a study, one for each seed; "" is the study's own method."""
    homes = [folder, *sorted(path for path in (folder / "seeds").glob("*") if path.is_dir())]
    homes = [home / "baselines" / method if method else home for home in homes]
    return [home for home in homes if (home / "metrics.jsonl").exists()]


def equalise(
    folders: Sequence[Path], studies: Sequence[Mapping[str, Any]], by: Cost
) -> tuple[float, list[dict[str, Any]]]:
    """Studies' results as they were when all methods had cost the same, and what that was.

    What a result says of the end alone (classes never answered, bytes) is left out.
    """
    courses = {
        (place, method): [course for home in find_homes(folder, method) if (course := read_course(home))]
        for place, (folder, study) in enumerate(zip(folders, studies, strict=True))
        for method in ("", *study.get("baselines", {}))
    }
    for (_, method), own in courses.items() if by == "time" else ():
        if any(not course[-1].time for course in own):
            raise ValueError(
                f"how long {method or 'a run'} trained is not known: its clock.jsonl is not there, or not whole, and "
                "cannot be made again; compare at equal rounds or epochs"
            )
    budget = equal_budget([course for own in courses.values() for course in own], by)
    equal: list[dict[str, Any]] = []
    for place, study in enumerate(studies):
        result = _put_back(study, courses[place, ""], by, budget)
        baselines = study.get("baselines", {})
        result["baselines"] = {
            name: _put_back(run, courses[place, name], by, budget) for name, run in baselines.items()
        }
        equal.append(result)
    return budget, equal


def _put_back(
    result: Mapping[str, Any], courses: Sequence[Sequence[Tested]], by: Cost, budget: float
) -> dict[str, Any]:
    """A run's result as it was within a budget; means over seeds."""
    found = [test for course in courses if (test := at_budget(course, by, budget)) is not None]
    if not found:
        raise ValueError(
            f"{result['run']} was not tested within the {budget:.4g} {COSTS[by]} that another run had to its end; "
            "run it with a smaller evaluate_every"
        )
    of_the_end = ("rise", "never", "std", "bytes_up", "bytes_down")
    known = {name: [test.scores[name] for test in found if name in test.scores] for name in _SCORES}
    clients = {name: fmean(test.clients[name] for test in found) for name in found[0].clients}
    return {
        **result,
        **dict.fromkeys(of_the_end),
        **{name: fmean(values) if values else None for name, values in known.items()},
        "clients": clients,
        "mean": fmean(clients.values()),
        "interval": interval_of_clients(clients, result.get("n", {}), result.get("tests", {})),
        "seconds": fmean(test.time for test in found),
    }
