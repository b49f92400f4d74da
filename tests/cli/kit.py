"""What commands work on, small and sound, and what may lie in its place: for tests of what commands refuse."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedaction.cli import app
from fedaction.data.features.store import FeatureSet, save_features
from fedaction.data.layout import OPENNI_15
from fedaction.data.store import StoreWriter
from fedaction.federation.seeds import derive
from fedaction.models.files import clip_card, save_model
from fedaction.models.resnet3d import ResNet3D
from tests.data.signals.made import phone_csv
from tests.models.common import filled
from tests.training.distilling import write_arrays

RECIPE = """# Two people, two classes.
method = "fedavg"
classifier = "shared"
buffers = "average"
rounds = 2
lr = 0.05
workers = 1
data = "store"
store_paths = ["{store}"]
store_by = "subject"
frames = 8
batch_size = 4
model_width = 4
model_last = 0
model_units = [1, 1, 1]
model_projection = 8
controls = ["majority"]
"""
DISTIL = """chain = [22, 18]
width = 4
epochs = 1
batch_size = 10
device = "cpu"
data = "arrays"
arrays = "{arrays}"
"""


def write_store(path: Path) -> Path:
    """A store of two people with two classes, as `fedaction data import` makes it."""
    values = np.random.default_rng(derive(0, "kit"))
    with StoreWriter(path, layout=OPENNI_15, classes=("sit", "wave"), rate_hz=30) as writer:
        for number in range(24):
            sequence = values.normal(size=(1, 10, len(OPENNI_15), 3)).astype(np.float32) + number % 2
            writer.add(sequence, label=number % 2, name=f"r{number}", subject="ab"[number // 12])
        writer.finish()
    return path


def write_kit(folder: Path) -> Path:
    """Everything that a command may be given: stores, files, recipes, a finished run, models."""
    write_store(folder / "store")
    clip = np.random.default_rng(2).normal(size=(12, len(OPENNI_15), 3))
    np.save(folder / "clip.npy", clip.astype(np.float32))
    for person in ("ann", "ben"):
        phone_csv(folder / "csv" / f"{person}.csv", [("walk", 4), ("stand", 4)], person=person)
    vectors = np.random.default_rng(1).normal(size=(12, 6)).astype(np.float32)
    names = tuple(f"r{number}" for number in range(12))
    made = FeatureSet(
        "inertial", vectors, np.arange(12) % 2, ("sit", "wave"), ("ann", "ben") * 6, names, {"source": "kit"}
    )
    save_features(made, folder / "features")
    write_arrays(folder / "arrays")
    card = clip_card(classes=("wave", "walk", "sit"), frames=4, stride=2, resize=36, crop=32)
    save_model(folder / "video.safetensors", filled(ResNet3D(18, 3, 2)), card)
    (folder / "small.toml").write_text(RECIPE.format(store=folder / "store"))
    (folder / "distil.toml").write_text(DISTIL.format(arrays=folder / "arrays"))
    for command in (["run", str(folder / "small.toml"), "--profile", "--out"], ["analyse"]):
        names = ["curves"] if command == ["analyse"] else []
        app([*command, str(folder / "run"), *names], standalone_mode=False)
    return folder


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.mkdir()


def nest(depth: int, mark: str = "[]") -> str:
    """A value in so many lists, or tables, inside each other."""
    return mark[0] * depth + mark[1] * depth


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that no format begins with."""
    return random.Random(seed).randbytes(size)


THINGS: dict[str, Callable[[Path], object]] = {
    "absent": lambda path: None,
    "folder": _folder,
    "empty": lambda path: path.write_bytes(b""),
    "noise": lambda path: path.write_bytes(noise(1000)),
    "text": lambda path: path.write_text("hello\n"),
    "fifo": _fifo,
    "loop": _loop,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "deep": lambda path: path.write_text("x = " + nest(20_000) + "\n"),
    "deep json": lambda path: path.write_text(nest(100_000)),
    "digits": lambda path: path.write_text("lr = " + "9" * 5000 + "\n"),
    "digits json": lambda path: path.write_text(json.dumps({"run": 1})[:-1] + ', "n": ' + "9" * 5000 + "}"),
    "latin": lambda path: path.write_bytes('name = "Müller"\n'.encode("latin-1")),
}
"""What may lie where a command looks for something, by name."""

NAMES = {
    "brackets": "[/red] [bold]x",
    "newline": "a\nerror: b",
    "emoji": "🙂",
    "bytes": os.fsdecode(b"\xff\xfe"),
    "long": "n" * 300,
    "up": "../../../../nowhere/x",
    "escape": "\x1b[31mred\x07",
    "markup end": "[/]",
    "spaces": "  ",
    "percent": "%s {0} {task.description}",
}
"""What a path or a name may be called."""
