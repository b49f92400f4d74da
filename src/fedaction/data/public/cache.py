"""Public datasets as skeleton stores: read once, kept in a cache, made again when anything has changed.

A cache folder holds, for each dataset and each folder it was read from, the store and a seal. The seal says what the
store was made of (reader and its version, layout, store format; name, size and time of every source file) and what it
holds (a checksum of each file). A store whose seal does not fit is never used: it is made again, and a warning says
why.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from fedaction.data.dataset import Issue
from fedaction.data.files import cache_root, checksum, digest_files, fingerprint
from fedaction.data.folders import new_folder
from fedaction.data.public.base import Listing, Reader
from fedaction.data.public.pool import read_sources
from fedaction.data.public.readers import reader as reader_called
from fedaction.data.store import FRAMES, HEADER, VERSION, StoreWriter, accept
from fedaction.federation.files import lock_path

_SEAL, _SEAL_VERSION = "seal.json", 1


def prepare_public(
    reader: str | Reader,
    root: str | Path,
    *,
    cache: str | Path | None = None,
    workers: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> Path:
    """A public dataset, by its reader or the reader's name, as a store: the one in the cache, or a new one.

    Samples that cannot be used are named in the store's issues; it is an error only if none can. Memory holds a
    few files at a time. Of two processes that prepare the same dataset, the second waits and uses the first one's
    store. `workers` are processes that read files; 0: one for each core. `progress` is called with the files read
    and the files there are, while a store is made. Gives the store's folder, called after the dataset.
    """
    reader = reader_called(reader) if isinstance(reader, str) else reader
    root = Path(root).resolve()
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a folder; {reader.name} is read from one: {reader.about}")
    listing = reader.find(root)
    _check(reader, listing)
    files = [source.path for source in listing.sources]
    made_of = fingerprint(root, [*files, *listing.inputs])
    made_by = [_SEAL_VERSION, VERSION, reader.name, reader.version, reader.layout.to_dict()]
    place = cache_root(cache) / f"{reader.name}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}"
    with lock_path(place):
        stale = _stale(place, reader.name, made_by, made_of)
        if stale is None:
            return place / reader.name
        if place.exists():
            warnings.warn(f"the cache of {reader.name} in {place} is made again: {stale}", stacklevel=2)
        with new_folder(place) as new:
            _write(reader, root, listing, new / reader.name, workers, progress)
            seal = {"made_by": made_by, "fingerprint": made_of, "checksums": _checksums(new / reader.name)}
            (new / _SEAL).write_text(json.dumps(seal), encoding="utf-8")
    return place / reader.name


def digest_public(reader: Reader, root: str | Path) -> str:
    """What a public dataset is: the reader's version, and a digest of the files that it reads."""
    root = Path(root).resolve()
    listing = reader.find(root)
    return f"{reader.version}:{digest_files(root, [*(source.path for source in listing.sources), *listing.inputs])}"


def _check(reader: Reader, listing: Listing) -> None:
    """Refuses a listing that contradicts itself: that is a fault of the reader, not of the data."""
    names: set[str] = set()
    classes, protocols = set(listing.classes), set(reader.protocols)
    for sample in (sample for source in listing.sources for sample in source.samples):
        if sample.name in names or sample.label not in classes or not protocols.issuperset(sample.splits):
            raise ValueError(
                f"the reader of {reader.name} lists a sample twice or with unknown label or split: {sample}"
            )
        names.add(sample.name)


def _stale(place: Path, name: str, made_by: list[Any], made_of: str) -> str | None:
    """Why what is in the cache cannot be used; None: it can."""
    try:
        seal = json.loads((place / _SEAL).read_text(encoding="utf-8"))
        sealed = [seal[key] for key in ("made_by", "fingerprint", "checksums")]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "its seal is missing or damaged"
    if sealed[0] != made_by:
        return "it was made by another version"
    if sealed[1] != made_of:
        return "files of the dataset have changed"
    try:
        whole = sealed[2] == _checksums(place / name)
    except OSError:
        whole = False
    return None if whole else "it is damaged"


def _checksums(store: Path) -> dict[str, int]:
    """CRC-32 of each file of a store."""
    return {name: checksum(store / name) for name in (HEADER, FRAMES)}


def _write(
    reader: Reader,
    root: Path,
    listing: Listing,
    out: Path,
    workers: int,
    progress: Callable[[int, int], object] | None,
) -> None:
    """Reads all files into a new store."""
    issues = list(listing.issues)
    label_of = {name: label for label, name in enumerate(listing.classes)}
    with (
        StoreWriter(out, layout=reader.layout, classes=listing.classes, rate_hz=reader.rate_hz) as writer,
        closing(read_sources(reader, listing.sources, workers)) as contents,
    ):
        for done, (source, content) in enumerate(zip(listing.sources, contents, strict=True), 1):
            if content.fault:
                where, lost = os.path.relpath(source.path, root), max(1, len(source.samples))
                issues.append(Issue(kind="unreadable", where=where, count=lost, detail=content.fault))
            for sample, array in zip(source.samples, content.samples, strict=False):  # a faulty file has no arrays
                if sample.span is not None and sample.span[1] > content.frames:
                    past = f"frames {sample.span[0] + 1} to {sample.span[1]} of a file of {content.frames}"
                    issues.append(Issue(kind="label", where=sample.name, detail=past))
                    if not array.shape[1]:
                        continue
                sequence, faults = accept(array, reader.layout, sample.name)
                issues += faults
                if sequence is not None:
                    label, splits = label_of[sample.label], sample.splits
                    writer.add(sequence, label=label, name=sample.name, subject=sample.subject, splits=splits)
            if progress is not None:
                progress(done, len(listing.sources))
        if not len(writer):
            first = "".join(f"\n  {issue.where}: {issue.kind}, {issue.detail}" for issue in issues[:5])
            raise ValueError(f"no sample of {reader.name} in {root} can be used; {len(issues)} issues:{first}")
        writer.finish(issues)
