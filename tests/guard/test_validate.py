from dataclasses import replace

import pytest
import torch

from fedaction.federation.state import Job, Update
from fedaction.guard.validate import problem, validated

JOB = Job("hospital-3", "skeleton", 0, 1, {"conv.weight": torch.zeros(2, 3), "n": torch.tensor(1)}, {})
GOOD = Update("hospital-3", "skeleton", 0, {"conv.weight": torch.ones(2, 3), "n": torch.tensor(2)}, {}, 5.0)


def changed(**tensors):
    return replace(GOOD, tree={**GOOD.tree, **tensors})


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (replace(GOOD, tree={"n": torch.tensor(2)}), ["'conv.weight'", "(2, 3)", "did not send"]),
        (changed(extra=torch.zeros(4)), ["'extra'", "(4,)", "nobody asked"]),
        (changed(**{"conv.weight": torch.ones(3, 2)}), ["'conv.weight'", "(3, 2)", "(2, 3)"]),
        (changed(**{"conv.weight": torch.ones(2, 3).double()}), ["float64", "float32"]),
        (changed(**{"conv.weight": torch.full((2, 3), float("nan"))}), ["'conv.weight'", "6 of 6", "(2, 3)"]),
        (changed(**{"conv.weight": torch.tensor([[1, 1, 1], [1, 1, float("inf")]])}), ["1 of 6"]),
        (replace(GOOD, weight=float("nan")), ["weight nan"]),
        (replace(GOOD, weight=-1.0), ["weight -1.0"]),
    ],
)
def test_bad_updates_are_refused_with_the_client_the_tensor_and_both_shapes(update, words):
    reason = problem(update, JOB)
    assert reason is not None and "'hospital-3'" in reason
    assert all(word in reason for word in words), reason


def test_good_updates_pass_and_the_rest_goes_on():
    bad = replace(changed(extra=torch.zeros(1)), client="hospital-4")
    refusals = []
    jobs = {"hospital-3": JOB, "hospital-4": replace(JOB, client="hospital-4")}
    assert list(validated(iter([GOOD, bad, GOOD]), jobs.__getitem__, refusals.append)) == [GOOD, GOOD]
    assert [r.client for r in refusals] == ["hospital-4"]


def test_what_a_client_would_keep_must_be_finite_too():
    reason = problem(replace(GOOD, local={"head.bias": torch.tensor([1.0, float("nan")])}), JOB)
    assert reason is not None and "would keep 'head.bias' with 1 of 2" in reason
