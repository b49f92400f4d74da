"""What becomes of the LOCAL tensors of earlier runs: how long a site keeps them, and a run that begins with them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaction.data.client import ClientInfo
from fedaction.engines.flower.keep import LAST, LostError, SiteStore
from fedaction.federation.tree import Leaf, Tree

NEWEST = "newest"
"""In the place of a run's folder: the last run that came to its end with tensors that suit."""
_RUN = re.compile(r"^[0-9a-f]{32}$")


@dataclass(frozen=True)
class Keeping:
    """What becomes of tensors of earlier runs, by the word of the site's owner."""

    runs: int = 10
    """Of how many runs besides the present one they are kept."""
    start: str = ""
    """The run whose tensors a new one begins with: a folder's name, or `NEWEST`; "": none."""


def describe_kept(recipe: Mapping[str, Any], info: ClientInfo, leaves: Mapping[str, Leaf]) -> str:
    """What LOCAL tensors belong to, as a digest: tensors of one run can begin another where it is the same."""
    layout = info.layout.to_dict() if info.layout is not None else None
    shapes = sorted((name, leaf.shape, str(leaf.dtype)) for name, leaf in leaves.items())
    said = json.dumps([recipe.get("method"), recipe.get("backbone"), info.group, info.classes, layout, shapes])
    return hashlib.sha256(said.encode()).hexdigest()


def list_runs(folder: Path) -> list[str]:
    """The runs of which a site keeps tensors, those first that changed last."""
    changed: dict[str, int] = {}
    for path in folder.iterdir() if folder.exists() else ():
        if _RUN.match(path.name) and path.is_dir():
            times = [file.stat().st_mtime_ns for file in path.glob("*.kept")]
            if times:
                changed[path.name] = max(times)
    return sorted(changed, key=lambda run: changed[run], reverse=True)


def prune_runs(folder: Path, most: int, spared: Collection[str]) -> list[str]:
    """Removes tensors of all runs but those that are spared and the newest `most` others; the runs that had some.

    Networks stay: they are what the site has of a run.
    """
    old = [run for run in list_runs(folder) if run not in spared][most:]
    for run in old:
        for path in [*(folder / run).glob("*.kept"), *(folder / run).glob("start-*.safetensors")]:
            path.unlink(missing_ok=True)
        with suppress(OSError):
            (folder / run).rmdir()  # where there is no network in it
    return old


def find_last(folder: Path, which: str, present: str, client: str, about: str) -> tuple[str, Tree]:
    """An earlier run (a folder's name, or `NEWEST`) and what counted at its end; a LostError where none suits."""
    runs = [which] if which != NEWEST else [run for run in list_runs(folder) if (folder / run / LAST).exists()]
    reason = f"no run below {folder.name} has come to its end"
    for run in runs:
        if run == present:
            continue
        try:
            return run, SiteStore(folder / run, client).read_last(about)
        except LostError as error:
            reason = str(error)
    raise LostError(reason)


def take_over(
    keeping: Keeping, folder: Path, run: str, client: str, about: str, log: Callable[[str], object]
) -> Tree:
    """The LOCAL tensors that a run begins with; nothing where those are the method's first ones.

    They are written down before the run's first job, so that a site that is started anew means the same. Tensors of
    runs that are too old are removed, but never of the one that the owner has named. `about`: see `describe_kept`; ""
    where the run has no LOCAL tensors.
    """
    store = SiteStore(folder / run, client)
    if keeping.start and about and not store.jobs() and not store.read_first():
        try:
            earlier, tree = find_last(folder, keeping.start, run, client, about)
            store.write_first(tree)
            log(f"begins with this site's own tensors of run {earlier}")
        except LostError as error:
            log(f"begins with first values, not with those of an earlier run: {error}")
    if pruned := prune_runs(folder, keeping.runs, (run, keeping.start)):
        log(f"removed this site's own tensors of {len(pruned)} earlier runs; their networks stay")
    return store.read_first()
