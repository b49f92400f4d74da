"""What a run ran on."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from fedaction import __version__
from fedaction.federation.files import read_sealed_json
from fedaction.runs.seal import OF


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, machine, device and, where the code lies in a git checkout, its revision."""
    packages: dict[str, str | None] = {}
    for name in ("torch", "numpy", "pydantic", "safetensors"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "fedaction": __version__,
        "python": platform.python_version(),
        "packages": packages,
        "platform": platform.platform(),
        "processor": platform.machine(),
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name(),
        "git_revision": _git_revision(),
    }


def processor_name() -> str:
    """The processor's model and the instructions that torch uses on it: trained values depend on both."""
    model = ""
    if platform.system() == "Linux":
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    elif platform.system() == "Darwin":
        model = _said_by("sysctl", "-n", "machdep.cpu.brand_string") or ""
    return f"{model or platform.processor() or platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"


def has_environment(path: Path, word: str = "") -> bool:
    """Whether a file says on what a run was trained, as it was written.

    `word`: of the run (`Seal.word`); "": that is not known.
    """
    try:
        machine = read_sealed_json(path)
        named = (machine["device"], machine["device_name"], machine["packages"]["torch"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    own = not word or machine.get(OF, word) == word
    return own and all(isinstance(name, str) for name in named)


def _git_revision() -> str | None:
    return _said_by("git", "rev-parse", "HEAD")


def _said_by(*command: str) -> str | None:
    """What a command prints; None where there is none, or it fails."""
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
