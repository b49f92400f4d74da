"""Who is kept out of training to choose."""

import pytest
import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.data.validation import hold_validation


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
