import itertools

import pytest
import torch

from fedaction.federation.average import Averager, Mean, RunningMean, mix
from fedaction.federation.scope import GLOBAL, GROUP
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job, Part, ServerState, Update


def update(client, tree, samples, group="g"):
    return Update(client, group, 0, tree, samples)


def average(server, updates, scopes, weights=None):
    """The state after a plain step, from updates whose clients were all sent zeros."""
    mean = Averager()
    for number, one in enumerate(updates):
        job = Job(one.client, one.group, 0, 1, {name: torch.zeros_like(t) for name, t in one.tree.items()})
        mean.add(one, job, weights[number] if weights else one.samples, scopes, {})
    return mean.averages().step(server, Mean.over)


def test_the_mean_is_weighted_and_streams():
    random = generator(0, "average")
    trees = [{"w": torch.randn(3, 4, generator=random)} for _ in range(5)]
    weights = [1.0, 2.0, 30.0, 4.0, 5.5]
    mean = RunningMean()
    for tree, weight in zip(trees, weights, strict=True):
        mean.add(tree, weight)
    literal = sum(w * t["w"].double() for w, t in zip(weights, trees, strict=True)) / sum(weights)
    torch.testing.assert_close(mean.over({"w": torch.zeros(3, 4)})["w"].double(), literal, atol=1e-6, rtol=0)


def test_equal_updates_come_back_exactly():
    tree = {"w": torch.randn(100, generator=generator(1, "average"))}
    mean = RunningMean()
    for weight in (1.0, 7.0, 0.3):
        mean.add(tree, weight)
    assert torch.equal(mean.over(tree)["w"], tree["w"])


def test_an_update_is_not_changed_or_held_on_to():
    first, second = {"w": torch.ones(3)}, {"w": torch.zeros(3)}
    mean = RunningMean()
    mean.add(first, 1.0)
    mean.add(second, 1.0)
    assert torch.equal(first["w"], torch.ones(3)) and torch.equal(second["w"], torch.zeros(3))


def test_each_entry_of_a_part_is_averaged_over_those_who_hold_it():
    # The server's matrix has joints 0..3. One client holds 0, 2; one holds 2, 1; one holds all.
    a = Part((4, 4), (torch.tensor([0, 2]), torch.tensor([0, 2])))
    b = Part((4, 4), (torch.tensor([2, 1]), torch.tensor([2, 1])))
    random = generator(2, "average")
    held = [
        torch.randn(2, 2, generator=random),
        torch.randn(2, 2, generator=random),
        torch.randn(4, 4, generator=random),
    ]
    weights = [1.0, 3.0, 2.0]
    indices = [[0, 2], [2, 1], [0, 1, 2, 3]]
    for order in itertools.permutations(range(3)):
        mean = RunningMean()
        for i in order:
            mean.add({"m": held[i]}, weights[i], [{"m": a}, {"m": b}, {}][i])
        found = mean.over({"m": torch.full((4, 4), 9.0)})["m"]
        for r, c in itertools.product(range(4), range(4)):
            values = [
                (w, float(h[index.index(r), index.index(c)]))
                for h, w, index in zip(held, weights, indices, strict=True)
                if r in index and c in index
            ]
            expected = sum(w * v for w, v in values) / sum(w for w, _ in values)
            assert found[r, c].item() == pytest.approx(expected, abs=1e-6)


def test_entries_that_nobody_holds_stay_as_they_were():
    mean = RunningMean()
    mean.add({"m": torch.zeros(1)}, 1.0, {"m": Part((3,), (torch.tensor([1]),))})
    assert mean.over({"m": torch.tensor([5.0, 6.0, 7.0])})["m"].tolist() == [5.0, 0.0, 7.0]


def test_integer_counters_are_averaged_and_stay_integers():
    mean = RunningMean()
    mean.add({"n": torch.tensor(10)}, 1.0)
    mean.add({"n": torch.tensor(21)}, 1.0)
    found = mean.over({"n": torch.tensor(0)})["n"]
    assert found.dtype == torch.int64 and found.item() == 16  # 15.5, rounded to even


def test_scopes_decide_who_is_averaged_with_whom():
    server = ServerState(
        3,
        {"shared": torch.zeros(1)},
        {"video": {"enc": torch.zeros(1)}, "audio": {"enc": torch.zeros(1)}, "text": {"enc": torch.full((1,), 8.0)}},
    )
    updates = [
        update("a", {"shared": torch.tensor([1.0]), "enc": torch.tensor([10.0])}, 1, "video"),
        update("b", {"shared": torch.tensor([2.0]), "enc": torch.tensor([20.0])}, 1, "video"),
        update("c", {"shared": torch.tensor([6.0]), "enc": torch.tensor([70.0])}, 2, "audio"),
    ]
    new = average(server, iter(updates), {"shared": GLOBAL, "enc": GROUP})
    assert new.version == 4
    assert new.shared["shared"].item() == pytest.approx(3.75)
    assert {g: t["enc"].item() for g, t in new.groups.items()} == {"video": 15.0, "audio": 70.0, "text": 8.0}
    assert server.shared["shared"].item() == 0.0


def test_a_weight_must_be_positive():
    with pytest.raises(ValueError, match="positive"):
        RunningMean().add({"w": torch.ones(1)}, 0.0)


def test_a_mix_of_weightings_is_one_weight_for_each_client():
    random = generator(3, "average")
    trees = [{"w": torch.randn(5, generator=random)} for _ in range(4)]
    by_size, by_loss, alpha = (3.0, 1.0, 2.0, 2.0), (0.1, 0.7, 0.2, 0.4), 0.9
    updates = [update(str(i), tree, 1.0) for i, tree in enumerate(trees)]
    weights = [((alpha, loss), (1 - alpha, size)) for loss, size in zip(by_loss, by_size, strict=True)]
    new = average(ServerState(0, {"w": torch.zeros(5)}), updates, {"w": GLOBAL}, weights)
    losses, sizes = sum(by_loss), sum(by_size)
    one_each = [alpha * b / losses + (1 - alpha) * s / sizes for b, s in zip(by_loss, by_size, strict=True)]
    assert sum(one_each) == pytest.approx(1.0)
    literal = sum(w * tree["w"] for w, tree in zip(one_each, trees, strict=True))
    torch.testing.assert_close(new.shared["w"], literal, atol=1e-6, rtol=1e-6)


def test_means_know_what_had_been_sent_with_the_same_weights():
    mean = Averager()
    sent = [torch.tensor([1.0, 5.0]), torch.tensor([3.0])]
    parts = [{}, {"m": Part((2,), (torch.tensor([1]),))}]
    for number, (before, own) in enumerate(zip(sent, parts, strict=True)):
        job = Job(str(number), "g", 0, 1, {"m": before})
        mean.add(update(str(number), {"m": before + 10}, 1.0), job, 2.0 + number, {"m": GLOBAL}, own)
    found = mean.averages().shared
    assert found.sent["m"].tolist() == pytest.approx([1.0, (2 * 5 + 3 * 3) / 5])
    assert found.after["m"].tolist() == pytest.approx([11.0, (2 * 15 + 3 * 13) / 5])
    assert found.weights["m"].tolist() == [2.0, 5.0] and found.counts["m"].tolist() == [1.0, 2.0]


def test_a_mean_of_one_tensor_that_comes_again_and_again_is_no_copy_of_it():
    payload, mean = torch.ones(3), RunningMean()
    for _ in range(5):
        mean.add({"w": payload}, 1.0)
    assert mean.tree(copy=False)["w"] is payload and mean.tree()["w"] is not payload
    mean.add({"w": torch.zeros(3)}, 5.0)
    assert mean.tree()["w"].tolist() == [0.5] * 3 and payload.tolist() == [1.0] * 3


def test_mixing_is_convex_and_does_not_drift():
    """w + beta (mean - w): the edge paper's server, whose weights do not sum to one."""
    random = torch.Generator().manual_seed(0)
    old = {"w": torch.randn(50, generator=random), "count": torch.tensor(4)}
    new = {"w": torch.randn(50, generator=random), "count": torch.tensor(9)}
    for share in (0.1, 0.7, 1.0):

        def mixed(tree, beta=share):
            mean = RunningMean()
            mean.add(tree, beta)
            return mix(Mean(mean.tree(), {}, mean.weights, mean.counts), old)

        found = mixed(new)
        low, high = torch.minimum(old["w"], new["w"]), torch.maximum(old["w"], new["w"])
        assert ((found["w"] >= low - 1e-6) & (found["w"] <= high + 1e-6)).all()
        torch.testing.assert_close(found["w"], (1 - share) * old["w"] + share * new["w"])
        assert found["count"].dtype == torch.int64
        assert all(torch.equal(mixed({n: t.clone() for n, t in old.items()})[n], old[n]) for n in old)
