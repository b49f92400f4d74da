"""`fedaction predict`: name the actions in videos."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedaction.cli.common import JsonFlag, err, exit_on_refusal, say

if TYPE_CHECKING:  # torch takes seconds to load, and `--help` should not wait for it
    from fedaction.serve.predict import Recogniser


def predict(
    model: Annotated[
        Path,
        typer.Argument(help="A model file (.safetensors), or an exported one (.onnx).", exists=True, dir_okay=False),
    ],
    videos: Annotated[list[Path], typer.Argument(help="Video files.")],
    top: Annotated[int, typer.Option(min=1, help="How many actions to name, the likeliest first.")] = 1,
    every: Annotated[
        int, typer.Option(min=0, help="Frames from one clip's beginning to the next's; 0: clips do not overlap.")
    ] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Name the action in each clip of a video and in the whole of it, with confidence, as frames are decoded.

    A video's confidence is the mean of its clips'. A file that cannot be read is reported, and the others are done;
    the exit status is then 1.
    """
    from fedaction.serve.predict import load_recogniser

    with exit_on_refusal(ImportError):
        ready = load_recogniser(model)
    if as_json:
        print('{"videos": [', end="")
    show = _Json() if as_json else _Text()
    broken = [path for path in videos if not _predict(ready, path, top, every or None, show)]
    if as_json:
        print("]}")
    if broken:
        raise typer.Exit(1)


def _predict(ready: Recogniser, path: Path, top: int, every: int | None, show: _Text | _Json) -> bool:
    """Goes through one video; False: it could not be read to its end."""
    import numpy as np

    from fedaction.serve.predict import best, predict

    count, total, started = 0, np.zeros(len(ready.card.classes)), time.perf_counter()
    show.video(path)
    try:
        for clip in predict(ready, path, every):
            count, total = count + 1, total + clip.scores
            show.clip(clip.frame, clip.seconds, best(clip.scores, ready.card, top))
    except (ValueError, OSError, ImportError) as error:
        show.broken(str(error))
        return False
    show.done(best(total / count, ready.card, top), count, time.perf_counter() - started)
    return True


class _Text:
    """Lines as they come."""

    def video(self, path: Path) -> None:
        say(str(path))

    def clip(self, frame: int, seconds: float | None, actions: list[tuple[str, float]]) -> None:
        place = f"frame {frame}" if seconds is None else f"{seconds:.2f} s"
        say(f"  {place:>12}  {_words(actions)}")

    def done(self, actions: list[tuple[str, float]], clips: int, seconds: float) -> None:
        say(f"  {'the video':>12}  {_words(actions)}  ({clips} clips in {seconds:.1f} s)")

    def broken(self, reason: str) -> None:
        say(f"error: {reason}", err)


class _Json:
    """One JSON object, written piece by piece: a long video's clips are never all in memory."""

    def __init__(self) -> None:
        self._videos, self._clips = 0, 0

    def video(self, path: Path) -> None:
        print(f'{", " if self._videos else ""}{{"video": {json.dumps(str(path))}, "clips": [', end="")
        self._videos, self._clips = self._videos + 1, 0

    def clip(self, frame: int, seconds: float | None, actions: list[tuple[str, float]]) -> None:
        facts = {"frame": frame, "seconds": seconds, "actions": _values(actions)}
        print((", " if self._clips else "") + json.dumps(facts), end="", flush=True)
        self._clips += 1

    def done(self, actions: list[tuple[str, float]], clips: int, seconds: float) -> None:
        rest = {"actions": _values(actions), "clip_count": clips, "seconds_taken": seconds}
        print("], " + json.dumps(rest)[1:], end="", flush=True)

    def broken(self, reason: str) -> None:
        print("], " + json.dumps({"error": reason})[1:], end="", flush=True)


def _words(actions: list[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {confidence:.1%}" for name, confidence in actions)


def _values(actions: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"action": name, "confidence": confidence} for name, confidence in actions]
