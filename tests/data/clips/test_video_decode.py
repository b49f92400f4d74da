import gc
import os
import struct
import sys
import threading

import numpy as np
import pytest

from fedaction.data.clips import decode
from fedaction.data.clips.decode import PastEndError, VideoError, probe, read_all, read_clips, stream
from fedaction.federation.seeds import numpy_generator
from tests.conftest import recordings
from tests.data.clips.made import number_of, numbers, turn, write_sound, write_video

X264 = {"g": "12", "bf": "2", "preset": "ultrafast", "crf": "18"}


def read_clip(path, start, *args, **options):
    """One window of a file."""
    return read_clips(path, [start], *args, **options)[0]


def looped(start, frames, stride, total):
    there = list(range(start, min(start + frames * stride, total), stride))
    return [there[i % len(there)] for i in range(frames)]


FILES = {
    "h264 with reordered frames": ("a.mp4", {"options": X264}),
    "open groups of pictures": (
        "a.mp4",
        {"options": X264 | {"x264-params": "open-gop=1:bframes=3:b-adapt=0:keyint=12"}},
    ),
    "one key frame": ("a.mp4", {"options": X264 | {"g": "999"}}),
    "matroska without an index": ("a.mkv", {"options": X264, "container": {"cues_to_front": "0", "live": "1"}}),
    "fragmented mp4": ("a.mp4", {"options": X264, "container": {"movflags": "frag_keyframe+empty_moov"}}),
    "transport stream": ("a.ts", {"options": X264}),
    "no container at all": ("a.h264", {"options": X264}),
    "mpeg4 in avi": ("a.avi", {"codec": "mpeg4", "options": {"g": "12", "bf": "0", "qmin": "2", "qmax": "4"}}),
    "vp9": ("a.webm", {"codec": "libvpx-vp9", "options": {"g": "12", "deadline": "realtime", "cpu-used": "8"}}),
    "motion jpeg": ("a.avi", {"codec": "mjpeg", "pix_fmt": "yuvj420p"}),
}


@pytest.mark.parametrize("kind", FILES)
def test_windows_are_exact_to_the_frame_in_any_file(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "_WORTH_SEEKING", 4)
    name, how = FILES[kind]
    path = write_video(tmp_path / name, 60, **how)
    assert [number_of(frame) for frame in stream(path)] == list(range(60))
    for start, frames, stride in ((0, 4, 1), (11, 3, 1), (12, 3, 1), (13, 4, 2), (23, 2, 1), (47, 5, 2), (58, 2, 1)):
        assert numbers(read_clip(path, start, frames, stride)) == looped(start, frames, stride, 60), (start, stride)
    starts = [50, 3, 3, 26, 55]
    clips = read_clips(path, starts, 4, 3)
    assert [numbers(clip) for clip in clips] == [looped(start, 4, 3, 60) for start in starts]


def test_a_variable_rate_does_not_move_frames(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "_WORTH_SEEKING", 4)
    times = np.cumsum(numpy_generator(0, "times").integers(5, 400, 60)).tolist()
    path = write_video(tmp_path / "a.mp4", 60, times=times, options=X264)
    for start in (0, 17, 35, 56):
        assert numbers(read_clip(path, start, 4)) == list(range(start, start + 4))


def test_seeking_is_used_where_it_can_be_trusted_and_only_there(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "_WORTH_SEEKING", 4)
    told = []
    original = decode._read_by_seeking
    monkeypatch.setattr(decode, "_read_by_seeking", lambda *a: told.append(original(*a)) or told[-1])
    good = write_video(tmp_path / "a.mp4", 60, options=X264)
    assert numbers(read_clip(good, 40, 2)) == [40, 41]
    far = numbers(read_clips(good, [5, 50], 2)[1])
    old = write_video(tmp_path / "a.avi", 60, codec="mpeg4", options={"g": "12", "qmax": "4"})
    assert numbers(read_clip(old, 40, 2)) == [40, 41] and far == [50, 51]
    assert told == [True, True, False]


def test_seeking_decodes_only_what_it_must(tmp_path, monkeypatch):
    """One pass from the first key frame before each window, not from the beginning."""
    monkeypatch.setattr(decode, "_WORTH_SEEKING", 4)
    count = [0]
    original = decode.decode_frames

    def counted(*a):
        for frame in original(*a):
            count[0] += 1
            yield frame

    monkeypatch.setattr(decode, "decode_frames", counted)
    path = write_video(tmp_path / "a.mp4", 240, options=X264 | {"bf": "0"})
    assert [numbers(clip) for clip in read_clips(path, [50, 200], 2)] == [[50, 51], [200, 201]]
    assert count[0] == (51 - 48 + 1) + (201 - 192 + 1)


def test_a_seek_that_lands_elsewhere_is_noticed(tmp_path, monkeypatch):
    """As with a wrong index: what is found is not taken for what was asked."""
    monkeypatch.setattr(decode, "_WORTH_SEEKING", 4)
    path = write_video(tmp_path / "a.mp4", 60, options=X264)
    original = decode.index_of

    def shifted(*a):
        index = original(*a)
        keys = index._keys
        index._keys = [type(k)(k.number, keys[-1].dts) for k in keys]
        return index

    monkeypatch.setattr(decode, "index_of", shifted)
    assert numbers(read_clip(path, 30, 3)) == [30, 31, 32]


def test_a_wrong_frame_count_in_the_header_does_no_harm(tmp_path):
    path = write_video(tmp_path / "a.avi", 20, codec="mpeg4", options={"qmax": "4"})
    data = bytearray(path.read_bytes())
    main = data.index(b"avih") + 8 + 16  # total frames
    per_stream = data.index(b"strh") + 8 + 32  # length
    for place in (main, per_stream):
        data[place : place + 4] = struct.pack("<I", 5000)
    path.write_bytes(data)
    assert probe(path).frames == 5000
    assert numbers(read_clip(path, 18, 4)) == [18, 19, 18, 19]
    assert read_all(path, 8).shape == (2, 8, 48, 64, 3)
    with pytest.raises(PastEndError, match="begin at frame 20, but the file has 20 frames") as error:
        read_clip(path, 20, 4)
    assert error.value.frames == 20


def test_a_probe_says_what_the_file_is(tmp_path):
    info = probe(write_video(tmp_path / "a.mp4", 50, options=X264))
    assert (info.frames, info.fps, info.height, info.width) == (50, 25.0, 48, 64)
    assert info.seconds == pytest.approx(2.0, abs=0.05)
    assert probe(write_video(tmp_path / "a.h264", 5, options=X264)).frames is None


def test_short_videos_are_looped(tmp_path):
    five = write_video(tmp_path / "5.mp4", 5, options=X264)
    assert numbers(read_clip(five, 0, 8)) == [0, 1, 2, 3, 4, 0, 1, 2]
    assert numbers(read_clip(five, 0, 8, 2)) == [0, 2, 4, 0, 2, 4, 0, 2]
    assert numbers(read_clip(five, 3, 4)) == [3, 4, 3, 4]
    assert [numbers(clip) for clip in read_all(five, 8, 2)] == [[0, 2, 4, 0, 2, 4, 0, 2]]
    one = write_video(tmp_path / "1.mp4", 1, options=X264)
    assert numbers(read_clip(one, 0, 3)) == [0, 0, 0] and read_all(one, 2).shape == (1, 2, 48, 64, 3)


def test_all_windows_of_a_file(tmp_path):
    path = write_video(tmp_path / "a.mp4", 30, options=X264)
    assert [numbers(clip) for clip in read_all(path, 8)] == [[*range(s, s + 8)] for s in (0, 8, 16)]
    assert [numbers(clip) for clip in read_all(path, 4, 3)] == [[0, 3, 6, 9], [12, 15, 18, 21]]


@pytest.mark.parametrize("pix_fmt", ["gray", "gray10le", "yuv420p10le", "yuv444p", "bgr0", "yuva420p"])
def test_any_pixel_format_becomes_rgb(pix_fmt, tmp_path):
    path = write_video(tmp_path / "a.mkv", 3, codec="ffv1", pix_fmt=pix_fmt)
    clip = read_clip(path, 0, 3)
    assert clip.dtype == np.uint8 and clip.shape == (3, 48, 64, 3) and numbers(clip) == [0, 1, 2]
    assert {*np.unique(clip[1, :, 60:])} <= {*range(250, 256)} and clip[0].max() < 6


def test_colours_keep_their_order_and_their_range(tmp_path):
    orange = np.full((48, 64, 3), (250, 128, 10), dtype=np.uint8)
    for name, codec, pix_fmt in (("a.mp4", "libx264", "yuv420p"), ("a.avi", "mjpeg", "yuvj420p")):
        path = write_video(tmp_path / name, 1, codec=codec, pix_fmt=pix_fmt, pictures=[orange])
        assert np.abs(read_clip(path, 0, 1)[0].astype(int) - orange).max() < 6, pix_fmt


def test_odd_sizes_and_scaling(tmp_path):
    path = write_video(tmp_path / "a.mkv", 3, codec="ffv1", pix_fmt="yuv444p", size=(37, 51))
    assert read_clip(path, 0, 2).shape == (2, 37, 51, 3)
    small = read_clip(path, 0, 2, short_side=24)
    assert small.shape == (2, 24, 33, 3) and numbers(small) == [0, 1]
    assert read_clip(path, 0, 2, short_side=24, crop=20).shape == (2, 20, 20, 3)
    large = read_clip(path, 0, 1, short_side=74)
    assert large.shape == (1, 74, 102, 3)


def test_scaling_averages_and_does_not_pick(tmp_path):
    """A fine chequered pattern becomes grey, it does not alias."""
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)[..., None].repeat(3, 2)
    path = write_video(tmp_path / "a.mkv", 1, codec="ffv1", pix_fmt="bgr0", size=(64, 64), pictures=[board])
    small = read_clip(path, 0, 1, short_side=16)[0].astype(int)
    assert np.abs(small[2:-2, 2:-2] - 127).max() < 12


def test_squares_are_cut_from_the_middle(tmp_path):
    ramp = np.zeros((40, 60, 3), dtype=np.uint8)
    ramp[..., 0], ramp[..., 1] = np.arange(40)[:, None], np.arange(60)[None]
    path = write_video(tmp_path / "a.mkv", 2, codec="ffv1", pix_fmt="bgr0", size=(40, 60), pictures=[ramp, ramp])

    def top_left(clip):
        assert clip.shape == (1, 20, 20, 3)
        return tuple(clip[0, 0, 0, :2].tolist())

    assert [top_left(clip) for clip in read_clips(path, [0, 0, 1], 1, crop=20)] == [(10, 20)] * 3
    with pytest.raises(VideoError, match="40 x 60 are smaller than the square of 50"):
        read_clip(path, 0, 1, crop=50)


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_videos_of_turned_phones_are_shown_upright(turns, tmp_path):
    sides = np.zeros((48, 64, 3), dtype=np.uint8)
    sides[:12] = 255  # the top is white
    path = turn(write_video(tmp_path / "a.mp4", 2, options=X264, pictures=[sides, sides]), turns)
    shown = read_clip(path, 0, 1)[0]
    expected = np.rot90(sides, -turns)
    assert shown.shape == expected.shape and np.abs(shown.astype(int) - expected).mean() < 8
    info = probe(path)
    assert (info.height, info.width) == expected.shape[:2]
    assert read_clip(path, 0, 1, short_side=24).shape[1:3] == ((32, 24) if turns % 2 else (24, 32))


def test_what_is_no_video_is_refused_with_the_reason(tmp_path):
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("this is not a video at all" * 40)
    whole = write_video(tmp_path / "whole.mp4", 30, options=X264).read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])  # the index of an MP4 is at its end
    sound = write_sound(tmp_path / "sound.mp4")
    for path, reason in (
        (tmp_path / "empty.mp4", "is empty"),
        (tmp_path / "text.mp4", "cannot be opened as video"),
        (tmp_path / "cut.mp4", "cannot be opened as video"),
        (tmp_path / "none.mp4", "is not a file"),
        (tmp_path, "is not a file"),
        (sound, "has no video stream, only audio"),
    ):
        for read in (probe, lambda p: read_clip(p, 0, 4), lambda p: read_all(p, 4), lambda p: list(stream(p))):
            with pytest.raises(VideoError, match=reason):
                read(path)


def test_a_file_that_breaks_off_gives_what_it_has(tmp_path):
    whole = write_video(tmp_path / "whole.ts", 60, options=X264 | {"bf": "0"}).read_bytes()
    path = tmp_path / "cut.ts"
    path.write_bytes(whole[: len(whole) // 2])
    shown = [number_of(frame) for frame in stream(path)]
    assert 15 < len(shown) < 50 and shown[:-1] == list(range(len(shown) - 1))
    assert read_all(path, 4).shape[0] == len(shown) // 4


def test_damage_in_the_middle_does_not_end_the_reading(tmp_path):
    path = write_video(tmp_path / "a.avi", 40, codec="mpeg4", options={"g": "5", "qmax": "4"})
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 400] = b"\xff" * 400
    path.write_bytes(data)
    shown = [number_of(frame) for frame in stream(path)]
    assert len(shown) > 25 and shown[:10] == list(range(10)) and shown[-1] == 39


def test_playlists_do_not_open_other_files(tmp_path):
    video = write_video(tmp_path / "a.ts", 10, options=X264)
    (tmp_path / "list.mp4").write_text(
        f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{video.name}\n#EXT-X-ENDLIST\n"
    )
    (tmp_path / "cat.mp4").write_text(f"ffconcat version 1.0\nfile {video.name}\n")
    for name in ("list.mp4", "cat.mp4"):
        with pytest.raises(VideoError):
            read_clip(tmp_path / name, 0, 2)


def test_an_unknown_codec_is_said_to_be_one(tmp_path):
    path = write_video(tmp_path / "a.avi", 4, codec="mpeg4")
    path.write_bytes(path.read_bytes().replace(b"FMP4", b"QQQQ"))
    for read in (probe, lambda p: read_clip(p, 0, 4), lambda p: read_all(p, 4), lambda p: list(stream(p))):
        with pytest.raises(VideoError, match="encoded in a way that is not known here"):
            read(path)


def test_arguments_are_checked(tmp_path):
    path = write_video(tmp_path / "a.mp4", 4, options=X264)
    for bad in (([], 4, 1), ([-1], 4, 1), ([0], 0, 1), ([0], 4, 0)):
        with pytest.raises(ValueError, match="need starts"):
            read_clips(path, *bad)
    with pytest.raises(ValueError, match="at least 1"):
        read_all(path, 0)
    with pytest.raises(ValueError, match="short_side and crop"):
        read_clip(path, 0, 1, short_side=-3)


def test_without_pyav_it_says_what_to_install(tmp_path, monkeypatch):
    path = write_video(tmp_path / "a.mp4", 4, options=X264)
    monkeypatch.setitem(sys.modules, "av", None)
    for read in (probe, lambda p: read_clip(p, 0, 4), lambda p: read_all(p, 4), lambda p: list(stream(p))):
        with pytest.raises(ImportError, match=r"pip install 'fedaction\[video\]'"):
            read(path)


def test_a_stream_that_is_left_early_closes_its_file(tmp_path):
    path = write_video(tmp_path / "a.mp4", 30, options=X264)

    def open_files():
        return sum(os.path.realpath(f"/proc/self/fd/{fd}") == str(path) for fd in os.listdir("/proc/self/fd"))

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    frames = stream(path, short_side=24, crop=16, threads=2)
    assert next(frames).shape == (16, 16, 3) and open_files() == 1
    frames.close()
    assert open_files() == 0
    with pytest.raises(VideoError):
        read_clip(path, 0, 2, crop=500)
    assert open_files() == 0


def test_threads_may_read_one_file_at_once(tmp_path):
    path = write_video(tmp_path / "a.mp4", 60, options=X264)
    found = {}

    def read(start):
        found[start] = numbers(read_clip(path, start, 4))

    threads = [threading.Thread(target=read, args=(start,)) for start in range(0, 48, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {start: list(range(start, start + 4)) for start in range(0, 48, 6)}


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(path, reads):
    """Bytes that so many reads add, after a first part has filled all pools; nothing is left to the collector."""

    def some(count):
        for number in range(count):
            read_clip(path, number % 20, 8, short_side=24, crop=16)

    some(reads // 4)
    gc.collect()
    gc.disable()
    try:
        before = resident()
        some(reads)
        return resident() - before
    finally:
        gc.enable()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
@pytest.mark.parametrize("reads", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_memory_stays_flat(reads, tmp_path):
    """A container that is left open holds about 100 kB: 500 of them would be 50 MB."""
    path = write_video(tmp_path / "a.mp4", 32, options=X264)
    assert growth(path, reads) < 4 * 2**20


def test_real_clips_with_odd_metadata_and_packed_frames(monkeypatch):
    """HMDB-51's AVI files have frames out of order, fewer frames than their headers say, and one has foreign text."""
    monkeypatch.setattr(decode, "_WORTH_SEEKING", 5)
    folder = recordings("video_clips_torchvision") / "videos"
    expected = {
        "hmdb51_Turnk_r_Pippi_Michel_cartwheel_f_cm_np2_le_med_6.avi": (83, 84, 240, 320),
        "RATRACE_wave_f_nm_np1_fr_goo_37.avi": (72, 73, 240, 560),
        "v_SoccerJuggling_g23_c01.avi": (240, 240, 240, 320),
        "R6llTwEh07w.mp4": (303, 303, 256, 340),
    }
    for name, (frames, said, height, width) in expected.items():
        info = probe(folder / name)
        assert (info.frames, info.height, info.width) == (said, height, width)
        whole = np.stack(list(stream(folder / name, short_side=32)))
        assert len(whole) == frames and whole.shape[1] == 32
        starts = [frames - 3, frames // 2, 7]
        for start, clip in zip(starts, read_clips(folder / name, starts, 5, 2, short_side=32), strict=True):
            assert np.array_equal(clip, whole[looped(start, 5, 2, frames)]), (name, start)
        with pytest.raises(PastEndError):
            read_clip(folder / name, frames, 2)
