import math

import pytest
import torch

from fedaction.data.graph import partition
from fedaction.data.layout import KINECT_V2
from fedaction.evaluation.landscape import filter_axes, filter_direction, loss_surface, shape_of
from fedaction.federation.seeds import generator
from fedaction.models.ctrgcn import CTRGCN
from fedaction.models.stgcn import STGCN


def weights() -> dict[str, torch.Tensor]:
    random = generator(3, "landscape")
    found = {"conv": torch.randn(4, 3, 5, generator=random), "head": 9 * torch.randn(2, 6, generator=random)}
    found |= {"bias": torch.randn(4, generator=random), "scale": torch.tensor(1.0)}
    return found | {"statistic": torch.randn(3, 3, generator=random)}


FILTERS = {"conv": 2, "head": 0}


def test_every_filter_is_as_long_as_the_weights_own():
    tensors = weights()
    direction = filter_direction(tensors, FILTERS, 0, 0)
    assert direction.keys() == FILTERS.keys()
    for name, moved in direction.items():
        for one, own in zip(moved.unbind(FILTERS[name]), tensors[name].unbind(FILTERS[name]), strict=True):
            assert float(one.norm()) == pytest.approx(float(own.norm()), rel=1e-5)
        assert moved.dtype == tensors[name].dtype
        assert not torch.equal(moved, tensors[name])


def test_filters_of_a_skeleton_network_are_its_outputs_and_biases_rest():
    network = CTRGCN(
        partition(KINECT_V2, "inward_outward_by_source"), classes=4, width=8, units=(1, 1, 1), adaptive=True
    )
    axes, parameters = filter_axes(network), dict(network.named_parameters())
    assert axes["units.0.spatial.value"] == 2 and parameters["units.0.spatial.value"].shape == (3, 3, 8)
    assert axes["classifier.weight"] == 0 and axes["topology.I"] == 0
    assert "units.0.spatial.value_bias" not in axes and parameters["units.0.spatial.value_bias"].dim() == 2
    assert not [name for name in axes if "norm" in name or name.endswith("bias")]
    plain = filter_axes(STGCN(partition(KINECT_V2, "spatial_legacy"), classes=4, width=4, units=(1, 1, 1)))
    assert plain["units.0.spatial.weight"] == plain["units.0.temporal.weight"] == 2
    assert "units.0.spatial.bias" not in plain  # (partitions, outputs): two axes, and yet a bias


def test_a_filter_of_zeros_stays_zero():
    direction = filter_direction({"w": torch.zeros(2, 3)}, {"w": 0}, 0, 0)
    assert torch.equal(direction["w"], torch.zeros(2, 3))


def test_directions_depend_on_seed_axis_and_name_alone():
    tensors = weights()
    one = filter_direction(tensors, FILTERS, 0, 0)
    assert torch.equal(one["head"], filter_direction(tensors, {"head": 0}, 0, 0)["head"])
    for seed, axis in ((1, 0), (0, 1)):
        assert not torch.allclose(one["head"], filter_direction(tensors, FILTERS, seed, axis)["head"])


def test_the_surface_is_the_loss_along_both_directions():
    tensors = {"w": torch.tensor([[1.0, 2.0]], dtype=torch.float64), "fixed": torch.tensor([3.0])}
    one, other = {"w": torch.tensor([[1.0, 0.0]]).double()}, {"w": torch.tensor([[0.0, 1.0]]).double()}

    def loss(tree) -> float:
        x, y = tree["w"][0].tolist()
        return x**2 + 10 * y + float(tree["fixed"])

    surface = loss_surface(loss, tensors, one, other, radius=2, steps=5)
    expected = [[(1 + a) ** 2 + 10 * (2 + b) + 3 for b in range(-2, 3)] for a in range(-2, 3)]
    assert torch.allclose(surface, torch.tensor(expected, dtype=torch.float64))
    assert tensors["w"].tolist() == [[1.0, 2.0]]


def grid(function, radius: float = 1.0, steps: int = 21) -> torch.Tensor:
    places = torch.linspace(-radius, radius, steps, dtype=torch.float64)
    return function(places[:, None], places[None, :])


@pytest.mark.parametrize("steps", [11, 41])
def test_the_numbers_of_a_bowl(steps):
    shape = shape_of(grid(lambda a, b: 0.5 + 2 * a**2 + 3 * b**2, steps=steps))
    assert shape.centre == pytest.approx(0.5)
    assert shape.curvature == pytest.approx((4 + 6) / 2)  # the mean second derivative, whatever the grid
    assert shape.concave == 0
    assert shape.lost == 0


def test_bumps_are_told_from_steepness():
    bowl = grid(lambda a, b: 40 * (a**2 + b**2))
    bumpy = grid(lambda a, b: a**2 + b**2 + 0.2 * torch.sin(20 * a) * torch.sin(20 * b))
    assert shape_of(bowl).concave == 0
    assert 0.3 < shape_of(bumpy).concave < 0.7


def test_flat_is_the_share_within_one_nat():
    assert shape_of(grid(lambda a, b: 4 * a**2 + 0 * b, steps=5)).flat == pytest.approx(1 / 5)
    assert shape_of(grid(lambda a, b: 0.9 * a**2 + 0 * b)).flat == 1


def test_a_loss_that_is_not_finite_is_counted_and_kept_out():
    surface = grid(lambda a, b: a**2 + b**2, steps=5)
    surface[0, 0], surface[4, 4] = math.inf, math.nan
    shape = shape_of(surface, 1.0)
    assert shape.lost == pytest.approx(2 / 25)
    assert shape.curvature == pytest.approx(2)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_grid_without_a_centre_is_refused(steps):
    with pytest.raises(ValueError, match="odd number of steps"):
        loss_surface(lambda tree: 0.0, {}, {}, {}, steps=steps)
