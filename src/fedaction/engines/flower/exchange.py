"""The server's side of messages: who is there, what was asked, which answers are believed.

A question is bound to a word that nobody can guess; its answer must repeat it, in time, from the client that was
asked. Whoever vanishes and comes back, as another node perhaps, is asked again. All of it is a loop of its own over
three calls that do not block, whoever carries the messages.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fedaction.data.client import ClientInfo
from fedaction.engines.flower.envelope import (
    MOST_TEXT,
    Envelope,
    EnvelopeError,
    Front,
    Kind,
    draw_token,
)
from fedaction.engines.flower.install import digest_install
from fedaction.engines.flower.members import describe, hide, pack_members
from fedaction.engines.flower.requests import (
    MOST_HELLO,
    Bounce,
    Content,
    Failure,
    Joined,
    NobodyLeftError,
    Patience,
    Post,
    Request,
    read_content,
)
from fedaction.engines.messages import MessageError, unpack

_MOST_CLASSES = 100_000
_WAYS: tuple[Kind, ...] = ("hello", "refused", "begin", "train", "evaluate", "end")


@dataclass
class _Call:
    """A question under way."""

    request: Request
    node: int | None = None
    id: str | None = None
    nonce: str = ""
    kind: Kind = "hello"
    """What was sent last: the request's, or the "begin" that must come before."""
    tries: int = 0
    not_before: float = 0.0
    since: float = math.inf
    """When it was first sent."""
    result: Envelope | Failure | None = None

    @property
    def limit(self) -> int:
        """Bytes of an answer to what was sent last."""
        return self.request.limit if self.kind == self.request.kind else MOST_HELLO

    def put_back(self) -> None:
        self.node = self.id = None


@dataclass
class Exchange:
    """Asks the clients of one run, by name."""

    post: Post
    run: str
    """The run's word."""
    recipe: bytes
    """What sites are told of it, as JSON."""
    patience: Patience = field(default_factory=Patience)
    warn: Callable[[str], object] = lambda _: None
    tell: Callable[[str], object] = lambda _: None
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    joined: dict[str, Joined] = field(default_factory=dict[str, Joined])
    """Everybody who ever joined, by name."""
    closed: bool = False
    """Whether nobody else may join."""
    note: Callable[[str, str, str], object] = lambda _what, _name, _text: None
    """Told of who is "here" (with what it has), "gone" or "left out" (with the reason): what, name, text."""
    owners: Mapping[str, str] | None = None
    """Whose each key is, by its fingerprint, where sites have keys: none can join under another's name."""
    install: Callable[[str], bytes] = lambda _: b""
    """What a client is sent once in the run, with the message that begins it; b"": nothing."""
    wire: dict[str, dict[str, int]] = field(
        default_factory=lambda: {way: dict.fromkeys(_WAYS, 0) for way in ("sent", "received")}
    )
    """Bytes of messages so far, envelopes included: sent to sites and received from them, by the kind of message."""
    _nodes: dict[str, int] = field(default_factory=dict[str, int])  # those who are there, by name
    _lost: dict[str, float] = field(default_factory=dict[str, float])  # when others were last there
    _begun: set[str] = field(default_factory=set[str])
    _installed: dict[str, str] = field(default_factory=dict[str, str])  # digests of what clients say that they have
    _greeted: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])  # id and word by node
    _looked: float = float("-inf")
    _waiting: list[_Call] = field(default_factory=list[_Call])  # what `send` put under way
    _came: list[_Call] = field(default_factory=list[_Call])  # of those, what has an answer
    _words: dict[str, str] = field(default_factory=dict[str, str])  # what clients are told with their next question

    def tell_client(self, client: str, text: str) -> None:
        """Has a client told something with the next question that it is asked."""
        self._words[client] = text[:MOST_TEXT]

    @property
    def present(self) -> list[str]:
        """The clients that are there, as far as is known."""
        return sorted(self._nodes)

    def gather(self, count: int, wait: float) -> None:
        """Waits until so many clients are there; a ValueError where too few are after `wait` seconds.

        A run that has begun goes on with those who are there: rounds have a quorum for that.
        """
        end = self.now() + wait
        while len(self._nodes) < count:
            self._turn([])
            if self.now() > end:
                if self.closed and self._nodes:
                    self.warn(f"only {', '.join(self.present)} came back")
                    return
                raise ValueError(
                    f"{len(self._nodes)} of {count} sites have joined after {wait:g} s: {', '.join(self.present)}"
                )
            self.sleep(self.patience.poll)

    def ask(self, requests: Iterable[Request]) -> list[Envelope | Failure]:
        """Asks several clients at once; the answers in the order of the requests.

        Where nobody at all is there any more, a NobodyLeftError.
        """
        calls = [_Call(request) for request in requests]
        for call in calls:
            self._lost.setdefault(call.request.client, self.now())
        while True:
            began = self.now()
            self._go_on(calls)
            if all(call.result is not None for call in calls):
                break
            # Looking takes longer the more sites there are: a fifth of the time at most, so that a round's cost is
            # as many times greater as there are more sites, and no more.
            self.sleep(max(self.patience.poll, 4 * (self.now() - began)))
        if calls and not self._nodes:
            raise NobodyLeftError(
                f"none of {', '.join(sorted(self.joined))} is there; start the sites again, then resume"
            )
        return [call.result for call in calls if call.result is not None]

    def send(self, request: Request) -> None:
        """Asks a client without waiting for it; `take` has the answer once it has come."""
        self._lost.setdefault(request.client, self.now())
        self._waiting.append(_Call(request))
        self._send(self._waiting)

    def take(self) -> list[tuple[Request, Envelope | Failure]]:
        """The answers to what was sent that have come since this was last asked, in the order in which they came."""
        self._go_on([])
        came, self._came = self._came, []
        return [(call.request, call.result) for call in came if call.result is not None]

    def _go_on(self, calls: Sequence[_Call]) -> None:
        """One turn of the loop for some calls and all that is under way besides."""
        everything = [*self._waiting, *calls]
        self._turn(everything)
        for call in everything:
            if call.result is None:
                call.result = self._give_up(call)
        self._came.extend(call for call in self._waiting if call.result is not None)
        self._waiting = [call for call in self._waiting if call.result is None]

    def _give_up(self, call: _Call) -> Failure | None:
        name, now = call.request.client, self.now()
        if now - call.since > self.patience.answer:
            return Failure(f"client {name!r} did not answer within {self.patience.answer:g} s")
        if name not in self._nodes and now - self._lost[name] > self.patience.absence:
            return Failure(f"client {name!r} has been away for more than {self.patience.absence:g} s")
        return None

    def _turn(self, calls: Sequence[_Call]) -> None:
        """One turn of the loop: who is there, what can be sent, what has come."""
        if self.now() - self._looked >= self.patience.look:
            self._looked = self.now()
            self._look(calls)
        self._send(calls)
        under_way = {call.id: call for call in calls if call.id is not None and call.result is None}
        greetings = {id: node for node, (id, _) in self._greeted.items() if id}
        limits = {id: call.limit for id, call in under_way.items()}
        came = self.post.collect(limits | dict.fromkeys(greetings, MOST_HELLO))
        for id, content in came:
            if isinstance(content, bytes):
                self.wire["received"]["hello" if id in greetings else under_way[id].kind] += len(content)
            if id in greetings:
                self._meet(greetings[id], content, calls)
            elif id in under_way:
                self._hear(under_way[id], content)
        if came:
            self._send(calls)  # what was only waiting for them

    def _look(self, calls: Sequence[_Call]) -> None:
        """Notes who has gone, and greets whoever is new."""
        online = self.post.nodes()
        for name in [name for name, node in self._nodes.items() if node not in online]:
            self._miss(name, calls)
        for node in [node for node in self._greeted if node not in online]:
            del self._greeted[node]
        new = sorted(online - self._greeted.keys())
        words = [draw_token() for _ in new]
        sealed = [Envelope(Front(kind="hello", run=self.run, nonce=w), (self.recipe,)).seal() for w in words]
        ids = self._post([(node, "hello", content) for node, content in zip(new, sealed, strict=True)])
        for node, id, word in zip(new, ids, words, strict=True):
            if id is not None:
                self._greeted[node] = id, word

    def _miss(self, name: str, calls: Sequence[_Call]) -> None:
        """A client has vanished: what it was asked will be asked again when it is back."""
        self.warn(f"client {name!r} has gone; it has {self.patience.absence:g} s to come back")
        self.note("gone", name, "")
        node = self._nodes.pop(name)
        self._lost[name] = self.now()
        self._begun.discard(name)
        self._greeted.pop(node, None)
        for call in calls:
            if call.node == node:
                call.put_back()

    def _meet(self, node: int, content: Content, calls: Sequence[_Call]) -> None:
        """A node has answered "hello", and may be a client; else it is left alone, with a warning."""
        _, word = self._greeted[node]
        self._greeted[node] = "", ""  # not again
        if isinstance(content, Bounce):
            del self._greeted[node]  # its worker may still be starting: try again at the next look
            return
        said: Front | None = None
        try:
            envelope = read_content(content, MOST_HELLO)
            said = envelope.header
            if said.kind == "fault":
                raise EnvelopeError(f"it cannot join: {said.text}")
            if (said.kind, said.run, said.nonce) != ("hello", self.run, word) or len(envelope.parts) != 1:
                raise EnvelopeError("it answered another question than it was asked")
            owner = None if self.owners is None else self.owners.get(self.post.key(node), "nobody")
            if owner is not None and owner != said.client:
                raise EnvelopeError(f"it says that it is {said.client[:100]!r}, but its key is {owner!r}'s")
            client = self._admit(said, unpack(ClientInfo, envelope.parts[0]))
        except (EnvelopeError, MessageError) as error:
            self.warn(f"a node ({node}) is left out: {error}")
            self.note("left out", said.client if said else "", str(error))
            if said is None or said.kind != "fault":  # else its owner knows
                front = Front(kind="refused", run=self.run, nonce=draw_token(), text=str(error)[:MOST_TEXT])
                self._post([(node, "refused", Envelope(front).seal())])
            return
        name = client.info.id
        self.note("here", name, describe(client.info))
        self.tell(f"{name} has {'come back' if name in self.joined else 'joined'}: {describe(client.info)}")
        before = self._nodes.get(name)
        self.joined[name], self._nodes[name], self._installed[name] = client, node, said.installed
        self._begun.discard(name)
        for call in calls:
            if before is not None and call.node == before:
                call.put_back()

    def _admit(self, said: Front, info: ClientInfo) -> Joined:
        """A client as it describes itself, if it may be in this run."""
        name = said.client
        if not name or info.id != name:
            raise EnvelopeError(f"it is called {info.id!r} and {name!r} at once")
        if info.samples < 0 or len(info.classes) > _MOST_CLASSES or len(set(info.classes)) != len(info.classes):
            raise EnvelopeError(f"it says that {name!r} has {info.samples} samples of {len(info.classes)} classes")
        client = Joined(info, said.proof, said.data, said.splits)
        known = self.joined.get(name)
        if known is None:
            if self.closed:
                raise EnvelopeError(f"{name!r} came after the run had begun; it can join the next one")
            if not said.proof:
                raise EnvelopeError(f"{name!r} gave no proof of who it is")
            return client
        if known.proof != said.proof:
            raise EnvelopeError(f"another site has already joined as {name!r}; one of them needs another --name")
        if known != client:
            raise EnvelopeError(f"the data of {name!r} are not those that it joined with; put them back as they were")
        return client

    def _send(self, calls: Sequence[_Call]) -> None:
        """Sends what can be sent now, to each client one message at a time.

        A client is told who else is in the run before its first job.
        """
        messages: list[tuple[int, Kind, bytes]] = []
        sent: list[_Call] = []
        first = {call.request.client: call for call in reversed(calls) if call.result is None}
        for call in calls:
            node, now = self._nodes.get(call.request.client), self.now()
            if first.get(call.request.client) is not call or call.id is not None:
                continue
            if node is None or now < call.not_before:
                continue
            request, call.nonce, call.since = call.request, draw_token(), min(call.since, now)
            if request.client not in self._begun:
                request = Request(request.client, "begin", self._first_parts(request.client))
            call.node, call.kind = node, request.kind
            header = Front(
                kind=request.kind,
                run=self.run,
                nonce=call.nonce,
                client=request.client,
                basis=request.basis,
                oldest=request.oldest,
                text=self._words.pop(request.client, ""),
            )
            messages.append((node, request.kind, Envelope(header, request.parts).seal()))
            sent.append(call)
        for call, id in zip(sent, self._post(messages), strict=True):
            call.id = id
            if id is None:  # it was not taken
                self._again(call, "a message could not be sent")

    def _first_parts(self, client: str) -> tuple[bytes, ...]:
        """What begins a run at a client: who else is in it and, where it has not got it yet, what is sent once."""
        install = self.install(client)
        has = digest_install(install) == self._installed.get(client, "")
        return (self._members_for(client),) if has else (self._members_for(client), install)

    def _members_for(self, client: str) -> bytes:
        """Everybody's descriptions; how many samples others have is no client's business."""
        infos = [hide(self.joined[name].info) if name != client else self.joined[name].info for name in self.joined]
        return pack_members(sorted(infos, key=lambda info: info.id))

    def _hear(self, call: _Call, content: Content) -> None:
        """An answer has come to a call; it is believed, refused, or asked for again."""
        name, node = call.request.client, call.node
        call.id = None
        if isinstance(content, Bounce):
            if not content.lost:
                self._again(call, content.reason)
            elif self._nodes.get(name) == node:
                self._miss(name, [call])
            else:
                call.put_back()
            return
        try:
            envelope = read_content(content, call.limit)
        except EnvelopeError as error:
            call.result = Failure(f"client {name!r} sent what is no answer: {error}")
            return
        said = envelope.header
        if (said.run, said.nonce, said.client) != (self.run, call.nonce, name):
            call.result = Failure(f"client {name!r} answered another question than it was asked")
        elif said.kind == "fault":
            call.result = Failure(f"client {name!r} could not do it: {said.text}")
        elif said.kind == "unknown":  # it was started anew, and will be told again
            self._begun.discard(name)
            self._forget_node(name)
            self._again(call, "it does not know the run")
        elif said.kind != call.kind:
            call.result = Failure(f"client {name!r} answered {said.kind!r} to {call.kind!r}")
        elif call.kind == "begin":
            self._begun.add(name)
            call.put_back()
        else:
            call.result = envelope

    def _forget_node(self, name: str) -> None:
        """A client that knows nothing of the run is greeted again, whatever node it is."""
        node = self._nodes.pop(name, None)
        self._lost[name] = self.now()
        self.note("gone", name, "")
        if node is not None:
            self._greeted.pop(node, None)

    def _again(self, call: _Call, reason: str) -> None:
        """A call is put back, a few times."""
        call.put_back()
        call.tries += 1
        call.not_before = self.now() + self.patience.retry
        if call.tries >= self.patience.tries:
            call.result = Failure(f"client {call.request.client!r} failed {call.tries} times: {reason[:200]}")

    def _post(self, messages: Sequence[tuple[int, Kind, bytes]]) -> list[str | None]:
        if not messages:
            return []
        for _, kind, content in messages:
            self.wire["sent"][kind] += len(content)
        return self.post.send(messages)


def splits_of(joined: Mapping[str, Joined], split: str) -> list[str]:
    """The clients that can be tested on a split, sorted by name."""
    return [name for name in sorted(joined) if split in joined[name].splits]
