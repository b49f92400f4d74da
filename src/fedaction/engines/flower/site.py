"""A site's side: its samples, its engine, what it keeps, and what it tells. Answers bytes with bytes."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from fedaction.data.client import ClientData, ClientInfo
from fedaction.engines.base import SimulatedEngine
from fedaction.engines.flower.earlier import Keeping, describe_kept, take_over
from fedaction.engines.flower.envelope import MOST_TEXT, Envelope, EnvelopeError, Front, open_envelope
from fedaction.engines.flower.held import CHANGED, JoinedData
from fedaction.engines.flower.install import Install, digest_install
from fedaction.engines.flower.keep import SiteStore, read_site_key
from fedaction.engines.flower.leaving import say_leaving
from fedaction.engines.flower.limits import Limits
from fedaction.engines.flower.members import read_members
from fedaction.engines.messages import MOST_BYTES, pack, unpack
from fedaction.engines.store import LocalState
from fedaction.evaluation.site import EVIDENCE, Evaluation, Question
from fedaction.federation.files import free_bytes
from fedaction.federation.pace import Pace
from fedaction.federation.processes import is_out_of_memory
from fedaction.federation.scope import Scope
from fedaction.federation.state import Job
from fedaction.federation.tree import Leaf, Tree, largest_values, tree_bytes
from fedaction.federation.words import quote
from fedaction.methods.base import Method

REPORTS: dict[str, str] = {
    "training": "the mean loss and other numbers of local training, which some methods weigh clients by",
    "metrics": "accuracy, balanced accuracy, F1 and loss on this site's test samples",
    "confusion": "how many test samples of each class were taken for which",
    "topology": "the learned graph of this site's skeletons, its own part included",
}
"""What a site may tell besides the tensors that it shares, by the word that its owner allows or cuts it with.
Recordings ("samples" in a simulation's report) are not among them: they never leave."""
USUAL_REPORTS = ("training", "metrics", "confusion")
"""What a site tells unless its owner says otherwise. A learned graph shows a part that is kept, so one must agree."""
MODEL = "model.safetensors"
"""In the folder that a site keeps of a run: its own network, once the run is over."""
_EMPTY_RUN = "0" * 32
_MOST_RECIPE = 256 << 10
_FULL = (errno.ENOSPC, errno.EDQUOT)
_STATES = 4  # of LOCAL tensors that a disk must have room for when a run begins


class SiteError(ValueError):
    """What a site will not do, and why."""


class Workshop(Protocol):
    """What makes a site's data and engine from a server's recipe."""

    def load(self, recipe: Mapping[str, Any]) -> ClientData:
        """This site's samples, prepared as a recipe says; a ValueError where they do not suit it."""
        ...

    def look(self) -> str:
        """What can be seen of the files with this site's data, without reading them."""
        ...

    def fingerprint(self, recipe: Mapping[str, Any]) -> str:
        """The same as long as the files that a recipe reads have the same contents."""
        ...

    def build(
        self,
        recipe: Mapping[str, Any],
        data: ClientData,
        members: Sequence[ClientInfo],
        install: Install,
        folder: Path,
    ) -> SiteWork:
        """What does this site's work among all members of the run, once `install` was found to suit it.

        `folder` is where the site keeps things of this run.
        """
        ...


@dataclass(frozen=True)
class SiteWork:
    """What does a site's work in a run."""

    method: Method
    """Over all members of the run."""
    engine: SimulatedEngine
    """Holds this site alone."""
    write_model: Callable[[Tree, Path], bool]
    """Writes this site's network, with what it shares and what it keeps, as a model file; False: there is none."""


@dataclass
class _Session:
    """The run that a site is in."""

    token: str
    recipe: Mapping[str, Any]
    held: JoinedData
    store: SiteStore
    work: SiteWork | None = None
    pace: Pace | None = None
    about: str = ""
    """What its LOCAL tensors belong to: a method, classes and shapes."""
    first: Tree = field(default_factory=dict[str, Tensor])
    """LOCAL tensors that it begins with, where those are not the method's first ones."""

    @property
    def data(self) -> ClientData:
        return self.held.data


class Note(Protocol):
    """Is told how a site stands: see `Diary.note`."""

    def __call__(self, **changes: str | int | Mapping[str, float]) -> object:
        """Fields of `SiteStatus` that have changed."""
        ...


def _note_nothing(**changes: str | int | Mapping[str, float]) -> None:
    """Where nobody keeps a diary."""


class Site:
    """One client on its own machine."""

    def __init__(
        self,
        name: str,
        folder: Path,
        workshop: Workshop,
        reports: Sequence[str] = USUAL_REPORTS,
        log: Callable[[str], object] = lambda _: None,
        limits: Limits = Limits(),  # noqa: B008
        note: Note = _note_nothing,
        keeping: Keeping = Keeping(),  # noqa: B008
    ) -> None:
        """Prepares a site.

        Args:
            name: the client's, unique in the federation.
            folder: where it keeps its key and its LOCAL tensors, from run to run.
            workshop: what makes its data and engine.
            reports: what it tells, of `REPORTS`.
            log: told what happens, for the site's owner.
            limits: what a server may ask of it at most.
            note: told how the site stands: see `Diary.note`.
            keeping: what becomes of tensors of earlier runs.
        """
        unknown = [word for word in reports if word not in REPORTS]
        if unknown:
            raise SiteError(f"a site cannot report {unknown[0]!r}; there are {', '.join(REPORTS)}")
        self.name, self._folder, self._workshop, self._log, self._note = name, folder, workshop, log, note
        self._reports, self._limits, self._keeping = frozenset(reports), limits, keeping
        self._key = read_site_key(folder / "site.key")
        self._run: _Session | None = None

    def answer(self, content: bytes) -> bytes:
        """What is sent back for a message; whatever is wrong with it is said in the answer, and nothing is done."""
        header = Front(kind="fault", run=_EMPTY_RUN, nonce=_EMPTY_RUN, client=self.name)
        try:
            envelope = open_envelope(content, MOST_BYTES)
            header = header.model_copy(update={"run": envelope.header.run, "nonce": envelope.header.nonce})
            sealed = self._do(envelope, header).seal()
            self._note(job=envelope.header.kind, busy="", sent=len(sealed), received=len(content))
            return sealed
        except ValueError as error:
            text = str(error)
        except OSError as error:  # whose text would tell where files lie
            full = "is full" if error.errno in _FULL else "or network failed"
            text = f"this site's disk {full}: {error.strerror or type(error).__name__}"
        except Exception as error:  # a fault of ours must not end the site; its owner sees all of it
            text = f"work failed at this site with {type(error).__name__}; its log says more"
            if is_out_of_memory(error):
                text = f"this needs more memory than this site has or allows ({self._limits.said_memory})"
            self._log(f"{type(error).__name__}: {error}")
        self._log(f"refused or failed: {text}")
        sealed = Envelope(header.model_copy(update={"text": text[:MOST_TEXT]})).seal()
        self._note(job="refused or failed", busy="", remark=text, sent=len(sealed), received=len(content))
        return sealed

    def _do(self, envelope: Envelope, answer: Front) -> Envelope:
        asked, parts = envelope.header, envelope.parts
        if asked.text:  # by the server, whoever that is
            word = "leaves this site out" if asked.kind == "refused" else "says"
            self._log(f"the server {word}: {quote(asked.text)}")
            self._note(remark=asked.text)
        if asked.kind == "refused":
            self._note(left_out=asked.text or "no reason was given")
            return Envelope(answer.model_copy(update={"kind": "refused"}))
        if asked.kind == "hello":
            return self._hello(asked, parts, answer)
        if asked.client != self.name:
            raise SiteError(f"a message for {asked.client!r} came to {self.name!r}")
        run = self._run
        if run is None or run.token != asked.run or (run.work is None and asked.kind != "begin"):
            return Envelope(answer.model_copy(update={"kind": "unknown"}))
        answer = answer.model_copy(update={"kind": asked.kind})
        if asked.kind == "begin":
            self._begin(run, parts)
            self._note(run=run.token, method=str(run.recipe.get("method")), round=0, told={}, left_out="")
            return Envelope(answer)
        if asked.kind not in ("train", "evaluate", "end"):
            raise SiteError(f"a site is not asked for {asked.kind!r}")
        job = self._read_job(run, _only(parts, 2 if asked.kind == "evaluate" else 1)[0])
        self._take_up(run, asked.basis)
        self._note(round=job.round, busy=asked.kind)
        if asked.kind == "end":
            self._end(run, job, asked.oldest)
            return Envelope(answer)
        self._check_data(run)
        if asked.kind == "train":
            return Envelope(answer, (self._train(run, job, asked.oldest),))
        return Envelope(answer, (self._evaluate(run, job, unpack(Question, parts[1])),))

    def _hello(self, asked: Front, parts: Sequence[bytes], answer: Front) -> Envelope:
        """Loads the samples as the run wants them, and says what the server may know of them."""
        recipe = read_recipe_part(_only(parts, 1)[0])
        run = self._run
        if run is None or run.token != asked.run or run.recipe != recipe or not run.held.is_unchanged():
            shop = self._workshop
            held = JoinedData.load(self.name, lambda: shop.load(recipe), shop.look, lambda: shop.fingerprint(recipe))
            self._close()
            run = self._run = _Session(asked.run, recipe, held, self._store(asked.run))
            data = run.data
            self._log(f"ready for run {asked.run}: {data.info.samples} training and {len(data.test)} test samples")
        held = run.data.validation
        splits = [name for name, there in (("test", run.data.test), ("validation", held)) if there and len(there)]
        said = {
            "kind": "hello",
            "proof": self._sign(asked.run.encode()),
            "data": self._sign(run.held.digest()),
            "splits": tuple(splits),
            "installed": digest_install(run.store.read_install()),
        }
        return Envelope(answer.model_copy(update=said), (pack(run.data.info),))

    def _begin(self, run: _Session, parts: Sequence[bytes]) -> None:
        """The federation is complete: the method is made over all its members, with what a site is sent once."""
        members, *sent = parts if len(parts) == 2 else _only(parts, 1)
        members = read_members(members)
        own = [member for member in members if member.id == self.name]
        if own != [run.data.info]:
            raise SiteError(f"the server describes {self.name!r} as {own}, but it is {run.data.info}")
        if run.work is not None:
            run.work.engine.close()
            run.work = None
        content = sent[0] if sent else run.store.read_install()
        install = Install.unpack(content)
        work = self._workshop.build(run.recipe, run.data, members, install, self._folder / run.token)
        if sent:
            run.store.write_install(content)
        run.work, plan = work, work.method.plan(work.method.clients[self.name])
        kept = [name for name, scope in plan.scopes.items() if scope is Scope.LOCAL]
        self._check_disk(plan.leaves, kept)
        leaves = {name: plan.leaves[name] for name in kept}
        run.about = describe_kept(run.recipe, run.data.info, leaves) if kept else ""
        run.first = take_over(self._keeping, self._folder, run.token, self.name, run.about, self._log)
        rounds = int(run.recipe.get("rounds", 0))
        self._log(f"{run.recipe.get('method')} with {len(members)} sites, {rounds} rounds")
        for line in say_leaving(plan, run.data, self._reports, tree_bytes(install.tensors)):
            self._log(line)

    def _check_data(self, run: _Session) -> None:
        """Refuses a job on other data than the site joined with, as the server does with one that starts anew."""
        unchanged = run.held.is_unchanged()
        self._note(left_out="" if unchanged else CHANGED)
        if not unchanged:
            raise SiteError(CHANGED)

    def _check_disk(self, leaves: Mapping[str, Leaf], kept: Sequence[str]) -> None:
        """Refuses a run that the disk has no room for, before there is work to lose."""
        sizes = {name: math.prod(leaf.shape) * leaf.dtype.itemsize for name, leaf in leaves.items()}
        wanted, free = _STATES * sum(sizes[name] for name in kept) + sum(sizes.values()), free_bytes(self._folder)
        if free < wanted:
            raise SiteError(
                f"this site's disk is full: {free:,} bytes are free, and its own tensors and network in this run "
                f"need about {wanted:,}; it takes part as soon as there is room"
            )

    def _read_job(self, run: _Session, content: bytes) -> Job:
        """A job, if it is this client's and its tensors are those that the method shares."""
        assert run.work is not None
        method = run.work.method
        job, info = unpack(Job, content), method.clients[self.name]
        if (job.client, job.group) != (self.name, info.group):
            raise SiteError(f"a job for {job.client!r} of {job.group!r} came to {self.name!r} of {info.group!r}")
        if min(job.version, job.round, job.number, job.epochs) < 0:
            raise SiteError(f"job {job.number} of round {job.round} asks for {job.epochs} epochs of {job.version}")
        self._limits.check_job(1, job.epochs)
        plan = method.plan(info)
        if {*job.payload} != {*plan.shared}:
            odd = sorted(job.payload.keys() ^ {*plan.shared})[0]
            raise SiteError(f"{odd!r} was sent and is not shared, or is shared and was not sent")
        for name, tensor in job.payload.items():
            leaf = plan.leaves[name]
            if (tuple(tensor.shape), tensor.dtype) != (leaf.shape, leaf.dtype):
                raise SiteError(
                    f"{name!r} was sent as {tensor.dtype} {tuple(tensor.shape)}; expected {leaf.dtype} {leaf.shape}"
                )
        floats = {name: tensor for name, tensor in job.payload.items() if tensor.is_floating_point()}
        for name, largest in zip(floats, largest_values(floats), strict=True):
            if not math.isfinite(largest):
                raise SiteError(f"{name!r} was sent with values that are NaN or infinite")
        return job

    def _take_up(self, run: _Session, basis: int) -> None:
        """The engine has the LOCAL tensors that count."""
        assert run.work is not None
        committed: dict[str, Tree] = {}
        names = {name for name, scope in run.work.method.scopes_of(self.name).items() if scope is Scope.LOCAL}
        tree = run.store.read(basis) if basis and names else run.first
        if tree:
            if {*tree} != names:
                raise SiteError(f"what this site kept after job {basis} is of another network")
            committed[self.name] = tree
        run.work.engine.store.load(LocalState(committed), torch.device("cpu"))  # engines copy them to where they work

    def _train(self, run: _Session, job: Job, oldest: int) -> bytes:
        assert run.work is not None
        engine = run.work.engine
        rounds = int(run.recipe.get("rounds", 0))
        pace = run.pace = run.pace or Pace(job.round - 1, rounds)
        self._log(f"round {job.round} of {rounds}: training from version {job.version}")
        (update,) = engine.train([job])
        kept = engine.store.pending(self.name)
        run.store.forget(oldest)  # first: a full disk may then have room
        if kept and not update.fault:
            run.store.write(job.occasion, kept)  # before the update leaves: what is combined must not be lost
        engine.drop([self.name])
        pace.advance(job.round)
        self._log(", ".join(filter(None, [f"round {job.round} of {rounds}: trained", pace.say_left()])))
        return pack(update if "training" in self._reports else replace(update, metrics={}))

    def _evaluate(self, run: _Session, job: Job, question: Question) -> bytes:
        assert run.work is not None
        wanted = tuple(kind for kind in question.evidence if kind in EVIDENCE and kind in self._reports)
        if question.split == "validation" and run.data.validation is None:
            raise SiteError(f"client {self.name!r} has no validation samples")
        (report,) = run.work.engine.evaluate([job], replace(question, evidence=wanted, samples=0))
        if "metrics" not in self._reports:
            report = Evaluation(report.client, {}, report.evidence, report.n)
        self._note(told={name: value for name, value in report.metrics.items() if math.isfinite(value)})
        return pack(report)

    def _end(self, run: _Session, job: Job, oldest: int) -> None:
        """The run is over: this site has its own network, in a file that predicts."""
        assert run.work is not None
        run.store.forget(oldest)
        path, own = self._folder / run.token / MODEL, run.work.engine.store.current(self.name)
        if own:
            run.store.write_last(run.about, own)
        written = run.work.write_model({**job.payload, **own}, path)
        self._log(f"the run is over; this site's network: {path if written else 'none that a file can hold'}")
        if written:
            self._note(model=str(path))

    def _store(self, run: str) -> SiteStore:
        return SiteStore(self._folder / run, self.name)

    def _sign(self, content: bytes) -> str:
        return hmac.new(self._key, content, hashlib.sha256).hexdigest()

    def _close(self) -> None:
        if self._run is not None and self._run.work is not None:
            self._run.work.engine.close()
        self._run = None


def read_recipe_part(content: bytes) -> dict[str, Any]:
    """A recipe as a message carries it: a flat JSON object. The workshop checks its keys."""
    if len(content) > _MOST_RECIPE:
        raise EnvelopeError(f"a recipe of {len(content)} bytes is larger than the {_MOST_RECIPE} that are allowed")
    try:
        recipe: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise EnvelopeError("what should be a recipe is no JSON") from None
    if not isinstance(recipe, dict):
        raise EnvelopeError("what should be a recipe is no JSON object")
    return {str(key): value for key, value in recipe.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _only(parts: Sequence[bytes], count: int) -> Sequence[bytes]:
    if len(parts) != count:
        raise EnvelopeError(f"a message has {len(parts)} parts; expected {count}")
    return parts
