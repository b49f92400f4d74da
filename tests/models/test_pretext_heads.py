"""Heads of the pretext tasks: sizes, literal versions, initial values."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from fedaction.federation.seeds import generator
from fedaction.methods.pretext import PRETEXTS
from fedaction.models.pretext_heads import OrderHead, SpeedHead, TrackHead
from fedaction.models.roi import roi_align
from tests.models.common import close, count, filled, samples, started

HEADS = {"ctp": 7_111_744, "vcop": 534_022, "speed": 3_591}


@pytest.mark.parametrize("name", HEADS)
def test_sizes(name):
    with torch.device("meta"):
        net = PRETEXTS[name]().network(18, 64)
    assert count(net.backbone) == 33_166_272
    assert count(net.head) == HEADS[name]
    assert {n.split(".")[0] for n in net.state_dict()} == {"backbone", "head"}


def test_sizes_of_ctps_layers():
    with torch.device("meta"):
        head = TrackHead(512)
    assert [count(layer) for layer in (head.collapse, head.hidden, head.track)] == [524_800, 6_554_112, 32_832]


@pytest.mark.parametrize(("name", "side"), [("vcop", 7), ("speed", 7), ("ctp", 14)])
def test_the_last_map_of_a_clip(name, side):
    with torch.device("meta"):
        net = PRETEXTS[name]().network(18, 64)
        assert net.backbone(torch.empty(1, 16, 112, 112, 3), leave=5).shape == (1, 2, side, side, 512)


def test_pixels_are_normalised_by_imagenets_statistics():
    net = PRETEXTS["speed"]().network(18, 1)
    torch.testing.assert_close(net.backbone.mean / 255, torch.tensor([0.485, 0.456, 0.406]))
    torch.testing.assert_close(net.backbone.std / 255, torch.tensor([0.229, 0.224, 0.225]))
    assert net.backbone.bn1.eps == 1e-3 and net.backbone.arguments["stem_frames"] == 3


@pytest.mark.parametrize("clips", [2, 3, 4])
def test_order_against_a_literal_version(double, clips):
    head, maps = filled(OrderHead(6, clips)).eval(), samples(2, clips, 2, 3, 3, 6)
    pooled = [maps[:, i].flatten(1, 3).mean(1) for i in range(clips)]
    hidden = [
        (torch.cat([pooled[i], pooled[j]], 1) @ head.pair.weight.T + head.pair.bias).relu()
        for i in range(clips)
        for j in range(i + 1, clips)
    ]
    logits = torch.cat(hidden, 1) @ head.order.weight.T + head.order.bias
    close(head(maps), logits)
    assert logits.shape[1] == len(list(itertools.permutations(range(clips))))


def test_speed_against_a_literal_version(double):
    head, maps = filled(SpeedHead(6)).eval(), samples(3, 2, 7, 7, 6)
    pooled = F.avg_pool3d(maps.permute(0, 4, 1, 2, 3), (2, 7, 7)).flatten(1)
    close(head(maps), pooled @ head.speed.weight.T + head.speed.bias)


@pytest.mark.parametrize("head", [OrderHead(64), SpeedHead(64)])
def test_half_of_the_features_are_dropped_in_training(head):
    seen = []
    started(head).train().dropout.register_forward_hook(lambda _, args, y: seen.append((args[0], y)))
    lead = (8, 3) if isinstance(head, OrderHead) else (8,)
    maps = torch.rand(*lead, 1, 2, 2, 64, generator=generator(4, "maps")) + 1
    head(maps)
    (before, after), alive = seen[0], seen[0][0] > 0
    assert float((after[alive] == 0).float().mean()) == pytest.approx(0.5, abs=0.1)
    kept = alive & (after != 0)
    torch.testing.assert_close(after[kept], 2 * before[kept])
    head.eval()
    assert torch.equal(head(maps), head(maps))


@pytest.mark.parametrize(("frames", "map_frames", "side"), [(16, 2, 14), (8, 1, 7), (20, 3, 4)])
def test_track_against_a_literal_version(double, frames, map_frames, side):
    head = filled(TrackHead(5, map_frames, frames)).eval()
    maps = samples(2, map_frames, side, side, 5)
    boxes = (torch.rand(2, 3, 4, generator=generator(3, "boxes")) * side * 8).sort(-1).values
    # The first layer is a convolution over all frames of the map: weights (outputs, frames, inputs).
    kernel = head.collapse.weight.view(5, map_frames, 5).permute(0, 2, 1)[..., None, None]
    image = F.conv3d(maps.permute(0, 4, 1, 2, 3), kernel, head.collapse.bias).squeeze(2).relu()
    seen = roi_align(image.permute(0, 2, 3, 1), boxes, 1 / 8, 5)
    for n, b in itertools.product(range(2), range(3)):
        hidden = head.hidden.weight @ seen[n, b].flatten() + head.hidden.bias
        hidden = torch.where(hidden < 0, 0.1 * hidden, hidden)  # as narrow heads do
        expected = (head.track.weight @ hidden + head.track.bias).view(frames, 4)
        close(head(maps, boxes)[n, b], expected)


def test_initial_values():
    track, order, speed = started(TrackHead(128)), started(OrderHead(128)), started(SpeedHead(512))
    full = started(TrackHead(512, bins=1))
    spreads = {
        full.hidden: 0.001,
        full.track: 0.001,
        track.collapse: (2 / 256) ** 0.5,
        track.hidden: 0.05,  # narrow heads start from more
        track.track: 0.05,
        order.pair: (2 / 128) ** 0.5,
        order.order: 0.001,
        speed.speed: 0.001,
    }
    for layer, std in spreads.items():
        assert layer.weight.std().item() == pytest.approx(std, rel=0.05)
        assert not layer.bias.any()
    assert (full.leak, track.leak) == (0.0, 0.1)
