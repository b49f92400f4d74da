"""Tables 1 to 4 and Figures 2 to 5 of FedVSSL (Rehman et al., ECCV 2022), values as printed.

Figure 1 is a drawing of the method. Two rows that the paper does not have are the ends of the scale: a network with
random weights, and one that has learnt the pretraining set's labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedaction.papers.item import Column, Item, ItemRow
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

_F_T, _L_P, _R1, _R5 = ("F-T", "finetune_video"), ("L-P", "probe_video"), ("R@1", "R@1"), ("R@5", "R@5")


def _columns(*parts: tuple[str, tuple[str, str]]) -> tuple[Column, ...]:
    return tuple(
        Column(f"{dataset} {word}", DOWNSTREAM.index(dataset), of="all", metric=metric)
        for dataset, (word, metric) in parts
    )


_RETRIEVAL = ((UCF, _R1), (UCF, _R5), (HMDB, _R1), (HMDB, _R5))
_TUNED = ((UCF, _F_T), (HMDB, _F_T))
_PROBED = ((UCF, _L_P), (HMDB, _L_P))


_Printed = tuple[float | None, ...]
_NONE: Mapping[str, Any] = {}


def _central(*label: str, paper: _Printed = (), colour: str = "", keys: Mapping[str, Any] = _NONE) -> ItemRow:
    return ItemRow(label, CENTRAL, keys, paper, colour, data=POOLED)


def _fedavg(
    *label: str, paper: _Printed = (), colour: str = "", data: str = EIGHT, keys: Mapping[str, Any] = _NONE
) -> ItemRow:
    return ItemRow(label, "fedvssl", {**FEDAVG, **keys}, paper, colour, data=data)


def _fedvssl(alpha: float, beta: int, *paper: float | None, colour: str = "") -> ItemRow:
    keys = {"vssl_alpha": alpha, "vssl_beta": beta}
    return ItemRow((f"FedVSSL alpha={alpha:g} beta={beta}",), "fedvssl", keys, paper, colour, data=EIGHT)


def _ends(columns: tuple[Column, ...], before: tuple[str, ...] = ()) -> tuple[ItemRow, ItemRow]:
    """The two ends of the scale; `before`: what their labels begin with."""
    none = (None,) * len(columns)
    low, high = (*before[:1], "random weights"), (*before[1:], "supervised")
    return ItemRow(low, RANDOM, {}, none), ItemRow(high, SUPERVISED, {}, none)


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
_SHORT = (
    "Recordings of fewer than 50 frames give VCOP clips that overlap; those of fewer than 61 give Speed no fourfold "
    "speed."
)


def _table(number: int, title: str, columns: tuple[Column, ...], rows: tuple[ItemRow, ...], **keys: Any) -> Item:
    name, title = f"fedvssl/table{number}", f"FedVSSL, Table {number}. {title}"
    return Item(name, title, "table", columns, rows, shows="downstream", mean=False, **keys)


_ONE = _columns((UCF, _F_T), (UCF, _L_P), (HMDB, _F_T), (HMDB, _L_P), *_RETRIEVAL)


def _tasks() -> tuple[ItemRow, ...]:
    printed: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
        "VCOP": (
            (71.29, 24.93, 38.56, 13.53, 15.52, 28.26, 8.11, 22.22),
            (69.26, 20.00, 33.27, 12.22, 13.72, 24.85, 6.41, 19.94),
        ),
        "Speed": (
            (81.15, 29.32, 47.58, 14.90, 16.84, 36.58, 6.93, 21.05),
            (73.16, 35.63, 38.43, 21.57, 21.97, 41.61, 10.98, 28.30),
        ),
        "CtP": (
            (86.20, 48.14, 57.00, 30.65, 29.00, 47.30, 11.80, 30.10),
            (81.95, 46.13, 49.15, 28.63, 29.29, 48.90, 13.66, 32.42),
        ),
    }
    tasks: dict[str, dict[str, Any]] = {
        "VCOP": {"pretext": "vcop"},
        "Speed": {"pretext": "speed"},
        "CtP": {},
    }
    rows: list[ItemRow] = []
    for task, keys in tasks.items():
        central, federated = printed[task]
        rows.append(_central(task, "centralised", paper=central, keys=keys))
        rows.append(_fedavg(task, "federated", paper=federated, keys=keys))
    return tuple(rows)


TABLE_1 = _table(
    1,
    "Pretext tasks, centralised and federated (%)",
    _ONE,
    (*_tasks(), *_ends(_ONE, ("none", "labels"))),
    heads=("task", "model"),
    notes=(
        "The paper prints differences for Speed that its values do not give: +4.05 / +3.94 for UCF's R@1 / R@5 "
        "(+5.13 / +5.03), +3.92 for HMDB's R@1 (+4.05), -9.05 for its F-T (-9.15).",
        _CLASH,
        _SHORT,
        _CENTRAL,
        _SCALE,
    ),
)

_TWO = _columns(*_TUNED, *_RETRIEVAL)

TABLE_2 = _table(
    2,
    "IID and non-IID clients, CtP (%)",
    _TWO,
    (
        _fedavg("IID", "100/-", paper=(81.92, 48.49, 29.42, 47.90, 13.80, 34.56), data=IID),
        _fedavg("non-IID", "100/8", paper=(81.95, 49.15, 29.29, 48.90, 13.66, 32.42)),
        _fedavg("non-IID", "100/4", paper=(81.15, 47.78, 29.18, 48.37, 14.70, 32.94), data=FOUR),
        _central("IID", "centralised", paper=(86.20, 57.00, 29.00, 47.30, 11.80, 30.10)),
        *_ends(_TWO, ("none", "labels")),
    ),
    heads=("data", "setting"),
    notes=(
        "The printed heads of the retrieval columns are garbled; their order is taken from Table 1, whose values "
        "they repeat.",
        "100/8: clients / classes of each; at the tiny scale there are fewer of both.",
        _CLASH,
        _CENTRAL,
        _SCALE,
    ),
)

_THREE = _columns(*_RETRIEVAL, *_TUNED)
_POOLED = (29.00, 47.30, 11.80, 30.10, 86.20, 57.00)

TABLE_3 = _table(
    3,
    "Aggregation strategies, CtP (%)",
    _THREE,
    (
        _central("centralised", paper=_POOLED),
        ItemRow(
            ("centralised, equal epochs",),
            CENTRAL,
            paper=(27.65, 47.67, 12.81, 31.05, 83.64, 53.73),
            data=SHORT,
        ),
        _fedavg("FedAvg", paper=(32.62, 50.41, 16.54, 35.29, 79.91, 52.88)),
        ItemRow(("loss-based",), "fedvssl", LOSS, (32.54, 50.01, 14.44, 34.97, 79.43, 50.63), data=EIGHT),
        ItemRow(("FedU",), "fedu", {}, (34.07, 52.29, 14.90, 36.67, 80.17, 53.73), data=EIGHT),
        *_ends(_THREE),
    ),
    notes=(
        "Equal epochs: rounds x clients in a round / clients, 27 for the paper's 540 rounds. Its text says that they "
        "save 62.5 % of the GPU time of 90; 27 of 90 are 70 % fewer.",
        "FedU's threshold is EasyFL's 0.4; the paper does not give its own. `--set fedu_threshold` changes it.",
        _CLASH,
        _CENTRAL,
        _SCALE,
    ),
)

_FOUR = _columns(*_RETRIEVAL, *_TUNED, *_PROBED)

TABLE_4 = _table(
    4,
    "FedVSSL(alpha, beta), CtP (%)",
    _FOUR,
    (
        _central("centralised", paper=(*_POOLED, 48.14, 30.65)),
        _fedavg("FedAvg", paper=(32.62, 50.41, 16.54, 35.29, 79.91, 52.88, 45.31, 31.44)),
        _fedvssl(0, 0, 34.34, 51.71, 15.82, 36.01, 79.91, 52.94, 47.95, 31.12),
        _fedvssl(1, 0, 34.23, 52.21, 16.73, 38.30, 79.14, 51.11, 47.90, 29.48),
        _fedvssl(0, 1, 35.61, 52.18, 16.93, 37.78, 79.43, 51.90, 47.66, 30.00),
        _fedvssl(1, 1, 35.66, 52.34, 16.41, 36.93, 78.99, 51.18, 48.93, 31.44),
        _fedvssl(0.9, 0, 35.50, 54.27, 16.27, 37.25, 80.62, 53.14, 50.36, 32.68),
        _fedvssl(0.9, 1, 35.34, 52.34, 16.93, 37.39, 79.41, 51.50, 50.30, 32.42),
        *_ends(_FOUR),
    ),
    notes=(
        "FedAvg averages the whole model, FedVSSL the backbone alone. beta = 1 is the same as a server rate of one "
        "half with beta = 0.",
        "The headline, +6.66 (UCF) and +5.13 (HMDB) in R@1 over centralised, is of two rows: alpha = 1, beta = 1 and "
        "alpha = 0 or 0.9, beta = 1.",
        _CLASH,
        _CENTRAL,
        _SCALE,
    ),
)

FIG_2 = Item(
    "fedvssl/fig2",
    "FedVSSL, Figure 2. Loss landscape, CtP: centralised, FedAvg",
    "figure",
    shows="landscape",
    digits=(3, 3),
    columns=(Column("all", 0, of="all"),),
    rows=(_central("centralised"), _fedavg("FedAvg")),
    notes=(
        "A flatter surface under FedAvg is the paper's finding; it prints no numbers.",
        "The runs are Table 3's.",
        _CENTRAL,
    ),
)

LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""k of Figure 3."""

FIG_3 = Item(
    "fedvssl/fig3",
    "FedVSSL, Figure 3. R@1 (%) under noise on the weights, CtP",
    "figure",
    shows="perturbation",
    heads=("noise", "data", "model"),
    digits=(1, 2),
    columns=tuple(Column(f"k = {level:g}", 0, of="all") for level in LEVELS),
    rows=(
        _central("centralised", colour=_ORANGE),
        _fedavg("FedAvg", colour=_BLUE),
        _fedvssl(0.9, 0, colour=_PURPLE),
        ItemRow(("random weights",), RANDOM, colour=_GREY),
    ),
    notes=(
        "absolute: w + k N(0, 1) on every parameter, as the paper says; filter: each filter's noise is as long as "
        "the filter, so that k means the same whatever the weights' scale. Statistics are left as they are.",
        "The runs are Table 4's. The paper prints no numbers; it finds a large drop at k = 0.1, then steadier values "
        "of federated models.",
    ),
)

_FIG_4 = tuple(
    column
    for place, dataset in enumerate(DOWNSTREAM)
    for column in (
        Column(f"{dataset} R@1", place, of="all", metric="R@1"),
        Column(f"{dataset} rounds to target", place, of="all", metric="rounds", digits=(0, 0)),
        Column(f"{dataset} MB to target", place, of="all", metric="megabytes", digits=(1, 1)),
    )
)

FIG_4 = Item(
    "fedvssl/fig4",
    "FedVSSL, Figure 4. R@1 (%) over rounds against the centralised",
    "figure",
    shows="traffic",
    digits=(1, 2),
    columns=_FIG_4,
    rows=(
        _central("centralised", paper=(29.00, None, None, 11.80, None, None), colour=_GREY),
        _fedavg("FedAvg", paper=(32.62, None, None, 16.54, None, None), colour=_BLUE),
        *(
            _fedvssl(alpha, beta, ucf, None, None, hmdb, None, None, colour=colour)
            for alpha, beta, ucf, hmdb, colour in (
                (0, 0, 34.34, 15.82, _GREEN),
                (0.9, 0, 35.50, 16.27, _PURPLE),
                (0.9, 1, 35.34, 16.93, _ORANGE),
            )
        ),
    ),
    notes=(
        "The target is what the centralised model of the same seed comes to; the first of the models kept on the way "
        "that reaches it counts, and what clients have sent and received until then, in 10^6 bytes.",
        "The paper's: its Table 4 for the last round. It says that FedAvg needs fewer than 100 rounds, its own "
        "methods fewer than 200. The runs are Table 4's.",
        _CENTRAL,
    ),
)

FIG_5 = Item(
    "fedvssl/fig5",
    "FedVSSL, Figure 5. How unevenly clients move away from the server",
    "figure",
    shows="distances",
    heads=("part",),
    digits=(3, 3),
    columns=tuple(
        Column(label, 0, of="all") for label in ("deviation", "its deviation", "relative, %", "mean distance")
    ),
    rows=(_fedavg("FedAvg"),),
    notes=(
        "Distance: L2 between a client's weights after training and the server's before it. Deviation: standard "
        "deviation over the clients of a round, mean over rounds; its deviation: over rounds, relative: as a share "
        "of the mean.",
        "A steadier deviation of the backbone is the paper's finding; it prints no numbers. The run is Table 3's.",
    ),
)

FEDVSSL_ITEMS = (TABLE_1, TABLE_2, TABLE_3, TABLE_4, FIG_2, FIG_3, FIG_4, FIG_5)
