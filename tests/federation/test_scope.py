import pytest
import torch
from torch import nn

from fedaction.federation.scope import FROZEN, GLOBAL, LOCAL, Rule, ScopeError, ScopeTable, matches
from fedaction.federation.tree import describe


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("head", "head.weight", True),
        ("head", "head", True),
        ("head", "head2.weight", False),
        ("head", "body.head.weight", False),
        ("bn", "bn1.weight", False),
        ("units.*.norm", "units.3.norm.weight", True),
        ("units.*.norm", "units.3.sub.norm.weight", False),
        ("**.norm", "units.3.sub.norm.weight", True),
        ("**.norm", "norm.weight", True),
        ("**", "anything.at.all", True),
        ("a.b.c", "a.b", False),
    ],
)
def test_patterns_match_on_module_boundaries(pattern, name, expected):
    assert matches(pattern, name) is expected


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def test_parameters_and_buffers_are_told_apart_and_the_first_rule_wins():
    table = ScopeTable(
        (Rule("2", LOCAL), Rule("**", LOCAL, kind="buffer"), Rule("0.bias", FROZEN), Rule("**", GLOBAL))
    )
    assert table.resolve(describe(model())) == {
        "0.weight": GLOBAL,
        "0.bias": FROZEN,
        "1.weight": GLOBAL,
        "1.bias": GLOBAL,
        "1.running_mean": LOCAL,
        "1.running_var": LOCAL,
        "1.num_batches_tracked": LOCAL,
        "2.weight": LOCAL,
        "2.bias": LOCAL,
    }


def test_rules_can_select_by_module_type():
    scopes = ScopeTable((Rule("**", LOCAL, module="BatchNorm"), Rule("**", GLOBAL))).resolve(describe(model()))
    assert {name for name, scope in scopes.items() if scope is LOCAL} == {
        "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked",
    }  # fmt: skip


def test_a_name_that_no_rule_covers_is_an_error_that_names_it():
    with pytest.raises(ScopeError, match=r"'1\.running_mean' of a BatchNorm1d"):
        ScopeTable((Rule("**", GLOBAL, kind="parameter"),)).resolve(describe(model()))


def test_leaves_carry_shape_dtype_and_kind():
    leaf = describe(model())["1.num_batches_tracked"]
    assert (leaf.shape, leaf.dtype, leaf.kind, leaf.module) == ((), torch.int64, "buffer", "BatchNorm1d")
