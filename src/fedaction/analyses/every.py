"""All analyses, and how they are carried out and written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedaction.analyses.cka import cka
from fedaction.analyses.clock import clock
from fedaction.analyses.confusion import confusion
from fedaction.analyses.curves import curves
from fedaction.analyses.divergence import divergence
from fedaction.analyses.draw import drawing, svg
from fedaction.analyses.epsilon import epsilon
from fedaction.analyses.finding import Finding, plain
from fedaction.analyses.landscape import landscape
from fedaction.analyses.modalities import discriminator, subspaces
from fedaction.analyses.study import NotApplicable, Study
from fedaction.analyses.target import to_target
from fedaction.analyses.topology import coefficients, topology
from fedaction.federation.files import lock_folder, write_atomically, write_sealed_json
from fedaction.federation.settings import nearest
from fedaction.report import write_report
from fedaction.runs.seal import OF

ANALYSES: dict[str, Callable[[Study], Finding]] = {
    "curves": curves,
    "clock": clock,
    "target": to_target,
    "confusion": confusion,
    "topology": topology,
    "coefficients": coefficients,
    "cka": cka,
    "landscape": landscape,
    "divergence": divergence,
    "epsilon": epsilon,
    "subspaces": subspaces,
    "discriminator": discriminator,
}
"""Analyses by name, in the order that the report shows them."""


@dataclass
class Analysed:
    """What `analyse` did."""

    report: Path  # the report, with the pictures in it
    # by analysis, what its JSON file holds
    records: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    pictures: dict[str, Path] = field(default_factory=dict[str, Path])  # by analysis, its SVG file
    left_out: dict[str, str] = field(default_factory=dict[str, str])  # by analysis, why it does not apply to this run


def analyse(
    folder: Path, names: Sequence[str] = (), say: Callable[[str], None] = lambda _: None, target: float | None = None
) -> Analysed:
    """Analyses a run from its last checkpoint and writes its report again.

    Args:
        folder: the run directory.
        names: which analyses; none: all that apply.
        say: called with what is being done.
        target: for `clock` and `target`, the mean test accuracy (0..1) that the way to is measured; None: 0.9 of the
            best method's, and for `target` what a centralised baseline has, where there is one.

    Raises:
        ValueError: a name that is none, a target that is no share, or a folder that is no run. The message says what
            there is.
    """
    for name in names:
        if name not in ANALYSES:
            near = nearest(name, ANALYSES)
            raise ValueError(f"there is no analysis {name!r}{near}; there are {', '.join(ANALYSES)}")
    if not (folder / "recipe.toml").is_file():
        raise ValueError(f"{folder} is not a run directory: it has no recipe.toml")
    with lock_folder(folder):
        study = Study(folder, target)
        done = Analysed(folder / "report.html")
        for place, (name, work) in enumerate(ANALYSES.items()):
            if names and name not in names:
                continue
            say(name)
            study.say = lambda client, name=name: say(f"{name}: {client}")
            try:
                with drawing():
                    finding = work(study)
                    picture = svg(finding.figure, study.words)
            except NotApplicable as reason:
                done.left_out[name] = str(reason)
                continue
            path = folder / "analyses" / f"{name}.svg"
            write_atomically(path, picture)
            record: dict[str, Any] = {
                "name": name,
                "place": place,
                "round": study.round,
                "title": finding.title,
                "caption": f"{finding.caption} {study.words}",
                "notes": finding.notes,
                "table": {"columns": tuple(finding.columns), "rows": tuple(finding.rows)},
                "values": plain(finding.values),
            }
            write_sealed_json(path.with_suffix(".json"), {**record, OF: study.word})
            done.records[name], done.pictures[name] = record, path
        write_report(folder)
    return done
