"""What mutants found, one by one, so that it stays mended whatever the mutator does later."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.features.store import load_features
from fedaction.data.files import read_npz
from fedaction.data.store import load
from fedaction.engines.flower.keys import KeyFileError, read_key
from fedaction.training.distil_recipe import load_distil_recipe
from tests.fuzz import kept, samples, sets
from tests.fuzz.run import MOST_MESSAGE

LONG = "x" * 5000


def put(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def spoil(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


REFUSED: dict[str, tuple[Callable[[Path], object], Callable[[Path], object], Callable[[Path], object]]] = {
    "a list with a zero in a name": (sets.make_ucf, spoil("trainlist01.txt", "_g01", "\0g01"), sets.read_ucf),
    "a list with a long name": (sets.make_hmdb, spoil("run_test_split1.txt", "cm_1", LONG), sets.read_hmdb),
    "a list with a long line": (sets.make_ucf, spoil("classInd.txt", "2 Bowling", LONG), sets.read_ucf),
    "a class with a bell": (sets.make_kinetics, spoil("kinetics400.csv", "zumba", "zum\x07"), sets.read_kinetics),
    "a source of clips with a long name": (
        samples.make_recipe("edge/distil"),
        spoil("a.toml", '"stage_video"', f'"stage{LONG}"'),
        samples.at("a.toml", load_distil_recipe),
    ),
    "a version of many digits": (
        samples.make_store,
        lambda folder: put(folder / "dataset.json", version=10**4000),
        load,
    ),
    "a length of many digits": (
        samples.make_store,
        lambda folder: put(folder / "dataset.json", lengths=[6, 6, 6, 10**4000]),
        load,
    ),
    "a label of many digits": (
        samples.make_features,
        lambda folder: put(folder / "features.json", labels=[0, 1, 0, 10**4000]),
        load_features,
    ),
    "labels with a zero in their header": (
        sets.make_stanford,
        spoil("v_labels.csv", "start", "\0start"),
        sets.read_stanford,
    ),
    "a record of what ran on what, as a list": (
        kept.make_environment,
        spoil("environment.json", '"torch"', '"other"'),
        kept.read_machine,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_in_one_line(tmp_path: Path, what: str) -> None:
    make, change, read = REFUSED[what]
    make(tmp_path)
    read(tmp_path)
    change(tmp_path)
    with pytest.raises(ValueError) as refusal:
        read(tmp_path)
    assert str(refusal.value).isprintable() and len(str(refusal.value)) < MOST_MESSAGE


def test_a_network_whose_names_are_noise_is_refused_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    samples.make_onnx(tmp_path)
    blob = (tmp_path / "a.onnx").read_bytes()
    (tmp_path / "a.onnx").write_bytes(blob.replace(b"recordings", b"rec\x7frdings", 1))
    with pytest.raises(ValueError) as refusal:
        sets.read_extractor(tmp_path)
    assert str(refusal.value).isprintable()


def test_a_modality_that_cannot_be_printed_is_refused_in_one_line(tmp_path: Path) -> None:
    arrays = {"x": np.ones((2, 3)), "y": np.arange(2), "client": np.array(["a", "\0" * 3000 + "b"])}
    np.savez(tmp_path / "a.npz", **arrays, modality=np.array(["image", "im\0ge" + LONG]))  # pyright: ignore
    with pytest.raises(ValueError) as refusal:
        sets.read_ego_exo(tmp_path)
    assert str(refusal.value).isprintable() and len(str(refusal.value)) < MOST_MESSAGE


@pytest.mark.parametrize("order", "<>")
def test_texts_of_characters_that_there_are_not_are_refused(tmp_path: Path, order: str) -> None:
    names = np.array(["a", "b"]).astype(f"{order}U1")
    np.savez(tmp_path / "a.npz", names=names)
    assert read_npz(tmp_path / "a.npz")[0]["names"].tolist() == ["a", "b"]
    np.savez(tmp_path / "a.npz", names=np.full(2, 0x01000069, f"{order}u4").view(f"{order}U1"))
    with pytest.raises(ValueError, match="characters that there are not"):
        read_npz(tmp_path / "a.npz")


def test_news_that_are_none_are_passed_over(tmp_path: Path) -> None:
    kept.make_news(tmp_path)
    path = tmp_path / kept.NEWS
    whole = path.read_bytes().splitlines(keepends=True)
    torn = [b'{"time": 1, "pi', b"[" * 100_000 + b"\n", b'{"kind": "done"}\n', b"[]\n", b"\xff\n"]
    path.write_bytes(b"".join([whole[0], *torn[1:], *whole[1:], torn[0] + whole[0]]))
    assert [line["kind"] for line in kept.read_news(tmp_path)] == ["start", "round", "tell", "warn", "done"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("scores", [None, [], {"a": None}, {"a": {}}, {"a": {"accuracy": "0.5"}}, {"a": [0.5]}])
def test_controls_of_another_shape_are_not_there(tmp_path: Path, scores: object) -> None:
    kept.make_controls(tmp_path)
    path = tmp_path / "controls.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "ridge": scores or {"a": 1}}))
    assert kept.read_controls(tmp_path) == (False, {}, {})


def test_a_model_whose_name_no_file_can_have_is_not_there(tmp_path: Path) -> None:
    kept.make_models(tmp_path)
    spoil("models.json", "models/clients/a", LONG)(tmp_path)
    assert kept.read_models(tmp_path)[0] is False  # type: ignore[index]


def test_a_key_of_a_long_kind_is_refused_in_a_short_line(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    (tmp_path / "a.pub").write_text(f"ssh-{LONG} AAAA name\n")
    with pytest.raises(KeyFileError) as refusal:
        read_key(tmp_path / "a.pub")
    assert str(refusal.value).isprintable() and len(str(refusal.value)) < MOST_MESSAGE
