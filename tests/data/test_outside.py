"""Files from outside that are not what they say: little memory, one kind of error, and others go on."""

from __future__ import annotations

import os
import resource
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedaction.data import store
from fedaction.data.features.recordings import read_wave
from fedaction.data.imports import import_recordings, inspect, read_layout
from fedaction.data.inputs import Input
from fedaction.data.layout import OPENNI_15
from fedaction.data.matlab import read_matrix
from fedaction.data.poses import read_pose
from fedaction.data.public.ntu import NTU60
from fedaction.data.signals.times import even_out
from fedaction.models.files import load_model
from fedaction.runs.recipe import load_recipe
from fedaction.serve.recordings import cut_windows
from fedaction.server.devices import fleet_of
from tests.data.public.formats import person

MEGABYTE = 2**20
NOTHING = bytes(MEGABYTE)


@contextmanager
def at_most(megabytes: int) -> Generator[None]:
    """Fails where Python takes more memory than that, or the process has grown far beyond it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1] / MEGABYTE
    finally:
        tracemalloc.stop()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert peak < megabytes and grown < megabytes + 200, (peak, grown)


def write_mat_bomb(path: Path, megabytes: int) -> Path:
    """One packed variable of so many megabytes of small whole numbers, all zero."""

    def element(kind: int, data: bytes) -> bytes:
        return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)

    head = element(6, struct.pack("<II", 9, 0)) + element(5, struct.pack("<ii", megabytes, MEGABYTE))
    head += element(1, b"v") + struct.pack("<II", 2, megabytes * MEGABYTE)
    packer = zlib.compressobj(1)
    packed = packer.compress(struct.pack("<II", 14, len(head) + megabytes * MEGABYTE) + head)
    packed += b"".join(packer.compress(NOTHING) for _ in range(megabytes)) + packer.flush()
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(packed)) + packed)
    return path


def write_npz_bomb(path: Path, megabytes: int) -> Path:
    """Recordings of so many megabytes, all zero."""
    frames = megabytes * MEGABYTE // (4 * 15 * 3)
    header = repr({"descr": "<f4", "fortran_order": False, "shape": (1, frames, 15, 3)}).ljust(117) + "\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x.npy", "w") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
            left = frames * 4 * 15 * 3
            while left:
                left -= file.write(NOTHING[: min(left, MEGABYTE)])
        with archive.open("y.npy", "w") as file:
            np.lib.format.write_array(file, np.array([0]))
    return path


def test_a_small_matlab_file_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = write_mat_bomb(tmp_path / "a.mat", 300)
    assert path.stat().st_size < 2 * MEGABYTE
    with (
        at_most(50),
        pytest.raises(ValueError, match=r"a\.mat unpacks to 3145\d+ bytes, more than the 268435456 allowed"),
    ):
        read_matrix(path, "v")
    whole = write_mat_bomb(tmp_path / "b.mat", 40)  # 40 MB in the file's own numbers, eight times that as ours
    with at_most(100), pytest.raises(ValueError, match="unpacks to 335544320 bytes"):
        read_matrix(whole, "v")


def test_a_small_archive_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = write_npz_bomb(tmp_path / "a.npz", 300)
    assert path.stat().st_size < 2 * MEGABYTE
    with at_most(50), pytest.raises(ValueError, match=r"more than the 268435456 allowed; .*FEDACTION_LIMITS=2 "):
        import_recordings(path, tmp_path / "out", layout="openni_15")
    assert os.listdir(tmp_path) == ["a.npz"]


def test_times_that_say_anything_do_not_fill_the_memory() -> None:
    """A few megabytes of readings that would be gigabytes at another rate."""
    x = np.zeros((40_000, 3), np.float32)
    given = Input(kind="signals", shape=(16, 3), hop=8, rate_hz=50.0)
    with at_most(50), pytest.raises(ValueError, match=r"at 50 readings a second comes to 48000000000 bytes"):
        cut_windows(x, given, 0.001)
    assert len(cut_windows(x, given, 5.0).x) == 40_000 * 10 // 8 - 1
    times = np.cumsum(np.where(np.arange(200_000) % 2, 0.001, 0.49))  # each step is one that a reader takes
    with at_most(50), pytest.raises(ValueError, match="at 1000 readings a second comes to"):
        even_out(times, np.zeros((200_000, 3)), 1000.0)


def test_a_large_file_may_unpack_to_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedaction.federation.outside.UNPACKED", 1000)
    x = np.random.default_rng(0).normal(size=(4, 30, 15, 3))
    np.savez_compressed(tmp_path / "a.npz", x=x, y=np.arange(4))
    assert inspect(tmp_path / "a.npz").samples == 4  # 43 kB, which twenty times the file's size allows
    np.savez_compressed(tmp_path / "b.npz", x=np.ones((4, 300, 15, 3)), y=np.arange(4))
    with pytest.raises(ValueError, match=r"if you know the file, FEDACTION_LIMITS=\d+ in the environment lets it in"):
        inspect(tmp_path / "b.npz")
    monkeypatch.setenv("FEDACTION_LIMITS", "100")
    assert inspect(tmp_path / "b.npz").samples == 4
    monkeypatch.setenv("FEDACTION_LIMITS", "much")
    with pytest.raises(ValueError, match=r"^FEDACTION_LIMITS = 'much' in the environment must be a number from 1"):
        inspect(tmp_path / "b.npz")


def damage_header(content: bytes) -> bytes:
    """An .npy file whose header Python's tokenizer, not its parser, stumbles over."""
    return content.replace(b"'descr': '<f4'", b"'descr': '''f4", 1)


def test_one_damaged_array_does_not_end_an_import(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "sit"
    folder.mkdir(parents=True)
    for name in ("a", "b", "c"):
        np.save(folder / f"{name}.npy", person(5, 1, joints=15))
    (folder / "b.npy").write_bytes(damage_header((folder / "a.npy").read_bytes()))
    summary = import_recordings(tmp_path / "in", tmp_path / "out", layout="openni_15")
    assert summary.samples == 2 and [(i.kind, i.where) for i in summary.issues] == [("unreadable", "sit/b.npy")]
    frames = tmp_path / "out" / "frames.npy"
    frames.write_bytes(damage_header(frames.read_bytes()))
    with pytest.raises(ValueError, match=r"frames\.npy is not a NumPy file, or is damaged"):
        store.load(tmp_path / "out")


@pytest.mark.parametrize("header", [False, True])
def test_a_cell_of_thirty_thousand_digits_is_one_bad_file(tmp_path: Path, header: bool) -> None:
    folder = tmp_path / "in" / "sit"
    folder.mkdir(parents=True)
    names = ",".join(f"{joint}_{axis}" for joint in OPENNI_15.joints for axis in "xyz")
    rows = [",".join(["1.5"] * 45)] * 2000
    top = [names] if header else []
    (folder / "good.csv").write_text("\n".join([*top, *rows[:5]]))
    (folder / "long.csv").write_text("\n".join([*top, *rows, "7" * 30_000 + rows[0][3:]]))
    with at_most(50):
        summary = import_recordings(tmp_path / "in", tmp_path / "out", layout="openni_15")
    assert summary.samples == 1 and [issue.where for issue in summary.issues] == ["sit/long.csv"]
    assert "30000" in summary.issues[0].detail or "29980 more characters" in summary.issues[0].detail


def _flag(content: bytes, place: int, value: int) -> bytes:
    """A value of two bytes in the local header and in the directory of an archive's first member."""
    changed = bytearray(content)
    changed[place : place + 2] = value.to_bytes(2, "little")
    entry = content.index(b"PK\x01\x02") + place + 2
    changed[entry : entry + 2] = value.to_bytes(2, "little")
    return bytes(changed)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "encrypted (RuntimeError)": lambda c: _flag(c, 6, 1),
    "packed in an unknown way (NotImplementedError)": lambda c: _flag(c, 8, 99),
    "a damaged stream (zlib.error)": lambda c: c[:60] + bytes(byte ^ 0x5A for byte in c[60:200]) + c[200:],
    "no end (BadZipFile)": lambda c: c[:-30],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_archive_is_a_refusal(tmp_path: Path, damage: str) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.stack([person(5, 1, joints=15)] * 3), y=np.arange(3))
    (tmp_path / "a.npz").write_bytes(DAMAGE[damage]((tmp_path / "a.npz").read_bytes()))
    with pytest.raises(ValueError, match=r"a\.npz is not an \.npz file without pickled objects, or is damaged: "):
        inspect(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "header", ["'descr': '''f4'", "'descr': " + "(" * 300, "'descr': '<f4', " + "-" * 9000 + "1: 2"]
)
def test_a_damaged_header_in_an_archive_is_a_refusal(tmp_path: Path, header: str) -> None:
    text = f"{{{header}, 'fortran_order': False, 'shape': (3, 5, 15, 3), }}\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        size = len(text).to_bytes(2, "little")
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + size + text.encode() + bytes(2700))
    with pytest.raises(ValueError, match=r"a\.npz is not an \.npz file without pickled objects, or is damaged"):
        inspect(tmp_path / "a.npz")


def _gif(path: Path) -> None:
    pytest.importorskip("av")
    from tests.data.clips.made import write_video

    write_video(path, 3, codec="gif", pix_fmt="rgb8")
    content = path.read_bytes()
    path.write_bytes(content[:6] + struct.pack("<HH", 15_000, 15_000) + content[10:])


def _mp4(path: Path) -> None:
    pytest.importorskip("av")
    from tests.data.clips.made import write_video

    content = bytearray(write_video(path, 12).read_bytes())
    for tag, skip, value in (
        (b"stsz", 8, 1),
        (b"stsz", 12, 40_000_000),
        (b"stsc", 16, 40_000_000),
        (b"stts", 12, 40_000_000),
    ):
        struct.pack_into(">I", content, content.index(tag) + skip, value)
    path.write_bytes(content)


def _probe(path: Path) -> object:
    from fedaction.data.clips.decode import probe

    return probe(path)


def _wave(path: Path) -> None:
    data = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", 2**31, b"WAVE", b"fmt ", 16, 1, 2, 8000, 32000, 4, 16)
    path.write_bytes(data + b"data" + (2**32 - 8).to_bytes(4, "little") + bytes(400))


def _devices(path: Path) -> object:
    return fleet_of(str(path))


def _tensors(path: Path) -> None:
    header = b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))


def _pose(path: Path) -> object:
    return read_pose(path, 3, OPENNI_15)


def _npy(shape: tuple[int, ...], kind: str = "<f4") -> Callable[[Path], object]:
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return lambda path: path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())


DECLARED: dict[str, tuple[str, Callable[[Path], object], Callable[[Path], object], str]] = {
    "an array's size": ("a.npy", _npy((10**12, 15, 3)), _pose, "damaged"),
    "an array of many nothings": ("a.npy", _npy((10**15, 0, 3)), _pose, "damaged"),
    "an .npz of nothings": (
        "a.npz",
        lambda p: np.savez(p, x=np.zeros((9, 0, 3, 2)), y=np.zeros(9, "U1")),
        inspect,
        "",
    ),
    "frames": ("a.skeleton", lambda p: p.write_text("999999999999\n0\n"), NTU60.read, "has 999999999999 frames"),
    "empty frames": (
        "a.skeleton",
        lambda p: p.write_text("500000\n" + "0\n" * 500_000),
        NTU60.read,
        "has 500000 frames",
    ),
    "a picture's size": ("a.gif", _gif, _probe, "damaged|decoded|opened"),
    "a film's frames": ("a.mp4", _mp4, _probe, "declares samples of 40000000 bytes"),
    "a sound's length": ("a.wav", _wave, read_wave, "more than the 1073741824 allowed"),
    "a tensor's size": ("a.safetensors", _tensors, load_model, "is not a .safetensors file"),
    "devices": (
        "a.toml",
        lambda p: p.write_text("[a]\nseconds_per_epoch = 1\ncount = 999999999"),
        _devices,
        "100000",
    ),
    "brackets in JSON": ("a.json", lambda p: p.write_text("[" * 10**6), _pose, "nested too deeply"),
    "brackets in a layout": ("a.json", lambda p: p.write_text("[" * 10**6), read_layout, "nested too deeply"),
    "brackets in a recipe": ("a.toml", lambda p: p.write_text("a = " + "[" * 5000), load_recipe, "nested too deeply"),
    "digits in a recipe": ("a.toml", lambda p: p.write_text("rounds = " + "9" * 5000), load_recipe, "digits"),
    "a long recipe": (
        "a.toml",
        lambda p: p.write_text("# " + "x" * 2 * MEGABYTE),
        load_recipe,
        "more than the 1048576 allowed",
    ),
    "a pipe": ("a.npy", os.mkfifo, _pose, "is not a file"),
}


@pytest.mark.parametrize("what", DECLARED)
def test_what_a_file_declares_takes_no_memory(tmp_path: Path, what: str) -> None:
    name, make, read, message = DECLARED[what]
    make(tmp_path / name)
    if not message:  # it is sound, if strange
        read(tmp_path / name)
        return
    with at_most(150), pytest.raises(ValueError, match=message) as raised:
        read(tmp_path / name)
    assert len(str(raised.value)) < 1000 and str(raised.value).isprintable()
