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
    several = len(studies) > 1
    runs = [
        (f"{run['method']} in {Path(run['run']).name}" if several else str(run["method"]), run, study)
        for study in studies
        for run in (study, *study.get("baselines", {}).values())
    ]
    return judge_runs(runs)


def judge_runs(runs: Sequence[tuple[str, Study, Study]]) -> list[str]:
    """Warnings about runs: each with its label, and what has the `controls` of its split."""
    named = [(label, run) for label, run, _ in runs]
    return [*_below(runs), *_apart(named), *_never(named), *_rising(named), *_few(named)]


_SIMPLE = {"majority": "always answering each client's commonest class", "ridge": "a ridge classifier on the input"}


def _below(runs: Sequence[tuple[str, Study, Study]]) -> Iterable[str]:
    """Below what needs no network."""
    for name, words in _SIMPLE.items():
        low: dict[float, list[str]] = {}
        for label, run, study in runs:
            control = study.get("controls", {}).get(name)
            if control and run["mean"] < control["mean"]:
                low.setdefault(control["mean"], []).append(f"{label} ({_percent(run['mean'])})")
        for mean, texts in low.items():
            yield f"Below {words} ({_percent(mean)}): {_some(texts)}."


def _apart(runs: Sequence[tuple[str, Study]]) -> Iterable[str]:
    """Neighbours in rank that the test does not tell apart."""
    known = sorted((pair for pair in runs if pair[1].get("interval")), key=lambda pair: -pair[1]["mean"])
    close = [
        f"{above} ({_percent(better['mean'])}) from {below} ({_percent(worse['mean'])})"
        for (above, better), (below, worse) in pairwise(known)
        if worse["mean"] >= better["interval"][0]
    ]
    if close:
        yield f"Not told apart by this test (within the 95 % interval): {_some(close)}."


def _never(runs: Sequence[tuple[str, Study]]) -> Iterable[str]:
    """Classes that are tested and never answered; of many runs how many classes."""
    by_run: dict[str, dict[str, Sequence[str]]] = {}
    for label, run in runs:
        never: Mapping[str, Sequence[str]] = run.get("never") or {}
        if own := {client: classes for client, classes in never.items() if classes}:
            by_run[label if len(run.get("seeds") or ()) < 2 else f"{label} with some seed"] = own
    if len(by_run) > _MOST:
        texts = (f"{label} ({sum(map(len, own.values()))} at {len(own)} clients)" for label, own in by_run.items())
        yield f"Classes of the test are never the answer: {_some(texts)}."
        return
    for label, own in by_run.items():
        texts = (f"{_some(classes)} at {client}" for client, classes in own.items())
        yield f"{label} never answers: {_some(texts, '; ')}."


def _rising(runs: Sequence[tuple[str, Study]]) -> Iterable[str]:
    """Training that was not at its end."""
    texts = [
        f"{label} (by {100 * run['rise']:.1f} points)"
        for label, run in runs
        if run.get("rise") is not None and run.get("interval") and run["rise"] > run["mean"] - run["interval"][0]
    ]
    if texts:
        yield f"Still rising in the last quarter of the rounds: {_some(texts)}."


def _few(runs: Sequence[tuple[str, Study]]) -> Iterable[str]:
    """Tests too small to say much."""
    small = {client: n for _, run in runs for client, n in run.get("n", {}).items() if n < FEW}
    if small:
        named = _some(f"{client} ({n})" for client, n in small.items())
        yield f"Fewer than {FEW} test samples: {named}."


def _some(texts: Iterable[str], between: str = ", ") -> str:
    """The first few of some texts, and how many more there are."""
    every = list(texts)
    more = len(every) - _MOST
    return between.join(every[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
