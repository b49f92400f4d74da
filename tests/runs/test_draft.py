"""Recipes that are drafted for one's own data: what they choose, and that they run."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.data.features import save_features
from fedaction.data.features.store import FeatureSet, Modality
from fedaction.data.layout import layout
from fedaction.data.samples import in_memory
from fedaction.data.signals.store import SignalWriter
from fedaction.data.store import StoreWriter
from fedaction.federation.seeds import numpy_generator
from fedaction.runs.draft import KINDS, _schedule, draft_recipe
from fedaction.runs.recipe import load_recipe, parse_recipe
from fedaction.runs.study import load_clients
from fedaction.stage import stage_federation
from tests.conftest import make_client

TINY = ["rounds=1", "controls=[]", "workers=1", "device=cpu"]
SMALL_SKELETONS = ["model_width=4", "model_units=[1, 1, 1]", "model_projection=4", "frames=8"]


def skeletons(out: Path, joints: str, seed: int, samples: int = 24, people: int = 3, splits: bool = False) -> Path:
    """A store that the stage has made: three actions, by so many people, of whom 0 are named."""
    [client] = stage_federation(
        clients=1, layouts=[joints], train=[samples], test=1, actions=[3], seed=seed, frames=10
    )
    train = in_memory(client.train)
    with StoreWriter(out, layout=layout(joints), classes=client.info.classes) as writer:
        for i in range(samples):
            side = {"cross_subject": "test" if i % people == 0 else "train"} if splits else None
            who = f"p{i % people}" if people else ""
            writer.add(train.x[i].numpy(), label=int(train.y[i]), name=f"take-{i}", subject=who, splits=side)
        writer.finish()
    return out


def features(out: Path, modality: Modality, people: list[str], samples: int = 48) -> Path:
    rng = numpy_generator(0, "tests", out.name)
    labels = np.arange(samples) % 3
    values = (rng.standard_normal((samples, 8)) + labels[:, None]).astype(np.float32)
    who = tuple(people[i // 3 % len(people)] for i in range(samples)) if people else ()
    names = tuple(f"take-{i}" for i in range(samples))
    classes = ("sit", "walk", "wave")
    made = FeatureSet(
        modality, values, labels.astype(np.int64), classes, who, names, {"extractor": {"name": "tests"}}
    )
    save_features(made, out)
    return out


def fedaction(*words: str | Path) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_two_sites_with_two_layouts_get_fsar_and_hold_out_people_and_the_recipe_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    skeletons(Path("clinic"), "kinect_v2", 1)
    skeletons(Path("studio"), "openni_15", 2)
    said = json.loads(fedaction("init", "clinic", "studio", "--out", "mine.toml", "--json"))
    assert [client["client"] for client in said["clients"]] == ["clinic", "studio"]
    text = (tmp_path / "mine.toml").read_text()
    keys = tomllib.loads(text)
    assert (keys["method"], keys["store_paths"], keys["test_share"]) == ("fsar", ["clinic", "studio"], 0.3)
    assert "store_by" not in keys and keys["rounds"] == 80 and keys["batch_size"] == 16
    for words in ("24 recordings, 3 classes, 3 people, openni_15", "Hold-out subjects", '# stop = "converged"'):
        assert words in text
    for client in load_clients(load_recipe("mine.toml")).values():
        assert not set(client.train.subjects) & set(client.test.subjects)
    options = [word for key in (*TINY, *SMALL_SKELETONS) for word in ("--set", key)]
    ran = json.loads(fedaction("run", "mine.toml", "--out", "run", "--json", *options))
    assert ran["complete"] and set(ran["clients"]) == {"clinic", "studio"} and set(ran["baselines"]) == {"fedavg"}


def test_what_a_draft_proposes_in_its_comments_works(tmp_path):
    stores = [skeletons(tmp_path / "clinic", "kinect_v2", 1), skeletons(tmp_path / "studio", "openni_15", 2)]
    text = draft_recipe(stores, "mine").text
    lines = [line.removeprefix("# ") for line in text.splitlines() if line.startswith(("# validation", "# stop"))]
    assert len(lines) == 2
    recipe = parse_recipe(tomllib.loads(text) | tomllib.loads("\n".join(lines)))
    assert (recipe.run.validation, recipe.run.stop) == (0.2, "converged")


def test_one_dataset_is_dealt_by_person_or_where_nobody_is_named_in_shares(tmp_path):
    named = draft_recipe([skeletons(tmp_path / "named", "kinect_v2", 1, people=3)], "mine")
    keys = tomllib.loads(named.text)
    assert (keys["store_by"], keys["hold_out"]) == ("subject", 1) and len(named.clients) == 2
    assert {*named.clients[0].test.subjects} == {"p2"} == {*named.clients[1].test.subjects}
    nameless = draft_recipe([skeletons(tmp_path / "nameless", "kinect_v2", 1, people=0)], "mine")
    keys = tomllib.loads(nameless.text)
    assert (keys["store_by"], keys["store_clients"], len(nameless.clients)) == ("iid", 4, 4)


def test_splits_of_the_datasets_are_used_where_all_have_one(tmp_path):
    stores = [skeletons(tmp_path / name, "kinect_v2", n, splits=True) for n, name in enumerate(("one", "two"))]
    assert tomllib.loads(draft_recipe(stores, "mine").text)["store_protocol"] == "cross_subject"


PEOPLE = [f"p{number}" for number in range(8)]


@pytest.mark.parametrize(
    ("people", "method", "expected"),
    [
        ([PEOPLE, PEOPLE], "fdarn", {"feature_by": "subject", "hold_out": 2}),
        ([PEOPLE[:4], PEOPLE[4:]], "fdarn", {"feature_by": "subject", "test_share": 0.25}),
        ([[], PEOPLE], "fdarn", {"feature_by": "equal", "feature_deal": "all", "feature_clients": 4}),
        ([PEOPLE], "fedavg", {"feature_by": "subject", "hold_out": 2}),
    ],
)
def test_features_get_a_method_by_their_modalities_and_run(tmp_path, monkeypatch, people, method, expected):
    monkeypatch.chdir(tmp_path)
    kinds: list[Modality] = ["inertial", "audio"]
    stores = [features(Path(kind), kind, who) for kind, who in zip(kinds, people, strict=False)]
    fedaction("init", *stores)
    keys = tomllib.loads((tmp_path / "my.toml").read_text())
    assert keys["method"] == method and expected.items() <= keys.items()
    options = [
        word for key in (*TINY, "model_features=8", "model_hidden=8", "baselines=[]") for word in ("--set", key)
    ]
    assert json.loads(fedaction("run", "my.toml", "--out", "run", "--json", *options))["complete"]


def test_what_is_no_store_and_what_does_not_mix_is_refused_and_nothing_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    skeletons(Path("clinic"), "kinect_v2", 1)
    features(Path("watch"), "inertial", PEOPLE)
    Path("empty").mkdir()
    for stores, words in (
        (["empty"], "empty is no store: `fedaction data import`"),
        (["clinic", "watch"], "not clinic (skeleton stores) and watch (feature stores)"),
    ):
        result = CliRunner().invoke(app, ["init", *stores])
        assert result.exit_code == 2 and words in " ".join(result.stderr.split())
        assert not Path("my.toml").exists()
    Path("my.toml").write_text("mine")
    result = CliRunner().invoke(app, ["init", "clinic"])
    assert result.exit_code == 2 and "my.toml exists" in result.stderr and Path("my.toml").read_text() == "mine"


def test_a_name_with_a_line_break_cannot_add_a_key(tmp_path):
    store = skeletons(tmp_path / 'a\nrounds = 1\n"x', "kinect_v2", 1)
    draft = draft_recipe([store], "my\nlr = 9")
    keys = tomllib.loads(draft.text)
    assert keys["rounds"] == 80 and keys["lr"] == 0.01 and keys["store_paths"] == [store.as_posix()]


@pytest.mark.parametrize(
    ("samples", "batch", "epochs"), [(60, 16, 8), (107, 32, 8), (270, 32, 4), (431, 32, 3), (5000, 64, 1)]
)
def test_a_schedule_gives_the_middle_client_the_steps_that_were_measured(samples, batch, epochs):
    clients = [make_client(number) for number in range(3)]
    sizes = (9, samples, 10**6)
    sized = [replace(c, info=replace(c.info, samples=n)) for c, n in zip(clients, sizes, strict=True)]
    assert _schedule(sized, 2880, 80) == (samples, batch, 80, epochs)


def test_every_kind_of_store_has_a_name_of_its_own():
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_signals_are_averaged_and_two_devices_get_fdarn(tmp_path):
    for device, channels in (("watch", 3), ("phone", 6)):
        rng = numpy_generator(0, "tests", device)
        with SignalWriter(tmp_path / device) as writer:
            for n in range(24):
                values = rng.standard_normal((96, channels)).astype(np.float32)
                writer.add(values, label=("sit", "walk", "wave")[n % 3], name=f"take-{n}", subject=f"p{n // 6}")
            names = [f"c{n}" for n in range(channels)]
            writer.finish(channels=names, rate_hz=32.0, device=device, window=32, hop=32)
    one = tomllib.loads(draft_recipe([tmp_path / "watch"], "mine").text)
    assert (one["method"], one["data"], one["hold_out"]) == ("fedavg", "signals", 1)
    two = draft_recipe([tmp_path / "watch", tmp_path / "phone"], "mine")
    assert tomllib.loads(two.text)["method"] == "fdarn" and {c.info.group for c in two.clients} == {"watch", "phone"}
