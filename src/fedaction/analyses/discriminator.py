"""How well FDARN's discriminator told modalities apart while it trained, in each subspace."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from fedaction.analyses.draw import COLOURS, SOFT, canvas, whole_rounds
from fedaction.analyses.finding import Finding, Table, number, points
from fedaction.analyses.study import NotApplicable, Study, plain
from fedaction.methods import title_of
from fedaction.runs.metrics import Row, read_rows
from fedaction.runs.study import list_runs

WORDS = {
    "seen_altruistic": "recognised, altruistic, %",
    "seen_egocentric": "recognised, egocentric, %",
    "margin_altruistic": "loss, altruistic, nats",
    "margin_egocentric": "loss, egocentric, nats",
    "spread": "spread-out term",
}
"""Metrics of a run, in words."""
Series = dict[int, float]


def discriminator(study: Study) -> Finding:
    """See the module."""
    if "fdarn" not in study.states:
        raise NotApplicable(f"{title_of(study.recipe.run.method)} has no modality discriminator; FDARN has one")
    seeds: list[list[Row]] = []
    for method, _, home in list_runs(study.recipe, study.folder):
        path = home / "metrics.jsonl"
        if method == "fdarn" and path.exists():
            seeds.append([row for row in read_rows(path) if row.split == "train" and row.name in WORDS])
    seeds = [rows for rows in seeds if rows]
    if not seeds:
        raise NotApplicable("FDARN was trained without its modality discriminator here")
    modalities = sorted({row.group for rows in seeds for row in rows})
    means = _series(seeds)
    by_modality = {m: _series([[row for row in rows if row.group == m] for rows in seeds]) for m in modalities}
    table = [
        (
            words,
            _cell(name, means[name][min(means[name])]),
            _cell(name, means[name][max(means[name])]),
            *(_cell(name, _last(by_modality[m].get(name))) for m in modalities),
        )
        for name, words in WORDS.items()
        if means.get(name)
    ]
    if not table:
        raise NotApplicable("the discriminator's numbers are not finite, or its seeds have no round in common")
    values = {
        "curves": {n: {"rounds": list(s), "values": list(s.values())} for n, s in means.items()},
        "last": {n: _last(s) for n, s in means.items()},
        "modalities": {m: {n: _last(s) for n, s in own.items()} for m, own in by_modality.items()},
        "chance": 1 / len(modalities),
        "seeds": len(seeds),
    }
    several = f"means of {len(seeds)} seeds" if len(seeds) > 1 else f"seed {study.seed}"
    return Finding(
        title="The modality discriminator over rounds",
        caption="Share of training samples whose modality FDARN's discriminator recognises, and its losses: means "
        f"over the clients of a round ({several}). {study.words}",
        table=Table(
            ("mean over clients", "first round", "last round", *(f"{m}, last" for m in modalities)), tuple(table)
        ),
        values=plain(values),
        figure=_picture(means, len(modalities)),
        notes=(
            "Taken on training batches while weights move, with the weights of the moment. The encoders work against "
            "the discriminator in the altruistic subspace, and with it in the egocentric one. Chance is 1 / "
            f"{len(modalities)}, one of the modalities blindly guessed; a discriminator that always answers the same "
            "is right for the clients of that modality and wrong for all others, which the columns by modality show.",
        ),
    )


def _series(seeds: Sequence[Sequence[Row]]) -> dict[str, Series]:
    """By metric and round, the mean over clients and then over seeds, at rounds that all seeds have."""
    found: dict[str, list[Series]] = defaultdict(list)
    for rows in seeds:
        cells: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            if row.value is not None:
                cells[row.name][row.round].append(row.value)
        for name, rounds in cells.items():
            found[name].append({r: statistics.fmean(clients) for r, clients in rounds.items()})
    means: dict[str, Series] = {}
    for name in WORDS:
        if len(found[name]) == len(seeds):
            common = sorted(set[int].intersection(*(set(own) for own in found[name])))
            means[name] = {r: statistics.fmean(own[r] for own in found[name]) for r in common}
    return {name: own for name, own in means.items() if own}


def _last(series: Series | None) -> float | None:
    return series[max(series)] if series else None


def _cell(name: str, value: float | None) -> str:
    return points(value) if name.startswith("seen") else number(value)


def _picture(means: Mapping[str, Series], modalities: int) -> Figure:
    panels = {
        "modality recognised, % of samples": ("seen_altruistic", "seen_egocentric"),
        "loss of the discriminator, nats": ("margin_altruistic", "margin_egocentric"),
        "spread-out term of its prototypes": ("spread",),
    }
    shown = {title: [n for n in names if n in means] for title, names in panels.items()}
    shown = {title: names for title, names in shown.items() if names}
    figure = canvas(3.6 * len(shown) + 0.4, 3.4)
    for column, (title, names) in enumerate(shown.items()):
        axes = figure.add_subplot(1, len(shown), column + 1)
        for name in names:
            factor = 100 if name.startswith("seen") else 1
            series = means[name]
            subspace = name.partition("_")[2]
            place = {"altruistic": 0, "egocentric": 1}.get(subspace, 2)
            axes.plot(
                list(series),
                [factor * value for value in series.values()],
                marker="o" if len(series) <= 20 else "",
                markersize=3.5,
                color=COLOURS[place],
                label=subspace or None,
            )
        if names[0].startswith("seen"):
            axes.axhline(
                100 / modalities, color=SOFT, linewidth=1, linestyle="--", label=f"chance, 1 of {modalities}"
            )
            axes.set_ylim(-3, 103)
        axes.set_title(title, loc="left", fontsize=9)
        axes.grid(axis="y")
        whole_rounds(axes)
        if names != ["spread"]:
            axes.legend(loc="best")
    return figure
