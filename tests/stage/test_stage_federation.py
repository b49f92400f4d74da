from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedaction.data.layout import LAYOUTS
from fedaction.federation.seeds import numpy_generator
from fedaction.stage import NAMES, Sensor, actor, perform, skeletons, stage_federation

SETTINGS: dict[str, Any] = {
    "layouts": ["kinect_v2", "coco_17", "mocap_31"],
    "train": [60, 30],
    "test": 20,
    "actions": [12, 8],
    "seed": 4,
}
CLIENTS = stage_federation(clients=5, **SETTINGS)


def test_clients_are_described_as_they_are():
    assert [c.info.id for c in CLIENTS[:2]] == ["stage-0-kinect_v2", "stage-1-coco_17"]
    for i, client in enumerate(CLIENTS):
        shape = LAYOUTS[SETTINGS["layouts"][i % 3]]
        assert client.info.layout is shape
        assert client.info.group == "skeleton"
        assert client.info.shape == (1, 50, len(shape), 3)
        assert client.info.samples == len(client.train) == [60, 30][i % 2]
        assert len(client.info.classes) == [12, 8][i % 2]
        assert set(client.info.classes) <= set(NAMES)
        for part in (client.train, client.test):
            assert part.x.shape[1:] == client.info.shape
            assert part.x.dtype == torch.float32
            assert part.y.dtype == torch.int64
            assert torch.isfinite(part.x).all()
        assert set(client.train.y.tolist()) == set(range(len(client.info.classes)))


def test_test_people_are_never_training_people():
    for client in CLIENTS:
        assert len(client.train.subjects) == len(client.train)
        assert set(client.train.subjects).isdisjoint(client.test.subjects)
        assert len(set(client.test.subjects)) > 1


def test_action_lists_overlap_and_differ():
    lists = [set(c.info.classes) for c in CLIENTS]
    for i, one in enumerate(lists):
        for other in lists[:i]:
            assert one & other
            assert one != other


def test_a_federation_is_a_function_of_its_seed_and_clients_of_their_number():
    again = stage_federation(clients=5, **SETTINGS)
    fewer = stage_federation(clients=2, **SETTINGS)
    for one, other in [*zip(CLIENTS, again, strict=True), *zip(CLIENTS[:2], fewer, strict=True)]:
        assert one.info == other.info
        assert torch.equal(one.train.x, other.train.x)
        assert torch.equal(one.test.y, other.test.y)
    elsewhere = stage_federation(clients=1, **{**SETTINGS, "seed": 5})
    assert not torch.equal(elsewhere[0].train.x, CLIENTS[0].train.x)


def test_heterogeneity_makes_places_differ():
    def spread(heterogeneity: float) -> float:
        places = stage_federation(
            clients=10,
            layouts=["kinect_v2"],
            train=[200],
            test=2,
            actions=[10],
            seed=1,
            frames=4,
            heterogeneity=heterogeneity,
            noise=0.0,
        )
        knee, ankle = (LAYOUTS["kinect_v2"].index(joint) for joint in ("left_knee", "left_ankle"))
        shanks = [(c.train.x[..., knee, :] - c.train.x[..., ankle, :]).norm(dim=-1).mean() for c in places]
        return float(np.std(shanks))

    assert spread(1.0) > 2.0 * spread(0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": [1]}, "2 to"),
        ({"train": [0]}, "training and test"),
        ({"noise": -1.0}, "not negative"),
        ({"layouts": []}, "at least one"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        stage_federation(clients=1, **(SETTINGS | change))


def _centred(layout: str, samples: int, actors: int, seed: int) -> tuple[Tensor, Tensor]:
    """Recordings of every action in turn, by people taken at random."""
    people = [actor(seed, f"actor-{i}") for i in range(actors)]
    chosen = numpy_generator(seed, "pool", "actors").integers(0, actors, samples)
    labels = np.arange(samples) % len(NAMES)
    x = torch.from_numpy(skeletons(perform(labels, [people[i] for i in chosen], seed), layout, Sensor(), seed)[:, 0])
    return (x - x[:, :1, :1]).flatten(1).double(), torch.from_numpy(labels)


def test_ridge_regression_is_neither_helpless_nor_enough_on_unseen_people():
    classes = len(NAMES)
    x, y = _centred("kinect_v1", 40 * classes, 40, 1)
    unseen, truth = _centred("kinect_v1", 15 * classes, 20, 2)
    mean = x.mean(0)
    x, unseen = x - mean, unseen - mean
    kernel = x @ x.T
    kernel.diagonal().add_(0.1 * float(kernel.diagonal().mean()))
    targets = torch.nn.functional.one_hot(y, classes).double()
    guess = (unseen @ x.T @ torch.linalg.solve(kernel, targets - targets.mean(0))).argmax(1)
    accuracy = float((guess == truth).double().mean())
    assert 0.45 < accuracy < 0.75
