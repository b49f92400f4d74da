"""Where a run's time went (`--profile`): the file in its directory, and what a report shows of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedaction.data.files import first_fault
from fedaction.federation.files import write_json
from fedaction.federation.outside import read_file
from fedaction.federation.profile import NOTHING, Profile, ProfileRecord, say_steps

FILE = "profile.json"
_RECORD = TypeAdapter(ProfileRecord)


def write_profile(folder: Path, profile: Profile) -> None:
    """Writes what a profile has so far; of a command without one, nothing."""
    if profile is not NOTHING:
        write_json(folder / FILE, asdict(profile.record()))


def read_profile(folder: Path) -> dict[str, Any] | None:
    """A run's profile as texts for a table; None where there is none."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        record = _RECORD.validate_json(read_file(path))
    except ValidationError as error:
        raise ValueError(
            f"{path}: {first_fault(error)}; remove it: nothing makes it again, and a report does without it"
        ) from None
    rows = [
        [own.name, f"{own.seconds:.3g}", f"{100 * own.share:.1f}", f"{own.per_round:.3g}"] for own in record.sections
    ]
    return {"wall": f"{record.wall:.3g}", "rows": rows, "steps": say_steps(record)}
