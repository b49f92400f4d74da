"""A study: a recipe's method and baselines over its seeds, in one directory.

The directory itself is the run of the method with the first seed. Below it, in the same form, lie the baselines
(`baselines/<method>/`) and the other seeds (`seeds/<seed>/`, each with its own `baselines/`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import torch

from fedaction.data.client import ClientData
from fedaction.data.validation import hold_validation, keep_share
from fedaction.evaluation.accuracy import Scores, interval_of_clients, score_confusion
from fedaction.evaluation.controls import Simple
from fedaction.federation.files import (
    lock_folder,
    make_folder,
    read_sealed_json,
    remove_partial,
    write_atomically,
    write_sealed_json,
)
from fedaction.federation.profile import NOTHING, Profile
from fedaction.federation.progress import DATA, Progress, Quiet, tell_of
from fedaction.federation.seeds import derive
from fedaction.federation.settings import RecipeError, nearest, to_toml
from fedaction.runs.callback import Callback
from fedaction.runs.checkpoint import find_fault, list_rounds
from fedaction.runs.controls import ControlResult, add_alone, has_controls, say_split, sum_up_controls, write_controls
from fedaction.runs.deploy import has_models
from fedaction.runs.environment import has_environment
from fedaction.runs.judge import judge
from fedaction.runs.metrics import Row, metric_name, read_rows, read_seconds, read_validation
from fedaction.runs.ready import check_ready
from fedaction.runs.recipe import Recipe, load_recipe
from fedaction.runs.result import RESULT_FILE
from fedaction.runs.seal import OF
from fedaction.runs.single import SingleRun
from fedaction.runs.standing import (
    ENVIRONMENT_FILE,
    EVIDENCE_FILE,
    check_begun,
    describe_seal,
    find_word,
    read_standing,
)

METRIC = "accuracy"


class RunResult(TypedDict):
    """What `result.json` holds.

    Accuracies are shares, 0 to 1; an unseen client's is by k-NN and not part of means. Over several seeds, `mean` and
    `clients` are means, `groups` the means over each group's clients, `std` is the standard deviation of the seeds'
    means, times and bytes are sums, and `never` has what any seed never answered. `interval` is the 95 % interval of
    `mean` for other test samples, of which clients had `n`; `tests` is equal for clients that were tested on the same
    ones. `never` are the classes that a client's test has and that were never the answer; `rise` is what the last
    quarter of the rounds added to `mean`. Of the `rounds` done, `chosen` is the one that the result is of: the last,
    or with validation the best by it. `seal` is what the run vouches for (`runs.seal`), and `extended` are the rounds
    it was to have before it was made longer. A study has `controls`, and `warnings` on how to read it.
    """

    run: str
    name: str
    method: str
    seed: int
    metric: str
    mean: float
    std: float | None
    interval: tuple[float, float] | None
    balanced_accuracy: float | None
    macro_f1: float | None
    n: dict[str, int]
    tests: dict[str, str]
    never: dict[str, list[str]]
    rise: float | None
    clients: dict[str, float | None]
    groups: dict[str, float]
    rounds: int
    chosen: int
    seconds: float
    bytes_up: int
    bytes_down: int
    configuration: str
    seal: dict[str, Any] | None
    extended: list[int]
    engine: str
    device: str
    device_name: str
    torch: str
    complete: bool
    seeds: NotRequired[dict[str, float]]
    baselines: NotRequired[dict[str, RunResult]]
    controls: NotRequired[dict[Simple, ControlResult]]
    warnings: NotRequired[list[str]]


def list_runs(recipe: Recipe, folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Every run of a study: method, seed, directory."""
    for position, seed in enumerate(recipe.run.seeds):
        home = folder if position == 0 else folder / "seeds" / str(seed)
        yield recipe.run.method, seed, home
        for baseline in recipe.run.baselines:
            yield baseline, seed, home / "baselines" / baseline


def list_splits(recipe: Recipe, folder: Path) -> list[Path]:
    """The directories of a study that keep what clients hold and what controls give: one for each split."""
    homes = [home for method, _, home in list_runs(recipe, folder) if method == recipe.run.method]
    return homes if recipe.source.per_seed else homes[:1]


def split_seed(recipe: Recipe) -> int:
    """What a recipe's data are drawn and split by: `data_seed`, and the first seed where each has its own split."""
    seed = recipe.run.data_seed
    return derive(seed, "repetition", recipe.run.seeds[0]) if recipe.source.per_seed else seed


def load_clients(
    recipe: Recipe, progress: Progress | None = None, given: Sequence[ClientData] | None = None
) -> dict[str, ClientData]:
    """The recipe's clients by id, or those that are `given`; of all randomness only `data_seed` decides them.

    A source that repeats its split (`Source.per_seed`) draws it anew for the recipe's first seed.
    """
    seed = split_seed(recipe)
    loaded = given or recipe.source.load(seed, tell_of(progress, DATA) if progress else None)
    if recipe.run.sites:
        loaded = _choose_sites(loaded, recipe.run.sites)
    if recipe.run.train_share < 1:
        share, unseen = recipe.run.train_share, recipe.run.unseen
        loaded = [client if client.info.id == unseen else keep_share(client, share, seed) for client in loaded]
    if recipe.run.validation:
        loaded = hold_validation(loaded, recipe.run.validation, seed, recipe.run.unseen)
    clients = {client.info.id: client for client in loaded}
    if not clients:
        raise ValueError("the recipe's data has no clients")
    return clients


def _choose_sites(clients: Sequence[ClientData], names: Sequence[str]) -> list[ClientData]:
    """Those clients that a recipe's `sites` names, in their own order."""
    known = [client.info.id for client in clients]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            raise RecipeError(f"sites: no client is called {name!r}{near}; there are {', '.join(known)}")
    return [client for client in clients if client.info.id in names]


def run_study(
    recipe: Recipe,
    folder: Path,
    progress: Progress | None = None,
    *,
    given: Sequence[ClientData] | None = None,
    callbacks: Sequence[Callback] = (),
    finish: Callable[[Path], object] = lambda _: None,
    profile: Profile = NOTHING,
) -> RunResult:
    """Runs everything a recipe names, or what is left of it, and writes results.

    Args:
        recipe: what to run.
        folder: a new or empty directory, or that of the same study, which is then resumed.
        progress: callback.
        given: clients in place of those that the recipe's data would load.
        callbacks: what is told of every round.
        finish: called with the directory when all is done, while nobody else can write there.
        profile: where it is noted what takes its time.

    Returns:
        The study's result, which is also `result.json` in the directory.
    """
    progress, begun = progress or Quiet(), folder.is_dir()
    for method, seed, home in list_runs(recipe, folder):
        check_begun(recipe.only(method, seed), home)  # before anything takes long
    with profile.section("data"):
        clients, loaded = load_clients(recipe, progress, given), recipe.run.seeds[0]
    check_ready(recipe, clients)
    recipe = add_alone(recipe, clients, progress.warn)
    data = recipe.source.fingerprint(split_seed(recipe))
    progress.tell(say_split(clients))
    if not begun:
        make_folder(folder)
    with lock_folder(folder):
        for method, seed, home in list_runs(recipe, folder):
            check_begun(recipe.only(method, seed), home, data)
        remove_partial(folder)
        # First of all, so that a run killed from here on can be resumed.
        write_atomically(folder / "recipe.toml", to_toml(recipe.flat()).encode())
        splits = list_splits(recipe, folder)
        for method, seed, home in list_runs(recipe, folder):
            part = recipe.only(method, seed)
            if home != folder:
                write_atomically(home / "recipe.toml", to_toml(part.flat()).encode())
            word = find_word(part, home, data)
            controls, training = home in splits and not has_controls(home, word), not is_done(part, home)
            if (controls or training) and recipe.source.per_seed and seed != loaded:
                with profile.section("data"):
                    clients, loaded = load_clients(part, progress), seed
            if controls:
                with profile.section("controls"):
                    write_controls(recipe, clients, home, progress, word)
            if training:
                SingleRun(part, clients, home, progress, callbacks, data, profile).execute()
            _warn_of_clock(home, progress)
            write_sealed_json(home / RESULT_FILE, summary(part, home))
        result = study_result(recipe, folder)
        write_sealed_json(folder / RESULT_FILE, result)
        finish(folder)
    return result


def is_done(recipe: Recipe, home: Path) -> bool:
    """Whether a run has come to its end: its last checkpoint, the metrics that it seals, and what is made of it.

    Model files and evidence are those of the round that stands for the run, and all are as they were written.
    """
    standing = read_standing(home)
    if standing is None or not standing.over(recipe) or not list_rounds(home / "checkpoints"):
        return False
    fault = find_fault(home / "metrics.jsonl", standing.metrics_length, standing.metrics_sha256, whole=True)
    word = standing.seal.word if standing.sealed else ""
    if fault or not has_environment(home / ENVIRONMENT_FILE, word):
        return False
    chosen = standing.chosen(recipe)
    return _has_evidence(home, chosen, word) and has_models(home, chosen, word)


def _has_evidence(home: Path, round: int, word: str) -> bool:
    """Whether there is evidence of a round, and of the run with this word; older versions said neither."""
    try:
        evidence = read_sealed_json(home / EVIDENCE_FILE)
    except (OSError, ValueError):
        return False
    return evidence.get("round") in (None, round) and (not word or evidence.get(OF, word) == word)


def _warn_of_clock(home: Path, progress: Progress) -> None:
    """Says where wall seconds are lost: they cannot be made again."""
    standing, known = read_standing(home), read_seconds(home / "clock.jsonl", "total")
    if standing is not None and (lost := standing.round - len([n for n in known if n <= standing.round])):
        progress.warn(f"{home / 'clock.jsonl'} lacks {lost} of {standing.round} rounds: what they took is not known")


def resume_study(
    folder: Path,
    progress: Progress | None = None,
    rounds: int = 0,
    *,
    finish: Callable[[Path], object] = lambda _: None,
    profile: Profile = NOTHING,
) -> RunResult:
    """Resumes a study where it stopped; one that is done is only summed up again.

    With `rounds` it is made longer first: the recipe in its directory then has those, and says how many it had.
    `finish`: see `run_study`.
    """
    path = folder / "recipe.toml"
    if not path.exists():
        raise RecipeError(f"{folder} is not a run directory: it has no recipe.toml")
    recipe = load_recipe(path)
    standing = read_standing(folder)
    if rounds and standing is not None and standing.seal.rounds not in (0, *recipe.run.extended):
        recipe = replace(recipe, run=recipe.run.model_copy(update={"rounds": standing.seal.rounds}))  # not as edited
    recipe = extend(recipe, rounds) if rounds else recipe
    return run_study(recipe, folder, progress, finish=finish, profile=profile)


def extend(recipe: Recipe, rounds: int) -> Recipe:
    """The recipe of a run that is made longer, which says how long it was to be."""
    run = recipe.run
    if rounds <= run.rounds:
        raise RecipeError(f"rounds = {rounds}: the run has {run.rounds} rounds, and can only be made longer")
    return replace(recipe, run=run.model_copy(update={"rounds": rounds, "extended": (*run.extended, run.rounds)}))


def summary(recipe: Recipe, home: Path) -> RunResult:
    """The result of one run, from its files."""
    rows = read_rows(home / "metrics.jsonl")
    tests = [row for row in rows if row.split == "test" and row.name in (METRIC, "knn")]
    last = max(row.round for row in tests)
    chosen = _best_round(rows) if recipe.run.validation else last
    clients = {row.client: row.value for row in tests if row.round == chosen}
    scores, never, which = _scores(home)
    if recipe.run.clients_per_test:  # in the chosen round not all were tested; by what it left, all are in the end
        clients = {client: own.accuracy for client, own in scores.items()} | clients
    seen = {client: v for client, v in clients.items() if v is not None and client != recipe.run.unseen}
    n = {client: own.n for client, own in scores.items()}
    scored = [own for client, own in scores.items() if client != recipe.run.unseen]
    machine = read_sealed_json(home / ENVIRONMENT_FILE)
    standing = read_standing(home)
    return {
        "run": str(home),
        "name": recipe.run.name,
        "method": recipe.run.method,
        "seed": recipe.run.seeds[0],
        "metric": metric_name([recipe.run.method]),
        "mean": statistics.fmean(seen.values()),
        "std": None,
        "interval": interval_of_clients(seen, n, which),
        "balanced_accuracy": statistics.fmean(own.balanced_accuracy for own in scored) if scored else None,
        "macro_f1": statistics.fmean(own.macro_f1 for own in scored) if scored else None,
        "n": n,
        "tests": which,
        "never": never,
        "rise": _rise(tests, recipe.run.unseen),
        "clients": clients,
        "groups": _by_group(rows, seen),
        "rounds": last,
        "chosen": chosen,
        "seconds": round(sum(read_seconds(home / "clock.jsonl", "total").values()), 3),
        "bytes_up": sum(int(row.value or 0) for row in rows if row.name == "bytes_up"),
        "bytes_down": sum(int(row.value or 0) for row in rows if row.name == "bytes_down"),
        "configuration": recipe.configuration(),
        "engine": machine.get("engine", recipe.run.engine),
        "device": machine["device"],
        "device_name": machine["device_name"],
        "torch": machine["packages"]["torch"],
        "complete": last == recipe.run.rounds or (standing is not None and standing.over(recipe)),
        "seal": None if standing is None else describe_seal(standing),
        "extended": list(recipe.run.extended),
    }


def study_result(recipe: Recipe, folder: Path) -> RunResult:
    """The method's result over all seeds, and each baseline's."""
    by_method: dict[str, list[RunResult]] = {}
    for method, seed, home in list_runs(recipe, folder):
        by_method.setdefault(method, []).append(summary(recipe.only(method, seed), home))
    result = sum_up_seeds(by_method.pop(recipe.run.method))
    result["run"] = str(folder)
    result["baselines"] = {name: sum_up_seeds(runs) for name, runs in by_method.items()}
    result["controls"] = sum_up_controls(list_splits(recipe, folder), recipe.run.unseen)
    result["warnings"] = judge([result])
    return result


def sum_up_seeds(runs: list[RunResult]) -> RunResult:
    """A method's result: that of its one run, or of the runs of several seeds."""
    result = runs[0].copy()
    means = [run["mean"] for run in runs]
    result["mean"] = statistics.fmean(means)
    result["std"] = statistics.stdev(means) if len(means) > 1 else None
    result["clients"] = {
        client: statistics.fmean(run["clients"][client] or 0.0 for run in runs) for client in runs[0]["clients"]
    }
    result["groups"] = {group: statistics.fmean(run["groups"][group] for run in runs) for group in runs[0]["groups"]}
    missed = {client: [name for run in runs for name in run["never"].get(client, ())] for client in result["n"]}
    result["never"] = {client: [*dict.fromkeys(names)] for client, names in missed.items() if names}
    accuracies = {client: result["clients"][client] or 0.0 for client in result["n"]}
    result["interval"] = interval_of_clients(accuracies, result["n"], result["tests"])
    for key in ("balanced_accuracy", "macro_f1", "rise"):
        known = [value for run in runs if (value := run[key]) is not None]
        result[key] = statistics.fmean(known) if known else None
    result["seconds"] = sum(run["seconds"] for run in runs)
    result["bytes_up"] = sum(run["bytes_up"] for run in runs)
    result["bytes_down"] = sum(run["bytes_down"] for run in runs)
    result["complete"] = all(run["complete"] for run in runs)
    result["seeds"] = {str(run["seed"]): run["mean"] for run in runs}
    return result


def _best_round(rows: list[Row]) -> int:
    """The first round with the best mean validation accuracy."""
    means = read_validation(rows)
    return max(sorted(means), key=lambda round: means[round])


def _scores(home: Path) -> tuple[dict[str, Scores], dict[str, list[str]], dict[str, str]]:
    """By client: what the last confusion matrix says, classes that were never the answer, and which test it was."""
    evidence = read_sealed_json(home / EVIDENCE_FILE) if (home / EVIDENCE_FILE).exists() else {}
    matrices: dict[str, Any] = evidence.get("confusion", {})
    scores = {client: score_confusion(torch.tensor(own["matrix"])) for client, own in matrices.items()}
    never = {client: [matrices[client]["classes"][place] for place in own.never] for client, own in scores.items()}
    return scores, {client: names for client, names in never.items() if names}, evidence.get("test", {})


def _rise(tests: list[Row], unseen: str) -> float | None:
    """What the last quarter of the rounds added to the mean accuracy; None where too few rounds were tested."""
    by_round: dict[int, dict[str, float]] = {}
    for row in tests:
        if row.value is not None and row.client != unseen:
            by_round.setdefault(row.round, {})[row.client] = row.value
    last = max(by_round)
    before = [round for round in by_round if round <= 0.75 * last]
    if last < 4 or not before:
        return None
    then, end = by_round[max(before)], by_round[last]  # of many clients, some may be tested on the way
    return statistics.fmean(end.get(client, value) - value for client, value in then.items())


def _by_group(rows: list[Row], accuracies: Mapping[str, float]) -> dict[str, float]:
    """The mean over each group's clients (a modality's, say)."""
    by_group: dict[str, list[float]] = {}
    for client, group in {row.client: row.group for row in rows if row.client in accuracies}.items():
        by_group.setdefault(group, []).append(accuracies[client])
    return {group: statistics.fmean(values) for group, values in sorted(by_group.items())}
