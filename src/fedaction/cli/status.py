"""`fedaction status`: how a served run, or a site, stands. Loads neither torch nor Flower."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedaction.cli.common import JsonFlag, exit_on_refusal, out
from fedaction.engines.flower.status import (
    CONTACT,
    JOIN,
    SERVE,
    STATUS,
    Holder,
    Remark,
    SeenSite,
    ServerStatus,
    SiteStatus,
    read_record,
)
from fedaction.federation.order import natural_key
from fedaction.federation.pace import say_duration
from fedaction.federation.words import amount, quote

_ROLL = "sites.json"  # what makes a directory that of a served run: `runs.remote.ROLL`
_WORKER = "worker.json"  # and what makes one that of a site
_CONTACT = 30.0  # seconds after which a server that has not answered counts as not reached
_NAME = 60  # characters of a name that are shown
_TEXT = 300
_SHOWN = 12  # remarks
_EVERY = 1.0  # seconds


def status(
    path: Annotated[
        Path | None,
        typer.Argument(help="A served run's directory, or a site's folder; default: the newest served run in runs/."),
    ] = None,
    site: Annotated[
        Path | None, typer.Option(help="A site's folder, such as sites/gym: how this machine's site stands.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Show it live, until the run is over or Ctrl-C.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say how a federation between sites stands: at the server, or at a site.

    At the server: who is there and who is absent since when, the round, the time left, the last accuracy, bytes, and
    what was refused and why. At a site: whether the server answers, the last job, what was reported, and where its
    network lies. It reads a few small files that `fedaction serve` and `fedaction join` keep, and disturbs nobody.

    Examples:
    - `fedaction status` : the newest run that was served from this directory

    - `fedaction status runs/three-1 --follow` : live

    - `fedaction status --site sites/gym --json` : a site, for a program
    """
    with exit_on_refusal():
        place = site or path or newest_run(Path("runs"))
        look = find_look(place, site is not None)
        if not follow:
            shown, facts, _ = look()
            _print(shown, facts, as_json)
            return
        _follow(look, as_json)


Look = Callable[[], tuple[Group, dict[str, Any], bool]]
"""What gives what is shown, the same as plain JSON, and whether nothing more will come."""


def newest_run(runs: Path) -> Path:
    """The served run that was last written to."""
    found = [roll.parent for roll in runs.glob(f"*/{_ROLL}")] if runs.is_dir() else []
    if not found:
        raise ValueError(
            f"there is no served run in {runs}; name its directory (`fedaction status DIRECTORY`), or at a site its "
            "folder (`fedaction status --site sites/NAME`)"
        )
    return max(found, key=lambda folder: max(_changed(folder / name) for name in (_ROLL, STATUS)))


def find_look(place: Path, site: bool) -> Look:
    """What shows a directory: a served run's, or a site's."""
    if not place.is_dir():
        raise ValueError(f"{place} is no directory; name that of a served run, or a site's folder (sites/NAME)")
    if (place / _ROLL).is_file() and not site:
        return lambda: show_run(place)
    if (place / _WORKER).is_file():
        return lambda: show_site(place)
    if site:
        raise ValueError(f"{place} is no site's folder: `fedaction join` makes one, by default sites/NAME")
    raise ValueError(
        f"{place} is neither a served run (`fedaction serve` makes one) nor a site's folder (`fedaction join`); of a "
        "simulated run, `fedaction report` shows what is there"
    )


def show_run(folder: Path) -> tuple[Group, dict[str, Any], bool]:
    """How a served run stands."""
    state = read_record(ServerStatus, folder / STATUS) or ServerStatus()
    server = read_record(Holder, folder / SERVE)
    alive = server.alive() if server else False
    over = state.stage == "done"
    left = None
    if state.pace is not None and state.stage == "training" and alive is not False:
        left = max(0.0, (state.rounds - state.round) * state.pace - (time.time() - state.time))
    there = sorted((name for name, site in state.sites.items() if site.here and alive is not False), key=natural_key)
    facts = Table.grid(padding=(0, 2))
    _row(facts, "run", f"{folder}: {_text(state.method) or 'method not known'}, {_say_stage(state, alive)}")
    _row(facts, "server", _say_holder(server, alive, "listens at"))
    if alive is False and not over:
        _row(facts, "", f"it is not running: `fedaction serve {folder} ...` resumes from the last checkpoint")
    times = f", about {say_duration(left)} left" if left is not None else ""
    _row(facts, "round", f"{state.round} of {state.rounds or '?'}{times}")
    value = "not measured yet" if state.value is None else f"{state.value:.1%} after round {state.measured}"
    _row(facts, _text(state.metric) or "accuracy", value)
    _row(facts, "traffic", f"{amount(state.sent)} sent, {amount(state.received)} received")
    _row(facts, "sites", f"{len(there)} of {max(state.wanted, len(state.sites))} there")
    if state.left_out:
        _row(facts, "left out", f"{state.left_out}, counting every time that a site was not let in")
    if (folder / "report.html").exists():
        _row(facts, "report", str(folder / "report.html"))
    parts: list[Any] = [facts]
    if state.sites:
        parts += [Text(), _site_table(state.sites, alive)]
    parts += _say_remarks(state.remarks, state.warnings)
    plain = {
        "kind": "server",
        "folder": str(folder),
        **state.model_dump(),
        "there": there,
        "seconds_left": left,
        "server": server.model_dump() if server else None,
        "alive": alive,
    }
    return Group(*parts), plain, over or alive is False


def show_site(folder: Path) -> tuple[Group, dict[str, Any], bool]:
    """How a site stands."""
    state = read_record(SiteStatus, folder / STATUS) or SiteStatus(name=folder.resolve().name)
    own = read_record(Holder, folder / JOIN)
    alive = own.alive() if own else False
    answered = _changed(folder / CONTACT)
    fresh = answered > 0 and time.time() - answered < _CONTACT and alive is not False
    facts = Table.grid(padding=(0, 2))
    _row(facts, "site", f"{_text(state.name)}, with data in {_text(state.data) or '?'}")
    _row(facts, "process", _say_holder(own, alive, "joins"))
    when = f"last answered {_say_when(answered)}" if answered else "has not answered yet"
    _row(facts, "server", f"{'in contact' if fresh else 'no contact'}: it {when}")
    if state.left_out:
        _row(facts, "left out", f"the server does not let this site in: {_text(state.left_out)}")
    if state.run:
        _row(facts, "run", f"{_text(state.run)}, {_text(state.method)}, round {state.round}")
    doing = f"at work on: {_text(state.busy)}" if state.busy and alive is not False else ""
    done = f"{_text(state.job)}, {_say_when(state.time)}" if state.time else "none yet"
    _row(facts, "last job", doing or done)
    _row(
        facts, "reported", ", ".join(f"{_text(k)} {v:.4g}" for k, v in list(state.told.items())[:8]) or "nothing yet"
    )
    _row(facts, "traffic", f"{amount(state.sent)} sent, {amount(state.received)} received")
    _row(facts, "network", _text(state.model) or "none yet: it comes when a run is over")
    plain = {
        "kind": "site",
        "folder": str(folder),
        **state.model_dump(),
        "contact": answered or None,
        "connected": fresh,
        "process": own.model_dump() if own else None,
        "alive": alive,
    }
    return Group(facts, *_say_remarks(state.remarks, len(state.remarks))), plain, alive is False


def _site_table(sites: dict[str, SeenSite], alive: bool | None) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for head in ("site", "there", "refused", "what it has"):
        table.add_column(head, overflow="fold")
    for name, site in sorted(sites.items(), key=lambda item: natural_key(item[0])):
        if alive is False:
            there = "not known: the server is not running"
        elif site.here:
            there = f"since {_say_time(site.since)}"
        else:
            there = f"absent for {say_duration(time.time() - site.since)}, since {_say_time(site.since)}"
        table.add_row(*map(Text, (_text(name, _NAME), there, str(site.refused), _text(site.about))))
    return table


def _say_stage(state: ServerStatus, alive: bool | None) -> str:
    if state.stage == "done":
        return f"done, {_text(state.ending)}"
    if state.stage in ("failed", "stopped"):
        return f"{state.stage}: {_text(state.ending)}"
    if alive is False:
        return "interrupted"
    return "waiting for sites" if state.stage == "waiting" else "training"


def _say_holder(holder: Holder | None, alive: bool | None, verb: str) -> str:
    if holder is None:
        return "was never started here"
    where = f"process {holder.pid}, {verb} {_text(holder.place)}"
    if alive is None:
        return f"on another machine, {_text(holder.machine)}: not known from here ({where})"
    return f"running since {_say_time(holder.since)} ({where})" if alive else f"not running (was {where})"


def _say_remarks(remarks: list[Remark], count: int) -> list[Text]:
    if not remarks:
        return []
    last = remarks[-_SHOWN:]
    lines = [Text(), Text(f"warnings, the last {len(last)} of {count}:", style="bold")]
    return lines + [Text(f"  {_say_time(remark.time)}  {_text(remark.text)}") for remark in last]


def _row(table: Table, name: str, text: str) -> None:
    table.add_row(Text(name, style="bold"), Text(text, overflow="fold"))


def _text(text: str, most: int = _TEXT) -> str:
    return quote(text, most)


def _say_time(seconds: float) -> str:
    """A time of day, with the date where it is not today's."""
    then, today = time.localtime(seconds), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)


def _say_when(seconds: float) -> str:
    return f"{say_duration(max(0.0, time.time() - seconds))} ago, at {_say_time(seconds)}"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _print(shown: Group, facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts), flush=True)
    else:
        console = out if out.is_terminal else Console(width=1000)
        console.print(shown, highlight=False)


def _follow(look: Look, as_json: bool) -> None:
    """Shows it again and again; where nobody watches a screen, only when something was written."""
    try:
        if out.is_terminal and not as_json:
            shown, _, over = look()
            with Live(shown, console=out, auto_refresh=False) as live:
                while not over:
                    time.sleep(_EVERY)
                    shown, _, over = look()
                    live.update(shown, refresh=True)
            return
        last: Any = None
        while True:
            shown, facts, over = look()
            written = facts["time"], facts["alive"]
            if written != last:
                last = written
                _print(shown, facts, as_json)
            if over:
                return
            time.sleep(_EVERY)
    except KeyboardInterrupt:
        return
