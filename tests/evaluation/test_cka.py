import math

import pytest
import torch

from fedaction.evaluation.cka import centred_gram, cka_matrix, gram_cka
from fedaction.federation.seeds import generator


def draw(*shape: int, number: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(1, "cka", number), dtype=torch.float64)


def cka(x: torch.Tensor, y: torch.Tensor) -> float:
    return gram_cka(centred_gram(x), centred_gram(y))


def literal(x: torch.Tensor, y: torch.Tensor) -> float:
    """Kornblith's HSIC form, with the centring matrix written out."""
    n = len(x)
    h = torch.eye(n, dtype=torch.float64) - torch.full((n, n), 1 / n, dtype=torch.float64)

    def hsic(k: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return torch.trace(k @ h @ m @ h) / (n - 1) ** 2

    k, m = x @ x.T, y @ y.T
    return float(hsic(k, m) / (hsic(k, k) * hsic(m, m)).sqrt())


@pytest.mark.parametrize("shape", [(40, 5, 7), (8, 30, 20), (20, 4, 60)], ids=["features", "inputs", "mixed"])
def test_it_is_the_definition(shape):
    n, p, q = shape
    x = draw(n, p)
    y = draw(n, q, number=1) + x @ draw(p, q, number=2)
    expected = literal(x, y)
    assert 0.1 < expected < 0.99
    assert cka(x, y) == pytest.approx(expected, rel=1e-10)
    xc, yc = x - x.mean(0), y - y.mean(0)
    between = (yc.T @ xc).norm() ** 2 / ((xc.T @ xc).norm() * (yc.T @ yc).norm())
    assert float(between) == pytest.approx(expected, rel=1e-10)


def test_rotation_scale_and_shift_do_not_matter_but_a_linear_map_does():
    x, y = draw(30, 6), draw(30, 4, number=1)
    rotation, _ = torch.linalg.qr(draw(6, 6, number=2))
    assert cka(3 * x @ rotation + 5, y) == pytest.approx(cka(x, y), rel=1e-10)
    assert cka(x @ rotation, x) == pytest.approx(1)
    stretched = x * torch.tensor([10.0, 1, 1, 1, 1, 1])
    assert cka(stretched, y) != pytest.approx(cka(x, y), rel=1e-3)


def test_features_without_anything_in_common_score_low_and_the_score_is_symmetric():
    x, y = draw(4000, 3), draw(4000, 3, number=1)
    assert cka(x, y) < 0.01
    assert cka(x, y) == pytest.approx(cka(y, x))


def test_single_precision_far_from_zero_loses_nothing():
    x = draw(50, 4).float() + 1000
    assert cka(x, x) == pytest.approx(1)


def test_features_that_do_not_vary_have_no_score():
    assert math.isnan(cka(torch.ones(9, 3), draw(9, 4)))
    assert math.isnan(cka(torch.full((9, 3), math.nan), draw(9, 4)))


def test_a_matrix_of_networks_holds_every_pair():
    features = [draw(12, width, number=width) for width in (3, 20, 5)]
    matrix = cka_matrix([centred_gram(x) for x in features])
    for i, one in enumerate(features):
        for j, other in enumerate(features):
            assert float(matrix[i, j]) == pytest.approx(cka(one, other))
