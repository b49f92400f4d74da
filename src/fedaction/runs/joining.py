"""What joining brings each site: alone, by plain averaging and by a method, by how much it has and who else joins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypedDict

from fedaction.data.client import ClientData
from fedaction.evaluation.accuracy import interval_of_clients, wilson
from fedaction.federation.files import write_sealed_json
from fedaction.federation.progress import DATA, Progress, tell_of
from fedaction.federation.seeds import numpy_generator
from fedaction.federation.settings import RecipeError, nearest
from fedaction.methods import METHODS, title_of
from fedaction.runs.beside import PlacedStudy, train_beside
from fedaction.runs.controls import ALONE, read_split
from fedaction.runs.judge import judge_runs
from fedaction.runs.rates import check_rates, choose_rate, list_trials
from fedaction.runs.recipe import Recipe
from fedaction.runs.study import RunResult, load_clients, run_study, split_seed

FILE = "joining.json"
"""In the study's directory."""
Verdict = Literal["helps", "harms", "not shown"]


class Gain(TypedDict):
    """What joining adds to an accuracy, 0 to 1, and the 95 % interval of that for other test samples."""

    value: float
    low: float
    high: float
    verdict: Verdict


class Arm(TypedDict):
    """What sites come to in one way of training. Accuracies are means over seeds, 0 to 1."""

    mean: float
    std: float | None
    interval: tuple[float, float] | None
    lr: float
    configuration: str
    clients: dict[str, float]
    seeds: dict[str, float]


class ShareResult(TypedDict):
    """One amount of training data at every site, and what follows; `gains` are by way of joining."""

    share: float
    samples: dict[str, int]
    arms: dict[str, Arm]
    controls: dict[str, float]
    gains: dict[str, Gain]
    sites: dict[str, dict[str, Gain]]
    warnings: list[str]


class Smaller(TypedDict):
    """Federations of `count` sites: means over the `draws`, each of other sites, beside the same sites alone."""

    count: int
    draws: list[list[str]]
    alone: float
    arms: dict[str, float]
    gains: dict[str, Gain]


class Joining(TypedDict):
    """What `joining.json` holds.

    `methods` are the ways to train, alone first. `n` are test samples by site, and `tests` is equal for sites tested
    on the same ones; `rates` says for each share how learning rates were chosen.
    """

    name: str
    method: str
    methods: list[str]
    seeds: list[int]
    device_name: str
    torch: str
    n: dict[str, int]
    tests: dict[str, str]
    rates: dict[str, str]
    shares: list[ShareResult]
    counts: list[Smaller]


@dataclass(frozen=True)
class JoiningPlan:
    """What to try."""

    shares: Sequence[float]
    """Of each site's training samples, 0 to 1; each arm is trained with each."""
    counts: Sequence[int] = ()
    """Numbers of sites, with all that each has at the largest share; all sites together are there anyway."""
    draws: int = 3
    """How many federations of each number."""
    plain: str = "fedavg"
    """The method that stands for plain averaging."""
    rates: Sequence[float] = ()
    """Learning rates to choose from, on training people, for each method and share; none: the recipe's."""

    def __post_init__(self) -> None:
        """Refuses what is no share, and what cannot be a number of sites."""
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise RecipeError(f"shares must be above 0 and at most 1 (got {list(self.shares)})")
        if len({f"{share:g}" for share in self.shares}) < len({*self.shares}):  # which directories are named by
            raise RecipeError(f"shares must differ in their first six digits (got {list(self.shares)})")
        if self.rates:
            check_rates(self.rates)
        if not all(count >= 2 for count in self.counts):
            raise RecipeError(
                f"a federation has two sites or more (got {list(self.counts)}); one alone is in any case"
            )
        if self.plain not in METHODS:
            raise RecipeError(f"plain averaging: no method is called {self.plain!r}{nearest(self.plain, METHODS)}")


def study_joining(recipe: Recipe, plan: JoiningPlan, folder: Path, progress: Progress, jobs: int = 1) -> Joining:
    """Trains everything that the plan names, or what is left of it, and writes `joining.json`.

    Args:
        recipe: its method is the one to join with; its baselines and `train_share` count for nothing.
        plan: see there.
        folder: a run below it for each share, number of sites and method; given again, it is resumed.
        progress: callback.
        jobs: runs carried out side by side, each in a process of its own.
    """
    if recipe.kinds[recipe.run.method].overrides("task") or recipe.run.method in (ALONE, "central"):
        raise RecipeError(
            f"{recipe.run.method}: what joining brings is asked of a method that sites join with labels"
        )
    given = None if recipe.source.per_seed else recipe.source.load(split_seed(recipe), tell_of(progress, DATA))
    work = _Work(recipe, plan, folder, progress, given)
    names = list(load_clients(recipe, progress, given))
    if any(count > len(names) for count in plan.counts):
        raise RecipeError(f"there are {len(names)} sites, so that no federation has {max(plan.counts)}")
    shares, most = sorted(set(plan.shares)), max(plan.shares)
    train_beside((trial for share in shares for trial in work.list_trials(share)), jobs, progress)
    rates = {share: work.choose_rates(share) for share in shares}
    of_shares = {share: work.list_ways(share, rates[share]["best_of"]) for share in shares}
    drawn = {
        count: draw_sites(names, count, plan.draws, recipe.run.seeds[0])
        for count in sorted(set(plan.counts) - {len(names)})
    }
    smaller = {count: work.list_smaller(count, drawn[count], most, rates[most]["best_of"]) for count in drawn}
    # What takes longest first, so that nobody waits for it at the end.
    ways = [*reversed(of_shares.values()), *(own for draws in smaller.values() for own in draws)]
    train_beside((study for own in ways for study in own.values()), jobs, progress)
    results = {share: {name: work.run(study) for name, study in own.items()} for share, own in of_shares.items()}
    counts = [work.train_count(drawn[count], own, results[most][ALONE]) for count, own in smaller.items()]
    first = results[most][recipe.run.method]
    result: Joining = {
        "name": recipe.run.name,
        "method": recipe.run.method,
        "methods": work.methods,
        "seeds": list(recipe.run.seeds),
        "device_name": first["device_name"],
        "torch": first["torch"],
        "n": first["n"],
        "tests": first["tests"],
        "rates": {f"{share:g}": rates[share]["chosen"] for share in shares},
        "shares": [
            _compare(share, results[share], rates[share]["best_of"], folder / f"share-{share:g}") for share in shares
        ],
        "counts": counts,
    }
    write_sealed_json(folder / FILE, result)
    return result


def subtract(
    joined: float, alone: float, inside: tuple[float, float] | None, outside: tuple[float, float] | None
) -> Gain:
    """The difference of two accuracies from their own 95 % intervals (Newcombe, 1998, as if of separate tests).

    Both are measured on the same samples, so the true interval is narrower.
    """
    value = joined - alone
    if inside is None or outside is None:
        return {"value": value, "low": -1.0, "high": 1.0, "verdict": "not shown"}
    low = value - math.hypot(joined - inside[0], outside[1] - alone)
    high = value + math.hypot(inside[1] - joined, alone - outside[0])
    verdict: Verdict = "helps" if low > 0 else "harms" if high < 0 else "not shown"
    return {"value": value, "low": low, "high": high, "verdict": verdict}


def draw_sites(names: Sequence[str], count: int, draws: int, seed: int) -> list[list[str]]:
    """Different federations of so many sites, in which every site is about as often as any other."""
    order: list[int] = numpy_generator(seed, "joining").permutation(len(names)).tolist()
    begins = [(draw * len(names)) // min(draws, len(names)) for draw in range(min(draws, len(names)))]
    drawn = [{order[(begin + place) % len(names)] for place in range(count)} for begin in begins]
    return [[name for place, name in enumerate(names) if place in chosen] for chosen in drawn]


@dataclass(frozen=True)
class _Work:
    """The runs of one study."""

    recipe: Recipe
    plan: JoiningPlan
    folder: Path
    progress: Progress
    given: Sequence[ClientData] | None  # all sites; None: the source deals them anew for each seed

    @property
    def methods(self) -> list[str]:
        """Ways to train: alone, and those of joining."""
        return list(dict.fromkeys((ALONE, self.plan.plain, self.recipe.run.method)))

    def list_trials(self, share: float) -> list[PlacedStudy]:
        """What learning rates are chosen by, where sites have a share of their data."""
        if not self.plan.rates:
            return []
        return [
            trial
            for method in self.methods
            for trial in list_trials(self.trial_of(method, share), self.plan.rates, self.home_of(method, share))
        ]

    def choose_rates(self, share: float) -> dict[str, Any]:
        """Each way's learning rate where sites have a share of their data, and how it was chosen."""
        if not self.plan.rates:
            return {"best_of": dict.fromkeys(self.methods, self.recipe.run.lr), "chosen": "the recipe's"}
        best: dict[str, float] = {}
        n = 0
        for method in self.methods:
            trial, home = self.trial_of(method, share), self.home_of(method, share)
            choice = choose_rate(trial, self.plan.rates, home, self.progress)
            best[method], n = choice["best"], choice["n"]
        tried = ", ".join(f"{rate:g}" for rate in self.plan.rates)
        return {"best_of": best, "chosen": f"the best of {tried} on {n} samples of training people, first seed"}

    def trial_of(self, method: str, share: float) -> Recipe:
        """What a way's learning rates are tried with."""
        return self.recipe_of(method, train_share=share, seeds=self.recipe.run.seeds[:1])

    def home_of(self, method: str, share: float) -> Path:
        """Where they are tried."""
        return self.folder / f"share-{share:g}" / "rates" / method

    def list_ways(self, share: float, rates: Mapping[str, float]) -> dict[str, PlacedStudy]:
        """All ways, where sites have a share of their data."""
        ways: dict[str, PlacedStudy] = {}
        for method in self.methods:
            simple = ("majority", "ridge") if method == ALONE else ()  # what needs no network, once
            own = self.recipe_of(method, train_share=share, lr=rates[method], controls=simple)
            ways[method] = PlacedStudy(own, self.folder / f"share-{share:g}" / method)
        return ways

    def list_smaller(
        self, count: int, draws: Sequence[Sequence[str]], share: float, rates: Mapping[str, float]
    ) -> list[dict[str, PlacedStudy]]:
        """All ways of joining, for each federation of so many sites."""
        return [
            {
                method: PlacedStudy(
                    self.recipe_of(method, train_share=share, lr=rates[method], sites=tuple(chosen)),
                    self.folder / f"sites-{count}" / f"draw-{number}" / method,
                )
                for method in self.methods[1:]
            }
            for number, chosen in enumerate(draws, 1)
        ]

    def train_count(
        self, draws: list[list[str]], studies: Sequence[Mapping[str, PlacedStudy]], alone: RunResult
    ) -> Smaller:
        """Federations of so many sites, beside the same sites alone."""
        known = _list_scores(alone)
        before = {name: known[name] for chosen in draws for name in chosen if name in known}
        count, mean = len(draws[0]), fmean(before.values())
        result: Smaller = {"count": count, "draws": draws, "alone": mean, "arms": {}, "gains": {}}
        for method in self.methods[1:]:
            each: dict[str, list[float]] = {}
            for own in studies:
                for name, value in _list_scores(self.run(own[method])).items():
                    each.setdefault(name, []).append(value)
            after = {name: fmean(values) for name, values in each.items()}
            inside, outside = (interval_of_clients(own, alone["n"], alone["tests"]) for own in (after, before))
            result["arms"][method] = fmean(after.values())
            result["gains"][method] = subtract(result["arms"][method], result["alone"], inside, outside)
        return result

    def recipe_of(self, method: str, **keys: Any) -> Recipe:
        """The recipe of one way to train: one method, with what that reads of the recipe's keys."""
        settings, known = self.recipe.methods.get(method), self.recipe.flat()
        if settings is None:
            kind = METHODS[method].settings_type
            settings = kind(**{key: known[key] for key in kind.model_fields if key in known})
        idle = {"baselines": (), "controls": (), "client_models": "none", "report_samples": 0}
        run = self.recipe.run.model_copy(update={**idle, "method": method, **keys})
        kind = self.recipe.kinds.get(method, METHODS.get(method))
        assert kind is not None
        return replace(self.recipe, run=run, methods={method: settings}, kinds={method: kind})

    def run(self, study: PlacedStudy) -> RunResult:
        """One way's result over all seeds."""
        return run_study(*study, self.progress, given=self.given)


def _compare(share: float, results: Mapping[str, RunResult], rates: Mapping[str, float], home: Path) -> ShareResult:
    """What joining brings where sites have a share of their data."""
    alone = results[ALONE]
    arms: dict[str, Arm] = {}
    gains: dict[str, Gain] = {}
    sites: dict[str, dict[str, Gain]] = {name: {} for name in _list_scores(alone)}
    for method, result in results.items():
        arms[method] = {
            "mean": result["mean"],
            "std": result["std"],
            "interval": result["interval"],
            "lr": rates[method],
            "configuration": result["configuration"],
            "clients": _list_scores(result),
            "seeds": result.get("seeds", {}),
        }
        if method == ALONE:
            continue
        gains[method] = subtract(result["mean"], alone["mean"], result["interval"], alone["interval"])
        for name, before in _list_scores(alone).items():
            after, n = arms[method]["clients"][name], alone["n"][name]
            sites[name][method] = subtract(after, before, wilson(after, n), wilson(before, n))
    controls = {name: own["mean"] for name, own in alone.get("controls", {}).items()}
    samples = {name: int(own["train"]) for name, own in read_split(home / ALONE).items()}
    return {
        "share": share,
        "samples": samples,
        "arms": arms,
        "controls": controls,
        "gains": gains,
        "sites": sites,
        "warnings": judge_runs([(title_of(method), run, alone) for method, run in results.items()]),
    }


def _list_scores(result: RunResult) -> dict[str, float]:
    """Accuracy by site, of those that were tested."""
    return {name: value for name, value in result["clients"].items() if value is not None and name in result["n"]}
