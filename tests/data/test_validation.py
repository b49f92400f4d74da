"""Who is kept out of training to choose, and sites made smaller."""

import pytest
import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples, in_memory
from fedaction.data.validation import hold_validation, keep_share
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.study import load_clients


def client(name: str, train: Examples) -> ClientData:
    test = Examples(torch.full((3, 1), -1.0), torch.tensor([0, 1, 2]), ("t",) * 3)
    return ClientData(ClientInfo(name, "vectors", len(train), ("a", "b", "c"), (1,)), train, test)


def numbered(count: int, people: tuple[str, ...] = (), clips: int = 0) -> Examples:
    """Samples that are their own numbers, of three classes in turn."""
    rows = torch.arange(count)
    who = tuple(people[row % len(people)] for row in range(count)) if people else ()
    return Examples(rows.float()[:, None], rows % 3, who, rows // clips if clips else None)


def both(held: ClientData) -> tuple[list[int], list[int]]:
    assert isinstance(held.train, Examples) and isinstance(held.validation, Examples)
    return [int(v) for v in held.train.x], [int(v) for v in held.validation.x]


def test_whole_people_are_kept_out_and_nobody_else_is_lost():
    (held,) = hold_validation([client("a", numbered(40, tuple("pqrst")))], 0.4, seed=0)
    train, kept = both(held)
    assert sorted(train + kept) == list(range(40)) and held.info.samples == len(train)
    assert held.validation is not None
    assert len(set(held.validation.subjects)) == 2 and len(set(held.train.subjects)) == 3
    assert not set(held.validation.subjects) & set(held.train.subjects)


def test_a_person_whom_two_clients_have_seen_is_on_one_side():
    people = tuple("pqrstuvwxy")
    one, other = hold_validation([client("a", numbered(30, people)), client("b", numbered(20, people))], 0.3, seed=4)
    assert one.validation is not None and other.validation is not None
    assert set(one.validation.subjects) == set(other.validation.subjects)


def test_without_people_each_class_gives_its_share_and_recordings_stay_whole():
    (held,) = hold_validation([client("a", numbered(60))], 0.2, seed=0)
    assert held.validation is not None
    assert torch.bincount(held.validation.labels).tolist() == [4, 4, 4]
    (held,) = hold_validation([client("a", numbered(40, clips=4))], 0.2, seed=0)
    assert held.validation is not None and held.validation.recording is not None and held.train.recording is not None
    assert len(held.validation) == 8
    assert not set(held.validation.recording.tolist()) & set(held.train.recording.tolist())


def test_it_depends_on_the_seed_alone_and_leaves_an_unseen_client_whole():
    clients = [client("a", numbered(30)), client("b", numbered(30))]
    first, again = (hold_validation(order, 0.2, seed=1) for order in (clients, clients[::-1]))
    assert both(first[0]) == both(again[1])
    assert both(hold_validation(clients, 0.2, seed=2)[0]) != both(first[0])
    assert hold_validation(clients, 0.2, seed=1, unseen="b")[1] is clients[1]


def test_who_has_one_sample_trains_on_it():
    one, many = client("a", numbered(1)), client("b", numbered(2))
    held = hold_validation([one, many], 0.5, seed=0)
    assert held[0].validation is None and both(held[1])[0] != []
    with pytest.raises(ValueError, match="no client has training samples to spare"):
        hold_validation([one], 0.5, seed=0)


def test_a_client_is_split_the_same_whoever_else_is_there():
    people = tuple("pqrstuvwxy")
    clients = [client("a", numbered(30, people)), client("b", numbered(20, people[3:])), client("c", numbered(12))]
    together = hold_validation(clients, 0.3, seed=4)
    for each, held in zip(clients, together, strict=True):
        assert both(hold_validation([each], 0.3, seed=4)[0]) == both(held)
    chosen = {both(hold_validation([clients[0]], 0.1, seed)[0])[1][0] for seed in range(20)}
    assert len(chosen) > 3  # by the seed, not by the alphabet


def test_a_smaller_site_has_its_share_of_each_class_and_one_sample_at_least():
    whole = client("a", numbered(60))
    shares = {share: keep_share(whole, share, seed=3) for share in (0.01, 0.1, 0.25, 1.0)}
    counts = {share: torch.bincount(small.train.labels).tolist() for share, small in shares.items()}
    assert counts == {0.01: [1, 1, 1], 0.1: [2, 2, 2], 0.25: [5, 5, 5], 1.0: [20, 20, 20]}
    rows = [{int(v) for v in small.train.x} for small in shares.values()]  # type: ignore[union-attr]
    assert rows[0] < rows[1] < rows[2] < rows[3] == set(range(60))
    assert shares[0.1].info.samples == 6 and shares[0.1].test is whole.test
    assert {int(v) for v in keep_share(whole, 0.1, seed=4).train.x} != rows[1]  # type: ignore[union-attr]


def test_recordings_of_a_smaller_site_stay_whole():
    rows = torch.arange(48)
    clips = Examples(rows.float()[:, None], rows // 4 % 3, (), rows // 4)  # twelve recordings of four clips
    small = keep_share(client("a", clips), 0.5, seed=0)
    assert small.train.recording is not None
    assert torch.bincount(small.train.recording).tolist().count(4) == 6 and len(small.train) == 24


def test_a_recipe_makes_sites_smaller_and_leaves_their_test_alone():
    stage = {"stage_clients": 3, "stage_train": [24], "stage_test": 6, "stage_actions": [3], "frames": 8}
    recipes = [
        parse_recipe({"method": "fedavg", **stage, "train_share": share, "unseen": "stage-2-kinect_v2"})
        for share in (1.0, 0.25)
    ]
    whole, small = (load_clients(recipe) for recipe in recipes)
    for name, own in small.items():
        size = len(whole[name].train)
        assert len(own.train) == own.info.samples
        assert len(own.train) == size if name == "stage-2-kinect_v2" else 3 <= len(own.train) < size / 3
        assert torch.equal(in_memory(own.test).x, in_memory(whole[name].test).x)
    assert recipes[0].configuration() != recipes[1].configuration()
