from dataclasses import replace

import pytest
import torch

from fedaction.federation.state import Job, Report, Update
from fedaction.guard.base import Refused
from fedaction.guard.validate import NotTooOld, validate

JOB = Job("hospital-3", "skeleton", 0, 1, {"conv.weight": torch.zeros(2, 3), "n": torch.tensor(1)})
GOOD = Update("hospital-3", "skeleton", 0, {"conv.weight": torch.ones(2, 3), "n": torch.tensor(2)}, 5.0, occasion=1)
REPORT = Report("hospital-3", "skeleton", 5.0, 0)


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
        (replace(GOOD, samples=float("nan")), ["nan samples"]),
        (replace(GOOD, client="hospital-4"), ["answered as", "'hospital-4'"]),
        (replace(GOOD, version=1), ["('hospital-3', 'skeleton', 1)", "('hospital-3', 'skeleton', 0)"]),
        (replace(GOOD, samples=-1.0), ["-1.0 samples"]),
    ],
)
def test_bad_updates_are_refused_with_the_client_the_tensor_and_both_shapes(update, words):
    with pytest.raises(Refused) as caught:
        validate(update, JOB, REPORT)
    reason = str(caught.value)
    assert "'hospital-3'" in reason and all(word in reason for word in words), reason


def test_good_updates_pass_as_they_are():
    assert validate(GOOD, JOB, REPORT) is GOOD


def test_what_a_client_found_wrong_itself_is_a_reason():
    with pytest.raises(Refused, match=r"would keep 'head\.bias' with 1 of 2"):
        validate(replace(GOOD, fault="it would keep 'head.bias' with 1 of 2 values NaN"), JOB, REPORT)


def test_updates_may_be_too_old():
    guard = NotTooOld(3)
    assert guard(GOOD, JOB, replace(REPORT, staleness=3)) is GOOD
    with pytest.raises(Refused, match="an update 4 server updates old; 3 is the most"):
        guard(GOOD, JOB, replace(REPORT, staleness=4))
