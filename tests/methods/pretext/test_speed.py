"""Playback speed: strides, labels, the trap of short recordings, colours."""

import colorsys
import math

import pytest
import torch
import torch.nn.functional as F

from fedaction.data.clips.pixels import with_brightness, with_contrast, with_hue
from fedaction.federation.seeds import generator
from fedaction.methods.pretext import Speed
from tests.methods.pretext.tasks import check_apply, check_draw, check_learning, check_stacking, made, recordings

STRIDES = (-4, -2, -1, 0, 1, 2, 4)
PLAIN = Speed(frames=16, size=16, chance=0.0)


def frames_of(task, count, length, seed=0):
    drawn = task.draw(count, (length, 24, 32, 3), generator(seed, "frames"))
    return drawn["frames"], drawn["label"]


def test_labels_are_strides_in_order():
    assert Speed().strides == STRIDES
    frames, labels = frames_of(Speed(), 14_000, 70)
    for label, stride in enumerate(STRIDES):
        own = frames[labels == label]
        assert (own.diff(dim=1) == stride).all()
        span = abs(stride) * 15 + 1
        assert set(own.amin(1).tolist()) == set(range(70 - span + 1))
    torch.testing.assert_close(labels.bincount() / 14_000, torch.full((7,), 1 / 7), atol=0.012, rtol=0)


def test_clips_show_those_frames():
    x = torch.arange(80, dtype=torch.uint8).view(1, -1, 1, 1, 1).expand(30, -1, 20, 20, 3)
    clips, labels, drawn = made(PLAIN, x)
    assert torch.equal(labels, drawn["label"]) and labels.dtype == torch.int64
    assert torch.equal(clips.mean((2, 3, 4)).round().long(), drawn["frames"])


@pytest.mark.parametrize(
    ("length", "fit"), [(61, STRIDES), (60, (-2, -1, 0, 1, 2)), (31, (-2, -1, 0, 1, 2)), (16, (-1, 0, 1))]
)
def test_strides_that_would_stand_still_at_the_end_are_not_drawn(length, fit):
    frames, labels = frames_of(Speed(), 2000, length)
    assert {STRIDES[label] for label in labels.tolist()} == set(fit)
    strides = torch.tensor(STRIDES)[labels]
    assert torch.equal(frames.diff(dim=1), strides[:, None].expand(-1, 15))  # every step is what the label says


def test_easy_strides_come_first_and_keep_their_labels():
    task = Speed(easy=(4, 0, 1), easy_rounds=3)
    for round, fit in ((1, {0, 1, 4}), (3, {0, 1, 4}), (4, {*STRIDES}), (None, {*STRIDES})):
        drawn = task.draw(2000, (70, 24, 32, 3), generator(0, "frames"), round)
        strides = torch.tensor(STRIDES)[drawn["label"]]
        assert {*strides.tolist()} == fit
        assert torch.equal(drawn["frames"].diff(dim=1), strides[:, None].expand(-1, 15))
    with pytest.raises(ValueError, match=r"strides \(4, 0, 1\).* take recordings of 16 frames or more"):
        task.draw(1, (15, 24, 32, 3), generator(0, "frames"), 1)


def test_the_references_clamping_is_an_option():
    frames, labels = frames_of(Speed(short="clamp"), 3000, 40)
    assert set(labels.tolist()) == set(range(7))
    for frame, label in zip(frames.tolist(), labels.tolist(), strict=True):
        stride = STRIDES[label]
        span = abs(stride) * 15 + 1
        start = min(frame)
        assert start == 0 if span >= 40 else start <= 40 - span
        expected = [min(start + i * abs(stride), 39) for i in range(16)]
        assert frame == (expected[::-1] if stride < 0 else expected)
    # The trap: how long a clip stands still tells its speed.
    still = (frames.diff(dim=1) == 0).sum(1)
    assert {STRIDES[label]: int(still[labels == label].max()) for label in range(7)} == {
        **dict.fromkeys((-2, -1, 1, 2), 0),
        **dict.fromkeys((-4, 4), 5),
        0: 15,
    }
    frames_of(Speed(short="clamp"), 10, 3)


def test_views():
    """Scales 112, 128, 144 of the shorter side, crops and mirrors, against torch's own resizing."""
    task, x = Speed(chance=0.0, strides=(0, 1)), recordings(12, 20, 30, 40)
    clips, _, drawn = made(task, x, 5)
    seen = set()
    for n, clip in enumerate(clips):
        scaled, (top, left) = drawn["scaled"][n].tolist(), drawn["corner"][n].tolist()
        first = x[n, drawn["frames"][n, 0]].permute(2, 0, 1)[None].float()
        whole = F.interpolate(first, tuple(scaled), mode="bilinear")[0].permute(1, 2, 0)
        cut = whole[top : top + 112, left : left + 112]
        mirrored = bool(drawn["flip"][n])
        torch.testing.assert_close(clip[0], cut.flip(1) if mirrored else cut, atol=0.02, rtol=0)
        seen.add((scaled[0], mirrored))
    assert {s for s, _ in seen} == {112, 128, 144} and {m for _, m in seen} == {True, False}
    drawn = task.draw(9000, (20, 30, 40, 3), generator(1, "views"))
    assert drawn["scaled"].unique(dim=0).tolist() == [[112, 149], [128, 171], [144, 192]]
    shares = drawn["scaled"][:, 0].bincount()[[112, 128, 144]] / 9000
    torch.testing.assert_close(shares, torch.full((3,), 1 / 3), atol=0.02, rtol=0)
    assert float(drawn["flip"].float().mean()) == pytest.approx(0.5, abs=0.02)
    assert (drawn["corner"] <= drawn["scaled"] - 112).all() and int(drawn["corner"].max()) == 192 - 112


def test_a_view_of_the_same_size_is_the_recording():
    x = recordings(4, 20, 56, 56)
    clips, _, drawn = made(Speed(size=56, scales=(112,), flip=0.0, chance=0.0), x)
    expected = torch.stack([r[f] for r, f in zip(x, drawn["frames"], strict=True)]).float()
    torch.testing.assert_close(clips, expected, atol=0.01, rtol=0)


def test_how_often_and_how_far_colours_change():
    drawn = Speed().draw(20_000, (70, 24, 32, 3), generator(0, "colours"))
    brightness, contrast, hue, saturation = (drawn[k] for k in ("brightness", "contrast", "hue", "saturation"))
    for values, neutral, low, high in (
        (brightness, 0, -32, 32),
        (contrast, 1, math.exp(-0.2), math.exp(0.2)),
        (hue, 0, -12, 12),
        (saturation, 1, math.exp(-0.1), math.exp(0.1)),
    ):
        changed = values[values != neutral]
        assert len(changed) / 20_000 == pytest.approx(0.2, abs=0.01)
        span = high - low
        assert low <= changed.min() < low + 0.01 * span and high - 0.01 * span < changed.max() <= high + 1e-6
    assert torch.equal(hue != 0, saturation != 1)  # both or none
    both = ((brightness != 0) & (contrast != 1)).float().mean()
    assert float(both) == pytest.approx(0.04, abs=0.006)  # independently


def test_brightness_and_contrast():
    x = torch.tensor([10.0, 100.0, 250.0]).view(1, 1, 1, 1, 3).repeat(2, 2, 1, 1, 1)
    lit = with_brightness(x, torch.tensor([20.0, -20.0]))
    assert lit[0, 0].flatten().tolist() == [30, 120, 255] and lit[1, 1].flatten().tolist() == [0, 80, 230]
    by_frame = with_contrast(x, torch.tensor([[1.0, 2.0], [0.5, 1.0]]))
    assert by_frame[0, 1].flatten().tolist() == [20, 200, 255] and by_frame[1, 0].flatten().tolist() == [5, 50, 125]
    assert torch.equal(by_frame[1, 1], x[1, 1])


def test_hue_and_saturation_against_pythons_own():
    x = recordings(6, 2, 9, 9).float()
    x[:, 0, 0, 0], x[:, 0, 0, 1], x[:, 0, 0, 2] = 0.0, 255.0, torch.tensor([255.0, 0.0, 0.0])  # black, white, red
    hue, saturation = torch.tensor([0.0, 12, -12, 5, 0, -7]), torch.tensor([1.0, 1.1, 0.9, 1, 1.05, 1.1])
    found = with_hue(x, hue, saturation)
    assert torch.equal(found[0], x[0])
    for n in range(1, 6):
        for before, after in zip(x[n].reshape(-1, 3).tolist(), found[n].reshape(-1, 3).tolist(), strict=True):
            h, s, v = colorsys.rgb_to_hsv(*(c / 255 for c in before))
            h = min(max(h * 180 + hue[n].item(), 0), 179) / 180  # OpenCV's scale, and its ends
            expected = colorsys.hsv_to_rgb(h, min(s * saturation[n].item(), 1), v)
            assert after == pytest.approx([255 * c for c in expected], abs=0.01)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="take recordings of 16 frames or more"):
        Speed().draw(1, (15, 64, 64, 3), generator(0, ""))
    with pytest.raises(ValueError, match="neither skip nor clamp"):
        Speed(short="loop")
    with pytest.raises(ValueError, match="easy strides"):
        Speed(easy=(0, 3), easy_rounds=1)
    with pytest.raises(ValueError, match="all different"):
        Speed(strides=(1, 1))


def test_draw_and_apply():
    task = Speed(frames=8, size=32)
    check_draw(task, (40, 36, 40, 3))
    check_apply(task, (40, 36, 40, 3))


def test_clients_one_at_a_time_and_at_once_agree(double):
    check_stacking(Speed(frames=4, size=16), (20, 20, 24, 3))


def test_the_loss_goes_down():
    """A bar moves over a dark picture: how fast can be seen."""
    at = torch.arange(32)
    x = torch.zeros(14, 32, 16, 16, 3, dtype=torch.uint8)
    for n in range(14):
        x[n, at, :, (at + n) % 16] = 255
    check_learning(Speed(frames=8, size=16), x, 0.05, 25, 0.6)
