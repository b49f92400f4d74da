"""Centralised pretraining: who trains on what, and that it is one client's training by the pretext task."""

from pathlib import Path

import pytest
import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.engines.base import Training
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.scope import Scope
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job
from fedaction.methods import METHODS
from fedaction.methods.central import EVERYONE, arrange
from fedaction.methods.start import initial_state
from fedaction.runs.metrics import read_rows
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.study import run_study
from fedaction.server.federation import combine

SIZES = {"phone-0": 6, "phone-1": 4}
KEYS = {"pretext": "speed", "clip_frames": 4, "clip_size": 16, "model_width": 2}


def phones() -> dict[str, ClientData]:
    found: dict[str, ClientData] = {}
    for name, count in SIZES.items():
        x = torch.randint(0, 256, (count + 2, 12, 20, 20, 3), generator=generator(5, name), dtype=torch.uint8)
        y = torch.arange(count + 2) % 2
        info = ClientInfo(name, "video", count, ("a", "b"), (12, 20, 20, 3))
        found[name] = ClientData(info, Examples(x[:count], y[:count]), Examples(x[count:], y[count:]))
    return found


def make(clients: dict[str, ClientData], name: str = "centralvssl"):
    kind = METHODS[name]
    return kind([client.info for client in clients.values()], kind.settings_type(**KEYS))


def test_everyone_has_all_recordings_and_the_others_are_only_tested():
    before = phones()
    found = arrange(METHODS["centralvssl"], before)
    assert [*found] == [*before, EVERYONE]
    assert torch.equal(found[EVERYONE].train.x, torch.cat([client.train.x for client in before.values()]))
    assert found[EVERYONE].info.samples == 10 and len(found[EVERYONE].test) == 0
    for name, client in before.items():
        assert found[name].info.samples == 0  # so that it is never asked to train
        assert found[name].train is client.train and found[name].test is client.test  # the gallery and the queries


def test_all_of_the_model_is_the_servers():
    method = make(phones())
    scopes = method.plan(method.clients["phone-0"]).scopes
    assert {*scopes.values()} == {Scope.GLOBAL} and {name.split(".")[0] for name in scopes} == {"backbone", "head"}


@pytest.mark.parametrize("engine", [SequentialEngine, VectorisedEngine])
def test_a_round_is_an_epoch_of_the_pretext_task_on_all_recordings(engine, double):
    """What FedAvg on the whole model does with one client that has them all."""
    clients = dict(arrange(METHODS["centralvssl"], phones()))
    training = Training(seed=0, batch_size=4, local_epochs=1, lr=0.1, momentum=0.9)
    found = []
    for name, heads in (("centralvssl", {}), ("fedvssl", {"heads": "shared", "vssl_alpha": 0.0})):
        kind = METHODS[name]
        method = kind([client.info for client in clients.values()], kind.settings_type(**KEYS, **heads))
        server = initial_state(method, 0)
        info = method.clients[EVERYONE]
        job = Job(EVERYONE, info.group, 0, 1, method.payload(server, info))
        trainer = engine(method, clients, training, torch.device("cpu"))
        (update,) = list(trainer.train([job]))
        trainer.close()
        assert update.samples == 10
        found.append(combine(method, server, [update]).shared)
    assert {*found[0]} == {*found[1]}
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor, found[1][name], msg=name)
    start = initial_state(make(clients), 0).shared
    assert not torch.equal(found[0]["backbone.conv1.weight"], start["backbone.conv1.weight"])


def test_a_run_keeps_models_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And tests the clients, which have not trained."""
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    recipe = {
        **{"method": "centralvssl", **KEYS, "rounds": 3, "batch_size": 8, "lr": 0.01, "lr_decay": 0.5},
        **{"models_every": 2, "data": "stage_video", "stage_clients": 2, "stage_actions": 2, "stage_train": 2},
        **{"stage_test": 2, "stage_people": 1, "stage_test_people": 1, "frames": 8, "stage_size": 20},
    }
    result = run_study(parse_recipe(recipe), tmp_path / "run")
    assert len(result["clients"]) == 2 and EVERYONE not in result["clients"]
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    assert {row.client for row in rows if row.split == "train"} == {EVERYONE}
    assert [path.name for path in (tmp_path / "run" / "models").iterdir()] == ["round-000002.safetensors"]
    with pytest.raises(ValueError, match="pools everybody's samples, so no client can be unseen"):
        run_study(parse_recipe({**recipe, "unseen": "home-0"}), tmp_path / "unseen")
