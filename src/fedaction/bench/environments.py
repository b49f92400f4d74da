"""Environments for other frameworks: each a folder with a Python of its own, made once and used again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions, version
from pathlib import Path

from fedaction.bench.timing import Tick
from fedaction.federation.files import lock_path, read_json, write_json

_MADE = "made.json"
_LIMIT = 1800.0
"""Seconds that an installation may take."""


class NotToBeHad(ValueError):
    """A framework that cannot be used here, and why."""


def make_environment(folder: Path, needs: Sequence[str], tick: Tick, *, install: bool = True) -> Path:
    """The Python of an environment that has some requirements, and the torch that runs here.

    Args:
        folder: of the environment.
        needs: requirements, as pip takes them.
        tick: told of what takes long.
        install: whether what is not there is installed; otherwise it is not to be had.

    Raises:
        NotToBeHad: it is not there, or could not be installed: what pip said.
    """
    recipe = {"needs": list(needs), "torch": version("torch"), "python": platform.python_version()}
    python = folder / "bin" / "python"
    if _read_made(folder) == recipe and python.exists():
        return python
    if not install:
        raise NotToBeHad(f"it is not installed in {folder}; leave out --no-install")
    with lock_path(folder):
        if _read_made(folder) == recipe and python.exists():  # by somebody else, meanwhile
            return python
        (folder / _MADE).unlink(missing_ok=True)
        tick(f"installing {', '.join(needs)} into {folder}")
        _run_pip(sys.executable, "-m", "venv", "--clear", str(folder))
        constraints = folder / "constraints.txt"
        constraints.write_text(f"torch=={recipe['torch']}\n", encoding="utf-8")
        pip = (str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input")
        _run_pip(*pip, "-c", str(constraints), "torch", "numpy", *needs)
        write_json(folder / _MADE, recipe)
    return python


def find_version(python: Path, name: str) -> str:
    """The version of a package in an environment."""
    places = [str(place) for place in (python.parents[1] / "lib").glob("python*/site-packages")]
    return next((found.version for found in distributions(name=name, path=places)), "")


def _read_made(folder: Path) -> object:
    try:
        return read_json(folder / _MADE)
    except (OSError, ValueError):
        return None


def _run_pip(*command: str) -> None:
    """A step of an installation; what it says is kept for the case that it fails."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            command, env=clean, capture_output=True, text=True, errors="replace", timeout=_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotToBeHad(f"its installation was not done after {_LIMIT:g} s") from None
    except OSError as error:
        raise NotToBeHad(f"its installation could not begin: {error}") from None
    if done.returncode:
        said = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines()]
        lines = [line for line in said if line and not line.startswith(("WARNING", "[notice]"))]
        raise NotToBeHad(f"its installation failed: {'; '.join(lines[-3:])}")
