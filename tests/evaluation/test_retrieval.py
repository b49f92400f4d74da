"""Retrieval against a slow, literal version of it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedaction.evaluation.retrieval import KS, pool_map, retrieval
from fedaction.federation.seeds import generator


def literally(
    gallery: Tensor, gallery_labels: Tensor, queries: Tensor, query_labels: Tensor, k: int, rule: str
) -> float:
    """R@k with loops, one pair of recordings at a time."""
    hits = 0
    for query, wanted in zip(queries.tolist(), query_labels.tolist(), strict=True):
        near: list[tuple[float, int]] = []
        for place, other in enumerate(gallery.tolist()):
            product = sum(a * b for a, b in zip(query, other, strict=True))
            near.append((-product / math.hypot(*query) / math.hypot(*other), place))
        labels = [int(gallery_labels[place]) for _, place in sorted(near)[:k]]
        if rule == "any":
            hits += wanted in labels
        else:
            hits += wanted == min(set(labels), key=lambda label: (-labels.count(label), label))
    return hits / len(queries)


@pytest.mark.parametrize("rule", ["any", "majority"])
def test_it_is_the_literal_one(rule, monkeypatch):
    random = generator(1, "retrieval")
    gallery, queries = torch.randn(23, 5, generator=random), torch.randn(17, 5, generator=random)
    labels = torch.arange(23) % 6, torch.arange(17) % 6
    monkeypatch.setattr("fedaction.evaluation.knn._CHUNK", 100)  # several parts, the last not full
    found = retrieval(gallery, labels[0], queries, labels[1], (1, 2, 5, 10, 23), rule)
    expected = {k: literally(gallery, labels[0], queries, labels[1], k, rule) for k in (1, 2, 5, 10, 23)}
    assert found == pytest.approx(expected)
    assert len(set(expected.values())) > 2  # so that it could be wrong


def test_planted_features_are_found():
    """Each class has a direction of its own; lengths and a little noise do not matter."""
    random = generator(2, "retrieval")
    labels = torch.arange(40) % 8
    directions = torch.eye(8)[labels]
    lengths = 0.1 + 100 * torch.rand(2, 40, 1, generator=random)
    gallery, queries = lengths * (directions + 0.05 * torch.randn(2, 40, 8, generator=random))
    assert retrieval(gallery, labels, queries, labels) == dict.fromkeys(KS, 1.0)
    assert retrieval(gallery, labels, queries, labels, (1, 5), "majority") == {1: 1.0, 5: 1.0}


def test_a_k_above_the_gallery_takes_all_of_it():
    gallery, labels = torch.eye(3), torch.tensor([0, 1, 1])
    queries, wanted = torch.eye(3)[[0, 0, 0]], torch.tensor([0, 1, 2])
    assert retrieval(gallery, labels, queries, wanted, (1, 3, 50)) == pytest.approx({1: 1 / 3, 3: 2 / 3, 50: 2 / 3})
    assert retrieval(gallery, labels, queries, wanted, (50,), "majority") == pytest.approx({50: 1 / 3})


def test_of_equally_near_ones_the_first_counts():
    """Rows that are equal but for their length: their cosines differ in the last bits alone."""
    random = generator(3, "retrieval")
    row = torch.randn(97, dtype=torch.float64, generator=random)
    gallery = row * torch.rand(50, 1, dtype=torch.float64, generator=random)
    labels = torch.arange(50)
    queries = row + 0.3 * torch.randn(20, 97, dtype=torch.float64, generator=random)
    assert retrieval(gallery, labels, queries, torch.zeros(20, dtype=torch.int64), (1,)) == {1: 1.0}
    # Two votes for each class: the lower label wins.
    pairs = torch.tensor([3, 3, 1, 1])
    assert retrieval(gallery[:4], pairs, queries, torch.ones(20, dtype=torch.int64), (4,), "majority") == {4: 1.0}


def test_poolings():
    x = torch.randn(2, 3, 7, 5, 4, generator=generator(4, "retrieval"))
    torch.testing.assert_close(pool_map(x), x.flatten(1, 3).mean(1))
    largest = pool_map(x, "max")
    assert largest.shape == (2, 3 * 3 * 2 * 4)
    by_hand = [
        float(x[1, t, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c].max())
        for c in range(4)
        for t in range(3)
        for i in range(3)
        for j in range(2)
    ]
    assert largest[1].tolist() == by_hand
    assert pool_map(x[:, :, :1, :1], "max").shape == (2, 12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queries": torch.ones(2, 4)}, "retrieval takes"),
        ({"query_labels": torch.zeros(3, dtype=torch.int64)}, "queries: retrieval needs samples on both sides"),
        ({"gallery": torch.full((3, 2), torch.inf)}, "gallery: features are not finite"),
        ({"ks": ()}, "from 1"),
        ({"ks": (0,)}, "from 1"),
        ({"rule": "most"}, "there are any and majority"),
    ],
)
def test_what_cannot_be_searched_is_refused(change, message):
    values = {
        "gallery": torch.ones(3, 2),
        "gallery_labels": torch.zeros(3, dtype=torch.int64),
        "queries": torch.ones(2, 2),
        "query_labels": torch.zeros(2, dtype=torch.int64),
    }
    with pytest.raises(ValueError, match=message):
        retrieval(**values | change)
    with pytest.raises(ValueError, match="there are mean and max"):
        pool_map(torch.zeros(1, 1, 1, 1, 1), "median")  # type: ignore[arg-type]
