"""What this package takes for granted of Flower beside its public names; a later Flower must be looked at first."""

import inspect
from importlib.metadata import version

import pytest

flwr = pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")


def test_flower_is_one_that_was_looked_at():
    assert version("flwr").split(".")[:2] in (["1", "41"], ["1", "42"])


def test_the_worker_finds_what_it_calls():
    from flwr.supercore.constant import TaskType
    from flwr.supercore.heartbeat import HeartbeatSender
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supernode.runtime import run_clientapp

    assert [*inspect.signature(run_clientapp.pull_task_input).parameters] == ["client"]
    assert [*inspect.signature(run_clientapp.push_message).parameters] == ["client", "message", "context"]
    outputs = inspect.signature(run_clientapp.push_task_output).parameters
    assert [*outputs] == ["client", "context", "sub_status", "details"]
    assert hasattr(RuntimeHttpClient, "AcquireTask") and hasattr(HeartbeatSender, "is_running")
    assert TaskType.CLIENT_APP


def test_waits_can_be_shortened():
    from flwr.supercore.inflatable import inflatable_utils
    from flwr.supernode import start_client_internal

    from fedaction.engines.flower.node import shorten_backoff

    before = inflatable_utils.pull_objects.__kwdefaults__["initial_backoff"]
    try:
        assert before == 1 and shorten_backoff(0.1)
        assert inspect.signature(inflatable_utils.pull_objects).parameters["initial_backoff"].default == 0.1
    finally:
        inflatable_utils.pull_objects.__kwdefaults__["initial_backoff"] = before
    text = inspect.getsource(start_client_internal)
    assert "run_id = _pull_and_store_message(\n                state=state," in text and "if run_id is None:" in text
    assert "time.sleep(3)" in text and text.count("time.") == text.count("time.sleep(") + text.count("total time.")


def test_who_has_nothing_to_do_looks_less_and_less_until_a_message_comes():
    from fedaction.engines.flower.node import Rests

    time, slept = [0.0], []
    rests = Rests(0.3, lambda: time[0], slept.append)
    fetch, send = rests.follow(lambda found: found, lambda: None)
    for moment, found in ((0.0, None), (2.0, None), (8.0, None), (100.0, None), (100.0, 0), (106.0, None)):
        time[0] = moment
        fetch(found)
        rests.sleep(3)
    assert slept == pytest.approx([0.3, 0.5, 2.0, 3.0, 0.3, 1.5])
    time[0] = 150.0
    send()
    rests.sleep(3)
    rests.sleep(0.1)
    assert slept[6:] == pytest.approx([0.3, 0.1])  # never longer than Flower would


def test_a_worker_waits_for_the_call_of_its_supernode(tmp_path):
    from threading import Event, Thread

    from fedaction.engines.flower.node import call_worker
    from fedaction.engines.flower.worker import Worker

    path, told, over = tmp_path / "call", Event(), Event()
    fetch = call_worker(lambda run: run, path)
    assert fetch(None) is None and not path.exists()
    worker = Worker("127.0.0.1:1", b"0" * 64, bytes, path, patience=1e9)

    def wait():
        worker._rest(worker._last_call(), over.is_set)
        told.set()

    for end in (lambda: fetch(7), lambda: fetch(0), over.set):
        told.clear()
        thread = Thread(target=wait, daemon=True)
        thread.start()
        assert not told.wait(0.5)
        end()
        assert told.wait(60)
        thread.join()
    Worker("127.0.0.1:1", b"0" * 64, bytes, path, patience=0.1)._rest(worker._last_call(), lambda: False)
    worker.close()


def test_an_answer_that_lies_there_is_sent_and_a_supernode_goes_on(monkeypatch):
    """With Flower's own state and its own steps; only what would be the network is the test's."""
    from flwr.app import Message
    from flwr.supercore.object_store import ObjectStoreFactory
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.supernode import start_client_internal as node
    from flwr.supernode.nodestate import NodeStateFactory

    from fedaction.engines.flower.node import flush_replies
    from fedaction.engines.flower.post import wrap

    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    objects = ObjectStoreFactory()
    state, store, sent = NodeStateFactory(objects).state(), objects.store(), []
    state.set_node_id(7)

    def send(message, object_tree, duration):
        sent.append(message.metadata.reply_to_message_id)
        return set(), ""

    def put_reply(name):
        asked = Message(wrap(b"question"), dst_node_id=7, message_type="train")
        asked.metadata.__dict__.update(_message_id=name, _run_id=3)
        node._insert_message(Message(wrap(name.encode()), reply_to=asked), state, store)

    fetch, push = flush_replies(lambda **_: None, node._push_messages)
    for names in (["one"], ["two", "three"], []):
        for name in names:
            put_reply(name)
        got = fetch(state=state)
        assert got == (0 if names else None)
        if got is not None:
            push(state=state, object_store=store, send=send, push_object=lambda *_: None)
    assert sent == ["one", "two", "three"] and not state.get_messages_legacy(is_reply=True)
    fetch, push = flush_replies(lambda **_: 5, node._push_messages)  # with a message, all is as Flower has it
    put_reply("four")
    assert fetch(state=state) == 5
    push(state=state, object_store=store, send=send, push_object=lambda *_: None)
    assert sent[-1] == "four"
    text = inspect.getsource(node)
    assert text.count("_push_messages(\n                state=state,") == 1  # by name, as it is replaced


def test_bytes_come_through_a_record_as_they_were():
    from flwr.app import RecordDict

    from fedaction.engines.flower.post import unwrap, wrap

    content = bytes(range(256)) * 50_000  # more than one of Flower's pieces
    assert unwrap(wrap(content)) == content and unwrap(RecordDict()) == b""


def test_a_heartbeat_can_be_set_within_what_flower_takes():
    from flwr.supercore import heartbeat
    from flwr.supernode import fleet_http_connection

    from fedaction.engines.flower.node import set_heartbeat

    before = heartbeat.HEARTBEAT_DEFAULT_INTERVAL
    try:
        assert before == fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL == 30
        assert set_heartbeat(12) and fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL == 12
        assert "heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL" in inspect.getsource(fleet_http_connection)
        assert "HEARTBEAT_DEFAULT_INTERVAL - HEARTBEAT_CALL_TIMEOUT" in inspect.getsource(heartbeat)
        with pytest.raises(ValueError, match="10 s at least"):
            set_heartbeat(9)
    finally:
        set_heartbeat(before)


def test_a_node_that_was_started_again_is_missed_once():
    from flwr.proto.node_pb2 import NodeInfo

    from fedaction.engines.flower.post import FlowerPost

    class Grid:
        nodes: tuple[NodeInfo, ...] = ()

        def get_nodes(self) -> tuple[NodeInfo, ...]:
            return self.nodes

    grid = Grid()
    post = FlowerPost(grid)
    old, other = (NodeInfo(node_id=number, last_activated_at="10:00") for number in (7, 8))
    grid.nodes = (old, other)
    assert post.nodes() == post.nodes() == {7, 8}
    grid.nodes = (NodeInfo(node_id=7, last_activated_at="10:05"), other)
    assert [post.nodes() for _ in range(3)] == [{8}, {7, 8}, {7, 8}]


def test_a_superlink_says_whose_key_a_node_has_and_which_it_knows():
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.error.base import ApiErrorCode
    from flwr.supercore.error.catalog import API_ERROR_MAP

    from fedaction.engines.flower.launch import _IN_USE
    from fedaction.engines.flower.post import FlowerPost

    class Grid:
        def get_nodes(self) -> list[NodeInfo]:
            return [NodeInfo(node_id=7, public_key=b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")]

    post = FlowerPost(Grid())
    post.nodes()
    assert len(post.key(7)) == 64 and post.key(8) == ""
    assert _IN_USE in API_ERROR_MAP[ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE].public_message


def test_a_gate_stands_where_requests_come_in_and_answers_are_taken():
    """Real processes are asked in test_gate.py; here is what the gate takes the place of."""
    import importlib

    from flwr.supercore import sql_mixin
    from flwr.supercore.cli import flower_superexec
    from flwr.supercore.protobuf.client import ProtobufClient
    from flwr.superlink.routers.fleet import router
    from flwr.superlink.servicer.fleet import fleet_handlers

    superlink = importlib.import_module("flwr.superlink.cli.flower_superlink")
    assert "uvicorn.run(\n        app=fastapi_app," in inspect.getsource(superlink)
    assert "command = _get_superexec_command(\n" in inspect.getsource(superlink)
    assert 'command = ["flower-superexec"]' in inspect.getsource(superlink._get_superexec_command)
    assert callable(flower_superexec) and [*inspect.signature(ProtobufClient._send).parameters][:2] == [
        "self",
        "context",
    ]
    for name in ("push_messages", "push_object"):
        assert {*inspect.signature(getattr(fleet_handlers, name)).parameters} == {"request", "state"}
        assert f"fleet_handlers.{name}(request=request, state=state)" in inspect.getsource(router)
    assert all(len(pragma) == 2 for pragma in sql_mixin.SQLITE_PRAGMAS)
    assert "in SQLITE_PRAGMAS:" in inspect.getsource(sql_mixin)


def test_the_inbox_finds_what_it_calls():
    from flwr.superlink.grid.http_grid import HttpGrid

    from fedaction.engines.flower import inbox

    assert isinstance(inspect.getattr_static(HttpGrid, "_runtime_client"), property) and hasattr(HttpGrid, "run")
    assert [*inspect.signature(inbox.inflate_object_from_contents).parameters][:2] == ["object_id", "object_contents"]
