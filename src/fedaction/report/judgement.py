"""What a reader needs to judge a result: methods at equal cost, and what clients hold and who was held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from fedaction.runs.budget import COSTS, Cost, Tested, at_budget, equal_budget, find_homes, read_course
from fedaction.runs.controls import read_split


@dataclass(frozen=True)
class Judgement:
    """Of a study; lists are in the order of its methods."""

    costs: tuple[Mapping[Cost, Mapping[int, float]], ...] = ()
    """What each method's training had cost by each tested round; means over seeds."""
    budgets: Mapping[Cost, float] = field(default_factory=dict[Cost, float])
    """What all methods had at least."""
    means: Mapping[Cost, tuple[float | None, ...]] = field(default_factory=dict[Cost, tuple[float | None, ...]])
    """Each method's mean accuracy within that budget; None where it had not been tested yet."""
    split: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """By client, see `evaluation.controls.SplitSizes`."""


def read_judgement(folder: Path, methods: Sequence[str]) -> Judgement:
    """Of a run directory; `methods` are the study's own and its baselines."""
    courses = [_courses(folder, method) for method in ("", *methods[1:])]
    every = [course for own in courses for course in own]
    split = read_split(folder)
    if not every or not all(courses):
        return Judgement(split=split)
    # How long a run trained may be lost; that is no cost to compare at.
    known: list[Cost] = [by for by in COSTS if all(course[-1].cost(by) for course in every)]
    budgets: dict[Cost, float] = {by: equal_budget(every, by) for by in known}
    return Judgement(
        tuple({by: _by_round(own, by) for by in COSTS} for own in courses),
        budgets,
        {by: tuple(_mean_at(own, by, budget) for own in courses) for by, budget in budgets.items()},
        split,
    )


def _courses(folder: Path, method: str) -> list[list[Tested]]:
    """The courses of a method's seeds that have begun."""
    homes = [home for home in find_homes(folder, method) if (home / "recipe.toml").exists()]
    return [course for home in homes if (course := read_course(home))]


def _by_round(courses: Sequence[Sequence[Tested]], by: Cost) -> dict[int, float]:
    values: dict[int, list[float]] = {}
    for course in courses:
        for test in course:
            values.setdefault(test.rounds, []).append(test.cost(by))
    return {round: fmean(own) for round, own in values.items()}


def _mean_at(courses: Sequence[Sequence[Tested]], by: Cost, budget: float) -> float | None:
    known = [test.mean for course in courses if (test := at_budget(course, by, budget)) is not None]
    return fmean(known) if known else None
