"""A study from a recipe to its report page."""

from __future__ import annotations

from pathlib import Path

from fedaction.federation.progress import Progress
from fedaction.report.page import write_report
from fedaction.runs.recipe import Recipe
from fedaction.runs.study import RunResult, resume_study, run_study


def run_and_report(recipe: Recipe, folder: Path, progress: Progress | None = None) -> RunResult:
    """Runs a study, see `runs.study.run_study`, and writes report.html into its directory, last of all."""
    result = run_study(recipe, folder, progress)
    write_report(folder)
    return result


def resume_and_report(folder: Path, progress: Progress | None = None) -> RunResult:
    """Resumes a study where it stopped, see `runs.study.resume_study`, and writes its report."""
    result = resume_study(folder, progress)
    write_report(folder)
    return result
