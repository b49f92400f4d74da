"""What sites say besides tensors, within bounds: numbers of a training, reports of a test, words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, model_validator

from fedaction.data.layout import Layout
from fedaction.evaluation.site import Evaluation
from fedaction.guard.base import Refused

MOST_METRICS = 1000
"""Numbers in a site's report."""
LONGEST_NAME = 200
"""Characters in the name of one of them."""
MOST_EVIDENCE = 4_000_000
"""Numbers and texts in the evidence of a site, and characters in its texts."""

Name = Annotated[str, Field(max_length=LONGEST_NAME)]
Matrix = list[list[FiniteFloat]]


class _Evidence(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Confusion(_Evidence):
    """Counts by true and predicted class."""

    classes: list[Name]
    matrix: list[list[Annotated[int, Field(ge=0, le=2**53)]]]

    @model_validator(mode="after")
    def _fit(self) -> _Confusion:
        _check_square(self.matrix, len(self.classes))
        return self


class _Topology(_Evidence):
    """A graph over a skeleton's joints."""

    layout: dict[str, Any]
    A: Matrix
    I: Matrix | None = None  # noqa: E741
    U: Matrix | None = None
    alpha: FiniteFloat = 1.0
    beta: FiniteFloat = 1.0
    gamma: FiniteFloat = 1.0

    @model_validator(mode="after")
    def _fit(self) -> _Topology:
        joints = len(Layout.from_dict(self.layout))
        for matrix in (self.A, self.I, self.U):
            if matrix is not None:
                _check_square(matrix, joints)
        return self


class _Played(_Evidence):
    """A sequence to play: (frames, joints, 2 or 3)."""

    layout: dict[str, Any]
    frames: list[list[Annotated[list[FiniteFloat | None], Field(min_length=2, max_length=3)]]] = Field(min_length=1)
    rate_hz: Annotated[FiniteFloat, Field(gt=0)]
    label: Name
    predicted: Name
    confidence: FiniteFloat | None = None

    @model_validator(mode="after")
    def _fit(self) -> _Played:
        joints = len(Layout.from_dict(self.layout))
        if any(len(frame) != joints for frame in self.frames):
            raise ValueError(f"a frame must have {joints} joints")
        return self


_KINDS: dict[str, TypeAdapter[Any]] = {
    "confusion": TypeAdapter(_Confusion),
    "topology": TypeAdapter(_Topology),
    "samples": TypeAdapter(list[_Played]),
    "test": TypeAdapter(Name),
}


def _check_square(matrix: list[list[Any]], size: int) -> None:
    if len(matrix) != size or any(len(row) != size for row in matrix):
        raise ValueError(f"a matrix must have {size} rows and columns")


def _is_evidence(kind: str, value: Any) -> bool:
    """Whether a value is what evidence of a kind is."""
    try:
        return kind in _KINDS and _KINDS[kind].validate_python(value) is not None
    except (ValueError, TypeError, LookupError, RecursionError):
        return False


def check_metrics(metrics: Mapping[str, float], who: str) -> None:
    """Refuses a report with more numbers, or longer names, than any method has."""
    if len(metrics) > MOST_METRICS:
        raise Refused(f"{who} reports {len(metrics)} numbers; {MOST_METRICS} are the most")
    for name in metrics:
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise Refused(
                f"{who} reports a number with a name of {len(name)} characters; expected up to {LONGEST_NAME}, all "
                "of which can be printed"
            )


def bound_evaluation(report: Evaluation, client: str) -> Evaluation:
    """What a site reports of its test: within bounds, or `Refused`.

    Evidence of a kind that nobody knows, that is too large, or that is not what its kind is, is left out; the numbers
    stand without it.
    """
    who = f"client {client!r}"
    if report.client != client:
        raise Refused(f"{who} was asked for its test, but {report.client!r} answered")
    check_metrics(report.metrics, who)
    accuracy = report.metrics.get("accuracy", 0.0)
    if report.n < 0 or not 0 <= accuracy <= 1:
        raise Refused(f"{who} says that it tested {report.n} samples, with accuracy {accuracy}; expected 0 to 1")
    kept = {kind: value for kind, value in report.evidence.items() if fits(value) and _is_evidence(kind, value)}
    return report if len(kept) == len(report.evidence) else replace(report, evidence=kept)


def fits(value: Any, most: int = MOST_EVIDENCE) -> bool:
    """Whether a JSON value is no larger than evidence may be."""
    size, left = 0, [value]
    while left and size <= most:
        item = left.pop()
        size += 1
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, Mapping):
            entries = cast("Mapping[str, Any]", item)
            left += [*entries, *entries.values()]
        elif isinstance(item, list | tuple):
            left += cast("list[Any]", item)
    return size <= most
