"""Synthetic clients of several modalities."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedaction.data.client import ClientData
from fedaction.data.features import MODALITIES
from fedaction.stage.modalities import stage_features


def accuracy(clients: list[ClientData]) -> float:
    """Mean test accuracy of a ridge classifier at each client."""
    found = []
    for client in clients:
        train, test = client.train.x.double(), client.test.x.double()
        targets = torch.nn.functional.one_hot(client.train.y, len(client.info.classes)).double()
        weights = torch.linalg.solve(train @ train.T + 300 * torch.eye(len(train)).double(), targets)
        found.append(((test @ train.T @ weights).argmax(1) == client.test.y).double().mean())
    return float(torch.stack(found).mean())


def test_clients_and_what_they_share(tmp_path: Path) -> None:
    settings = {"modalities": MODALITIES, "clients": 2, "train": 9, "test": 3, "actions": 5, "people": 2, "width": 64}
    clients = stage_features(**settings, cache=tmp_path)  # type: ignore[arg-type]
    assert [client.info.id for client in clients] == [f"{m}-{i}" for m in MODALITIES for i in range(2)]
    for client in clients:
        assert client.info.group == client.info.id.split("-")[0] and client.info.shape == (64,)
        assert client.info.classes == clients[0].info.classes and len(client.info.classes) == 5
        assert len(client.train) == client.info.samples == 9 and len(client.test) == 3
        assert client.train.x.isfinite().all() and client.test.x.isfinite().all()
    stores = sorted((tmp_path / "features").iterdir())
    stamps = [(path / "features.npy").stat().st_mtime_ns for path in stores]
    assert len(stores) == 12
    again = stage_features(**settings, cache=tmp_path)  # type: ignore[arg-type]
    assert all(torch.equal(a.train.x, b.train.x) for a, b in zip(clients, again, strict=True))
    other = stage_features(**settings, cache=tmp_path, division=1)  # type: ignore[arg-type]
    assert any(not torch.equal(a.test.y, b.test.y) for a, b in zip(clients, other, strict=True))
    assert [(path / "features.npy").stat().st_mtime_ns for path in stores] == stamps  # neither recorded anew
    assert len(list((tmp_path / "features").iterdir())) == 12


def test_a_client_depends_on_itself_only(tmp_path: Path) -> None:
    settings = {"train": 8, "test": 4, "actions": 4, "width": 32}
    few = stage_features(modalities=["inertial"], clients=1, cache=tmp_path / "a", **settings)  # type: ignore[arg-type]
    many = stage_features(modalities=["audio", "inertial"], clients=2, cache=tmp_path / "b", **settings)  # type: ignore[arg-type]
    assert torch.equal(few[0].train.x, many[2].train.x) and many[2].info == few[0].info
    world = stage_features(modalities=["inertial"], clients=1, cache=tmp_path / "a", seed=1, **settings)  # type: ignore[arg-type]
    assert not torch.equal(few[0].train.x, world[0].train.x)


@pytest.mark.parametrize(
    ("modality", "least", "most"),
    [("skeleton", 0.5, 0.97), ("inertial", 0.5, 0.97), ("audio", 0.25, 0.85), ("image", 0.12, 0.7)],
)
def test_there_is_something_to_learn_and_something_left(
    modality: str, least: float, most: float, tmp_path: Path
) -> None:
    clients = stage_features(modalities=[modality], clients=1, cache=tmp_path)  # type: ignore[list-item]
    assert least < accuracy(clients) < most  # chance is 1 in 12


@pytest.mark.parametrize("modality", ["video", "flow"])
def test_moving_pictures_too(modality: str, tmp_path: Path) -> None:
    clients = stage_features(modalities=[modality], clients=1, train=24, test=16, actions=4, cache=tmp_path)  # type: ignore[list-item]
    assert 0.4 < accuracy(clients) <= 1.0  # chance is 1 in 4


def test_what_cannot_be_staged(tmp_path: Path) -> None:
    for modalities in ([], ["smell"], ["audio", "audio"]):
        with pytest.raises(ValueError, match="modalities must be different ones of skeleton"):
            stage_features(modalities=modalities, cache=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"2 to [0-9]+ actions"):
        stage_features(modalities=["audio"], actions=1, cache=tmp_path)
