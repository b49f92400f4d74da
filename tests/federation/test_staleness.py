"""How much an old update weighs."""

import itertools

import pytest
import torch

from fedaction.federation.average import mixed
from fedaction.federation.staleness import Staleness, staleness_of
from fedaction.federation.state import ServerState, Update


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
    server = ServerState(12, {})
    update = Update("a", "g", 9, {}, {}, 1.0)
    assert staleness_of(server, update) == 3
    with pytest.raises(ValueError, match="update of version 9, but the server is at 8"):
        staleness_of(ServerState(8, {}), update)


def test_mixing_is_convex_and_does_not_drift():
    random = torch.Generator().manual_seed(0)
    old = {"w": torch.randn(50, generator=random), "count": torch.tensor(4)}
    new = {"w": torch.randn(50, generator=random), "count": torch.tensor(9)}
    for share in (0.0, 0.1, 0.7, 1.0):
        found = mixed(ServerState(1, old), ServerState(2, new), share)
        low, high = torch.minimum(old["w"], new["w"]), torch.maximum(old["w"], new["w"])
        assert ((found.shared["w"] >= low - 1e-6) & (found.shared["w"] <= high + 1e-6)).all()
        torch.testing.assert_close(found.shared["w"], (1 - share) * old["w"] + share * new["w"])
        assert found.version == 2 and found.shared["count"].dtype == torch.int64
        same = mixed(ServerState(1, old), ServerState(2, {n: t.clone() for n, t in old.items()}), share)
        assert all(torch.equal(same.shared[n], old[n]) for n in old)
    with pytest.raises(ValueError, match="between 0 and 1"):
        mixed(ServerState(1, old), ServerState(2, new), 1.2)
