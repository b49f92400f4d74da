"""Signal stores as clients: windows, people held out, devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.data.features import FeatureSet, load_features, save_features
from fedaction.data.signals.imports import SignalOptions, import_signals
from fedaction.data.signals.store import load_signals
from fedaction.data.signals.windows import window_recordings
from fedaction.data.sources import FeatureSource, SignalSource
from fedaction.data.validation import hold_validation
from fedaction.federation.seeds import numpy_generator
from fedaction.federation.settings import RecipeError
from fedaction.report import run_and_report
from fedaction.runs.controls import read_split
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.study import load_clients
from tests.conftest import recordings
from tests.data.signals.made import phone_csv

PEOPLE = ("anna", "ben", "carl", "dora")
SPANS = [("walk", 12), ("run", 8), ("stand", 8), ("walk", 4)]
SMALL: dict[str, Any] = {"model_width": 4, "model_features": 8, "model_hidden": 8, "controls": [], "seeds": [0]}


def make_store(root: Path, device: str = "phone", people: tuple[str, ...] = PEOPLE, rate: float = 25.0) -> Path:
    for who in people:
        phone_csv(root / "raw" / device / f"{who}.csv", SPANS, rate=rate)
    options = SignalOptions(window_s=2.0, hop_s=1.0)
    out = root / device
    import_signals(root / "raw" / device, out, options=options, subject=r"(\w+)\.csv", device=device)
    return out


def source(*paths: Path, **keys: Any) -> SignalSource:
    return SignalSource(signal_paths=tuple(map(str, paths)), **keys)


def test_people_are_clients_and_others_their_test(tmp_path: Path) -> None:
    path = make_store(tmp_path)
    clients = source(path, hold_out=1).load(0)
    assert [client.info.id for client in clients] == ["phone-anna", "phone-ben", "phone-carl"]
    for client in clients:
        assert client.info.group == "phone" and client.info.shape == (50, 3)
        assert client.info.classes == ("run", "stand", "walk")
        assert set(client.test.subjects) == {"dora"} and set(client.train.subjects) == {client.info.id[6:]}
        assert len(client.train) == len(client.test) == 11 + 7 + 7 + 3 == client.info.samples
        assert client.train.recording is not None and len(client.train.recording.unique()) == 4
    item = load_signals(path)
    np.testing.assert_array_equal(clients[0].train.take(torch.tensor([1]))[0], item.recordings[0][25:75])
    taken = clients[0].input
    assert taken is not None and taken.kind == "signals" and taken.shape == (50, 3) and taken.hop == 25
    assert (taken.channels, taken.rate_hz, taken.device) == (("acc_x", "acc_y", "acc_z"), 25.0, "phone")
    assert taken.scale == "none" and taken.mean == ()


@pytest.mark.parametrize("hold_out", [0.25, ["dora"], ["phone:dora"]])
def test_people_are_held_out_by_share_and_by_name(tmp_path: Path, hold_out: Any) -> None:
    clients = source(make_store(tmp_path), hold_out=hold_out).load(0)
    assert len(clients) == 3 and all(set(client.test.subjects) == {"dora"} for client in clients)


def test_scale_is_the_clients_own_and_in_its_input(tmp_path: Path) -> None:
    path = make_store(tmp_path)
    raw, scaled = (source(path, hold_out=1, signal_scale=scale).load(0)[0] for scale in ("none", "client"))
    x = scaled.train.take(torch.arange(len(scaled.train)))
    assert x.mean((0, 1)).abs().max() < 1e-4 and (x.std((0, 1), correction=0) - 1).abs().max() < 1e-4
    taken = scaled.input
    assert taken is not None and taken.scale == "client"
    again = (raw.test.take(torch.arange(5)) - torch.tensor(taken.mean)) * torch.tensor(taken.factor)
    torch.testing.assert_close(again.clamp(-10, 10), scaled.test.take(torch.arange(5)), rtol=1e-4, atol=1e-4)
    unit = source(path, hold_out=1, signal_scale="unit").load(0)[0].test.take(torch.arange(3))
    torch.testing.assert_close(unit.square().mean((1, 2)), torch.ones(3))


def test_no_window_of_a_test_has_a_reading_of_training(tmp_path: Path) -> None:
    path = make_store(tmp_path)
    values = np.load(path / "signals.npy")
    values[:, 0] = np.arange(len(values))  # every reading knows itself
    np.save(path / "signals.npy", values)
    for keys in ({}, {"signal_by": "equal", "signal_clients": 3}, {"signal_by": "dataset"}):
        clients = source(path, test_share=0.3, **keys).load(0)
        trained = torch.cat([c.train.take(torch.arange(len(c.train)))[:, :, 0].flatten() for c in clients])
        tested = torch.cat([c.test.take(torch.arange(len(c.test)))[:, :, 0].flatten() for c in clients])
        assert not set(trained.tolist()) & set(tested.tolist()) and len(tested)
    validated = hold_validation(source(path, hold_out=1).load(0), 0.3, 0)[0]
    assert validated.validation is not None
    kept, away = (
        {*s.take(torch.arange(len(s)))[:, :, 0].flatten().tolist()} for s in (validated.train, validated.validation)
    )
    assert not kept & away


def test_a_store_is_cut_anew_or_taken_whole(tmp_path: Path) -> None:
    item = load_signals(make_store(tmp_path))
    wide = window_recordings(item, window_s=4.0)
    assert (wide.window, wide.hop) == (100, 50) and wide.cut([0])[0].shape == (5, 100, 3)
    with pytest.warns(UserWarning, match="4 of 16 recordings are shorter than a window of 125"):
        assert len(window_recordings(item, window_s=5.0)) == 12
    with pytest.raises(ValueError, match="no recording of phone has a window of 2500"):
        window_recordings(item, window_s=100.0)
    whole = window_recordings(import_whole(tmp_path), frames=32)
    x, which = whole.cut([0, 2])
    assert x.shape == (2, 32, 3) and which.tolist() == [0, 2] and whole.hop == 0
    assert source(tmp_path / "whole", hold_out=1, signal_frames=32).load(0)[0].input.hop is None  # type: ignore[union-attr]


def import_whole(root: Path) -> Any:
    import_signals(root / "raw" / "phone", root / "whole", subject=r"(\w+)\.csv")
    return load_signals(root / "whole")


def test_devices_are_groups_with_their_own_names(tmp_path: Path) -> None:
    watch = make_store(tmp_path, "watch", rate=50.0)
    phone = make_store(tmp_path, "phone")
    clients = source(watch, phone, hold_out=["dora"], signal_deal="all").load(0)
    assert [client.info.group for client in clients] == ["watch"] * 3 + ["phone"] * 3
    assert {client.info.shape for client in clients} == {(100, 3), (50, 3)}
    in_turn = source(watch, phone).load(0)
    assert [client.info.id for client in in_turn] == ["watch-anna", "watch-carl", "phone-ben", "phone-dora"]
    alone = source(watch, phone, hold_out=["watch:anna", "phone:ben"], signal_deal="all").load(0)
    tests = {client.info.group: set(client.test.subjects) for client in alone}
    assert tests == {"watch": {"anna"}, "phone": {"ben"}}
    named = source(watch, phone, signal_groups=["left", "right"], hold_out=1).load(0)
    assert {client.info.group for client in named} == {"left", "right"}


def make_features(root: Path) -> Path:
    """A watch, of which there are only features."""
    y = np.arange(48, dtype=np.int64) % 3
    x = (numpy_generator(0, "watch").normal(size=(48, 12)) + y[:, None]).astype(np.float32)
    people, classes = tuple(PEOPLE[i // 3 % 4] for i in range(48)), ("run", "stand", "walk")
    save_features(
        FeatureSet("inertial", x, y, classes, people, tuple(map(str, y)), {}, device="watch"), root / "watch"
    )
    return root / "watch"


def test_features_among_signals_are_scaled_by_their_client(tmp_path: Path) -> None:
    phone, _, watch, *_ = source(make_store(tmp_path), make_features(tmp_path), hold_out=1).load(0)
    assert (phone.info.group, watch.info.group) == ("phone", "watch") and watch.info.shape == (12,)
    x = watch.train.take(torch.arange(len(watch.train)))
    assert x.mean(0).abs().max() < 1e-4 and phone.train.take(torch.tensor([0]))[0, :, 2].mean() > 8


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("method", ["fedavg", "fdarn"])
def test_raw_signals_are_learnt_on_both_engines(tmp_path: Path, engine: str, method: str) -> None:
    paths = [str(make_store(tmp_path))]
    if method == "fdarn":  # another device with other channels, as features
        paths.append(str(make_features(tmp_path)))
    keys = {"method": method, "data": "signals", "signal_paths": paths, "hold_out": 1}
    rates = {"rounds": 6, "local_epochs": 3, "batch_size": 8, "lr": 0.05, "evaluate_every": 6, "engine": engine}
    recipe = parse_recipe({**keys, **SMALL, **rates})
    assert recipe.flat()["backbone"] == "perceptron"
    result = run_and_report(recipe, tmp_path / "run")
    assert result["mean"] > 0.6 and (tmp_path / "run" / "report.html").exists()
    split = read_split(tmp_path / "run")
    assert all(own["held_out"] == ["dora"] for own in split.values())
    assert set(result["groups"]) == ({"phone"} if method == "fedavg" else {"phone", "watch"})


@pytest.mark.parametrize("method", ["moon", "fedrep", "pfedme", "central"])
def test_other_methods_take_raw_signals(tmp_path: Path, method: str) -> None:
    keys = {"method": method, "data": "signals", "signal_paths": [str(make_store(tmp_path))], "hold_out": 1}
    result = run_and_report(parse_recipe({**keys, **SMALL, "rounds": 1}), tmp_path / "run")
    assert len(result["clients"]) == 3


def test_skeletons_own_method_says_what_to_take_for_signals(tmp_path: Path) -> None:
    keys = {"method": "fsar", "data": "signals", "signal_paths": [str(make_store(tmp_path))], "hold_out": 1}
    with pytest.raises(ValueError, match='which have no joints: take method = "fedavg" or "fdarn"'):
        run_and_report(parse_recipe({**keys, **SMALL, "rounds": 1}), tmp_path / "run")


def test_what_a_recipe_asks_wrongly_is_said(tmp_path: Path) -> None:
    path = make_store(tmp_path)
    for keys, message in (
        ({"hold_out": ["dorra"]}, "nobody in phone is called 'dorra'; did you mean 'dora'"),
        ({"hold_out": 4}, "leaves nobody to train on in phone, which has 4 people"),
        ({"signal_paths": [str(tmp_path / "raw")]}, "is no signal store: make one with `fedaction data import"),
        ({"signal_paths": [str(tmp_path / "none")]}, "is not a signal store: it needs signals.json"),
        ({"signal_paths": ["public:kard"]}, "no reader of signals is called 'kard'; there are utd_inertial"),
    ):
        values = {"method": "fedavg", "data": "signals", "signal_paths": [str(path)], **keys}
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            load_clients(parse_recipe(values))
    for key, words in (("store_test", "hold_out"), ("feature_holdout", "hold_out"), ("feature_test", "test_share")):
        data = "store" if key == "store_test" else "features"
        paths = {"store": "store_paths", "features": "feature_paths"}[data]
        with pytest.raises(RecipeError, match=f"there is no key '{key}' any more; write .*{words}"):
            parse_recipe({"method": "fedavg", "data": data, paths: [str(path)], key: 2})
    with pytest.raises(RecipeError, match=r"hold_out: .*neither a number of people"):
        parse_recipe({"method": "fedavg", "data": "signals", "signal_paths": [str(path)], "hold_out": 1.5})


def test_two_devices_with_unlike_channels_name_a_method_that_can(tmp_path: Path) -> None:
    one = make_store(tmp_path, "phone")
    root = tmp_path / "raw" / "watch"
    for who in PEOPLE:
        phone_csv(root / f"{who}.csv", SPANS, rate=25.0)
    options = SignalOptions(window_s=2.0, columns=("acc_x", "acc_y"))
    import_signals(root, tmp_path / "watch", options=options, subject=r"(\w+)\.csv", device="watch")
    keys = {"data": "signals", "signal_paths": [str(one), str(tmp_path / "watch")], "hold_out": 1, "rounds": 1}
    with pytest.raises(ValueError, match='method = "fdarn" and "fedavg_within" average within a group'):
        run_and_report(parse_recipe({"method": "fedavg", **keys, **SMALL}), tmp_path / "run")
    result = run_and_report(parse_recipe({"method": "fedavg_within", **keys, **SMALL}), tmp_path / "run")
    assert set(result["groups"]) == {"phone", "watch"}


def test_a_public_sensor_as_it_is() -> None:
    root = recordings("utd_mhad").parent
    clients = source(Path("public:utd_inertial"), signal_root=str(root), hold_out=["s07", "s08"]).load(0)
    assert [client.info.id for client in clients] == [f"inertial-s0{n}" for n in range(1, 7)]
    assert clients[0].info.shape == (128, 6) and len(clients[0].test) == 215
    taken = clients[0].input
    assert taken is not None and taken.channels[:4] == ("acc_x", "acc_y", "acc_z", "gyr_x") and taken.rate_hz == 50


def test_two_inertial_devices_become_features_of_two_groups(tmp_path: Path) -> None:
    runner = CliRunner()
    for device in ("watch", "phone"):
        for who in PEOPLE:
            phone_csv(tmp_path / "raw" / device / f"{who}.csv", SPANS, rate=25.0)
        common = ["--kind", "inertial", "--window", "2", "--device", device, "--subject", r"(\w+)\.csv"]
        shown = runner.invoke(
            app, ["data", "import", str(tmp_path / "raw" / device), "--out", str(tmp_path / device), *common]
        )
        assert shown.exit_code == 0 and f"{device} (inertial), 25 Hz; windows of 50 readings" in shown.output
        shown = runner.invoke(app, ["data", "inspect", str(tmp_path / device)])
        assert "m/s², with gravity" in shown.output
        out = ["--out", str(tmp_path / f"{device}-features"), "--width", "64"]
        shown = runner.invoke(app, ["features", str(tmp_path / device), "--modality", "inertial", *out])
        assert shown.exit_code == 0 and f"{device} (inertial): 64 recordings" in shown.output
    paths = tuple(str(tmp_path / f"{device}-features") for device in ("watch", "phone"))
    clients = FeatureSource(feature_paths=paths, hold_out=1).load(0)
    assert [client.info.id for client in clients] == ["watch-anna", "watch-carl", "phone-ben"]
    shown = runner.invoke(app, ["features", str(tmp_path / "phone"), "--modality", "phone", "--out", "x"])
    assert shown.exit_code == 2 and "--modality inertial --device phone" in shown.output.replace("\n", " ")
    named = ["--modality", "inertial", "--device", "pocket", "--width", "64", "--out", str(tmp_path / "pocket")]
    assert runner.invoke(app, ["features", str(tmp_path / "phone"), *named]).exit_code == 0
    assert load_features(tmp_path / "pocket").device == "pocket"
    same = [str(tmp_path / "phone-features"), str(tmp_path / "pocket")]
    groups = {client.info.group for client in FeatureSource(feature_paths=tuple(same), hold_out=1).load(0)}
    assert groups == {"phone", "pocket"}
