"""What a run costs against clients, parameters and rounds: every point a run in a process of its own."""

# matplotlib's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from fedaction.bench.timing import Tick, ignore
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.engines.base import choose_device
from fedaction.federation.files import write_atomically, write_json
from fedaction.federation.progress import Quiet
from fedaction.federation.seeds import generator
from fedaction.runs.environment import environment
from fedaction.runs.metrics import read_seconds
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.single import SingleRun

AT_ONCE = 100
"""Clients of a round, at most."""
COSTS = {
    "round": "seconds of a round",
    "setup": "seconds before the first round",
    "memory": "bytes of memory at most",
    "checkpoint": "bytes of checkpoints",
}
"""What is measured, in words."""
AXES = {"clients": "simulated clients", "parameters": "parameters", "rounds": "rounds"}
_INPUTS, _SAMPLES, _CLASSES = 32, 16, 8


@dataclass(frozen=True)
class Point:
    """A run: so many clients hold 16 vectors each, and train a perceptron of three layers in one step a round."""

    clients: int = 100
    width: int = 64
    """Of hidden layers."""
    rounds: int = 6
    device: str = "cpu"


class _Begun:
    """Notes when a run's first round begins. Is a `Callback`."""

    time = 0.0

    def on_start(self, method: str, seed: int, folder: Path) -> None:
        self.time = time.perf_counter()

    def on_round(self, rows: object) -> None: ...


def bench_scale(
    clients: Sequence[int], widths: Sequence[int], rounds: Sequence[int], device: str = "cpu", tick: Tick = ignore
) -> dict[str, Any]:
    """Three sweeps, each from the same small run: by clients, by the network's width, by rounds.

    Returns:
        By sweep its `points` (see `measure`), and the `slopes` of every cost, as exponents: 1 where a cost grows as
        what it stands against, 0 where it does not grow; besides machine, versions and date.
    """
    sweeps = {
        "clients": [Point(clients=count, device=device) for count in clients],
        "parameters": [Point(width=width, device=device) for width in widths],
        "rounds": [Point(rounds=count, device=device) for count in rounds],
    }
    result: dict[str, Any] = {"at_once": AT_ONCE, "date": datetime.now(UTC).date().isoformat()}
    result["environment"] = environment(choose_device(device))
    for axis, points in sweeps.items():
        lines = list[dict[str, Any]]()
        for point in points:
            tick(f"{axis}: {point.clients:,} clients, width {point.width}, {point.rounds} rounds")
            lines.append(_measure_apart(point))
        slopes = {cost: slope_of([(line[axis], line[cost]) for line in lines]) for cost in COSTS}
        result[axis] = {"points": lines, "slopes": slopes}
    return result


def slope_of(points: Iterable[tuple[float, float]]) -> float | None:
    """The slope of a line through logarithms, by least squares; None where there are not two places on the axis."""
    known = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in known}) < 2:
        return None
    middle, level = fmean(x for x, _ in known), fmean(y for _, y in known)
    return sum((x - middle) * (y - level) for x, y in known) / sum((x - middle) ** 2 for x, _ in known)


def _measure_apart(point: Point) -> dict[str, Any]:
    """In a process of its own: memory is its own, too."""
    command = [sys.executable, "-m", "fedaction.bench.scale", json.dumps(asdict(point))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"a run of {point} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(point: Point) -> dict[str, Any]:
    """One run's cost: of a round the median without the first and the last, which tests everybody.

    `memory` is the most that the process has ever held, with Python and torch; `checkpoint` is the size of the folder
    at the end, with the last two rounds and what clients keep; `whole` are all seconds from the first to the last.
    """
    data = _make_clients(point.clients)
    keys = {
        "method": "fedavg",
        "engine": "sequential",  # without a trial, which would count as set-up
        "backbone": "perceptron",
        "model_features": point.width,
        "model_hidden": point.width,
        "batch_size": _SAMPLES,
        "rounds": point.rounds,
        "clients_per_round": min(AT_ONCE, point.clients),
        "clients_per_test": min(AT_ONCE, point.clients),
        "client_models": "none",
        "controls": [],
        "device": point.device,
    }
    with tempfile.TemporaryDirectory(prefix="fedaction-") as name:
        folder, begun = Path(name) / "run", _Begun()
        start = time.perf_counter()
        run = SingleRun(parse_recipe(keys), data, folder, Quiet(), [begun])
        run.execute()
        whole = time.perf_counter() - start
        seconds = [*read_seconds(folder / "clock.jsonl", "total").values()]
        sizes = [path.stat().st_size for path in (folder / "checkpoints").rglob("*") if path.is_file()]
    parameters = sum(tensor.numel() for tensor in run.assembly.method.build(data["client-000000"].info).parameters())
    return {
        **asdict(point),
        "parameters": parameters,
        "round": median(seconds[1:-1] or seconds),
        "setup": begun.time - start,
        "whole": whole,
        "memory": _most_memory(),
        "checkpoint": sum(sizes),
    }


def _make_clients(count: int) -> dict[str, ClientData]:
    """Clients that look at the same few samples: what is measured is not the size of data."""
    random = generator(0, "scale")
    y = torch.arange(_SAMPLES) % _CLASSES
    train = Examples(torch.randn(_SAMPLES, _INPUTS, generator=random), y)
    test = Examples(torch.randn(_CLASSES, _INPUTS, generator=random), y[:_CLASSES])
    about = (_SAMPLES, tuple(map(str, range(_CLASSES))), (_INPUTS,))
    infos = (ClientInfo(f"client-{i:06d}", "bench", *about) for i in range(count))
    return {info.id: ClientData(info, train, test) for info in infos}


def _most_memory() -> int:
    """Bytes that this process has held at most: what the system says (VmHWM), or Python where it says nothing."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def write_scale(result: dict[str, Any], folder: Path) -> list[Path]:
    """The numbers as JSON, and a picture of every sweep, in a folder; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "scale.json"]
    write_json(paths[0], result)
    for axis in AXES:
        if len(result[axis]["points"]) > 1:
            paths.append(folder / f"scale-{axis}.svg")
            write_atomically(paths[-1], draw_sweep(result, axis))
    return paths


def draw_sweep(result: dict[str, Any], axis: str) -> bytes:
    """A sweep as SVG: every cost against the axis, both in logarithms, with its slope."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    from fedaction.analyses.draw import canvas, colour, drawing, svg  # which a run that is measured does not load

    points, slopes, about = result[axis]["points"], result[axis]["slopes"], result["environment"]
    with drawing():
        figure = canvas(7.6, 5.6)
        for place, (cost, words) in enumerate(COSTS.items()):
            axes = figure.add_subplot(2, 2, place + 1)
            axes.loglog([p[axis] for p in points], [p[cost] for p in points], "o-", color=colour(place), markersize=4)
            slope = slopes[cost]
            axes.set_title(words if slope is None else f"{words}\nslope {slope:.2f}", fontsize=9)
            axes.set_xlabel(AXES[axis])
            known = [math.log10(point[cost]) for point in points if point[cost] > 0]
            axes.set_ylim(10.0 ** math.floor(min(known, default=0)), 10.0 ** (math.floor(max(known, default=0)) + 1))
            for ticks in (axes.xaxis, axes.yaxis):
                ticks.set_major_formatter(FuncFormatter(_say_power))
                ticks.set_minor_formatter(NullFormatter())  # whole powers of ten have room
            axes.grid(visible=True)
        where = f"{about['device_name']}, torch {about['packages']['torch']}, fedaction {about['fedaction']}"
        return svg(figure, f"fedaction bench scale, {result['date']}: {where}; {result['at_once']} clients a round.")


def _say_power(value: float, _: int) -> str:
    return f"{value:g}"


if __name__ == "__main__":
    print(json.dumps(measure(Point(**json.loads(sys.argv[1])))))
