"""`fedaction doctor`: what there is on this machine, what is missing and how to get it, whether training works."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import typer
from rich.table import Table

from fedaction import __version__
from fedaction.cli.common import JsonFlag, announce, literal, say, show

NEEDED = ("torch", "numpy", "filelock", "matplotlib", "pydantic", "safetensors", "rich", "typer")
OPTIONAL = {
    "av": ('video files: data = "video", predict, evaluate', "pip install 'fedaction[video]'"),
    "onnx": ("fedaction export to ONNX", "pip install 'fedaction[export]'"),
    "onnxscript": ("fedaction export to ONNX", "pip install 'fedaction[export]'"),
    "onnxruntime": ("fedaction export checks what it wrote", "pip install 'fedaction[export]'"),
    "pandas": ("metrics as a table of your own", "pip install pandas"),
    "tensorboard": ("curves in TensorBoard", "pip install tensorboard"),
    "flwr": ("sites on machines of their own", "pip install flwr"),
}
"""Packages that some commands use: for what, and how to get them."""
_LOW = 2 * 1024**3  # bytes free on a disk that are soon used up
_MOST_FILES = 100_000  # of the cache, that are counted

State = Literal["ok", "absent", "low", "broken"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. Only what is broken keeps the project from working."""

    name: str
    state: State
    about: str


def doctor(as_json: JsonFlag = False) -> None:
    """Look at this machine: PyTorch, devices, optional parts, data, cache, disk; then write and train a little.

    Exits with status 1 where something that is needed is broken.
    """
    announce("loading PyTorch")
    findings = list(examine())
    broken = [finding.name for finding in findings if finding.state == "broken"]
    if as_json:
        print(json.dumps({"ok": not broken, "findings": [asdict(finding) for finding in findings]}))
    else:
        colours = {"ok": "green", "absent": "dim", "low": "yellow", "broken": "red"}
        table = Table("", "what", "found", box=None)
        for finding in findings:
            colour = colours[finding.state]
            table.add_row(f"[{colour}]{finding.state}[/{colour}]", literal(finding.name), literal(finding.about))
        show(table)
        say(f"\nbroken: {', '.join(broken)}" if broken else "\nall that is needed works")
    if broken:
        raise typer.Exit(1)


def examine() -> Iterator[Check]:
    """Everything, in the order in which it is shown."""
    yield Check("fedaction", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    yield Check("python", "ok", f"{platform.python_version()}, {platform.platform()}")
    for name in NEEDED:
        yield _examine(name, lambda name=name: _read_version(name))
    yield _examine("device", _describe_devices)
    for name, (use, how) in OPTIONAL.items():
        try:
            yield Check(name, "ok", f"{version(name)}: {use}")
        except PackageNotFoundError:
            yield Check(name, "absent", f"{use}; {how}")
    yield _look_for_data()
    yield _look_at_cache()
    yield _look_at_disk("disk", Path.cwd())
    yield _examine("run folder", _check_folder)
    yield _examine("training", _train_a_little)


def _examine(name: str, look: Callable[[], str]) -> Check:
    """What a look finds; whatever goes wrong in it is a finding, too."""
    try:
        return Check(name, "ok", look())
    except Exception as error:  # of any kind: this command is for whoever does not know which
        return Check(name, "broken", f"{type(error).__name__}: {error}")


def _read_version(name: str) -> str:
    """A package's version, once it has been imported: that it is installed does not say that it loads."""
    import_module(name)
    found = version(name)
    if name != "torch":
        return found
    import torch

    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    return f"{torch.__version__}, {build}, {torch.get_num_threads()} threads"


def _describe_devices() -> str:
    import torch

    from fedaction.federation.processes import cores
    from fedaction.runs.environment import processor_name

    devices = [f"{processor_name()}, {cores()} cores"]
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        devices.append(f"{torch.cuda.get_device_name(index)}, {_size(free)} of {_size(total)} free")
    if len(devices) == 1:
        devices.append("no CUDA device: training runs on the cores")
    return "; ".join(devices)


def _look_for_data() -> Check:
    """Which public datasets lie in the folder that FEDACTION_DATA names."""
    from fedaction.data.public.readers import READERS

    place = os.environ.get("FEDACTION_DATA", "")
    if not place:
        return Check("FEDACTION_DATA", "absent", "names the folder with public datasets; recipes on them need it")
    root = Path(place)
    if not root.is_dir():
        return Check("FEDACTION_DATA", "broken", f"{root} is not a folder: name another, or unset it")
    there = sorted(item.name for item in root.iterdir() if item.is_dir())
    known = [name for name in there if name in READERS]
    return Check("FEDACTION_DATA", "ok", f"{root}: {', '.join(known) or 'none of the datasets that can be read'}")


def _look_at_cache() -> Check:
    from fedaction.data.files import cache_root

    root = cache_root(None)
    if not root.exists():
        return Check("cache", "ok", f"{root} (FEDACTION_CACHE), not there yet")
    if not os.access(root, os.W_OK):
        return Check("cache", "broken", f"{root} cannot be written: name another folder in FEDACTION_CACHE")
    size = count = 0
    for count, path in enumerate(root.rglob("*"), 1):
        size += path.lstat().st_size if path.is_file() else 0
        if count == _MOST_FILES:
            break
    more = "at least " if count == _MOST_FILES else ""
    free = shutil.disk_usage(root).free
    state: State = "low" if free < _LOW else "ok"
    return Check("cache", state, f"{root} (FEDACTION_CACHE): {more}{_size(size)}, {_size(free)} free")


def _look_at_disk(name: str, place: Path) -> Check:
    free = shutil.disk_usage(place).free
    return Check(name, "low" if free < _LOW else "ok", f"{_size(free)} free in {place}")


def _check_folder() -> str:
    """Locks a folder where runs would lie, and writes a file as runs do."""
    from fedaction.federation.files import lock_folder, write_atomically

    parent = Path("runs") if Path("runs").is_dir() else Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=parent) as name:
        folder = Path(name)
        with lock_folder(folder):
            try:
                with lock_folder(folder):
                    raise OSError(f"{parent} is on a disk that does not lock: two runs could share a directory")
            except ValueError:
                pass  # as it should be
            for content in (b"first", b"second"):
                write_atomically(folder / "file", content)
                if (folder / "file").read_bytes() != content:
                    raise OSError(f"{parent} gives back other bytes than were written")
    return f"{parent.absolute()} locks, and files are replaced whole"


def _train_a_little() -> str:
    """One round of FSAR with two sites, on every kind of device that there is."""
    import time

    import torch

    from fedaction.runs import parse_recipe, run_study

    tiny = {"method": "fsar", "rounds": 1, "controls": [], "workers": 1, "stage_clients": 2, "stage_train": [8]}
    tiny |= {"stage_test": 4, "stage_actions": [2], "frames": 8, "batch_size": 4, "model_width": 4, "model_last": 0}
    tiny |= {"model_units": [1, 1, 1], "model_projection": 4, "stage_layouts": ["kinect_v2", "openni_15"]}
    texts: list[str] = []
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as name:
            result = run_study(parse_recipe(tiny | {"device": device}), Path(name) / "run")
        if not result["complete"]:
            raise RuntimeError(f"a round on {device} was not finished")
        texts.append(f"one round on {device} in {time.perf_counter() - start:.1f} s")
    return ", ".join(texts)


def _size(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB" if count >= 1024**3 else f"{count / 1024**2:.0f} MiB"
