"""Small federations that many tests use."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from fedaction.data.client import ClientData, ClientInfo, Examples
from fedaction.data.layout import layout
from fedaction.federation.seeds import generator
from fedaction.methods import METHODS
from fedaction.methods.base import Method

TINY = {"model_width": 4, "model_last": 0, "model_units": (1, 1, 1), "model_projection": 8}
"""A network of three units: enough for every mechanism, small enough for every test."""


def recordings(name: str) -> Path:
    """A folder of real recordings, found through FEDACTION_DATA, else ../shared/data; skips where there is none."""
    root = Path(os.environ.get("FEDACTION_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (root / name).is_dir():
        pytest.skip(f"no real recordings: {name!r} is not in FEDACTION_DATA or ../shared/data")
    return root / name


def make_client(
    number: int, *, joints: str = "kinect_v2", train: int = 12, test: int = 7, classes: int = 4, frames: int = 12
) -> ClientData:
    """A client with random skeletons whose class shifts them, so that there is something to learn."""
    body = layout(joints)
    random = generator(5, "tests", number)

    def examples(count: int) -> Examples:
        y = torch.arange(count) % classes
        x = torch.randn(count, 1, frames, len(body), 3, generator=random) + y.view(-1, 1, 1, 1, 1)
        return Examples(x.to(torch.get_default_dtype()), y)

    names = tuple(f"action-{c}" for c in range(classes))
    info = ClientInfo(f"client-{number}", "skeleton", train, names, (1, frames, len(body), 3), body)
    return ClientData(info, examples(train), examples(test))


def mixed_clients() -> dict[str, ClientData]:
    """Five clients with three layouts, unequal amounts and unequal classes."""
    clients = [
        make_client(0, train=12, classes=4),
        make_client(1, train=21, classes=6, test=11),
        make_client(2, train=8, classes=3),
        make_client(3, joints="kinect_v1", train=14, classes=5),
        make_client(4, joints="openni_15", train=5, classes=4),
    ]
    return {client.info.id: client for client in clients}


def make_method(name: str, clients: dict[str, ClientData], **settings: object) -> Method:
    """A method over clients, with the tiny network."""
    kind = METHODS[name]
    values = {key: value for key, value in {**TINY, **settings}.items() if key in kind.settings_type.model_fields}
    return kind([client.info for client in clients.values()], kind.settings_type(**values))  # type: ignore[arg-type]


@pytest.fixture
def double():
    """Double precision, so that two ways to the same number can be told from two numbers."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
