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


def test_bytes_come_through_a_record_as_they_were():
    from flwr.app import RecordDict

    from fedaction.engines.flower.post import unwrap, wrap

    content = bytes(range(256)) * 50_000  # more than one of Flower's pieces
    assert unwrap(wrap(content)) == content and unwrap(RecordDict()) == b""
