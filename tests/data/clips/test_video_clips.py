import numpy as np
import pytest
import torch

from fedaction.data.clips.decode import read_all, read_clip
from fedaction.data.clips.spec import (
    ClipSpec,
    cut,
    even_starts,
    random_corners,
    random_crop,
    random_flip,
    random_starts,
    resize,
    starts_of_all,
)
from fedaction.federation.seeds import generator, numpy_generator
from tests.data.clips.made import numbers, write_video


def test_the_paper_has_thirty_clips_of_ten_seconds():
    assert len(starts_of_all(240, ClipSpec(frames=8))) == 30


@pytest.mark.parametrize("total", [1, 3, 7, 8, 9, 16, 23, 40])
@pytest.mark.parametrize(("frames", "stride"), [(8, 1), (4, 2), (4, 3), (1, 1), (2, 7)])
def test_all_clips_are_those_that_are_read(total, frames, stride, tmp_path):
    """Windows counted beforehand and windows met while reading are the same."""
    spec = ClipSpec(frames, stride)
    starts = starts_of_all(total, spec)
    steps = np.diff(starts)
    assert starts[0] == 0 and (steps == frames * stride).all()
    assert starts == [0] or starts[-1] + spec.span <= total < starts[-1] + frames * stride + spec.span
    if total in (7, 23):
        path = write_video(tmp_path / "a.mp4", total, options={"preset": "ultrafast"})
        assert [numbers(clip)[0] for clip in read_all(path, frames, stride)] == starts


def test_even_starts_reach_from_end_to_end():
    assert even_starts(100, ClipSpec(8), 4) == [0, 31, 61, 92]
    assert even_starts(100, ClipSpec(8, stride=2), 2) == [0, 85]
    assert even_starts(100, ClipSpec(8), 1) == [46]
    assert even_starts(5, ClipSpec(8), 3) == [0, 0, 0]


def test_random_starts_are_whole_clips_and_a_function_of_the_generator():
    spec = ClipSpec(8, stride=3)
    found = random_starts(40, spec, 2000, generator(0, "starts"))
    assert set(found) == set(range(40 - 22 + 1))
    assert found == random_starts(40, spec, 2000, generator(0, "starts"))
    assert found != random_starts(40, spec, 2000, generator(1, "starts"))
    assert random_starts(3, spec, 2, generator(0)) == [0, 0]
    corners = np.array(random_corners(1000, generator(0)))
    assert corners.shape == (1000, 2) and 0 <= corners.min() < 0.02 and 0.98 < corners.max() < 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"frames": 0},
        {"stride": 0},
        {"crop": 0},
        {"short_side": 100, "crop": 112},
        {"place": "left"},
        {"frames": 10**6},
    ],
)
def test_a_specification_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError):
        ClipSpec(**wrong)
    with pytest.raises(ValueError):
        starts_of_all(0, ClipSpec())


def test_scaling_in_memory_is_nearly_scaling_in_the_decoder(tmp_path):
    random = numpy_generator(0, "picture")
    smooth = random.integers(0, 255, (12, 16, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    path = write_video(tmp_path / "a.mkv", 1, codec="ffv1", pix_fmt="bgr0", size=(96, 128), pictures=[smooth])
    ours = resize(read_clip(path, 0, 1), 40)
    theirs = read_clip(path, 0, 1, short_side=40)
    assert ours.shape == theirs.shape == (1, 40, 53, 3)
    assert np.abs(ours.astype(int) - theirs).mean() < 1.5
    same = read_clip(path, 0, 1)
    assert resize(same, 96) is same


def test_cutting():
    clip = np.zeros((2, 10, 14, 3), dtype=np.uint8)
    clip[..., 0], clip[..., 1] = np.arange(10)[:, None], np.arange(14)
    assert cut(clip, 6)[0, 0, 0, :2].tolist() == [2, 4]
    assert cut(clip, 6, (0.999, 0.0))[1, 0, 0, :2].tolist() == [4, 0]
    with pytest.raises(ValueError, match="10 x 14 are smaller than the square of 12"):
        cut(clip, 12)


def test_augmentation_is_drawn_from_the_generator_and_alike_for_all_frames_of_a_clip():
    clips = torch.zeros(200, 3, 10, 12, 2, dtype=torch.uint8)
    clips[..., 0], clips[..., 1] = torch.arange(10)[:, None], torch.arange(12)
    small = random_crop(clips, 8, generator(0, "crop"))
    assert small.shape == (200, 3, 8, 8, 2) and small.dtype == torch.uint8
    assert torch.equal(small, random_crop(clips, 8, generator(0, "crop")))
    tops, lefts = small[:, :, 0, 0, 0], small[:, :, 0, 0, 1]
    assert set(tops[:, 0].tolist()) == {0, 1, 2} and set(lefts[:, 0].tolist()) == {0, 1, 2, 3, 4}
    assert (tops == tops[:, :1]).all() and (lefts == lefts[:, :1]).all()
    flipped = random_flip(clips, generator(0, "flip"))
    mirrored = flipped[:, :, 0, 0, 1] == 11
    assert (mirrored == mirrored[:, :1]).all() and 70 < mirrored[:, 0].sum() < 130
    assert torch.equal(flipped[mirrored[:, 0]], clips[mirrored[:, 0]].flip(3))
    assert torch.equal(flipped[~mirrored[:, 0]], clips[~mirrored[:, 0]])
    assert torch.equal(random_flip(clips, generator(0, "flip")), flipped)
    with pytest.raises(ValueError, match="square of 11"):
        random_crop(clips, 11, generator(0))
