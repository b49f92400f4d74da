"""Which files hold recordings, and what is known of each: folders per class, tables of labels, label columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fedaction.data.imports import subject_of
from fedaction.data.signals.tables import find_form, read_blocks

TEXT = (".csv", ".txt", ".tsv", ".dat")
ARRAYS = (".npy",)
_FILE = ("file", "filename", "name", "recording", "path")
_LABEL = ("label", "activity", "class", "action")
_SUBJECT = ("subject", "person", "user", "participant", "subject_id", "person_id", "user_id", "participant_id")
_TIME = re.compile(r"(time|timestamp|datetime|seconds|epoch)([ _.(\[-].*)?|t|ts", re.IGNORECASE)


@dataclass(frozen=True)
class SignalFile:
    """A file of one or more recordings."""

    path: Path
    where: str  # its path below the source
    label: str | None = None  # of all that it holds; None: a column says it
    subject: str | None = None  # of all that it holds; None: a column says it, or nobody knows


@dataclass(frozen=True)
class SignalFiles:
    """The files of a source, and what was left aside."""

    files: list[SignalFile]
    missing: tuple[tuple[str, str], ...] = ()  # files that a table names and that cannot be used, and why
    notes: tuple[str, ...] = ()


def list_files(source: Path, *, labels: Path | None, label: str, subject: str | None) -> SignalFiles:
    """The recordings' files.

    Args:
        source: a file, or a folder.
        labels: a table with the columns file, label and perhaps subject.
        label: the column that has the label; "": folders are named after classes, or the usual names are looked for.
        subject: regular expression for the person, searched in the file's name, else in its path below the source.
    """
    if source.is_file():
        below, every = source.parent, [source]
    else:
        below = source
        every = sorted(item for item in source.rglob("*") if item.is_file() and not _hidden(item, source))
    known = [item for item in every if item.suffix.lower() in TEXT + ARRAYS]
    if labels is not None:
        known = [item for item in known if item.resolve() != labels.resolve()]
    if not known:
        raise ValueError(f"{source} has no {', '.join(TEXT + ARRAYS)} files")
    others = len(every) - len(known)
    notes = [f"{others} files are none of {', '.join(TEXT + ARRAYS)} and were not read"] if others else []
    if labels is not None:
        return _from_table(known, below, labels, subject, notes)
    if label or _has_label_column(known):
        taken = [item for item in known if item.suffix.lower() in TEXT]
        return SignalFiles([_file(item, below, None, subject) for item in taken], (), tuple(notes))
    inside = [item for item in known if item.parent != below]
    if source.is_file() or not inside:
        raise ValueError(
            f"{source} does not say what was done in it: name the column that has the label (--label), give a table "
            "of files and labels (--labels), or put each class into a folder of its own"
        )
    if len(known) > len(inside):
        notes.append(f"{len(known) - len(inside)} files lie in no class folder and were not read")
    return SignalFiles([_file(item, below, item.parent.name, subject) for item in inside], (), tuple(notes))


def find_names(names: tuple[str, ...], wanted: str) -> str:
    """The first of a table's columns with a usual name for "label", "subject", "file" or "time"; "" if none has."""
    usual = {"label": _LABEL, "subject": _SUBJECT, "file": _FILE}
    lower = [name.lower() for name in names]
    if wanted == "time":
        return next((name for name in names if _TIME.fullmatch(name)), "")
    return next((names[lower.index(name)] for name in usual[wanted] if name in lower), "")


def _has_label_column(files: list[Path]) -> bool:
    """Whether the first text file that can be read has a column for the label."""
    for path in files:
        if path.suffix.lower() in TEXT:
            try:
                form = find_form(path)
            except ValueError:
                continue
            return form.header and bool(find_names(form.names, "label"))
    return False


def _hidden(path: Path, below: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(below).parts)


def _file(path: Path, below: Path, label: str | None, pattern: str | None) -> SignalFile:
    where = path.relative_to(below).as_posix()
    if pattern is None:
        return SignalFile(path, where, label)
    try:
        return SignalFile(path, where, label, subject_of(path.name, pattern))
    except ValueError:
        return SignalFile(path, where, label, subject_of(where, pattern))


def _from_table(known: list[Path], below: Path, table: Path, pattern: str | None, notes: list[str]) -> SignalFiles:
    form = find_form(table)
    if not form.header:
        raise ValueError(f"{table} needs a first line that names its columns: file, label and perhaps subject")
    places = {what: find_names(form.names, what) for what in ("file", "label", "subject")}
    if not places["file"] or not places["label"]:
        raise ValueError(f"{table} needs the columns file and label; it has {form.listing}")
    columns = {what: form.names.index(name) for what, name in places.items() if name}
    by_name: dict[str, list[Path]] = {}
    for path in known:
        for name in {path.relative_to(below).as_posix(), path.name, path.stem}:
            by_name.setdefault(name, []).append(path)
    files: list[SignalFile] = []
    missing: list[tuple[str, str]] = []
    for rows, _ in read_blocks(table, form):
        for row in rows:
            name, label = row[columns["file"]].strip(), row[columns["label"]].strip()
            fit = by_name.get(name.removeprefix("./"), [])
            if len(fit) != 1 or not label:
                many = f"{len(fit)} files are called so: write the path below the folder"
                why = "has no label in the table" if not label else many if fit else "is in the table, but not there"
                missing.append((name, why))
                continue
            file = _file(fit[0], below, label, None if "subject" in columns else pattern)
            who = row[columns["subject"]].strip() if "subject" in columns else file.subject
            files.append(SignalFile(file.path, file.where, label, who))
    unnamed = len(known) - len({file.path for file in files})
    if unnamed:
        notes = [*notes, f"{unnamed} files are not in {table.name} and were not read"]
    return SignalFiles(files, tuple(missing), tuple(notes))
