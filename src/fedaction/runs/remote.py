"""A run whose sites are elsewhere: the server has descriptions, its own state and what comes back."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedaction.data.client import ClientInfo
from fedaction.engines.base import SimulatedEngine
from fedaction.engines.flower.envelope import Token, draw_token
from fedaction.engines.flower.exchange import Exchange, Joined, NobodyLeftError, Patience, Post, splits_of
from fedaction.engines.flower.install import installer
from fedaction.engines.flower.server import FlowerEngine, QuorumError
from fedaction.engines.flower.status import STATUS, ServerStatus, Watch, write_record
from fedaction.engines.messages import pack, unpack
from fedaction.evaluation.divergence import Distances
from fedaction.federation.files import (
    hold_folder,
    lock_folder,
    remove_partial,
    write_atomically,
    write_json,
    write_sealed_json,
)
from fedaction.federation.outside import read_file
from fedaction.federation.settings import to_toml
from fedaction.federation.state import Job
from fedaction.methods.base import Method
from fedaction.runs.assembly import Assembled, make_rounds
from fedaction.runs.checkpoint import RunState
from fedaction.runs.deploy import SERVER, write_index, write_model
from fedaction.runs.judge import judge
from fedaction.runs.recipe import Recipe, load_recipe
from fedaction.runs.result import RESULT_FILE
from fedaction.runs.single import SingleRun
from fedaction.runs.sites import check_real, recipe_for_sites
from fedaction.runs.stop import is_over
from fedaction.runs.study import RunResult, summary
from fedaction.server.live import Live, NoAnswerError
from fedaction.server.state import FederationState, Row

ROLL = "sites.json"
"""In a run's directory: the run's word, how long the server waits, and everybody who has joined."""
NEWS = "news.jsonl"
"""In a run's directory: what happens, line by line, for whoever waits."""


class _Enrolled(BaseModel):
    """A client in the roll."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    info: str
    proof: str
    data: str
    splits: tuple[str, ...]


class Roll(BaseModel):
    """What a server must remember of its sites besides checkpoints, to go on after it was killed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Token = Field(default_factory=draw_token)
    """The run's word, which sites know it by."""
    count: int = Field(ge=1)
    """How many sites begin it."""
    wait: float = Field(default=600.0, gt=0)
    """Seconds that the server waits for them."""
    answer: float = Field(default=3600.0, gt=0)
    """See `Patience.answer`."""
    absence: float = Field(default=120.0, gt=0)
    """See `Patience.absence`."""
    keys: dict[str, str] | None = None
    """Whose each key is, by its fingerprint; None: sites have no keys."""
    members: tuple[_Enrolled, ...] = ()
    """Who has joined; nobody else can, once the run has begun."""

    @classmethod
    def read(cls, folder: Path) -> Roll:
        """The roll of a run's directory."""
        path = folder / ROLL
        try:
            return cls.model_validate_json(read_file(path))
        except ValidationError as error:
            raise ValueError(f"{path} is no list of sites: {error.errors()[0]['msg']}") from None

    def write(self, folder: Path) -> None:
        """Keeps it."""
        write_atomically(folder / ROLL, self.model_dump_json(indent=1).encode())

    def enrol(self, joined: Mapping[str, Joined]) -> Roll:
        """The roll with everybody who has joined."""
        members = [
            _Enrolled(info=pack(one.info).hex(), proof=one.proof, data=one.data, splits=one.splits)
            for _, one in sorted(joined.items())
        ]
        return self.model_copy(update={"members": tuple(members)})

    def joined(self) -> dict[str, Joined]:
        """Everybody in it, by name."""
        read = [Joined(unpack(ClientInfo, bytes.fromhex(m.info)), m.proof, m.data, m.splits) for m in self.members]
        return {one.info.id: one for one in read}


class News:
    """A `Progress` that writes lines into a run's directory; another process shows them."""

    def __init__(self, path: Path, attempt: str = "") -> None:
        self._path, self._metric, self._attempt = path, "", attempt

    def start(self, label: str, done: int, total: int, *, unit: str = "", metric: str = "") -> None:
        """See `Progress`."""
        self._metric = metric
        self._write("start", f"{label}: from {unit} {done} of {total}", round=done, rounds=total)

    def advance(self, label: str, done: int, value: float | None = None) -> None:
        """See `Progress`."""
        result = "" if value is None else f", {self._metric} {value:.1%}"
        self._write("round", f"{label}: {done}{result}", round=done, **_used())

    def tell(self, message: str) -> None:
        """See `Progress`."""
        self._write("tell", message)

    def warn(self, message: str) -> None:
        """See `Progress`."""
        self._write("warn", message)

    def end(self, kind: str, message: str) -> None:
        """The last line: "done", "failed" or "stopped"; where it cannot be written, what led to it is what counts."""
        with suppress(OSError):
            self._write(kind, message)

    def _write(self, kind: str, text: str, **more: Any) -> None:
        who = {"time": time.time(), "pid": os.getpid(), "attempt": self._attempt}
        line = json.dumps({**who, "kind": kind, "text": text, **more})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _used() -> dict[str, float]:
    """CPU seconds of this thread, which does all of the server's work, and the most bytes that its process had."""
    used: dict[str, float] = {"cpu": time.thread_time()}
    try:
        import resource
    except ImportError:  # Windows does not say
        return used
    return {**used, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


@dataclass(frozen=True)
class RemoteAssembly:
    """What a run of real sites is made of. Is an `Assembled`."""

    recipe: Recipe
    method: Method
    exchange: Exchange

    @property
    def engine_name(self) -> str:
        """See `Assembled.engine_name`."""
        return "flower"

    @property
    def device(self) -> torch.device:
        """See `Assembled.device`. The server only adds; sites compute where they like."""
        return torch.device("cpu")

    @property
    def described(self) -> Mapping[str, ClientInfo]:
        """See `Assembled.described`."""
        return self.method.clients

    @property
    def seed(self) -> int:
        """See `Assembled.seed`."""
        return self.recipe.run.seeds[0]

    @property
    def tested(self) -> list[str]:
        """See `Assembled.tested`."""
        return splits_of(self.exchange.joined, "test")

    @property
    def validated(self) -> list[str]:
        """See `Assembled.validated`."""
        return splits_of(self.exchange.joined, "validation")

    def engine(self) -> SimulatedEngine:
        """See `Assembled.engine`. With validation a run may go back to any round, so sites keep all."""
        run = self.recipe.run
        observers = [Distances(self.method)] if run.update_distances else []
        history = 0 if run.validation else run.keep_checkpoints + 1
        return FlowerEngine(self.exchange, history, None if self.method.buffer else run.quorum, observers)


class RemoteRun(SingleRun):
    """A run over sites elsewhere. LOCAL tensors are not here, nor is anything that is made of them."""

    def __init__(self, recipe: Recipe, exchange: Exchange, folder: Path, progress: Watch) -> None:
        """`recipe` names one method and one seed; everybody has joined."""
        kind, settings = recipe.kinds[recipe.run.method], recipe.methods[recipe.run.method]
        infos = [exchange.joined[name].info for name in sorted(exchange.joined)]
        assembly: Assembled = RemoteAssembly(recipe, kind(infos, settings), exchange)
        exchange.install = installer(assembly.method, assembly.seed)

        def refused(client: str, text: str) -> None:
            exchange.tell_client(client, text)
            progress.refuse(client)

        words = {name: joined.data for name, joined in exchange.joined.items()}
        self._prepare(recipe, assembly, folder, progress, (), words, refused)
        self.rounds = make_rounds(recipe, self.federation, exchange.now)

    def engine(self, state: RunState) -> SimulatedEngine:
        """See `SingleRun.engine`."""
        engine = self.assembly.engine()
        engine.store.load(state.locals, self.assembly.device)
        return engine

    def _test(self, state: FederationState, engine: SimulatedEngine) -> list[Row]:
        """See `SingleRun._test`. Where nobody waits, sites are tested when they have time, but after the last round.

        The rows are those of the last test that all sites have done, and only then is the next one begun: a round
        that was tested was tested everywhere.
        """
        run = self.recipe.run
        if not isinstance(self.rounds, Live):
            return super()._test(state, engine)
        assert isinstance(engine, FlowerEngine)
        if run.validation or is_over(run, state.round, (-1.0, 0), state.time):
            rows = super()._test(state, engine)  # after all that sites were asked before
            return self._rows_of_test(engine) + rows
        rows = self._rows_of_test(engine)
        if not engine.is_testing:
            engine.begin_test(self.federation.tests(state, self._draw(self.assembly.tested)))
        return rows

    def _rows_of_test(self, engine: FlowerEngine) -> list[Row]:
        """The rows of the last test that sites did when they had time, if all have."""
        done = engine.end_test()
        reports = self.federation.check((job.round, job.client, report) for job, report in done)
        return self._rows_of(done[0][0].round, reports) if done else []

    def _finish(self, state: RunState, engine: SimulatedEngine) -> None:
        super()._finish(state, engine)
        assert isinstance(engine, FlowerEngine)
        method, state = self.assembly.method, self._chosen(state, engine)
        server, round = state.server, state.round
        infos = method.clients.values()
        engine.end(Job(i.id, i.group, server.version, round, method.served(server, i)) for i in infos)

    def _write_models(self, state: RunState, engine: SimulatedEngine) -> None:
        left = "each site has its own network; the server's tensors are in checkpoints"
        described = self.assembly.described  # of video, a network that everybody shares is the server's to write
        whole = self.recipe.run.data == "video" and write_model(
            self.folder / SERVER, self.recipe, described, state.server
        )
        write_index(self.folder, state.round, SERVER if whole else None, {}, left, state.seal.word)


def open_run(recipe: Recipe, folder: Path, roll: Roll) -> Recipe:
    """Makes a run's directory, from which the server app takes all it needs. Returns the recipe as it is run."""
    check_real(recipe)
    only = recipe.only(recipe.run.method, recipe.run.seeds[0])
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "recipe.toml", to_toml(only.flat()).encode())
    roll.write(folder)
    begun = ServerStatus(time=time.time(), wanted=roll.count, method=only.run.method, rounds=only.run.rounds)
    write_record(begun, folder / STATUS)
    return only


@contextmanager
def _lock_in_time(folder: Path, seconds: float = 60.0) -> Generator[None]:
    """See `lock_folder`. A server app whose SuperLink was killed has seconds yet to live: it is waited for."""
    end = time.monotonic() + seconds
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock_folder(folder))
                break
            except ValueError:
                if time.monotonic() > end:
                    raise
                time.sleep(1)
        yield


def carry_out(post: Post, folder: Path, attempt: str = "") -> RunResult:
    """Carries out the run of a directory, or what is left of it, over sites that messages reach.

    Whoever follows the news knows its lines by the `attempt`.
    """
    with hold_folder(folder):  # so that what has gone is not made anew by saying that it has
        return _carry_out(post, folder, attempt)


def _carry_out(post: Post, folder: Path, attempt: str) -> RunResult:
    news, watch = News(folder / NEWS, attempt), None
    try:
        with _lock_in_time(folder):
            remove_partial(folder)
            recipe, roll = load_recipe(folder / "recipe.toml"), Roll.read(folder)
            known = roll.joined()
            told = json.dumps(recipe_for_sites(recipe)).encode()
            patience = Patience(answer=roll.answer, absence=roll.absence)
            watch = Watch(folder / STATUS, news, roll.count, recipe.run.method, recipe.run.rounds)
            exchange = Exchange(post, roll.run, told, patience, watch.warn, watch.tell, note=watch.note)
            watch.count(exchange.wire)
            exchange.joined, exchange.closed = dict(known), bool(known)
            exchange.owners = roll.keys
            news.tell(f"waiting for {roll.count} sites")
            exchange.gather(roll.count, roll.absence if known else roll.wait)
            if not known:
                roll.enrol(exchange.joined).write(folder)
                exchange.closed = True
            RemoteRun(recipe, exchange, folder, watch).execute()
            result = summary(recipe, folder)
            result["warnings"] = judge([result])
            write_sealed_json(folder / RESULT_FILE, result)
            write_json(folder / "wire.json", exchange.wire)
            watch.end("done", f"accuracy {result['mean']:.1%}")
        news.end("done", f"accuracy {result['mean']:.1%}")
        return result
    except Exception as error:
        known = isinstance(error, (ValueError, QuorumError, NobodyLeftError, NoAnswerError))
        text = str(error) if known else f"{type(error).__name__}: {error}"
        if watch is not None:
            watch.end("failed", text)
        news.end("failed", text)
        raise
    except BaseException as error:  # it was told to stop, and may be started again
        if watch is not None:
            watch.end("stopped", type(error).__name__)
        news.end("stopped", type(error).__name__)
        raise
