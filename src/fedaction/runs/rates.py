"""Learning rates compared on people who are kept out of training, so that the test chooses none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TypedDict

from fedaction.evaluation.accuracy import wilson
from fedaction.federation.files import write_json
from fedaction.federation.progress import Progress
from fedaction.federation.settings import RecipeError
from fedaction.runs.beside import PlacedStudy
from fedaction.runs.metrics import read_rows, read_validation
from fedaction.runs.recipe import Recipe, load_recipe
from fedaction.runs.study import list_runs, load_clients, run_study

SHARE = 0.2
"""Of the training people, where the recipe has no `validation` of its own."""


class RateChoice(TypedDict):
    """What `rates.json` holds. Accuracies are shares, 0 to 1, on validation samples: a run's best round, over seeds.

    `points` is how far other samples of the same number, `n`, might move an accuracy, to either side, at 95 %.
    """

    validation: float
    n: int
    points: float
    rates: list[float]
    methods: dict[str, list[float]]
    mean: list[float]
    best: float
    best_of: dict[str, float]
    warnings: list[str]


def check_rates(rates: Sequence[float]) -> None:
    """Refuses rates that cannot be compared; each has a directory that is named by its first six digits."""
    names = {f"{rate:g}" for rate in rates}
    if len(names) < 2 or len(names) < len(rates) or not all(0 < rate < math.inf for rate in rates):
        raise RecipeError(f"rates to choose from must be two or more unlike numbers above 0 (got {list(rates)})")


def list_trials(recipe: Recipe, rates: Sequence[float], folder: Path) -> list[PlacedStudy]:
    """The studies of `choose_rate`, the smallest rate first."""
    check_rates(rates)
    keys = {"validation": recipe.run.validation or SHARE, "client_models": "none", "report_samples": 0}
    keys |= {"controls": tuple(name for name in recipe.run.controls if name == "local")}
    run = recipe.run.model_copy(update=keys)
    return [
        PlacedStudy(replace(recipe, run=run.model_copy(update={"lr": rate})), folder / f"lr-{rate:g}")
        for rate in sorted(rates)
    ]


def choose_rate(recipe: Recipe, rates: Sequence[float], folder: Path, progress: Progress | None = None) -> RateChoice:
    """Runs a recipe's methods with each rate, and says which is best on validation people; `rates.json` keeps it.

    Args:
        recipe: what to run; its `lr` counts for nothing. Training alone (`controls`) is among its methods.
        rates: two or more.
        folder: a directory that gets a study for each rate, and is resumed when it is given again.
        progress: callback.
    """
    trials = list_trials(recipe, rates, folder)
    clients, share = load_clients(trials[0].recipe), trials[0].recipe.run.validation
    n = sum(len(client.validation) for client in clients.values() if client.validation is not None)
    methods: dict[str, list[float]] = {}
    for trial, home in trials:
        run_study(trial, home, progress)
        seeds: dict[str, list[float]] = {}
        for method, _, run in list_runs(load_recipe(home / "recipe.toml"), home):
            seeds.setdefault(method, []).append(max(read_validation(read_rows(run / "metrics.jsonl")).values()))
        for method, values in seeds.items():
            methods.setdefault(method, []).append(fmean(values))
    result = _choose(share, n, sorted(rates), methods)
    write_json(folder / "rates.json", result)
    return result


def _choose(validation: float, n: int, rates: list[float], methods: dict[str, list[float]]) -> RateChoice:
    """What is best: of equal ones the smallest rate."""
    mean = [fmean(values) for values in zip(*methods.values(), strict=True)]
    places = {method: values.index(max(values)) for method, values in methods.items()}
    place = mean.index(max(mean))
    low, high = wilson(mean[place], n)
    points = (high - low) / 2
    warnings: list[str] = []
    if place in (0, len(rates) - 1):
        side, other = ("smallest", "smaller") if place == 0 else ("largest", "larger")
        warnings.append(f"The best rate is the {side} that was tried: try {other} ones, too.")
    close = [f"{rate:g}" for own, rate in zip(mean, rates, strict=True) if own < mean[place] <= own + points]
    if close:
        warnings.append(f"Not told apart from it by these samples (within the 95 % interval): {', '.join(close)}.")
    best_of = {method: rates[own] for method, own in places.items()}
    return {
        "validation": validation,
        "n": n,
        "points": points,
        "rates": rates,
        "methods": methods,
        "mean": mean,
        "best": rates[place],
        "best_of": best_of,
        "warnings": warnings,
    }
