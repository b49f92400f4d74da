"""Speed of reading clips, as ratios within one run: against the bare decoder, and against clips held in memory."""

# PyAV and torch have partial type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from fedaction.bench import timing
from fedaction.bench.timing import Tick, ignore
from fedaction.data.clips.container import pyav
from fedaction.data.clips.decode import VideoError, probe, read_all, read_clips
from fedaction.data.clips.pool import pool_videos
from fedaction.data.clips.spec import ClipSpec, spread_clips
from fedaction.data.clips.videos import VideoSample, VideoSet
from fedaction.data.samples import Samples, take_each
from fedaction.federation.processes import cores
from fedaction.federation.seeds import generator, numpy_generator
from fedaction.models.resnet3d import ResNet3D


def bench_video(
    path: str | Path | None = None,
    *,
    spec: ClipSpec | None = None,
    rounds: int = 11,
    frames: int = 300,
    tick: Tick = ignore,
) -> dict[str, Any]:
    """Clip reading against a plain PyAV loop that decodes, scales and converts the same frames, in one thread each.

    All are timed in turn, `rounds` times over, and each ratio is the median of its per-turn ratios. Seconds are of
    processor time; on an idle machine they are those of the clock.

    Without a `path`, a video of 320 x 240 in H.264 with so many `frames` is made. A clip has by default 8 frames of
    112 x 112 pixels, scaled to 128.

    Returns:
        What was read, the median seconds of each contender and its frames a second of one core, and ratios of speed
        to that of the bare decoder: `ratio` for all clips of the file in one pass, `ratio_windows` for the same clips
        by their first frames, `ratio_torch` for the bare decoder with pictures that become RGB first and are scaled
        by torch, which is what scaling in the decoder saves.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    spec = spec or ClipSpec(crop=112)
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            return {"made": True} | _bench(make_video(Path(folder) / "made.mp4", frames=frames), spec, rounds, tick)
    return {"made": False} | _bench(Path(path), spec, rounds, tick)


def bench_streamed(
    path: str | Path | None = None,
    *,
    spec: ClipSpec | None = None,
    width: int = 64,
    files: int = 64,
    batch: int = 8,
    rounds: int = 3,
    device: torch.device | None = None,
    tick: Tick = ignore,
) -> dict[str, Any]:
    """Training on clips that are decoded as they are wanted, against the same clips from memory.

    A ResNet-18 learns, on a CPU in one thread, from a fresh clip of each of `files` videos, an epoch from files and
    one from memory in turn, `rounds` times over; the ratio is the median of those of each turn. Seconds are of the
    clock, since decoding goes on while the network learns; on a machine that others use, too, `ratio_processor` is
    the steadier one: of processor time over all threads, as if nothing went on side by side.

    The video is read under as many names; without a `path` one is made as for `bench_video`. The papers' `width` is
    64; a step has `batch` clips.

    Returns:
        Clips a second `streamed`, `held` and `decoded` (without learning), `cores` that decode, `ratio` of the first
        to the second, and `share_decoding`, the time of decoding to that of learning from memory: below 1, decoding
        keeps up where it has cores of its own.
    """
    if rounds < 1 or files < 1:
        raise ValueError(f"rounds {rounds}, files {files}: both must be at least 1")
    spec, (device, device_name) = spec or ClipSpec(crop=112), timing.device_or_gpu(device)
    with tempfile.TemporaryDirectory() as folder:
        source = make_video(Path(folder) / "made.mp4") if path is None else Path(path).absolute()
        samples = [VideoSample(source, f"{n}", n % 2, "train") for n in range(files)]
        videos = VideoSet("bench", ("a", "b"), (*samples, VideoSample(source, "test", 0, "test")))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that they are not held
            streamed, held = (pool_videos(videos, spec, memory=most)[0].train.on(device) for most in (0, 2**60))
        network = ResNet3D(18, 2, width).to(device)
        works: dict[str, Callable[[], object]] = {
            "held": lambda: _learn(held, network, batch),
            "streamed": lambda: _learn(streamed, network, batch),
            "decoded": lambda: [None for _ in take_each(streamed, *_order(streamed, batch))],
        }
        with timing.one_thread():
            times = timing.time_in_turn(works, rounds, lambda name, _: tick(name))
    return {
        "device": device_name,
        "cores": cores(),
        "spec": asdict(spec),
        "width": width,
        "files": files,
        "batch": batch,
        "rounds": rounds,
        "clips_per_second": {name: files / took for name, took in timing.medians(times.wall).items()},
        "ratio": timing.ratio(times.wall, "held", "streamed"),
        "ratio_processor": timing.ratio(times.processor, "held", "streamed"),
        "share_decoding": timing.ratio(times.wall, "decoded", "held"),
    }


def _order(clips: Samples, batch: int) -> tuple[Tensor, Tensor | None]:
    """The (steps, batch) clips of an epoch, and where they begin."""
    rows = torch.arange(len(clips) // batch * batch).view(-1, batch)
    return rows, clips.draw(rows, generator(0, "bench"))


def _learn(clips: Samples, network: ResNet3D, batch: int) -> None:
    """An epoch of SGD."""
    rows, starts = _order(clips, batch)
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-4)
    device = next(network.parameters()).device
    labels = clips.labels[rows].to(device)
    loss = torch.zeros((), device=device)
    for step, x in enumerate(take_each(clips, rows, starts)):
        optimiser.zero_grad()
        loss = F.cross_entropy(network(x), labels[step])
        loss.backward()
        optimiser.step()
    loss.item()  # which waits for a GPU


def make_video(path: Path, *, frames: int = 300, height: int = 240, width: int = 320, rate: int = 30) -> Path:
    """Writes a video of a patch that wanders over a noisy ground, in H.264 or, where that is lacking, MPEG-4."""
    av = pyav()
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    random = numpy_generator(0, "bench", "video")
    ground = random.integers(0, 200, (height // 8, width // 8, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    patch = random.integers(0, 255, (height // 4, width // 4, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width, stream.pix_fmt = ground.shape[0], ground.shape[1], "yuv420p"
        for number in range(frames):
            picture = ground.copy()
            top, left = (3 * number) % (height // 2), (4 * number) % (width // 2)
            picture[top : top + len(patch), left : left + patch.shape[1]] = patch
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode(None))
    return path


def bare(path: Path, spec: ClipSpec, *, by_torch: bool = False) -> list[npt.NDArray[np.uint8]]:
    """Every stride-th frame, scaled, (H, W, 3), by PyAV alone: decode, one scaler for all frames, to_ndarray."""
    import av
    from av.video.reformatter import VideoReformatter

    one: dict[str, Any] = {"threads": 1} if int(av.__version__.split(".")[0]) >= 17 else {}
    scaler, pictures = VideoReformatter(), list[npt.NDArray[np.uint8]]()
    with av.open(str(path), metadata_errors="ignore") as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for number, frame in enumerate(container.decode(stream)):
            if number % spec.stride:
                continue
            scale = spec.side / min(frame.height, frame.width)
            height, width = round(frame.height * scale), round(frame.width * scale)
            if by_torch:
                rgb = torch.from_numpy(scaler.reformat(frame, format="rgb24", **one).to_ndarray())
                picture = F.interpolate(rgb.permute(2, 0, 1)[None], (height, width), mode="bilinear", antialias=True)
                pictures.append(picture[0].permute(1, 2, 0).numpy())
            else:
                scaled = scaler.reformat(frame, width, height, "rgb24", interpolation="BILINEAR", **one)
                pictures.append(np.asarray(scaled.to_ndarray(), dtype=np.uint8))
    return pictures


def _bench(path: Path, spec: ClipSpec, rounds: int, tick: Tick) -> dict[str, Any]:
    info = probe(path)
    read = len(bare(path, spec))  # how many there are; and the file is in the system's cache for all
    if read < spec.frames:
        raise VideoError(f"{path} has {read} frames at this stride, too few for one clip of {spec.frames}")
    starts = spread_clips(torch.tensor([(read - 1) * spec.stride + 1]), spec.frames, spec.stride, 0).start.tolist()
    sizes: dict[str, Any] = {"short_side": spec.side, "crop": spec.square}
    contenders: dict[str, Callable[[], object]] = {
        "bare": lambda: bare(path, spec),
        "clips": lambda: read_all(path, spec.frames, spec.stride, **sizes),
        "windows": lambda: read_clips(path, starts, spec.frames, spec.stride, **sizes),
        "torch": lambda: bare(path, spec, by_torch=True),
    }
    with timing.one_thread():
        times = timing.time_in_turn(contenders, rounds, lambda name, _: tick(name)).processor
    seconds = timing.medians(times)
    return {
        "height": info.height,
        "width": info.width,
        "frames": read,
        "clips": len(starts),
        "spec": asdict(spec),
        "rounds": rounds,
        "seconds": seconds,
        "frames_per_second": {name: read / took for name, took in seconds.items()},
        "ratio": timing.ratio(times, "bare", "clips"),
        "ratio_windows": timing.ratio(times, "bare", "windows"),
        "ratio_torch": timing.ratio(times, "bare", "torch"),
    }
