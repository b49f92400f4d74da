"""Evaluation at a tiny size: networks of width 4 on clips of 4 x 16 x 16 that show a red, green or blue square."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from fedaction.cli.evaluate import evaluate
from fedaction.data.clips.clips import digest_of
from fedaction.data.clips.window import window_of
from fedaction.data.samples import Examples, in_memory
from fedaction.evaluation.knn import knn_accuracy
from fedaction.federation.files import hash_file, read_sealed_json
from fedaction.federation.progress import Quiet
from fedaction.federation.seeds import generator, numpy_generator
from fedaction.federation.settings import RecipeError
from fedaction.models.files import clip_card, load_model, save_model
from fedaction.models.layers import initialise
from fedaction.models.resnet3d import ResNet3D
from fedaction.runs.metrics import read_rows
from fedaction.training.distil import run_distil
from fedaction.training.evaluate import Backbones, EvaluateResult, run_evaluate, splits_of
from fedaction.training.evaluate_recipe import EvaluateRecipe, parse_evaluate_recipe
from fedaction.training.protocols import Features, Protocols, noise_on, score
from tests.training.distilling import recipe_of

CLASSES = ("red", "green", "blue")


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Squares in rooms of any colour, so that a clip's mean colour says little; two clips per recording."""
    folder = tmp_path_factory.mktemp("clips")
    for name, count in (("train", 48), ("test", 48)):
        random = numpy_generator(5, name)
        labels = np.arange(count) // 2 % 3
        rooms = random.integers(0, 160, (count, 1, 1, 1, 3)) + random.integers(-30, 30, (count, 4, 16, 16, 3))
        clips = np.clip(rooms, 0, 255).astype(np.uint8)
        for clip, label in zip(clips, labels, strict=True):
            row, column = random.integers(0, 10, 2)
            clip[:, row : row + 7, column : column + 7] = 255 * np.eye(3, dtype=np.uint8)[label]
        np.save(folder / f"{name}_clips.npy", clips)
        np.save(folder / f"{name}_labels.npy", labels)
        np.save(folder / f"{name}_recordings.npy", np.arange(count) // 2)
    (folder / "classes.json").write_text(json.dumps(CLASSES))
    return folder


@pytest.fixture(scope="module")
def trained(arrays: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model file of a network that learnt the classes."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    values = {"chain": [18], "epochs": 12, "batch_size": 16, "lr_schedule": "cosine", "augment_pad": 1}
    run_distil(recipe_of(arrays, **values, evaluate_every=12, checkpoint_every=12), folder)
    return str(folder / "stage-1-resnet18" / "model.safetensors")


def keys(arrays: Path, **values: Any) -> EvaluateRecipe:
    small = {
        "data": "arrays",
        "arrays": str(arrays),
        "device": "cpu",
        "probe_epochs": 20,
        "finetune_epochs": 3,
    }
    return parse_evaluate_recipe(small | values)


def timeless(result: EvaluateResult) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != "seconds"}


# The protocols


@pytest.mark.slow
def test_a_trained_network_is_better_than_a_random_one(arrays, trained):
    learnt = run_evaluate(trained, keys(arrays))
    random = run_evaluate("random", keys(arrays, width=4, stem="hara", seeds=[0, 1]))
    # Of 24 videos: kinds of processors differ by three of them (0.875 to 1 against 0.65 and 0.73).
    assert learnt["mean"]["R@1"] > 0.1 + random["mean"]["R@1"]
    assert learnt["mean"]["probe_video"] > 0.05 + random["mean"]["probe_video"]
    # Three epochs are too few from random weights: fine-tuning begins with the file's.
    assert learnt["mean"]["finetune_video"] > 0.3 + random["mean"]["finetune_video"]
    assert learnt["std"] is None and random["std"] is not None
    assert random["seeds"]["0"] != random["seeds"]["1"]
    scores = [found["R@1"] for found in random["seeds"].values()]
    assert random["mean"]["R@1"] == pytest.approx(sum(scores) / 2)
    assert random["std"]["R@1"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
    assert list(learnt["mean"]) == [
        *("R@1", "R@5", "R@10", "R@20", "R@50"),
        *("probe_clip", "probe_video", "probe_balanced", "probe_macro_f1"),
        *("finetune_clip", "finetune_video", "finetune_balanced", "finetune_macro_f1"),
    ]
    for result in (learnt, random):
        for protocol in ("probe", "finetune"):  # over seeds and classes
            assert tuple(result["recall"][protocol]) == CLASSES
            mean = sum(result["recall"][protocol].values()) / 3
            assert mean == pytest.approx(result["mean"][f"{protocol}_balanced"])


@pytest.mark.slow
def test_a_probe_on_clips_drawn_anew_trains_the_classifier_alone(arrays, trained, tmp_path):
    """As fine-tuning has its clips; the network, its statistics included, stays as it is."""
    recipe = keys(arrays, protocols=["probe"], probe_clips="drawn", probe_epochs=20, dropout=0.0)
    data = recipe.source.pool(0, whole=True)
    looked_at, tuned_on = splits_of(recipe.settings, data, window_of(data, 0), torch.device("cpu"))
    protocols = Protocols(recipe.settings, looked_at, tuned_on, 3, Quiet())
    backbone = Backbones(trained, recipe.settings).of(0)
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    scores = protocols.probe(Features(protocols, lambda: backbone), 0, tmp_path / "probe", "")
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())
    rows = read_rows(tmp_path / "probe" / "metrics.jsonl")
    losses = [row.value for row in rows if (row.split, row.name) == ("train", "loss")]
    rates = [row.value for row in rows if (row.split, row.name) == ("train", "lr")]
    assert len(losses) == 20 and sum(losses[-5:]) < sum(losses[:5])
    assert (rates[0], rates[-1]) == pytest.approx((0.01, 0.0001))
    recall, again = scores.pop("probe_drawn_recall"), run_evaluate(trained, recipe)
    recall = dict(zip(CLASSES, recall, strict=True))
    assert scores == again["seeds"]["0"] and again["recall"] == {"probe_drawn": recall}
    # Beside each other, they are what each is alone.
    fixed = run_evaluate(trained, keys(arrays, protocols=["probe"], dropout=0.0))
    both = run_evaluate(trained, keys(arrays, protocols=["probe"], probe_clips="both", dropout=0.0))
    assert both["seeds"]["0"] == {**fixed["seeds"]["0"], **scores} and len(both["seeds"]["0"]) == 8
    assert both["recall"] == {**fixed["recall"], "probe_drawn": recall}


def test_a_result_says_what_it_is_of_and_is_the_same_twice(arrays, trained, tmp_path):
    recipe = keys(arrays, probe_epochs=2, finetune_epochs=1, seeds=[3])
    result = run_evaluate(trained, recipe, tmp_path / "new" / "result.json")
    again = run_evaluate(trained, recipe)
    assert timeless(result) == timeless(again)
    assert read_sealed_json(tmp_path / "new" / "result.json") == json.loads(json.dumps(result))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["result.json"]
    data = recipe.source.pool(0, whole=True)
    network = load_model(trained)[0]
    assert network.classifier is not None
    heads = sum(weight.numel() for weight in network.classifier.parameters())
    assert result["model"]["sha256"] == hash_file(Path(trained))
    assert result["model"]["parameters"] == sum(weight.numel() for weight in network.parameters()) - heads
    assert result["data"]["sha256"] == digest_of(data) and result["data"]["recordings"] == [24, 24]
    assert result["recipe"]["seeds"] == (3,) and list(result["seeds"]) == ["3"]


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_retrieval_is_of_recordings(arrays, trained, pooling):
    """The whole way again with other functions: k-NN with one neighbour is R@1."""
    recipe = keys(arrays, protocols=["retrieval"], pooling=pooling, feature_batch=7, retrieval_ks=[1], crop=14)
    found = run_evaluate(trained, recipe)["mean"]
    network, data = load_model(trained)[0], recipe.source.pool(0)
    means: list[torch.Tensor] = []
    for split in map(in_memory, (data.train, data.test)):
        with torch.no_grad():
            last = network(split.x[:, :, 1:15, 1:15], leave=5)  # 48, 1, 1, 1, 32
        assert last.shape[1:4] == (1, 1, 1) and split.recording is not None  # so that both poolings are the same
        numbers = split.recording.unique()
        means.append(torch.stack([last.flatten(1)[split.recording == r].double().mean(0) for r in numbers]))
    labels = data.train.labels[::2], data.test.labels[::2]
    assert found == {"R@1": pytest.approx(knn_accuracy(means[0], labels[0], means[1], labels[1]))}


def test_videos_are_judged_by_the_mean_of_logits():
    """One clip is very sure of class 0 in logits, two clips are fairly sure of class 1."""
    logits = torch.tensor([[9.0, 0.0], [0.0, 3.0], [0.0, 3.0]])
    x, y = torch.zeros(3, 1, 1, 1, 3, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)
    clips = Examples(x, y, recording=torch.tensor([4, 4, 4]))
    by_logits, by_probabilities = score(logits, clips, "logits"), score(logits, clips, "probabilities")
    assert (by_logits.video, by_probabilities.video) == (1.0, 0.0)
    assert by_logits.clip == by_probabilities.clip == pytest.approx(1 / 3)


def test_the_whole_network_is_evaluated_with_standard_strides(arrays, tmp_path):
    """Stages that were frozen learn again, and CtP's strides are put right unless they are asked for."""
    network = ResNet3D(18, 5, 4, stem_frames=3, pool=False, frozen=6, image_strides=(1, 2, 2, 1))
    for name, part in network.named_modules():
        initialise(part, generator(0, name))
    card = clip_card(classes=tuple("abcde"), frames=8, resize=16, crop=16)
    save_model(tmp_path / "model.safetensors", network, card)
    model = str(tmp_path / "model.safetensors")
    for strides, expected in (("standard", (1, 2, 2, 2)), ("own", (1, 2, 2, 1)), ("ctp", (1, 2, 2, 1))):
        backbone = Backbones(model, keys(arrays, strides=strides).settings).of(0)
        assert (backbone.arguments["image_strides"], backbone.frozen) == (expected, 0)
        assert backbone.classifier is None and not backbone.training
        assert all(torch.equal(weight, network.state_dict()[name]) for name, weight in backbone.state_dict().items())
    random = Backbones("random", keys(arrays, strides="ctp", width=4).settings).of(0)
    assert random.arguments["image_strides"] == (1, 2, 2, 1)
    heard: list[str] = []

    class Hearing(Quiet):
        def tell(self, message: str) -> None: ...

        def warn(self, message: str) -> None:
            heard.append(message)

    run_evaluate(model, keys(arrays, protocols=["retrieval"]), progress=Hearing())
    # Its last map is 2 x 2, so that poolings differ; the probe looks at the mean whatever retrieval looks at.
    values = {"protocols": ["retrieval", "probe"], "strides": "own", "retrieval_ks": [1, 2, 3]}
    mean, largest = (run_evaluate(model, keys(arrays, **values, pooling=p))["mean"] for p in ("mean", "max"))
    assert mean["probe_video"] == largest["probe_video"] and mean != largest
    assert heard == ["the clips have 4 frames of 16 x 16 pixels; the network was trained on 8 of 16 x 16"]


# Noise on the weights


def test_retrieval_under_noise(arrays, trained):
    levels = [0.0, 2.0, 1e4]  # at 2 noise outweighs what was learnt by far, on any processor
    values = {"protocols": ["retrieval"], "perturb": True, "perturb_levels": levels, "perturb_draws": 2}
    result = run_evaluate(trained, keys(arrays, **values))
    found = {(item["kind"], item["level"]): item for item in result["perturb"]}
    assert list(found) == [(kind, level) for kind in ("absolute", "filter") for level in levels]
    for kind in ("absolute", "filter"):
        none, some = found[kind, 0.0], found[kind, 2.0]
        assert none["mean"] == result["mean"]["R@1"] and none["std"] == 0.0 and none["lost"] == 0.0
        assert some["mean"] < none["mean"] and some["draws"] == 2
    # 17 layers with 10,000 times the noise leave float32: all recordings are alike, and the first one is found.
    assert found["absolute", 1e4]["lost"] == 1.0
    assert found["absolute", 1e4]["mean"] == pytest.approx(1 / 3)


def test_noise_leaves_buffers_alone_and_knows_filters(trained):
    network = load_model(trained)[0]
    weights, names = network.state_dict(), {name for name, _ in network.named_parameters()}
    plain, scaled = (noise_on(weights, names, kind, 1, 0) for kind in ("absolute", "filter"))
    assert plain.keys() == names and scaled.keys() < names
    assert torch.cat([noise.flatten() for noise in plain.values()]).std() == pytest.approx(1.0, abs=0.01)
    for name, noise in scaled.items():
        torch.testing.assert_close(noise.flatten(1).norm(dim=1), weights[name].flatten(1).norm(dim=1))
    assert not torch.equal(plain["conv1.weight"], noise_on(weights, names, "absolute", 1, 1)["conv1.weight"])
    assert torch.equal(plain["conv1.weight"], noise_on(weights, names, "absolute", 1, 0)["conv1.weight"])


# Keys and the command


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"poling": "max"}, "there is no key 'poling'; did you mean 'pooling'?"),
        ({"pooling": "median"}, "pooling: Input should be 'mean' or 'max'"),
        ({"protocols": []}, "at least 1 item"),
        ({"protocols": ["probe", "probe"]}, "protocols: one is named twice"),
        ({"depth": 20}, "there is no ResNet-20"),
        ({"width": True}, "width is not a yes-or-no key"),
        ({"data": "array"}, "did you mean 'arrays'?"),
        ({"seeds": {"a": 1}}, "a recipe is flat"),
        ({"retrieval_ks": [0]}, "greater than 0"),
    ],
)
def test_keys_that_cannot_be_used_say_why(values, message):
    with pytest.raises(RecipeError, match=message):
        keys(Path("x"), **values)


def test_the_papers_schedules_are_the_defaults():
    settings = parse_evaluate_recipe({}).settings
    tuning = settings.finetuning("fp32")
    assert [share * tuning.epochs[0] for share in tuning.lr_milestones] == [60, 120]
    assert [share * settings.probe_epochs for share in settings.probe_milestones] == [60, 80]
    assert (tuning.lr, tuning.momentum, tuning.weight_decay, tuning.batch_size) == (0.01, 0.9, 5e-4, 32)


def test_a_diverging_network_is_named(arrays, trained):
    with pytest.raises(ValueError, match=r"diverged in epoch 1.*finetune_lr"):
        run_evaluate(trained, keys(arrays, protocols=["finetune"], finetune_lr=1e30))
    with pytest.raises(ValueError, match="the classifier diverged; lower probe_lr"):
        run_evaluate(trained, keys(arrays, protocols=["probe"], probe_lr=1e38, weight_decay=0.1))


def test_the_command(arrays, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(evaluate)
    Path("keys.toml").write_text(f'data = "arrays"\narrays = {json.dumps(str(arrays))}\nprobe_epochs = 2\n')
    assert tomllib.loads(Path("keys.toml").read_text())["probe_epochs"] == 2
    base = ["--recipe", "keys.toml", "--device", "cpu"]

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, [*arguments, *base], env={"COLUMNS": "200"})

    shown = run(trained, "--protocols", "retrieval, probe", "--seeds", "0,1", "--out", "found", "--perturb")
    assert shown.exit_code == 0, shown.output
    assert "retrieval R@50 (any, mean)" in shown.stdout and "linear probe, per video" in shown.stdout
    assert "absolute" in shown.stdout and "0.5" in shown.stdout and "found/result.json" in shown.stdout
    assert "probe, seed 1: 2 of 2" in shown.stderr
    assert json.loads(Path("found/result.json").read_text())["std"]["R@1"] == 0.0
    said = run("random", "--depth", "18", "--width", "4", "--protocols", "retrieval", "--json")
    result = json.loads(said.stdout)
    assert result["model"]["sha256"] is None and result["model"]["arguments"]["width"] == 4
    for arguments, message in (
        ([trained, "--out", "keys.toml"], "keys.toml is a file; --out takes a directory"),
        ([trained, "--out", "."], "is not empty and holds no evaluation"),
        ([trained, "--out", "found", "--set", "probe_lr=0.5"], "was begun with probe_lr = 0.01, but now it is 0.5"),
        (["absent.safetensors"], "there is no model file absent.safetensors"),
        (["keys.toml"], "is not a .safetensors file"),
        ([trained, "--width", "4"], "width: only for 'random' weights"),
        ([trained, "--protocols", "retrieve"], "Input should be 'retrieval', 'probe' or 'finetune'"),
        ([trained, "--seeds", "0,0"], "seeds: one is named twice"),
        ([trained, "--set", "crop=20"], "crop = 20, but frames are 16 x 16 pixels"),
        ([trained, "--set", "precision=bf16"], "needs a GPU"),
        ([trained, "--set", "arrays=nowhere"], "there is no folder nowhere"),
    ):
        refused = run(*arguments)
        assert refused.exit_code == 2 and message in refused.stderr, refused.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_in_bfloat16(arrays, trained):
    on_cpu = run_evaluate(trained, keys(arrays, protocols=["retrieval"]))["mean"]
    on_gpu = run_evaluate(trained, keys(arrays, device="cuda"))["mean"]
    assert on_gpu["R@1"] == pytest.approx(on_cpu["R@1"], abs=0.1)
    assert on_gpu["finetune_video"] > 0.6
