import itertools

import pytest
import torch

from fedaction.federation.average import RunningMean, scoped_average
from fedaction.federation.scope import GLOBAL, GROUP
from fedaction.federation.seeds import generator
from fedaction.federation.state import Part, ServerState, Update


def update(client, tree, weight, group="g"):
    return Update(client, group, 0, tree, {}, weight)


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
    new = scoped_average(server, iter(updates), lambda _: {"shared": GLOBAL, "enc": GROUP}, lambda _: {})
    assert new.version == 4
    assert new.shared["shared"].item() == pytest.approx(3.75)
    assert {g: t["enc"].item() for g, t in new.groups.items()} == {"video": 15.0, "audio": 70.0, "text": 8.0}
    assert server.shared["shared"].item() == 0.0


def test_a_weight_must_be_positive():
    with pytest.raises(ValueError, match="positive"):
        RunningMean().add({"w": torch.ones(1)}, 0.0)
