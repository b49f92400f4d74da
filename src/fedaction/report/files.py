"""The files of one run directory, read and checked.

A missing file raises FileNotFoundError, a broken one ValueError; the message begins with the file's path.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import PlainValidator, TypeAdapter, ValidationError

from fedaction.data.files import first_fault
from fedaction.data.layout import Layout
from fedaction.federation.files import SHA256, read_sealed_json
from fedaction.federation.outside import parse_toml, read_file, refuse_damage
from fedaction.runs.seal import OF

Matrix = tuple[tuple[float, ...], ...]
T = TypeVar("T")


def _layout(value: object) -> Layout:
    if not isinstance(value, dict):
        raise ValueError('a layout is an object with "joints" and "edges"')
    return Layout.from_dict(cast("dict[str, object]", value))


LayoutField = Annotated[Layout, PlainValidator(_layout)]


@dataclass(frozen=True)
class Control:
    """What needs no network: a mean accuracy over clients, and each client's own."""

    mean: float
    clients: dict[str, float]


@dataclass(frozen=True)
class Result:
    """result.json: how a run ended, as far as a report shows it. Accuracies are fractions."""

    mean: float | None = None
    std: float | None = None
    clients: dict[str, float | None] = field(default_factory=dict[str, float | None])
    name: str = ""
    method: str = ""
    seed: int | None = None
    seconds: float | None = None
    configuration: str = ""
    engine: str = ""
    device: str = ""
    complete: bool = True
    seeds: dict[str, float | None] | None = None
    interval: tuple[float, float] | None = None
    balanced_accuracy: float | None = None
    macro_f1: float | None = None
    baselines: dict[str, Result] = field(default_factory=dict[str, "Result"])
    controls: dict[str, Control] = field(default_factory=dict[str, Control])
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Confusion:
    """Counts of one client's test samples: rows are true classes, columns predicted ones (K, K)."""

    classes: tuple[str, ...]
    matrix: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        _square("matrix", self.matrix, len(self.classes), "classes")


@dataclass(frozen=True)
class LearnedGraph:
    """One client's learned graph: fixed A, shared I, private U, each (V, V), and their weights in the mix."""

    layout: LayoutField
    A: Matrix | None = None
    I: Matrix | None = None  # noqa: E741 (the paper's symbol, and the file's key)
    U: Matrix | None = None
    alpha: float = 1.0
    beta: float = 1.0
    gamma: float = 1.0

    def __post_init__(self) -> None:
        for name, matrix in (("A", self.A), ("I", self.I), ("U", self.U)):
            if matrix is not None:
                _square(name, matrix, len(self.layout), "joints")


@dataclass(frozen=True)
class RecordedAction:
    """One recorded action: frames (T, V, 2 or 3) in metres with y up, true and predicted label."""

    layout: LayoutField
    frames: tuple[tuple[tuple[float | None, ...], ...], ...]
    label: str
    predicted: str
    confidence: float | None = None
    rate_hz: float = 30.0

    def __post_init__(self) -> None:
        if not self.frames:
            raise ValueError("a sample needs at least one frame")
        if not self.rate_hz > 0:
            raise ValueError(f"rate_hz must be above 0; got {self.rate_hz}")
        for t, frame in enumerate(self.frames):
            if len(frame) != len(self.layout):
                raise ValueError(f"frame {t} has {len(frame)} joints; its layout has {len(self.layout)}")
            if any(len(joint) not in (2, 3) for joint in frame):
                raise ValueError(f"frame {t} has a joint that is not (x, y) or (x, y, z)")


@dataclass(frozen=True)
class Evidence:
    """evidence.json: what a run leaves to look at, by client."""

    confusion: dict[str, Confusion] = field(default_factory=dict[str, Confusion])
    topology: dict[str, LearnedGraph] = field(default_factory=dict[str, LearnedGraph])
    samples: dict[str, tuple[RecordedAction, ...]] = field(default_factory=dict[str, tuple[RecordedAction, ...]])


@dataclass(frozen=True)
class AnalysisTable:
    """A small table, its cells written out."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"every row of a table with {len(self.columns)} columns needs as many cells")


@dataclass(frozen=True)
class Analysis:
    """analyses/NAME.json: what `fedaction analyse` wrote, and NAME.svg beside it."""

    name: str
    place: int
    title: str
    caption: str
    table: AnalysisTable
    notes: tuple[str, ...] = ()
    picture: bytes = b""


def _square(name: str, matrix: tuple[tuple[float, ...], ...], size: int, what: str) -> None:
    if len(matrix) != size or any(len(row) != size for row in matrix):
        widths = sorted({len(row) for row in matrix})
        raise ValueError(f"{name} must be {size} x {size}, for its {what}; got {len(matrix)} rows of {widths}")


def _bytes(path: Path) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; a run directory needs it") from None


@cache
def _adapt(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)


def _parse(path: Path, kind: type[T]) -> T:
    try:
        return _adapt(kind).validate_json(_bytes(path))
    except ValidationError as error:
        raise ValueError(f"{path}: {first_fault(error)}") from None


def read_recipe(path: Path) -> dict[str, Any]:
    """The resolved recipe as a flat table."""
    with refuse_damage(path, "a recipe"):
        return parse_toml(_bytes(path).decode(), path)


def read_environment(path: Path) -> dict[str, Any]:
    """Versions, device and revision, as written; what vouches for them is left out."""
    return {key: value for key, value in _parse(path, dict[str, Any]).items() if key not in (OF, SHA256)}


def read_result(path: Path) -> Result | None:
    """How the run ended, or None where it has not."""
    return _parse(path, Result) if path.exists() else None


def read_evidence(path: Path) -> Evidence:
    """The run's evidence; empty where it left none."""
    return _parse(path, Evidence) if path.exists() else Evidence()


def read_analyses(folder: Path) -> tuple[Analysis, ...]:
    """The run's analyses, in the order they are shown in; none where there is no such folder."""
    analyses: list[Analysis] = []
    for path in folder.glob("*.json"):
        picture = path.with_suffix(".svg")
        try:
            read_sealed_json(path)
            analysis = _parse(path, Analysis)
        except ValueError as error:
            again = f"`fedaction analyse {folder.parent}` makes it again"
            raise ValueError(f"{error}; remove it, or {again}") from None
        analyses.append(replace(analysis, picture=_bytes(picture) if picture.exists() else b""))
    return tuple(sorted(analyses, key=lambda analysis: (analysis.place, analysis.name)))


def finite(value: float | None) -> float | None:
    """The value, or None where it is absent, infinite or not a number."""
    return value if value is not None and math.isfinite(value) else None
