"""Methods in one clock: accuracy over time, how busy the devices were, how stale their updates (Edge)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedaction.analyses.draw import MARKS, SOFT, canvas, colour, draw_accuracy, draw_target, label
from fedaction.analyses.finding import Finding, number, points
from fedaction.analyses.study import NotApplicable, Study
from fedaction.federation.order import natural_key
from fedaction.federation.settings import RecipeError
from fedaction.methods import title_of
from fedaction.methods.central import EVERYONE
from fedaction.report.clock import RunClock, read_clock, unit_of, word_of
from fedaction.report.page import duration
from fedaction.report.series import Series, average
from fedaction.server.devices import FLEETS, deal_devices, fleet_of

Runs = Mapping[str, Sequence[RunClock]]
"""The seeds of each method."""
Groups = Mapping[str, Sequence[str]]
"""Devices that are shown together, by what they are called."""
_SHOWN = 8  # rows of devices, and bars, of a method
SHARE = 0.9
"""The target where none is given: this share of the best method's accuracy at its end."""


def clock(study: Study) -> Finding:
    """See the module."""
    runs: dict[str, dict[int, RunClock]] = defaultdict(dict)
    sampled = bool(study.recipe.run.clients_per_round or study.recipe.run.late)
    for run in study.runs:
        if (read := read_clock(run.rows, run.folder, sampled)) is not None:
            runs[run.method][run.seed] = read
    if not runs:
        raise NotApplicable(
            "no run here has a clock; name the devices in the recipe, devices = "
            f"{' or '.join(map(repr, FLEETS))} or a .toml file of your own, and run it again"
        )
    clocks = {method: list(seeds.values()) for method, seeds in runs.items()}
    best = max((last for own in clocks.values() if (last := _last(own)) is not None), default=None)
    target = study.target or (None if best is None else SHARE * best)
    groups = {method: _group(study, own) for method, own in clocks.items()}
    clips = any(seed.recordings for own in clocks.values() for seed in own)
    table = [row for m, own in clocks.items() for row in _rows(m, own, groups[m], target, clips)]
    word = word_of(seed for own in clocks.values() for seed in own)
    heads = ["method, devices", "last, %", *(["per video, %"] if clips else []), f"{word} time"]
    without = [method for method in dict.fromkeys(run.method for run in study.runs) if method not in runs]
    return Finding(
        title="Methods in one clock",
        caption=f"Above: mean test {study.measure} over clients against {word} time. Below: how long the devices "
        "worked (full) and were idle (pale) until the method's last round was over "
        f"({study.describe_seeds(clocks)}).",
        columns=[*heads, f"to {points(target)} %", "busy, %", "idle, %", "updates", "staleness (most)"],
        rows=table,
        values={
            "target": target,
            "methods": {method: _values(seeds, target) for method, seeds in runs.items()},
            "devices": groups,
        },
        figure=_draw(clocks, groups, target, study.measure, word),
        notes=_note(study, target, without, groups, word),
    )


def _group(study: Study, seeds: Sequence[RunClock]) -> dict[str, list[str]]:
    """A method's devices by kind, where the recipe names several kinds; else each for itself, the first few."""
    clients = sorted({client for seed in seeds for client in seed.busy}, key=natural_key)
    run = study.recipe.run
    kinds: dict[str, list[str]] = defaultdict(list)
    if run.devices:
        members = clients
        if run.clients_per_round and EVERYONE not in clients:  # some may never have been asked
            members = [c for c, data in study.clients.items() if data.info.samples and c != run.unseen]
        try:
            dealt = deal_devices(fleet_of(run.devices), members, [c for c in clients if c == EVERYONE])
        except RecipeError:  # a file that is no longer there
            dealt = {}
        for client in clients:
            if client in dealt:
                kinds[dealt[client].name].append(client)
    if len(kinds) > 1 or len(clients) == 1:
        named = {kind if len(own) == 1 else f"{kind} ({len(own)} clients)": own for kind, own in kinds.items()}
        return named or {clients[0]: clients}
    return {client: [client] for client in clients[:_SHOWN]}


def _rows(
    method: str, seeds: Sequence[RunClock], groups: Groups, target: float | None, clips: bool
) -> list[tuple[str, ...]]:
    """The method's own row, and one for each group of its devices where there are several."""
    whole = list(dict.fromkeys(client for seed in seeds for client in seed.busy))
    reached = [time for seed in seeds if target is not None and (time := seed.time_to(target)) is not None]
    when = duration(statistics.fmean(reached)) if reached else "not reached"
    if 0 < len(reached) < len(seeds):
        when += f" ({len(reached)} of {len(seeds)} seeds)"
    accuracies = [points(_last(seeds))]
    if clips:
        accuracies.append(points(_over(seeds, lambda seed: _end(seed.recordings))))
    time = duration(statistics.fmean(seed.time for seed in seeds))
    name = f"all {len(whole)}" if len(whole) > 1 else next(iter(groups))
    rows = [(f"{title_of(method)}, {name}", *accuracies, time, when, *_cells(seeds, whole))]
    if len(whole) > 1:
        blank = ("",) * (len(accuracies) + 2)
        rows += [(f"{title_of(method)}, {group}", *blank, *_cells(seeds, own)) for group, own in groups.items()]
    return rows


def _cells(seeds: Sequence[RunClock], clients: Sequence[str]) -> tuple[str, ...]:
    """Utilisation, idle share, updates a client, mean and largest staleness of some devices, means over seeds."""
    used = _utilisation(seeds, clients)
    updates = statistics.fmean(seed.updates.get(client, 0.0) for seed in seeds for client in clients)
    mean = _over(seeds, lambda seed: seed.mean_staleness_of(clients))
    most = max((age for seed in seeds for c, age in seed.stalest.items() if c in clients), default=0.0)
    staleness = "–" if mean is None else f"{number(mean, 1)} ({number(most, 1)})"
    return points(used), points(1 - used), number(updates, 1), staleness


def _utilisation(seeds: Sequence[RunClock], clients: Iterable[str]) -> float:
    return statistics.fmean(seed.utilisation(c) for c in clients for seed in seeds if c in seed.busy)


def _over(seeds: Sequence[RunClock], pick: Callable[[RunClock], float | None]) -> float | None:
    """The mean over the seeds that have it."""
    known = [value for seed in seeds if (value := pick(seed)) is not None]
    return statistics.fmean(known) if known else None


def _end(series: Series) -> float | None:
    return series[max(series)] if series else None


def _last(seeds: Sequence[RunClock]) -> float | None:
    return _over(seeds, lambda seed: _end(seed.accuracy))


def _values(seeds: Mapping[int, RunClock], target: float | None) -> dict[str, Any]:
    """All that the table and the picture are made of."""
    curve = _curve(list(seeds.values()))
    return {
        "rounds": list(curve),
        "seconds": [time for time, _, _ in curve.values()],
        "accuracy": [mean for _, mean, _ in curve.values()],
        "std": [std for _, _, std in curve.values()],
        "seeds": {
            str(which): {
                "seconds": seed.time,
                "seconds_to_target": None if target is None else seed.time_to(target),
                "accuracy": _end(seed.accuracy),
                "recordings": _end(seed.recordings),
                "utilisation": seed.mean_utilisation,
                "idle": 1 - seed.mean_utilisation,
                "staleness": seed.mean_staleness_of(seed.busy),
                "clients": {
                    client: {
                        "busy_seconds": seed.busy[client],
                        "utilisation": seed.utilisation(client),
                        "updates": seed.updates.get(client, 0.0),
                        "staleness": seed.staleness.get(client),
                        "stalest": seed.stalest.get(client),
                    }
                    for client in seed.busy
                },
            }
            for which, seed in seeds.items()
        },
    }


def _curve(seeds: Sequence[RunClock]) -> dict[int, tuple[float, float, float]]:
    """By round that all seeds tested: the mean time it was over, the mean accuracy and its standard deviation."""
    times = average(seed.times for seed in seeds)
    accuracies = average(seed.accuracy for seed in seeds)
    return {r: (times[r][0], *accuracy) for r, accuracy in accuracies.items() if r in times}


def _note(
    study: Study, target: float | None, without: Sequence[str], groups: Mapping[str, Groups], word: str
) -> list[str]:
    computed = (
        "Virtual time is computed from the devices' profiles, not measured: training and transfers, but neither "
        "tests nor the server's own work."
    )
    measured = "Time was measured at the server; a site works from when it is asked until its answer is there."
    how = (
        f"{measured if word == 'real' else computed} Busy (utilisation) is the share of the time, up to the end of "
        "the last round, in which a device worked; jobs still under way then count as far as they have come. "
        "Idle is the rest, whether a device waits, is not asked, or is off. A method's first row has means over its "
        "devices. Updates are those of a client that the server used. Staleness is in server updates, mean and, in "
        "parentheses, largest. Over seeds, a curve's points are mean times and mean values after the same round."
    )
    given = "as asked" if study.target else f"{points(SHARE, 0)} % of the best method's {study.measure} at its end"
    notes = [how]
    if target is not None:
        notes.append(
            f"The target is {points(target)} % ({given}). The time to it is that of the first tested round, per "
            f"seed, whose mean {study.measure} is the target or better; the mean is over the seeds that reached it."
        )
    if without:
        names = ", ".join(map(title_of, without))
        notes.append(f"Left out: {names}, which ran without a clock; devices = ... in the recipe gives them one.")
    if any(len(g) == _SHOWN and all(len(own) == 1 for own in g.values()) for g in groups.values()):
        notes.append(f"Of a method's devices at most {_SHOWN} have a row and a bar; all are in the JSON file.")
    return notes


def _draw(runs: Runs, groups: Mapping[str, Groups], target: float | None, measure: str, word: str) -> Figure:
    longest = max(statistics.fmean(seed.time for seed in own) for own in runs.values())
    unit, seconds = unit_of(longest)
    bars = sum(len(own) for own in groups.values()) + 0.8 * len(groups)
    figure = canvas(9, 4.3 + 0.24 * bars)
    above, below = figure.subplots(2, 1, height_ratios=[3.5, 0.24 * bars + 0.3])
    for place, (method, own) in enumerate(runs.items()):
        curve = _curve(own)
        x, mark = [time / seconds for time, _, _ in curve.values()], MARKS[place % len(MARKS)]
        accuracies = ((mean, std) for _, mean, std in curve.values())
        draw_accuracy(above, x, accuracies, place, title_of(method), mark if len(x) <= 40 else "")
    if target is not None:
        draw_target(above, target)
    above.set_ylabel(f"test {measure}, %")
    above.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(len(runs), 6))
    _draw_bars(below, runs, groups, seconds)
    for axes in (above, below):
        axes.set_xlim(0, 1.08 * longest / seconds or 1)
        axes.set_xlabel(f"{word} {unit}")
    return figure


def _draw_bars(axes: Axes, runs: Runs, groups: Mapping[str, Groups], unit: float) -> None:
    """A bar for each group of devices, as long as its method's time; the share worked in full colour."""
    row = 0.0
    names: list[tuple[float, str]] = []
    for place, (method, seeds) in enumerate(runs.items()):
        shade = colour(place)
        whole = statistics.fmean(seed.time for seed in seeds) / unit
        for name, clients in groups[method].items():
            used = _utilisation(seeds, clients)
            axes.barh(row, whole * used, height=0.8, color=shade)
            axes.barh(row, whole * (1 - used), left=whole * used, height=0.8, color=shade, alpha=0.22)
            beside: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
            axes.annotate(f"{points(used, 0)} %", (whole, row), **beside)
            names.append((row, f"{title_of(method)}: {label(name, 34)}"))
            row += 1
        row += 0.8
    axes.set_yticks([y for y, _ in names], [text for _, text in names])
    axes.set_ylim(row - 1.3, -0.7)
    axes.tick_params(axis="y", length=0)
    shades = [Patch(color=SOFT, label="working"), Patch(color=SOFT, alpha=0.22, label="idle")]
    axes.legend(handles=shades, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
