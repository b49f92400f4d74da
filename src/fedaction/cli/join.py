"""`fedaction join`: a site of a federation, with its own data."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedaction.cli.common import announce, err, exit_on_refusal, fail, load, say, warn
from fedaction.cli.serve import InsecureFlag, KeysOption, require_keys

if TYPE_CHECKING:
    from fedaction.engines.flower.launch import SiteKeys

_AGAIN = 5.0  # seconds before what has ended is started again


def join(
    address: Annotated[str, typer.Argument(help="The server's HOST:PORT.")],
    data: Annotated[
        Path,
        typer.Option(help="This site's data, skeletons or signals, as `fedaction data import` made it."),
    ],
    name: Annotated[str, typer.Option(help="What this site is called; no other may be called the same.")],
    reports: Annotated[
        str,
        typer.Option(help="What this site tells besides shared tensors: training, metrics, confusion, topology."),
    ] = "training,metrics,confusion,topology",
    state: Annotated[
        Path | None, typer.Option(help="Where it keeps its key and its own tensors; default: sites/NAME.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    keys: KeysOption = None,
    insecure: InsecureFlag = False,
) -> None:
    """Take part in training with data that stay here: joins the server's run, and the next ones, until stopped.

    Nothing that the server sends is run; what it says is checked, and what leaves is printed before anything does.
    Where the server cannot be reached or leaves this site out, the reason is printed, and it goes on trying. At the
    end of a run this site's own network lies below --state, for `fedaction predict`.

    Examples:
    - `fedaction join 127.0.0.1:8000 --data stores/gym --name gym --insecure` : all on this machine, to try it

    - `fedaction join server.clinic.org:8000 --data stores/gym --name gym --keys keys` : with keys

    - `fedaction status --site sites/gym` : how it stands, from another terminal
    """
    from fedaction.engines.flower.launch import SiteKeys, check_flower

    load(check_flower)
    host, _, number = address.rpartition(":")
    if not host or not number.isdigit():
        raise fail(f"{address!r} is no address; write HOST:PORT, such as 127.0.0.1:8000")
    require_keys(keys, insecure, host)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise fail(f"--name {name!r}: use letters, digits, dots, dashes and underscores")
    own = None if keys is None else SiteKeys(keys, name)
    if own is not None:
        load(own.check)
    announce("loading PyTorch and this site's data")
    with exit_on_refusal():
        home = state or Path("sites") / name
        told = tuple(word.strip() for word in reports.split(",") if word.strip())
        _say_what_leaves(data, name, told)
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        from fedaction.federation.files import lock_folder

        with lock_folder(home):
            _keep(address, data.resolve(), name, home.resolve(), told, device, own)


def _say_what_leaves(data: Path, name: str, told: tuple[str, ...]) -> None:
    """Checks the data, and says in words what will leave this site."""
    from fedaction.data.signals.store import SignalSet, is_signal_store, load_signals
    from fedaction.data.store import load as load_store
    from fedaction.engines.flower.site import REPORTS

    unknown = [word for word in told if word not in REPORTS]
    if unknown:
        raise ValueError(f"--reports: {unknown[0]!r} is unknown; there are {', '.join(REPORTS)}")
    store = load_signals(data) if is_signal_store(data) else load_store(data)
    device = store.device or "no device name" if isinstance(store, SignalSet) else store.layout.name
    people = f" of {len(set(store.subjects))} people" if store.subjects else ""
    say(f"{name}: {len(store)} recordings{people}, {device}, {len(store.classes)} classes", err)
    say("leaves this site, for the server:", err)
    say(f"  once: its name, {device}, its classes ({', '.join(store.classes)}) and how many samples", err)
    say("  each round: the tensors that the run's method shares (how many bytes is said when it begins)", err)
    for word in told:
        say(f"  {word}: {REPORTS[word]}", err)
    say("leaves this site, for the other sites: its name, layout and classes", err)
    say("stays here: recordings, labels of single recordings, and all other tensors", err)


def _keep(
    address: str, data: Path, name: str, home: Path, told: tuple[str, ...], device: str, keys: SiteKeys | None
) -> None:
    """Keeps a SuperNode and a worker running until this process is told to stop."""
    from fedaction.engines.flower.launch import flower_environment, free_port, start_supernode, stop
    from fedaction.engines.flower.reach import Lookout
    from fedaction.engines.flower.status import CONTACT, JOIN, Holder, write_record
    from fedaction.runs.worker import SiteSettings

    stopped = False

    def end(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    port = free_port()
    secret = home / "worker.secret"
    settings = SiteSettings(
        name=name, data=data, state=home, address=f"127.0.0.1:{port}", secret=secret, device=device, reports=told
    )
    (home / "worker.json").write_text(settings.model_dump_json(indent=1), encoding="utf-8")
    write_record(Holder.own(address), home / JOIN)
    lookout = Lookout(home / CONTACT, address, keys, lambda text: say(text, err), warn)

    def work() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fedaction.runs.worker", str(home / "worker.json")]
        return subprocess.Popen(command, env=flower_environment(home / "flower"))

    with (home / "supernode.log").open("ab") as log:
        node = start_supernode(home / "flower", address, port, secret, log, keys=keys)
        worker = work()
        try:
            while not stopped:
                time.sleep(0.3)
                lookout.look()
                if node.poll() is not None or worker.poll() is not None:
                    what = "the SuperNode" if node.poll() is not None else "the worker"
                    warn(f"{what} has ended; starting again in {_AGAIN:g} s")
                    if node.poll() is not None:
                        lookout.explain(
                            f"the SuperNode was not let in, or failed ({home / 'supernode.log'} says more)"
                        )
                    stop(worker)
                    stop(node)  # with a worker goes the message that it had: the server must see that and ask again
                    time.sleep(_AGAIN)  # Flower refuses a node with a key for up to a minute: it is tried again
                    node, worker = start_supernode(home / "flower", address, port, secret, log, keys=keys), work()
        finally:
            stop(worker)
            stop(node)
    say(f"{name} has left (process {os.getpid()})", err)
