"""Catch the patch: key frames, trajectories, looks, pixels, targets, each against a slow, literal version."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from fedaction.data.clips.draws import below, uniform
from fedaction.federation.seeds import generator
from fedaction.methods.pretext import CtP
from fedaction.methods.pretext.patch import draw_looks, paste
from fedaction.methods.pretext.trajectory import between, draw_keys, draw_paces
from fedaction.models.roi import roi_align
from tests.methods.pretext.tasks import check_apply, check_draw, check_learning, check_stacking, recordings
from tests.models.common import started

PROBABILITIES = (0.5, 0.3, 0.2)
MANY = 20_000


def shares(values, kinds):
    return [float((values == kind).double().mean()) for kind in kinds]


def test_key_frames():
    """The first, the last and 0, 1 or 2 between, moved by less than a third of the spacing, and how often each."""
    keys = draw_keys(MANY, 16, PROBABILITIES, generator(0, "keys"))
    assert keys.shape == (MANY, 4) and (keys[:, 0] == 0).all() and (keys[:, -1] == 15).all()
    inner = (keys[:, 1:3] < 15).sum(1)
    assert shares(inner, range(3)) == pytest.approx(PROBABILITIES, abs=0.012)
    one, two = keys[inner == 1][:, 1], keys[inner == 2][:, 1:3]
    # 16 / 2 = 8 and a third of it is 2; 16 / 3 = 5.33, twice that is 10, and a third of it is 1.
    assert shares(one, (6, 7, 8, 9)) == pytest.approx([0.25] * 4, abs=0.03)
    assert shares(two[:, 0], (4, 5)) == pytest.approx([0.5] * 2, abs=0.03)
    assert shares(two[:, 1], (9, 10)) == pytest.approx([0.5] * 2, abs=0.03)


@pytest.mark.parametrize("frames", [2, 3, 5, 8, 24])
def test_key_frames_of_other_clips(frames):
    keys = draw_keys(500, frames, PROBABILITIES, generator(1, "keys"))
    assert (keys.diff(dim=1) >= 0).all() and (keys[:, 0] == 0).all() and (keys[:, -1] == frames - 1).all()


def test_paces_are_as_frequent_as_said():
    keys = draw_keys(MANY, 16, PROBABILITIES, generator(0, "keys"))
    assert shares(draw_paces(keys, generator(0, "paces")), range(3)) == pytest.approx([0.7, 0.15, 0.15], abs=0.008)


def literal_between(values, keys, paces):
    """One clip: values of key frames (K, ...) to those of all frames."""
    out = [values[0]] * (int(keys[-1]) + 1)
    for i in range(len(keys) - 1):
        first, last = int(keys[i]), int(keys[i + 1])
        for step in range(1, last - first + 1):
            share = step / (last - first)
            share = {0: share, 1: share**2, 2: 1 - (1 - share) ** 2}[int(paces[i])]
            out[first + step] = values[i] + (values[i + 1] - values[i]) * share
    return torch.stack(out)


def test_between_key_frames():
    keys = draw_keys(60, 16, PROBABILITIES, generator(2, "keys"))
    paces, values = draw_paces(keys, generator(2, "paces")), uniform((60, 4, 3, 2), generator(2, "values"))
    expected = torch.stack([literal_between(*each) for each in zip(values, keys, paces, strict=True)])
    torch.testing.assert_close(between(values, keys, paces), expected)
    expected = torch.stack([literal_between(*each) for each in zip(values, keys, 0 * paces, strict=True)])
    torch.testing.assert_close(between(values, keys), expected)
    ends, span = torch.tensor([[0.0, 5.0]]), torch.tensor([[0, 10]])
    faster = [0, 0.05, 0.2, 0.45, 0.8, 1.25, 1.8, 2.45, 3.2, 4.05, 5]
    torch.testing.assert_close(between(ends, span, torch.tensor([[1]]))[0], torch.tensor(faster))
    slower = [5 - value for value in reversed(faster)]
    torch.testing.assert_close(between(ends, span, torch.tensor([[2]]))[0], torch.tensor(slower))


def literal_trajectories(task, count, random):
    """Box by box, in the reference's words, from the same random numbers in the same order."""
    scales, ratios = (16, 24, 28, 32, 48, 64), (0.5, 0.67, 0.75, 1, 1.33, 1.5, 2)
    unit, size, frames, boxes = task.size / 112, task.size, task.frames, task.boxes
    number = below(torch.full((count, boxes), 42), random)
    jitter = uniform((count, boxes, 2), random, -0.18, 0.18)
    place = uniform((count, boxes, 2), random)
    moves, grows = [], []
    for most, steps in ((3 * unit, moves), (0.025, grows)):
        keys = draw_keys(count, frames, PROBABILITIES, random)
        draws = [uniform((count, boxes, 2), random, -most, most) for _ in range(3)]
        steps += [keys, draws, draw_paces(keys, random)]
    out = torch.zeros(count, boxes, frames, 4)
    for n in range(count):
        for b in range(boxes):
            scale, ratio = scales[int(number[n, b]) // 7] * unit, ratios[int(number[n, b]) % 7]
            side = [scale * math.sqrt(ratio), scale / math.sqrt(ratio)]
            side = [min(max(s * math.exp(j), 1), size - 1) for s, j in zip(side, jitter[n, b].tolist(), strict=True)]
            lines = []
            for axis in range(2):
                half = side[axis] / 2
                centres, widths = [half + float(place[n, b, axis]) * (size - side[axis])], [side[axis]]
                for i in range(3):
                    gap = int(moves[0][n, i + 1] - moves[0][n, i])
                    moved = centres[-1] + float(moves[1][i][n, b, axis]) * gap
                    centres.append(min(max(moved, half), size - half))
                    gap = int(grows[0][n, i + 1] - grows[0][n, i])
                    widths.append(widths[-1] * math.exp(float(grows[1][i][n, b, axis]) * gap))
                centre = literal_between(torch.tensor(centres, dtype=torch.float64), moves[0][n], moves[2][n])
                width = literal_between(torch.tensor(widths, dtype=torch.float64), grows[0][n], grows[2][n])
                lines.append([(centre - width / 2), (centre + width / 2)])
            (x1, x2), (y1, y2) = lines
            box = torch.stack([x1, y1, x2, y2], -1).clamp(0, size)
            out[n, b] = box.round() if task.rounding == "pixels" or size >= 112 else box
    return out


@pytest.mark.parametrize("task", [CtP(), CtP(frames=8, size=56), CtP(frames=8, size=56, rounding="pixels")])
def test_trajectories(task):
    boxes = task.walk.draw(40, generator(3, "walk"))
    torch.testing.assert_close(boxes, literal_trajectories(task, 40, generator(3, "walk")), atol=1e-4, rtol=0)


@pytest.mark.parametrize("task", [CtP(), CtP(frames=8, size=56), CtP(frames=8, size=32), CtP(size=16, boxes=5)])
@pytest.mark.parametrize("rounding", ["auto", "pixels", "none"])
def test_boxes_stay_inside_and_are_whole_where_that_is_little(task, rounding):
    task = replace(task, rounding=rounding)
    boxes = task.walk.draw(2000, generator(4, "walk"))
    assert boxes.shape == (2000, task.boxes, task.frames, 4) and boxes.dtype == torch.float32
    assert boxes.min() >= 0 and boxes.max() <= task.size
    assert torch.equal(boxes, boxes.round()) == (rounding == "pixels" or (rounding == "auto" and task.size == 112))
    assert (boxes[..., 2:] - boxes[..., :2]).min() > 0.999


@pytest.mark.parametrize(("frames", "size"), [(16, 112), (16, 64), (8, 32)])
def test_little_of_what_is_to_be_predicted_is_rounding(frames, size):
    def sizes(rounding):
        task = CtP(frames=frames, size=size, rounding=rounding)
        return task.targets(task.walk.draw(4000, generator(6, "walk")).double())[..., 2:]

    exact = sizes("none")

    def share(rounding):
        return float((sizes(rounding) - exact).var() / sizes(rounding).var())

    assert share("auto") < 0.05
    if size == 32:
        assert share("pixels") > 0.6  # what "auto" avoids


def test_a_box_that_ends_within_a_pixel_covers_a_part_of_it():
    """At 32 pixels, a bright patch's area and centre, read off the picture, are the box's own, fractions and all."""
    task = CtP(frames=8, size=32, boxes=1, opacity=1.0, visible=1.0, smooth=0.0)
    drawn = task.draw(60, (8, 32, 32, 3), generator(7, "draw"))
    drawn = {**drawn, "shape": torch.zeros(60, 1, dtype=torch.long)}
    for n in range(60):
        source, boxes = int(drawn["source"][n, 0]), drawn["boxes"][n, 0]
        clips = torch.zeros(1, 8, 32, 32, 3)
        clips[0, source] = 1.0
        picture = paste(clips, {name: tensor[n : n + 1] for name, tensor in drawn.items()})[0, ..., 0]
        middles = torch.arange(32) + 0.5
        for frame in set(range(8)) - {source}:
            box, seen = boxes[frame], picture[frame]
            centre = torch.stack([(seen.sum(0) * middles).sum(), (seen.sum(1) * middles).sum()]) / seen.sum()
            torch.testing.assert_close(seen.sum(), (box[2:] - box[:2]).prod(), atol=1e-3, rtol=1e-4)
            # A column of which the box has a part counts as if that part were in its middle.
            assert (centre - (box[:2] + box[2:]) / 2).abs().max() < 0.13


def test_sides_and_speeds():
    boxes = CtP().walk.draw(MANY, generator(5, "walk"))
    sides, centres = boxes[..., 2:] - boxes[..., :2], (boxes[..., :2] + boxes[..., 2:]) / 2
    first = sides[:, :, 0]
    least, most = 16 * math.sqrt(0.5) * math.exp(-0.18), 64 * math.sqrt(2) * math.exp(0.18)
    assert least - 1 <= first.min() <= least + 1 and most - 1 <= first.max() <= most + 1
    area = (first[..., 0] * first[..., 1]).sqrt()
    assert float(area.mean()) == pytest.approx((16 + 24 + 28 + 32 + 48 + 64) / 6, rel=0.02)
    assert float((first[..., 0] / first[..., 1]).log().mean()) == pytest.approx(0, abs=0.02)
    # At most three pixels a frame on average, twice that while going ever faster or slower; one for rounding.
    moved = centres.diff(dim=2).abs()
    assert 3 < float(moved.max()) <= 7 and float((centres[:, :, -1] - centres[:, :, 0]).abs().max()) <= 46
    small = CtP(size=56).walk.draw(MANY, generator(5, "walk"))
    assert (small * 2 - boxes).abs().max() < 0.51  # half as large, half as fast, and not rounded
    assert CtP(size=56, unit=1.0).walk.scales == CtP().walk.scales and CtP(size=56).walk.speed == 1.5


def test_looks_are_as_frequent_as_said():
    boxes = torch.zeros(MANY, 3, 16, 4)
    looks = draw_looks(boxes, 0.8, 0.8, 0.5, PROBABILITIES, generator(6, "looks"))
    assert shares(looks["shape"], range(3)) == pytest.approx([0.5, 0.35, 0.15], abs=0.007)
    assert shares(looks["source"], range(16)) == pytest.approx([1 / 16] * 16, abs=0.005)
    edge, opacity = looks["edge"], looks["opacity"]
    assert float((edge > 0).float().mean()) == pytest.approx(0.5, abs=0.007)
    faded = 0.5 - edge[edge > 0]  # where fading begins
    assert 0.30 <= float(faded.min()) < 0.301 and 0.449 < float(faded.max()) <= 0.45
    shown = opacity > 0
    assert shown[:, :, 0].all() and shown.gather(2, looks["source"][..., None]).all()
    free = torch.ones_like(shown).scatter(2, looks["source"][..., None], False)
    free[:, :, 0] = False
    assert float(shown[free].float().mean()) == pytest.approx(0.8, abs=0.003)
    assert 0.8 <= float(opacity[shown].min()) < 0.801 and 0.999 < float(opacity[shown].max()) <= 1
    assert float(opacity[:, :, 0].mean()) == pytest.approx(0.9, abs=0.002)
    # Without inner key frames opacity is a straight line, with them it is not: as often as they are drawn.
    bent = draw_looks(boxes, 1.0, 0.8, 0.5, PROBABILITIES, generator(6, "looks"))["opacity"].diff(n=2).abs().amax(2)
    assert float((bent < 1e-5).float().mean()) == pytest.approx(0.5, abs=0.01)


def literal_form(width, height, shape, edge):
    alpha = torch.zeros(height, width)
    for y in range(height):
        for x in range(width):
            dx, dy = abs(x - (width - 1) // 2) / width, abs(y - (height - 1) // 2) / height
            far = (max(dx, dy), math.sqrt(dx * dx + dy * dy), dx + dy)[shape]
            alpha[y, x] = 1.0 if shape == 0 or far < 0.5 else 0.0
            if edge > 0:
                alpha[y, x] *= min(max((0.5 - far) / edge, 0.0), 1.0)
    return alpha


def resized(picture, width, height):
    return F.interpolate(picture.permute(2, 0, 1)[None], (height, width), mode="bilinear")[0].permute(1, 2, 0)


def literal_paste(clip, drawn):
    """One clip: patches cut out, resized and pasted one after another."""
    boxes = drawn["boxes"].long()
    sides = (boxes[..., 2:] - boxes[..., :2]).float().mean(1)
    out = clip.clone()
    for b in sorted(range(len(boxes)), key=lambda b: -float(sides[b].prod())):
        source = int(drawn["source"][b])
        x1, y1, x2, y2 = boxes[b, source].tolist()
        patch = clip[source, y1:y2, x1:x2]
        form = literal_form(x2 - x1, y2 - y1, int(drawn["shape"][b]), float(drawn["edge"][b]))
        for f in range(len(clip)):
            x1, y1, x2, y2 = boxes[b, f].tolist()
            alpha = resized(form[..., None], x2 - x1, y2 - y1) * drawn["opacity"][b, f]
            under = out[f, y1:y2, x1:x2]
            out[f, y1:y2, x1:x2] = under * (1 - alpha) + resized(patch, x2 - x1, y2 - y1) * alpha
    return out


@pytest.mark.parametrize(("frames", "size", "boxes"), [(16, 112, 3), (8, 56, 3), (6, 32, 5)])
def test_pasting_against_a_literal_version(frames, size, boxes):
    task = CtP(frames=frames, size=size, boxes=boxes, rounding="pixels")
    clips = recordings(6, frames, size, size).float()
    drawn = task.draw(6, (frames, size, size, 3), generator(7, "draw"))
    found = paste(clips, drawn)
    for n in range(6):
        expected = literal_paste(clips[n], {name: tensor[n] for name, tensor in drawn.items()})
        torch.testing.assert_close(found[n], expected, atol=0.02, rtol=0)
    assert not torch.equal(found, clips)


def test_an_opaque_patch_is_its_source_resized_and_the_rest_is_untouched():
    clips = recordings(1, 4, 40, 40).float()
    boxes = torch.tensor([[2.0, 3, 12, 11], [5, 6, 15, 14], [20, 20, 40, 36], [10, 0, 17, 40]]).view(1, 1, 4, 4)
    drawn = {"boxes": boxes, "source": torch.tensor([[1]]), "shape": torch.tensor([[0]]), "edge": torch.zeros(1, 1)}
    drawn["opacity"] = torch.tensor([1.0, 1, 1, 0]).view(1, 1, 4)
    found = paste(clips, drawn)[0]
    patch = clips[0, 1, 6:14, 5:15]
    torch.testing.assert_close(found[0, 3:11, 2:12], patch, atol=0.01, rtol=0)
    torch.testing.assert_close(found[1], clips[0, 1], atol=0.01, rtol=0)
    torch.testing.assert_close(found[2, 20:36, 20:40], resized(patch, 20, 16), atol=0.01, rtol=0)
    assert torch.equal(found[3], clips[0, 3])  # not shown
    outside = torch.ones(40, 40, dtype=torch.bool)
    outside[3:11, 2:12] = False
    assert torch.equal(found[0][outside], clips[0, 0][outside])


def test_smaller_patches_lie_on_larger_ones_and_show_what_was_there_before_any():
    clips = torch.zeros(1, 2, 40, 40, 3)
    clips[0, 1, :20], clips[0, 1, 20:] = 50.0, 200.0
    large, small = torch.tensor([0.0, 20, 30, 40]), torch.tensor([5.0, 5, 10, 10])
    on_large = torch.tensor([10.0, 30, 15, 35])
    drawn = {
        "boxes": torch.stack([torch.stack([on_large, small]), torch.stack([large, large])])[None],
        "source": torch.tensor([[1, 1]]),
        "shape": torch.zeros(1, 2, dtype=torch.long),
        "edge": torch.zeros(1, 2),
        "opacity": torch.ones(1, 2, 2),
    }
    for order in ([0, 1], [1, 0]):
        first = paste(clips, {name: tensor[:, order] for name, tensor in drawn.items()})[0, 0, ..., 0]
        assert (first[30:35, 10:15] - 50).abs().max() < 0.01 and (first[20:30, :30] - 200).abs().max() < 0.01
        assert not first[:20].any()


def test_frames():
    """Strides 1 to 5, each frame late by less than a stride; past the end, the last frame."""
    task = CtP()
    frames = task.draw(MANY, (90, 24, 24, 3), generator(8, "frames"))["frames"]
    assert frames.min() == 0 and frames.max() == 89
    steps = frames.diff(dim=1)
    assert steps.min() >= 0 and steps.max() == 9
    # At stride 1 nothing is late: a clip of consecutive frames is one of stride 1, or a rare coincidence.
    assert float((steps == 1).all(1).float().mean()) == pytest.approx(0.2, abs=0.01)
    for stride in (1, 3, 5):
        own = CtP(strides=(stride,)).draw(4000, (90, 24, 24, 3), generator(9, "frames"))["frames"]
        late = own - own[:, :1] - stride * torch.arange(16)
        assert int(late.abs().max()) == stride - 1
        first = 90 - 15 * stride - 1  # the last start that leaves room
        assert own[:, 0].min() == 0 and own[:, 0].max() == min(first + stride - 1, 89)
    short = CtP(strides=(5,)).draw(50, (20, 24, 24, 3), generator(9, "frames"))["frames"]
    assert short.max() == 19 and (short[:, 4:] == 19).all() and (short[:, 0] < 5).all()


def test_colours():
    drawn = CtP().draw(MANY, (90, 24, 24, 3), generator(10, "colours"))
    assert float((drawn["hue"] != 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert 11.9 < float(drawn["hue"].max()) <= 12
    for name, neutral, low, high in (("brightness", 0, -30, 30), ("contrast", 1, math.exp(-0.12), math.exp(0.12))):
        values = drawn[name]
        assert values.shape == (MANY, 16)
        on = (values != neutral).any(1)
        assert float(on.float().mean()) == pytest.approx(0.5, abs=0.01)
        span = high - low
        assert low - 1e-6 <= values.min() < low + 0.01 * span and high - 0.01 * span < values.max() <= high + 1e-6
        bent = values[on].diff(n=2, dim=1).abs().amax(1) > 1e-5 * span
        # Straight only without inner key frames (0.7) and at an even pace (0.7).
        assert float(bent.float().mean()) == pytest.approx(1 - 0.7 * 0.7, abs=0.02)


def test_targets_and_loss_against_a_literal_version(double):
    for task in (CtP(), CtP(frames=8, size=56)):
        boxes = task.walk.draw(2, generator(11, "walk"))
        found = torch.randn(2, 3, task.frames, 4, generator=generator(11, "found"))
        unit, centre, size = task.size / 112, 0.0, 0.0
        targets = task.targets(boxes.double())
        for n in range(2):
            for b in range(3):
                x1, y1, x2, y2 = boxes[n, b, 0].tolist()
                roi = ((x1 + x2) / 2, (y1 + y2) / 2, max(x2 - x1, 1), max(y2 - y1, 1))
                for f in range(task.frames):
                    x1, y1, x2, y2 = boxes[n, b, f].tolist()
                    expected = [((x1 + x2) / 2 - roi[0]) / (0.8 * unit), ((y1 + y2) / 2 - roi[1]) / (0.8 * unit)]
                    expected += [math.log(max(x2 - x1, 1) / roi[2]) / 0.04, math.log(max(y2 - y1, 1) / roi[3]) / 0.04]
                    assert targets[n, b, f].tolist() == pytest.approx(expected, abs=1e-9)
                    wrong = [abs(float(found[n, b, f, i]) - expected[i]) for i in range(4)]
                    smooth = [0.5 * d * d if d < 1 else d - 0.5 for d in wrong]
                    centre, size = centre + sum(smooth[:2]), size + sum(smooth[2:])
        asked = []

        def net(x, rois, asked=asked, found=found):
            asked.append(rois)
            return found

        loss, metrics = task.loss(net, torch.zeros(2), boxes)
        assert float(metrics["centre"]) == pytest.approx(centre / (6 * task.frames))
        assert float(metrics["size"]) == pytest.approx(size / (6 * task.frames))
        assert float(loss) == pytest.approx((centre + size) / (6 * task.frames))
        assert torch.equal(asked[0], boxes[:, :, 0])


def test_targets_are_the_boxes_of_the_clips():
    """Patches cut from a bright square are found where the targets say."""
    x = torch.zeros(4, 30, 64, 64, 3, dtype=torch.uint8)
    plain = {"opacity": 1.0, "visible": 1.0, "light_chance": 0.0, "hue_chance": 0.0, "smooth": 0.0}
    task = CtP(frames=8, size=56, boxes=1, rounding="pixels", **plain)
    drawn = task.draw(4, tuple(x.shape[1:]), generator(12, "draw"))
    for n in range(4):
        x[n, drawn["frames"][n, drawn["source"][n, 0]]] = 255  # the source frame alone is bright
    clips, boxes = task.apply(x, {**drawn, "shape": torch.zeros(4, 1, dtype=torch.long)})
    for n in range(4):
        for f in range(8):
            if f != int(drawn["source"][n, 0]) and drawn["frames"][n, f] != drawn["frames"][n, drawn["source"][n, 0]]:
                x1, y1, x2, y2 = boxes[n, 0, f].long().tolist()
                expected = torch.zeros(56, 56, 3)
                expected[y1:y2, x1:x2] = 255
                torch.testing.assert_close(clips[n, f], expected, atol=0.01, rtol=0)


def test_strides_of_the_network_follow():
    net = CtP(frames=8, size=56).network(18, 2)
    assert net.backbone(recordings(1, 8, 56, 56), leave=5).shape == (1, 1, 7, 7, 16)
    assert net.head.stride == 8 and net.backbone.arguments["image_strides"] == (1, 2, 2, 1)
    assert net(recordings(1, 8, 56, 56), torch.tensor([[[0.0, 0, 20, 20]]])).shape == (1, 1, 8, 4)


def test_wrong_settings_are_refused():
    for options, words in (({"boxes": 0}, "a box"), ({"strides": (0, 1)}, "strides"), ({"frames": 1}, "2 frames")):
        with pytest.raises(ValueError, match=words):
            CtP(**options)


def test_draw_and_apply():
    task = CtP(frames=8, size=32)
    check_draw(task, (40, 36, 40, 3))
    check_apply(task, (40, 36, 40, 3))


def test_clients_one_at_a_time_and_at_once_agree(double):
    check_stacking(CtP(frames=8, size=32, boxes=2), (20, 36, 36, 3))


def test_what_lies_under_a_patchs_own_box_tells_where_it_goes():
    """A linear map of the stem's features does, for new clips; under the box of another clip's patch it does not."""
    task = CtP(frames=4, size=32, boxes=1, speed=10.0, visible=1.0, opacity=1.0, smooth=0.0, light_chance=0.0)
    random = generator(14, "draw")
    drawn = task.draw(600, (12, 32, 32, 3), random)
    x = torch.randint(0, 60, (600, 12, 32, 32, 3), generator=random, dtype=torch.uint8)
    source = drawn["frames"].gather(1, drawn["source"])
    x[torch.arange(600), source[:, 0]] += 160  # bright patches in dark clips
    clips, boxes = task.apply(x, drawn)
    with torch.no_grad():
        maps = started(task.network(18, 4)).backbone(clips, leave=1).movedim(1, 3).flatten(3)
    explained = []
    for first in (boxes[:, :, 0], boxes[:, :, 0].roll(1, 0)):
        seen = roi_align(maps, first, 1 / 2, 5).flatten(1).double()
        seen = seen - seen.mean(0)
        moved = task.targets(boxes)[:, 0, -1, :2].double()
        ridge = seen[:450].T @ seen[:450] + 100 * torch.eye(seen.shape[1])
        guess = seen[450:] @ torch.linalg.solve(ridge, seen[:450].T @ moved[:450])
        explained.append(1 - float((guess - moved[450:]).square().mean() / moved[450:].var()))
    assert explained[0] > 0.4 and explained[1] < 0.15, explained


def test_the_loss_goes_down():
    check_learning(CtP(frames=4, size=32, boxes=2), recordings(3, 20, 40, 40), 0.02, 25, 0.8)
