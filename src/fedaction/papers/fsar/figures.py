"""Figures 2, 5, 7, 8, 9 and 10 of FSAR (Guo et al., ICCV 2023) and Figures 1 to 7 of its supplement.

Figures 1, 3, 4 and 6 of the paper are drawings of the method, not of results. Of the printed figures only a few
numbers are in the text; where a curve ends in a value that a table prints, that value is given.
"""

from __future__ import annotations

from fedaction.papers.fsar.tables import (
    DATASETS,
    HEADLINE,
    TABLE_3,
    VANILLA,
    WITHOUT_ATS,
    WITHOUT_MKD,
    matrices,
    over_five,
)
from fedaction.papers.item import Column, Item, ItemRow

_LAST = "Values are those of the last round; the paper's are the ones its {} prints for the same models."
_BLUE, _PURPLE, _GREEN, _ORANGE = "#3b6fb6", "#7a4fa3", "#3f9b57", "#e08a2b"


def _columns(*clients: int) -> tuple[Column, ...]:
    return tuple(Column(DATASETS[client], client) for client in clients)


def _of(values: tuple[float | None, ...], *clients: int) -> tuple[float | None, ...]:
    return tuple(values[client] for client in clients)


FIG_2 = over_five(
    "fsar/fig2",
    "FSAR, Figure 2. Test accuracy (%) over rounds: plain averaging beside FSAR",
    "figure",
    shows="curves",
    rows=(
        ItemRow(("Vanilla FSAR",), "fedavg", {}, VANILLA, _BLUE),
        ItemRow(("FSAR",), "fsar", {}, HEADLINE, _PURPLE),
    ),
    notes=(_LAST.format("Table 1"),),
)

FIG_5 = over_five(
    "fsar/fig5",
    "FSAR, Figure 5. CKA similarity between clients' features, block by block",
    "figure",
    shows="cka",
    heads=("block",),
    digits=(3, 3),
    rows=(ItemRow(("Vanilla FSAR",), "fedavg"),),
    notes=("Smaller values in deeper blocks are the paper's finding; it prints no numbers.",),
)

FIG_7 = Item(
    "fsar/fig7",
    "FSAR, Figure 7. Test accuracy (%) over rounds: what ATS and MKD add",
    "figure",
    shows="curves",
    columns=_columns(1, 3, 4),
    rows=(
        ItemRow(("FSAR",), "fsar", {}, _of(HEADLINE, 1, 3, 4), _PURPLE),
        ItemRow(("FSAR w/o MKD",), "fsar", {"mkd_blocks": 0}, _of(WITHOUT_MKD, 1, 3, 4), _GREEN),
        ItemRow(("FSAR w/o ATS",), "fsar", {"ats": False}, _of(WITHOUT_ATS, 1, 3, 4), _ORANGE),
    ),
    notes=(_LAST.format("Table 1"),),
)

FIG_8 = Item(
    "fsar/fig8",
    "FSAR, Figure 8. IM and UM of two clients at the first and the last round",
    "figure",
    shows="topology",
    heads=("matrix", "round"),
    digits=(3, 3),
    matrix="IU",
    columns=_columns(0, 2),
    rows=(ItemRow(("FSAR",), "fsar"),),
)

_PAIRS = ((0, 4), (0, 2))
FIG_9 = Item(
    "fsar/fig9",
    "FSAR, Figure 9. Number b of blocks that are aligned, in two federations of two clients: test accuracy (%)",
    "figure",
    heads=("b",),
    digits=(1, 1),
    columns=tuple(
        Column(
            f"{DATASETS[client]} (with {DATASETS[other]})",
            client,
            (first, second),
            federation=f"{DATASETS[first]} + {DATASETS[second]}",
        )
        for first, second in _PAIRS
        for client, other in ((first, second), (second, first))
    ),
    rows=(
        ItemRow(("1",), "fsar", {"mkd_blocks": 1}, (None, None, None, None), "#b9a5d0"),
        ItemRow(("2",), "fsar", {"mkd_blocks": 2}, (None, 94.3, None, 90.8), _PURPLE),
        ItemRow(("3",), "fsar", {"mkd_blocks": 3}, (None, None, None, None), "#4a2d6b"),
    ),
    notes=("Of the paper's values, two are in its text; the others are not legible in what was transcribed.",),
)

FIG_10 = over_five(
    "fsar/fig10",
    "FSAR, Figure 10. Loss landscape",
    "figure",
    shows="landscape",
    digits=(3, 3),
    rows=(ItemRow(("Vanilla FSAR",), "fedavg", {}, (), _BLUE), ItemRow(("FSAR",), "fsar", {}, (), _PURPLE)),
)

S_FIG_1 = Item(
    "fsar/s-fig1",
    "FSAR supplement, Figure 1. Test accuracy (%) over rounds: what IM and UM add",
    "figure",
    shows="curves",
    columns=_columns(2, 0),
    rows=tuple(
        ItemRow((label,), row.method, row.overrides, _of(tuple(row.paper), 2, 0), colour)
        for label, row, colour in zip(
            ("A", "A + IM", "A + UM", "A + IM + UM"), TABLE_3.rows, (_BLUE, _GREEN, _ORANGE, _PURPLE), strict=False
        )
    ),
    notes=("The runs are those of Table 3.", _LAST.format("Table 3")),
)

S_FIG_2 = Item(
    "fsar/s-fig2",
    "FSAR supplement, Figure 2. Distribution of output probabilities on a dataset and on its neighbour",
    "figure",
    shows="epsilon",
    digits=(2, 1),
    columns=_columns(2),
    rows=(
        ItemRow(("FSAR",), "fsar", {}, (0.1,), _PURPLE),
        ItemRow(("centralised",), "central", {}, (0.7,), _BLUE),
    ),
    notes=(
        "An empirical statistic of one pair of datasets and one model: no mechanism adds noise, so this is not "
        "differential privacy and promises none.",
    ),
)

S_FIG_3 = over_five(
    "fsar/s-fig3",
    "FSAR supplement, Figure 3. Local epochs K: test accuracy (%)",
    "figure",
    heads=("K",),
    rows=(
        ItemRow(("1",), "fsar", {}, HEADLINE, _PURPLE),
        ItemRow(("2",), "fsar", {"local_epochs": 2}, (None,) * 5, _GREEN),
        ItemRow(("3",), "fsar", {"local_epochs": 3}, (None,) * 5, _ORANGE),
    ),
    notes=("K = 1 is the paper's default, so its values are Table 1's; for K = 2 and 3 it prints no numbers.",),
)


def _topology(number: int, matrix: str, which: str, *coefficients: float) -> Item:
    word = {"I": "IM", "U": "UM"}[matrix]
    return Item(
        f"fsar/s-fig{number}",
        f"FSAR supplement, Figure {number}. {word} under {which}, at the first and the last round",
        "figure",
        shows="topology",
        heads=("matrix", "round"),
        digits=(3, 3),
        matrix=matrix,
        columns=_columns(0, 2, 4),
        rows=(ItemRow((which,), "fsar", matrices(*coefficients)),),  # type: ignore[arg-type]
        notes=("The run is one of Table 3's.",),
    )


FIGURES = (
    *(FIG_2, FIG_5, FIG_7, FIG_8, FIG_9, FIG_10, S_FIG_1, S_FIG_2, S_FIG_3),
    _topology(4, "I", "A + IM + UM", 1, 1, 1),
    _topology(5, "I", "A + IM", 1, 1, 0),
    _topology(6, "U", "A + IM + UM", 1, 1, 1),
    _topology(7, "U", "A + UM", 1, 0, 1),
)
