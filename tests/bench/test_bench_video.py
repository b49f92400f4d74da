import numpy as np
import pytest
import torch

from fedaction.bench.video import bare, bench_streamed, bench_video, make_video
from fedaction.data.clips.decode import VideoError, read_all, stream
from fedaction.data.clips.spec import ClipSpec

SMALL = ClipSpec(frames=4, stride=2, side=60, crop=48)


def test_the_bare_decoder_does_the_same_work(tmp_path):
    """A ratio between two pieces of work means something only if they are the same work."""
    path = make_video(tmp_path / "a.mp4", frames=26)
    frames = bare(path, SMALL)
    assert len(frames) == 13 and frames[0].shape == (60, 80, 3)
    ours = read_all(path, 4, 2, short_side=60)
    assert np.array_equal(ours.reshape(-1, 60, 80, 3), np.stack(frames[:12]))
    by_torch = np.stack(bare(path, SMALL, by_torch=True)).astype(int)
    # The same pictures, but for where the colours' halved detail is interpolated: much, in a video of random blocks.
    assert np.abs(by_torch - np.stack(frames)).mean() < 8
    assert np.diff(np.stack(list(stream(path))).astype(int), axis=0).any(axis=(1, 2, 3)).all()  # it moves


def test_ratios_are_there_and_plausible():
    ticks = []
    result = bench_video(spec=SMALL, rounds=1, frames=40, tick=ticks.append)
    assert ticks == ["bare", "clips", "windows", "torch"] * 2
    assert result["made"] and (result["height"], result["width"]) == (240, 320)
    assert (result["frames"], result["clips"]) == (20, 5) and result["spec"]["side"] == 60
    for name in ("ratio", "ratio_windows", "ratio_torch"):
        assert 0.1 < result[name] < 10
    seconds = result["seconds"]
    assert abs(result["ratio"] - seconds["bare"] / seconds["clips"]) < 1e-9
    assert abs(result["frames_per_second"]["clips"] * seconds["clips"] - 20) < 1e-6


def test_a_file_of_ones_own(tmp_path):
    path = make_video(tmp_path / "a.mp4", frames=20, height=48, width=64)
    result = bench_video(path, spec=ClipSpec(8, 1, 48), rounds=1)
    assert not result["made"] and (result["height"], result["width"], result["clips"]) == (48, 64, 2)
    with pytest.raises(VideoError, match="too few for one clip of 8"):
        bench_video(make_video(tmp_path / "b.mp4", frames=5), rounds=1)
    with pytest.raises(ValueError, match="rounds"):
        bench_video(path, rounds=0)


def test_learning_from_files_against_learning_from_memory(tmp_path):
    path, ticks = make_video(tmp_path / "a.mp4", frames=30, height=48, width=64), list[str]()
    device = torch.device("cpu")
    result = bench_streamed(path, spec=SMALL, width=2, files=6, batch=2, rounds=1, device=device, tick=ticks.append)
    assert ticks == ["held", "streamed", "decoded"] * 2 and result["device"] == "CPU" and result["cores"] >= 1
    speeds = result["clips_per_second"]
    assert abs(result["ratio"] - speeds["streamed"] / speeds["held"]) < 1e-9
    assert abs(result["share_decoding"] - speeds["held"] / speeds["decoded"]) < 1e-9
    with pytest.raises(ValueError, match="files 0"):
        bench_streamed(path, files=0)
