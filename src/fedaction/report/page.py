"""The report as one HTML file: style, script and data inline, nothing fetched from anywhere."""

from __future__ import annotations

import base64
import html
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from statistics import fmean
from typing import Any, cast

from fedaction.engines.flower.status import SeenSite, ServerStatus
from fedaction.evaluation.accuracy import wilson
from fedaction.federation.order import natural_key
from fedaction.federation.words import amount, quote
from fedaction.methods import title_of
from fedaction.report.clock import unit_of, word_of
from fedaction.report.collect import Curve, Final, MethodData, ReportData
from fedaction.report.files import Analysis, LearnedGraph, RecordedAction, Result, finite
from fedaction.report.judgement import Judgement
from fedaction.runs.budget import COSTS, Cost
from fedaction.runs.metrics import metric_name

# In the order that they are joined: helpers first, `page.js` last because it draws.
_NAMES = "dom chart heatmap results judge profile sites clock body topology player analyses page"
SCRIPTS = tuple(f"{name}.js" for name in _NAMES.split())
_CONTROLS = {"majority": "Commonest class", "ridge": "Ridge classifier"}
_MOST_POINTS = 400  # of one curve; more than a screen can show
_MOST_SITES = 1000  # that a report lists
_MOST_CLIENTS = 48  # that a report shows one by one; of more, so many from the worst to the best
_QUANTILES = {0.95: "best 5 %", 0.75: "upper quarter", 0.5: "median", 0.25: "lower quarter", 0.05: "worst 5 %"}
_NAME = 100  # characters of a site's name
_STEPS = 2000  # a skeleton's coordinates are kept as whole numbers from -2000 to 2000


def render(data: ReportData) -> str:
    """The whole page."""
    here = files("fedaction.report")

    def static(name: str) -> str:
        return here.joinpath(name).read_text(encoding="utf-8")

    blob = json.dumps(_payload(data), allow_nan=False, separators=(",", ":"))
    # Inside a script element only "<" can end it or open a comment; \u003c is the same JSON string.
    blob = blob.replace("<", "\\u003c")
    parts = {
        "title": html.escape(data.name),
        "summary": html.escape(summary(data)),
        "style": static("page.css"),
        "script": "\n".join(static(name) for name in SCRIPTS),
        "data": blob,
    }
    # One pass, so that a placeholder's name inside the data stays data.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], static("page.html"))


def summary(data: ReportData) -> str:
    """The outcome in one sentence."""
    first, *others = data.methods
    planned = _planned_rounds(data)
    rounds = f"{first.rounds} of {_count(planned, 'round')}" if planned else _count(first.rounds, "round")
    name, measure = title_of(first.name), metric_name(method.name for method in data.methods)
    where = f"over {_count(len(data.clients), 'client')}" if data.clients else ""
    if first.final.mean is None:
        return f"{name} has trained for {rounds} {where}".strip() + f"; no test {measure} was measured."
    verb, time = ("reached", "in") if first.complete else ("stands at", "after")
    kind = measure if len(data.clients) == 1 else f"mean {measure}"
    text = f"{name} {verb} {_percent(first.final)} {kind} {where} {time} {rounds}"
    if len(first.seeds) > 1:
        text += f" (mean of {len(first.seeds)} seeds)"
    known = [f"{title_of(m.name)} {_percent(m.final)}" for m in others if m.final.mean is not None]
    return "; ".join([text, ", ".join(known)] if known else [text]) + "."


def _planned_rounds(data: ReportData) -> int | None:
    """How many rounds the recipe asks for, where the run has yet to do them."""
    planned, first = data.recipe.get("rounds"), data.methods[0]
    return planned if isinstance(planned, int) and not first.complete and planned > first.rounds else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _percent(value: Final) -> str:
    if value.mean is None:
        return "–"
    spread = "" if value.std is None else f" ± {100 * value.std:.1f}"
    return f"{100 * value.mean:.1f}{spread} %"


def duration(seconds: float) -> str:
    """A time for people, as precise as it is long."""
    if seconds < 90:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _facts(data: ReportData) -> list[tuple[str, str]]:
    first, result = data.methods[0], data.result
    planned = _planned_rounds(data)
    rounds = f"{first.rounds} of {planned}" if planned else str(first.rounds)
    facts = [("Rounds", rounds if first.complete else f"{rounds}, unfinished"), ("Clients", str(len(data.clients)))]
    facts.append(("Seed" if len(first.seeds) == 1 else "Seeds", ", ".join(first.seeds)))
    device = (result.device if result else "") or data.environment.get("device") or data.recipe.get("device")
    if device:
        facts.append(("Device", str(device)))
    if result and result.engine:
        way: Any = data.environment.get("way")  # of this run's engine, where the recipe left it open
        why = str(way.get("why") or "") if isinstance(way, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        facts.append(("Engine", f"{result.engine}: {why}" if why else result.engine))
    if first.seconds is not None:
        facts.append(("Time", duration(first.seconds)))
    if first.traffic is not None:
        up, down = first.traffic.total_up.last or 0.0, first.traffic.total_down.last or 0.0
        facts.append(("Traffic", f"{amount(up)} up, {amount(down)} down"))
    if result and result.configuration:
        facts.append(("Configuration", result.configuration))
    return facts


def _payload(data: ReportData) -> dict[str, Any]:
    """Plain JSON values. What belongs to clients is in lists, in their order: a name is no safe key."""
    shown = choose_clients(data)
    some = set(shown)
    clocks = [clock for method in data.methods for clock in method.clocks]
    unit, seconds = unit_of(max((clock.time for clock in clocks), default=0.0))
    return {
        "facts": _facts(data),
        "synthetic": data.synthetic,
        "measure": metric_name(method.name for method in data.methods),
        "clients": shown,
        "groups": [data.groups.get(client, "") for client in shown],
        "many": _many(data) if len(shown) < len(data.clients) else None,
        "unit": f"{word_of(clocks)} {unit}",
        "clock": word_of(clocks),
        "methods": [
            _method(m, shown)
            | {"clock": _clock(m, seconds), "scores": _scores(data.result, m, place)}
            | _costs(m, data.judgement, place)
            for place, m in enumerate(data.methods)
        ],
        "equal": [
            {"words": words, "budget": _round(budget), "means": [_round(mean) for mean in data.judgement.means[by]]}
            for by, words in COSTS.items()
            if (budget := data.judgement.budgets.get(by)) is not None
        ],
        "split": [
            {"client": client, **own, "classes": [[name, *counts] for name, counts in own["classes"].items()]}
            for client, own in data.judgement.split.items()
            if client in some
        ],
        "confusions": [
            {"method": i, "clients": [{"client": c, **asdict(matrix)} for c, matrix in matrices.items() if c in some]}
            for i, matrices in data.confusions.items()
        ],
        "topology": [_topology(client, graph) for client, graph in data.topology.items() if client in some],
        "samples": [
            {"client": client, "items": [_sample(item) for item in items]}
            for client, items in data.samples.items()
            if items and client in some
        ],
        "served": _served(data.served),
        "warnings": data.result.warnings if data.result else (),
        "profile": data.profile,
        "controls": [
            {
                "name": _CONTROLS.get(name, name),
                "final": _round(control.mean),
                "finals": [_round(control.clients.get(client)) for client in shown],
            }
            for name, control in (data.result.controls if data.result else {}).items()
        ],
        "analyses": [_analysis(item) for item in data.analyses],
        "notes": data.notes,
        "recipe": _flat(data.recipe),
        "environment": _flat(data.environment),
    }


def choose_clients(data: ReportData) -> tuple[str, ...]:
    """Whom the page shows one by one: all, or of many some, evenly from the worst to the best of the first method."""
    if len(data.clients) <= _MOST_CLIENTS:
        return data.clients
    finals = data.methods[0].client_final
    ranked = sorted(data.clients, key=lambda client: finals.get(client, Final()).mean or 0.0)
    return tuple(ranked[round(i * (len(ranked) - 1) / (_MOST_CLIENTS - 1))] for i in range(_MOST_CLIENTS))


def _many(data: ReportData) -> dict[str, Any]:
    """Many clients together: how their accuracies spread by round, and the means of groups at the end."""
    groups = sorted({data.groups.get(client, "") for client in data.clients})
    means = [
        [_round(fmean(known)) if (known := _finals_of(method, data, group)) else None for method in data.methods]
        for group in groups
    ]
    sizes = [sum(data.groups.get(client, "") == group for client in data.clients) for group in groups]
    return {
        "count": len(data.clients),
        "spread": [_spread(method) for method in data.methods],
        "groups": [[group, size, own] for group, size, own in zip(groups, sizes, means, strict=True)],
    }


def _finals_of(method: MethodData, data: ReportData, group: str) -> list[float]:
    """Accuracies at the end of a group's clients."""
    own = (
        method.client_final.get(client, Final()).mean for client in data.clients if data.groups.get(client) == group
    )
    return [value for value in own if value is not None]


def _spread(method: MethodData) -> list[dict[str, Any]]:
    """Quantiles over clients of their accuracy, by round."""
    by_round: dict[int, list[float]] = {}
    for curve in method.client_accuracy.values():
        for round, value in zip(curve.rounds, curve.mean, strict=True):
            if value is not None:
                by_round.setdefault(round, []).append(value)
    ranked = {round: sorted(values) for round, values in sorted(by_round.items())}
    blank = (None,) * len(ranked)
    return [
        {"name": name, **_curve(Curve(tuple(ranked), tuple(_quantile(own, share) for own in ranked.values()), blank))}
        for share, name in _QUANTILES.items()
    ]


def _quantile(ranked: Sequence[float], share: float) -> float:
    """The value that a share of sorted values lies below; between two, in proportion."""
    place = share * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (place - low) * (ranked[high] - ranked[low])


def _served(status: ServerStatus | None) -> dict[str, Any] | None:
    """What the server of a run between sites noted; names and texts are anyone's, and cut."""
    if status is None:
        return None
    return {
        "sites": [[quote(name, _NAME), quote(site.about), site.refused] for name, site in _first(status.sites)],
        "count": len(status.sites),
        "sent": status.sent,
        "received": status.received,
        "leftOut": status.left_out,
        "warnings": status.warnings,
        "remarks": [[time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(r.time)), quote(r.text)] for r in status.remarks],
    }


def _first(sites: Mapping[str, SeenSite]) -> list[tuple[str, SeenSite]]:
    return sorted(sites.items(), key=lambda site: natural_key(site[0]))[:_MOST_SITES]


def _method(method: MethodData, clients: Sequence[str]) -> dict[str, Any]:
    traffic = dict(zip(("up", "down", "totalUp", "totalDown"), map(_curve, method.traffic or ()), strict=False))
    return {
        "id": method.name,
        "name": title_of(method.name),
        "seeds": len(method.seeds),
        "complete": method.complete,
        "accuracy": _curve(method.accuracy),
        "clients": [_curve(method.client_accuracy[c]) if c in method.client_accuracy else None for c in clients],
        "losses": [{"name": name, **_curve(curve)} for name, curve in method.losses.items()],
        "traffic": traffic or None,
        "counts": {name: _round(value) for name, value in method.counts.items()},
        "refused": [[client, _round(value)] for client, value in [*method.refused.items()][:_MOST_CLIENTS]],
        "final": _final(method.final),
        "finals": [_final(method.client_final.get(c, Final())) for c in clients],
        "intervals": [_interval(method, client) for client in clients],
    }


def _scores(result: Result | None, method: MethodData, place: int) -> list[str]:
    """Beside a method's mean, in per cent: its 95 % interval, balanced accuracy and macro-F1; "–" where not known."""
    own = result if place == 0 or result is None else result.baselines.get(method.name)
    if own is None:
        return ["–"] * 3
    low, high = (f"{100 * bound:.0f}" for bound in own.interval) if own.interval else ("", "")
    scores = ("–" if score is None else f"{100 * score:.1f}" for score in (own.balanced_accuracy, own.macro_f1))
    return [f"{low} to {high}" if own.interval else "–", *scores]


def _costs(method: MethodData, judgement: Judgement, place: int) -> dict[str, Any]:
    """What training had cost by each point of the accuracy's curve, in all, and how sure each client's end is."""
    costs: Mapping[Cost, Mapping[int, float]] = judgement.costs[place] if judgement.costs else {}
    drawn = _curve(method.accuracy)["x"]
    time: Mapping[int, float] = costs.get("time", {})
    return {
        "costs": {by: [_round(known.get(round)) for round in drawn] for by, known in costs.items()},
        "trained": duration(max(time.values())) if time else None,
    }


def _clock(method: MethodData, unit: float) -> dict[str, Any] | None:
    """Accuracy by time on the clock, in units of so many seconds, and how busy devices were; means over seeds."""
    clocks = method.clocks
    if not clocks:
        return None
    drawn = _curve(method.accuracy)
    times = [[clock.times[r] for clock in clocks if r in clock.times] for r in drawn["x"]]
    kept = [i for i, known in enumerate(times) if known]
    shares = [clock.utilisation(client) for clock in clocks for client in clock.busy]
    ages = [age for clock in clocks if (age := clock.mean_staleness_of(clock.busy)) is not None]
    curve: dict[str, Any] = {key: [values[i] for i in kept] for key, values in drawn.items()}
    return {
        "curve": curve | {"x": [_round(fmean(times[i]) / unit) for i in kept]},
        "time": duration(fmean(clock.time for clock in clocks)),
        "devices": len({client for clock in clocks for client in clock.busy}),
        "utilisation": _round(fmean(clock.mean_utilisation for clock in clocks)),
        "least": _round(min(shares)),
        "most": _round(max(shares)),
        "updates": _round(fmean(fmean(clock.updates.values()) for clock in clocks)),
        "staleness": _round(fmean(ages)) if ages else None,
    }


def _interval(method: MethodData, client: str) -> list[float | None] | None:
    """The 95 % interval of a client's accuracy at the end; None where its number of test samples is not known."""
    final, confusion = method.client_final.get(client, Final()).mean, method.evidence.confusion.get(client)
    if final is None or confusion is None:
        return None
    return [_round(bound) for bound in wilson(final, sum(map(sum, confusion.matrix)))]


def _final(final: Final) -> list[float | None]:
    return [_round(final.mean), _round(final.std)]


def _curve(curve: Curve) -> dict[str, Any]:
    size = len(curve.rounds)
    keep = range(size)
    if size > _MOST_POINTS:
        keep = [round(i * (size - 1) / (_MOST_POINTS - 1)) for i in range(_MOST_POINTS)]  # both ends stay
    drawn: dict[str, Any] = {"x": [curve.rounds[i] for i in keep], "y": [_round(curve.mean[i]) for i in keep]}
    if any(value is not None for value in curve.std):
        drawn["sd"] = [_round(curve.std[i]) for i in keep]
    return drawn


def _topology(client: str, graph: LearnedGraph) -> dict[str, Any]:
    def matrix(rows: tuple[tuple[float, ...], ...] | None) -> list[list[float]] | None:
        return None if rows is None else [[_round(value, 3) or 0 for value in row] for row in rows]

    matrices = {"A": matrix(graph.A), "I": matrix(graph.I), "U": matrix(graph.U)}
    weights = [_round(weight) or 0 for weight in (graph.alpha, graph.beta, graph.gamma)]
    return {"client": client, "layout": graph.layout.to_dict(), **matrices, "weights": weights}


def _sample(sample: RecordedAction) -> dict[str, Any]:
    """Frames as one list of whole numbers, x, y, z of each joint in turn; the page scales them to fit."""
    joints = (joint for frame in sample.frames for joint in frame)
    flat = [finite(joint[axis]) if axis < len(joint) else 0.0 for joint in joints for axis in range(3)]
    most = max((abs(value) for value in flat if value is not None), default=0.0) or 1.0
    return {
        "layout": sample.layout.to_dict(),
        "xyz": [None if value is None else round(value / most * _STEPS) for value in flat],
        "rate": sample.rate_hz,
        "label": sample.label,
        "predicted": sample.predicted,
        "confidence": _round(sample.confidence),
    }


def _analysis(analysis: Analysis) -> dict[str, Any]:
    return {
        "name": analysis.name,
        "title": analysis.title,
        "caption": analysis.caption,
        "notes": analysis.notes,
        "columns": analysis.table.columns,
        "rows": analysis.table.rows,
        "picture": base64.b64encode(analysis.picture).decode(),
    }


def _round(value: float | None, digits: int = 5) -> float | int | None:
    """The number with so many significant digits, whole where it is whole; None where it is not finite."""
    if finite(value) is None or value is None:
        return None
    if value == int(value):
        return int(value)
    return float(f"{value:.{digits}g}")


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """(dotted key, value as text) of a table with tables in it."""
    rows: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            rows += _flat(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, default=str)))
    return rows
