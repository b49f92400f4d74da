"""A site that has a key and means harm, with a SuperNode of its own making: real processes, Flower's real wire."""

import math
import random
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    add_header_to_object_body,
    get_all_nested_objects,
    get_object_id,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedaction.engines.flower.envelope import open_envelope
from fedaction.engines.flower.post import unwrap, wrap
from fedaction.engines.flower.site import Site
from fedaction.engines.flower.status import STATUS, ServerStatus, read_record
from fedaction.engines.messages import MOST_BYTES, unpack
from fedaction.federation.progress import Quiet
from fedaction.federation.state import Job
from fedaction.runs.metrics import read_rows
from fedaction.runs.sites import SiteWorkshop
from tests.engines.flower.places import make_recipe, make_stores, simulated
from tests.engines.flower.processes import Machine
from tests.engines.flower.test_contract import compare_tensors
from tests.engines.flower.test_faults import Deaf, make_keys
from tests.engines.flower.test_hostile_sites import change_tree, fill
from tests.engines.flower.test_inbox import make_tree, repeat_piece

pytestmark = pytest.mark.slow
ROGUE = "gym"


class RogueNode:
    """Speaks Flower's Fleet API by itself, signed with a site's key."""

    def __init__(self, address: str, keys: Path, name: str) -> None:
        private = load_ssh_private_key((keys / name).read_bytes(), None)
        self._public = public_key_to_bytes(private.public_key())
        signed = NodeAuthHttpInterceptor(private, private.public_key())
        version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
        certificate = (keys / "ca.crt").read_bytes()
        self.client = FleetHttpClient.from_server_address(address, False, certificate, [version, signed])
        self.node, self.statuses = Node(), list[int]()

    def activate(self) -> bool:
        try:
            request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=30.0)
            self.node = Node(node_id=self.client.ActivateNode(request).node_id)
            return True
        except httpx.HTTPError:
            return False

    def beat(self) -> None:
        self.client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=30.0))

    def fetch(self) -> Message | None:
        """The next question."""
        said = self.client.PullMessages(PullMessagesRequest(node=self.node))
        if not said.messages_list:
            return None
        asked = message_from_proto(said.messages_list[0])
        id, run, pieces = asked.metadata.message_id, asked.metadata.run_id, {}
        for part in iterate_object_tree(said.message_object_trees[0]):
            request = PullObjectRequest(node=self.node, run_id=run, object_id=part.object_id)
            while not (piece := self.client.PullObject(request)).object_available:
                time.sleep(0.1)
            pieces[part.object_id] = piece.object_content
        confirmation = ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=id)
        self.client.ConfirmMessageReceived(confirmation)
        whole = inflate_object_from_contents(id, pieces)
        whole.metadata.__dict__["_message_id"] = id
        return whole

    def announce(self, head: Message, tree: ObjectTree, **changes: object) -> str:
        """Says that an answer comes; its session. `changes` are made in what is said of it."""
        said = message_to_proto(remove_content_from_message(head) if head.has_content() else head)
        for name, value in {"message_id": tree.object_id, **changes}.items():
            setattr(said.metadata, name, value)
        request = PushMessagesRequest(node=self.node, messages_list=[said], message_object_trees=[tree])
        return self.client.PushMessages(request).session_id

    def push(self, session: str, head: Message, pieces: dict[str, bytes]) -> None:
        for id, content in pieces.items():
            request = PushObjectRequest(
                node=self.node,
                run_id=head.metadata.run_id,
                session_id=session,
                object_id=id,
                object_content=content,
            )
            self.client.PushObject(request)

    def send(self, answer: Message, pause: float = 0.0) -> None:
        """Sends an answer as Flower would; with a pause, its last piece comes late."""
        answer.metadata.__dict__["_message_id"] = answer.object_id
        pieces = {id: part.deflate() for id, part in get_all_nested_objects(answer).items()}
        session = self.announce(answer, get_object_tree(answer))
        last = pieces.popitem()
        self.push(session, answer, pieces)
        time.sleep(pause)
        self.push(session, answer, dict([last]))

    def try_out(self, head: Message, tree: ObjectTree | None = None, **changes: object) -> None:
        """Says what it must not; the status that it is refused with is kept."""
        try:
            self.announce(head, tree or ObjectTree(object_id=get_object_id(b"nothing")), **changes)
            self.statuses.append(200)
        except httpx.HTTPStatusError as error:
            self.statuses.append(error.response.status_code)


def send_record(make):
    """Other bytes than the site's answer, or no bytes."""
    return lambda node, asked, answer, before: node.send(Message(make(answer, before), reply_to=asked))


def use_another_record(answer, before):
    """Bytes that are sound, where nobody looks for them."""
    return RecordDict({"fedaction": ConfigRecord({"fedaction": answer})})


def send_error(node, asked, answer, before):
    """As if Flower had lost this site."""
    node.send(Message(Error(code=5, reason="gone \x1b[2J" * 1000), reply_to=asked))


def send_no_message(node, asked, answer, before):
    """Pieces that are sound, of something else than a message."""
    record, head = RecordDict({"one": MetricRecord({"x": 1.0})}), Message(wrap(answer), reply_to=asked)
    session = node.announce(head, get_object_tree(record))
    node.push(session, head, {id: part.deflate() for id, part in get_all_nested_objects(record).items()})


def send_garbage(node, asked, answer, before):
    """One piece that says that it is a message, and is none inside."""
    head = Message(wrap(answer), reply_to=asked)
    content = add_header_to_object_body(object_body=b"\xff" * 99, obj=Message(Error(1, ""), reply_to=asked))
    node.push(
        node.announce(head, ObjectTree(object_id=get_object_id(content))), head, {get_object_id(content): content}
    )


def send_bomb(node, asked, answer, before):
    """Half a megabyte that Flower would unfold to 20 GB."""
    head = Message(wrap(bytes(500_000)), reply_to=asked)
    id, pieces = repeat_piece(head, 40_000)
    node.push(node.announce(head, make_tree(id, pieces)), head, pieces)


def send_crumbs(node, asked, answer, before):
    """Announces thousands of pieces, and then some hundreds."""
    children = [ObjectTree(object_id=get_object_id(str(n).encode())) for n in range(3000)]
    head, tree = (
        Message(wrap(answer), reply_to=asked),
        ObjectTree(object_id=get_object_id(b"many"), children=children),
    )
    node.try_out(head, tree)
    node.announce(head, ObjectTree(object_id=tree.object_id, children=children[:300]))


def send_what_is_not_its_own(node, asked, answer, before):
    """In another's name, to what nobody asked it, and to another site as if from the server; then soundly."""
    head = Message(wrap(answer), reply_to=asked)
    node.try_out(head, src_node_id=node.node.node_id + 1)
    node.try_out(head, reply_to_message_id="")
    node.try_out(head, reply_to_message_id="", src_node_id=1, dst_node_id=77)
    node.try_out(head, reply_to_message_id=get_object_id(b"another's"))  # is dropped without a word
    node.send(head)


TRIES = [  # what the gym does in each round; what is said of it
    (send_record(lambda answer, before: wrap(answer)), ""),
    (send_record(lambda answer, before: wrap(change_tree(fill(math.nan))(answer, before))), "NaN or infinite"),
    (send_record(lambda answer, before: wrap(random.Random(7).randbytes(5000))), "no message of this version"),
    (
        send_record(lambda answer, before: RecordDict({"fedaction": ConfigRecord({"fedaction": answer})})),
        "no message",
    ),
    (send_record(lambda answer, before: wrap(bytes(30 << 20))), "are the most that were expected"),
    (send_record(lambda answer, before: wrap(before)), "answered another question"),  # replayed
    (send_error, "failed 3 times: Flower's error 5"),
    (send_no_message, "no message of Flower's but a RecordDict"),
    (send_garbage, "no message of Flower's (DecodeError"),
    (send_bomb, "it would unfold to 20"),
    (send_crumbs, "would come in 301 pieces"),
    (send_what_is_not_its_own, ""),
    (lambda node, asked, answer, before: node.send(Message(wrap(answer), reply_to=asked), 3.0), ""),
]


def attack(node: RogueNode, site: Site, over: threading.Event) -> None:
    """Takes part as the site does, but for what it sends of its training."""
    before, beat = b"", 0.0
    while not over.wait(0.2):
        if not node.node.node_id and not node.activate():
            continue
        if time.monotonic() - beat > 10:
            node.beat()
            beat = time.monotonic()
        asked = node.fetch()
        if asked is None:
            continue
        question = unwrap(asked.content)
        envelope, answer = open_envelope(question, MOST_BYTES), site.answer(question)
        if envelope.header.kind != "train":
            node.send(Message(wrap(answer), reply_to=asked))
            continue
        do, _ = TRIES[unpack(Job, envelope.parts[0]).round - 1]
        do(node, asked, answer, before)
        before = answer


def test_whatever_a_rogue_site_sends_the_run_is_as_if_it_had_been_silent(tmp_path):
    stores = make_stores(tmp_path)
    paths = {name: stores[name] for name in ("clinic", ROGUE)}
    recipe = make_recipe(paths, "fsar", rounds=len(TRIES), quorum=0.5, evaluate_every=len(TRIES))
    keys = make_keys(tmp_path / "keys", paths)
    over = threading.Event()
    with Machine(tmp_path, paths, recipe, keys) as machine:
        machine.serve("--sites", "2")
        machine.join("clinic")
        node = RogueNode(f"127.0.0.1:{machine.port}", keys[ROGUE], ROGUE)
        site = Site(ROGUE, tmp_path / "sites" / ROGUE, SiteWorkshop(ROGUE, paths[ROGUE], "cpu"))
        rogue = threading.Thread(target=follow, args=(node, site, over), daemon=True)
        rogue.start()
        try:
            machine.finish()
        finally:
            over.set()
            rogue.join(30)
    bad = {number for number, (_, reason) in enumerate(TRIES, 1) if reason}
    rows = read_rows(machine.run / "metrics.jsonl")
    refused = {(row.client, row.round) for row in rows if row.client and row.name == "refused"}
    assert refused == {(ROGUE, number) for number in bad}
    assert node.statuses == [413, 403, 403, 403, 200]
    texts = [line["text"] for line in machine.news() if "is not used" in line["text"]]
    assert len(texts) == len(bad) and all(len(text) < 3000 for text in texts)
    for text, number in zip(texts, sorted(bad), strict=True):
        assert TRIES[number - 1][1] in text
    assert not any("resumes from its last checkpoint" in line for line in machine.read_log("server").splitlines())
    status = read_record(ServerStatus, machine.run / STATUS)
    assert status is not None and status.sites[ROGUE].refused == len(bad)
    assert all(any(reason in remark.text for remark in status.remarks) for _, reason in TRIES)
    quiet = Deaf(recipe, simulated(recipe), tmp_path / "simulated", Quiet())
    quiet.lost = frozenset(refused)
    quiet.execute()
    compare_tensors(tmp_path / "simulated", machine.run)
    others = [
        [row for row in read_rows(folder / "metrics.jsonl") if not row.name.startswith("bytes")]
        for folder in (tmp_path / "simulated", machine.run)
    ]
    assert others[0] == others[1]  # what was refused has been sent: it is counted


def follow(node: RogueNode, site: Site, over: threading.Event) -> None:
    """Attacks until it is over; what stops it is tried again, as a site would after a cut line."""
    while not over.is_set():
        try:
            attack(node, site, over)
        except httpx.HTTPError as error:
            print(f"the rogue: {error}")
