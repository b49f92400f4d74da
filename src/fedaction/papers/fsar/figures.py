"""Figures 2, 5, 7, 8, 9 and 10 of FSAR (Guo et al., ICCV 2023) and Figures 1 to 7 of its supplement.

Figures 1, 3, 4 and 6 of the paper are drawings of the method, not of results. Of the printed figures only a few
numbers are in the text; where a curve ends in a value that a table prints, that value is given.
"""

from __future__ import annotations

from typing import Any

from fedaction.papers.fsar.tables import (
    DATASETS,
    FIVE,
    HEADLINE,
    TABLE_3,
    VANILLA,
    WITHOUT_ATS,
    WITHOUT_MKD,
    fsar_item,
    matrices,
)
from fedaction.papers.item import Column, Item, ItemRow

_LAST = "Values are those of the last round; the paper's are the ones its {} prints for the same models."
_BLUE, _PURPLE, _GREEN, _ORANGE = "#3b6fb6", "#7a4fa3", "#3f9b57", "#e08a2b"
_MODELS: dict[str, tuple[str, dict[str, Any], tuple[float, ...], str]] = {
    "Vanilla FSAR": ("fedavg", {}, VANILLA, _BLUE),
    "FSAR": ("fsar", {}, HEADLINE, _PURPLE),
    "FSAR w/o MKD": ("fsar", {"mkd_blocks": 0}, WITHOUT_MKD, _GREEN),
    "FSAR w/o ATS": ("fsar", {"ats": False}, WITHOUT_ATS, _ORANGE),
}
"""By label: method, keys, values that Table 1 prints, colour."""
_TOPOLOGY: dict[str, Any] = {"shows": "topology", "heads": ("matrix", "round"), "digits": (3, 3)}


def _rows(*labels: str, columns: tuple[Column, ...] = FIVE) -> tuple[ItemRow, ...]:
    """Rows of models, with Table 1's values of the columns' clients."""
    models = {label: _MODELS[label] for label in labels}
    return tuple(
        ItemRow((label,), method, keys, tuple(values[column.client] for column in columns), colour)
        for label, (method, keys, values, colour) in models.items()
    )


def _columns(*clients: int) -> tuple[Column, ...]:
    return tuple(FIVE[client] for client in clients)


def _pair(first: int, second: int) -> tuple[Column, Column]:
    """Both clients of a federation of two."""
    federation = f"{DATASETS[first]} + {DATASETS[second]}"
    one, other = (
        Column(f"{DATASETS[client]} (with {DATASETS[beside]})", client, (first, second), federation=federation)
        for client, beside in ((first, second), (second, first))
    )
    return one, other


def _topology(number: int, matrix: str, which: str, *coefficients: float) -> Item:
    title = f"{matrix}M under {which}, at the first and the last round"
    rows = (ItemRow((which,), "fsar", matrices(*coefficients)),)  # type: ignore[arg-type]
    note = "The run is one of Table 3's."
    return fsar_item(f"s-fig{number}", title, _columns(0, 2, 4), rows, note, matrix=matrix, **_TOPOLOGY)


_SEVEN = _columns(1, 3, 4)
_NONE = (None,) * 5
_PRINTED = [row for row in TABLE_3.rows if row.paper[0] is not None]
_MATRICES = {"A": _BLUE, "A + IM": _GREEN, "A + UM": _ORANGE, "A + IM + UM": _PURPLE}

FIGURES = (
    fsar_item(
        "fig2",
        "Test accuracy (%) over rounds: plain averaging beside FSAR",
        FIVE,
        _rows("Vanilla FSAR", "FSAR"),
        _LAST.format("Table 1"),
        shows="curves",
    ),
    fsar_item(
        "fig5",
        "CKA similarity between clients' features, block by block",
        FIVE,
        (ItemRow(("Vanilla FSAR",), "fedavg"),),
        "Smaller values in deeper blocks are the paper's finding; it prints no numbers.",
        shows="cka",
        heads=("block",),
        digits=(3, 3),
    ),
    fsar_item(
        "fig7",
        "Test accuracy (%) over rounds: what ATS and MKD add",
        _SEVEN,
        _rows("FSAR", "FSAR w/o MKD", "FSAR w/o ATS", columns=_SEVEN),
        _LAST.format("Table 1"),
        shows="curves",
    ),
    fsar_item(
        "fig8",
        "IM and UM of two clients at the first and the last round",
        _columns(0, 2),
        (ItemRow(("FSAR",), "fsar"),),
        matrix="IU",
        **_TOPOLOGY,
    ),
    fsar_item(
        "fig9",
        "Number b of blocks that are aligned, in two federations of two clients: test accuracy (%)",
        (*_pair(0, 4), *_pair(0, 2)),
        (
            ItemRow(("1",), "fsar", {"mkd_blocks": 1}, _NONE[:4], "#b9a5d0"),
            ItemRow(("2",), "fsar", {"mkd_blocks": 2}, (None, 94.3, None, 90.8), _PURPLE),
            ItemRow(("3",), "fsar", {"mkd_blocks": 3}, _NONE[:4], "#4a2d6b"),
        ),
        "Of the paper's values, two are in its text; the others are not legible in what was transcribed.",
        heads=("b",),
        digits=(1, 1),
    ),
    fsar_item(
        "fig10", "Loss landscape", FIVE, _rows("Vanilla FSAR", "FSAR", columns=()), shows="landscape", digits=(3, 3)
    ),
    fsar_item(
        "s-fig1",
        "Test accuracy (%) over rounds: what IM and UM add",
        _columns(2, 0),
        tuple(
            ItemRow((label,), row.method, row.overrides, (row.paper[2], row.paper[0]), colour)
            for (label, colour), row in zip(_MATRICES.items(), _PRINTED, strict=False)
        ),
        "The runs are those of Table 3.",
        _LAST.format("Table 3"),
        shows="curves",
    ),
    fsar_item(
        "s-fig2",
        "Distribution of output probabilities on a dataset and on its neighbour",
        _columns(2),
        (ItemRow(("FSAR",), "fsar", {}, (0.1,), _PURPLE), ItemRow(("centralised",), "central", {}, (0.7,), _BLUE)),
        "An empirical statistic of one pair of datasets and one model: no mechanism adds noise, so this is not "
        "differential privacy and promises none.",
        shows="epsilon",
        digits=(2, 1),
    ),
    fsar_item(
        "s-fig3",
        "Local epochs K: test accuracy (%)",
        FIVE,
        (
            ItemRow(("1",), "fsar", {"local_epochs": 1}, HEADLINE, _PURPLE),
            ItemRow(("2",), "fsar", {"local_epochs": 2}, _NONE, _GREEN),
            ItemRow(("3",), "fsar", {"local_epochs": 3}, _NONE, _ORANGE),
        ),
        "K = 1 is the paper's default, so its values are Table 1's; for K = 2 and 3 it prints no numbers.",
        heads=("K",),
    ),
    _topology(4, "I", "A + IM + UM", 1, 1, 1),
    _topology(5, "I", "A + IM", 1, 1, 0),
    _topology(6, "U", "A + IM + UM", 1, 1, 1),
    _topology(7, "U", "A + UM", 1, 0, 1),
)
