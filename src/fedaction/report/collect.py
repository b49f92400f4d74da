"""What a report shows, gathered from a run directory, its baselines and its seeds."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from fedaction.engines.flower.status import STATUS, ServerStatus, read_record
from fedaction.federation.order import order_names
from fedaction.report import files
from fedaction.report.clock import RunClock, read_clock
from fedaction.report.files import Analysis, Confusion, Evidence, LearnedGraph, RecordedAction, Result, finite
from fedaction.report.judgement import Judgement, read_judgement
from fedaction.report.profile import read_profile
from fedaction.runs.metrics import Row, read_rows

Series = dict[int, float | None]  # value by round


class Curve(NamedTuple):
    """A quantity over rounds: its mean over seeds and its standard deviation (n - 1), None where unknown.

    The three tuples have one length. `std` is all None where fewer than two seeds ran.
    """

    rounds: tuple[int, ...]
    mean: tuple[float | None, ...]
    std: tuple[float | None, ...]

    @property
    def last(self) -> float | None:
        """The last known mean."""
        return next((value for value in reversed(self.mean) if value is not None), None)


class Final(NamedTuple):
    """An accuracy (0..1) at the end of a run: mean over seeds, and standard deviation if several ran."""

    mean: float | None = None
    std: float | None = None


class Traffic(NamedTuple):
    """Bytes over all clients of a round, and their running sums; means over seeds."""

    up: Curve
    down: Curve
    total_up: Curve
    total_down: Curve


@dataclass(frozen=True)
class MethodData:
    """One method's runs, over all of its seeds."""

    name: str  # the method, or for a baseline the name of its directory
    seeds: tuple[str, ...]  # the seeds that ran
    rounds: int  # rounds done by the seed that got furthest
    complete: bool  # whether every seed ended
    seconds: float | None  # wall time of a seed, mean over those that ended
    accuracy: Curve  # mean over clients of the test accuracy (0..1)
    client_accuracy: dict[str, Curve]  # test accuracy of each client
    # by name ("loss" first), the mean over the clients that reported it; "test loss" is that of the test
    # split
    losses: dict[str, Curve]
    traffic: Traffic | None  # bytes, where the run counted them
    # per seed, updates "refused", "dropped" and "late" in all, and mean "participants" of a round
    counts: dict[str, float]
    refused: dict[str, float]  # refused updates of each client that had any, per seed
    final: Final  # mean over clients at the end
    client_final: dict[str, Final]  # each client's accuracy at the end
    evidence: Evidence  # what the first seed that has any left to look at
    clocks: tuple[RunClock, ...] = ()  # of every seed that has a virtual clock


@dataclass(frozen=True)
class ReportData:
    """Everything on the page. The first method is the run's own, the others its baselines."""

    name: str
    recipe: dict[str, Any]
    environment: dict[str, Any]
    result: Result | None
    methods: tuple[MethodData, ...]
    clients: tuple[str, ...]
    groups: dict[str, str]
    notes: tuple[str, ...]
    analyses: tuple[Analysis, ...] = ()
    judgement: Judgement = field(default_factory=Judgement)
    profile: dict[str, Any] | None = None  # where the time went, as texts, if that was asked for
    served: ServerStatus | None = None  # of a run between sites of their own: who joined, what was refused

    @property
    def synthetic(self) -> bool:
        """Whether the numbers come from the embedded world."""
        return str(self.recipe.get("data")).startswith("stage")

    @property
    def topology(self) -> dict[str, LearnedGraph]:
        """The learned graphs by client, of the first method that left any."""
        return next((m.evidence.topology for m in self.methods if m.evidence.topology), Evidence().topology)

    @property
    def samples(self) -> dict[str, tuple[RecordedAction, ...]]:
        """The recorded actions by client, of the first method that left any."""
        return next((m.evidence.samples for m in self.methods if m.evidence.samples), Evidence().samples)

    @property
    def confusions(self) -> dict[int, dict[str, Confusion]]:
        """Confusion matrices by index of the method, then by client."""
        return {i: m.evidence.confusion for i, m in enumerate(self.methods) if m.evidence.confusion}


@dataclass(frozen=True)
class _Run:
    """One seed of one method; `folder` is where its evidence may be."""

    folder: Path
    seed: str
    method: str
    metrics: list[Row]
    result: Result | None

    def series(self, split: str, name: str) -> dict[str, Series]:
        """By client, one metric by round; of a round written twice (by a resumed run) the later value."""
        series: dict[str, Series] = defaultdict(dict)
        for metric in self.metrics:
            if metric.split == split and metric.name == name:
                series[metric.client][metric.round] = finite(metric.value)
        return dict(series)


def collect(run_dir: Path, notes: Sequence[str] = ()) -> ReportData:
    """Read a run directory with its `baselines/` and `seeds/`; `notes` come before those on what is left out.

    Raises:
        FileNotFoundError: a file that a run must have is missing; the message begins with its path.
        ValueError: a file is broken; the message begins with its path and says what is wrong.
    """
    if not run_dir.is_dir():
        raise FileNotFoundError(f"{run_dir}: no such run directory")
    notes = list(notes)
    own = _runs(run_dir, run_dir, notes)
    if not own:
        raise FileNotFoundError(f"{run_dir / 'metrics.jsonl'}: no such file; a run directory needs it")
    recipe = files.read_recipe(_first(run_dir, "recipe.toml", own))
    environment = files.read_environment(_first(run_dir, "environment.json", own))

    baselines: dict[str, list[_Run]] = defaultdict(list)
    for base in [run_dir, *_children(run_dir / "seeds")]:
        for folder in _children(base / "baselines"):
            known = {run.seed for run in baselines[folder.name]}
            baselines[folder.name] += [r for r in _runs(folder, run_dir, notes, base) if r.seed not in known]
    listed: object = recipe.get("baselines")
    wanted = [str(name) for name in cast("list[object]", listed)] if isinstance(listed, list) else []
    order = [name for name in dict.fromkeys([*wanted, *baselines]) if baselines.get(name)]

    result = files.read_result(run_dir / "result.json")
    sampled = bool(recipe.get("clients_per_round") or recipe.get("late"))
    methods = [_method(own[0].method or str(recipe.get("method", "this run")), own, sampled)]
    methods += [_method(name, baselines[name], sampled) for name in order]
    tested = [client for m in methods for client in (*m.client_accuracy, *m.client_final)]
    trained = [metric.client for run in own for metric in run.metrics if metric.client]
    groups = {m.client: m.group for run in own for m in run.metrics if m.client and m.group}
    return ReportData(
        name=(result.name if result else "") or str(recipe.get("name", "")) or run_dir.resolve().name,
        recipe=recipe,
        environment=environment,
        result=result or own[0].result,
        methods=tuple(methods),
        clients=tuple(order_names([*tested, *trained])),
        groups=groups,
        notes=tuple(notes),
        analyses=files.read_analyses(run_dir / "analyses"),
        profile=read_profile(run_dir),
        judgement=read_judgement(run_dir, [method.name for method in methods]),
        served=read_record(ServerStatus, run_dir / STATUS),
    )


def _children(folder: Path) -> list[Path]:
    """Sub-directories, by number where their names are numbers, else by name."""
    folders = [item for item in folder.iterdir() if item.is_dir()] if folder.is_dir() else []
    return sorted(folders, key=lambda item: (int(item.name) if item.name.isdecimal() else 1 << 62, item.name))


def _first(run_dir: Path, name: str, runs: Sequence[_Run]) -> Path:
    """A file of the top directory, or of its first seed where only seeds have it."""
    paths = [run_dir / name, *(run.folder / name for run in runs)]
    return next((path for path in paths if path.exists()), paths[0])


def _runs(folder: Path, top: Path, notes: list[str], owner: Path | None = None) -> list[_Run]:
    """A method's runs: one for each seed under `folder/seeds`, and the one in `folder` itself.

    What is left out is added to `notes`, named from `top`, the reported directory. Where `folder` is a baseline, its
    seed is that of its `owner`.
    """
    runs = [run for child in _children(folder / "seeds") if (run := _run(child, child.name)) is not None]
    for child in _children(folder / "seeds"):
        if all(run.folder != child for run in runs):
            notes.append(f"{child.relative_to(top)} has not started (no metrics.jsonl) and is left out.")
    own_seed = owner.name if owner is not None and owner.parent.name == "seeds" else None
    own = _run(folder, own_seed)
    if own is None:
        if not runs and folder != top:
            notes.append(f"{folder.relative_to(top)} has not started (no metrics.jsonl) and is left out.")
    elif all(run.seed != own.seed for run in runs):
        # The top result may be the mean over all seeds; then it is not this seed's own.
        if runs and own.result is not None and own.result.seeds is not None:
            own = replace(own, result=replace(own.result, mean=None, std=None, clients={}, seeds=None))
        runs.insert(0, own)
    return runs


def _run(folder: Path, seed: str | None) -> _Run | None:
    """The run in one directory; None where it has not started. A result without metrics is an error."""
    path = folder / "metrics.jsonl"
    result = files.read_result(folder / "result.json")
    if not path.exists() and (result is None or (folder / "seeds").is_dir()):
        return None
    recipe = files.read_recipe(folder / "recipe.toml") if (folder / "recipe.toml").exists() else {}
    if seed is None:
        seed = str(result.seed if result and result.seed is not None else recipe.get("seed", 0))
    method = (result.method if result else "") or str(recipe.get("method", ""))
    return _Run(folder, seed, method, read_rows(path), result)


def _method(name: str, runs: Sequence[_Run], sampled: bool) -> MethodData:
    """One method's runs; `sampled`: only some clients are asked at a time."""
    accuracy = [run.series("test", "accuracy") for run in runs]
    clients = dict.fromkeys(client for seed in accuracy for client in seed if client)
    finals = [_final(run, seed) for run, seed in zip(runs, accuracy, strict=True)]
    ended = dict.fromkeys(client for _, by_client in finals for client in by_client)
    final = _spread(mean for mean, _ in finals)
    whole = runs[0].result
    if len(runs) == 1 and whole is not None and whole.seeds is not None:
        final = Final(final.mean, finite(whole.std))  # the seeds' own directories are not kept; their spread is
    seconds = [run.result.seconds for run in runs if run.result and run.result.seconds is not None]
    server = {what: [run.series("server", what) for run in runs] for what in ("refused", "dropped", "late")}
    refused: dict[str, float] = defaultdict(float)
    for seed in server["refused"]:
        for client, by_round in seed.items():
            if client and _sum(by_round):
                refused[client] += _sum(by_round) / len(runs)
    counts = {w: statistics.fmean(_sum(_whole(seed)) for seed in seeds) for w, seeds in server.items() if any(seeds)}
    present = [v for run in runs for v in run.series("server", "participants").get("", {}).values() if v is not None]
    if present:
        counts["participants"] = statistics.fmean(present)
    evidence = (files.read_evidence(run.folder / "evidence.json") for run in runs)
    return MethodData(
        name=name,
        seeds=tuple(run.seed for run in runs),
        rounds=max((metric.round for run in runs for metric in run.metrics), default=0),
        complete=all(run.result is not None and run.result.complete for run in runs),
        seconds=statistics.fmean(seconds) if seconds else None,
        accuracy=_curve([_latest_mean(seed) for seed in accuracy]),
        client_accuracy={client: _curve([seed.get(client, {}) for seed in accuracy]) for client in clients},
        losses=_losses(runs),
        traffic=_traffic(runs),
        counts=counts,
        refused=dict(refused),
        final=final,
        client_final={client: _spread(by_client.get(client) for _, by_client in finals) for client in ended},
        evidence=next((e for e in evidence if e.confusion or e.topology or e.samples), Evidence()),
        clocks=tuple(clock for run in runs if (clock := read_clock(run.metrics, run.folder, sampled)) is not None),
    )


def _final(run: _Run, accuracy: dict[str, Series]) -> tuple[float | None, dict[str, float | None]]:
    """Mean and each client's accuracy at the end: the result's own, else the last that were measured."""
    if run.result is not None and (run.result.clients or run.result.mean is not None):
        return finite(run.result.mean), {client: finite(v) for client, v in run.result.clients.items()}
    last = {client: _curve([series]).last for client, series in accuracy.items() if client}
    known = [value for value in last.values() if value is not None]
    return (statistics.fmean(known) if known else None), last


def _spread(values: Iterable[float | None]) -> Final:
    known = [value for value in values if value is not None]
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Final(statistics.fmean(known), deviation) if known else Final()


def _curve(seeds: Sequence[Series]) -> Curve:
    rounds = sorted({r for seed in seeds for r in seed})
    spread = [_spread(seed.get(r) for seed in seeds) for r in rounds]
    return Curve(tuple(rounds), tuple(s.mean for s in spread), tuple(s.std for s in spread))


def _latest_mean(by_client: dict[str, Series]) -> Series:
    """Mean over all clients of each one's latest value.

    Where a round evaluates only some clients, a mean over those alone would jump with who was asked.
    It starts with the first round by which every client has a value.
    """
    clients = [series for client, series in by_client.items() if client]
    latest: list[float | None] = [None] * len(clients)
    mean: Series = {}
    for r in sorted({r for series in clients for r in series}):
        latest = [series.get(r) if r in series else old for series, old in zip(clients, latest, strict=True)]
        known = [value for value in latest if value is not None]
        if known and len(known) == len(clients):
            mean[r] = statistics.fmean(known)
    return mean


def _mean_of_reporting(by_client: dict[str, Series]) -> Series:
    rounds = {r for series in by_client.values() for r in series}
    return {r: _spread(series.get(r) for series in by_client.values()).mean for r in rounds}


def _losses(runs: Sequence[_Run]) -> dict[str, Curve]:
    names = dict.fromkeys(m.name for run in runs for m in run.metrics if m.split == "train")
    metrics = {name: ("train", name) for name in sorted(names, key=lambda name: name != "loss")}
    if any(run.series("test", "loss") for run in runs):
        metrics["test loss"] = ("test", "loss")
    return {
        name: _curve([_mean_of_reporting(run.series(*metric)) for run in runs]) for name, metric in metrics.items()
    }


def _traffic(runs: Sequence[_Run]) -> Traffic | None:
    up, down = ([_whole(run.series("server", name)) for run in runs] for name in ("bytes_up", "bytes_down"))
    if not any(up) and not any(down):
        return None
    return Traffic(_curve(up), _curve(down), _curve(list(map(_running, up))), _curve(list(map(_running, down))))


def _whole(by_client: dict[str, Series]) -> Series:
    """The server's own count by round; where it kept only counts by client, their sum."""
    if "" in by_client:
        return by_client[""]
    rounds = {r for series in by_client.values() for r in series}
    return {r: sum(series.get(r) or 0.0 for series in by_client.values()) for r in rounds}


def _running(series: Series) -> Series:
    rounds = sorted(series)
    return dict(zip(rounds, itertools.accumulate(series[r] or 0.0 for r in rounds), strict=True))


def _sum(series: Series) -> float:
    return sum(value or 0.0 for value in series.values())
