"""Importing recordings, the store's format and its refusals, and clients made from stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedaction.data import files, store
from fedaction.data.imports import import_recordings, inspect, read_layout
from fedaction.data.layout import KINECT_V2, OPENNI_15
from fedaction.data.preprocess import prepare
from fedaction.federation.seeds import numpy_generator
from fedaction.runs.controls import say_split

Array = npt.NDArray[np.float32]


def walk(frames: int, seed: int, bodies: int = 1, joints: int = 15) -> Array:
    return numpy_generator(seed, "walk").normal(size=(bodies, frames, joints, 3)).astype(np.float32)


def write_npz(path: Path, **changes: Any) -> Path:
    """Twelve recordings of 4 to 9 frames, three classes, four people; zero-padded to 10 frames."""
    lengths = np.array([4 + i % 6 for i in range(12)])
    x = np.zeros((12, 10, 15, 3), dtype=np.float32)
    for i, length in enumerate(lengths):
        x[i, :length] = walk(length, i)[0]
    arrays = {"x": x, "y": np.arange(12) % 3, "subjects": np.array([f"p{i // 3}" for i in range(12)])}
    arrays.update(changes)
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def write_folder(root: Path, per_class: int = 4) -> Path:
    for label, name in enumerate(("sit", "wave")):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            values = walk(5 + i, 10 * label + i)[0]
            path = root / name / f"r{i}_s{i % 2}_a"
            if i % 2:
                np.save(path.with_suffix(".npy"), values)
            else:
                np.savetxt(path.with_suffix(".csv"), values.reshape(len(values), -1), delimiter=",")
    return root


def test_arrays_round_trip(tmp_path: Path) -> None:
    source = write_npz(tmp_path / "d.npz", classes=np.array(["sit", "wave", "walk"]))
    summary = import_recordings(source, tmp_path / "out", layout="openni_15", rate_hz=30.0)
    item = store.load(tmp_path / "out")
    assert item.name == "out" and item.layout == OPENNI_15 and item.rate_hz == 30.0
    assert item.classes == ("sit", "wave", "walk") and item.labels.tolist() == [i % 3 for i in range(12)]
    assert item.subjects[:4] == ("p0", "p0", "p0", "p1")
    for i, sequence in enumerate(item.sequences):
        assert np.array_equal(sequence, walk(4 + i % 6, i))
    assert summary.samples == 12 and summary.classes == {"sit": 4, "wave": 4, "walk": 4}
    assert summary.issues == () and inspect(tmp_path / "out").lengths == summary.lengths
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


def test_two_bodies_lengths_scale_and_nan_padding(tmp_path: Path) -> None:
    x = np.full((2, 2, 8, 15, 3), np.nan)
    x[0, :, :5] = walk(5, 0, bodies=2)
    x[1, :1, :3] = walk(3, 1)  # its second body is absent, written as NaN
    write_npz(tmp_path / "d.npz", x=x, y=np.array(["b", "a"]), subjects=np.array([7, 8]))
    summary = import_recordings(tmp_path / "d.npz", tmp_path / "out", layout=OPENNI_15, scale=0.5)
    item = store.load(tmp_path / "out")
    assert [s.shape for s in item.sequences] == [(2, 5, 15, 3), (2, 3, 15, 3)]
    assert np.allclose(item.sequences[0], walk(5, 0, bodies=2) / 2)
    assert not item.sequences[1][1].any() and summary.issues == ()
    assert item.classes == ("a", "b") and item.labels.tolist() == [1, 0] and item.subjects == ("7", "8")
    write_npz(tmp_path / "e.npz", x=np.nan_to_num(x), y=np.array([0, 1]), subjects=None, lengths=np.array([4, 3]))
    import_recordings(tmp_path / "e.npz", tmp_path / "cut", layout=OPENNI_15)
    assert [s.shape[1] for s in store.load(tmp_path / "cut").sequences] == [4, 3]


def test_faults_in_arrays_are_mended_or_skipped_and_named(tmp_path: Path) -> None:
    with np.load(write_npz(tmp_path / "d.npz")) as archive:
        x = archive["x"]
    x[1, 2] = np.nan
    x[4] = 0
    x[5, 3] = 0
    write_npz(tmp_path / "d.npz", x=x)
    seen = inspect(tmp_path / "d.npz", layout="openni_15")
    summary = import_recordings(tmp_path / "d.npz", tmp_path / "out", layout="openni_15")
    assert summary.counts == {"empty": 1, "nan_frames": 1, "zero_frames": 1} == seen.counts
    assert {issue.kind: issue.where for issue in summary.issues} == {
        "nan_frames": "d.npz[1]",
        "empty": "d.npz[4]",
        "zero_frames": "d.npz[5]",
    }
    item = store.load(tmp_path / "out")
    assert len(item) == 11 and "d.npz[4]" not in item.names and np.isfinite(item.sequences[1]).all()
    assert inspect(tmp_path / "out").issues == summary.issues
    assert "d.npz[4]" in str(summary)
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["skipped"] == summary.counts
    with pytest.raises(ValueError, match=r"d\.npz\[4\]"):
        import_recordings(tmp_path / "d.npz", tmp_path / "strict", layout="openni_15", strict=True)
    assert not (tmp_path / "strict").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, "needs arrays `x` and `y`"),
        ({"x": np.zeros((12, 10, 45))}, "not numbers"),
        ({"x": np.zeros((12, 10, 15, 4))}, "C 2 or 3"),
        ({"x": np.array([[[["a", "b"]]]])}, "not numbers"),
        ({"y": np.zeros(11, dtype=int)}, "y must have one value for each of 12"),
        ({"y": np.zeros(12)}, "integers or strings"),
        ({"y": np.arange(12), "classes": np.array(["a", "b"])}, "0 to 11, for 2 class names"),
        ({"y": np.array(["z"] * 12), "classes": np.array(["a", "b"])}, "'z'"),
        ({"lengths": np.full(12, 11)}, "0 to 10"),
        ({"subjects": np.zeros(12)}, "subjects must be integers or strings"),
        ({"subjects": np.array([None] * 12)}, "without pickled objects"),
        ({"x": np.zeros((12, 10, 25, 3))}, "25 joints, layout 'openni_15' has 15"),
    ],
)
def test_arrays_that_make_no_sense_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_npz(tmp_path / "d.npz", **changes)
    with pytest.raises(ValueError, match=message):
        import_recordings(tmp_path / "d.npz", tmp_path / "out", layout="openni_15")
    assert [path.name for path in tmp_path.iterdir()] == ["d.npz"]


def test_files_that_are_no_archive_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "single.npy", np.zeros(3))
    for path in (tmp_path / "text.npz", tmp_path / "single.npy"):
        with pytest.raises(ValueError, match=r"is not an \.npz file"):
            inspect(path)
    with pytest.raises(FileNotFoundError, match=r"missing\.npz"):
        inspect(tmp_path / "missing.npz")


def test_folder_round_trip_with_subjects(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "in")
    (source / "wave" / "notes.md").write_text("not a recording")
    summary = import_recordings(source, tmp_path / "out", layout="openni_15", subject=r"_s(\d)_")
    item = store.load(tmp_path / "out")
    assert item.classes == ("sit", "wave") and item.labels.tolist() == [0] * 4 + [1] * 4
    assert item.subjects == ("0", "1", "0", "1") * 2
    assert item.names[0] == "sit/r0_s0_a.csv"
    for label in range(2):
        for i in range(4):
            assert np.allclose(item.sequences[4 * label + i], walk(5 + i, 10 * label + i), atol=1e-6)
    assert summary.notes == ("1 files are none of .npy, .csv, .txt, .json and were not read",)
    assert inspect(source, layout="openni_15", subject=r"_s(\d)_").subjects == {"0": 4, "1": 4}


def test_faulty_files_are_skipped_and_named(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "in")
    sit = source / "sit"
    np.save(sit / "joints.npy", walk(5, 1, joints=20)[0])
    np.save(sit / "objects.npy", np.array([{"a": 1}]), allow_pickle=True)
    np.save(sit / "zero.npy", np.zeros((4, 15, 3)))
    np.save(sit / "noframes.npy", np.zeros((0, 15, 3)))
    (sit / "cut.npy").write_bytes((sit / "zero.npy").read_bytes()[:200])
    row = ",".join(["1.0"] * 45)
    (sit / "ragged.csv").write_text(f"{row}\n{row},1,2,3\n")
    (sit / "words.csv").write_text(f"{row}\n{row.replace('1.0', 'oops', 1)}\n")
    (sit / "blank.txt").write_text("\n\n")
    (sit / "gap.csv").write_text("\n".join(["x," * 44 + "x", row, row.replace("1.0", "", 1), row]))
    summary = import_recordings(source, tmp_path / "out", layout="openni_15")
    assert {(issue.kind, issue.where) for issue in summary.issues} == {
        ("joint_count", "sit/joints.npy"),
        ("unreadable", "sit/objects.npy"),
        ("unreadable", "sit/cut.npy"),
        ("unreadable", "sit/ragged.csv"),
        ("unreadable", "sit/words.csv"),
        ("unreadable", "sit/blank.txt"),
        ("empty", "sit/zero.npy"),
        ("empty", "sit/noframes.npy"),
        ("nan_frames", "sit/gap.csv"),
    }
    assert summary.samples == 9 and summary.joints == {15: 11, 20: 1}
    item = store.load(tmp_path / "out")
    gap = item.sequences[item.names.index("sit/gap.csv")]
    assert gap.shape[1] == 3 and (gap == 1).all()
    without = inspect(source)
    assert without.layout is None and "kinect_v1" in str(without) and "joint_count" not in without.counts
    with pytest.raises(ValueError, match=r"sit/joints\.npy"):
        import_recordings(source, tmp_path / "strict", layout="openni_15", strict=True)


def test_folder_refusals(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "in")
    for options, message in (
        ({"subject": "person"}, "does not occur in the file name"),
        ({"subject": "("}, "not a regular expression"),
        ({"coordinates": 4}, "2 or 3"),
        ({"scale": 0.0}, "positive"),
        ({"layout": "kinect"}, "neither a layout"),
    ):
        with pytest.raises(ValueError, match=message):
            import_recordings(source, tmp_path / "out", **{"layout": "openni_15", **options})
    (tmp_path / "empty" / "class").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"has no \.npy, \.csv, \.txt, \.json files"):
        inspect(tmp_path / "empty")
    np.save(source / "sit" / "flat.npy", np.ones((4, 15, 2)))
    with pytest.raises(ValueError, match="differ in their number"):
        import_recordings(source, tmp_path / "out", layout="openni_15")
    assert not (tmp_path / "out").exists()


def test_layouts_from_files(tmp_path: Path) -> None:
    path = tmp_path / "stick.json"
    path.write_text(json.dumps({"joints": ["a", "b", "c"], "edges": [["a", "b"], [1, 2]], "centre": "b"}))
    item = read_layout(path)
    assert item.name == "stick" and item.edges == ((0, 1), (1, 2)) and item.centre == 1
    assert read_layout("kinect_v2") is KINECT_V2 and read_layout(item) is item
    for text, message in (
        ("{", "not valid JSON"),
        ("[]", "must hold an object"),
        ('{"joints": ["a"]}', "needs"),
        ('{"name": "kinect_v2", "joints": ["a"], "edges": []}', "rename it"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_layout(path)


def edit_header(path: Path, **changes: Any) -> None:
    header = json.loads((path / "dataset.json").read_text())
    header.update(changes)
    (path / "dataset.json").write_text(json.dumps(header))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "format"),
        ({"version": 3}, "version 3; this release reads version 2"),
        ({"bodies": [1] * 11}, "11 bodies for 12 samples"),
        ({"bodies": [0] * 12}, "at least one body"),
        ({"bodies": [2] * 12}, "says 156"),
        ({"splits": {"cross_view": ["train"]}}, "1 'cross_view' splits for 12 samples"),
        ({"splits": {"cross_view": ["val"] * 12}}, "splits.cross_view"),
        ({"surplus": 1}, "surplus"),
        ({"labels": [0]}, "1 labels for 12 samples"),
        ({"labels": [3] * 12}, "label 3, but only 3 classes"),
        ({"classes": ["a", "a", "b"]}, "twice"),
        ({"lengths": [0] * 12}, "one frame"),
        ({"lengths": [5] * 12}, "says 60"),
        ({"rate_hz": -1.0}, "rate_hz"),
        ({"skipped": {"empty": 4}}, "do not agree"),
        ({"layout": {"joints": ["a"]}}, "needs"),
        ({"layout": {"name": "kinect_v2", "joints": ["a"], "edges": []}}, "rename it"),
        ({"layout": {"name": "one", "joints": ["a"], "edges": []}}, "1 joints"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    import_recordings(write_npz(tmp_path / "d.npz"), tmp_path / "out", layout="openni_15")
    edit_header(tmp_path / "out", **changes)
    with pytest.raises(ValueError, match=message):
        store.load(tmp_path / "out")


def test_frames_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    import_recordings(write_npz(tmp_path / "d.npz"), out, layout="openni_15")
    whole = (out / "frames.npy").read_bytes()
    frames = np.load(out / "frames.npy")
    broken = frames.copy()
    broken[3, 2, 1] = np.inf
    for array, message in (
        (frames.astype(np.float64), "float64; a store holds float32"),
        (frames[:, 0], "has shape"),
        (frames[:, None], "has shape"),
        (frames[:-1], "says"),
        (broken, "row 3 has a value that is not finite"),
    ):
        np.save(out / "frames.npy", array)
        with pytest.raises(ValueError, match=message):
            store.load(out)
    for content in (whole[:-8], whole[:20], b"", b"PK\x03\x04junk"):
        (out / "frames.npy").write_bytes(content)
        with pytest.raises(ValueError, match="damaged"):
            store.load(out)
    np.save(out / "frames.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="damaged"):
        store.load(out)
    (out / "frames.npy").unlink()
    with pytest.raises(FileNotFoundError, match="fedaction data import"):
        store.load(out)


def test_existing_folders_are_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_npz(tmp_path / "d.npz")
    out = tmp_path / "out"
    import_recordings(source, out, layout="openni_15")
    with pytest.raises(FileExistsError, match="exists already"):
        import_recordings(source, out, layout="openni_15")
    import_recordings(source, out, layout="openni_15", scale=2.0, overwrite=True)
    assert np.allclose(store.load(out).sequences[0], 2 * walk(4, 0))
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="not a skeleton store"):
        import_recordings(source, tmp_path / "mine", layout="openni_15", overwrite=True)

    def fail(*_: object, **__: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(files.json, "dumps", fail)
    with pytest.raises(OSError, match="disk full"):
        import_recordings(source, out, layout="openni_15", overwrite=True)
    with pytest.raises(OSError, match="disk full"):
        import_recordings(source, tmp_path / "new", layout="openni_15")
    monkeypatch.undo()
    assert np.allclose(store.load(out).sequences[0], 2 * walk(4, 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.npz", "mine", "out"]


def make_store(path: Path, people: int = 5, classes: int = 4, repeats: int = 3, subjects: bool = True) -> Path:
    rows = [(p, c) for p in range(people) for c in range(classes) for _ in range(repeats)]
    x = np.concatenate([walk(8, i) for i in range(len(rows))])
    source = path.with_suffix(".npz")
    write_npz(
        source,
        x=x,
        y=np.array([f"c{c}" for _, c in rows]),
        subjects=np.array([f"p{p}" for p, _ in rows]) if subjects else None,
    )
    import_recordings(source, path, layout="openni_15")
    return path


def test_one_client_per_store_with_a_cross_subject_split(tmp_path: Path) -> None:
    paths = [make_store(tmp_path / "a"), make_store(tmp_path / "b", people=4)]
    made = store.clients_from_store(paths, hold_out=["p1", "p3"], frames=10)
    assert [client.info.id for client in made] == ["a", "b"]
    first = made[0]
    assert first.info.shape == (1, 10, 15, 3) and first.info.layout == OPENNI_15
    assert first.info.group == "skeleton" and first.info.samples == len(first.train) == 36
    assert first.info.classes == ("c0", "c1", "c2", "c3")
    assert set(first.test.subjects) == {"p1", "p3"} and set(first.train.subjects) == {"p0", "p2", "p4"}
    item = store.load(paths[0])
    x, _ = prepare(item.sequences, item.layout, 10)
    assert torch.equal(first.train.x, x[[who not in ("p1", "p3") for who in item.subjects]])
    assert first.train.y.dtype == torch.int64
    by_share = store.clients_from_store(paths[0], split=0.3)[0]
    assert not set(by_share.train.subjects) & set(by_share.test.subjects)


@pytest.mark.parametrize("by", ["subject", "dirichlet", "shards", "iid"])
def test_partitioned_clients_hold_every_sample_once_with_labels_that_mean_the_same(tmp_path: Path, by: Any) -> None:
    path = make_store(tmp_path / "a")
    item = store.load(path)
    x, _ = prepare(item.sequences, item.layout, 6)
    label_of = {x[i].numpy().tobytes(): item.classes[label] for i, label in enumerate(item.labels)}
    options: dict[str, Any] = {"by": by, "clients": None if by == "subject" else 3, "frames": 6, "alpha": 1.0}
    made = store.clients_from_store(path, cross_subject=by == "subject", seed=4, **options)
    seen = []
    for client in made:
        labels = set()
        for side in (client.train, client.test):
            assert len(side) > 0
            for sample, label in zip(side.x, side.y.tolist(), strict=True):
                seen.append(sample.numpy().tobytes())
                labels.add(label)
                assert client.info.classes[label] == label_of[seen[-1]]
        assert labels == set(range(len(client.info.classes)))
    assert sorted(seen) == sorted(label_of)
    again = store.clients_from_store(path, cross_subject=by == "subject", seed=4, **options)
    for one, two in zip(made, again, strict=True):
        assert one.info == two.info and torch.equal(one.train.x, two.train.x)


def test_shards_lack_classes_unless_classes_are_shared(tmp_path: Path) -> None:
    path = make_store(tmp_path / "a", subjects=False)
    options: dict[str, Any] = {"by": "shards", "clients": 2, "shards": 1, "frames": 4}
    own = store.clients_from_store(path, **options)
    assert all(len(client.info.classes) == 2 for client in own)
    shared = store.clients_from_store(path, shared_classes=True, **options)
    assert all(client.info.classes == ("c0", "c1", "c2", "c3") for client in shared)
    for one, two in zip(own, shared, strict=True):
        names = [one.info.classes[label] for label in one.train.y]
        assert names == [two.info.classes[label] for label in two.train.y]


def test_client_refusals(tmp_path: Path) -> None:
    path = make_store(tmp_path / "a", people=2, classes=2, repeats=2)
    nameless = make_store(tmp_path / "n", subjects=False)
    (tmp_path / "more").mkdir()
    for paths, options, message in (
        (path, {"hold_out": ["nobody"]}, "nobody in a is called 'nobody'; there are p0, p1"),
        (path, {"hold_out": ["p0", "p1"]}, "leaves nobody to train on in a"),
        (nameless, {"hold_out": 1}, "n does not say who was recorded"),
        (path, {"hold_out": 1.5}, "neither a number of people"),
        (path, {"by": "iid"}, "how many clients"),
        (path, {"by": "random", "clients": 2}, "choose subject"),
        (nameless, {"by": "subject"}, "who performed"),
        ([path, make_store(tmp_path / "more" / "a")], {}, "more than one store is called 'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            store.clients_from_store(paths, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["subject", "iid", "dataset"])
def test_people_are_held_out_of_stores_however_they_are_dealt(tmp_path: Path, by: Any) -> None:
    paths = [make_store(tmp_path / "a", people=4), make_store(tmp_path / "b", people=3)]
    options: dict[str, Any] = {"by": by, "clients": 2 if by == "iid" else None, "frames": 4}
    made = store.clients_from_store(paths, hold_out=1, **options)
    ids = [client.info.id for client in made]
    assert (
        ids
        == {
            "subject": ["a-p0", "a-p1", "a-p2", "b-p0", "b-p1"],
            "iid": ["a-0", "a-1", "b-0", "b-1"],
            "dataset": ["a", "b"],
        }[by]
    )
    for client in made:
        held = "p3" if client.info.id.startswith("a") else "p2"  # each store's own: two p2 are two people
        assert set(client.test.subjects) == {held} and held not in client.train.subjects
        assert client.info.classes == ("c0", "c1", "c2", "c3") and len(client.train)
    apart = store.clients_from_store(paths, hold_out=["a:p0", "b:p1"], **options)
    tests = {client.info.id[0]: set(client.test.subjects) for client in apart}
    assert tests == {"a": {"p0"}, "b": {"p1"}}
    everywhere = store.clients_from_store(paths, hold_out=["p0"], **options)
    assert all(set(client.test.subjects) == {"p0"} for client in everywhere)
    with pytest.raises(ValueError, match=r"holds nobody out of b, so that it has no test; it has p0, p1, p2"):
        store.clients_from_store(paths, hold_out=["p3"], **options)
    share = store.clients_from_store(paths[0], hold_out=0.5, **options)
    assert set(share[0].test.subjects) == {"p2", "p3"}


def test_the_split_is_said_in_a_few_lines(tmp_path: Path) -> None:
    path = make_store(tmp_path / "a", people=4)
    made = store.clients_from_store(path, by="subject", hold_out=1, frames=4)
    assert say_split({client.info.id: client for client in made}).splitlines() == [
        "skeleton: 3 clients (a-p0, a-p1, a-p2), 36 samples to train on",
        "  held out for everybody's test: p3, 12 samples",
    ]
    own = store.clients_from_store(path, by="subject", split=0.5, frames=4)
    assert say_split({client.info.id: client for client in own}).endswith("samples, their own")
    one = store.clients_from_store(path, split=0.25, frames=4)
    assert "held out for everybody's test: p" in say_split({"a": one[0]})
