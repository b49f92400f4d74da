"""FSAR's learned graphs: matrices I and U (Fig. 8; supplement, Figs. 4 to 7), alpha, beta and gamma (Table 4)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedaction.analyses.draw import COLOURS, MARKS, RULE, SOFT, canvas, heat, label, scale, whole_rounds
from fedaction.analyses.finding import Finding, number
from fedaction.analyses.study import NotApplicable, Study
from fedaction.data.layout import Layout
from fedaction.evaluation.topology import between, drift, similarities
from fedaction.federation.order import natural_key
from fedaction.federation.outside import check_size
from fedaction.methods import title_of

Graphs = dict[str, dict[str, Tensor]]
"""By matrix ("I", "U") and client, (K, V, V)."""
MATRICES = {"I": "shared (inflected) matrix I", "U": "own (unique) matrix U"}
_SNAPSHOT = re.compile(r"^round-(\d{6,})\.safetensors$")
_DRAWN = 3  # clients whose matrices are drawn
_COMPARED = 12  # clients compared with each other
_SHOWN = 20  # clients whose coefficients are shown
SYMBOLS = {"alpha": "α", "beta": "β", "gamma": "γ"}
MEANINGS = {"alpha": "body's own graph A", "beta": "shared I", "gamma": "own U"}


def topology(study: Study) -> Finding:
    """I and U of clients, early and late in training, and how alike they are between clients."""
    method = study.recipe.run.method
    snapshots = read_snapshots(study.folder / "snapshots")
    if not any(graphs[name] for graphs in snapshots.values() for name in MATRICES):
        why = "its snapshots hold none" if snapshots else "it kept no snapshots of them"
        raise NotApplicable(f"{title_of(method)} has no matrices I and U to look at here: {why}")
    names = {client for graphs in snapshots.values() for own in graphs.values() for client in own}
    everyone = sorted(names, key=natural_key)
    clients = everyone[:_COMPARED]
    layouts = {client: _layout(study, client) for client in clients}
    alike: dict[str, dict[int, Tensor]] = {name: {} for name in MATRICES}
    members: dict[int, list[str]] = {}
    for round, graphs in snapshots.items():
        for name in MATRICES:
            own = {client: graphs[name][client] for client in clients if client in graphs[name]}
            if own:
                members[round] = list(own)
                alike[name][round] = similarities(own, layouts)
    first, last = min(snapshots), max(snapshots)
    table: list[tuple[str, ...]] = []
    for name, by_round in alike.items():
        for round in sorted({first, last} & by_round.keys()):
            table.append((name, str(round), *map(number, _range(by_round[round]) or (None, None, None))))
    notes = [
        "I and U are taken from each client's network after its local training of the round. Similarity is the "
        "cosine between two clients' matrices over the joints that both skeletons have, by name. Pictures show the "
        "sum over the graph's partitions; each row has its own scale."
    ]
    if len(everyone) > _COMPARED:
        notes.append(f"Compared: the first {_COMPARED} of {len(everyone)} clients by name.")
    values: dict[str, Any] = {
        name: [
            {"round": round, "clients": members[round], "similarity": matrix} for round, matrix in by_round.items()
        ]
        for name, by_round in alike.items()
    }
    return Finding(
        title="Learned graphs of clients",
        caption=f"{title_of(method)}: I and U of clients after round {first} and round {last}, and how alike they "
        "are between clients.",
        columns=("matrix", "round", "mean similarity", "least alike pair", "most alike pair"),
        rows=table,
        values=values,
        figure=_draw_matrices(snapshots, alike, members, clients[:_DRAWN]),
        notes=notes,
    )


def read_snapshots(folder: Path) -> dict[int, Graphs]:
    """I and U by round, from files with tensors named `<client>|topology.I`; none where there is no folder."""
    snapshots: dict[int, Graphs] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = _SNAPSHOT.match(path.name)
        if not match:
            continue
        try:
            check_size(path, sys.maxsize)
            tensors = load_file(path)
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise ValueError(f"{path} cannot be read: {error}; remove it, and analyse without it") from None
        graphs: Graphs = {name: {} for name in MATRICES}
        for key, tensor in tensors.items():
            client, _, name = key.rpartition("|")
            name = name.removeprefix("topology.")
            if name in graphs and bool(tensor.isfinite().all()):
                graphs[name][client] = tensor
        snapshots[int(match[1])] = graphs
    return dict(sorted(snapshots.items()))


def _layout(study: Study, client: str) -> Layout:
    layout = study.clients[client].info.layout if client in study.clients else None
    if layout is None:
        raise NotApplicable(f"client {client!r} of the snapshots has no skeleton layout in the recipe's data")
    return layout


def _range(matrix: Tensor) -> tuple[float, float, float] | None:
    """Mean, least and largest similarity of two clients; None where none is known."""
    pairs = between(matrix)
    return (float(pairs.mean()), float(pairs.min()), float(pairs.max())) if len(pairs) else None


def _draw_matrices(
    snapshots: Mapping[int, Graphs],
    alike: Mapping[str, Mapping[int, Tensor]],
    members: Mapping[int, list[str]],
    drawn: list[str],
) -> Figure:
    """Rows: I early and late, U early and late; columns: clients, then the similarities between all."""
    first, last = min(snapshots), max(snapshots)
    rows = [(name, round) for name in MATRICES for round in ([first] if first == last else [first, last])]
    columns = len(drawn) + 1
    figure = canvas(2.55 * columns + 0.9, 2.5 * len(rows) + 2.9)
    whole = figure.add_gridspec(2, 1, height_ratios=[2.5 * len(rows), 2.4])
    grid = whole[0].subgridspec(len(rows), columns)
    for row, (name, round) in enumerate(rows):
        sums = {c: snapshots[round][name][c].sum(0) for c in drawn if c in snapshots[round][name]}
        most = max((float(graph.abs().max()) for graph in sums.values()), default=0.0) or 1.0
        image, panels = None, []
        for column, client in enumerate(drawn):
            axes = figure.add_subplot(grid[row, column])
            if client in sums:
                image = heat(axes, sums[client], low=-most, high=most, colours="RdBu_r")
            else:
                axes.set_axis_off()
            if row == 0:
                axes.set_title(label(client, 22), loc="left", fontsize=9)
            if column == 0:
                axes.set_ylabel(f"{name}, round {round}", color="black", fontweight="bold")
            if row == len(rows) - 1:
                axes.set_xlabel("to joint" if column else "from joint (down) to joint (across)")
            panels.append(axes)
        if image is not None:
            scale(figure, image, panels, "", shrink=0.8, aspect=18, pad=0.01).ax.tick_params(labelsize=7)
        axes = figure.add_subplot(grid[row, -1])
        if round in alike[name]:
            matrix = alike[name][round]
            names = [str(i + 1) for i in range(len(matrix))]
            few = len(matrix) <= 6
            image = heat(axes, matrix, low=-1, high=1, colours="PuOr_r", names=names, digits=2 if few else None)
            if not few:
                scale(figure, image, [axes], "", shrink=0.8, aspect=18, pad=0.01).ax.tick_params(labelsize=7)
            for tick in axes.get_xticklabels():
                tick.set_rotation(0)
        else:
            axes.set_axis_off()
        if row == 0:
            axes.set_title("similarity of clients", loc="left", fontsize=9)
    axes = figure.add_subplot(whole[1])
    floor = 0.0
    for place, (name, by_round) in enumerate(alike.items()):
        ranges = {round: known for round, matrix in by_round.items() if (known := _range(matrix)) is not None}
        mean, low, high = ([known[i] for known in ranges.values()] for i in range(3))
        axes.plot(list(ranges), mean, marker=MARKS[place], color=COLOURS[place], label=MATRICES[name])
        axes.fill_between(list(ranges), low, high, color=COLOURS[place], alpha=0.15, linewidth=0)
        floor = min([floor, *low])
    axes.set_ylim(floor - 0.05, 1.05)
    whole_rounds(axes)
    axes.set_ylabel("cosine similarity")
    axes.set_title("Between clients: mean over pairs, and the range", loc="left")
    axes.grid(axis="y")
    axes.legend(loc="best")
    everyone = ", ".join(f"{i + 1}\u00a0{label(c, 22)}" for i, c in enumerate(members[last]))
    axes.set_xlabel("round\n" + textwrap.fill(f"Clients by number: {everyone}", 110, break_on_hyphens=False))
    return figure


def coefficients(study: Study) -> Finding:
    """How far alpha, beta and gamma of each client's graph moved from 1."""
    method = study.recipe.run.method
    locals_ = study.states[method].locals.committed
    by_client = {
        client: {name: float(tree[f"topology.{name}"]) for name in SYMBOLS if f"topology.{name}" in tree}
        for client, tree in sorted(locals_.items(), key=lambda item: natural_key(item[0]))
    }
    by_client = {client: own for client, own in by_client.items() if own}
    if not by_client:
        raise NotApplicable(f"{title_of(method)} learned no alpha, beta and gamma here")
    moves = drift(by_client)
    shown = dict(list(by_client.items())[:_SHOWN])
    table = [(client, *(number(own[name]) for name in SYMBOLS)) for client, own in shown.items()]
    ordered = {name: sorted((own[name] for own in moves.values()), key=abs) for name in SYMBOLS}
    table.append(("largest Δ", *(f"{ordered[name][-1]:+.3f}" for name in SYMBOLS)))
    table.append(("smallest Δ", *(f"{ordered[name][0]:+.3f}" for name in SYMBOLS)))
    return Finding(
        title="Coefficients of the learned graph",
        caption=f"{title_of(method)}: each client's α (body's own graph A), β (shared matrix I) and γ (its own "
        "matrix U), which all start at 1.",
        columns=("client", *SYMBOLS.values()),
        rows=table,
        values={"coefficients": by_client, "drift": moves},
        figure=_draw_coefficients(shown),
        notes=(
            "Δ is the value less 1, where it started; largest and smallest are over all clients, and by size, "
            "whatever the sign.",
            *(
                (f"Shown: the first {_SHOWN} of {len(by_client)} clients by name.",)
                if len(by_client) > _SHOWN
                else ()
            ),
        ),
    )


def _draw_coefficients(by_client: Mapping[str, Mapping[str, float]]) -> Figure:
    figure = canvas(7.5, 1.5 + 0.42 * len(by_client))
    axes = figure.add_subplot()
    axes.axvline(1, color=SOFT, linewidth=1, zorder=1)
    for row, own in enumerate(by_client.values()):
        for place, (name, symbol) in enumerate(SYMBOLS.items()):
            y = row + 0.22 * (place - 1)
            shade = COLOURS[place]
            axes.plot([1, own[name]], [y, y], color=shade, linewidth=1.5, zorder=2)
            text = f"{symbol} ({MEANINGS[name]})" if row == 0 else None
            axes.plot(own[name], y, MARKS[place], color=shade, markersize=6, label=text, linestyle="none", zorder=3)
    axes.set_yticks(range(len(by_client)), [label(client, 28) for client in by_client])
    axes.set_ylim(len(by_client) - 0.5, -0.5)
    axes.margins(x=0.1)
    axes.set_xlabel("coefficient (no unit; the line at 1 is where it started)")
    axes.grid(axis="x", color=RULE)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=3)
    return figure
