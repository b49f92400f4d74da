import pytest
import torch

from fedaction.evaluation.probe import chance_accuracy, deal_folds, principal, probe_accuracy
from fedaction.federation.seeds import generator


def clouds(count: int = 120, kinds: int = 3, apart: float = 4.0) -> tuple[torch.Tensor, torch.Tensor]:
    random = generator(1, "probe tests")
    y = torch.arange(count) % kinds
    centres = apart * torch.randn(kinds, 8, generator=random)
    return centres[y] + torch.randn(count, 8, generator=random), y


def test_what_is_separable_is_read_whatever_its_scale_and_names():
    x, y = clouds()
    assert probe_accuracy(x, y) == 1
    assert probe_accuracy(1000 * x - 7, y * 5 + 2) == 1
    constant = torch.full((len(x), 1), 0.1)
    assert probe_accuracy(torch.cat([x, constant], 1), y) == 1


def test_what_is_random_is_not_read():
    x, y = clouds(count=600, apart=0)
    assert abs(probe_accuracy(x, y) - 1 / 3) < 0.08  # four standard errors
    wide = torch.randn(600, 900, generator=generator(3, "probe tests"))  # more features than samples
    assert abs(probe_accuracy(wide, y) - 1 / 3) < 0.08


def test_it_is_the_ridge_regression_of_every_other_fold():
    """Against a least-squares problem with the penalty as extra rows, one fold and one label at a time."""
    x, y = clouds(count=40, apart=0.6)
    x, fold, right = x.double(), deal_folds(y, 4, 9), 0
    for held in range(4):
        train, test = x[fold != held], x[fold == held]
        mean, deviation = train.mean(0), train.std(0, correction=0)
        rows = torch.cat([(train - mean) / deviation, (0.1 * len(train)) ** 0.5 * torch.eye(8, dtype=x.dtype)])
        scores = []
        for kind in range(3):
            target = (y[fold != held] == kind).double()
            padded = torch.cat([target - target.mean(), torch.zeros(8, dtype=x.dtype)])
            scores.append((test - mean) / deviation @ torch.linalg.lstsq(rows, padded).solution + target.mean())
        right += int((torch.stack(scores, 1).argmax(1) == y[fold == held]).sum())
    assert probe_accuracy(x, y, folds=4, seed=9) == right / 40
    assert 0.34 < right / 40 < 1  # neither chance nor certain: the comparison says something


def test_folds_are_stratified_and_a_function_of_the_seed():
    y = torch.tensor([0] * 23 + [1] * 9 + [2] * 3)[torch.randperm(35, generator=generator(4, "probe tests"))]
    fold = deal_folds(y, 5, 0)
    assert fold.bincount().tolist() == [7] * 5
    for kind in range(3):
        counts = fold[y == kind].bincount(minlength=5)
        assert counts.max() - counts.min() <= 1
    assert torch.equal(fold, deal_folds(y, 5, 0)) and not torch.equal(fold, deal_folds(y, 5, 1))


def test_chance_is_the_most_frequent_label():
    assert chance_accuracy(torch.tensor([4, 4, 9, 4])) == 0.75


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: (x[0], y, 5), r"takes \(N, F\) features"),
        (lambda x, y: (x, y[1:], 5), r"got \(120, 8\) and \(119,\)"),
        (lambda x, y: (x, y * 0, 5), "two kinds or more"),
        (lambda x, y: (x, y, 121), "folds = 121, but there are 120 samples"),
        (lambda x, y: (x / 0, y, 5), "not finite"),
    ],
)
def test_what_cannot_be_probed_is_refused(change, words):
    x, y, folds = change(*clouds())
    with pytest.raises(ValueError, match=words):
        probe_accuracy(x, y, folds)


def test_principal_directions_are_those_of_the_singular_vectors():
    x, _ = clouds()
    found, shares = principal(x)
    centred = x.double() - x.double().mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    for place in range(2):
        direction = directions[place]
        direction = direction * direction[direction.abs().argmax()].sign()
        torch.testing.assert_close(found[:, place], centred @ direction)
    torch.testing.assert_close(shares, sizes[:2] ** 2 / (sizes**2).sum())


def test_principal_directions_that_are_not_there_are_zero():
    found, shares = principal(torch.tensor([[1.0], [3.0]]))
    assert found.tolist() == [[-1, 0], [1, 0]] and shares.tolist() == [1, 0]
    found, shares = principal(torch.ones(3, 2))
    assert found.abs().max() == 0 and shares.tolist() == [0, 0]
