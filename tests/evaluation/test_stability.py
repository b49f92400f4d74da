import statistics

import pytest

from fedaction.evaluation.stability import stability


def test_a_curve_by_hand():
    found = stability([1, 2, 3, 4, 5], [0.1, 0.4, 0.2, 0.5, 0.45])
    assert found.mean_change == pytest.approx((0.3 + 0.2 + 0.3 + 0.05) / 4)
    assert found.mean_drop == pytest.approx((0.2 + 0.05) / 4)
    assert found.largest_drop == pytest.approx(0.2)
    assert found.last_std == pytest.approx(statistics.stdev([0.5, 0.45]))  # a fifth would be one value
    assert found.area == pytest.approx((0.25 + 0.3 + 0.35 + 0.475) / 4)


def test_a_steady_rise_never_drops_and_its_speed_does_not_count_as_unrest():
    slow, fast = (stability(range(11), [step * n for n in range(11)]) for step in (0.01, 0.09))
    assert slow.mean_drop == fast.mean_drop == slow.largest_drop == 0
    assert fast.mean_change > slow.mean_change
    assert fast.area == pytest.approx(0.45)


def test_the_last_fifth_is_what_it_says():
    values = [0.0] * 16 + [0.5, 0.6, 0.5, 0.6]
    assert stability(range(20), values).last_std == pytest.approx(statistics.stdev(values[-4:]))


def test_uneven_rounds_weigh_by_their_length():
    assert stability([0, 1, 10], [0.0, 1.0, 1.0]).area == pytest.approx((0.5 + 9) / 10)


@pytest.mark.parametrize(("rounds", "values"), [([1], [0.5]), ([1, 2], [0.5]), ([2, 1], [0.1, 0.2])])
def test_no_curve_is_refused(rounds, values):
    with pytest.raises(ValueError, match="curve"):
        stability(rounds, values)
