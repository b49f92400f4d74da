"""How much an old update weighs."""

import itertools

import pytest

from fedaction.federation.staleness import Staleness
from fedaction.federation.state import Update, report_on


@pytest.mark.parametrize("form", ["constant", "polynomial", "hinge"])
@pytest.mark.parametrize("a", [0.0, 0.3, 0.5, 0.9, 10.0])
def test_a_fresh_update_weighs_one_and_none_weighs_more_for_being_older(form, a):
    weights = [Staleness(form, a)(x) for x in range(50)]
    assert weights[0] == 1.0
    assert all(0 < later <= earlier for earlier, later in itertools.pairwise(weights))


def test_the_three_forms_as_their_authors_write_them():
    assert Staleness("polynomial", 0.5)(3) == 0.5
    assert Staleness("polynomial", 0.5, offset=1)(0) == pytest.approx(0.7071, abs=1e-4)  # the paper's t - tau = 1
    assert [Staleness("hinge", 10, 4)(x) for x in (4, 5, 7)] == [1.0, pytest.approx(1 / 11), pytest.approx(1 / 31)]
    assert Staleness("polynomial", 0.0)(9) == 1.0  # Figure 9's a = 0


def test_staleness_counts_server_updates_and_versions_to_come_are_refused():
    update = Update("a", "g", 9, {}, 1.0)
    assert report_on(update, 12).staleness == 3
    with pytest.raises(ValueError, match="update of version 9, but the server is at 8"):
        report_on(update, 8)
