"""Where a run stands, from its directory alone, and whether what lies there fits together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaction.federation.files import read_json, read_sealed_json
from fedaction.runs.checkpoint import find_fault, list_rounds
from fedaction.runs.recipe import Recipe, load_recipe
from fedaction.runs.result import RESULT_FILE
from fedaction.runs.seal import OF, Seal, SealError
from fedaction.runs.stop import is_over

EVIDENCE_FILE = "evidence.json"
"""In a run's directory: what its report shows besides numbers, of the round that stands for the run."""
CONTROLS_FILE = "controls.json"
"""What stands beside its result, see `runs.controls`."""
ENVIRONMENT_FILE = "environment.json"
"""On what it was trained, see `runs.environment`."""
UNSEALED = "{} is of an older version, which sealed neither seed, data nor metrics: it is taken as it is"
"""What is said of a run without a seal."""


@dataclass(frozen=True)
class Standing:
    """How far a run has come, by its newest checkpoint; where checkpoints were removed, by its result."""

    round: int
    """Rounds done."""
    best: tuple[float, int]
    """See `RunState.best`."""
    time: float
    """Seconds on the clock."""
    seal: Seal
    """What the run was begun with."""
    metrics_length: int
    """Bytes of the metrics that are sealed."""
    metrics_sha256: str
    """Their hash; empty: of an older version."""

    @property
    def sealed(self) -> bool:
        """Whether the version that wrote it sealed more than the configuration."""
        return self.seal.seed is not None

    def over(self, recipe: Recipe) -> bool:
        """Whether no round follows."""
        return is_over(recipe.run, self.round, self.best, self.time)

    def chosen(self, recipe: Recipe) -> int:
        """The round that stands for the run: with validation the best, else the last."""
        return self.best[1] if recipe.run.validation else self.round


def read_standing(home: Path) -> Standing | None:
    """Where the run in a directory stands; None where it has neither a checkpoint nor a sealed result."""
    for round in sorted(list_rounds(home / "checkpoints"), reverse=True):
        try:
            return _parse(read_json(home / "checkpoints" / f"round-{round:06d}.json"))
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError):
            continue  # damaged, or removed at this moment by the run itself; the one before says less, but not else
    try:
        result = read_json(home / "result.json")
        return _parse({**result["seal"], "seal": result["seal"]})
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError):
        return None


def _parse(record: Mapping[str, Any]) -> Standing:
    return Standing(
        int(record["round"]),
        (float(record["best"][0]), int(record["best"][1])),
        float(record["time"]),
        Seal.parse(record),
        int(record["metrics_length"]),
        str(record.get("metrics_sha256", "")),
    )


def describe_seal(standing: Standing) -> dict[str, Any]:
    """What a result says of its run: `read_standing` reads it where checkpoints have gone."""
    record = standing.seal.record()
    del record["settings"]
    return {
        "configuration": standing.seal.configuration,
        **record,
        "round": standing.round,
        "best": list(standing.best),
        "time": standing.time,
        "metrics_length": standing.metrics_length,
        "metrics_sha256": standing.metrics_sha256,
    }


def check_begun(recipe: Recipe, home: Path, data: Mapping[str, str] | None = None) -> None:
    """Refuses to go on in a directory with another recipe of one method and seed, or other data, than it began with.

    Metrics are not looked at: whoever goes on finds the checkpoint that they suffice for.
    """
    standing = read_standing(home)
    if standing is not None:
        standing.seal.check(recipe, home, data)


def check_metrics(recipe: Recipe, home: Path, standing: Standing) -> None:
    """Refuses metrics that were cut short, altered or, after the last round, added to."""
    fault = find_fault(
        home / "metrics.jsonl", standing.metrics_length, standing.metrics_sha256, whole=standing.over(recipe)
    )
    if fault:
        raise SealError(
            f"{fault}. Put the file back from a copy, or make the last rounds again, as far as checkpoints allow: "
            f"`fedaction resume {home}`"
        )


def check_run(home: Path) -> Standing | None:
    """Refuses to read a run that does not fit together: its recipe, its metrics, its result and its seal.

    It is for those who read (a report, a table, an analysis, a prediction); for those who go on, see `check_begun`.

    Args:
        home: the directory of one run, with its recipe.toml.

    Returns:
        Where it stands; None where there is nothing to check. An older run, which sealed nothing, is not checked.
    """
    standing = read_standing(home)
    if standing is None or not (home / "recipe.toml").is_file():
        return None
    if not standing.sealed:
        return standing
    recipe = read_part(home)
    standing.seal.check(recipe, home)
    check_metrics(recipe, home, standing)
    result = home / RESULT_FILE
    if result.exists():
        told = _read_own(result).get("seal")
        if told != describe_seal(standing) or not standing.over(recipe):
            raise SealError(
                f"{result} is of an earlier end of this run, or of another one; this one is now at round "
                f"{standing.round} of {recipe.run.rounds}: `fedaction resume {home}` goes on, and makes it again"
            )
    for name in (EVIDENCE_FILE, CONTROLS_FILE, ENVIRONMENT_FILE):
        _check_own(recipe, home / name, standing, result.exists() and name == EVIDENCE_FILE)
    return standing


def find_word(recipe: Recipe, home: Path, data: Mapping[str, str]) -> str:
    """The word (`Seal.word`) of the run in a directory; where none has begun, of the one that will."""
    standing = read_standing(home)
    return standing.seal.word if standing is not None and standing.sealed else Seal.of(recipe, data).word


def _check_own(recipe: Recipe, path: Path, standing: Standing, needed: bool) -> None:
    """Refuses a file that follows from a run, and is not as it was written, of another run, or of another round."""
    again = f"`fedaction resume {path.parent}` makes it again"
    if not path.exists():
        if needed:
            raise SealError(f"{path} is not there: {again}")
        return
    record = _read_own(path)
    if record.get(OF, standing.seal.word) != standing.seal.word:  # versions before did not say
        raise SealError(f"{path} is of another run: {again}")
    chosen = standing.chosen(recipe)
    if record.get("round") not in (None, chosen):
        raise SealError(f"{path} is of round {record['round']}, but the run's is {chosen}: {again}")


def _read_own(path: Path) -> dict[str, Any]:
    """A sealed JSON file of a run; one that is not as it was written is refused."""
    try:
        return read_sealed_json(path)
    except ValueError as error:
        raise SealError(f"{error}: `fedaction resume {path.parent}` makes it again") from None


def read_part(home: Path) -> Recipe:
    """The recipe of one run in a directory of its own: the method and the first seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recipe = load_recipe(home / "recipe.toml")
    return recipe.only(recipe.run.method, recipe.run.seeds[0])


def list_homes(folder: Path) -> list[Path]:
    """The directories of a study that hold a run, its own first; by what is there."""
    below = sorted({*folder.glob("baselines/*"), *folder.glob("seeds/*"), *folder.glob("seeds/*/baselines/*")})
    return [home for home in (folder, *below) if home.is_dir()]


def check_study(folder: Path, say: Callable[[str], object]) -> None:
    """See `check_run`: all runs of a study; `say` is told in one line of those that have no seal."""
    standings = [standing for home in list_homes(folder) if (standing := check_run(home)) is not None]
    if any(not standing.sealed for standing in standings):
        say(UNSEALED.format(folder))
