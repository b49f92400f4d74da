"""Clients from feature stores: who is where, what is for test, and that test data teaches nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from fedaction.data.features import FeatureSet, Modality, clients_from_features
from fedaction.data.features.clients import split, standardise
from fedaction.federation.seeds import generator, numpy_generator


def made(modality: Modality, classes: tuple[str, ...], people: int = 6, each: int = 4, width: int = 10) -> FeatureSet:
    """Every person does every action `each` times."""
    rows = [(who, label) for who in range(people) for label in range(len(classes)) for _ in range(each)]
    return FeatureSet(
        modality=modality,
        x=numpy_generator(1, modality).normal(size=(len(rows), width)).astype(np.float32),
        labels=np.array([label for _, label in rows]),
        classes=classes,
        subjects=tuple(f"s{who}" for who, _ in rows),
        names=tuple(str(i) for i in range(len(rows))),
        provenance={},
    )


SETS = [made("skeleton", ("wave", "sit")), made("inertial", ("sit", "clap", "wave"), width=7)]


def test_no_person_is_in_two_modalities() -> None:
    clients = clients_from_features(SETS, seed=3)
    assert [client.info.id for client in clients] == [
        *(f"skeleton-s{i}" for i in (0, 2, 4)),
        *(f"inertial-s{i}" for i in (1, 3, 5)),
    ]
    for client in clients:
        info = client.info
        assert info.group == info.id.split("-")[0] and info.classes == ("clap", "sit", "wave")
        assert info.shape == ((10,) if info.group == "skeleton" else (7,)) and info.layout is None
        assert info.samples == len(client.train) and len(client.train) == 3 * len(client.test)
        assert {*client.train.subjects, *client.test.subjects} == {info.id.split("-")[1]}
        assert client.train.x.dtype == torch.float32 and client.train.y.dtype == torch.int64
        # One of four repetitions of each action is for test.
        assert set(Counter(client.test.y.tolist()).values()) == {1}
    assert set(clients[0].train.y.tolist()) == {1, 2}  # sit and wave, by name


def test_everybody_in_every_modality_and_equal_shares() -> None:
    everybody = clients_from_features(SETS, deal="all")
    assert [client.info.id for client in everybody] == [
        f"{m}-s{i}" for m in ("skeleton", "inertial") for i in range(6)
    ]
    shares = clients_from_features(SETS, by="equal", deal="all", clients=5)
    assert [client.info.id for client in shares][:5] == [f"skeleton-{i}" for i in range(5)]
    sizes = [len(client.train) + len(client.test) for client in shares[:5]]
    assert sum(sizes) == len(SETS[0]) and max(sizes) - min(sizes) <= 1
    apart = clients_from_features(SETS, by="equal", clients=2)
    assert set(apart[0].train.subjects) <= {"s0", "s2", "s4"} and set(apart[2].train.subjects) <= {"s1", "s3", "s5"}


def test_two_sets_of_one_modality_are_two_groups() -> None:
    """A wristband and an anklet: both inertial, yet nobody would average their encoders."""
    wrist, ankle = SETS[1], replace(SETS[1], x=SETS[1].x + 1)
    clients = clients_from_features([wrist, ankle], groups=["wrist", "ankle"], scale="none")
    assert [client.info.id for client in clients] == [
        *(f"wrist-s{i}" for i in (0, 2, 4)),
        *(f"ankle-s{i}" for i in (1, 3, 5)),
    ]
    assert {client.info.group for client in clients} == {"wrist", "ankle"}
    assert set(clients[3].train.x.flatten().tolist()) <= set(ankle.x.flatten().tolist())


@pytest.mark.parametrize("turn", [1, -1])
def test_people_go_where_they_are_known(turn: int) -> None:
    """Each set with its own people keeps them, in whatever order the names come."""
    whose = {"video": ("a", "b", "x", "y"), "flow": ("c", "d"), "audio": ("e", "f")}
    sets = [
        replace(made(modality, ("sit", "wave")), subjects=tuple(people[i % len(people)] for i in range(48)))  # type: ignore[arg-type]
        for modality, people in list(whose.items())[::turn]
    ]
    found = [client.info.id for client in clients_from_features(sets)]
    assert sorted(found) == sorted(f"{modality}-{who}" for modality, people in whose.items() for who in people)
    # Those whom one set alone knows go there first, so that the others are left to the set that has nobody else.
    two = [replace(sets[0], subjects=(*"abcdef",) * 8), replace(sets[1], subjects=(*"ab",) * 24)]
    names = [client.info.id[-1] for client in clients_from_features(two)]
    assert names == [*"cdef", *"ab"]


def test_so_many_clients_of_so_many_samples() -> None:
    clients = clients_from_features(SETS, by="equal", deal="all", clients=2, keep=1, samples=12)
    assert [client.info.id for client in clients] == ["skeleton-0", "inertial-0"]
    assert [(len(client.train), len(client.test)) for client in clients] == [(9, 3), (9, 3)]
    people = clients_from_features(SETS, keep=2, samples=1000, scale="none")
    assert [client.info.id[-2:] for client in people] == ["s0", "s2", "s1", "s3"]
    assert [len(client.train) + len(client.test) for client in people] == [8, 8, 12, 12]
    few, same, other = (clients_from_features(SETS, samples=6, scale="none", seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(few.train.x, same.train.x) and not torch.equal(few.train.x, other.train.x)
    assert len(few.train) + len(few.test) == 6
    assert set(few.train.x[:, 0].tolist()) | set(few.test.x[:, 0].tolist()) <= set(SETS[0].x[:, 0].tolist())


def test_the_split_is_the_seeds_and_complete() -> None:
    one, same, other = (clients_from_features(SETS, scale="none", seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a.test.x, b.test.x) for a, b in zip(one, same, strict=True))
    assert any(not torch.equal(a.test.x, b.test.x) for a, b in zip(one, other, strict=True))
    client = one[0]
    mine = SETS[0].x[np.array(SETS[0].subjects) == "s0"]
    both = torch.cat([client.train.x, client.test.x])
    assert np.array_equal(np.sort(both.numpy(), axis=0), np.sort(mine, axis=0))


def test_strangers_are_nobodys_client_and_everybodys_test() -> None:
    clients = clients_from_features(SETS, deal="all", hold_out=2)
    assert len(clients) == 8 and {client.info.id[-2:] for client in clients} == {"s0", "s1", "s2", "s3"}
    for client in clients:
        assert set(client.test.subjects) == {"s4", "s5"}
        assert len(client.train) == (8 if client.info.group == "skeleton" else 12)
    alternate = clients_from_features(SETS, hold_out=2)
    assert {client.info.id[-2:] for client in alternate} == {"s0", "s1", "s2", "s3"}
    assert all(set(client.test.subjects) == {"s4", "s5"} for client in alternate)
    assert [client.info.group for client in alternate] == ["skeleton", "skeleton", "inertial", "inertial"]
    for many, said in (
        (5, "inertial is left without a client"),
        (9, "leaves nobody to train on in skeleton"),
    ):
        with pytest.raises(ValueError, match=said):
            clients_from_features(SETS, hold_out=many)


def test_test_samples_do_not_touch_training() -> None:
    train = torch.randn(20, 6, generator=generator(0, "t")) * torch.tensor([1, 100, 1e-3, 5, 1, 1]) + 3
    train[:, 4] = 7.0
    test = torch.randn(9, 6, generator=generator(1, "t")) * 1000
    a, b = standardise(train, test, "client")
    assert torch.equal(a, standardise(train, test[:1] * 0, "client")[0])
    moving = [0, 1, 2, 3, 5]
    assert a[:, moving].mean(0).abs().max() < 1e-3 and torch.allclose(
        a[:, moving].std(0, correction=0), torch.ones(5), atol=1e-3
    )
    assert a[:, 4].abs().max() == b[:, 4].abs().max() == 0 and b.abs().max() == 10
    unit = standardise(train, test, "unit")
    assert all(torch.allclose(x.square().mean(1), torch.ones(len(x))) for x in unit)
    assert standardise(train, test, "none") == (train, test)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_share_holds_however_small_the_classes(share: float) -> None:
    labels = np.repeat(np.arange(40), 1)
    tested = split(labels, share, seed=0)
    assert abs(tested.sum() - 40 * share) <= 1
    many = split(np.arange(400) % 8, share, seed=0)
    counts = np.bincount((np.arange(400) % 8)[many], minlength=8)
    assert counts.max() - counts.min() <= 1 and abs(many.sum() - 400 * share) <= 1
    assert any((a != b).any() for a, b in pairwise(split(labels, share, seed=s) for s in range(3)))
    assert split(np.array([0, 1]), share, seed=4).sum() == 1  # neither side is empty


def test_what_cannot_be_dealt() -> None:
    nameless = [replace(item, subjects=()) for item in SETS]
    with pytest.raises(ValueError, match="skeleton recordings do not say who performed them"):
        clients_from_features(nameless)
    assert len(clients_from_features(nameless, by="equal", deal="all", clients=2)) == 4
    with pytest.raises(ValueError, match="for the groups skeleton, skeleton: give each store a group of its own"):
        clients_from_features([SETS[0], SETS[0]])
    with pytest.raises(ValueError, match="2 feature stores for the groups wrist: give each"):
        clients_from_features(SETS, groups=["wrist"])
    with pytest.raises(ValueError, match="inertial is left without a client"):
        clients_from_features([made("skeleton", ("a", "b"), people=1), made("inertial", ("a", "b"), people=1)])
    with pytest.raises(ValueError, match="need at least 2"):
        clients_from_features([made("skeleton", ("a",), people=2, each=1)])
