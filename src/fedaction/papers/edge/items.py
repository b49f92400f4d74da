"""Tables I to V and Figures 3 and 5 to 12 of the edge paper (Jain et al., 2021), values as printed.

Figures 1, 2 and 4 are drawings of the pipeline, of the task and of networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from fedaction.papers.edge.setting import HMDB51, KINETICS, UCF101
from fedaction.papers.item import Column, Item, ItemRow, make_item

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

PER_CLIP, PER_VIDEO = (Column("per-clip, %", 0, of="all"), Column("per-video, %", 0, of="all", metric="recordings"))
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


_item = partial(make_item, "Edge", digits=(1, 1), mean=False)


def _chain(label: str | tuple[str, ...], chain: tuple[int, ...], *paper: float | None, colour: str = "") -> ItemRow:
    return ItemRow((label,) if isinstance(label, str) else label, DISTIL, {"chain": chain}, paper, colour)


def _tasks(dataset: str, *hours: float) -> tuple[ItemRow, ...]:
    """Rows that are read off the virtual clock, so no method is run for them."""
    pairs = zip(TASKS, hours, strict=True)
    return tuple(ItemRow((dataset, task), paper=(None, h, None, None), data=dataset) for task, h in pairs)


def _accuracies(dataset: str, *values: tuple[float, float]) -> tuple[ItemRow, ...]:
    """Rows of Table III, and two that it lacks: as many epochs as clients have, and a network that knows nothing."""
    pairs = zip(TASKS.items(), values, strict=True)
    rows = [ItemRow((dataset, task), method, {}, pair, data=dataset) for (task, method), pair in pairs]
    longer = ItemRow((dataset, "no clients*"), "central", {"local_epochs": 3}, (None, None), data=dataset)
    label = (dataset, "synchronous, random weights")
    blank = ItemRow(label, "fedavg", {"pretrained": ""}, (None, None), data=dataset)
    return (rows[0], longer, *rows[1:], blank)


def _profiles(place: str, numeral: str, title: str, column: Column, printed: Sequence[float], charge: str) -> Item:
    """Tables IV and V: a time of every device; `charge`: what the clock makes of it."""
    labels = [(dataset, device) for dataset in (HMDB51, UCF101) for device in _DEVICES]
    rows = tuple(
        ItemRow(label, "", {}, (value,), _DEVICES[label[1]][1], data=label[0])
        for label, value in zip(labels, printed, strict=True)
    )
    built_in = "The built-in profiles are these printed values, so the two are equal by construction"
    note, keys = f"{built_in}; {charge}. --set devices=FILE shows your own.", {"heads": ("dataset", "device")}
    return _item(place, title, (column,), rows, note, numeral=numeral, shows="profiles", **keys)


def _curves(number: int, title: str, rows: tuple[ItemRow, ...], *notes: str, **keys: Any) -> Item:
    """Accuracy over the course of distillation or fine-tuning."""
    return _item(f"fig{number}", f"{title}: accuracy (%)", (PER_CLIP,), rows, *notes, shows="curves", **keys)


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
_HOURS = {"scratch": 31 + 26 / 60, "0": 44 + 58 / 60, "1": 55 + 23 / 60, "2": 69 + 35 / 60, "3": 85 + 47 / 60}
"""Of distillation, by the number of assistants."""

EDGE_ITEMS = (
    _item(
        "table1",
        "Distillation through 0 to 3 teaching assistants",
        (PER_CLIP, SECONDS, HOURS, INCREASE),
        (
            _chain("0", CHAINS["0"], 53.8, None, _HOURS["0"], 0.0),
            _chain("1", CHAINS["1"], 54.6, None, _HOURS["1"], 23.2),
            _chain("2", CHAINS["2"], 54.8, None, _HOURS["2"], 54.7),
            _chain("3", CHAINS["3"], 54.9, None, _HOURS["3"], 90.8),
        ),
        "Chains: ResNet-34 over 26, over 28 and 24, over 30, 26 and 22, to 18; one teacher serves all.",
        _WALL,
        "Every network of a chain trains for as many epochs as any other; the paper's times fit neither that nor "
        "200 epochs in all.",
        numeral="I",
        shows="chains",
        heads=("assistants",),
        across="epoch",
    ),
    _item(
        "table2",
        "Time of every stage: distillation and fine-tuning",
        (SECONDS, HOURS, THRICE, ONCE),
        (
            _chain((KINETICS, "from scratch"), (18,), None, _HOURS["scratch"], None, None),
            _chain((KINETICS, "KD, no TA"), CHAINS["0"], None, _HOURS["0"], None, None),
            _chain((KINETICS, "KD, one TA"), CHAINS["1"], None, _HOURS["1"], None, None),
            *_tasks(HMDB51, 3.25, 10.9, 6 + 31 / 60),
            *_tasks(UCF101, 22 + 5 / 60, 74.45, 44 + 7 / 60),
        ),
        _WALL,
        "Fine-tuning is timed by the virtual clock from the devices' profiles (Table IV; nothing is trained for it, "
        "no transfers, no tests). hours: equal work, 80 epochs on the server, or 80 local epochs of every client: 80 "
        "rounds, or as many updates one by one. The built-in server's time is Table II's own.",
        "80 x 3 and 80 x 1 read the text otherwise: 80 aggregations of 3 or of 1 local epochs: 80 rounds of "
        "the synchronous server, but only 80 single updates of the asynchronous one.",
        "Table IV does not give the paper's 40 %: its synchronous times are 1.25 times 80 local epochs of the "
        "slowest device, its asynchronous ones are 80 local epochs of the second slowest (within 1 %), by when all "
        "devices together would have done about 611 local epochs instead of 320.",
        numeral="II",
        digits=(1, 2),
        shows="times",
        heads=("dataset", "task"),
        across="epoch",
    ),
    _item(
        "table3",
        "Fine-tuning: central, synchronous, asynchronous",
        (PER_CLIP, PER_VIDEO),
        (
            *_accuracies(HMDB51, (57.3, 64.1), (54.4, 61.8), (55.6, 62.3)),
            *_accuracies(UCF101, (85.7, 91.1), (84.3, 89.3), (84.4, 89.5)),
        ),
        "Means over the clients' test sets, all under the server's model.",
        "Not in the paper: no clients* has three epochs in each round, as each client has (the row above it has one, "
        "so 80 at the paper's scale); random weights are what the student must beat.",
        numeral="III",
        heads=("dataset", "task"),
    ),
    _profiles(
        *("table4", "IV", "Training time of the devices", TRAIN),
        (391.1, 293.1, 121.3, 84.5, 2691.6, 2001.4, 821.9, 572.1),
        "ours is what the clock charges for a local epoch",
    ),
    _profiles(
        *("table5", "V", "Test time of the devices", TEST),
        (181.4, 116.3, 89.4, 68.3, 621.3, 381.2, 322.5, 217.7),
        "the clock charges nothing for tests",
    ),
    _curves(
        3,
        "ResNet-18 from scratch and distilled",
        (
            _chain("from scratch", (18,), 50.2, colour="#e08a2b"),
            _chain("KD, no TA", CHAINS["0"], 53.8, colour="#3b6fb6"),
            _chain("KD, one TA", CHAINS["1"], 54.6, colour="#7a4fa3"),
        ),
        across="epoch",
    ),
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
