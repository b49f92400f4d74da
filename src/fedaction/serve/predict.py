"""What is done in a video: a model file or an exported .onnx over its clips, as they come out of the decoder.

Frames are decoded one by one and kept only as long as a clip needs them: memory does not grow with the video. While
one thread decodes, others take a few clips each through the network, every one of them on one core. Threads that
share one clip would wait for each other in every layer, for long where other programs use the cores too.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedaction.data.clips.decode import Pixels, probe, stream
from fedaction.federation.processes import in_order_by
from fedaction.models.files import Card, ModelFileError
from fedaction.serve.network import load_network

Scores = npt.NDArray[np.float64]

_TOGETHER = 4
"""Clips that go through the network at once: 0.05 s of a core for each of ResNet-18's; one alone would take 0.14."""


@dataclass(frozen=True)
class Recogniser:
    """A model that is ready for use."""

    card: Card
    """What it recognises, and in which clips."""
    logits: Callable[[Pixels], npt.NDArray[np.float32]]
    """From (N, T, H, W, 3) uint8 clips to (N, classes) logits."""

    def scores(self, clips: Pixels) -> Scores:
        """(N, classes) probabilities."""
        logits = self.logits(clips).astype(np.float64)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class ClipScores:
    """What a model says of one clip."""

    frame: int
    """The clip's first, counted from 0."""
    seconds: float | None
    """Where that is in the video, by its average frame rate; None: unknown."""
    scores: Scores
    """(classes,) probabilities."""


def best(scores: Scores, card: Card, count: int = 1) -> list[tuple[str, float]]:
    """The likeliest actions with their confidence, the likeliest first."""
    order = np.argsort(-scores, kind="stable")[:count]
    return [(card.classes[i], float(scores[i])) for i in order.tolist()]


def load_recogniser(path: str | Path) -> Recogniser:
    """Reads a model: a model file (.safetensors) or what `fedaction export` made of one (.onnx)."""
    network = load_network(path)
    if not network.card.classes:
        raise ModelFileError(
            f"{path} has no classifier, so that it recognises nothing; train one on it, as with "
            "`fedaction run edge/finetune --set pretrained=FILE`"
        )
    if network.card.input.kind != "video":
        raise ModelFileError(f"{path} takes {network.card.input.kind}, not video")
    return Recogniser(network.card, network.logits)


def predict(
    model: Recogniser, path: str | Path, every: int | None = None, workers: int | None = None
) -> Iterator[ClipScores]:
    """What a model says of a video's clips, in their order.

    Args:
        model: the model.
        path: the video. Where it cannot be read, a VideoError; what was given until then stands.
        every: frames from one clip's beginning to the next's; None: clips do not overlap.
        workers: threads that compute; None: as many as torch would use.
    """
    fps, card = probe(path).fps, model.card
    workers = workers or torch.get_num_threads()

    def look(batch: list[tuple[int, Pixels]]) -> list[ClipScores]:
        scores = model.scores(np.stack([clip for _, clip in batch]))
        starts = [start for start, _ in batch]
        return [ClipScores(s, s / fps if fps else None, row) for s, row in zip(starts, scores, strict=True)]

    clips = windows(stream(path, short_side=card.resize, crop=card.crop), card.frames, card.stride, every)
    batches = iter(lambda: list(itertools.islice(clips, _TOGETHER)), [])
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for scores in in_order_by(pool, (partial(look, batch) for batch in batches), workers):
            yield from scores


def windows(
    frames: Iterator[Pixels], length: int, stride: int, every: int | None = None
) -> Iterator[tuple[int, Pixels]]:
    """Clips of a stream of (H, W, 3) frames: the first frame's number, and (length, H, W, 3).

    What is left at the end and does not fill a clip is dropped. A stream shorter than one clip gives one, filled up
    by repeating what there is from its beginning.

    Args:
        frames: the stream.
        length: frames per clip.
        stride: frames of the stream from one of a clip to its next.
        every: from one clip's beginning to the next's; None: `length * stride`.
    """
    every = length * stride if every is None else every
    if every < 1:
        raise ValueError(f"clips must begin at least a frame apart, not {every}")
    span = (length - 1) * stride + 1
    kept: deque[Pixels] = deque(maxlen=span)
    total = 0
    for frame in frames:
        kept.append(frame)
        total += 1
        start = total - span
        if start >= 0 and start % every == 0:
            yield start, np.stack([kept[i] for i in range(0, span, stride)])
    if 0 < total < span:
        there = list(kept)[::stride]
        yield 0, np.stack([there[i % len(there)] for i in range(length)])
