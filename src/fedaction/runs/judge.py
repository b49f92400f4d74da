"""What a reader of a result should be told before believing it: short sentences, from numbers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

FEW = 50
"""A client with fewer test samples is named."""
_MOST = 3  # clients or classes that a sentence names

Study = Mapping[str, Any]
"""A study's result.json, see `runs.study.RunResult`; what an older one lacks is not judged."""


def judge(studies: Sequence[Study]) -> list[str]:
    """Warnings about the runs of one study, or of several side by side."""
    runs = [(run, study) for study in studies for run in (study, *study.get("baselines", {}).values())]
    several = len(studies) > 1
    labelled = [(_label(run, several), run, study) for run, study in runs]
    return [
        *(text for label, run, study in labelled for text in _below(label, run, study)),
        *_apart([(label, run) for label, run, _ in labelled]),
        *(text for label, run, _ in labelled for text in _never(label, run)),
        *(text for label, run, _ in labelled for text in _rising(label, run)),
        *_few(runs),
    ]


def _label(run: Study, several: bool) -> str:
    return f"{run['method']} in {Path(run['run']).name}" if several else str(run["method"])


def _below(label: str, run: Study, study: Study) -> Iterable[str]:
    """Below what needs no network."""
    words = {
        "ridge": "a ridge classifier on the input",
        "majority": "always answering each client's commonest class",
    }
    for name, said in words.items():
        control = study.get("controls", {}).get(name)
        if control and run["mean"] < control["mean"]:
            yield f"{label} ({_percent(run['mean'])}) is below {said} ({_percent(control['mean'])})."
            return


def _apart(runs: Sequence[tuple[str, Study]]) -> Iterable[str]:
    """Neighbours in rank that the test does not tell apart."""
    known = sorted((pair for pair in runs if pair[1].get("interval")), key=lambda pair: -pair[1]["mean"])
    close = [
        f"{above} {_percent(better['mean'])} from {below} {_percent(worse['mean'])}"
        for (above, better), (below, worse) in pairwise(known)
        if worse["mean"] >= better["interval"][0]
    ]
    if close:
        low, high = known[0][1]["interval"]
        yield (
            f"The test does not tell {'; '.join(close)}: the second is within the first's 95 % interval "
            f"({known[0][0]}: {100 * low:.1f} to {_percent(high)})."
        )


def _never(label: str, run: Study) -> Iterable[str]:
    """Classes that are tested and never answered."""
    never = {client: classes for client, classes in run.get("never", {}).items() if classes}
    if never:
        texts = [f"{_some(repr(name) for name in classes)} at {client}" for client, classes in never.items()]
        yield f"{label} never answers {_some(texts)}."


def _rising(label: str, run: Study) -> Iterable[str]:
    """Training that was not at its end."""
    rise, interval = run.get("rise"), run.get("interval")
    if rise is not None and interval and rise > run["mean"] - interval[0]:
        yield f"{label} was still rising: the last quarter of its rounds added {100 * rise:.1f} points."


def _few(runs: Sequence[tuple[Study, Study]]) -> Iterable[str]:
    """Tests too small to say much."""
    small = {client: n for run, _ in runs for client, n in run.get("n", {}).items() if n < FEW}
    if small:
        named = _some(f"{client} ({n})" for client, n in small.items())
        yield f"Fewer than {FEW} test samples: {named}."


def _some(texts: Iterable[str]) -> str:
    """The first few of some texts, and how many more there are."""
    every = list(texts)
    more = len(every) - _MOST
    return ", ".join(every[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
