"""What people are told: `fedaction status`, reasons for sites, the report of a served run."""

import http.server
import json
import os
import platform
import shutil
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.engines.flower.envelope import Envelope, Front, open_envelope
from fedaction.engines.flower.keys import make_server_keys
from fedaction.engines.flower.launch import SiteKeys, flower_environment, free_port
from fedaction.engines.flower.reach import Lookout, explain_end, find_obstacle
from fedaction.engines.flower.site import Site
from fedaction.engines.flower.status import (
    CONTACT,
    JOIN,
    MOST_REMARKS,
    SERVE,
    STATUS,
    Diary,
    Holder,
    Remark,
    SeenSite,
    ServerStatus,
    SiteStatus,
    Watch,
    read_record,
    write_record,
)
from fedaction.engines.messages import MOST_BYTES, pack, unpack
from fedaction.evaluation.site import Evaluation
from fedaction.federation.progress import Quiet
from fedaction.federation.state import Update
from fedaction.report import write_report
from fedaction.runs.remote import Roll, carry_out, open_run
from fedaction.runs.sites import SiteWorkshop
from tests.engines.flower.places import HousePost, make_recipe, make_stores
from tests.engines.flower.processes import ROOT
from tests.report.test_report import Elements, blob

HOSTILE = "\x1b]0;owned\x07\x1b[2J[bold red]</script><b>gym\u202e\x9b" + "x" * 500


def ask(*words):
    result = CliRunner().invoke(app, ["status", *map(str, words)])
    return result.exit_code, result.stdout, " ".join(result.stderr.split())


def is_plain(text):
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("places"))


@pytest.fixture(scope="module")
def served(paths, tmp_path_factory):
    """A run in which one update is spoiled, and somebody else comes as the gym; with what each site's log says."""
    folder = tmp_path_factory.mktemp("served")
    recipe = make_recipe(paths, "fsar", rounds=2)
    open_run(recipe, folder / "run", Roll(count=3))
    logs, sites = {}, {}
    for node, (name, state) in enumerate([*((n, n) for n in paths), ("gym", "impostor")], 101):
        logs[state], home = [], folder / "sites" / state
        home.mkdir(parents=True)
        diary = Diary(home / STATUS, name, paths[name], logs[state].append)
        workshop = SiteWorkshop(name, paths[name], "cpu")
        sites[node] = Site(name, home, workshop, log=logs[state].append, note=diary.note)
        (home / "worker.json").write_text("{}")
    post = HousePost(sites)

    def spoil(node, kind, answer):
        if node != 102 or kind != "train":
            return answer
        envelope = open_envelope(answer, MOST_BYTES)
        update = unpack(Update, envelope.parts[0])
        tree = {name: torch.full_like(tensor, torch.nan) for name, tensor in update.tree.items()}
        return Envelope(envelope.header, (pack(replace(update, tree=tree)),)).seal()

    post.change = spoil
    carry_out(post, folder / "run")
    return folder, logs


def test_at_the_server_it_says_who_is_there_how_far_it_is_and_what_was_refused(served):
    folder, _ = served
    code, text, _ = ask(folder / "run")
    assert code == 0
    for words in ("fsar, done, accuracy", "2 of 2", "after round 2", "left out  1", "was never started here"):
        assert words in text, text
    assert "already joined as 'gym'" in text and "the update is not used" in text and "NaN" in text
    code, text, _ = ask(folder / "run", "--json")
    said = json.loads(text)
    assert (said["stage"], said["round"], said["rounds"], said["measured"]) == ("done", 2, 2, 2)
    assert {name: site["refused"] for name, site in said["sites"].items()} == {"clinic": 0, "gym": 2, "home": 0}
    assert "31 training" not in said["sites"]["gym"]["about"] and "training samples" in said["sites"]["gym"]["about"]
    wire = json.loads((folder / "run" / "wire.json").read_text())
    assert all(said[way] == sum(wire[way].values()) for way in ("sent", "received")) and said["received"] > 100_000
    assert said["alive"] is False  # nobody started `fedaction serve` here
    assert ask(folder / "run", "--follow", "--json") == (0, text, "")  # nothing more will come


def test_a_site_is_told_why_it_is_left_out_and_why_its_update_is_not_used(served):
    folder, logs = served
    assert any("leaves this site out: another site has already joined" in line for line in logs["impostor"])
    told = [line for line in logs["gym"] if line.startswith("the server says: the update of round")]
    assert len(told) == 2 and all("is not used" in line and "NaN" in line for line in told)
    assert not [line for line in logs["clinic"] if line.startswith("the server")]
    _, text, _ = ask("--site", folder / "sites" / "impostor")
    assert "the server does not let this site in: another site has already joined as 'gym'" in text
    _, text, _ = ask(folder / "sites" / "gym", "--json")
    said = json.loads(text)
    assert (said["kind"], said["name"], said["job"], said["round"]) == ("site", "gym", "end", 2)
    assert said["model"].endswith("model.safetensors") and said["told"]["accuracy"] >= 0
    assert said["sent"] > 10_000 and not said["connected"] and said["busy"] == ""


def test_what_a_server_says_is_cut_and_has_no_control_characters(paths, tmp_path):
    lines = []
    site = Site("gym", tmp_path, SiteWorkshop("gym", paths["gym"], "cpu"), log=lines.append)
    front = Front(kind="refused", run="0" * 32, nonce="1" * 32, text=HOSTILE * 3)
    answer = open_envelope(site.answer(Envelope(front).seal()), MOST_BYTES)
    assert answer.header.kind == "refused" and not answer.parts
    assert len(lines) == 1 and is_plain(lines[0]) and len(lines[0]) < 1500 and "[bold red]" in lines[0]


def test_the_report_of_a_served_run_names_its_sites_and_has_no_recording(served, paths):
    folder, _ = served
    text = write_report(folder / "run").read_text(encoding="utf-8")
    data = blob(text)
    assert data["samples"] == [] and [row[0] for row in data["served"]["sites"]] == ["clinic", "gym", "home"]
    assert data["served"]["sites"][1][2] == 2 and data["served"]["leftOut"] == 1
    assert any("already joined" in said for _, said in data["served"]["remarks"])
    assert json.loads((folder / "run" / "evidence.json").read_text())["samples"] == {}
    everything = [path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()]
    for path in paths.values():
        frames = np.load(path / "frames.npy")
        part = np.ascontiguousarray(frames.reshape(-1)[:48])
        digits = [json.dumps(round(float(v), 4))[:6] for v in part[:3]]
        for content in everything:
            assert part.astype(np.float32).tobytes() not in content
            assert ",".join(digits).encode() not in content and ", ".join(digits).encode() not in content


def test_a_service_that_is_started_again_leaves_a_finished_run_alone(served, monkeypatch):
    monkeypatch.setattr("fedaction.engines.flower.launch.check_flower", lambda: None)  # whether or not it is here
    run = served[0] / "run"
    before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    result = CliRunner().invoke(app, ["serve", "gone.toml", "--out", str(run), "--resume", "--insecure"])
    assert result.exit_code == 0 and "is over" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in run.iterdir()} == before
    result = CliRunner().invoke(app, ["serve", "gone.toml", "--out", str(run), "--insecure"])
    assert result.exit_code == 2


def test_a_site_cannot_put_a_recording_into_the_report(paths, tmp_path):
    recipe = make_recipe(paths, "fedavg", rounds=1)
    open_run(recipe, tmp_path / "run", Roll(count=3))
    sites = {101 + i: Site(n, tmp_path / n, SiteWorkshop(n, p, "cpu")) for i, (n, p) in enumerate(paths.items())}
    post = HousePost(sites)

    def slip(node, kind, answer):
        if node != 101 or kind != "evaluate":
            return answer
        envelope = open_envelope(answer, MOST_BYTES)
        report = unpack(Evaluation, envelope.parts[0])
        if "confusion" not in report.evidence:
            return answer
        return Envelope(
            envelope.header, (pack(replace(report, evidence={**report.evidence, "samples": [[1.0]]})),)
        ).seal()

    post.change = slip
    carry_out(post, tmp_path / "run")
    evidence = json.loads((tmp_path / "run" / "evidence.json").read_text())
    assert evidence["samples"] == {} and set(evidence["confusion"]) == {"gym", "home"}
    assert "which nobody asked for" in (tmp_path / "run" / STATUS).read_text()


def write_hostile(folder):
    folder.mkdir(parents=True)
    (folder / "sites.json").write_text("{}")
    remarks = [Remark(time=1e9, text=HOSTILE)] * MOST_REMARKS
    sites = {HOSTILE: SeenSite(here=True, since=1e9, about=HOSTILE), "home": SeenSite(since=time.time() - 300)}
    write_record(
        ServerStatus(stage="training", method=HOSTILE, metric=HOSTILE, sites=sites, remarks=remarks, warnings=99),
        folder / STATUS,
    )
    write_record(Holder.own("127.0.0.1:1"), folder / SERVE)
    return folder


def test_names_and_texts_are_never_markup_or_terminal_escapes_and_are_cut(tmp_path):
    run = write_hostile(tmp_path / "run")
    code, text, _ = ask(run)
    assert code == 0 and is_plain(text) and "[bold red]</script><b>gym" in text
    assert "absent for 5 min" in text and "running since" in text and max(map(len, text.splitlines())) <= 1000
    site = tmp_path / "site"
    site.mkdir()
    (site / "worker.json").write_text("{}")
    status = SiteStatus(name=HOSTILE, run=HOSTILE, left_out=HOSTILE, model=HOSTILE, told={HOSTILE: 1.0}, job=HOSTILE)
    write_record(status.model_copy(update={"remarks": [Remark(time=1e9, text=HOSTILE)]}), site / STATUS)
    code, text, _ = ask(site)
    assert code == 0 and is_plain(text) and "[bold red]" in text
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "worker.json").write_text("{}")
    (tmp_path / "big" / STATUS).write_text('{"name": ' + "[" * 5000)
    code, _, said = ask(tmp_path / "big")
    assert code == 2 and "cannot be read" in said


def test_a_hostile_site_stays_text_in_the_report(tmp_path, served):
    folder, _ = served
    copy = shutil.copytree(folder / "run", tmp_path / "run")
    plain = write_report(folder / "run").read_text(encoding="utf-8")
    status = read_record(ServerStatus, copy / STATUS)
    assert status is not None
    status.sites[HOSTILE] = SeenSite(about=HOSTILE)
    status.remarks = [Remark(time=1e9, text=HOSTILE)]
    write_record(status, copy / STATUS)
    text = write_report(copy).read_text(encoding="utf-8")
    assert [tag for tag, _ in Elements(text).tags] == [tag for tag, _ in Elements(plain).tags]
    said = blob(text)["served"]
    assert all(is_plain(word) for row in said["sites"] for word in row[:2]) and is_plain(said["remarks"][0][1])


def test_it_finds_the_newest_run_and_says_what_to_do_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, said = ask()
    assert code == 2 and "fedaction status --site sites/NAME" in said
    for name, when in (("old", 1e9), ("new", 2e9), ("simulated", 3e9)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        if name != "simulated":
            (folder / "sites.json").write_text("{}")
            write_record(ServerStatus(method=name), folder / STATUS)
            for path in folder.iterdir():
                os.utime(path, (when, when))
    assert "runs/new: new" in ask()[1]
    assert "neither a served run" in ask("runs/simulated")[2]
    assert "is no site's folder" in ask("--site", "runs/new")[2]
    assert "is no directory" in ask("nowhere")[2]


def test_it_needs_neither_torch_nor_flower(tmp_path):
    run = write_hostile(tmp_path / "run")
    program = (
        "import sys\nfrom fedaction.cli import app\napp(['status', sys.argv[1]], standalone_mode=False)\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'flwr', 'numpy')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program, str(run)], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0 and b"training" in done.stdout, done.stderr


def test_a_process_is_known_by_more_than_its_number():
    own = Holder.own("here")
    assert own.alive() is True
    assert own.model_copy(update={"machine": f"not {platform.node()}"}).alive() is None
    if own.born:
        assert own.model_copy(update={"born": "1"}).alive() is False
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert own.model_copy(update={"pid": child.pid}).alive() is False


def test_a_server_app_that_is_started_again_goes_on_counting(tmp_path):
    first = Watch(tmp_path / STATUS, Quiet(), 2, "fsar", 9)
    first.count({"sent": {"train": 6, "end": 4}, "received": {"train": 20}})
    first.note("here", "gym", "skeleton")
    first.refuse("gym")
    first.start("fsar", 0, 9, unit="round", metric="accuracy")
    first.advance("fsar", 1, 0.5)
    for number in range(2 * MOST_REMARKS):
        first.warn(f"warning {number}")
    again = Watch(tmp_path / STATUS, Quiet(), 2, "fsar", 9)
    again.count({"sent": {"train": 1}, "received": {"train": 2}})
    again.warn("the last")
    status = read_record(ServerStatus, tmp_path / STATUS)
    assert status is not None
    assert (status.sent, status.received, status.warnings, status.stage) == (11, 22, 2 * MOST_REMARKS + 1, "waiting")
    assert not status.sites["gym"].here and status.sites["gym"].refused == 1 and status.round == 1
    assert len(status.remarks) == MOST_REMARKS and status.remarks[-1].text == "the last"


def test_a_site_says_connected_while_the_server_answers(tmp_path):
    (tmp_path / "worker.json").write_text("{}")
    write_record(Holder.own("127.0.0.1:8000"), tmp_path / JOIN)
    assert "no contact: it has not answered yet" in ask(tmp_path)[1]
    (tmp_path / CONTACT).touch()
    assert "in contact: it last answered" in ask(tmp_path)[1]
    os.utime(tmp_path / CONTACT, (time.time() - 600,) * 2)
    assert "no contact: it last answered 10 min ago" in ask(tmp_path)[1]


class Listener(http.server.HTTPServer):
    """Answers anything, and says nothing of those who hang up."""

    def __init__(self, context=None):
        super().__init__(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        self.RequestHandlerClass.log_message = lambda *_: None
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


def test_a_site_finds_out_why_it_does_not_reach_the_server():
    nobody = f"127.0.0.1:{free_port()}"
    assert "nothing listens" in find_obstacle(nobody, None)
    assert "no name that this machine can look up" in find_obstacle("nowhere.invalid:8000", None)
    with Listener() as server:
        assert find_obstacle(server.address, None) == explain_end(server.address, None) == ""


def test_a_site_with_keys_finds_out_what_is_wrong_with_them(tmp_path):
    pytest.importorskip("cryptography", reason="keys need the extra: pip install 'fedaction[flower]'")
    make_server_keys(["gym.example"], tmp_path)
    keys = SiteKeys(tmp_path, "gym")
    with Listener() as server:
        said = find_obstacle(server.address, keys)
        assert "without encryption" in said or "hung up" in said
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with Listener(context) as server:
        address = server.address
        assert find_obstacle(address, keys) == ""
        assert "must put gym.pub into sites/" in explain_end(address, keys)
        other = make_server_keys(["gym.example"], tmp_path / "other")["ca.crt"].parent
        assert "not signed by the ca.crt" in find_obstacle(address, SiteKeys(other, "gym"))
        said = find_obstacle(address, None)
        assert "wants keys" in said or "hung up" in said


def test_contact_is_told_once_and_its_loss_with_a_reason(tmp_path):
    told, warned = [], []
    address = f"127.0.0.1:{free_port()}"
    lookout = Lookout(tmp_path / CONTACT, address, None, told.append, warned.append)
    lookout.look()
    assert (told, warned) == ([], [])  # it may take its time
    (tmp_path / CONTACT).touch()
    lookout.look()
    lookout.look()
    assert told == [f"in contact with the server at {address}"]
    lookout.explain("the SuperNode has ended")
    lookout.explain("the SuperNode has ended")
    assert len(warned) == 1 and "nothing listens" in warned[0] and "goes on trying" in warned[0]


def test_flower_does_not_call_home_unless_somebody_asks_for_it(tmp_path, monkeypatch):
    for name in ("FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK"):
        monkeypatch.delenv(name, raising=False)
    environment = flower_environment(tmp_path)
    assert (environment["FLWR_TELEMETRY_ENABLED"], environment["FLWR_DISABLE_UPDATE_CHECK"]) == ("0", "1")
    assert environment["FLWR_HOME"] == str(tmp_path)
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    assert flower_environment(tmp_path)["FLWR_TELEMETRY_ENABLED"] == "1"
