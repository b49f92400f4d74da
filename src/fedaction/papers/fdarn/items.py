"""Tables 1 to 4 and Figures 3 and 4 of FDARN (Yang et al., AAAI 2022), values as printed.

Figures 1 and 2 are drawings of the task and of the network. Of Figures 3 and 4 the text prints no numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from typing import Any

from fedaction.papers.item import Column, ItemRow, make_item

MODALITIES: dict[str, tuple[str, ...]] = {
    "Epic-Kitchens": ("video", "flow", "audio", "sensor"),
    "Multimodal-EA": ("video", "sensor"),
    "Stanford-ECM": ("video", "sensor"),
    "Ego-Exo-AR": ("image", "sensor"),
}
"""The paper's datasets, each a federation of its own, and their modalities."""

COLUMNS = tuple(f"{dataset} {modality}" for dataset, modalities in MODALITIES.items() for modality in modalities)
"""Columns of Table 1: a modality of a dataset, the mean over its clients."""

_NAMES = ["SingleSet", "FedAvg", "pFedMe", "FedProx", "PerAvg", "LG-FedAvg", "FedRep", "FedBN", "Meta-HAR", "FDARN"]
_METHODS = ["local", "fedavg", "pfedme", "fedprox", "perfedavg", "lgfedavg", "fedrep", "fedbn", "metahar", "fdarn"]
METHODS = dict(zip(_NAMES, _METHODS, strict=True))
"""What the paper calls a method, and what it is called here."""
_SHADES = "#8a8f98 #3b6fb6 #5fb3b3 #3f9b57 #a3b13b #d9a441 #e08a2b #c2553f #7a4fa3 #111111"
_COLOURS = dict(zip(METHODS, _SHADES.split(), strict=True))

_TABLE_1 = {
    "SingleSet": "29.91(0.3) 40.07(0.6) 44.80(0.3) 30.12(0.4) 53.60(2.0) "
    "32.80(1.6) 49.24(1.8) 27.79(0.9) 34.69(0.9) 31.34(0.8)",
    "FedAvg": "30.57(0.2) 36.76(0.5) 42.73(0.4) 28.90(0.5) 57.60(0.8) "
    "31.20(0.9) 57.14(1.1) 29.74(1.2) 33.93(0.7) 32.96(0.9)",
    "pFedMe": "26.47(0.5) 31.73(0.9) 36.03(0.6) 26.97(0.4) 48.80(2.4) "
    "28.40(2.0) 53.61(1.8) 25.49(1.4) 30.90(1.1) 28.71(1.2)",
    "FedProx": "32.16(0.5) 34.64(0.7) 41.37(0.5) 27.46(0.5) 57.60(0.8) "
    "26.80(1.7) 54.37(1.3) 31.74(1.1) 34.24(1.0) 31.76(0.8)",
    "PerAvg": "30.95(0.4) 40.59(0.4) 42.67(0.3) 29.61(0.3) 62.40(0.8) "
    "36.40(0.8) 60.86(1.0) 30.18(1.6) 37.53(0.8) 34.10(0.8)",
    "LG-FedAvg": "30.68(0.5) 41.25(0.5) 40.25(0.5) 30.51(0.6) 56.40(1.0) "
    "31.60(1.7) 55.12(1.4) 29.87(1.4) 35.09(0.9) 32.23(0.8)",
    "FedRep": "31.93(0.4) 40.89(0.5) 43.12(0.5) 33.01(0.6) 64.80(1.7) "
    "40.00(1.3) 61.09(1.7) 36.27(1.0) 40.02(0.6) 36.15(0.7)",
    "FedBN": "32.18(0.4) 38.98(0.4) 44.95(0.2) 32.87(0.4) 64.00(0.0) "
    "42.00(1.9) 59.24(1.3) 33.37(0.8) 40.34(0.5) 35.37(0.7)",
    "Meta-HAR": "31.27(0.3) 39.90(0.6) 45.26(0.4) 34.62(0.5) 57.60(1.7) "
    "42.00(1.3) 56.61(1.3) 33.49(1.6) 36.64(0.8) 37.23(0.8)",
    "FDARN": "34.18(0.5) 43.57(0.4) 47.52(0.4) 33.90(0.5) 68.40(0.8) "
    "42.80(1.7) 65.62(1.8) 38.49(1.0) 42.38(0.6) 38.31(0.7)",
}
_TABLE_2 = {
    "SingleSet": "22.35(0.9) 37.04(1.7) 39.91(0.4) 25.14(0.3)",
    "FedAvg": "23.37(0.4) 41.50(1.3) 39.26(0.4) 25.93(0.2)",
    "pFedMe": "22.53(0.8) 36.20(1.1) 37.05(0.5) 24.92(0.6)",
    "FedProx": "23.73(0.3) 39.27(0.6) 39.86(0.1) 26.18(0.4)",
    "PerAvg": "24.39(0.3) 42.88(1.2) 40.03(0.2) 27.26(0.4)",
    "LG-FedAvg": "21.76(0.4) 40.12(0.7) 36.54(0.3) 25.91(0.5)",
    "FedRep": "24.56(0.2) 42.09(0.6) 37.63(0.3) 29.22(0.3)",
    "FedBN": "21.55(0.5) 41.16(0.6) 38.71(0.4) 28.71(0.3)",
    "Meta-HAR": "22.47(0.4) 41.96(0.8) 38.27(0.6) 27.74(0.3)",
    "FDARN": "26.86(0.2) 43.23(0.8) 40.60(0.4) 31.01(0.3)",
}
_FDARN = "39.80(0.5) 55.60(1.2) 52.05(1.4) 40.35(0.7)"
_WITHOUT_SEPARATION = "37.24(0.2) 50.80(1.1) 50.21(0.3) 38.38(0.6)"
_TABLE_3 = {  # label: fdarn_without, values
    "w/o psi_sc": ("psi_sc_at_test", "33.76(0.7) 44.60(2.0) 42.86(1.4) 35.43(1.2)"),
    "w/o psi_pc": ("psi_pc_at_test", "39.12(0.4) 54.00(0.6) 50.47(0.4) 39.17(0.4)"),
    "w/o (phi_a, psi_sc)": ("phi_a", "35.96(0.6) 49.00(0.6) 48.13(0.3) 37.27(0.5)"),
    "w/o (phi_e, psi_pc)": ("phi_e", "37.77(0.5) 53.20(0.4) 49.24(0.5) 37.86(0.7)"),
    "w/o psi_md": ("psi_md", "36.10(0.2) 51.20(0.4) 47.51(0.3) 36.12(0.3)"),
    "w/o L_sep": ("L_sep", _WITHOUT_SEPARATION),
    "w/o L_sp": ("L_sp", "38.57(0.3) 54.80(0.4) 51.05(0.5) 39.47(0.4)"),
}

_GROUPS = tuple(Column(label, position, of="group") for position, label in enumerate(COLUMNS))
_DATASETS = tuple(
    Column(dataset, COLUMNS.index(f"{dataset} {first}"), of="all") for dataset, (first, *_) in MODALITIES.items()
)


def _row(label: str, method: str, printed: str, **overrides: Any) -> ItemRow:
    """A row of a table; `printed` is its values as "mean(std)", "-" where the text is damaged."""
    pairs = [cell.strip(")").split("(") if cell != "-" else None for cell in printed.split()]
    means, spreads = ([float(pair[part]) if pair else None for pair in pairs] for part in (0, 1))
    return ItemRow((label,), method, overrides, tuple(means), _COLOURS.get(label, ""), tuple(spreads))


def _methods(printed: Mapping[str, str]) -> tuple[ItemRow, ...]:
    """SingleSet trains for 300 epochs: one in each of the 300 rounds."""
    own: dict[str, dict[str, Any]] = {"SingleSet": {"local_epochs": 1}}
    return tuple(_row(label, METHODS[label], values, **own.get(label, {})) for label, values in printed.items())


def _averages(row: ItemRow) -> tuple[float, ...]:
    """Of each dataset: the mean over its modalities, which have as many clients each."""
    datasets = [
        [value for column, value in zip(COLUMNS, row.paper, strict=True) if column.startswith(dataset) and value]
        for dataset in MODALITIES
    ]
    return tuple(round(statistics.fmean(values), 2) for values in datasets)


def _epochs(row: ItemRow, epochs: int) -> ItemRow:
    """A row of Figure 4; two epochs are the default, hence the runs of Table 1."""
    keys, paper = ({}, _averages(row)) if epochs == 2 else ({"local_epochs": epochs}, (None,) * len(_DATASETS))
    return ItemRow((row.label[0], str(epochs)), row.method, keys, paper, row.colour)


_item = partial(make_item, "FDARN")
_CROSS_ENTROPY = {"fdarn_loss": "cross_entropy"}
_ONE_EPOCH = "SingleSet trains one epoch in each round, so that it has the paper's 300 after 300 rounds."
_LAST = "The paper's values are means over the modalities of its Table 1{}; it prints no numbers here."

TABLE_1 = _item(
    "table1",
    "Accuracy (%) of each modality's clients beside other federated methods",
    _GROUPS,
    _methods(_TABLE_1),
    _ONE_EPOCH,
    mean=False,
)

FDARN_ITEMS = (
    TABLE_1,
    _item(
        "table2",
        "Accuracy (%) with one client of each modality",
        _GROUPS[:4],
        _methods(_TABLE_2),
        _ONE_EPOCH,
        protocol="one_client",
        mean=False,
    ),
    _item(
        "table3",
        "Ablations: accuracy (%), mean over all clients of a dataset",
        _DATASETS,
        (
            *(_row(label, "fdarn", values, fdarn_without=key) for label, (key, values) in _TABLE_3.items()),
            _row("FDARN", "fdarn", _FDARN),
        ),
        "The last row is the run of Table 1's last.",
        "w/o psi_sc and w/o psi_pc train both classifiers and ask one, as the paper's text says; fdarn_without = "
        "psi_sc or psi_pc trains one.",
        mean=False,
    ),
    _item(
        "table4",
        "Loss of the modality discriminator: accuracy (%), mean over all clients of a dataset",
        _DATASETS,
        (
            _row("CE-Loss", "fdarn", "37.75(0.3) 53.60(0.5) 49.24(0.3) 37.26(0.5)", **_CROSS_ENTROPY),
            _row("FDARN", "fdarn", _FDARN),
            _row("CE-Loss*", "fdarn", "34.55(0.3) 47.60(0.4) 45.56(0.2) -", **_CROSS_ENTROPY, fdarn_without="L_sep"),
            _row("FDARN*", "fdarn", _WITHOUT_SEPARATION, fdarn_without="L_sep"),
        ),
        "*: without the separation loss. FDARN* is the run of Table 3's row w/o L_sep.",
        "The paper's CE-Loss* on Ego-Exo-AR is not legible in the text that was transcribed.",
        mean=False,
    ),
    _item(
        "fig3",
        "Test accuracy (%) over rounds, mean over all clients",
        _DATASETS,
        tuple(ItemRow(r.label, r.method, r.overrides, _averages(r), r.colour) for r in TABLE_1.rows),
        "Values are those of the last round.",
        _LAST.format(""),
        shows="curves",
    ),
    _item(
        "fig4",
        "Local epochs: test accuracy (%), mean over all clients",
        _DATASETS,
        # Alone, a client has no rounds between which epochs could be counted.
        tuple(_epochs(r, epochs) for r in TABLE_1.rows if r.method != "local" for epochs in (1, 2, 3, 4)),
        "With two epochs the runs are those of Table 1.",
        _LAST.format(", for two epochs"),
        shows="sweep",
        heads=("method", "local epochs"),
    ),
)
