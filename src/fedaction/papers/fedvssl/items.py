"""Tables 1 to 4 and Figures 2 to 5 of FedVSSL (Rehman et al., ECCV 2022), values as printed.

Figure 1 is a drawing of the method. Two rows that the paper does not have are the ends of the scale: a network with
random weights, and one that has learnt the pretraining set's labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedaction.papers.item import Column, Item, ItemRow, make_item
from fedaction.training.evaluate import RANDOM

CENTRAL = "centralvssl"
"""The method of rows that pretrain in one place."""
SUPERVISED = "supervised"
"""A row's method where a network has learnt from labels; the other end of the scale is `RANDOM`."""

UCF, HMDB = "UCF", "HMDB"
DOWNSTREAM = (UCF, HMDB)
"""What a network is evaluated on, by the position that columns have."""

IID, EIGHT, FOUR = "100/-", "100/8", "100/4"
"""How recordings are divided: at random, or so that a client has 8 or 4 classes."""
POOLED, SHORT = "pooled", "equal epochs"
"""All of them in one place: for the paper's 90 epochs, or as many as a federation takes (27)."""

FEDAVG: Mapping[str, Any] = {"vssl_alpha": 0.0, "vssl_beta": 0, "heads": "shared"}
LOSS: Mapping[str, Any] = {"vssl_alpha": 1.0, "vssl_beta": 0, "heads": "shared"}

_BLUE, _PURPLE, _GREEN, _ORANGE, _GREY = "#3b6fb6", "#7a4fa3", "#3f9b57", "#e08a2b", "#777777"

_METRICS = {"F-T": "finetune_video", "L-P": "probe_drawn_video", "L-P*": "probe_video", "R@1": "R@1", "R@5": "R@5"}
_RETRIEVAL = ("UCF R@1", "UCF R@5", "HMDB R@1", "HMDB R@5")
_TUNED, _PROBED, _FIXED = ("UCF F-T", "HMDB F-T"), ("UCF L-P", "HMDB L-P"), ("UCF L-P*", "HMDB L-P*")
_Printed = Sequence[float | None]
_Rows = tuple[ItemRow, ...]


def _column(label: str) -> Column:
    dataset, word = label.split()
    return Column(label, DOWNSTREAM.index(dataset), of="all", metric=_METRICS[word])


def _central(*label: str, paper: _Printed = (), colour: str = "", data: str = POOLED, **keys: Any) -> ItemRow:
    return ItemRow(label, CENTRAL, keys, paper, colour, data=data)


def _fedavg(*label: str, paper: _Printed = (), colour: str = "", data: str = EIGHT, **keys: Any) -> ItemRow:
    return ItemRow(label, "fedvssl", {**FEDAVG, **keys}, paper, colour, data=data)


def _fedvssl(alpha: float, beta: int, *paper: float | None, colour: str = "") -> ItemRow:
    keys = {"vssl_alpha": alpha, "vssl_beta": beta}
    return ItemRow((f"FedVSSL alpha={alpha:g} beta={beta}",), "fedvssl", keys, paper, colour, data=EIGHT)


_SCALE = (
    "Ends of the scale, not in the paper: random weights (fine-tuned, they are supervised training from scratch) and "
    "the same network trained on the pretraining set's labels as fine-tuning trains."
)
_CENTRAL = (
    "Centralised: momentum starts anew every epoch and the learning rate falls evenly to a hundredth; the paper "
    "keeps momentum and divides the rate by ten after each third."
)
_CLASH = (
    "For the same FedAvg run with 8 classes a client the paper prints 29.29 / 48.90 / 13.66 / 32.42 (F-T 81.95 / "
    "49.15) in Tables 1 and 2 and 32.62 / 50.41 / 16.54 / 35.29 (F-T 79.91 / 52.88) in Tables 3 and 4; here it is "
    "one run."
)
_PROBES = (
    "L-P: the paper's linear probe, on clips that are drawn and changed as for fine-tuning. L-P*, not in the paper: "
    "on features of the same clips throughout, standardised."
)
_SHORT = (
    "Recordings of fewer than 50 frames give VCOP clips that overlap; those of fewer than 61 give Speed no fourfold "
    "speed."
)


_item = partial(make_item, "FedVSSL")


def _table(place: str, title: str, columns: Sequence[str], rows: _Rows, *notes: str, **keys: Any) -> Item:
    """Tables 1 to 4; their last rows are the ends of the scale. Columns that the paper does not have are the last."""
    rows = tuple(replace(row, paper=(*row.paper, *[None] * (len(columns) - len(row.paper)))) for row in rows)
    none, named = (None,) * len(columns), "heads" in keys
    low, high = ("none",) * named, ("labels",) * named
    ends = ItemRow((*low, "random weights"), RANDOM, {}, none), ItemRow((*high, "supervised"), SUPERVISED, {}, none)
    notes = (*notes, *[_PROBES] * (_FIXED[0] in columns), _CENTRAL, _SCALE)
    return _item(
        place, title, tuple(map(_column, columns)), (*rows, *ends), *notes, shows="downstream", mean=False, **keys
    )


def _task(task: str, central: Sequence[float], federated: Sequence[float], **keys: Any) -> tuple[ItemRow, ItemRow]:
    own = _fedavg(task, "federated", paper=federated, **keys)
    return _central(task, "centralised", paper=central, **keys), own


_POOLED = (29.00, 47.30, 11.80, 30.10, 86.20, 57.00)

LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""k of Figure 3."""


def _traffic(dataset: str) -> tuple[Column, Column, Column]:
    """Figure 4's columns of a dataset."""
    place = DOWNSTREAM.index(dataset)
    rounds = Column(f"{dataset} rounds to target", place, of="all", metric="rounds", digits=(0, 0))
    return (
        _column(f"{dataset} R@1"),
        rounds,
        Column(f"{dataset} MB to target", place, of="all", metric="megabytes", digits=(1, 1)),
    )


FEDVSSL_ITEMS = (
    _table(
        "table1",
        "Pretext tasks, centralised and federated (%)",
        ("UCF F-T", "UCF L-P", "HMDB F-T", "HMDB L-P", *_RETRIEVAL, *_FIXED),
        (
            *_task(
                "VCOP",
                (71.29, 24.93, 38.56, 13.53, 15.52, 28.26, 8.11, 22.22),
                (69.26, 20.00, 33.27, 12.22, 13.72, 24.85, 6.41, 19.94),
                pretext="vcop",
            ),
            *_task(
                "Speed",
                (81.15, 29.32, 47.58, 14.90, 16.84, 36.58, 6.93, 21.05),
                (73.16, 35.63, 38.43, 21.57, 21.97, 41.61, 10.98, 28.30),
                pretext="speed",
            ),
            *_task(
                "CtP",
                (86.20, 48.14, 57.00, 30.65, 29.00, 47.30, 11.80, 30.10),
                (81.95, 46.13, 49.15, 28.63, 29.29, 48.90, 13.66, 32.42),
            ),
        ),
        "The paper prints differences for Speed that its values do not give: +4.05 / +3.94 for UCF's R@1 / R@5 "
        "(+5.13 / +5.03), +3.92 for HMDB's R@1 (+4.05), -9.05 for its F-T (-9.15).",
        _CLASH,
        _SHORT,
        heads=("task", "model"),
    ),
    _table(
        "table2",
        "IID and non-IID clients, CtP (%)",
        (*_TUNED, *_RETRIEVAL),
        (
            _fedavg("IID", "100/-", paper=(81.92, 48.49, 29.42, 47.90, 13.80, 34.56), data=IID),
            _fedavg("non-IID", "100/8", paper=(81.95, 49.15, 29.29, 48.90, 13.66, 32.42)),
            _fedavg("non-IID", "100/4", paper=(81.15, 47.78, 29.18, 48.37, 14.70, 32.94), data=FOUR),
            _central("IID", "centralised", paper=(86.20, 57.00, 29.00, 47.30, 11.80, 30.10)),
        ),
        "The printed heads of the retrieval columns are garbled; their order is taken from Table 1, whose values "
        "they repeat.",
        "100/8: clients / classes of each; at the tiny scale there are fewer of both.",
        _CLASH,
        heads=("data", "setting"),
    ),
    _table(
        "table3",
        "Aggregation strategies, CtP (%)",
        (*_RETRIEVAL, *_TUNED),
        (
            _central("centralised", paper=_POOLED),
            _central("centralised, equal epochs", paper=(27.65, 47.67, 12.81, 31.05, 83.64, 53.73), data=SHORT),
            _fedavg("FedAvg", paper=(32.62, 50.41, 16.54, 35.29, 79.91, 52.88)),
            ItemRow(("loss-based",), "fedvssl", LOSS, (32.54, 50.01, 14.44, 34.97, 79.43, 50.63), data=EIGHT),
            ItemRow(("FedU",), "fedu", {}, (34.07, 52.29, 14.90, 36.67, 80.17, 53.73), data=EIGHT),
        ),
        "Equal epochs: rounds x clients in a round / clients, 27 for the paper's 540 rounds. Its text says that they "
        "save 62.5 % of the GPU time of 90; 27 of 90 are 70 % fewer.",
        "FedU's threshold is EasyFL's 0.4; the paper does not give its own. `--set fedu_threshold` changes it.",
        _CLASH,
    ),
    _table(
        "table4",
        "FedVSSL(alpha, beta), CtP (%)",
        (*_RETRIEVAL, *_TUNED, *_PROBED, *_FIXED),
        (
            _central("centralised", paper=(*_POOLED, 48.14, 30.65)),
            _fedavg("FedAvg", paper=(32.62, 50.41, 16.54, 35.29, 79.91, 52.88, 45.31, 31.44)),
            _fedvssl(0, 0, 34.34, 51.71, 15.82, 36.01, 79.91, 52.94, 47.95, 31.12),
            _fedvssl(1, 0, 34.23, 52.21, 16.73, 38.30, 79.14, 51.11, 47.90, 29.48),
            _fedvssl(0, 1, 35.61, 52.18, 16.93, 37.78, 79.43, 51.90, 47.66, 30.00),
            _fedvssl(1, 1, 35.66, 52.34, 16.41, 36.93, 78.99, 51.18, 48.93, 31.44),
            _fedvssl(0.9, 0, 35.50, 54.27, 16.27, 37.25, 80.62, 53.14, 50.36, 32.68),
            _fedvssl(0.9, 1, 35.34, 52.34, 16.93, 37.39, 79.41, 51.50, 50.30, 32.42),
        ),
        "FedAvg averages the whole model, FedVSSL the backbone alone. beta = 1 is the same as a server rate of one "
        "half with beta = 0.",
        "The headline, +6.66 (UCF) and +5.13 (HMDB) in R@1 over centralised, is of two rows: alpha = 1, beta = 1 and "
        "alpha = 0 or 0.9, beta = 1.",
        _CLASH,
    ),
    _item(
        "fig2",
        "Loss landscape, CtP: centralised, FedAvg",
        (Column("all", 0, of="all"),),
        (_central("centralised"), _fedavg("FedAvg")),
        "A flatter surface under FedAvg is the paper's finding; it prints no numbers.",
        "The runs are Table 3's.",
        _CENTRAL,
        shows="landscape",
        digits=(3, 3),
    ),
    _item(
        "fig3",
        "R@1 (%) under noise on the weights, CtP",
        tuple(Column(f"k = {level:g}", 0, of="all") for level in LEVELS),
        (
            _central("centralised", colour=_ORANGE),
            _fedavg("FedAvg", colour=_BLUE),
            _fedvssl(0.9, 0, colour=_PURPLE),
            ItemRow(("random weights",), RANDOM, colour=_GREY),
        ),
        "absolute: w + k N(0, 1) on every parameter, as the paper says; filter: each filter's noise is as long as "
        "the filter, so that k means the same whatever the weights' scale. Statistics are left as they are.",
        "The runs are Table 4's. The paper prints no numbers; it finds a large drop at k = 0.1, then steadier values "
        "of federated models.",
        shows="perturbation",
        heads=("noise", "data", "model"),
    ),
    _item(
        "fig4",
        "R@1 (%) over rounds against the centralised",
        (*_traffic(UCF), *_traffic(HMDB)),
        (
            _central("centralised", paper=(29.00, None, None, 11.80, None, None), colour=_GREY),
            _fedavg("FedAvg", paper=(32.62, None, None, 16.54, None, None), colour=_BLUE),
            _fedvssl(0, 0, 34.34, None, None, 15.82, None, None, colour=_GREEN),
            _fedvssl(0.9, 0, 35.50, None, None, 16.27, None, None, colour=_PURPLE),
            _fedvssl(0.9, 1, 35.34, None, None, 16.93, None, None, colour=_ORANGE),
        ),
        "The target is what the centralised model of the same seed comes to; the first of the models kept on the way "
        "that reaches it counts, and what clients have sent and received until then, in 10^6 bytes.",
        "The paper's: its Table 4 for the last round. It says that FedAvg needs fewer than 100 rounds, its own "
        "methods fewer than 200. The runs are Table 4's.",
        _CENTRAL,
        shows="traffic",
    ),
    _item(
        "fig5",
        "How unevenly clients move away from the server",
        tuple(Column(name, 0, of="all") for name in ("deviation", "its deviation", "relative, %", "mean distance")),
        (_fedavg("FedAvg"),),
        "Distance: L2 between a client's weights after training and the server's before it. Deviation: standard "
        "deviation over the clients of a round, mean over rounds; its deviation: over rounds, relative: as a share "
        "of the mean.",
        "A steadier deviation of the backbone is the paper's finding; it prints no numbers. The run is Table 3's.",
        shows="distances",
        heads=("part",),
        digits=(3, 3),
    ),
)
