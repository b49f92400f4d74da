"""Small federations that many tests use."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("COLUMNS", None)  # consoles would keep it for good; see `wide`

import pytest
import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.layout import layout
from fedaction.data.samples import Examples
from fedaction.federation.seeds import generator
from fedaction.methods import METHODS
from fedaction.methods.base import Method
from fedaction.methods.central import arrange

# Whoever starts the tests in the background of a script has Ctrl-C ignored, and commands would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def few(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Cases of a test of which the default run has some alone, the slow tests all others."""
    others = [case for case in cases if case not in kept]
    return [
        *kept,
        *(pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in others),
    ]


TINY = {"model_width": 4, "model_last": 0, "model_units": (1, 1, 1), "model_projection": 8}
"""A network of three units: enough for every mechanism, small enough for every test."""


def reseal(home: Path) -> None:
    """Makes a run vouch for metrics that a test has put in the place of its own."""
    path = max((home / "checkpoints").glob("round-*.json"))
    table, record = (home / "metrics.jsonl").read_bytes(), json.loads(path.read_text())
    del record["sha256"]
    record |= {"metrics_length": len(table), "metrics_sha256": hashlib.sha256(table).hexdigest()}
    blob = path.with_suffix(".safetensors").read_bytes()
    record["sha256"] = hashlib.sha256(json.dumps(record, sort_keys=True).encode() + b"\n" + blob).hexdigest()
    path.write_text(json.dumps(record))
    (home / "result.json").unlink(missing_ok=True)


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


VECTORS = {
    "backbone": "perceptron",
    "classifier": "shared",
    "model_features": 6,
    "model_hidden": 8,
    "fdarn_sphere": 5,
}
"""Settings for `vector_clients`."""


def vector_clients(widths: tuple[int, int] = (10, 10)) -> dict[str, ClientData]:
    """Five clients with feature vectors of two modalities, unequal amounts, the same four classes."""
    clients: dict[str, ClientData] = {}
    names = tuple(f"action-{c}" for c in range(4))
    for number, (group, train, test) in enumerate(
        [("camera", 12, 7), ("wrist", 9, 5), ("camera", 6, 9), ("wrist", 16, 8), ("wrist", 5, 4)]
    ):
        random = generator(6, "vectors", number)
        width = widths[group == "wrist"]
        centres = torch.randn(4, width, generator=generator(7, group))

        def examples(count: int) -> Examples:
            y = torch.arange(count) % 4
            x = centres[y] + 0.5 * torch.randn(count, width, generator=random)  # noqa: B023
            return Examples(x.to(torch.get_default_dtype()), y)

        info = ClientInfo(f"client-{number}", group, train, names, (width,))
        clients[info.id] = ClientData(info, examples(train), examples(test))
    return clients


CROSS_MODAL = ("fdarn", "pfedme", "perfedavg", "lgfedavg", "fedrep", "metahar", "fedavg_within", "fedavg_pair")
"""Methods whose home is feature vectors; the others' is skeletons."""


UNLABELLED = ("fedvssl", "fedu", "centralvssl")
"""Methods that learn from recordings without labels; tests/methods/test_fedvssl.py has them on both engines."""

PHONES: dict[str, Any] = {
    "method": "fedvssl",
    "controls": [],
    "pretext": "speed",
    "clip_frames": 4,
    "clip_size": 16,
    "model_width": 2,
    "clients_per_round": 2,
    "batch_size": 4,
    "momentum": 0.0,
    "data": "stage_video",
    "stage_clients": 4,
    "stage_actions": 4,
    "stage_classes": 2,
    "stage_train": 4,
    "stage_test": 2,
    "stage_people": 1,
    "stage_test_people": 1,
    "frames": 14,
    "stage_seconds": 0.2,
    "stage_size": 20,
    "stage_variety": 0.2,
}
"""A recipe of four phones with recordings that nobody labels, as small as can be."""

LABELLED = tuple(name for name in METHODS if name not in UNLABELLED)


def federation_for(name: str, *, few: bool = False, **settings: object) -> tuple[dict[str, ClientData], Method]:
    """A small federation that suits a method, and the method over it; `few`: of skeletons, two clients' alone."""
    if name in CROSS_MODAL:
        clients = vector_clients()
        return clients, make_method(name, clients, **{**VECTORS, **settings})
    chosen = {n: c for n, c in mixed_clients().items() if not few or n in ("client-0", "client-4")}
    clients = dict(arrange(METHODS[name], chosen))
    return clients, make_method(name, clients, **settings)


def make_method(name: str, clients: dict[str, ClientData], **settings: object) -> Method:
    """A method over clients, with the tiny network."""
    kind = METHODS[name]
    values = {key: value for key, value in {**TINY, **settings}.items() if key in kind.settings_type.model_fields}
    return kind([client.info for client in clients.values()], kind.settings_type(**values))  # type: ignore[arg-type]


LONGEST = (
    *("papers/test_paper.py", "runs/test_resume.py", "engines/test_engines_agree.py", "papers/test_paper_edge.py"),
    *("papers/test_paper_fedvssl.py", "test_docs.py", "runs/test_single.py", "runs/test_faults.py"),
    *("runs/test_killed.py", "data/clips/test_streamed_federation.py", "cli/test_bad_inputs.py"),
    *("engines/flower/test_contract.py", "analyses/test_analyses.py", "papers/test_paper_fdarn_own.py"),
)
"""Files whose tests take longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: a file's tests share what they make, and so one process runs them all."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide in every worker and under every terminal."""
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture
def double():
    """Double precision, so that two ways to the same number can be told from two numbers."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
