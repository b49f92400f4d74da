"""A run's result.json as whoever shows it reads it: as it was written, and with all that is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fedaction.federation.files import read_sealed_json
from fedaction.federation.settings import explain
from fedaction.runs.seal import SealError

RESULT_FILE = "result.json"
"""In a run's directory: what it came to, see `runs.study.RunResult`."""


class _Shown(BaseModel):
    """What every table shows."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    clients: dict[str, float | None]
    mean: float


class _ShownResult(_Shown):
    """What tables and warnings show of a run; older versions left out those that have a default."""

    run: str
    method: str
    std: float | None
    seconds: float
    bytes_up: int | None
    bytes_down: int | None
    interval: tuple[float, float] | list[float] | None = None
    balanced_accuracy: float | None = None
    macro_f1: float | None = None
    rise: float | None = None
    n: dict[str, int] = {}
    tests: dict[str, str] = {}
    never: dict[str, list[str]] | None = None
    baselines: dict[str, _ShownResult] = {}
    controls: dict[str, _Shown] = {}


def read_result(home: Path) -> dict[str, Any]:
    """The result of the run, or study, in a directory; a damaged one is an error that says what makes it again."""
    path, again = home / RESULT_FILE, f"`fedaction resume {home}` makes it again"
    try:
        result = read_sealed_json(path)
        _ShownResult.model_validate(result)
    except FileNotFoundError:
        raise SealError(
            f"{home} has no {RESULT_FILE}; is it a finished run? `fedaction resume {home}` finishes one"
        ) from None
    except ValidationError as error:
        raise SealError(f"{path} is no result of a run: {explain(error)}: {again}") from None
    except ValueError as error:
        raise SealError(f"{error}: {again}") from None
    return result
