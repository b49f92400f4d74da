"""Tables I to V and Figures 3 and 5 to 12 of the edge paper (Jain et al., 2021), values as printed.

Figures 1, 2 and 4 are drawings of the pipeline, of the task and of networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedaction.papers.edge.setting import HMDB51, KINETICS, UCF101
from fedaction.papers.item import Column, Item, ItemRow

DISTIL = "distil"
"""A row's method where it is a chain of networks that is distilled."""

CHAINS: dict[str, tuple[int, ...]] = {
    "0": (34, 18),
    "1": (34, 26, 18),
    "2": (34, 28, 24, 18),
    "3": (34, 30, 26, 22, 18),
}
"""By the number of teaching assistants: depths from the teacher to the student."""
STUDENT = CHAINS["1"]
"""Whose student is fine-tuned."""

PER_CLIP, PER_VIDEO = (
    Column("per-clip, %", 0, of="all"),
    Column("per-video, %", 0, of="all", metric="recordings"),
)
SECONDS, HOURS = Column("wall, s", 0), Column("hours", 0, digits=(2, 2))
INCREASE = Column("increase, %", 0)
THRICE = Column("80 x 3, h", 0, digits=(2, 2))
ONCE = Column("80 x 1, h", 0, digits=(2, 2))
TRAIN, TEST = Column("seconds per local epoch", 0), Column("seconds for the test set", 0)

TASKS = {"no clients": "central", "synchronous": "fedavg", "asynchronous": "edge"}
"""What the paper calls ways of fine-tuning, and their methods here."""
_DEVICES = {
    "Jetson Nano": ("jetson_nano", "#c2553f"),
    "Jetson TX2": ("jetson_tx2", "#e08a2b"),
    "Jetson Xavier NX": ("jetson_xavier_nx", "#3f9b57"),
    "Jetson AGX Xavier": ("jetson_agx_xavier", "#3b6fb6"),
}
KINDS = {kind: label for label, (kind, _) in _DEVICES.items()}
"""What the paper calls the devices of the built-in profiles."""
_COLOURS = ("#3b6fb6", "#3f9b57", "#7a4fa3", "#e08a2b")
_WALL = "Wall times are of the machine that ran it, without the teacher's training; the paper's of its own."


def _chain(assistants: str, hours: float, increase: float, accuracy: float) -> ItemRow:
    return ItemRow((assistants,), DISTIL, {"chain": CHAINS[assistants]}, (accuracy, None, hours, increase))


TABLE_1 = Item(
    "edge/table1",
    "Edge, Table I. Distillation through 0 to 3 teaching assistants",
    "table",
    shows="chains",
    heads=("assistants",),
    digits=(1, 1),
    columns=(PER_CLIP, SECONDS, HOURS, INCREASE),
    rows=(
        _chain("0", 44 + 58 / 60, 0.0, 53.8),
        _chain("1", 55 + 23 / 60, 23.2, 54.6),
        _chain("2", 69 + 35 / 60, 54.7, 54.8),
        _chain("3", 85 + 47 / 60, 90.8, 54.9),
    ),
    across="epoch",
    mean=False,
    notes=(
        "Chains: ResNet-34 over 26, over 28 and 24, over 30, 26 and 22, to 18; one teacher serves all.",
        _WALL,
        "Every network of a chain trains for as many epochs as any other; the paper's times fit neither that nor "
        "200 epochs in all.",
    ),
)


def _tasks(dataset: str, *hours: float) -> tuple[ItemRow, ...]:
    """Rows that are read off the virtual clock, so no method is run for them."""
    pairs = zip(TASKS, hours, strict=True)
    return tuple(ItemRow((dataset, task), paper=(None, h, None, None), data=dataset) for task, h in pairs)


TABLE_2 = Item(
    "edge/table2",
    "Edge, Table II. Time of every stage: distillation and fine-tuning",
    "table",
    shows="times",
    heads=("dataset", "task"),
    digits=(1, 2),
    columns=(SECONDS, HOURS, THRICE, ONCE),
    rows=(
        ItemRow((KINETICS, "from scratch"), DISTIL, {"chain": (18,)}, (None, 31 + 26 / 60, None, None)),
        ItemRow((KINETICS, "KD, no TA"), DISTIL, {"chain": CHAINS["0"]}, (None, 44 + 58 / 60, None, None)),
        ItemRow((KINETICS, "KD, one TA"), DISTIL, {"chain": CHAINS["1"]}, (None, 55 + 23 / 60, None, None)),
        *_tasks(HMDB51, 3.25, 10.9, 6 + 31 / 60),
        *_tasks(UCF101, 22 + 5 / 60, 74.45, 44 + 7 / 60),
    ),
    across="epoch",
    mean=False,
    notes=(
        _WALL,
        "Fine-tuning is timed by the virtual clock from the devices' profiles (Table IV; nothing is trained for it, "
        "no transfers, no tests). hours: equal work, 80 epochs on the server, or 80 local epochs of every client: 80 "
        "rounds, or as many updates one by one. The built-in server's time is Table II's own.",
        "80 x 3 and 80 x 1 read the text otherwise: 80 aggregations of 3 or of 1 local epochs: 80 rounds of "
        "the synchronous server, but only 80 single updates of the asynchronous one.",
        "Table IV does not give the paper's 40 %: its synchronous times are 1.25 times 80 local epochs of the "
        "slowest device, its asynchronous ones are 80 local epochs of the second slowest (within 1 %), by when all "
        "devices together would have done about 611 local epochs instead of 320.",
    ),
)


def _accuracies(dataset: str, *values: tuple[float, float]) -> tuple[ItemRow, ...]:
    pairs = zip(TASKS.items(), values, strict=True)
    return tuple(ItemRow((dataset, task), method, {}, pair, data=dataset) for (task, method), pair in pairs)


TABLE_3 = Item(
    "edge/table3",
    "Edge, Table III. Fine-tuning: central, synchronous, asynchronous",
    "table",
    heads=("dataset", "task"),
    digits=(1, 1),
    columns=(PER_CLIP, PER_VIDEO),
    rows=(
        *_accuracies(HMDB51, (57.3, 64.1), (54.4, 61.8), (55.6, 62.3)),
        *_accuracies(UCF101, (85.7, 91.1), (84.3, 89.3), (84.4, 89.5)),
    ),
    mean=False,
    notes=("Means over the clients' test sets, all under the server's model.",),
)


def _profiles(name: str, title: str, column: Column, printed: Sequence[float], charge: str) -> Item:
    """Tables IV and V: a time of every device; `charge`: what the clock makes of it."""
    labels = [(dataset, device) for dataset in (HMDB51, UCF101) for device in _DEVICES]
    built_in = "The built-in profiles are these printed values, so the two are equal by construction"
    return Item(
        name,
        title,
        "table",
        shows="profiles",
        heads=("dataset", "device"),
        digits=(1, 1),
        columns=(column,),
        rows=tuple(
            ItemRow(label, "", {}, (value,), _DEVICES[label[1]][1], data=label[0])
            for label, value in zip(labels, printed, strict=True)
        ),
        mean=False,
        notes=(f"{built_in}; {charge}. --set devices=FILE shows your own.",),
    )


TABLE_4 = _profiles(
    "edge/table4",
    "Edge, Table IV. Training time of the devices",
    TRAIN,
    (391.1, 293.1, 121.3, 84.5, 2691.6, 2001.4, 821.9, 572.1),
    "ours is what the clock charges for a local epoch",
)
TABLE_5 = _profiles(
    "edge/table5",
    "Edge, Table V. Test time of the devices",
    TEST,
    (181.4, 116.3, 89.4, 68.3, 621.3, 381.2, 322.5, 217.7),
    "the clock charges nothing for tests",
)

FIG_3 = Item(
    "edge/fig3",
    "Edge, Figure 3. ResNet-18 from scratch and distilled: accuracy (%)",
    "figure",
    shows="curves",
    digits=(1, 1),
    columns=(PER_CLIP,),
    rows=(
        ItemRow(("from scratch",), DISTIL, {"chain": (18,)}, (50.2,), "#e08a2b"),
        ItemRow(("KD, no TA",), DISTIL, {"chain": CHAINS["0"]}, (53.8,), "#3b6fb6"),
        ItemRow(("KD, one TA",), DISTIL, {"chain": CHAINS["1"]}, (54.6,), "#7a4fa3"),
    ),
    across="epoch",
)


def _curves(number: int, title: str, rows: tuple[ItemRow, ...], note: str, **keys: Any) -> Item:
    """Figures 5 to 12: accuracy over the course of fine-tuning."""
    title = f"Edge, Figure {number}. {title}: accuracy (%)"
    columns, notes = (PER_CLIP,), (note,)
    return Item(
        f"edge/fig{number}", title, "figure", columns, rows, shows="curves", digits=(1, 1), notes=notes, **keys
    )


def _single(number: int, dataset: str, task: str, how: str, across: str, paper: float) -> Item:
    rows = (ItemRow((task,), TASKS[task], {}, (paper,), "#7a4fa3", data=dataset),)
    return _curves(number, f"{how} fine-tuning on {dataset}", rows, "The run is Table III's.", across=across)


def _sweep(number: int, dataset: str, head: str, key: str, other: str, printed: dict[str, float]) -> Item:
    rows = tuple(
        ItemRow((value,), "edge", {key: float(value)}, (paper,), colour, data=dataset)
        for (value, paper), colour in zip(printed.items(), _COLOURS, strict=True)
    )
    note = f"At {other}. A round is as many updates as there are clients. a = 0.5, beta = 0.7 is Table III's run."
    return _curves(number, f"Asynchronous on {dataset}, {head} varied", rows, note, heads=(head,))


_A = ("a", "staleness_a", "beta = 0.7")
_BETA = ("beta", "mixing", "a = 0.5")

EDGE_ITEMS = (
    *(TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5, FIG_3),
    _single(5, HMDB51, "no clients", "Central", "epoch", 57.3),
    _single(6, UCF101, "no clients", "Central", "epoch", 85.7),
    _single(7, HMDB51, "synchronous", "Synchronous", "aggregation", 54.4),
    _single(8, UCF101, "synchronous", "Synchronous", "aggregation", 84.3),
    _sweep(9, HMDB51, *_A, {"0": 53.9, "0.3": 54.2, "0.5": 55.6, "0.9": 53.7}),
    _sweep(10, HMDB51, *_BETA, {"0.3": 53.6, "0.5": 53.8, "0.7": 55.6, "0.9": 51.4}),
    _sweep(11, UCF101, *_A, {"0": 83.7, "0.3": 83.7, "0.5": 84.4, "0.9": 83.6}),
    _sweep(12, UCF101, *_BETA, {"0.3": 83.2, "0.5": 83.5, "0.7": 84.4, "0.9": 82.3}),
)


def chains_of(item: Item) -> list[tuple[int, ...]]:
    """Chains of networks that an item shows, by depth, from the teacher to the student."""
    return list(dict.fromkeys(row.overrides["chain"] for row in item.rows if row.method == DISTIL))
