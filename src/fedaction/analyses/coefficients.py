"""How far alpha, beta and gamma of each client's graph moved from 1 (FSAR, Table 4)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from fedaction.analyses.draw import COLOURS, MARKS, RULE, SOFT, canvas, label
from fedaction.analyses.finding import Finding, Table, number
from fedaction.analyses.study import NotApplicable, Study, plain
from fedaction.evaluation.topology import drift
from fedaction.methods import title_of

_SHOWN = 20  # clients
SYMBOLS = {"alpha": "α", "beta": "β", "gamma": "γ"}
MEANINGS = {"alpha": "body's own graph A", "beta": "shared I", "gamma": "own U"}


def coefficients(study: Study) -> Finding:
    """See the module."""
    method = study.recipe.run.method
    locals_ = study.states[method].locals.committed
    found = {
        client: {name: float(tree[f"topology.{name}"]) for name in SYMBOLS if f"topology.{name}" in tree}
        for client, tree in sorted(locals_.items())
    }
    found = {client: own for client, own in found.items() if own}
    if not found:
        raise NotApplicable(f"{title_of(method)} learned no alpha, beta and gamma here")
    moves = drift(found)
    shown = dict(list(found.items())[:_SHOWN])
    table = [(client, *(number(own[name]) for name in SYMBOLS)) for client, own in shown.items()]
    ordered = {name: sorted((own[name] for own in moves.values()), key=abs) for name in SYMBOLS}
    table.append(("largest Δ", *(f"{ordered[name][-1]:+.3f}" for name in SYMBOLS)))
    table.append(("smallest Δ", *(f"{ordered[name][0]:+.3f}" for name in SYMBOLS)))
    return Finding(
        title="Coefficients of the learned graph",
        caption=f"{title_of(method)}: each client's α (body's own graph A), β (shared matrix I) and γ (its own "
        f"matrix U), which all start at 1. {study.words}",
        table=Table(("client", *SYMBOLS.values()), tuple(table)),
        values={"coefficients": plain(found), "drift": plain(moves)},
        figure=_picture(shown),
        notes=(
            "Δ is the value less 1, where it started; largest and smallest are over all clients, and by size, "
            "whatever the sign.",
            *((f"Shown: the first {_SHOWN} of {len(found)} clients by name.",) if len(found) > _SHOWN else ()),
        ),
    )


def _picture(found: Mapping[str, Mapping[str, float]]) -> Figure:
    figure = canvas(7.5, 1.5 + 0.42 * len(found))
    axes = figure.add_subplot()
    axes.axvline(1, color=SOFT, linewidth=1, zorder=1)
    for row, own in enumerate(found.values()):
        for place, (name, symbol) in enumerate(SYMBOLS.items()):
            y = row + 0.22 * (place - 1)
            colour = COLOURS[place]
            axes.plot([1, own[name]], [y, y], color=colour, linewidth=1.5, zorder=2)
            text = f"{symbol} ({MEANINGS[name]})" if row == 0 else None
            axes.plot(own[name], y, MARKS[place], color=colour, markersize=6, label=text, linestyle="none", zorder=3)
    axes.set_yticks(range(len(found)), [label(client, 28) for client in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.margins(x=0.1)
    axes.set_xlabel("coefficient (no unit; the line at 1 is where it started)")
    axes.grid(axis="x", color=RULE)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=3)
    return figure
