"""`fedaction serve`: the server of a federation between sites of their own."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedaction.cli.common import (
    announce,
    err,
    exit_on_refusal,
    exit_when_stopped,
    fail,
    load,
    run_folder,
    say,
    show_warnings,
    warn,
)
from fedaction.federation.files import is_empty
from fedaction.federation.words import quote

if TYPE_CHECKING:
    from fedaction.engines.flower.launch import ServerKeys
    from fedaction.engines.flower.link import Link

SERVER_APP = "fedaction.runs.server_app"
_TRIES = 5  # times that the server app may end in a row without another round done
InsecureFlag = Annotated[
    bool,
    typer.Option("--insecure", help="Talk without encryption and without knowing who is there: on one machine only."),
]


KeysOption = Annotated[
    Path | None, typer.Option("--keys", help="The folder with certificates and keys that `fedaction keys` made.")
]


def require_keys(keys: Path | None, insecure: bool, host: str) -> None:
    """Refuses to talk without encryption, and with anybody, but on one machine and where somebody said so."""
    if keys is not None:
        return
    if host not in ("127.0.0.1", "localhost", "::1"):
        raise fail(f"{host} is another machine: that needs --keys; `fedaction keys --help` says how to make them")
    if not insecure:
        raise fail("say --keys FOLDER (`fedaction keys` makes it), or --insecure to do without on this machine")


def serve(
    recipe: Annotated[Path, typer.Argument(help="A recipe's name or file; or a run directory, to resume it.")],
    sites: Annotated[int, typer.Option(min=1, help="How many sites begin the run.")] = 2,
    overrides: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")] = [],  # noqa: B006
    host: Annotated[
        str, typer.Option(help="Where to listen: 127.0.0.1, this machine alone, or 0.0.0.0.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where sites reach this server.")] = 8000,
    wait: Annotated[float, typer.Option(min=1, help="Seconds to wait for the sites to join.")] = 600,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds a site has for a round's work.")] = 3600,
    absence: Annotated[float, typer.Option(min=1, help="Seconds a site that vanished has to come back.")] = 120,
    folder: Annotated[Path | None, typer.Option("--out", help="Run directory; default: runs/NAME-N.")] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="If --out has a served run already, go on with it: for services and containers."
        ),
    ] = False,
    superlink: Annotated[
        bool,
        typer.Option(
            "--superlink", help="Use the Flower SuperLink that runs on this machine at --port; it is not ended."
        ),
    ] = False,
    simulate: Annotated[
        Path | None,
        typer.Option(
            help="No sites join: every dataset in this folder is one, in Flower's own simulation on this machine "
            "(pip install 'flwr[simulation]')."
        ),
    ] = None,
    keys: KeysOption = None,
    insecure: InsecureFlag = False,
) -> None:
    """Train across sites that keep their data: starts the server, waits for `fedaction join` at each site.

    The run directory gets metrics, checkpoints, a report and what sites agree to report; no recording, no label, and
    none of the tensors that sites keep. The recipe names no paths: where data lie is for each site to say. A server
    that was stopped resumes with `fedaction serve RUN_DIRECTORY`; `fedaction status` shows how it stands.

    Examples:
    - `fedaction serve three.toml --sites 3 --insecure` : all on this machine, to try it

    - `fedaction serve three.toml --sites 3 --host 0.0.0.0 --keys keys` : sites elsewhere, with keys

    - `fedaction serve runs/three-1 --host 0.0.0.0 --keys keys` : go on with a run

    - `fedaction serve three.toml --sites 3 --superlink --port 8000 --keys keys` : through a SuperLink that is there

    - `fedaction serve three.toml --simulate stores` : the same server and sites, without a network
    """
    from fedaction.engines.flower.launch import ServerKeys, check_flower

    load(check_flower)
    datasets = load(_list_datasets, simulate) if simulate is not None else {}
    require_keys(keys, insecure or simulate is not None, host)
    if host not in ("127.0.0.1", "localhost", "0.0.0.0"):
        raise fail(f"--host {host}: the server itself needs Flower at 127.0.0.1; say --host 0.0.0.0 to let sites in")
    trusted = None if keys is None else ServerKeys(keys)
    if trusted is not None:
        load(trusted.check)
    announce("loading PyTorch and the recipe")
    from fedaction.runs.remote import ROLL, Roll, open_run
    from fedaction.runs.sites import ELSEWHERE, PATHS, where

    with ExitStack() as stack:
        if resume and folder is not None and (folder / ROLL).is_file():
            recipe = folder
        if (recipe / ROLL).is_file():
            home = recipe
            if is_over(home):
                say(f"the run in {home} is over: `fedaction status {home}` shows it; another one needs another --out")
                return
        else:
            from fedaction.runs.recipe import load_recipe, read_overrides, read_recipe

            kind = {**load(read_recipe, recipe), **load(read_overrides, overrides)}.get("data", "")
            if kind in PATHS:  # where data lie is for each site to say
                overrides = [*overrides, f"{PATHS[kind]}={json.dumps(where(kind, ELSEWHERE))}"]
            parsed = load(load_recipe, recipe, overrides)
            home = stack.enter_context(run_folder(folder, parsed.run.name))
            if home.exists() and (not home.is_dir() or not is_empty(home)):
                raise fail(
                    f"{home} exists and is not empty; choose another --out, or resume it: fedaction serve {home}"
                )
            if parsed.run.baselines or len(parsed.run.seeds) > 1:
                warn("baselines and further seeds are not run between sites: only the method, with the first seed")
            roll = Roll(count=len(datasets) or sites, wait=wait, answer=deadline, absence=absence)
            load(open_run, parsed, home, roll)
        say(f"run directory: {home}", err)
        how = "--insecure" if keys is None else "--keys FOLDER"
        place = "THIS_MACHINE" if host == "0.0.0.0" or (superlink and keys is not None) else "127.0.0.1"
        if not datasets:
            say(f"at each site: fedaction join {place}:{port} --data STORE --name NAME {how}", err)
        if trusted is not None:
            say(f"sites that may join: {', '.join(trusted.sites())}; give each {keys}/ca.crt", err)
        how_on = f"`fedaction serve {home}` resumes from the last checkpoint"
        with show_warnings(), exit_on_refusal(), exit_when_stopped(lambda: how_on):
            result = _simulate(home, datasets) if datasets else _serve(home, port, host, trusted, superlink)
    from fedaction.report import write_report

    report = load(write_report, home)
    say(f"accuracy {result['mean']:.1%} over {len(result['clients'])} sites; {home / 'result.json'}")
    say(f"report: {report}")


def _list_datasets(folder: Path) -> dict[str, Path]:
    """The datasets of a folder, by the names that their sites get."""
    from fedaction.engines.flower.launch import check_ray

    check_ray()
    found = (
        {path.name: path.resolve() for path in sorted(folder.iterdir()) if path.is_dir()} if folder.is_dir() else {}
    )
    if not found:
        raise ValueError(
            f"{folder} has no datasets: it needs a folder for each site, such as `fedaction data stage` makes"
        )
    return found


def _simulate(home: Path, datasets: dict[str, Path]) -> dict[str, Any]:
    """A run in Flower's simulation, whose news are told as they come; its result."""
    from fedaction.engines.flower.requests import NobodyLeftError
    from fedaction.engines.flower.server import QuorumError
    from fedaction.runs.rayed import run_rayed
    from fedaction.runs.remote import NEWS

    over, news = threading.Event(), follow(home / NEWS)

    def tell() -> None:
        while not over.wait(0.5):
            for line in next(news):
                (warn if line["kind"] == "warn" else lambda t: say(t, err))(quote(line["text"]))

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        return run_rayed(home, datasets, home / "sites", os.cpu_count() or 1)
    except (QuorumError, NobodyLeftError) as error:
        raise ValueError(f"{error}; `fedaction serve {home} --simulate FOLDER` resumes") from None
    finally:
        over.set()
        teller.join()


def _serve(home: Path, port: int, host: str, keys: ServerKeys | None, given: bool) -> dict[str, Any]:
    """A run over real sites, through a SuperLink of its own or a `given` one; its result."""
    from fedaction.engines.flower.link import GivenLink, OwnLink
    from fedaction.engines.flower.status import SERVE, Holder, write_record

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    flower = home / "flower"
    flower.mkdir(parents=True, exist_ok=True)
    write_record(Holder.own(f"{host}:{port}"), home / SERVE)
    if given:
        return supervise(home, port, GivenLink(port, keys), keys)
    with (flower / "superlink.log").open("ab") as log:
        return supervise(home, port, OwnLink(flower, host, port, log, keys), keys)


def is_over(home: Path) -> bool:
    """Whether a served run has come to its end."""
    from fedaction.engines.flower.status import STATUS, ServerStatus, read_record

    status = read_record(ServerStatus, home / STATUS)
    return status is not None and status.stage == "done" and (home / "result.json").is_file()


def supervise(home: Path, port: int, link: Link, keys: ServerKeys | None = None) -> dict[str, Any]:
    """Keeps a SuperLink and the server app running until the run is done; the run's result.

    A server app that ends, or goes down with its SuperLink, is handed in again and resumes from its last checkpoint.
    """
    from fedaction.engines.flower.launch import connect, register, run_files, submit, withdraw
    from fedaction.engines.flower.status import is_gone
    from fedaction.runs.remote import NEWS, Roll
    from fedaction.runs.result import read_result

    flower, news = home / "flower", follow(home / NEWS)
    number = _Number(flower / "run")
    try:
        link.open()
        connect(flower, port, keys)
        if keys is not None:
            roll = Roll.read(home)
            roll.model_copy(update={"keys": register(flower, keys, again=not link.own)}).write(home)
        if not link.own and number.value:
            withdraw(flower, number.value)  # of a server that was killed: its app goes on where its SuperLink does
        attempt, tries = secrets.token_hex(8), 0
        number.keep(submit(flower, port, home, run_files(SERVER_APP), attempt, keys))
        pid, handed_in = 0, time.monotonic()
        while True:
            failed = ""
            for line in next(news):
                if line["attempt"] != attempt:
                    continue  # the last words of one that has ended
                kind, text, pid = line["kind"], line["text"], int(line["pid"])
                if kind == "done":
                    number.keep("")
                    return read_result(home)
                if kind == "failed":
                    failed = text
                    continue
                tries = 0 if kind == "round" else tries
                (warn if kind == "warn" else lambda t: say(t, err))(quote(text))
            if failed and not link.has_ended(2.0):  # else it failed because its SuperLink did
                number.keep("")
                raise ValueError(f"{failed}; `fedaction serve {home}` resumes")
            gone = is_gone(pid) if pid else time.monotonic() - handed_in > 120
            if failed or gone or (link.own and link.has_ended()):
                tries += 1
                if tries > _TRIES:
                    raise ValueError(f"the server app ended {tries} times; {flower / 'superlink.log'} says more")
                if link.has_ended():
                    warn(f"the SuperLink has ended; {'starting it again' if link.own else 'waiting for it'}")
                    link.open()
                warn("the server app has ended; it resumes from its last checkpoint")
                withdraw(flower, number.value)
                attempt, pid, handed_in = secrets.token_hex(8), 0, time.monotonic()
                try:
                    number.keep(submit(flower, port, home, run_files(SERVER_APP), attempt, keys))
                except (ValueError, subprocess.TimeoutExpired):
                    if not link.has_ended(2.0):
                        raise
            time.sleep(0.3)
    finally:
        if not link.own and number.value:
            withdraw(flower, number.value)
        link.close()


class _Number:
    """The number by which Flower knows what was handed in last, on disk; "": that has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.value = path.read_text(encoding="utf-8") if path.exists() else ""

    def keep(self, value: str) -> None:
        self.value = value
        self._path.write_text(value, encoding="utf-8")


def follow(path: Path) -> Iterator[list[dict[str, Any]]]:
    """The new lines of a run's news, each time that it is asked; those there at first are passed over.

    So is a line that is none: a server app that was killed leaves half of one.
    """
    place = path.stat().st_size if path.exists() else 0
    while True:
        lines: list[dict[str, Any]] = []
        if path.is_file():
            with path.open("rb") as file:
                file.seek(place)
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            place += len(whole)
            lines = [line for text in whole.splitlines() if (line := _parse_news(text)) is not None]
        yield lines


def _parse_news(text: bytes) -> dict[str, Any] | None:
    try:
        line: Any = json.loads(text)
        said = all(isinstance(line[key], str) for key in ("attempt", "kind", "text")) and type(line["pid"]) is int
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return line if said else None
