"""Answers are fetched piece by piece, each by itself: what one site sends, or does not, is its own affair."""

import json
import random
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

import httpx
from flwr.app import Array, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    add_header_to_object_body,
    get_all_nested_objects,
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_id,
    get_object_tree,
)
from flwr.supercore.task_identity import TaskIdentity

from fedaction.engines.flower.inbox import Inbox
from fedaction.engines.flower.post import unwrap, wrap
from fedaction.engines.flower.requests import Spoiled

SITE = 7


@pytest.fixture(autouse=True)
def be_in_a_task(monkeypatch):
    """As in a server app."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Link:
    """A grid, and the SuperLink behind it."""

    def __init__(self) -> None:
        self.node, self.run, self._runtime_client = Node(node_id=1), SimpleNamespace(run_id=3), self
        self.come: dict[str, tuple[str, ObjectTree]] = {}
        self.pieces: dict[str, bytes] = {}
        self.fetched, self.confirmed, self.status = 0, list[str](), 0

    def put(self, question, thing, pieces=None):
        """An answer to a question, all of whose pieces are there, or some."""
        whole = {id: part.deflate() for id, part in get_all_nested_objects(thing).items()}
        self.come[question] = thing.object_id, get_object_tree(thing)
        self.pieces |= dict([*whole.items()][:pieces])
        return whole

    def PullMessages(self, request):
        self.fail()
        here = [(*self.come.pop(id), id) for id in list(request.message_ids) if id in self.come]
        heads = [SimpleNamespace(message_id=a, src_node_id=SITE, reply_to_message_id=q) for a, _, q in here]
        messages = [SimpleNamespace(metadata=head) for head in heads]
        return SimpleNamespace(messages_list=messages, message_object_trees=[tree for _, tree, _ in here])

    def PullObject(self, request):
        self.fail()
        self.fetched += 1
        content = self.pieces.get(request.object_id, b"")
        return SimpleNamespace(object_found=True, object_available=bool(content), object_content=content)

    def ConfirmMessageReceived(self, request):
        self.confirmed.append(request.message_object_id)

    def fail(self):
        if self.status:
            request = httpx.Request("POST", "http://link")
            raise httpx.HTTPStatusError("no", request=request, response=httpx.Response(self.status, request=request))


def make_answer(content=b"answer"):
    asked = Message(RecordDict(), dst_node_id=SITE, message_type="train")
    asked.metadata.__dict__.update(_message_id="q", _run_id=3)
    return Message(wrap(content), reply_to=asked)


MOST = {"q": 1 << 20, "p": 1 << 20}


def test_an_answer_of_which_a_piece_is_late_holds_nobody_up():
    link = Link()
    inbox, whole = Inbox(link), link.put("q", make_answer(), pieces=2)
    link.put("p", make_answer(b"other"))
    ((question, source, answer),) = inbox.take(MOST)
    assert (question, source, unwrap(answer.content)) == ("p", SITE, b"other")
    assert inbox.take(MOST) == []
    link.pieces |= whole
    link.status = 500  # its database is busy
    assert inbox.take(MOST) == []
    link.status = 0
    ((question, _, answer),) = inbox.take(MOST)
    assert (question, unwrap(answer.content)) == ("q", b"answer") and len(link.confirmed) == 2
    assert inbox.take(MOST) == []


def test_no_more_is_fetched_of_an_answer_than_it_may_have():
    link = Link()
    link.put("q", make_answer(random.Random(3).randbytes(60 << 20)))  # in twelve pieces
    ((_, _, answer),) = Inbox(link).take(MOST)
    assert isinstance(answer, Spoiled) and "the 1048576 bytes that are the most" in answer.reason
    assert link.fetched < 7 and len(link.confirmed) == 1
    link.come["p"] = "many", ObjectTree(object_id="many", children=[ObjectTree(object_id=str(n)) for n in range(90)])
    ((_, _, answer),) = Inbox(link).take(MOST)
    assert answer == Spoiled("it would come in 91 pieces") and link.fetched < 7


def repeat_piece(answer, times):
    """The pieces of an answer whose one array names its one piece so often; its id."""
    whole = {id: (part, part.deflate()) for id, part in get_all_nested_objects(answer).items()}
    (old, array), *_ = [(id, part) for id, (part, _) in whole.items() if isinstance(part, Array)]
    body = json.loads(get_object_body(whole[old][1], Array))
    assert body["arraychunk_ids"] == [0]
    new = {old: add_header_to_object_body(json.dumps({**body, "arraychunk_ids": [0] * times}).encode(), array)}
    pieces = {id: content for id, (_, content) in whole.items()}
    while new:  # what is above it is called otherwise, too
        old, content = new.popitem()
        id = get_object_id(content)
        pieces = {name: text for name, text in pieces.items() if name != old} | {id: content}
        new |= {n: c.replace(old.encode(), id.encode()) for n, c in pieces.items() if old.encode() in c}
    return id, pieces


def make_tree(id, pieces):
    parts = get_object_children_ids_from_object_content(pieces[id])
    return ObjectTree(object_id=id, children=[make_tree(part, pieces) for part in parts])


def test_an_answer_does_not_unfold_to_more_than_it_may_have():
    link = Link()
    id, pieces = repeat_piece(make_answer(bytes(1000)), 3)
    link.come["q"], link.pieces = (id, make_tree(id, pieces)), dict(pieces)
    ((_, _, answer),) = Inbox(link).take(MOST)
    assert len(unwrap(answer.content)) == 3000  # within what it may have it is read
    id, pieces = repeat_piece(make_answer(bytes(1000)), 1_000_000)
    link.come["q"], link.pieces = (id, make_tree(id, pieces)), dict(pieces)
    ((_, _, answer),) = Inbox(link).take({"q": 4 << 20})
    assert isinstance(answer, Spoiled) and "would unfold to 10" in answer.reason


def test_what_is_no_message_is_said():
    link = Link()
    link.put("q", RecordDict({"a": wrap(b"x")["fedaction"]}))
    ((_, _, answer),) = Inbox(link).take(MOST)
    assert answer == Spoiled("it is no message of Flower's but a RecordDict")
    link.come["p"], link.pieces["bad"] = ("bad", ObjectTree(object_id="bad")), b"Message  3\x00abc"
    ((_, _, answer),) = Inbox(link).take(MOST)
    assert isinstance(answer, Spoiled) and "its pieces are no message of Flower's" in answer.reason


def test_an_answer_that_nobody_waits_for_any_more_is_let_go():
    link = Link()
    link.put("q", make_answer(), pieces=1)
    inbox = Inbox(link)
    assert inbox.take(MOST) == [] and link.confirmed == []
    assert inbox.take({"p": 5}) == [] and len(link.confirmed) == 1
