import math

import pytest
import torch

from fedaction.evaluation import knn
from fedaction.evaluation.knn import knn_accuracy, knn_predict
from fedaction.federation.seeds import generator


def clouds(count: int, number: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = generator(2, "knn", number)
    y = torch.randint(4, (count,), generator=random)
    centres = torch.randn(4, 6, generator=generator(2, "centres"))
    return centres[y] + 0.9 * torch.randn(count, 6, generator=random), y


def literal(train, labels, test, k, distance, temperature) -> list[int]:
    """One sample after the other, in plain Python."""
    found = []
    for row in test.double().tolist():
        scored = []
        for place, other in enumerate(train.double().tolist()):
            if distance == "cosine":
                near = sum(a * b for a, b in zip(row, other, strict=True)) / math.hypot(*row) / math.hypot(*other)
            else:
                near = -math.dist(row, other)
            scored.append((-near, place))
        votes: dict[int, float] = {}
        for minus, place in sorted(scored)[:k]:
            weight = 1.0 if temperature is None else math.exp(-minus / temperature)
            votes[int(labels[place])] = votes.get(int(labels[place]), 0.0) + weight
        found.append(min(votes, key=lambda label: (-votes[label], label)))
    return found


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize(("k", "temperature"), [(1, None), (5, None), (7, 0.1), (60, 0.1)])
def test_the_vote_is_the_literal_one(distance, k, temperature):
    (train, labels), (test, truth) = clouds(60), clouds(40, 1)
    expected = literal(train, labels, test, k, distance, temperature)
    assert knn_predict(train, labels, test, k, distance, temperature).tolist() == expected
    share = sum(a == b for a, b in zip(expected, truth.tolist(), strict=True)) / 40
    assert knn_accuracy(train, labels, test, truth, k, distance, temperature) == pytest.approx(share)
    assert 0.3 < share < 1


def test_pieces_give_what_one_piece_gives(monkeypatch):
    (train, labels), (test, _) = clouds(50), clouds(23, 1)
    whole = knn_predict(train, labels, test, 3)
    monkeypatch.setattr(knn, "_CHUNK", 120)  # two rows at a time
    assert torch.equal(knn_predict(train, labels, test, 3), whole)


def test_cosine_does_not_see_length_and_euclid_does():
    train, labels = torch.tensor([[10.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    test = torch.tensor([[0.4, 0.3]])
    assert knn_predict(train, labels, test, distance="cosine").tolist() == [0]
    assert knn_predict(train, labels, test, distance="euclidean").tolist() == [1]


def test_ties_go_to_the_first_neighbour_and_the_lowest_class():
    train = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    test = torch.tensor([[2.0, 0.0]])
    assert knn_predict(train, torch.tensor([3, 1, 0]), test, 1).tolist() == [3]
    assert knn_predict(train, torch.tensor([3, 1, 0]), test, 2).tolist() == [1]


def test_far_neighbours_neither_overflow_nor_vanish_together():
    train, labels = torch.tensor([[1e4, 0.0], [2e4, 0.0]]), torch.tensor([1, 0])
    test = torch.zeros(1, 2)
    assert knn_predict(train, labels, test, 2, "euclidean", temperature=0.1).tolist() == [1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"k": 61}, "k = 61, but there are 60 training samples"),
        ({"k": 0}, "k = 0"),
        ({"distance": "manhattan"}, "there are cosine and euclidean"),
        ({"temperature": 0.0}, "above 0"),
    ],
)
def test_what_cannot_be_is_refused_with_words(changes, words):
    (train, labels), (test, truth) = clouds(60), clouds(5, 1)
    with pytest.raises(ValueError, match=words):
        knn_accuracy(train, labels, test, truth, **changes)


def test_shapes_that_do_not_fit_are_named():
    (train, labels), (test, truth) = clouds(60), clouds(5, 1)
    with pytest.raises(ValueError, match=r"got \(60, 6\) and \(5, 5\)"):
        knn_accuracy(train, labels, test[:, :5], truth)
    with pytest.raises(ValueError, match="a label for each; got 60"):
        knn_accuracy(train, labels[:59], test, truth)
    with pytest.raises(ValueError, match="5 test features need as many labels"):
        knn_accuracy(train, labels, test, truth[:4])
