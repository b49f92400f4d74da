"""Clip order: which frames, which label, which crop."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from fedaction.federation.seeds import generator
from fedaction.methods.pretext import VCOP
from tests.methods.pretext.tasks import check_apply, check_draw, check_learning, check_stacking, made, recordings

SMALL = VCOP(frames=8, size=32, interval=4)


def numbered(count, frames, height=24, width=32):
    """Recordings whose pixels say which frame they are of."""
    return torch.arange(frames, dtype=torch.uint8).view(1, -1, 1, 1, 1).expand(count, -1, height, width, 3).clone()


def literal_starts(frames, clip, interval, draw):
    """The reference's rule for three clips, with `draw(n)` for a number from 0 to n."""
    average = (frames - 3 * clip) // 2
    if average > 0:
        gap = interval if average >= interval else average
        first = draw(frames - 3 * clip - 2 * gap)
        return [first + (clip + gap) * i for i in range(3)]
    tick = (frames - clip + 1) / 3
    return [int(tick / 2 + tick * i) for i in range(3)]


@pytest.mark.parametrize("frames", [18, 30, 47, 48, 49, 50, 57, 63, 64, 65, 120])
def test_frames_of_clips(frames):
    task = VCOP(size=16)
    clips, labels, drawn = made(task, numbered(12, frames))
    orders = list(itertools.permutations(range(3)))
    for clip, label, start in zip(clips, labels, drawn["starts"], strict=True):
        shown = clip[:, :, 0, 0, 0].round().long()
        assert torch.equal(shown.diff(dim=1), torch.ones(3, 15, dtype=torch.long))
        in_time = start.sort().values.tolist()
        assert [in_time[i] for i in orders[int(label)]] == start.tolist() == shown[:, 0].tolist()
    drawn = task.draw(2000, (frames, 24, 32, 3), generator(0, "starts"))
    starts = {tuple(sorted(start)) for start in drawn["starts"].tolist()}
    choices = frames - 48 - 2 * min(8, (frames - 48) // 2) if frames >= 50 else 0
    expected = {
        tuple(literal_starts(frames, 16, 8, lambda n, first=first: min(first, n))) for first in range(choices + 1)
    }
    assert starts == expected
    assert all(s[-1] + 16 <= frames for s in starts) and (frames < 64 or {s[1] - s[0] for s in starts} == {24})


def test_labels_are_permutations_in_itertools_order_and_equally_likely():
    assert SMALL.orders == [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    label = SMALL.draw(12_000, (64, 24, 32, 3), generator(0, "labels"))["label"]
    assert label.dtype == torch.int64
    torch.testing.assert_close(label.bincount(minlength=6) / 12_000, torch.full((6,), 1 / 6), atol=0.012, rtol=0)


def test_one_crop_of_the_scaled_picture_for_all_clips():
    """Against torch's own resizing; 171 x 128 for television pictures, upright where the recording is."""
    task = VCOP(frames=4, interval=2)
    for height, width, scaled in ((48, 64, (128, 171)), (64, 48, (171, 128)), (50, 50, (128, 128))):
        x = recordings(1, 1, height, width).expand(6, 20, -1, -1, -1)
        clips, _, drawn = made(task, x)
        assert clips.shape == (6, 3, 4, 112, 112, 3)
        assert (clips - clips[:, :1, :1]).abs().max() == 0  # a still recording: all clips alike, so one place
        whole = F.interpolate(x[0, :1].permute(0, 3, 1, 2).float(), scaled, mode="bilinear")[0].permute(1, 2, 0)
        for clip, (top, left) in zip(clips, drawn["corner"].tolist(), strict=True):
            expected = whole[top : top + 112, left : left + 112]
            torch.testing.assert_close(clip[0, 0], expected, atol=0.02, rtol=0)
        assert not drawn["flip"].any()
        corner = task.draw(4000, (20, height, width, 3), generator(0, "corners"))["corner"]
        for axis, side in enumerate(scaled):
            assert set(corner[:, axis].tolist()) == set(range(side - 112 + 1))


def test_other_sizes_scale_along():
    drawn = VCOP(size=56).draw(500, (64, 48, 64, 3), generator(0, "size"))
    assert drawn["scaled"].unique(dim=0).tolist() == [[64, 85]]
    assert int(drawn["corner"].amax()) == 85 - 56
    stretched = VCOP(size=56, scales=((171, 128),)).draw(1, (64, 64, 64, 3), generator(0, ""))
    assert stretched["scaled"].tolist() == [[64, 86]]


def test_wrong_recordings_and_settings_are_refused():
    with pytest.raises(ValueError, match="17 frames, but 3 different clips of 16 frames needs 18"):
        VCOP().draw(1, (17, 64, 64, 3), generator(0, ""))
    with pytest.raises(ValueError, match=r"\(T, H, W, 3\), not \(64, 64, 3\)"):
        VCOP().draw(1, (64, 64, 3), generator(0, ""))
    with pytest.raises(ValueError, match="at least 2 frames and 16 pixels"):
        VCOP(size=8)
    with pytest.raises(ValueError, match="2 clips"):
        VCOP(clips=1)
    with pytest.raises(ValueError, match="less than the 112"):
        VCOP(scales=(100,)).draw(1, (64, 64, 64, 3), generator(0, ""))
    drawn = SMALL.draw(2, (40, 40, 40, 3), generator(0, ""))
    with pytest.raises(ValueError, match=r"drawn as \(2, 3\), but there are \(3,\) recordings"):
        SMALL.apply(recordings(3, 40, 40, 40), drawn)
    with pytest.raises(ValueError, match=r"not \(40, 40, 40, 3\)"):
        SMALL.apply(recordings(40, 40, 40), drawn)


def test_draw_and_apply():
    check_draw(SMALL, (40, 36, 40, 3))
    check_apply(SMALL, (40, 36, 40, 3))


def test_clients_one_at_a_time_and_at_once_agree(double):
    check_stacking(VCOP(frames=4, size=16, interval=2), (20, 20, 24, 3))


def test_the_loss_goes_down():
    """Recordings that grow lighter and darker: which clip is which can be seen."""
    ramp = torch.linspace(20, 230, 16).view(1, -1, 1, 1, 1)
    x = (ramp + 10 * torch.randn(12, 16, 24, 24, 3, generator=generator(0, "noise"))).clamp(0, 255).byte()
    check_learning(VCOP(frames=4, size=16, interval=2), x, 0.01, 25, 0.5)
