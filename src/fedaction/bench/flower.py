"""What a round of small work costs over Flower: this engine beside an app as Flower's own examples have it.

The plain app is started by Flower for every message, imports torch and is waited for by Flower's blocking call. Both
have the same number of sites on this machine, over a SuperLink and SuperNodes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import IO, Any

from fedaction.bench.watch import ProcessUse
from fedaction.engines.flower.launch import (
    check_flower,
    flower_environment,
    free_port,
    open_superlink,
    run_files,
    start_supernode,
    stop,
    submit,
)
from fedaction.federation.files import read_json
from fedaction.runs.metrics import read_seconds
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.remote import Roll, open_run
from fedaction.runs.worker import SiteSettings
from fedaction.stage.stores import PLACES, write_stage_stores

SMALL: dict[str, Any] = {"model_width": 4, "model_last": 0, "model_units": (1, 1, 1), "model_projection": 8}
"""A network that is small work for a site."""
_SERVER = """\
import json, time
from pathlib import Path
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    folder, rounds, sites = Path(context.run_config["folder"]), ROUNDS, SITES
    while len(list(grid.get_node_ids())) < sites:
        time.sleep(0.5)
    arrays, seconds = ArrayRecord(torch.nn.Linear(75, 5).state_dict()), []
    for _ in range(rounds):
        start = time.perf_counter()
        content = RecordDict({"arrays": arrays})
        messages = [Message(content, dst_node_id=n, message_type="train") for n in grid.get_node_ids()]
        replies = list(grid.send_and_receive(messages))
        states = [r.content["arrays"].to_torch_state_dict() for r in replies]
        mean = {n: torch.stack([s[n] for s in states]).mean(0) for n in states[0]}
        arrays = ArrayRecord(mean)
        seconds.append(time.perf_counter() - start)
    (folder / "seconds.json").write_text(json.dumps(seconds))
"""
_CLIENT = """\
import torch
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(message, context):
    net = torch.nn.Linear(75, 5)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = torch.randn(64, 75), torch.randint(5, (64,))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(20):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict())}), reply_to=message)
"""


def bench_flower(rounds: int = 5, tell: Callable[[str], object] = lambda _: None) -> dict[str, Any]:
    """Seconds a round takes, three sites on this machine; the first round of each, which also starts things, is out.

    Returns:
        "plain" and "fedaction" (train alone), "tested" (fedaction with a test of every site in the round),
        "asynchronous" (as many updates as a round has, of whichever sites), medians over the timed rounds; the ratio
        of the first two; and all rounds' seconds.
    """
    check_flower()
    with tempfile.TemporaryDirectory(prefix="fedaction-") as name:
        folder = Path(name)
        tell("a plain Flower app")
        plain = _time_plain(folder / "plain", rounds + 1)
        tell("fedaction")
        train, total = _time_own(folder / "own", rounds + 1, method="fedavg")
        tell("fedaction, asynchronous")
        live, _ = _time_own(
            folder / "live", rounds + 1, method="edge", classifier="shared", evaluate_every=rounds + 1
        )
    result = {"plain": median(plain[1:]), "fedaction": median(train[1:]), "tested": median(total[1:])}
    every = {"plain": plain, "fedaction": train, "asynchronous": live}
    ratio = result["plain"] / result["fedaction"]
    return {**result, "asynchronous": median(live[1:]), "ratio": ratio, "rounds": every}


def _time_plain(folder: Path, rounds: int) -> list[float]:
    """Seconds of each round of a plain app."""
    server = _SERVER.replace("ROUNDS", str(rounds)).replace("SITES", str(len(PLACES)))
    with ExitStack() as stack:
        log, home, port, _ = _open_link(stack, folder)
        program = str(Path(sys.executable).parent / "flower-supernode")
        for name in PLACES:
            command = [program, "--insecure", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port())]
            own = flower_environment(folder / name)
            process = subprocess.Popen(command, env=own, stdout=log, stderr=subprocess.STDOUT)
            stack.callback(stop, process)
        submit(home, port, folder, run_files("", server, _CLIENT))
        _wait_for(folder / "seconds.json", 60.0 * rounds + 120)
    return [float(second) for second in read_json(folder / "seconds.json")]


def _time_own(folder: Path, rounds: int, **more: Any) -> tuple[list[float], list[float]]:
    """Seconds of each round of this engine: of training, and with a test of every site."""
    stores = write_stage_stores(folder / "stores", recordings=(12,), actions=(3,), frames=12)
    values = {"data": "store", "store_paths": ["sites"], "frames": 12, "rounds": rounds}
    recipe = parse_recipe({**values, **SMALL, "device": "cpu", "batch_size": 4, **more})
    run = folder / "run"
    open_run(recipe, run, Roll(count=len(stores)))
    carry_out_real(folder, run, stores, 60.0 * rounds + 120)
    seconds = [read_seconds(run / "clock.jsonl", kind) for kind in ("train", "total")]
    return list(seconds[0].values()), list(seconds[1].values())


def carry_out_real(
    folder: Path, run: Path, stores: Mapping[str, Path], seconds: float
) -> tuple[ProcessUse, dict[str, tuple[ProcessUse, ...]]]:
    """Carries out a run (see `open_run`) over real SuperNodes on this machine, in at most so many seconds.

    Returns:
        The SuperLink, and each site's SuperNode and worker.
    """
    sites: dict[str, tuple[ProcessUse, ...]] = {}
    with ExitStack() as stack:
        log, home, port, link = _open_link(stack, folder)
        for name, data in stores.items():
            place, own = folder / "sites" / name, free_port()
            place.mkdir(parents=True)
            secret = place / "worker.secret"
            node = start_supernode(place / "flower", f"127.0.0.1:{port}", own, secret, log)
            stack.callback(stop, node)
            settings = SiteSettings(
                name=name, data=data, state=place, address=f"127.0.0.1:{own}", secret=secret, device="cpu"
            )
            (place / "worker.json").write_text(settings.model_dump_json(), encoding="utf-8")
            command = [sys.executable, "-m", "fedaction.runs.worker", str(place / "worker.json")]
            alone = {**os.environ, "OMP_NUM_THREADS": "1"}
            worker = subprocess.Popen(command, env=alone, stdout=log, stderr=subprocess.STDOUT)
            stack.callback(stop, worker)
            sites[name] = ProcessUse(node.pid), ProcessUse(worker.pid)
        submit(home, port, run, run_files("fedaction.runs.server_app"))
        everybody = [link, *(process for site in sites.values() for process in site)]

        def look() -> None:
            for process in everybody:
                process.look()

        _wait_for(run / "result.json", seconds, look)
    return link, sites


def _open_link(stack: ExitStack, folder: Path) -> tuple[IO[bytes], Path, int, ProcessUse]:
    """A SuperLink until the stack is closed: its log, its folder, its port and its process."""
    folder.mkdir(parents=True, exist_ok=True)
    log = stack.enter_context((folder / "flower.log").open("wb"))
    home, port = folder / "flower", free_port()
    link = open_superlink(home, "127.0.0.1", port, log)
    stack.callback(stop, link)
    return log, home, port, ProcessUse(link.pid)


def _wait_for(path: Path, seconds: float, look: Callable[[], object] = lambda: None) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        look()
        if path.exists():
            try:
                json.loads(path.read_text(encoding="utf-8"))
                return
            except ValueError:
                pass  # half written
        time.sleep(0.5)
    raise ValueError(f"no {path.name} after {seconds:g} s; is this machine busy?")
