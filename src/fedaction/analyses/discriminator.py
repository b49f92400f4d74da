"""How well FDARN's discriminator told modalities apart while it trained, in each subspace."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from fedaction.analyses.draw import COLOURS, SOFT, canvas, whole_rounds
from fedaction.analyses.finding import Finding, number, points
from fedaction.analyses.study import NotApplicable, Study
from fedaction.methods import title_of
from fedaction.report.series import Series, average, tabulate
from fedaction.runs.metrics import Row

WORDS = {
    "seen_altruistic": "recognised, altruistic, %",
    "seen_egocentric": "recognised, egocentric, %",
    "margin_altruistic": "loss, altruistic, nats",
    "margin_egocentric": "loss, egocentric, nats",
    "spread": "spread-out term",
}
"""Metrics of a run, in words."""


def discriminator(study: Study) -> Finding:
    """See the module."""
    if "fdarn" not in study.states:
        raise NotApplicable(f"{title_of(study.recipe.run.method)} has no modality discriminator; FDARN has one")
    runs = [run.rows for run in study.runs if run.method == "fdarn"]
    seeds = [own for rows in runs if (own := [r for r in rows if r.split == "train" and r.name in WORDS])]
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
    return Finding(
        title="The modality discriminator over rounds",
        caption="Share of training samples whose modality FDARN's discriminator recognises, and its losses: means "
        f"over the clients of a round ({study.describe_seeds({'fdarn': seeds}, bands=False)}).",
        columns=("mean over clients", "first round", "last round", *(f"{m}, last" for m in modalities)),
        rows=table,
        values=values,
        figure=_draw(means, len(modalities)),
        notes=(
            "Taken on training batches while weights move, with the weights of the moment. The encoders work against "
            "the discriminator in the altruistic subspace, and with it in the egocentric one. Chance is 1 / "
            f"{len(modalities)}, one of the modalities blindly guessed; a discriminator that always answers the same "
            "is right for the clients of that modality and wrong for all others, which the columns by modality show.",
        ),
    )


def _series(seeds: Sequence[Sequence[Row]]) -> dict[str, Series]:
    """By metric and round, the mean over clients and then over seeds, at rounds that all seeds have."""
    tables = [tabulate(rows) for rows in seeds]
    means: dict[str, Series] = {}
    for name in WORDS:
        each: list[Series] = []
        for table in tables:
            clients = table["train", name].values()
            rounds = {r for own in clients for r in own}
            each.append({r: statistics.fmean(own[r] for own in clients if r in own) for r in rounds})
        means[name] = {r: mean for r, (mean, _) in average(each).items()}
    return {name: own for name, own in means.items() if own}


def _last(series: Series | None) -> float | None:
    return series[max(series)] if series else None


def _cell(name: str, value: float | None) -> str:
    return points(value) if name.startswith("seen") else number(value)


def _draw(means: Mapping[str, Series], modalities: int) -> Figure:
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
            x, y, mark = list(series), [factor * value for value in series.values()], "o" if len(series) <= 20 else ""
            axes.plot(x, y, marker=mark, markersize=3.5, color=COLOURS[place], label=subspace or None)
        if names[0].startswith("seen"):
            words = f"chance, 1 of {modalities}"
            axes.axhline(100 / modalities, color=SOFT, linewidth=1, linestyle="--", label=words)
            axes.set_ylim(-3, 103)
        axes.set_title(title, loc="left", fontsize=9)
        axes.grid(axis="y")
        whole_rounds(axes)
        if names != ["spread"]:
            axes.legend(loc="best")
    return figure
