"""Which files hold signals, and which columns of a table are what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fedaction.data.labelled import LabelledFiles, find_column, list_labelled
from fedaction.data.signals.tables import find_form

TEXT = (".csv", ".txt", ".tsv", ".dat")
ARRAYS = (".npy",)
_LOOK = 20  # files that are looked into for a label column
_TIME = re.compile(r"(time|timestamp|datetime|seconds|epoch)([ _.(\[-].*)?|t|ts", re.IGNORECASE)


def list_signals(
    source: Path, *, labels: Path | None, label_pattern: str | None, label: str, subject: str | None
) -> LabelledFiles:
    """The files of a source; `label` names a column, else one with a usual name is looked for in the first files.

    For the others see `list_labelled`.
    """
    said = labels is not None or label_pattern is not None
    inside = not said and (bool(label) or _has_label_column(source))
    if source.is_file() and not (said or inside):
        raise ValueError(
            f"{source} does not say what was done in it: name the column that has the label (--label), or give a "
            "table of files and labels (--labels)"
        )
    suffixes = TEXT if inside else TEXT + ARRAYS
    return list_labelled(source, suffixes, labels=labels, label_pattern=label_pattern, subject=subject, inside=inside)


def find_usual(names: Sequence[str], wanted: str) -> str:
    """The first column with a usual name for "label", "subject" or "time"; "" if none has one."""
    if wanted == "time":
        return next((name for name in names if _TIME.fullmatch(name)), "")
    return find_column(names, wanted)


def _has_label_column(source: Path) -> bool:
    """Whether one of the first text files has a column for the label beside numbers; a read-me may come before it."""
    files = [source] if source.is_file() else sorted(source.rglob("*"))
    for path in [file for file in files if file.is_file() and file.suffix.lower() in TEXT][:_LOOK]:
        try:
            form = find_form(path)
        except (ValueError, OSError):
            continue
        if form.header and any(form.numeric) and find_column(form.names, "label"):
            return True
    return False
