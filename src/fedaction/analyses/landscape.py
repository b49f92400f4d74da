"""The loss around the trained weights, method beside baselines (FSAR, Fig. 10; FedVSSL, Fig. 2).

The loss is the cross-entropy of predictions or, of methods that learn without labels, that of their own task.
"""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from fedaction.analyses.draw import canvas, colour, scale
from fedaction.analyses.finding import Finding, number, points, significant
from fedaction.analyses.inputs import subset
from fedaction.analyses.study import NotApplicable, Study, Trained, some
from fedaction.data.client import ClientData
from fedaction.engines.base import Applied
from fedaction.evaluation.landscape import filter_axes, filter_direction, loss_surface, shape_of
from fedaction.federation.seeds import generator
from fedaction.federation.tree import Tree
from fedaction.methods import title_of
from fedaction.methods.base import Batch
from fedaction.methods.central import EVERYONE

RADIUS, STEPS = 1.0, 17
_METHODS, _CLIENTS, _SAMPLES = 3, 5, 16


def landscape(study: Study) -> Finding:
    """See the module."""
    methods, notes = study.first(_METHODS)
    compared = {method: study.trained(method) for method in methods}
    task = compared[methods[0]].method.task
    for method in [m for m, trained in compared.items() if (trained.method.task is None) is not (task is None)]:
        notes += (f"Left out: {title_of(method)}, which has another loss.",)
        del compared[method]
    surfaces: dict[str, dict[str, Tensor]] = {}  # by method and client
    together = _together(study, compared) if task is not None else {}
    for method, trained in compared.items():
        data = together or {k: c for k, c in trained.clients.items() if len(c.train) and k in _taught(trained)}
        able, few = some(data, _CLIENTS)
        if not able:
            raise NotApplicable(f"no client with training samples has taken part in {title_of(method)}")
        notes += tuple(note for note in few if note not in notes)
        surfaces[method] = dict(zip(able, trained.each(partial(_surface, trained, able), able), strict=True))
    unit, loss = ("nats", "cross-entropy, nats") if task is None else ("loss", f"loss of {type(task).__name__}")
    means = {method: torch.stack(list(own.values())).mean(0) for method, own in surfaces.items()}
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for method, own in surfaces.items():
        shape = shape_of(means[method], RADIUS)
        shares = points(shape.concave), points(shape.flat)
        rows.append((title_of(method), number(shape.centre), significant(shape.curvature), *shares))
        values[method] = {
            "mean": {**asdict(shape), "surface": means[method]},
            "clients": {client: asdict(shape_of(surface, RADIUS)) for client, surface in own.items()},
        }
    what = (
        f"Cross-entropy of the predictions for up to {_SAMPLES} of each client's training sequences, without "
        "augmentation"
        if task is None
        else f"The task's own loss ({type(task).__name__}, in its own unit) on up to {_SAMPLES} of each client's "
        "training recordings, with what the task draws the same at every point and for every method, and with the "
        "client's own head where heads stay with clients"
    )
    how = (
        f"{what}, in evaluation mode; the mean over clients that took part. Each client's own network is moved along "
        "two random directions, filter by filter as long as the weights (Li et al.); biases, normalisation and "
        "statistics stay. Curvature: mean absolute second difference over the squared step. Concave: share of second "
        f"differences below zero, the bumpiness alone. Flat: share of the square less than 1 ({unit}) above the "
        "centre."
    )
    return Finding(
        title="Loss landscape",
        caption="Training loss on a plane through the trained weights (the cross), mean over clients; 1 unit is the "
        "length of the weights themselves.",
        columns=("method", f"centre, {unit}", f"curvature, {unit}/unit²", "concave, %", "flat, %"),
        rows=rows,
        values={"radius": RADIUS, "steps": STEPS, "loss": loss, "methods": values},
        figure=_draw(means, loss),
        notes=(how, *notes),
    )


def _taught(trained: Trained) -> set[str]:
    """Clients that have taken part; where some tensors stay with clients, others still have the initial ones."""
    return {*trained.state.locals.committed} or {*trained.state.federation.visits}


def _together(study: Study, compared: Mapping[str, Trained]) -> dict[str, ClientData]:
    """The clients that every method has learned from: all methods are shown the same recordings."""
    taught = [_taught(trained) for trained in compared.values()]
    together = {
        name: client
        for name, client in study.clients.items()
        if len(client.train) and all(name in names or EVERYONE in names for names in taught)
    }
    if not together:
        raise NotApplicable(f"no client has taken part in all of {', '.join(map(title_of, compared))}")
    return together


def _surface(trained: Trained, clients: Mapping[str, ClientData], client: str) -> Tensor:
    net = trained.net(client)
    loss_of = _loss(trained, clients[client], net)
    weights = {name: tensor.detach() for name, tensor in net.tensors.items()}
    if trained.method.task is not None:
        weights |= trained.method.begin(weights)  # which of two heads a client would train
    one, other = (filter_direction(weights, filter_axes(net.module), trained.seed, axis) for axis in (0, 1))
    if not one:
        raise NotApplicable(f"the network of {trained.method.title} has no filters to move")

    return loss_surface(loss_of, weights, one, other, RADIUS, STEPS)


def _loss(trained: Trained, client: ClientData, net: Applied) -> Callable[[Tree], float]:
    """The loss of a client's network by its tensors, on samples that do not change."""
    method, who = trained.method, client.info.id
    x, y = (t.to(trained.device) for t in subset(client.train, _SAMPLES, trained.seed, "landscape samples", who))
    if method.task is not None:
        drawn = method.task.draw(len(x), tuple(x.shape[1:]), generator(trained.seed, "landscape task", who))
        x, y = method.task.apply(x, drawn)

    @torch.no_grad()
    def loss(tree: Tree) -> float:
        moved = net.with_tensors(tree)
        if method.task is None:
            return float(F.cross_entropy(moved(x).double(), y))
        return float(method.loss(moved, moved, Batch(x, y))[0])

    return loss


def _draw(means: dict[str, Tensor], words: str) -> Figure:
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
        axes.set_title(title_of(method), loc="left")
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
        scale(figure, drawn, panels, words, shrink=0.9, ticks=levels[1::3], format=_short).minorticks_off()
    axes = figure.add_subplot(grid[1, :])
    middle = STEPS // 2
    for place, (method, surface) in enumerate(means.items()):
        shade = colour(place)
        axes.plot(places, surface[:, middle].tolist(), color=shade, label=f"{title_of(method)}, first direction")
        axes.plot(places, surface[middle].tolist(), "--", color=shade, label=f"{title_of(method)}, second direction")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(_short)
    axes.yaxis.set_minor_formatter(_short)
    axes.set(xlabel="distance from the trained weights, in their own length", ylabel=words)
    axes.set_title("Along the two directions", loc="left")
    axes.grid(axis="y", which="both")
    axes.legend(ncols=len(means), fontsize=8)
    return figure


def _short(value: float, _: object = None) -> str:
    return f"{value:.2g}"
