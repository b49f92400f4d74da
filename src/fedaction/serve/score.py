"""How often a network is right on labelled recordings, with what one must know to read that."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict

import torch

from fedaction.evaluation.accuracy import confusion, score_confusion, wilson
from fedaction.serve.network import Network
from fedaction.serve.recordings import list_recordings

Tell = Callable[[int], object]


class ScoreResult(TypedDict):
    """What `fedaction evaluate --on` prints; shares are 0 to 1.

    `interval` is the 95 % interval of the accuracy for other recordings of this kind; `majority` is what always
    answering `commonest` would give; `recall` is by class that the recordings have. Recordings of classes that the
    network does not name are in `unknown`, by class, and not in `n`; those that could not be read are in `broken`.
    """

    n: int
    accuracy: float
    interval: tuple[float, float]
    balanced_accuracy: float
    macro_f1: float
    majority: float
    commonest: str
    recall: dict[str, float]
    never: list[str]
    unknown: dict[str, int]
    broken: list[dict[str, str]]
    classes: list[str]
    confusion: list[list[int]]


def score_network(
    network: Network,
    paths: Iterable[str | Path],
    *,
    form: str = "",
    rate_hz: float | None = None,
    tell: Tell | None = None,
) -> ScoreResult:
    """Tests a network on labelled recordings, each by the mean over its windows.

    Args:
        network: with a classifier.
        paths: stores of skeletons, signals or features, folders with a folder of recordings for each class, or .npz
            files with `x` and `y`.
        form: see `list_recordings`.
        rate_hz: of signals, where files do not say.
        tell: called with the number of recordings done.
    """
    truth: list[int] = []
    answers: list[int] = []
    unknown: Counter[str] = Counter()
    broken: list[dict[str, str]] = []
    place = {name: number for number, name in enumerate(network.classes)}
    for path in paths:
        if not Path(path).is_dir() and Path(path).suffix.lower() != ".npz":
            raise ValueError(
                f"{path} is no store, .npz file or folder with a folder for each class: it has no labels"
            )
        for take in list_recordings(path, network.card.input, form):
            label = take.label or ""
            if label not in place:
                unknown[label] += 1
                continue
            try:
                recording, own = take.read()
                said = network.sum_up(list(network.stream(recording, own or rate_hz)))
            except (ValueError, OSError) as error:
                broken.append({"file": take.name, "error": str(error)})
                continue
            truth.append(place[label])
            answers.append(place[said.label])
            if tell is not None:
                tell(len(truth))
    if not truth:
        first = f"; the first problem: {broken[0]['error']}" if broken else ""
        seen = f": the recordings are of {', '.join(list(unknown)[:8])}" if unknown else ""
        raise ValueError(
            f"no recording could be tested{seen}; the network names {', '.join(network.classes[:8])}{first}"
        )
    matrix = confusion(torch.tensor(truth), torch.tensor(answers), len(network.classes))
    scores = score_confusion(matrix)
    counts = matrix.sum(1)
    commonest = int(counts.argmax())
    return {
        "n": len(truth),
        "accuracy": scores.accuracy,
        "interval": wilson(scores.accuracy, len(truth)),
        "balanced_accuracy": scores.balanced_accuracy,
        "macro_f1": scores.macro_f1,
        "majority": int(counts[commonest]) / len(truth),
        "commonest": network.classes[commonest],
        "recall": {
            name: int(matrix[number, number]) / int(counts[number])
            for name, number in place.items()
            if int(counts[number])
        },
        "never": [network.classes[number] for number in scores.never],
        "unknown": dict(unknown),
        "broken": broken,
        "classes": list(network.classes),
        "confusion": [[int(count) for count in row] for row in matrix],
    }
