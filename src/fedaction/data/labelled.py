"""Files with a recording each, and where their labels and people are said: folders, file names, or a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedaction.data.signals.tables import find_form, read_blocks

_USUAL = {
    "file": ("file", "filename", "name", "recording", "path"),
    "label": ("label", "activity", "class", "action"),
    "subject": ("subject", "person", "user", "participant", *(f"{who}_id" for who in ("subject", "person", "user"))),
}


@dataclass(frozen=True)
class LabelledFile:
    """A file of one or more recordings."""

    path: Path
    where: str  # its path below the source
    label: str | None = None  # of all that it holds; None: the file itself says it
    subject: str | None = None  # of all that it holds; None: the file itself says it, or nobody knows


@dataclass(frozen=True)
class LabelledFiles:
    """The files of a source, and what was left aside."""

    files: list[LabelledFile]
    missing: tuple[tuple[str, str], ...] = ()  # files that a table names and that cannot be used, and why
    notes: tuple[str, ...] = ()


def list_labelled(
    source: Path,
    suffixes: Sequence[str],
    *,
    labels: Path | None = None,
    label_pattern: str | None = None,
    subject: str | None = None,
    inside: bool = False,
) -> LabelledFiles:
    """The files below a folder, or the one file, with their labels.

    Args:
        source: a folder, looked through to any depth, or a file.
        suffixes: of the files that are read; others are counted.
        labels: a table with the columns file and label, and perhaps subject.
        label_pattern: regular expression for the label, searched in a file's name, else in its path below the source.
        subject: the same for the person.
        inside: whether the files themselves say their labels. Else, without a table and a pattern, the folder that a
            file lies in is its class.
    """
    if source.is_file():
        below, every = source.parent, [source]
    else:
        below = source
        every = sorted(item for item in source.rglob("*") if item.is_file() and not _is_hidden(item, source))
    known = [item for item in every if item.suffix.lower() in suffixes]
    if labels is not None:
        known = [item for item in known if item.resolve() != labels.resolve()]
    others = len(every) - len(known) - (labels is not None and labels.resolve() in {item.resolve() for item in every})
    notes = [f"{others} files are none of {', '.join(suffixes)} and were not read"] if others else []
    if not known:
        raise ValueError(f"{source} has no {', '.join(suffixes)} files")
    if labels is not None:
        return _read_labels(known, below, labels, subject, notes)
    if label_pattern is not None:
        fit = {item: label for item in known if (label := _find_label(item, below, label_pattern)) is not None}
        if not fit:
            find_in_name(known[0], below, label_pattern, "label")  # says so
        if len(fit) < len(known):
            notes.append(f"{len(known) - len(fit)} files have names without {label_pattern!r} and were not read")
        return LabelledFiles([_file(item, below, label, subject) for item, label in fit.items()], (), tuple(notes))
    if inside:
        return LabelledFiles([_file(item, below, None, subject) for item in known], (), tuple(notes))
    kept = [item for item in known if item.parent != below]
    if source.is_file() or not kept:
        raise ValueError(
            f"{source} does not say what was done in it: put each class into a folder of its own, find the label in "
            "file names (--label-pattern), or give a table of files and labels (--labels)"
        )
    if len(known) > len(kept):
        notes.append(f"{len(known) - len(kept)} files lie in no class folder and were not read")
    return LabelledFiles([_file(item, below, item.parent.name, subject) for item in kept], (), tuple(notes))


def find_column(names: Sequence[str], wanted: str) -> str:
    """The first of a table's columns with a usual name for "label", "subject" or "file"; "" if none has one."""
    lower = [name.lower() for name in names]
    return next((names[lower.index(name)] for name in _USUAL[wanted] if name in lower), "")


def subject_of(name: str, pattern: str | None) -> str | None:
    """Who a file name says performs: what the pattern's first group, or the whole pattern, finds in it."""
    return None if pattern is None else _search(name, pattern, "subject")


def find_in_name(path: Path, below: Path, pattern: str, what: str) -> str:
    """What a pattern finds in a file's name, else in its path below a folder."""
    try:
        return _search(path.name, pattern, what)
    except ValueError:
        return _search(path.relative_to(below).as_posix(), pattern, what)


def _search(name: str, pattern: str, what: str) -> str:
    try:
        match = re.search(pattern, name)
    except re.error as error:
        raise ValueError(f"the {what} pattern {pattern!r} is not a regular expression: {error}") from None
    if match is None:
        raise ValueError(f"the {what} pattern {pattern!r} does not occur in the file name {name!r}")
    return match.group(1) if match.groups() else match.group(0)


def _find_label(path: Path, below: Path, pattern: str) -> str | None:
    """See `find_in_name`; None where the pattern does not occur, as in a list or a read-me among recordings."""
    try:
        re.compile(pattern)
        return find_in_name(path, below, pattern, "label")
    except ValueError:
        return None
    except re.error as error:
        raise ValueError(f"the label pattern {pattern!r} is not a regular expression: {error}") from None


def _is_hidden(path: Path, below: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(below).parts)


def _file(path: Path, below: Path, label: str | None, pattern: str | None) -> LabelledFile:
    who = None if pattern is None else find_in_name(path, below, pattern, "subject")
    return LabelledFile(path, path.relative_to(below).as_posix(), label, who)


def _read_labels(
    known: Sequence[Path], below: Path, table: Path, pattern: str | None, notes: list[str]
) -> LabelledFiles:
    form = find_form(table)
    places = {what: find_column(form.names, what) if form.header else "" for what in _USUAL}
    if not places["file"] or not places["label"]:
        raise ValueError(f"{table} needs the columns file and label, named in its first line; it has {form.listing}")
    columns = {what: form.names.index(name) for what, name in places.items() if name}
    by_name: dict[str, list[Path]] = {}
    for path in known:
        for name in {path.relative_to(below).as_posix(), path.name, path.stem}:
            by_name.setdefault(name, []).append(path)
    files: list[LabelledFile] = []
    missing: list[tuple[str, str]] = []
    for rows, _ in read_blocks(table, form):
        for row in rows:
            name, label = row[columns["file"]].strip(), row[columns["label"]].strip()
            fit = by_name.get(name.removeprefix("./"), [])
            who = row[columns["subject"]].strip() if "subject" in columns else None
            if len(fit) != 1:
                many = f"{len(fit)} files are called so: write the path below the folder"
                missing.append((name, many if fit else "is in the table, but not there"))
            elif not label or who == "":
                missing.append((name, f"has no {'subject' if label else 'label'} in the table"))
            else:
                file = _file(fit[0], below, label, None if "subject" in columns else pattern)
                files.append(LabelledFile(file.path, file.where, label, file.subject if who is None else who))
    unnamed = len(known) - len({file.path for file in files})
    if unnamed:
        notes = [*notes, f"{unnamed} files are not in {table.name}, or without a label there, and were not read"]
    return LabelledFiles(files, tuple(missing), tuple(notes))
