"""`fedaction bench`: speed, as ratios within one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedaction.cli.common import App, JsonFlag, err, exit_on_refusal, fail, parse_counts, say, show

DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
EngineOption = Annotated[str, typer.Option(help="sequential, vectorised or both.")]
PrecisionOption = Annotated[str, typer.Option(help="fp32, or on a GPU bf16.")]
RecordedFlag = Annotated[bool, typer.Option("--recorded", help="On a GPU: it repeats recorded steps by itself.")]
TimedRounds = Annotated[int, typer.Option(min=1, help="Timed rounds of each engine, after two that warm up.")]
_COSTS = (  # of many sites: what `bench load` measures, and how a table has it
    ("memory", 1e-6, "{:.0f}"),
    ("busy", 1e3, "{:.1f}"),
    ("link_memory", 1e-6, "{:.0f}"),
    ("link_busy", 1e3, "{:.1f}"),
    ("site_memory", 1e-6, "{:.0f}"),
)

bench_app = App(help="Measure speed: ratios within one run.")


@bench_app.command("loop")
def bench_loop(
    clients: Annotated[int, typer.Option(min=1, help="Clients per round.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Timed turns of each contender.")] = 3,
    as_json: JsonFlag = False,
) -> None:
    """The sequential engine against a bare PyTorch loop over the same clients and batches (1.00 = as fast)."""
    from fedaction.bench import loop as bench

    with err.status("measuring") as status:
        result = bench.bench_loop(clients, rounds, status.update)
    if as_json:
        print(json.dumps(result))
        return
    table = Table("clients", "parameters", "bare loop, s", "one worker", f"{result['workers']} workers", box=None)
    for name, measured in result["workloads"].items():
        values = (measured[key] for key in ("seconds_bare", "ratio_one_worker", "ratio_all_workers"))
        table.add_row(f"{clients} x {name}", f"{measured['parameters']:,}", *(f"{value:.2f}" for value in values))
    show(table)


@bench_app.command("engines")
def bench_engines(
    clients: Annotated[int, typer.Option(min=1, help="Clients per round.")] = 100,
    batch: Annotated[int, typer.Option(min=1, help="Sequences in a local step.")] = 16,
    steps: Annotated[int, typer.Option(min=1, help="Local steps in a round.")] = 1,
    bodies: Annotated[int, typer.Option(min=1, max=2, help="Persons in a sequence.")] = 1,
    method: Annotated[str, typer.Option(help="fedavg, fsar, or another that learns from skeletons.")] = "fedavg",
    backbone: Annotated[str, typer.Option(help="stgcn (a quarter wide), ctrgcn, mstgcn or msg3d.")] = "stgcn",
    last: Annotated[int, typer.Option(min=0, help="ST-GCN: channels of the last unit; 0: as its block.")] = 0,
    frames: Annotated[int, typer.Option(min=1, help="Frames of a sequence.")] = 50,
    augment: Annotated[bool, typer.Option("--augment", help="Shear and crop sequences, as recipes do.")] = False,
    engine: EngineOption = "both",
    precision: PrecisionOption = "fp32",
    recorded: RecordedFlag = False,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile networks or stacked steps.")] = False,
    kernels: Annotated[bool, typer.Option(help="Whether stacked layers use Triton kernels.")] = True,
    rounds: TimedRounds = 5,
    device: DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Whole rounds of many clients with skeletons, by each engine: samples a second, each of a step counted once."""
    from fedaction.bench import engines as bench
    from fedaction.engines.base import choose_device
    from fedaction.federation.settings import check_choice
    from fedaction.methods import METHODS

    with err.status("measuring") as status, exit_on_refusal():
        check_choice({"--method": method}, "--method", METHODS, "bench engines")
        work = bench.Skeletons(clients, bodies, batch, steps, method, backbone, last, augment, frames)
        way = bench.EngineSetup(
            bench.choose_engines(engine), bench.choose_precision(precision), recorded, compiled, kernels
        )
        result = bench.bench_engines(work, way, rounds, choose_device(device), status.update)
    _show(result, as_json)


@bench_app.command("fdarn")
def bench_fdarn(
    clients: Annotated[int, typer.Option(min=1, help="Clients per round, of four modalities in turn.")] = 16,
    engine: EngineOption = "both",
    precision: PrecisionOption = "fp32",
    recorded: RecordedFlag = False,
    rounds: TimedRounds = 5,
    device: DeviceOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Whole rounds of FDARN clients of the paper's largest size, by each engine: samples a second."""
    from fedaction.bench import engines as bench
    from fedaction.engines.base import choose_device

    with err.status("measuring") as status, exit_on_refusal():
        way = bench.EngineSetup(bench.choose_engines(engine), bench.choose_precision(precision), recorded)
        result = bench.bench_fdarn(clients, way, rounds, choose_device(device), status.update)
    _show(result, as_json)


@bench_app.command("video")
def bench_video(
    path: Annotated[Path | None, typer.Argument(help="A video; default: one that is made for it.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed turns of each contender.")] = 11,
    train: Annotated[bool, typer.Option("--train", help="Learning from files against learning from memory.")] = False,
    width: Annotated[int, typer.Option(min=1, help="With --train: of the ResNet-18; the papers' is 64.")] = 64,
    files: Annotated[int, typer.Option(min=1, help="With --train: clips of an epoch.")] = 64,
    device: Annotated[str, typer.Option(help="With --train: auto, cpu or cuda.")] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Reading clips against the bare decoder over the same frames (1.00 = as fast)."""
    from fedaction.bench import video as bench
    from fedaction.engines.base import choose_device

    with err.status("measuring") as status, exit_on_refusal():
        if train:
            where = choose_device(device)
            result = bench.bench_streamed(
                path, width=width, files=files, rounds=rounds, device=where, tick=status.update
            )
        else:
            result = bench.bench_video(path, rounds=rounds, tick=status.update)
    if as_json:
        print(json.dumps(result))
    elif train:
        for name, speed in result["clips_per_second"].items():
            say(f"{name}: {speed:,.1f} clips a second")
        where = f"{result['device']}, {result['cores']} cores"
        both = f"{result['ratio']:.2f} of the speed from memory, by processor time {result['ratio_processor']:.2f}"
        say(f"from files: {both} ({where})")
    else:
        for what, key in (("all clips", "ratio"), ("clips by their first frames", "ratio_windows")):
            say(f"{what}: {result[key]:.2f} of the bare decoder's speed")


@bench_app.command("pretext")
def bench_pretext(
    task: Annotated[str, typer.Option(help="ctp, speed, vcop or all.")] = "all",
    width: Annotated[int, typer.Option(min=1, help="Channels of the network's first stage.")] = 64,
    size: Annotated[int, typer.Option(min=16, help="Rows and columns of a clip, in pixels.")] = 112,
    frames: Annotated[int, typer.Option(min=4, help="Frames of a clip.")] = 16,
    batch: Annotated[int, typer.Option(min=1, help="Recordings in a step.")] = 32,
    clients: Annotated[int, typer.Option(min=1, help="Clients per round.")] = 4,
    recordings: Annotated[int, typer.Option(min=1, help="Recordings of each client.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Timed turns of each contender.")] = 5,
    device: DeviceOption = "auto",
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Whether to compile on a GPU.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Federated learning from unlabelled video against plain loops, for each pretext task: clips a second."""
    from fedaction.bench import pretext as bench
    from fedaction.engines.base import choose_device
    from fedaction.methods.pretext import PRETEXTS

    if task != "all" and task not in PRETEXTS:
        raise fail(f"there is no task {task!r}; there are {', '.join(PRETEXTS)} and all")
    with err.status("measuring") as status, exit_on_refusal():
        result = bench.bench_pretext(
            tuple(PRETEXTS) if task == "all" else (task,),
            bench.Size(width, size, frames, batch, clients, recordings),
            rounds=rounds,
            device=choose_device(device),
            compiled=compiled,
            tick=status.update,
        )
    if as_json:
        print(json.dumps(result))
        return
    table = Table("task", "clips/s", "plain loop", "ratio", "eager, batch 4", "ratio", "ours, batch 4", box=None)
    for name, measured in result["tasks"].items():
        speeds, ratios = measured["clips_per_second"], (measured["ratio_plain"], measured["ratio_eager"])
        values = (speeds["ours"], speeds["plain"], ratios[0], speeds["eager"], ratios[1], speeds["ours_batch4"])
        table.add_row(name, *(f"{value:,.2f}" if value in ratios else f"{value:,.0f}" for value in values))
    show(table)
    for name, measured in result["tasks"].items():
        how = f"compiled in {measured['compile_seconds']:.0f} s" if measured["compiled"] else "not compiled"
        shares = f"drawing {measured['share_draw']:.1%} and making clips {measured['share_apply']:.1%} of a round"
        say(f"{name}: {result['precision']} on {result['device']}, {how}; {shares}")
        if "ratio_eager_tf32" in measured:
            say(f"{name}: {measured['ratio_eager_tf32']:.2f} times the eager loop with TF32")
        if measured["compile_error"]:
            say(f"{name}: compiling failed: {measured['compile_error']}", err)


@bench_app.command("events")
def bench_events(
    devices: Annotated[int, typer.Option(min=1, help="Simulated devices, of four kinds in turn.")] = 1000,
    updates: Annotated[int, typer.Option(min=1, help="Server updates to time.")] = 1000,
    as_json: JsonFlag = False,
) -> None:
    """The asynchronous schedule on many devices: server updates a second, and what is not training."""
    from fedaction.bench import events as bench

    with err.status("measuring"):
        result = bench.bench_events(devices, updates)
    if as_json:
        print(json.dumps(result))
        return
    say(f"{devices:,} devices: {result['updates_per_second']:,.0f} server updates a second")
    share = result["bookkeeping_to_training"]
    say(f"the schedule takes {share:.2f} of the time that training does")


@bench_app.command("flower")
def bench_flower(
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of each.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """A round of small work over Flower, three sites on this machine, against a plain Flower app."""
    from fedaction.bench import flower as bench

    with exit_on_refusal(), err.status("measuring") as status:
        result = bench.bench_flower(rounds, status.update)
    if as_json:
        print(json.dumps(result))
        return
    say(f"a plain Flower app: {result['plain']:.1f} s a round")
    say(f"fedaction: {result['fedaction']:.1f} s, with a test of every site {result['tested']:.1f} s")
    say(f"fedaction, asynchronous: {result['asynchronous']:.1f} s for as many updates as a round has")
    say(f"ratio: {result['ratio']:.1f}")


@bench_app.command("load")
def bench_load(
    real: Annotated[str, typer.Option(help="Numbers of real SuperNodes on this machine, such as 4,8,16.")] = "4,8",
    simulated: Annotated[
        str, typer.Option(help="Numbers of sites in Flower's simulation (pip install 'flwr[simulation]').")
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds of each.")] = 3,
    as_json: JsonFlag = False,
) -> None:
    """What many sites over Flower cost the server: time of a round, memory, CPU time and bytes of each site."""
    from fedaction.bench import load as bench

    lines: list[dict[str, Any]] = []
    with exit_on_refusal(), err.status("measuring") as status:
        for rayed, sizes in ((False, real), (True, simulated)):
            numbers = [int(size) for size in sizes.split(",") if size]
            lines += bench.bench_load(numbers, rounds, status.update, rayed=rayed)
    if as_json:
        print(json.dumps(lines))
        return
    costs = ("server app, MB", "ms a site", "SuperLink, MB", "ms a site", "a site, MB")
    table = Table("", "sites", "s a round", "rounds a minute", *costs, "bytes a site", "lost", box=None)
    for line in lines:
        cells = [f"{line['round']:.1f}", f"{60 / line['round']:.1f}"]
        cells += ["" if line[key] is None else form.format(scale * line[key]) for key, scale, form in _COSTS]
        end = (f"{line['bytes']:,.0f}", str(line["lost"]))
        table.add_row("simulated" if line["rayed"] else "real", str(line["sites"]), *cells, *end)
    show(table)


@bench_app.command("peers")
def bench_peers(
    peers: Annotated[
        str, typer.Option(help="Which, with commas: flower, pfl, pfl-torchrun, nvflare.")
    ] = "flower,pfl,pfl-torchrun,nvflare",
    workload: Annotated[
        str,
        typer.Option(help="stgcn (16 skeleton sequences a client, one step), mlp (64 vectors, four steps) or both."),
    ] = "both",
    clients: Annotated[int, typer.Option(min=1, help="Clients; all train in every round.")] = 20,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of each run; the first is not timed.")] = 5,
    turns: Annotated[int, typer.Option(min=1, help="Runs of each framework.")] = 1,
    envs: Annotated[
        Path | None,
        typer.Option(
            help="Folder of their environments; default: peers in $FEDACTION_CACHE, else in ~/.cache/fedaction."
        ),
    ] = None,
    install: Annotated[
        bool, typer.Option(help="Install what is not there: once, with pip, 1.1 to 1.4 GB each.")
    ] = True,
    as_json: JsonFlag = False,
) -> None:
    """The same training by Flower's simulation, pfl-research and NVFlare: rounds, start-up and memory as ratios.

    Each framework is installed into an environment of its own, beside the torch that runs here, and gets the same
    network, first weights, samples and batches. Each run has processes of its own, on as many cores as there are,
    and lies between two of fedaction. One that cannot be installed, or fails, is skipped, with the reason.

    What the columns say:

    - *faster*: its steady round over fedaction's; in brackets the same of processors' seconds, which other programs
      on the machine disturb less.

    - *start-up*: from the start of the process to the first training step; in brackets fedaction's part of it.

    - *memory*: of all its processes together, at most; in brackets fedaction's part of it.

    - *apart*: how far its weights are from fedaction's after the first round, as a share of what was learned; more
      than 0.02 would be other work.

    - *others*: processors that everybody else on the machine used meanwhile; the fewer, the better the figures.

    Two turns or more show how far figures of one machine are apart: `--turns 3 --json` has each run.
    """
    from fedaction.bench import peers as bench
    from fedaction.data.files import cache_root
    from fedaction.federation.settings import check_choice

    place = (envs or cache_root(None) / "peers").absolute()
    with exit_on_refusal(), err.status("measuring") as status:
        names = [name.strip() for name in peers.split(",") if name.strip()]
        for name in names or [peers]:
            check_choice({"--peers": name}, "--peers", bench.PEERS, "bench peers")
        check_choice({"--workload": workload}, "--workload", {**bench.WORKLOADS, "both": None}, "bench peers")
        works = {name: own for name, own in bench.WORKLOADS.items() if workload in (name, "both")}
        result = bench.bench_peers(names, works, clients, rounds, turns, place, install=install, tick=status.update)
    for name, why in result["skipped"].items():
        say(f"{name} is skipped: {why}", err)
    if as_json:
        print(json.dumps(result))
        return
    heads = ("version", "s a round", "faster", "start-up, s", "memory, MB", "whole run, s", "apart", "others")
    for name, lines in result["workloads"].items():
        table = Table(f"{clients} x {name}", *heads, box=None)
        for line in lines:
            table.add_row(*_peer_cells(line))
        show(table)


def _peer_cells(line: dict[str, Any]) -> list[str]:
    """A framework's row."""
    against, apart = line.get("against", {}), line.get("apart", {})

    def number(value: float | None, form: str) -> str:
        return "–" if value is None else f"{value:{form}}"

    def beside(key: str) -> str:
        return f" ({number(against[key], '.2f')})" if against else ""

    memory = None if line["memory"] is None else line["memory"] / 1e6
    return [
        line["title"],
        line["version"],
        f"{line['round']:.2f}",
        f"{number(against['faster'], '.2f')}{beside('faster_processor')}" if against else "",
        f"{line['start_up']:.1f}{beside('start_up')}",
        f"{number(memory, ',.0f')}{beside('memory')}",
        f"{line['whole']:.1f}",
        f"{apart['first']:.0e}" if apart else "",
        f"{line['others']:.1f}",
    ]


@bench_app.command("scale")
def bench_scale(
    clients: Annotated[str, typer.Option(help="Numbers of simulated clients.")] = "10,100,1000,10000,100000",
    widths: Annotated[str, typer.Option(help="Widths of the network.")] = "32,128,512,2048",
    rounds: Annotated[str, typer.Option(help="Numbers of rounds.")] = "10,40,160,640",
    device: DeviceOption = "cpu",
    to: Annotated[Path | None, typer.Option("--out", help="A folder for numbers and pictures.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """What a run costs against clients (at most 100 a round), parameters and rounds, each in a process of its own."""
    from fedaction.bench import scale as bench

    counts, sizes = parse_counts(clients, "--clients"), parse_counts(widths, "--widths")
    lengths = parse_counts(rounds, "--rounds")
    with exit_on_refusal(), err.status("measuring") as status:
        result = bench.bench_scale(counts, sizes, lengths, device, status.update)
        paths = [] if to is None else bench.write_scale(result, to)
    if as_json:
        print(json.dumps(result))
        return
    for axis, words in bench.AXES.items():
        table = Table(words, *bench.COSTS.values(), box=None)
        for point in result[axis]["points"]:
            table.add_row(f"{point[axis]:,}", *(f"{point[cost]:,.4g}" for cost in bench.COSTS))
        slopes = result[axis]["slopes"]
        table.add_row("slope", *("–" if slopes[cost] is None else f"{slopes[cost]:.2f}" for cost in bench.COSTS))
        show(table)
    for path in paths:
        say(str(path))


def _show(result: dict[str, Any], as_json: bool) -> None:
    """One engine, or two compared."""
    if as_json:
        print(json.dumps(result))
        return
    for name, speed in result["samples_per_second"].items():
        seconds, first = result["seconds"][name], result["seconds_first_step"][name]
        how = f"{seconds:.3f} s a round, the first step done after {first:.1f} s"
        say(f"{name}: {speed:,.0f} samples/s on {result['device']}, {how}")
    if "speed_up" in result:
        say(f"speed-up: {result['speed_up']:.2f}")
