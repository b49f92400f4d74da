"""`fedaction predict`: name the actions in recordings."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedaction.cli.common import err, exit_on_refusal, explain, refuse_pipe, say, show_warnings, warn
from fedaction.federation.words import quote

if TYPE_CHECKING:  # torch takes seconds to load, and `--help` should not wait for it
    from fedaction.serve.network import Network, Prediction, WindowScores
    from fedaction.serve.recordings import Unread

ModelPlace = Annotated[
    Path,
    typer.Argument(help="A model file (.safetensors), an exported one (.onnx), or a run's directory.", exists=True),
]
ClientOption = Annotated[
    str | None, typer.Option("--client", help="Of a run's directory: the client whose own network is meant.")
]
FormatOption = Annotated[
    str, typer.Option("--format", help="How files are to be read: a public dataset's name, such as utd_mhad.")
]


def predict(
    model: ModelPlace,
    files: Annotated[
        list[Path], typer.Argument(help="Recordings: files, stores, or folders of files; what the model takes.")
    ],
    client: ClientOption = None,
    top: Annotated[int, typer.Option(min=1, help="How many actions to name, the likeliest first.")] = 1,
    every: Annotated[
        int, typer.Option(min=0, help="Video: frames from one clip's beginning to the next's; 0: no overlap.")
    ] = 0,
    rate: Annotated[
        float | None, typer.Option(min=1e-3, help="Signals: readings a second, where the files do not say.")
    ] = None,
    form: FormatOption = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, as they come, on standard output.")
    ] = False,
) -> None:
    """Name the action in each window of a recording and in the whole of it, with confidence, as they come.

    Skeletons are .npy, .npz (array x), .csv, .skeleton or a store; signals .npy, .npz or .csv; features the same, a
    feature store, or .wav; video any file that FFmpeg reads. A recording's confidence is the mean of its windows'. A
    file that cannot be read is reported, and the others are done; the exit status is then 1, or 2 where no other is.
    """
    from fedaction.serve.network import find_model, load_network
    from fedaction.serve.recordings import check_form

    with exit_on_refusal():
        check_form(form)
        network = load_network(find_model(model, client))
        if not network.classes:
            raise ValueError(
                f"{model} has no classifier, so it recognises nothing; train one on it, as with `fedaction run "
                "recipes/edge/finetune.toml --set pretrained=FILE`"
            )
    show = _Json(network, top) if as_json else _Text(network, top)
    done = broken = 0
    with show_warnings():
        for path in files:
            for take in _takes(path, network, form, show):
                good = take is not None and _predict(network, take, rate, every or None, show)
                done, broken = done + good, broken + (not good)
    if broken and done + broken > 1:
        warn(f"{broken} of {done + broken} recordings could not be used; each was named with the reason")
    if broken:
        raise typer.Exit(1 if done else 2)


def _takes(path: Path, network: Network, form: str, show: _Text | _Json) -> Iterator[Unread | None]:
    """What lies at a path; None for what cannot be listed, which is reported."""
    from fedaction.serve.recordings import list_recordings

    try:
        refuse_pipe(path)
        yield from list_recordings(path, network.card.input, form)
    except (ValueError, OSError) as error:
        show.broken(str(path), explain(error))
        yield None


def _predict(network: Network, take: Unread, rate: float | None, every: int | None, show: _Text | _Json) -> bool:
    """Goes through one recording; False: it could not be read to its end."""
    windows: list[WindowScores] = []
    started = time.perf_counter()
    try:
        recording, own = take.read()
        for window in network.stream(recording, own or rate, every):
            windows.append(window)
            show.window(take.name, window)
    except (ValueError, OSError, ImportError) as error:
        show.broken(take.name, explain(error))
        return False
    show.done(take.name, network.sum_up(windows), time.perf_counter() - started)
    return True


class _Text:
    """Lines as they come: windows of signals and video, and every recording."""

    def __init__(self, network: Network, top: int) -> None:
        self._network, self._top = network, top
        self._many = network.card.input.kind in ("signals", "video")

    def window(self, name: str, window: WindowScores) -> None:
        if self._many:
            place = f"at {window.start}" if window.seconds is None else f"{window.seconds:.2f} s"
            say(f"  {place:>12}  {self._words(self._network.sum_up([window]))}")

    def done(self, name: str, whole: Prediction, seconds: float) -> None:
        count = f"  ({len(whole.windows)} windows in {seconds:.1f} s)" if self._many else ""
        say(f"{quote(name, len(name))}  {self._words(whole)}{count}")

    def broken(self, name: str, reason: str) -> None:
        text = reason if name in reason else f"{name}: {reason}"
        say(f"error: {quote(text, len(text))}", err)

    def _words(self, said: Prediction) -> str:
        return ", ".join(f"{action} {share:.1%}" for action, share in list(said.scores.items())[: self._top])


class _Json:
    """One object a line: {"file", "window", "start", ...} of windows, {"file", "windows", ...} of recordings."""

    def __init__(self, network: Network, top: int) -> None:
        self._network, self._top, self._count = network, top, 0
        self._many = network.card.input.kind in ("signals", "video")

    def window(self, name: str, window: WindowScores) -> None:
        if self._many:
            place = {"start": window.start, "seconds": window.seconds}
            self._print({"file": name, "window": self._count, **place}, self._network.sum_up([window]))
        self._count += 1

    def done(self, name: str, whole: Prediction, seconds: float) -> None:
        self._print({"file": name, "windows": len(whole.windows), "seconds_taken": round(seconds, 4)}, whole)
        self._count = 0

    def broken(self, name: str, reason: str) -> None:
        print(json.dumps({"file": name, "error": reason}), flush=True)
        self._count = 0

    def _print(self, facts: dict[str, Any], said: Prediction) -> None:
        actions = [{"action": a, "confidence": share} for a, share in list(said.scores.items())[: self._top]]
        print(json.dumps({**facts, "actions": actions}), flush=True)
