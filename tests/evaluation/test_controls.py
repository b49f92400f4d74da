"""The commonest class and the ridge classifier, against their definitions."""

import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.evaluation import controls
from fedaction.evaluation.controls import describe_split, score_majority, score_ridge
from fedaction.federation.seeds import generator
from tests.conftest import make_client


def client(train: Examples, test: Examples, classes: int = 3) -> ClientData:
    names = tuple(f"action-{c}" for c in range(classes))
    return ClientData(ClientInfo("a", "vectors", len(train), names, train.shape), train, test)


def vectors(count: int, signal: float, number: int, people: int = 0, shift: float = 0.0) -> Examples:
    """Three classes in 20 dimensions; every person adds a vector of their own."""
    random = generator(3, "controls", number)
    y = torch.arange(count) % 3
    centres = torch.randn(3, 20, generator=generator(3, "centres"))
    x = signal * centres[y] + torch.randn(count, 20, generator=random)
    who = torch.arange(count) // max(count // people, 1) if people else y
    if people:
        x = x + shift * torch.randn(count, 20, generator=random)[who]
    return Examples(50 * x + 7, y, tuple(f"p{number}-{int(w)}" for w in who) if people else ())


def test_the_commonest_class_is_that_of_the_training_samples():
    train = Examples(torch.zeros(5, 2), torch.tensor([2, 2, 2, 0, 1]))
    test = Examples(torch.zeros(4, 2), torch.tensor([0, 0, 0, 2]))
    scores = score_majority(client(train, test))
    assert (scores.n, scores.accuracy, scores.never) == (4, 0.25, (0,))


def test_a_ridge_classifier_learns_what_is_linear_and_nothing_from_noise():
    assert score_ridge(client(vectors(90, 3.0, 0), vectors(60, 3.0, 1))).accuracy > 0.9
    noise = score_ridge(client(vectors(90, 0.0, 0), vectors(300, 0.0, 1))).accuracy
    assert abs(noise - 1 / 3) < 0.14  # five standard errors


def test_its_answers_are_those_of_the_primal_equations(monkeypatch):
    monkeypatch.setattr(controls, "PENALTIES", (0.1,))
    train, test = vectors(60, 0.7, 0), vectors(80, 0.7, 1)
    x, own = (
        (part.x.double() - train.x.double().mean(0)) / train.x.double().std(0, correction=0) for part in (train, test)
    )
    targets = torch.nn.functional.one_hot(train.y).double()
    gram = x.T @ x + 0.1 * (x**2).sum(1).mean() * torch.eye(20, dtype=x.dtype)
    answer = (own @ torch.linalg.solve(gram, x.T @ (targets - targets.mean(0))) + targets.mean(0)).argmax(1)
    assert score_ridge(client(train, test)).accuracy == float((answer == test.y).double().mean())


def test_the_penalty_is_the_one_that_held_out_samples_like_best():
    """By hand, in the primal equations; of equals the largest."""
    train, fold = vectors(60, 0.3, 0), torch.arange(60) // 3 % 5
    x, targets = train.x.double(), torch.nn.functional.one_hot(train.y).double()
    right = dict.fromkeys(controls.PENALTIES, 0)
    for held in range(5):
        own, other = x[fold != held], x[fold == held]
        mean, centre = own.mean(0), targets[fold != held].mean(0)
        size = ((own - mean) ** 2).sum(1).mean() * torch.eye(20, dtype=x.dtype)
        slope = (own - mean).T @ (targets[fold != held] - centre)
        for penalty in right:
            weights = torch.linalg.solve((own - mean).T @ (own - mean) + penalty * size, slope)
            right[penalty] += int((((other - mean) @ weights).add(centre).argmax(1) == train.y[fold == held]).sum())
    best = max(penalty for penalty, count in right.items() if count == max(right.values()))
    assert controls.choose_penalty(x @ x.T, targets, fold) == best and min(right.values()) < max(right.values())


def test_the_penalty_is_chosen_by_whole_people(monkeypatch):
    """No person is on both sides of a fold, and every person is held out once."""
    folds = list[torch.Tensor]()
    choose = controls.choose_penalty

    def watch(kernel: torch.Tensor, targets: torch.Tensor, fold: torch.Tensor) -> float:
        folds.append(fold)
        return choose(kernel, targets, fold)

    monkeypatch.setattr(controls, "choose_penalty", watch)
    train = vectors(42, 1.0, 0, people=7, shift=3.0)
    score_ridge(client(train, vectors(9, 1.0, 1)))
    (fold,) = folds
    of = {
        name: {int(f) for f, who in zip(fold, train.subjects, strict=True) if who == name} for name in train.subjects
    }
    assert all(len(places) == 1 for places in of.values())
    assert {place for places in of.values() for place in places} == {0, 1, 2, 3, 4}


def test_large_sets_are_thinned_evenly_over_classes_and_long_inputs_are_folded(monkeypatch):
    monkeypatch.setattr(controls, "_ROWS", 45)
    monkeypatch.setattr(controls, "_CHOOSING", 30)
    monkeypatch.setattr(controls, "_INPUTS", 12)
    train = vectors(300, 4.0, 0)
    rows = controls._spread(train.labels, 45)
    assert torch.bincount(train.labels[rows]).tolist() == [15, 15, 15] and len(rows.unique()) == 45
    assert controls._flatten(train.x).shape == (300, 12)
    assert score_ridge(client(train, vectors(60, 4.0, 1))).accuracy > 0.8


def test_clips_are_looked_at_coarsely():
    random = generator(0, "clips")
    y = torch.arange(24) % 2
    x = (torch.rand(24, 6, 20, 20, 3, generator=random) * 100 + 60 * y.view(-1, 1, 1, 1, 1)).to(torch.uint8)
    clips = Examples(x, y)
    assert controls._flatten(x).shape == (24, 3 * 4 * 8 * 8)
    assert score_ridge(client(clips, clips, classes=2)).accuracy == 1


def test_skeletons_are_flattened():
    assert score_ridge(make_client(0, train=24, test=24, classes=2)).accuracy == 1


def test_a_split_says_what_there_is_and_who_was_held_out():
    split = describe_split(client(vectors(12, 1.0, 0, people=2), vectors(6, 1.0, 1, people=2)))
    assert (split.train, split.test, split.people) == (12, 6, 2)
    assert split.held_out == ("p1-0", "p1-1")
    assert split.classes == {f"action-{c}": (4, 2) for c in range(3)}
    assert describe_split(client(vectors(3, 1.0, 0), vectors(3, 1.0, 1))).held_out is None
