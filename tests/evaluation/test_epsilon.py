import math

import pytest
import torch

from fedaction.evaluation.epsilon import chance_epsilon, empirical_epsilon
from fedaction.federation.seeds import generator


def test_two_histograms_by_hand():
    p = torch.tensor([0.05] * 10 + [0.95] * 30)
    q = torch.tensor([0.05] * 20 + [1.0] * 20)  # 1.0 is in the last bin too
    found = empirical_epsilon(p, q, bins=10, smoothing=1.0)
    assert found.one[0] == pytest.approx(11 / 50) and found.other[9] == pytest.approx(21 / 50)
    assert float(found.one.sum()) == pytest.approx(1)
    assert found.used.tolist() == [True] + [False] * 8 + [True]
    assert found.value == pytest.approx(max(math.log(21 / 11), math.log(31 / 21)))
    assert empirical_epsilon(q, p).value == pytest.approx(found.value)


def test_bins_with_few_samples_do_not_count():
    p = torch.tensor([0.05] * 50 + [0.55] * 9)
    q = torch.tensor([0.05] * 50)
    assert empirical_epsilon(p, q).value < 0.2
    assert empirical_epsilon(p, q, least=9).value > 2


def test_equal_sets_give_zero_and_an_empty_bin_is_no_division_by_zero():
    p = torch.rand(200, generator=generator(5, "epsilon"))
    assert empirical_epsilon(p, p).value == 0
    apart = empirical_epsilon(torch.full((100,), 0.1), torch.full((100,), 0.9))
    assert apart.value == pytest.approx(math.log(101))


def test_too_few_samples_say_nothing():
    few = torch.tensor([0.1, 0.5, 0.9])
    assert math.isnan(empirical_epsilon(few, few).value)
    assert math.isnan(chance_epsilon(few, 1, generator(6, "chance")))


def test_chance_grows_with_what_is_replaced_and_falls_with_the_number_of_samples():
    few, many = (torch.rand(n, generator=generator(5, "epsilon", n)) for n in (100, 20_000))
    chance = [chance_epsilon(few, n, generator(6, "chance", n)) for n in (0, 10, 100)]
    assert chance[0] == 0 < chance[1] < chance[2]
    assert chance_epsilon(many, 20_000, generator(6, "chance")) < chance[2] / 3
    assert chance[1] == chance_epsilon(few, 10, generator(6, "chance", 10))


def test_the_docstring_says_what_it_is_not():
    assert "NOT differential privacy and bounds nothing" in (empirical_epsilon.__doc__ or "")


@pytest.mark.parametrize("wrong", [torch.tensor([]), torch.tensor([1.5]), torch.tensor([math.nan])])
def test_what_is_no_probability_is_refused(wrong):
    with pytest.raises(ValueError, match="q must be a vector of probabilities"):
        empirical_epsilon(torch.tensor([0.5]), wrong)
    with pytest.raises(ValueError, match="smoothing above 0"):
        empirical_epsilon(torch.tensor([0.5]), torch.tensor([0.5]), smoothing=0)
