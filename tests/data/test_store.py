"""Stores that are written sample by sample, and clients by a dataset's own split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedaction.data import store
from fedaction.data.imports import inspect
from fedaction.data.layout import OPENNI_15
from fedaction.data.preprocess import prepare
from fedaction.federation.seeds import numpy_generator


def walk(frames: int, seed: int, bodies: int = 1, joints: int = 15) -> npt.NDArray[np.float32]:
    return numpy_generator(seed, "walk").normal(size=(bodies, frames, joints, 3)).astype(np.float32)


def test_a_writer_takes_samples_with_unlike_bodies_and_splits(tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = [walk(5, 0), walk(3, 1, bodies=2), walk(4, 2)]
    splits = [{"a": "train"}, {"a": "test", "b": "train"}, {}]
    with store.StoreWriter(out, layout=OPENNI_15, classes=("x", "y"), rate_hz=10) as writer:
        for i, (sequence, sides) in enumerate(zip(given, splits, strict=True)):
            writer.add(sequence, label=i % 2, name=f"n{i}", splits=sides)
        assert not out.exists()
        writer.finish([store.Issue(kind="label", where="n9")])
    item = store.load(out)
    assert all(np.array_equal(one, two) for one, two in zip(item.sequences, given, strict=True))
    assert item.splits == {"a": ("train", "test", ""), "b": ("", "train", "")}
    assert item.subjects == () and item.labels.tolist() == [0, 1, 0] and inspect(out).counts == {"label": 1}
    assert inspect(out).splits == {"a": (1, 1), "b": (1, 0)} and "a: 1 to train, 1 to test" in str(inspect(out))
    frames = np.load(out / "frames.npy", mmap_mode="r")
    assert frames.shape == (5 + 2 * 3 + 4, 15, 3) and (out / "frames.npy").stat().st_size == 128 + frames.nbytes
    store.save(item, tmp_path / "copy")
    assert (tmp_path / "copy" / "frames.npy").read_bytes() == (out / "frames.npy").read_bytes()
    assert (tmp_path / "copy" / "dataset.json").read_bytes() == (out / "dataset.json").read_bytes()


def test_a_writer_that_does_not_finish_leaves_nothing(tmp_path: Path) -> None:
    def options(name: str) -> dict[str, Any]:
        return {"out": tmp_path / name, "layout": OPENNI_15, "classes": ("x",)}

    with pytest.raises(RuntimeError, match="stop"), store.StoreWriter(**options("a")) as writer:
        writer.add(walk(5, 0), label=0, name="n")
        raise RuntimeError("stop")
    for sequence, sides, message in (
        (walk(5, 0, joints=14), {}, "differ in their number"),
        (walk(5, 0) * np.inf, {}, "not finite"),
        (walk(5, 0), {"a": "validation"}, "splits"),
        (None, {}, "no usable sample"),
    ):
        with pytest.raises(ValueError, match=message), store.StoreWriter(**options("b")) as writer:
            if sequence is not None:
                writer.add(sequence, label=0, name="n", splits=sides)
            writer.finish()
    assert list(tmp_path.iterdir()) == []


def test_clients_by_the_dataset_s_own_split(tmp_path: Path) -> None:
    sides = ["train", "test", "", "train", "train", "test"]
    with store.StoreWriter(tmp_path / "own", layout=OPENNI_15, classes=("x", "y")) as writer:
        for i, side in enumerate(sides):
            writer.add(walk(5, i), label=i % 2, name=f"n{i}", subject=f"p{i}", splits={"cross_view": side})
        writer.finish()
    made = store.clients_from_store(tmp_path / "own", protocol="cross_view", frames=5)[0]
    assert made.train.subjects == ("p0", "p3", "p4") and made.test.subjects == ("p1", "p5")
    x, _ = prepare([walk(5, i) for i in (1, 5)], OPENNI_15, 5)
    assert torch.equal(made.test.x, x) and made.test.y.tolist() == [1, 1]
    with pytest.raises(ValueError, match="no split called 'cross_subject'; it has cross_view"):
        store.clients_from_store(tmp_path / "own", protocol="cross_subject")
    with store.StoreWriter(tmp_path / "none", layout=OPENNI_15, classes=("x",)) as writer:
        writer.add(walk(5, 0), label=0, name="n")
        writer.finish()
    with pytest.raises(ValueError, match="it has none"):
        store.clients_from_store(tmp_path / "none", protocol="cross_subject")
