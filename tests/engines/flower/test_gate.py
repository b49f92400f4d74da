"""What a SuperLink's port offers to strangers, to sites and to its own machine."""

import asyncio
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from http.client import HTTPSConnection
from pathlib import Path
from ssl import create_default_context
from types import SimpleNamespace

import pytest

from fedaction.engines.flower import gate
from fedaction.engines.flower.gate import HEADER, AnswerGate, Gate, draw_secret


def ask(path, peer="10.0.0.7", heads=None, secret=b"word", kind="http"):
    """The status of a refusal, or 200 where the application behind the gate was reached."""
    sent, reached = [], []

    async def app(scope, receive, send):
        reached.append(scope)

    async def send(message):
        sent.append(message)

    async def receive():
        raise AssertionError("a refused request is not read")

    raw = [(name.encode(), value.encode()) for name, value in (heads or {}).items()]
    scope = {"type": kind, "path": path, "client": (peer, 5000), "headers": raw}
    asyncio.run(Gate(app, secret)(scope, receive, send))
    return 200 if reached else sent[0].get("status", sent[0]["type"])


OUTSIDE = ("/v1/fleet/pull-messages", "/health")
INSIDE = (
    "/v1/control/start-run",
    "/v1/runtime/acquire-task",
    "/docs",
    "/openapi.json",
    "/",
    "/v1/other",
    "/V1/FLEET/",
)


def test_sites_reach_what_is_theirs_and_this_machine_the_rest():
    assert [ask(path) for path in OUTSIDE] == [200, 200]
    for peer in ("10.0.0.7", "127.0.0.2", "::ffff:10.0.0.7", "fe80::1", ""):
        assert [ask(path, peer) for path in INSIDE] == [403] * len(INSIDE)
    assert ask("/v1/runtime/push-object", "127.0.0.1") == ask("/docs", "::1") == 200
    assert ask("/health", kind="websocket") == "websocket.close" and ask("/", kind="lifespan") == 200


def test_runs_and_their_work_want_the_secret_even_here():
    for path in ("/v1/control/start-run", "/v1/runtime/acquire-task"):
        assert ask(path, "127.0.0.1") == ask(path, "127.0.0.1", {HEADER: "other"}) == 401
        assert ask(path, "127.0.0.1", {HEADER: "word"}) == 200
        assert ask(path, "10.0.0.7", {HEADER: "word"}) == 403
        assert ask(path, "127.0.0.1", secret=b"") == 200


@pytest.mark.parametrize(
    ("path", "heads", "status"),
    [
        ("/v1/fleet/push-object", {"content-length": str(6 << 20)}, 200),
        ("/v1/fleet/push-object", {"content-length": str(9 << 20)}, 413),
        ("/v1/fleet/push-messages", {"content-length": str(100 << 10)}, 200),
        ("/v1/fleet/push-messages", {"content-length": str(1 << 20)}, 413),
        ("/v1/fleet/push-messages", {"content-length": "9" * 5000}, 413),
        ("/v1/fleet/push-messages", {"content-length": "-1"}, 413),
        ("/v1/fleet/push-object", {"transfer-encoding": "chunked"}, 411),
        ("/health", {"content-length": "1"}, 413),
    ],
)
def test_a_request_is_bounded_before_it_is_read(path, heads, status):
    assert ask(path, heads=heads) == status


class Refused(Exception):
    """As what Flower answers with."""


def make_fleet(tmp_path, taken):
    """Flower's steps, which take everything."""

    def announce(request, state):
        return SimpleNamespace(objects_to_push=["a"], session_id=f"s{request.messages_list[0].metadata.message_id}")

    handlers = SimpleNamespace(
        push_messages=announce, push_object=lambda request, state: taken.append(request.object_content)
    )
    return AnswerGate(handlers, tmp_path, lambda status, text: Refused(status))


def announce(fleet, node=7, source=7, reply="q", message="m", tree=b"tree", count=1, pieces=3):
    metadata = SimpleNamespace(src_node_id=source, reply_to_message_id=reply, message_id=message)
    children = [SimpleNamespace(children=[])] * (pieces - 1)
    parts = SimpleNamespace(SerializeToString=lambda deterministic: tree, children=children)
    request = SimpleNamespace(
        node=SimpleNamespace(node_id=node),
        messages_list=[SimpleNamespace(metadata=metadata)] * count,
        message_object_trees=[parts] * count,
    )
    return fleet.push_messages(request=request, state=None)


def push(fleet, node=7, session="sm", size=10):
    node = SimpleNamespace(node_id=node)
    fleet.push_object(request=SimpleNamespace(node=node, session_id=session, object_content=bytes(size)), state=None)


def test_a_site_sends_its_own_answers_alone_and_so_much_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "MOST_MESSAGE", 25)
    taken = []
    fleet = make_fleet(tmp_path, taken)
    with pytest.raises(Refused, match="403"):
        push(fleet)  # of nothing that was announced
    for wrong in ({"source": 8}, {"reply": ""}, {"count": 0}, {"count": 2}, {"pieces": 2000}):
        with pytest.raises(Refused, match=r"40[03]|413"):
            announce(fleet, **wrong)
    announce(fleet)
    announce(fleet)  # the same again, as after a cut connection
    with pytest.raises(Refused, match="403"):
        announce(fleet, tree=b"another tree")
    with pytest.raises(Refused, match="403"):
        push(fleet, node=8)
    push(fleet)
    push(fleet)
    announce(fleet)
    with pytest.raises(Refused, match="413"):
        push(fleet)
    announce(fleet, message="n", reply="r")
    push(fleet, session="sn")
    monkeypatch.setattr(gate, "_LEAST_FREE", 1 << 62)
    with pytest.raises(Refused, match="507"):
        push(fleet, session="sn")
    assert len(taken) == 3


def test_a_secret_is_its_owners_alone_and_another_each_time(tmp_path):
    first = draw_secret(tmp_path / "new" / "secret").read_bytes()
    second = draw_secret(tmp_path / "new" / "secret")
    assert len(first) == 64 and second.read_bytes() != first
    assert second.stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------- real processes


@contextmanager
def open_server(folder, host="localhost"):
    """A SuperLink with keys as `fedaction serve --host 0.0.0.0` starts it; its folder, port, and folders of keys."""
    pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")
    from fedaction.engines.flower.launch import ServerKeys, connect, free_port
    from fedaction.engines.flower.link import OwnLink
    from tests.engines.flower.test_faults import make_keys

    keys = make_keys(folder / "keys", ["gym"], host)
    trusted, port = ServerKeys(keys["server"]), free_port()
    with (folder / "superlink.log").open("wb") as log:
        link = OwnLink(folder / "flower", "0.0.0.0", port, log, trusted)
        link.open()
        try:
            connect(folder / "flower", port, trusted)
            yield folder / "flower", port, keys
        finally:
            link.close()


def write_app(folder, mark):
    """An app whose server app says that it ran."""
    from fedaction.engines.flower.launch import run_files

    server = (
        f"import time\nfrom flwr.serverapp import ServerApp\n\nopen({str(mark)!r}, 'w').close()\napp = ServerApp()\n"
        "@app.main()\ndef main(grid, context):\n    time.sleep(60)\n"
    )
    for name, text in run_files("", server).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.slow
def test_a_stranger_on_the_network_can_not_run_stop_or_register_anything(tmp_path):
    """With Flower's own command, which knows the server by ca.crt, from a network of its own."""
    pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")
    from fedaction.engines.flower.keys import make_site_key
    from fedaction.engines.flower.launch import flower_environment
    from tests.engines.flower.test_faults import open_network

    name, mark, home = f"fg{os.getpid()}", tmp_path / "was-here", tmp_path / "stranger"
    write_app(home / "app", mark)
    public = make_site_key("stranger", home / "keys")["public"]
    with open_network(name) as (address, _), open_server(tmp_path, address) as (_, port, keys):
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "x"\n\n[superlink.x]\naddress = "{address}:{port}"\n'
            f'root-certificates = "{keys["gym"] / "ca.crt"}"\n'
        )
        commands = (
            ["list", "x"],
            ["run", str(home / "app"), "x"],
            ["stop", "1", "x"],
            ["supernode", "list", "x"],
            ["supernode", "register", str(public), "x"],
            ["supernode", "unregister", "1", "x"],
        )
        for command in commands:
            done = subprocess.run(
                ["ip", "netns", "exec", name, str(Path(sys.executable).parent / "flwr"), *command],
                env=flower_environment(home),
                capture_output=True,
                text=True,
                check=False,
            )
            assert "403 Forbidden" in done.stdout + done.stderr, (command, done.stdout, done.stderr)
    assert not mark.exists()


@pytest.mark.slow
def test_who_has_not_the_secret_can_do_nothing_on_the_servers_machine_either(tmp_path):
    """Whoever started the SuperLink can: a run is handed in, runs, and is stopped."""
    from fedaction.engines.flower.gate import is_open

    mark = tmp_path / "was-here"
    with open_server(tmp_path) as (home, port, keys):
        from flwr.proto.control_pb2 import ListRunsRequest
        from flwr.proto.runtime_pb2 import AcquireTaskRequest
        from flwr.supercore.constant import TaskType

        from fedaction.engines.flower.launch import ServerKeys, _flwr, submit, withdraw

        context = create_default_context(cafile=keys["server"] / "ca.crt")

        def call(path, body=b"", peer="127.0.0.1", method="POST", heads=None):
            line = HTTPSConnection("127.0.0.1", port, timeout=60, source_address=(peer, 0), context=context)
            line.request(method, path, body, {"content-type": "application/protobuf", **(heads or {})})
            return line.getresponse().status

        take = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]).SerializeToString()
        listing = ListRunsRequest().SerializeToString()
        for peer, status in (("127.0.0.2", 403), ("127.0.0.1", 401)):
            for name in ("list-runs", "start-run", "stop-run", "register-node", "get-login-details"):
                assert call(f"/v1/control/{name}", listing, peer) == status
            assert call("/v1/runtime/acquire-task", take, peer) == status
        assert call("/docs", peer="127.0.0.2", method="GET") == 403
        assert call("/health", peer="127.0.0.2", method="GET") == 200
        for believed in ("x-forwarded-for", "forwarded", "x-real-ip"):
            assert call("/v1/control/list-runs", listing, "127.0.0.2", heads={believed: "127.0.0.1"}) == 403
        assert call("/v1/fleet/pull-messages", peer="127.0.0.2") == 401  # no signature
        assert call("/v1/fleet/push-object", peer="127.0.0.2", heads={"content-length": str(1 << 40)}) == 413
        assert not is_open(port, encrypted=True)

        write_app(home / "app", mark)
        files = {path.relative_to(home / "app").as_posix(): path.read_text() for path in (home / "app").rglob("*.*")}
        number = submit(home, port, tmp_path, files, keys=ServerKeys(keys["server"]))
        end = time.monotonic() + 120
        while not mark.exists():
            assert time.monotonic() < end, (tmp_path / "superlink.log").read_text()
            time.sleep(0.2)
        withdraw(home, number)
        assert re.search(rf"{number}.*stopped", " ".join(_flwr(home, "list", "--format", "json").split()))


@pytest.mark.slow
def test_a_superlink_of_somebody_else_whose_port_is_open_is_refused(tmp_path):
    pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")
    from fedaction.engines.flower.launch import ServerKeys, flower_environment, free_port, stop
    from fedaction.engines.flower.link import GivenLink
    from tests.engines.flower.processes import ROOT
    from tests.engines.flower.test_faults import make_keys

    keys = make_keys(tmp_path / "keys", ["gym"])
    own = [sys.executable, "-m", "fedaction.engines.flower.node", "superlink"]
    plain = [str(Path(sys.executable).parent / "flower-superlink")]
    files = ("certfile", "server.pem"), ("keyfile", "server.key"), ("ca-certfile", "ca.crt")
    for program, host, refused in ((plain, "0.0.0.0", True), (plain, "127.0.0.1", False), (own, "0.0.0.0", False)):
        port = free_port()
        words = ["--host", host, "--port", str(port), "--enable-supernode-auth"]
        words += [word for name, file in files for word in (f"--ssl-{name}", str(keys["server"] / file))]
        words += ["--database", str(tmp_path / f"{port}.db"), "--disable-runtime-dependency-installation"]
        environment = {**flower_environment(tmp_path / "theirs"), "PYTHONPATH": str(ROOT / "src")}
        with (tmp_path / f"{port}.log").open("wb") as log:
            process = subprocess.Popen([*program, *words], env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            link = GivenLink(port, ServerKeys(keys["server"]))
            if refused:
                with pytest.raises(ValueError, match="can have the SuperLink there run a program on this machine"):
                    link.open()
            else:
                link.open()
        finally:
            stop(process)
