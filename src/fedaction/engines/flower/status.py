"""How a served run, or a site, stands: small files that those at work keep and `fedaction status` reads.

Each is one JSON object, replaced whole, bounded, and checked when it is read: names and texts in it come from other
machines. Nothing here needs torch or Flower.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from fedaction.federation.files import write_atomically
from fedaction.federation.outside import read_file
from fedaction.federation.processes import has_ended
from fedaction.federation.progress import Progress
from fedaction.federation.words import quote

STATUS = "status.json"
"""In a served run's directory, and in a site's folder."""
SERVE = "serve.json"
"""In a served run's directory: the process of `fedaction serve`."""
JOIN = "join.json"
"""In a site's folder: the process of `fedaction join`."""
CONTACT = "contact"
"""In a site's folder: was touched when the server last answered."""
CALL = "call"
"""In a site's folder: was touched when its SuperNode last had a message for the worker."""
MOST_REMARKS = 50
"""Remarks that are kept: the last ones."""
_MOST_NAME = 100
_MOST_WORDS = 500
_MOST_SITES = 100_000
_MOST_FILE = 64 << 20
_PACE = 10  # rounds that the time left is told from

Stage = Literal["waiting", "training", "done", "failed", "stopped"]
Kept = TypeVar("Kept", bound=BaseModel)
Moment = Annotated[FiniteFloat, Field(ge=0, le=253_402_300_799)]
"""Seconds since 1970, up to the year 9999: what no calendar has cannot be shown."""
Duration = Annotated[FiniteFloat, Field(ge=0, le=10**12)]
"""Seconds."""
Count = Annotated[int, Field(ge=0, le=2**63)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=False)


class Holder(_Record):
    """A process that keeps a run or a site going."""

    pid: int = Field(ge=1)
    born: str = ""
    """When it was started, as its system counts it; "": not known. A later process with its number has another."""
    machine: str = ""
    place: str = Field(default="", max_length=1000)
    """Where the server listens, or which one a site joins: HOST:PORT."""
    since: Moment = 0.0
    """Seconds since 1970."""

    @classmethod
    def own(cls, place: str) -> Holder:
        """This process."""
        pid = os.getpid()
        return cls(pid=pid, born=_born(pid), machine=platform.node(), place=place, since=time.time())

    def alive(self) -> bool | None:
        """Whether it is there; None: it was started on another machine, which cannot be seen from here."""
        if self.machine != platform.node():
            return None
        return not is_gone(self.pid) and _born(self.pid) == self.born


class SeenSite(_Record):
    """A site, as the server sees it."""

    here: bool = False
    since: Moment = 0.0
    """When it came or went, in seconds since 1970."""
    about: str = ""
    """What it has, in a few words."""
    refused: Count = 0
    """How many of its updates were not used."""


class Remark(_Record):
    """What the server's owner should know."""

    time: Moment
    text: str


class ServerStatus(_Record):
    """How a served run stands."""

    stage: Stage = "waiting"
    ending: str = ""
    """How it ended, in words."""
    time: Moment = 0.0
    """When this was written, in seconds since 1970."""
    wanted: Count = 0
    """How many sites begin it."""
    method: str = ""
    round: Count = 0
    rounds: Count = 0
    metric: str = "accuracy"
    value: FiniteFloat | None = None
    """The last mean of the metric over sites, 0 to 1."""
    measured: Count = 0
    """The round that it was taken in."""
    pace: Duration | None = None
    """Seconds that a round has taken lately."""
    sites: dict[str, SeenSite] = Field(default_factory=dict, max_length=_MOST_SITES)
    left_out: Count = 0
    """How often a site was not let in."""
    warnings: Count = 0
    remarks: list[Remark] = Field(default_factory=list[Remark], max_length=MOST_REMARKS)
    sent: Count = 0
    """Bytes of messages, to all sites."""
    received: Count = 0


class SiteStatus(_Record):
    """How a site stands."""

    name: str = ""
    data: str = ""
    time: Moment = 0.0
    """When the last message was answered, in seconds since 1970; 0: none was."""
    job: str = ""
    """What it asked for."""
    busy: str = ""
    """What is being done now."""
    run: str = ""
    method: str = ""
    round: Count = 0
    told: dict[str, FiniteFloat] = Field(default_factory=dict[str, float], max_length=1000)
    """The numbers that were reported last."""
    sent: Count = 0
    """Bytes of answers, since the site's folder was made."""
    received: Count = 0
    model: str = ""
    """Where the network of the last run lies that came to its end."""
    left_out: str = ""
    """Why the server does not let this site in; "": it does."""
    remarks: list[Remark] = Field(default_factory=list[Remark], max_length=MOST_REMARKS)


def read_record(kind: type[Kept], path: Path) -> Kept | None:
    """A file of these; None where there is none, a ValueError where it is none of these."""
    try:
        return kind.model_validate_json(read_file(path, _MOST_FILE))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise ValueError(f"{path} cannot be read: {first['msg']}; move it away, and it is made anew") from None


def write_record(record: BaseModel, path: Path) -> None:
    """Replaces a file of these."""
    write_atomically(path, record.model_dump_json(indent=1).encode())


def _keep(record: BaseModel, path: Path) -> None:
    """Replaces a file of these; where the disk is full, a run goes on without."""
    with suppress(OSError):
        write_record(record, path)


def is_gone(pid: int) -> bool:
    """Whether a process of this machine has ended."""
    words = _stat(pid)
    return has_ended(pid) or (bool(words) and words[0] == "Z")


def _born(pid: int) -> str:
    words = _stat(pid)
    return words[19] if len(words) > 19 else ""


def _stat(pid: int) -> list[str]:
    """What Linux says of a process after its name; nothing on other systems."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _add(remarks: list[Remark], text: str) -> list[Remark]:
    return [*remarks, Remark(time=time.time(), text=quote(text, _MOST_WORDS))][-MOST_REMARKS:]


class Watch:
    """A `Progress` that keeps a served run's status beside telling another one."""

    def __init__(self, path: Path, progress: Progress, wanted: int, method: str, rounds: int) -> None:
        """Goes on from what the last server app has left; nobody is there yet."""
        self._path, self._progress = path, progress
        try:
            left = read_record(ServerStatus, path)
        except ValueError:
            left = None
        self._status = left or ServerStatus()
        self._status.stage, self._status.ending = "waiting", ""
        self._status.wanted, self._status.method, self._status.rounds = wanted, quote(method, _MOST_NAME), rounds
        now = time.time()
        for site in self._status.sites.values():
            if site.here:
                site.here, site.since = False, now
        self._before = self._status.sent, self._status.received
        self._wire: Mapping[str, Mapping[str, int]] = {}
        self._times: list[float] = []
        self._write()

    def count(self, wire: Mapping[str, Mapping[str, int]]) -> None:
        """Has the bytes counted that an exchange keeps: "sent" and "received"."""
        self._wire = wire

    @property
    def wire(self) -> dict[str, int]:
        """Bytes of all messages so far, those of earlier server apps included."""
        sent, received = self._before
        now = {way: sum(self._wire.get(way, {}).values()) for way in ("sent", "received")}
        return {"sent": sent + now["sent"], "received": received + now["received"]}

    def start(self, label: str, done: int, total: int, *, unit: str = "", metric: str = "") -> None:
        """See `Progress`."""
        self._progress.start(label, done, total, unit=unit, metric=metric)
        self._status.stage, self._status.round, self._status.rounds = "training", done, total
        self._status.metric, self._times = metric, [time.monotonic()]
        self._write()

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        """See `Progress`."""
        self._progress.advance(label, done, value)
        self._times = [*self._times, time.monotonic()][-1 - _PACE :]
        self._status.round = done
        self._status.pace = (self._times[-1] - self._times[0]) / max(1, len(self._times) - 1)
        if value is not None:
            self._status.value, self._status.measured = value, done
        self._write()

    def tell(self, message: str) -> None:
        """See `Progress`."""
        self._progress.tell(message)

    def warn(self, message: str) -> None:
        """See `Progress`."""
        self._progress.warn(message)
        self._status.warnings += 1
        self._status.remarks = _add(self._status.remarks, message)
        self._write()

    def note(self, event: str, client: str, text: str) -> None:
        """A site has come ("here", with what it has), has "gone", or was "left out"."""
        now, status = time.time(), self._status
        if event == "left out":
            status.left_out += 1
        elif event == "here":
            known = status.sites.get(client, SeenSite())
            since = known.since if known.here else now
            about = quote(text, _MOST_WORDS)
            status.sites[client] = SeenSite(here=True, since=since, about=about, refused=known.refused)
        elif client in status.sites:
            status.sites[client].here, status.sites[client].since = False, now
        self._write()

    def refuse(self, client: str) -> None:
        """An update was not used."""
        self._status.sites.setdefault(client, SeenSite()).refused += 1
        self._write()

    def end(self, stage: Stage, text: str) -> None:
        """The server app ends: "done", "failed" or "stopped"."""
        self._status.stage, self._status.ending = stage, quote(text, _MOST_WORDS)
        self._write()

    def _write(self) -> None:
        wire = self.wire
        self._status.time, self._status.sent, self._status.received = time.time(), wire["sent"], wire["received"]
        _keep(self._status, self._path)


class Diary:
    """Keeps a site's status."""

    def __init__(self, path: Path, name: str, data: Path, log: Callable[[str], object]) -> None:
        """Goes on from what an earlier worker has left."""
        try:
            left = read_record(SiteStatus, path)
        except ValueError as error:
            log(str(error))
            left = None
        self._path, self._status = path, left or SiteStatus()
        self._status.name, self._status.data = name, str(data)

    def note(self, **changes: str | int | Mapping[str, float]) -> None:
        """What has changed: fields of `SiteStatus`; `remark` is added, and so are `sent` and `received`."""
        status = self._status
        for name, value in changes.items():
            if name == "remark":
                status.remarks = _add(status.remarks, str(value))
            elif name in ("sent", "received"):
                setattr(status, name, getattr(status, name) + value)
            else:
                setattr(status, name, quote(value, _MOST_WORDS) if isinstance(value, str) else value)
        if "job" in changes:
            status.time = time.time()
        _keep(status, self._path)
