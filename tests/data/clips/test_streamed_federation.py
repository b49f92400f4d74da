"""A federation on videos that are many times larger than the memory they may take."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedaction.bench.video import make_video
from fedaction.data.clips.decode import count_packets
from fedaction.data.clips.folders import airtlab
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.study import run_study
from tests.conftest import recordings

MB = 2**20
ROUNDS, SIDE, MEMORY = 5, 96, 0.01


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real clips of two classes, each under seven names: 140 files of some 150 frames, 14 of them for test."""
    root = tmp_path_factory.mktemp("streamed") / "videos"
    found = airtlab(recordings("airtlab_violence_small"), task="violence").samples
    for label, name in enumerate(("calm", "violent")):
        own = [sample.path for sample in found if sample.label == label][:10]
        for split, paths, copies in (("train", own[:9], 7), ("test", own[9:], 7)):
            (root / split / name).mkdir(parents=True)
            for number, path in enumerate(paths):
                for copy in range(copies):
                    (root / split / name / f"{number}-{copy}{path.suffix}").symlink_to(path)
    return root


def pretrain(videos: Path, out: Path, memory: float) -> dict[int, int]:
    """Federated pretraining in a process of its own; the most memory it had, in bytes, by rounds that were done."""
    recipe = f"""
        method = "fedvssl"
        pretext = "speed"
        clip_frames = 4
        clip_size = 32
        model_width = 2
        rounds = {ROUNDS}
        clients_per_round = 2
        batch_size = 6
        momentum = 0.0
        evaluate_every = {ROUNDS}
        device = "cpu"
        workers = 1
        data = "video"
        video_root = "{videos}"
        video_by = "equal"
        video_clients = 6
        video_side = {SIDE}
        frames = 16
        video_test_clips = 1
        video_memory = {memory}
        video_cache = "none"
        controls = []
        """
    (out.parent / f"{out.name}.toml").write_text(recipe)
    command = "import sys; from fedaction.cli import app; sys.argv = ['fedaction', *sys.argv[1:]]; app()"
    arguments = ["run", str(out.parent / f"{out.name}.toml"), "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    process = subprocess.Popen([sys.executable, "-c", command, *arguments], env=environment, stderr=subprocess.PIPE)
    most: dict[int, int] = {}
    try:
        while process.poll() is None:
            clock = out / "clock.jsonl"
            done = len(clock.read_text().splitlines()) if clock.exists() else 0
            most[done] = max(most.get(done, 0), resident(process.pid))
            time.sleep(0.01)
    finally:
        process.kill()
    assert process.stderr is not None
    assert process.wait() == 0, process.stderr.read().decode()
    return most


def resident(process: int) -> int:
    """Bytes of memory that a process has; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads a process's memory from /proc")
def test_a_federation_larger_than_memory_learns_the_same_in_little_memory(videos, tmp_path):
    decoded = sum(map(count_packets, videos.glob("train/*/*"))) * 3 * SIDE**2
    assert decoded > 20 * MEMORY * 2**30
    streamed, held = pretrain(videos, tmp_path / "streamed", MEMORY), pretrain(videos, tmp_path / "held", 8)
    # Flat: no later round takes more than the first ones did.
    first = max(most for done, most in streamed.items() if done <= 2)
    later = max(most for done, most in streamed.items() if 2 < done < ROUNDS)
    assert later < first + 40 * MB
    # Bounded: what holding the frames costs is not there.
    assert max(streamed.values()) < max(held.values()) - 0.7 * decoded
    for name in ("metrics.jsonl", "model.safetensors"):
        same = (tmp_path / "streamed" / name).read_bytes() == (tmp_path / "held" / name).read_bytes()
        assert same, f"{name} depends on where videos are"


# Training with labels


@pytest.fixture(scope="module")
def actions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("actions")
    for action in ("sit", "wave"):
        (root / action).mkdir()
        for number in range(6):
            make_video(root / action / f"{number}.mp4", frames=14 + 3 * number, height=24, width=32)
    return root


@pytest.mark.filterwarnings("ignore:.*not held in memory")
@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("fedavg", {}),
        ("fedavg", {"engine": "vectorised"}),
        ("fedavg", {"video_fresh": False, "model_frozen": 5}),
        ("edge", {"model_frozen": 5}),  # frozen stages look at other clips in each epoch
        ("central", {}),
        ("central", {"model_frozen": 5}),
    ],
)
def test_labelled_clips_are_learnt_alike_from_memory_and_from_files(actions, tmp_path, monkeypatch, method, keys):
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    values = {
        **{"method": method, "backbone": "resnet3d", "classifier": "shared", "model_width": 2, "rounds": 2},
        **{"controls": [], "batch_size": 2, "lr": 0.01, "device": "cpu", "data": "video", "video_root": str(actions)},
        **{"video_clients": 2, "video_side": 16, "frames": 4, "video_stride": 2, "video_test_clips": 2},
    }
    losses = []
    for memory in (1, 0):
        run_study(parse_recipe({**values, **keys, "video_memory": memory}), tmp_path / f"{memory}")
        losses.append((tmp_path / f"{memory}" / "metrics.jsonl").read_text())
    assert losses[0] == losses[1]
    if not keys:  # other clips in each epoch lead elsewhere than the same ones
        run_study(parse_recipe({**values, "video_fresh": False}), tmp_path / "fixed")
        assert (tmp_path / "fixed" / "metrics.jsonl").read_text() != losses[0]
