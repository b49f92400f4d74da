"""Participants dealt to modalities: FDARN's sixteen clients, and its four."""

from __future__ import annotations

from collections import Counter

import pytest

from fedaction.data.features.egocentric import epic
from fedaction.data.features.egocentric.deal import EPIC_MODALITIES, deal_clients
from tests.conftest import recordings
from tests.data.features.egocentric.made import segment

PEOPLE = [f"P{number:02d}" for number in range(1, 21)]
SEGMENTS = [
    segment(f"{person}_{video}", number, verb=number)
    for i, person in enumerate(PEOPLE)
    for video, many in (("01", 5 + i), ("101", 6 if i < 12 else 0))
    for number in range(many)
]


def test_sixteen_clients_of_four_modalities() -> None:
    deal = deal_clients(SEGMENTS, PEOPLE, seed=3)
    assert Counter(deal.assignment.values()) == dict.fromkeys(EPIC_MODALITIES, 4)
    assert len(deal.clients) == len(deal.assignment) == 16
    assert [client.modality for client in deal.clients] == [m for m in EPIC_MODALITIES for _ in range(4)]
    for client in deal.clients:
        own = [item for item in SEGMENTS if item.participant == client.participant]
        if client.modality == "inertial":
            own = [item for item in own if item.extension]
        assert set(client.segments) == set(own)
        assert deal.counts[client.participant] == len(own) > 0
    assert len(deal.segments("inertial")) == 4 * 6


def test_a_deal_depends_on_the_seed_alone() -> None:
    deal = deal_clients(SEGMENTS, PEOPLE, seed=3)
    assert deal == deal_clients(SEGMENTS[::-1], PEOPLE[::-1], seed=3)
    others = [deal_clients(SEGMENTS, PEOPLE, seed=seed).assignment for seed in range(4, 8)]
    assert all(other != deal.assignment for other in others)


def test_everybody_with_inertial_signals_may_get_any_modality() -> None:
    seen = Counter(
        (person, m)
        for seed in range(60)
        for person, m in deal_clients(SEGMENTS, PEOPLE, seed=seed).assignment.items()
    )
    assert {m for person, m in seen if person == "P01"} == set(EPIC_MODALITIES)
    assert {person for person, m in seen if m == "inertial"} == set(PEOPLE[:12])


def test_one_client_of_each_modality() -> None:
    deal = deal_clients(SEGMENTS, PEOPLE, seed=3)
    four = deal.one_each(seed=0)
    assert [client.modality for client in four.clients] == list(EPIC_MODALITIES)
    assert set(four.clients) < set(deal.clients)
    assert four == deal.one_each(seed=0)
    assert len({tuple(deal.one_each(seed).assignment) for seed in range(20)}) > 5


def test_too_few_participants_are_an_error_in_words() -> None:
    with pytest.raises(ValueError, match="4 x 6 clients need as many participants; there are 20"):
        deal_clients(SEGMENTS, PEOPLE, per_modality=6)
    with pytest.raises(ValueError, match=r"for 'video'; 0 are left$"):
        deal_clients(SEGMENTS[:3], PEOPLE, ("video",))
    with pytest.raises(ValueError, match="different modalities"):
        deal_clients(SEGMENTS, PEOPLE, ("video", "video"))


def test_the_real_validation_file() -> None:
    real = epic.read(epic.find(recordings("epic_kitchens_100_annotations")))
    people = epic.returning(real.participants)
    deal = deal_clients(real.segments, people, ("video", "flow", "audio"), 4, seed=1)
    assert len(deal.clients) == 12 and set(deal.assignment) < set(people)
    assert deal.counts["P01"] == sum(item.participant == "P01" for item in real.segments) == 885
    with pytest.raises(
        ValueError, match=r"three-digit numbers\) are needed for 'inertial'; 0 are left\. The validation"
    ):
        deal_clients(real.segments, people)
