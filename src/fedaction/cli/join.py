"""`fedaction join`: a site of a federation, with its own data."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedaction.cli.common import announce, err, exit_on_refusal, fail, load, say, warn
from fedaction.cli.serve import InsecureFlag, KeysOption, require_keys

if TYPE_CHECKING:
    from fedaction.engines.flower.launch import SiteKeys

_AGAIN = 5.0  # seconds before what has ended is started again
_LEAST_FREE = 64 << 20  # bytes of disk that a site must have to begin with
_REFUSED = "Failed to initialize the connection to the SuperLink."  # what a SuperNode says that was not let in
_ADMITTED = "SuperNode ID"  # and what one says that was


def join(
    address: Annotated[str, typer.Argument(help="The server's HOST:PORT.")],
    data: Annotated[
        Path,
        typer.Option(
            help="This site's data: skeletons or signals as `fedaction data import` made them, features as "
            "`fedaction features` did, or a folder with a folder of videos for each class."
        ),
    ],
    name: Annotated[str, typer.Option(help="What this site is called; no other may be called the same.")],
    reports: Annotated[
        str,
        typer.Option(
            help='What this site tells besides shared tensors, of training, metrics, confusion and topology; "": '
            "nothing."
        ),
    ] = "training,metrics,confusion",
    state: Annotated[
        Path | None, typer.Option(help="Where it keeps its key and its own tensors; default: sites/NAME.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    parameters: Annotated[
        int | None, typer.Option(min=1, help="The largest network that a server may ask for; default: 200 million.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="The largest batch that it may ask for; default: 1024 samples.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="The most epochs that it may ask for in a round; default: 100.")
    ] = None,
    memory: Annotated[
        float | None, typer.Option(min=0.1, help="GiB that the work here may take; default: 80 % of this machine's.")
    ] = None,
    keep_from: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="Begin each run with this site's own tensors (its classifier, say) of an earlier one that came to "
            "its end: the name of its folder below --state, or newest. Where method, classes or shapes are others, "
            "the log says so and it begins anew.",
        ),
    ] = "",
    keep_runs: Annotated[
        int, typer.Option(min=0, help="Of how many earlier runs this site keeps its own tensors; networks all stay.")
    ] = 10,
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
        asked = {"parameters": parameters, "batch": batch, "epochs": epochs, "memory": memory}
        limits = {key: value for key, value in asked.items() if value is not None}
        _say_what_leaves(data, name, told)
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        from fedaction.federation.files import free_bytes, lock_folder

        if (free := free_bytes(home)) < _LEAST_FREE:
            raise ValueError(
                f"the disk of {home} has {free >> 20} MiB free, but a site needs {_LEAST_FREE >> 20} MiB for what it "
                "keeps: make room, or say another --state"
            )
        from fedaction.engines.flower.earlier import NEWEST, list_runs

        if keep_from not in ("", NEWEST, *(runs := list_runs(home))):
            raise ValueError(f"--keep-from {keep_from}: {home} has {', '.join(runs) or 'no run yet'}; or say newest")
        with lock_folder(home):
            keeping = {"keep_from": keep_from, "keep_runs": keep_runs}
            _keep(address, data.resolve(), name, home.resolve(), told, device, own, limits, keeping)


def _say_what_leaves(data: Path, name: str, told: tuple[str, ...]) -> None:
    """Checks the data, and says in words what will leave this site."""
    from fedaction.data.holdings import look_at
    from fedaction.engines.flower.site import REPORTS

    unknown = [word for word in told if word not in REPORTS]
    if unknown:
        raise ValueError(f"--reports: {unknown[0]!r} is unknown; there are {', '.join(REPORTS)}")
    held = look_at(data)
    people = f" of {held.people} people" if held.people else ""
    say(f"{name}: {held.recordings} recordings{people}, {held.what}, {len(held.classes)} classes", err)
    say(f"for recipes with {' or '.join(f'data = {kind!r}' for kind in held.suits)}", err)
    say("leaves this site, for the server:", err)
    say(
        f"  once: its name, what recorded it, its classes ({', '.join(held.classes)}), shape and number of samples",
        err,
    )
    say("  each round: the tensors that the run's method shares", err)
    say("  (the bytes of these, and of a report, are said when the run begins, before the first round)", err)
    for word in told:
        say(f"  {word}: {REPORTS[word]}", err)
    if cut := [word for word in REPORTS if word not in told]:
        say(f"  not told: {', '.join(cut)}", err)
    say("leaves this site, for the other sites: its name, layout, classes and the shape of samples", err)
    say("stays here: recordings, labels of single recordings, and all other tensors", err)


def _keep(
    address: str,
    data: Path,
    name: str,
    home: Path,
    told: tuple[str, ...],
    device: str,
    keys: SiteKeys | None,
    limits: Mapping[str, float],
    keeping: Mapping[str, str | int],
) -> None:
    """Keeps a SuperNode and a worker running until this process is told to stop."""
    from fedaction.engines.flower.launch import flower_environment, free_port, start_supernode, stop
    from fedaction.engines.flower.limits import Limits
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
        name=name,
        data=data,
        state=home,
        address=f"127.0.0.1:{port}",
        secret=secret,
        device=device,
        reports=told,
        limits=Limits.model_validate(limits),
        **keeping,  # pyright: ignore[reportArgumentType]
    )
    (home / "worker.json").write_text(settings.model_dump_json(indent=1), encoding="utf-8")
    write_record(Holder.own(address), home / JOIN)
    lookout = Lookout(home / CONTACT, address, keys, _tell, lambda text: _tell(text, warning=True))

    def work() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fedaction.runs.worker", str(home / "worker.json")]
        return subprocess.Popen(command, env=flower_environment(home / "flower"))

    def wait(seconds: float) -> None:
        end = time.monotonic() + seconds
        while not stopped and time.monotonic() < end:
            time.sleep(0.1)

    path, refused = home / "supernode.log", False
    with path.open("ab") as log:
        place = path.stat().st_size
        node, worker = start_supernode(home / "flower", address, port, secret, log, keys=keys), work()
        try:
            while not stopped:
                wait(0.3)
                lookout.look()
                if refused and _ADMITTED in _read_from(path, place):
                    refused = False
                    _tell("the server has let this site in")
                if node.poll() is None and worker.poll() is None:
                    continue
                _, ended, reason = _read_from(path, place).partition(_REFUSED)
                if node.poll() is None or not ended:
                    what = "the SuperNode" if node.poll() is not None else "the worker"
                    _tell(f"{what} has ended; starting again in {_AGAIN:g} s", warning=True)
                    if node.poll() is not None:
                        lookout.explain(f"the SuperNode failed ({path} says more)")
                    stop(worker, 1)  # what it works at is for nobody now
                    stop(node)  # with a worker goes the message that it had: the server must see that and ask again
                elif not refused:
                    refused = True
                    why = " ".join(reason.split())[:100]
                    lookout.explain(f"the server does not let this site in ({why} ...; {path} says more)")
                wait(_AGAIN)
                place = path.stat().st_size
                node = start_supernode(home / "flower", address, port, secret, log, keys=keys)
                worker = work() if worker.poll() is not None else worker
        finally:
            stop(worker)
            stop(node)
    _tell(f"{name} has left (process {os.getpid()})")


def _read_from(path: Path, place: int) -> str:
    """What a file has from some place on."""
    with path.open("rb") as file:
        file.seek(place)
        return file.read().decode(errors="replace")


def _tell(text: str, *, warning: bool = False) -> None:
    """Says something; a site does not end because nobody can hear it."""
    with suppress(OSError):
        if warning:
            warn(text)
        else:
            say(text, err)
