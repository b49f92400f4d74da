"""Preprocessing against literal versions: OpenCV's formula for resizing, the original loop for aligning."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedaction.data.layout import COCO_17, KINECT_V2, OPENNI_15, Layout
from fedaction.data.preprocess import align_shoulders, centre, locate_frames, mend, normalise, prepare
from fedaction.federation.seeds import numpy_generator

Array = npt.NDArray[np.float32]
LINE = Layout("line", ("a", "b"), ((0, 1),), 0)  # no shoulders


def recording(frames: int, bodies: int = 1, joints: int = 25, seed: int = 0) -> Array:
    rng = numpy_generator(seed, "recording", frames, bodies)
    return rng.normal(size=(bodies, frames, joints, 3)).astype(np.float32)


def literal_resize(values: npt.NDArray[np.float64], frames: int) -> npt.NDArray[np.float64]:
    """OpenCV's INTER_LINEAR along the first axis, one output row at a time."""
    out = np.zeros((frames, *values.shape[1:]))
    for t in range(frames):
        place = (t + 0.5) * len(values) / frames - 0.5
        left = math.floor(place)
        share = place - left
        if left < 0:
            left, share = 0, 0.0
        if left >= len(values) - 1:
            left, share = len(values) - 1, 0.0
        right = min(left + 1, len(values) - 1)
        out[t] = values[left] * (1 - share) + values[right] * share
    return out


def literal_align(body: npt.NDArray[np.float64], left: int, right: int) -> npt.NDArray[np.float64]:
    """The original's rotation of one body (T, V, 3), angle by angle."""
    line = body[:, right] - body[:, left]
    line[:, 1] = 0
    angles = np.arccos(line[:, 0] / (np.sqrt((line**2).sum(axis=1)) + 0.0001))
    if line[:, 2].sum() >= 0:
        angles = -angles
    out = np.zeros_like(body)
    for t, angle in enumerate(angles):
        turn = np.array(
            [[np.cos(angle), 0, -np.sin(angle)], [0, 1, 0], [np.sin(angle), 0, np.cos(angle)]],
        )
        out[t] = (turn @ body[t].T).T
    return out


def literal_prepare(sequence: Array, item: Layout, frames: int) -> npt.NDArray[np.float64]:
    out = np.zeros((sequence.shape[0], frames, *sequence.shape[2:]))
    for body, values in enumerate(sequence.astype(np.float64)):
        relative = values - values[:, item.centre : item.centre + 1]
        resized = literal_resize(relative, frames)
        out[body] = literal_align(resized, item.index("left_shoulder"), item.index("right_shoulder"))
    return out


def test_prepare_equals_the_literal_steps_for_mixed_lengths_and_bodies() -> None:
    given = [recording(t, bodies=1 + t % 2, seed=t) for t in (1, 2, 7, 49, 50, 51, 100, 133)]
    x, report = prepare(given, KINECT_V2)
    assert x.shape == (8, 2, 50, 25, 3) and x.dtype == torch.float32
    assert report.kept == tuple(range(8)) and report.nan_frames == report.zero_frames == 0
    for i, sequence in enumerate(given):
        expected = literal_prepare(sequence, KINECT_V2, 50)
        assert np.allclose(x[i, : sequence.shape[0]].numpy(), expected, atol=2e-4), i
        assert not x[i, sequence.shape[0] :].any()


def test_order_of_sequences_and_size_of_batch_do_not_matter() -> None:
    given = [recording(20 + i % 5, seed=i) for i in range(150)]
    whole, _ = prepare(given, KINECT_V2, frames=16)
    alone = torch.cat([prepare([item], KINECT_V2, frames=16)[0] for item in given])
    assert torch.allclose(whole, alone, atol=1e-6)


@pytest.mark.parametrize("length", [1, 3, 10, 16, 23, 64])
def test_resize_follows_half_pixel_centres(length: int) -> None:
    values = np.linspace(0, 1, length)[:, None] ** 2
    left, right, share = locate_frames(torch.tensor([length]), 16)
    got = values[left[0]] * (1 - share[0].numpy()[:, None]) + values[right[0]] * share[0].numpy()[:, None]
    assert np.allclose(got, literal_resize(values, 16), atol=1e-6)
    torch_own = torch.nn.functional.interpolate(
        torch.from_numpy(values.T[None]), size=16, mode="linear", align_corners=False
    )
    assert np.allclose(got[:, 0], torch_own[0, 0].numpy(), atol=1e-6)


def test_pinned_resize_of_four_frames_to_eight() -> None:
    values = np.array([0.0, 1.0, 2.0, 3.0])
    left, right, share = locate_frames(torch.tensor([4]), 8)
    got = torch.from_numpy(values)[left[0]] * (1 - share[0]) + torch.from_numpy(values)[right[0]] * share[0]
    assert got.tolist() == [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]


@pytest.mark.parametrize("sense", [1.0, -1.0])
def test_align_puts_the_shoulder_line_along_x_without_changing_the_body(sense: float) -> None:
    x = torch.from_numpy(recording(30)[None])
    left, right = KINECT_V2.index("left_shoulder"), KINECT_V2.index("right_shoulder")
    x[..., right, :] = x[..., left, :] + torch.tensor([0.3, 0.1, 0.4 * sense])
    out = align_shoulders(x, KINECT_V2)
    line = out[..., right, :] - out[..., left, :]
    assert torch.allclose(line[..., 0], torch.tensor(0.5), atol=1e-3)
    assert line[..., 2].abs().max() < 0.02  # the damped cosine leaves a small rest
    assert torch.equal(out[..., 1], x[..., 1])
    assert torch.allclose(torch.cdist(out, out), torch.cdist(x, x), atol=1e-4)


def test_sense_of_rotation_is_chosen_once_per_clip() -> None:
    x = torch.zeros(1, 1, 3, 25, 3)
    right = KINECT_V2.index("right_shoulder")
    x[0, 0, :, right] = torch.tensor([[0.3, 0, 0.4], [0.3, 0, 0.4], [0.3, 0, -0.4]])
    line = align_shoulders(x, KINECT_V2)[0, 0, :, right]
    assert line[:2, 2].abs().max() < 0.01
    assert line[2, 2] < -0.4  # as in the original, the odd frame is turned the wrong way


def test_layouts_without_shoulders_and_flat_poses_are_only_centred() -> None:
    x = torch.from_numpy(recording(9, joints=2)[None])
    assert torch.equal(normalise(x, LINE), centre(x, LINE))
    flat = torch.from_numpy(recording(9, joints=17)[None, ..., :2].copy())
    assert torch.equal(normalise(flat, COCO_17), centre(flat, COCO_17))
    assert prepare([flat[0].numpy()], COCO_17)[0].shape == (1, 1, 50, 17, 2)


def test_normalise_equals_prepare_at_equal_length() -> None:
    x = torch.from_numpy(np.stack([recording(50, bodies=2, seed=i) for i in range(70)]))
    assert torch.allclose(normalise(x, KINECT_V2), prepare(x, KINECT_V2)[0], atol=1e-5)
    assert torch.equal(normalise(x[:3], KINECT_V2), normalise(x, KINECT_V2)[:3])


def test_without_align_a_turned_body_stays_turned() -> None:
    given = [recording(t, seed=t) for t in (5, 16, 90)]
    x, _ = prepare(given, KINECT_V2, frames=16, align=False)
    for i, sequence in enumerate(given):
        relative = sequence[0].astype(np.float64) - sequence[0, :, KINECT_V2.centre : KINECT_V2.centre + 1]
        assert np.allclose(x[i, 0].numpy(), literal_resize(relative, 16), atol=1e-5)
    batch = torch.from_numpy(np.stack([recording(16, seed=i) for i in range(70)]))
    plain = normalise(batch, KINECT_V2, align=False)
    assert torch.equal(plain, centre(batch, KINECT_V2))
    assert torch.allclose(plain, prepare(batch, KINECT_V2, frames=16, align=False)[0], atol=1e-5)
    assert not torch.allclose(plain, normalise(batch, KINECT_V2), atol=0.1)


def test_an_absent_body_stays_zero() -> None:
    sequence = recording(20, bodies=2)
    sequence[1] = 0
    x, _ = prepare([sequence], KINECT_V2)
    assert not x[0, 1].any() and x[0, 0].any()


def test_zero_frames_are_left_out_wherever_they_stand_and_counted() -> None:
    good = recording(12)
    padded = np.zeros((1, 20, 25, 3), dtype=np.float32)
    padded[:, [0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 14, 15]] = good
    x, report = prepare([padded], KINECT_V2)
    assert torch.equal(x, prepare([good], KINECT_V2)[0])
    assert report.zero_frames == 8
    assert "8 all-zero frames left out" in str(report)


def test_empty_sequences_are_dropped_and_named() -> None:
    given = [recording(5), np.zeros((1, 4, 25, 3)), np.full((1, 4, 25, 3), np.nan), np.zeros((1, 0, 25, 3))]
    x, report = prepare([*given, recording(6)], KINECT_V2)
    assert len(x) == 2
    assert report.kept == (0, 4) and report.empty == (1, 2, 3) and report.given == 5
    assert "3 empty sequences dropped" in str(report)
    nothing, _ = prepare(given[1:], KINECT_V2)
    assert nothing.shape == (0, 1, 50, 25, 3)


def test_missing_frames_are_interpolated_between_good_ones() -> None:
    ramp = np.arange(1.0, 11.0, dtype=np.float32)[None, :, None, None] * np.ones((1, 1, 2, 3), np.float32)
    broken = ramp.copy()
    broken[0, 3, 1, 2] = np.nan
    broken[0, 4] = np.inf
    mended, count = mend(broken)
    assert count == 2
    assert np.allclose(mended, ramp)
    assert np.isnan(broken[0, 3, 1, 2])
    broken = ramp.copy()
    broken[0, :2] = broken[0, -1] = np.nan
    mended, count = mend(broken)
    assert count == 3
    assert mended[0, :, 0, 0].tolist() == [3, 3, 3, 4, 5, 6, 7, 8, 9, 9]


def test_absent_frames_are_no_source_for_interpolation() -> None:
    sequence = np.zeros((1, 5, 2, 3), dtype=np.float32)
    sequence[0, 3:] = 4.0
    sequence[0, 1] = np.nan
    mended, count = mend(sequence)
    assert count == 1
    assert mended[0, :, 0, 0].tolist() == [0, 4, 0, 4, 4]


def test_a_body_missing_throughout_becomes_absent_without_being_counted() -> None:
    sequence = recording(6, bodies=2)
    sequence[1] = np.nan
    mended, count = mend(sequence)
    assert count == 0 and not mended[1].any() and np.array_equal(mended[0], sequence[0])


def test_prepare_reports_mended_frames() -> None:
    sequence = recording(30)
    sequence[0, 4, 3] = np.nan
    x, report = prepare([sequence, recording(30)], KINECT_V2)
    assert report.nan_frames == 1 and torch.isfinite(x).all()
    assert "1 frames with missing values filled in" in str(report)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 4, 15, 3)), "'kinect_v2' has 25 joints, the data have 15"),
        (np.zeros((4, 25, 3)), "bodies, frames, joints"),
        (np.zeros((1, 4, 25, 4)), "2 or 3 coordinates"),
        (np.zeros((0, 4, 25, 3)), "at least one body"),
        (np.zeros((1, 4, 25, 3), dtype=np.complex64), "real numbers"),
    ],
)
def test_prepare_refuses_what_does_not_fit(array: npt.NDArray[np.float64], message: str) -> None:
    with pytest.raises(ValueError, match=rf"sequence 1: .*{message}"):
        prepare([recording(4), array], KINECT_V2)


def test_other_refusals() -> None:
    with pytest.raises(ValueError, match="number of coordinates"):
        prepare([recording(4), recording(4)[..., :2]], KINECT_V2)
    with pytest.raises(ValueError, match="at least 1"):
        prepare([recording(4)], KINECT_V2, frames=0)
    with pytest.raises(ValueError, match="too large"):
        prepare([np.sign(recording(4)) * np.float32(3e38)], KINECT_V2)
    with pytest.raises(ValueError, match=r"\(N, M, T, 15, C\)"):
        normalise(torch.zeros(1, 1, 5, 25, 3), OPENNI_15)
