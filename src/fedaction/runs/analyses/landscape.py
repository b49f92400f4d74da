"""The loss around the trained weights, method beside baselines (FSAR, Fig. 10)."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from fedaction.evaluation.landscape import filter_direction, loss_surface, shape_of
from fedaction.federation.tree import Tree
from fedaction.runs.analyses.draw import COLOURS, canvas, scale
from fedaction.runs.analyses.finding import Finding, Table, number, points, significant
from fedaction.runs.analyses.inputs import subset
from fedaction.runs.analyses.study import NotApplicable, Study, Trained, plain, some
from fedaction.runs.report.page import spelled

RADIUS, STEPS = 1.0, 17
_METHODS, _CLIENTS, _SAMPLES = 3, 5, 16


def landscape(study: Study, say: Callable[[str], None]) -> Finding:
    """See the module."""
    methods, notes = study.first(_METHODS)
    found: dict[str, dict[str, Tensor]] = {}  # by method and client
    for method in methods:
        trained = study.trained(method)
        able, few = some({k: c for k, c in trained.clients.items() if len(c.train)}, _CLIENTS)
        notes += tuple(note for note in few if note not in notes)
        surfaces = trained.each(partial(_surface, trained), able, lambda what: say(f"landscape: {what}"))
        found[method] = dict(zip(able, surfaces, strict=True))
    means = {method: torch.stack(list(surfaces.values())).mean(0) for method, surfaces in found.items()}
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for method, surfaces in found.items():
        shape = shape_of(means[method], RADIUS)
        rows.append(
            (
                spelled(method),
                number(shape.centre),
                significant(shape.curvature),
                points(shape.concave),
                points(shape.flat),
            )
        )
        values[method] = {
            "mean": {**asdict(shape), "surface": means[method]},
            "clients": {client: asdict(shape_of(surface, RADIUS)) for client, surface in surfaces.items()},
        }
    how = (
        f"Cross-entropy of the predictions for up to {_SAMPLES} of each client's training sequences, without "
        "augmentation, in evaluation mode; the mean over clients. Each client's own network is moved along two "
        "random directions, filter by filter as long as the weights (Li et al.); biases, normalisation and "
        "statistics stay. Curvature: mean absolute second difference over the squared step. Concave: share of second "
        "differences below zero, the bumpiness alone. Flat: share of the square less than one nat above the centre."
    )
    return Finding(
        title="Loss landscape",
        caption="Training loss on a plane through the trained weights (the cross), mean over clients; 1 unit is the "
        f"length of the weights themselves. {study.words}",
        table=Table(("method", "centre, nats", "curvature, nats/unit²", "concave, %", "flat, %"), tuple(rows)),
        values={"radius": RADIUS, "steps": STEPS, "methods": plain(values)},
        figure=_picture(means),
        notes=(how, *notes),
    )


def _surface(trained: Trained, client: str) -> Tensor:
    data = trained.clients[client]
    x, y = (t.to(trained.device) for t in subset(data.train, _SAMPLES, trained.seed, "landscape samples", client))
    net, leaves = trained.net(client), trained.method.plan(data.info).leaves
    weights = {name: tensor.detach() for name, tensor in net.tensors.items()}
    moved = [name for name, leaf in leaves.items() if leaf.kind == "parameter"]
    one, other = (filter_direction(weights, moved, trained.seed, axis) for axis in (0, 1))
    if not one:
        raise NotApplicable(f"the network of {trained.method.name} has no filters to move")

    @torch.no_grad()
    def loss(tree: Tree) -> float:
        return float(F.cross_entropy(trained.method.predict(net.replaced(tree), x).double(), y))

    return loss_surface(loss, weights, one, other, RADIUS, STEPS)


def _picture(means: dict[str, Tensor]) -> Figure:
    """Contours on one scale for all methods, and the loss along both axes."""
    figure = canvas(3.7 * len(means) + 1.2, 6.6)
    grid = figure.add_gridspec(2, len(means), height_ratios=[3.7, 2.6])
    places = torch.linspace(-RADIUS, RADIUS, STEPS).tolist()
    known = torch.cat([surface[surface.isfinite()] for surface in means.values()])
    low, high = max(float(known.min()), 1e-3), float(known.max())
    # The loss spans orders of magnitude: levels are equal steps of its logarithm.
    levels = torch.logspace(math.log10(low), math.log10(max(high, 1.01 * low)), 15).tolist()
    levels[0] *= 0.999
    panels: list[Any] = []
    drawn = None
    for column, (method, surface) in enumerate(means.items()):
        axes = figure.add_subplot(grid[0, column])
        height = surface.clamp(min=low).nan_to_num(nan=high, posinf=high).numpy()
        drawn = axes.contourf(places, places, height.T, levels=levels, cmap="viridis", norm="log", extend="both")
        lines = axes.contour(places, places, height.T, levels=levels, colors="white", linewidths=0.5, alpha=0.7)
        axes.clabel(lines, levels[1::3], fmt=_short, fontsize=7)
        axes.plot(0, 0, "+", color="white", markersize=9, markeredgewidth=1.8)
        axes.set_title(spelled(method), loc="left")
        axes.set_aspect("equal")
        axes.set_xticks([-RADIUS, 0, RADIUS])
        axes.set_yticks([-RADIUS, 0, RADIUS])
        axes.set_xlabel("first direction")
        if column == 0:
            axes.set_ylabel("second direction")
        else:
            axes.tick_params(labelleft=False)
        panels.append(axes)
    if drawn is not None:
        words = "cross-entropy, nats"
        scale(figure, drawn, panels, words, shrink=0.9, ticks=levels[1::3], format=_short).minorticks_off()
    axes = figure.add_subplot(grid[1, :])
    middle = STEPS // 2
    for place, (method, surface) in enumerate(means.items()):
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(places, surface[:, middle].tolist(), color=colour, label=f"{spelled(method)}, first direction")
        axes.plot(places, surface[middle].tolist(), "--", color=colour, label=f"{spelled(method)}, second direction")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(_short)
    axes.yaxis.set_minor_formatter(_short)
    axes.set_xlabel("distance from the trained weights, in their own length")
    axes.set_ylabel("cross-entropy, nats")
    axes.set_title("Along the two directions", loc="left")
    axes.grid(axis="y", which="both")
    axes.legend(ncols=len(means), fontsize=8)
    return figure


def _short(value: float, _: object = None) -> str:
    return f"{value:.2g}"
