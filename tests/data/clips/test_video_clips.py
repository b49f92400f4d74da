import numpy as np
import pytest
import torch

from fedaction.data.clips.decode import read_all, read_clips
from fedaction.data.clips.depth import resize
from fedaction.data.clips.spec import ClipSpec, draw_clips, free_space, spread_clips
from fedaction.federation.seeds import generator, numpy_generator
from tests.data.clips.made import numbers, write_video


def starts(total: int, frames: int, stride: int = 1, count: int = 0) -> list[int]:
    return spread_clips(torch.tensor([total]), frames, stride, count).start.tolist()


def test_the_paper_has_thirty_clips_of_ten_seconds():
    assert len(starts(240, 8)) == 30


@pytest.mark.parametrize("total", [1, 3, 7, 8, 9, 16, 23, 40])
@pytest.mark.parametrize(("frames", "stride"), [(8, 1), (4, 2), (4, 3), (1, 1), (2, 7)])
def test_all_clips_are_those_that_are_read(total, frames, stride, tmp_path):
    """Windows counted beforehand and windows met while reading are the same."""
    spans = spread_clips(torch.tensor([total]), frames, stride, 0)
    (used,), (free,) = free_space(torch.tensor([total]), frames, stride)
    assert int(used) == stride or (frames - 1) * stride + 1 > total  # where a recording is short, less
    found = spans.start.tolist()
    assert found[0] == 0 and (np.diff(found) == frames * int(used)).all() and spans.stride.unique().tolist() == [used]
    assert found[-1] <= int(free) < found[-1] + frames * int(used)
    if total in (7, 23) and int(used) == stride:
        path = write_video(tmp_path / "a.mp4", total, options={"preset": "ultrafast"})
        assert [numbers(clip)[0] for clip in read_all(path, frames, stride)] == found


def test_clips_are_spread_from_the_beginning_to_the_end():
    assert starts(100, 8, 1, 4) == [0, 31, 61, 92]
    assert starts(100, 8, 2, 2) == [0, 85]
    assert starts(100, 8, 1, 1) == [46]
    assert starts(5, 8, 1, 3) == [0]  # there are no other ones
    lengths = torch.tensor([40, 25, 17, 16, 5])
    spans = spread_clips(lengths, 16, 1, 10)
    each = [spans.start[spans.row == row].tolist() for row in range(5)]
    for length, own in zip((40, 25), each, strict=False):
        even = np.linspace(0, length - 16, 10)
        assert np.abs(np.array(own) - even).max() <= 0.5 and len({*own}) == 10
    assert each[2:] == [[0, 1], [0], [0]]
    # A stride that does not fit becomes the largest that does.
    assert spread_clips(lengths, 16, 2, 1).stride.tolist() == [2, 1, 1, 1, 1]
    assert spread_clips(lengths, 1, 2, 1).stride.tolist() == [2, 2, 2, 2, 2]


def test_random_clips_are_whole_and_a_function_of_their_recordings_generator():
    lengths = torch.tensor([40, 3])

    def drawn(seed: int) -> torch.Tensor:
        return draw_clips(lengths, 8, 3, 2000, [generator(seed, "starts"), generator(0)]).start

    assert {*drawn(0)[:2000].tolist()} == {*range(40 - 22 + 1)} and drawn(0)[2000:].tolist() == [0] * 2000
    assert torch.equal(drawn(0), drawn(0)) and not torch.equal(drawn(0), drawn(1))


@pytest.mark.parametrize(
    "wrong", [{"frames": 0}, {"stride": 0}, {"crop": -1}, {"side": 0}, {"side": 100, "crop": 112}, {"frames": 10**6}]
)
def test_a_specification_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError):
        ClipSpec(**wrong)
    assert ClipSpec(side=100).square == 100 and ClipSpec(side=100, crop=90).square == 90


def test_scaling_in_memory_is_nearly_scaling_in_the_decoder(tmp_path):
    random = numpy_generator(0, "picture")
    smooth = random.integers(0, 255, (12, 16, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    path = write_video(tmp_path / "a.mkv", 1, codec="ffv1", pix_fmt="bgr0", size=(96, 128), pictures=[smooth])
    (same,) = read_clips(path, [0], 1)
    (theirs,) = read_clips(path, [0], 1, short_side=40)
    ours = resize(same, 40)
    assert ours.shape == theirs.shape == (1, 40, 53, 3)
    assert np.abs(ours.astype(int) - theirs).mean() < 1.5
    assert resize(same, 96) is same
