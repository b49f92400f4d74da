"""Evaluation of recordings that are longer than a clip, into a directory that can be resumed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaction.data.clips.window import window_of
from fedaction.data.samples import in_memory
from fedaction.evaluation.retrieval import retrieval
from fedaction.federation.files import read_sealed_json
from fedaction.federation.progress import Quiet
from fedaction.federation.seeds import generator, numpy_generator
from fedaction.models.files import clip_card, save_model
from fedaction.models.layers import initialise
from fedaction.models.resnet3d import ResNet3D
from fedaction.training.evaluate import Backbones, EvaluateResult, run_evaluate, splits_of
from fedaction.training.evaluate_recipe import EvaluateRecipe, parse_evaluate_recipe
from fedaction.training.protocols import Protocols
from tests.conftest import few

CLASSES = ("left", "right", "still")


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of 13 frames: a bright bar moves left, right or not at all, with breaks in which nothing moves."""
    folder = tmp_path_factory.mktemp("recordings")
    for name, count in (("train", 15), ("test", 12)):
        random = numpy_generator(4, name)
        labels = np.arange(count) % 3
        clips = random.integers(0, 60, (count, 13, 16, 16, 3), dtype=np.uint8)
        for clip, label in zip(clips, labels, strict=True):
            for frame, place in enumerate(int(random.integers(16)) + np.arange(13) * (-1, 1, 0)[label]):
                clip[frame, :, place % 16] = 250
        np.save(folder / f"{name}_clips.npy", clips)
        np.save(folder / f"{name}_labels.npy", labels)
    (folder / "classes.json").write_text(json.dumps(CLASSES))
    return folder


def keys(arrays: Path, **values: Any) -> EvaluateRecipe:
    small = {"data": "arrays", "arrays": str(arrays), "device": "cpu", "width": 2, "clip_frames": 4, "clips": 3}
    small |= {"probe_epochs": 3, "finetune_epochs": 4, "checkpoint_every": 1, "batch_size": 6, "feature_batch": 7}
    return parse_evaluate_recipe(small | values)


class Stopping(Quiet):
    """Interrupts after some steps of a part."""

    def __init__(self, label: str, at: int) -> None:
        self._label, self._at = label, at

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        if label.startswith(self._label) and done == self._at:
            raise KeyboardInterrupt


class Hearing(Quiet):
    """Notes where protocols begin."""

    def __init__(self) -> None:
        self.begun: dict[str, int] = {}

    def start(self, label: str, done: int, total: int, *, unit: str = "", metric: str = "") -> None:
        self.begun[label] = done


def saved(path: Path, seed: int) -> str:
    network = ResNet3D(18, 0, 2, stem_frames=3, pool=False, eps=1e-3)
    for name, part in network.named_modules():
        initialise(part, generator(seed, name))
    save_model(path, network, clip_card(classes=(), frames=4, resize=16, crop=16))
    return str(path)


# Clips of recordings


def test_features_are_means_over_clips_that_are_spread_over_a_recording(arrays):
    recipe = keys(arrays, protocols=["retrieval"], retrieval_ks=[1, 3], clip_stride=2)
    found = run_evaluate("random", recipe)
    network, data = Backbones("random", recipe.settings).of(0), recipe.source.pool(0)
    means: list[torch.Tensor] = []
    for split in map(in_memory, (data.train, data.test)):
        with torch.no_grad():  # four frames at stride 2 span seven: the first begins at 0, the last at 6
            clips = [network(split.x[:, start : start + 7 : 2], output="pooled") for start in (0, 3, 6)]
        means.append(torch.stack(clips).double().mean(0))
    expected = retrieval(means[0], data.train.labels, means[1], data.test.labels, [1, 3])
    assert found["mean"] == {f"R@{k}": value for k, value in expected.items()}
    assert found["data"]["clips"] == [45, 36] and found["data"]["recordings"] == [15, 12]
    assert found["data"]["frames"] == 4


def test_clips_are_no_longer_than_recordings(arrays):
    recipe = keys(arrays, protocols=["retrieval"], clip_frames=16)
    assert run_evaluate("random", recipe)["data"]["frames"] == 13


def test_fine_tuning_sees_other_clips_in_each_epoch_and_is_tested_on_several(arrays):
    settings = keys(arrays).settings
    data = keys(arrays).source.pool(0, whole=True)
    looked_at, tuned_on = splits_of(settings, data, window_of(data, 14), torch.device("cpu"))
    assert (len(looked_at.train), len(tuned_on.train), len(tuned_on.test)) == (45, 15, 36)
    assert tuned_on.train.fresh and not tuned_on.test.fresh
    assert tuned_on.train.spans.stride.tolist() == [2] * 15 and looked_at.train.spans.stride.tolist() == [1] * 45
    every = torch.arange(15)
    first, second = (tuned_on.train.draw(every, generator(0, "windows", 18, epoch)) for epoch in (1, 2))
    assert not torch.equal(first, second) and int(first.max()) <= 6
    assert tuned_on.augmentation is not None and tuned_on.augmentation.size == 14
    # Without it, clips are cut from the middle; with it, other ones are learnt from.
    plain, changed = (
        run_evaluate("random", keys(arrays, protocols=["finetune"], augment=on)) for on in (False, True)
    )
    assert plain["recipe"]["augment"] is False and plain["seeds"] != changed["seeds"]


# Going on


@pytest.fixture(scope="module")
def whole(arrays: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[EvaluateResult, Path]:
    """An evaluation that was not interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return run_evaluate("random", twice(arrays), folder=folder), folder


def twice(arrays: Path) -> EvaluateRecipe:
    return keys(arrays, seeds=[0, 1], perturb=True, perturb_levels=[0.2], perturb_draws=1, dropout=0.3)


@pytest.mark.parametrize(("part", "at"), few([("features", 3), ("probe", 2), ("fine-tuning", 3)], ("fine-tuning", 3)))
def test_an_evaluation_that_was_interrupted_ends_as_if_it_had_not_been(arrays, whole, tmp_path, part, at):
    expected, folder = whole
    with pytest.raises(KeyboardInterrupt):
        run_evaluate("random", twice(arrays), progress=Stopping(f"{part}, seed 1", at), folder=tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()
    hearing = Hearing()
    result = run_evaluate("random", twice(arrays), progress=hearing, folder=tmp_path / "run")
    assert hearing.begun["fine-tuning, seed 1"] == (3 if part == "fine-tuning" else 0)
    assert not {"features, seed 0", "fine-tuning, seed 0"} & {*hearing.begun}
    assert {**result, "seconds": 0} == {**expected, "seconds": 0}
    for seed in (0, 1):
        table = f"seed-{seed}/finetune/metrics.jsonl"
        assert (tmp_path / "run" / table).read_bytes() == (folder / table).read_bytes()
        assert not (tmp_path / "run" / f"seed-{seed}" / "finetune" / "checkpoints").exists()


def test_what_is_kept_is_what_is_found_without_a_directory(arrays, whole):
    assert run_evaluate("random", twice(arrays))["seeds"] == whole[0]["seeds"]
    assert read_sealed_json(whole[1] / "result.json") == json.loads(json.dumps(whole[0]))


def test_what_is_done_is_not_done_again(arrays, tmp_path, monkeypatch):
    first = run_evaluate("random", keys(arrays, protocols=["retrieval", "probe"]), folder=tmp_path / "run")

    def again(*_: Any) -> None:
        raise AssertionError("done again")

    monkeypatch.setattr(Protocols, "retrieval", again)
    monkeypatch.setattr(Protocols, "probe", again)
    # Protocols and seeds may be added; the rest must stay as it was.
    result = run_evaluate("random", keys(arrays), folder=tmp_path / "run")
    assert {**first["mean"], **result["mean"]} == result["mean"] and "finetune_video" in result["mean"]
    monkeypatch.setattr(Protocols, "finetune", again)
    repeated = run_evaluate("random", keys(arrays), folder=tmp_path / "run")
    assert {**repeated, "environment": None} == {**result, "environment": None}


def test_another_network_or_set_or_key_is_refused(arrays, tmp_path):
    models = [saved(tmp_path / f"{seed}.safetensors", seed) for seed in (0, 1)]

    def run(model: str, folder: str = "run", **values: Any) -> Any:
        recipe = parse_evaluate_recipe(
            {"data": "arrays", "arrays": str(arrays), "device": "cpu", "clip_frames": 4, "protocols": ["retrieval"]}
            | values
        )
        return run_evaluate(model, recipe, folder=tmp_path / folder)

    run(models[0])
    run(models[0], checkpoint_every=9, seeds=[0, 3])
    with pytest.raises(ValueError, match=r"was begun with model \(SHA-256\) = .* but now it is .*another directory"):
        run(models[1])
    with pytest.raises(ValueError, match="was begun with clips = 10, but now it is 3"):
        run(models[0], clips=3)
    other = np.load(arrays / "test_clips.npy")
    (tmp_path / "arrays").mkdir()
    for path in arrays.iterdir():
        (tmp_path / "arrays" / path.name).write_bytes(path.read_bytes())
    other[0, 0, 0, 0, 0] ^= 1
    np.save(tmp_path / "arrays" / "test_clips.npy", other)
    with pytest.raises(ValueError, match=r"was begun with recordings \(SHA-256\)"):
        run(models[0], arrays=str(tmp_path / "arrays"))
    part = tmp_path / "run" / "seed-0" / "retrieval.json"
    whole, digits = part.read_text(), re.sub(r'("R@1": )[\d.]+', r"\g<1>0.123", part.read_text())
    values = ('null, "seconds": 1', '{"R@1": "x"}, "seconds": 1', '{}, "seconds": "x"')
    for text in ("[]", "{", digits, *(f'{{"value": {value}}}' for value in values)):
        part.write_text(text)
        with pytest.raises(ValueError, match="is not what an evaluation wrote; remove it"):
            run(models[0])
    part.write_text(whole)
    run(models[1], "other")
    part.write_bytes((tmp_path / "other" / "seed-0" / "retrieval.json").read_bytes())
    with pytest.raises(ValueError, match="is of another evaluation; remove it"):
        run(models[0])
    part.unlink()
    run(models[0])
    assert json.loads(part.read_text())["value"] == json.loads(whole)["value"]
    (tmp_path / "run" / "evaluation.json").write_text("[]")
    with pytest.raises(ValueError, match="is not what an evaluation wrote; choose another"):
        run(models[0])
    with pytest.raises(ValueError, match="is not empty and holds no evaluation"):
        run(models[0], "arrays")
