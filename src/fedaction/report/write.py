"""Studies with a report at their end."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fedaction.federation.files import write_atomically
from fedaction.federation.profile import NOTHING, Profile
from fedaction.federation.progress import Progress
from fedaction.report.collect import collect
from fedaction.report.page import render
from fedaction.report.profile import write_profile
from fedaction.runs.recipe import Recipe
from fedaction.runs.standing import check_study
from fedaction.runs.study import RunResult, resume_study, run_study

_BEGIN = b"<!doctype html>"


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Writes the report of a run, with its `baselines/` and `seeds/`, to `out` or `run_dir/report.html`; its path.

    A run that does not fit together (`runs.seal`) is refused. The file is replaced in one step: whoever reloads the
    page during the run never reads half of one.
    """
    notes: list[str] = []
    check_study(run_dir, notes.append)
    target = out if out is not None else run_dir / "report.html"
    write_atomically(target, render(collect(run_dir, notes)).encode())
    return target


def is_report(path: Path) -> bool:
    """Whether a file is a page, as reports are: what is none is not to be written over."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_BEGIN)).lower() == _BEGIN


def run_and_report(
    recipe: Recipe, folder: Path, progress: Progress | None = None, profile: Profile = NOTHING
) -> RunResult:
    """Runs a study, see `runs.study.run_study`, and writes report.html into its directory, last of all."""
    finish = partial(_write_report, profile=profile)
    return run_study(recipe, folder, progress, finish=finish, profile=profile)


def resume_and_report(
    folder: Path, progress: Progress | None = None, rounds: int = 0, profile: Profile = NOTHING
) -> RunResult:
    """Resumes a study where it stopped, see `runs.study.resume_study`, and writes its report."""
    finish = partial(_write_report, profile=profile)
    return resume_study(folder, progress, rounds, finish=finish, profile=profile)


def _write_report(folder: Path, profile: Profile) -> None:
    """The report, with what took the run's time so far, if that was asked for; the file says what the report took."""
    write_profile(folder, profile)
    with profile.section("report"):
        write_report(folder)
    write_profile(folder, profile)
