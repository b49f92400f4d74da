"""Federations of real processes: a SuperLink and three SuperNodes on this machine, started by the commands."""

import json
import os
import signal

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

from fedaction.cli.serve import SERVER_APP
from fedaction.engines.flower.install import make_install
from fedaction.engines.flower.launch import open_superlink, run_files, stop, submit
from fedaction.federation.progress import Quiet
from fedaction.runs.metrics import read_rows
from fedaction.runs.remote import Roll, open_run
from fedaction.runs.single import SingleRun
from tests.engines.flower.places import (
    make_device_recipe,
    make_feature_recipe,
    make_features,
    make_model,
    make_recipe,
    make_signals,
    make_stores,
    make_video_recipe,
    make_videos,
    simulated,
)
from tests.engines.flower.processes import Machine
from tests.engines.flower.test_contract import compare

pytestmark = pytest.mark.slow


KINDS = {
    "store": (make_stores, make_recipe),
    "signals": (make_signals, make_device_recipe),
    "video": (make_videos, make_video_recipe),
    "features": (make_features, make_feature_recipe),
}


@pytest.mark.parametrize(
    ("data", "method"),
    [("store", "fedavg"), ("store", "fsar"), ("signals", "fdarn"), ("video", "fedvssl"), ("features", "fdarn")],
)
def test_real_sites_come_to_the_simulated_run(tmp_path, data, method):
    make_places, make = KINDS[data]
    paths = make_places(tmp_path)
    recipe = make(paths, method)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", str(len(paths)))
        for name in paths:
            machine.join(name)
        machine.finish()
    SingleRun(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    compare(tmp_path / "simulated", machine.run)
    result = json.loads((machine.run / "result.json").read_text())
    assert result["engine"] == "flower" and set(result["clients"]) == set(paths)
    said = (tmp_path / f"{min(paths)}.log").read_text()
    assert "leaves this site, for the server" in said and f"of {recipe.run.rounds}: trained" in said
    assert said.index(" bytes), and numbers of training") < said.index("round 1 of ")


def test_frozen_stages_of_a_model_file_go_to_real_sites_once(tmp_path):
    paths, model = make_videos(tmp_path), make_model(tmp_path)
    recipe = make_video_recipe(paths, "fedavg", pretrained=model, model_frozen=3, video_fresh=False, rounds=4)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", "2")
        for name in paths:
            machine.join(name, "--memory", "6")
        machine.wait_for_round(1)
        machine.kill("hall")
        machine.join("hall")  # which has what it was sent on its disk
        machine.finish()
    SingleRun(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    compare(tmp_path / "simulated", machine.run)
    infos = [client.info for client in simulated(recipe).values()]
    method = recipe.kinds["fedavg"](infos, recipe.methods["fedavg"])
    plan, once = method.plan(infos[0]), sum(len(make_install(method, info, 4).pack()) for info in infos)
    wire = json.loads((machine.run / "wire.json").read_text())
    assert plan.frozen_bytes and once < wire["sent"]["begin"] < once + 3 * 2000  # three times who else is there
    rows = read_rows(machine.run / "metrics.jsonl")
    down = sum(row.value or 0 for row in rows if row.name == "bytes_down")
    assert down == 2 * (plan.frozen_bytes + 4 * plan.traffic)


def test_a_site_refuses_what_is_over_its_limits_and_the_server_says_so(tmp_path):
    paths = make_videos(tmp_path)
    size = {"model_width": 32, "frames": 12, "video_side": 336, "video_crop": 336, "batch_size": 8}
    recipe = make_video_recipe(paths, "fedavg", **size)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", "1")
        machine.join("hall", "--parameters", "1000000")
        machine.wait(lambda news: any("more than the 1,000,000 parameters" in line["text"] for line in news))
        machine.join("yard", "--memory", "0.7")  # of which torch takes a third, and a batch would take gigabytes
        machine.wait(lambda news: any("needs more memory than this site has" in line["text"] for line in news))
        assert machine.end_status() == 2  # without a quorum, and without a single update
    assert read_rows(machine.run / "metrics.jsonl") == []


def test_a_site_and_the_server_app_are_killed_and_nothing_is_lost_or_done_twice(tmp_path):
    paths = make_stores(tmp_path)
    recipe = make_recipe(paths, "fsar", rounds=6)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", "3")
        for name in paths:
            machine.join(name)
        machine.wait_for_round(1)
        machine.kill("gym")  # its SuperNode and worker go with it
        machine.join("gym")  # as another node: without keys Flower gives it another number
        machine.wait_for_round(3)
        os.kill(machine.news()[-1]["pid"], signal.SIGKILL)  # the server app; `serve` hands it in again
        machine.wait_for_round(5)
        machine.kill("server")  # and the SuperLink with it
        machine.serve(resume=True)
        machine.finish()
    SingleRun(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    compare(tmp_path / "simulated", machine.run)
    assert sum("come back" in line["text"] for line in machine.news()) >= 7  # gym, then all three, twice


def test_a_site_killed_for_good_is_refused_and_the_quorum_goes_on(tmp_path):
    paths = make_stores(tmp_path)
    recipe = make_recipe(paths, "fsar", rounds=5, quorum=0.6)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", "3", "--absence", "30")
        for name in paths:
            machine.join(name)
        machine.wait_for_round(1)
        machine.kill_worker("clinic")  # whose SuperNode would wait for it for ever; `join` starts both anew
        machine.wait_for_round(2)
        machine.kill("home")
        machine.finish()
    rows = read_rows(machine.run / "metrics.jsonl")
    refused = {row.round for row in rows if (row.client, row.name) == ("home", "refused")}
    combined = [row.value for row in rows if row.name == "combined"]
    assert refused and refused <= {3, 4, 5} and combined == [1] * 5
    assert not any(row.value for row in rows if (row.client, row.name) == ("clinic", "refused"))
    assert any("'home' has gone" in line["text"] for line in machine.news())


def test_what_a_server_sends_is_never_run_at_a_site(tmp_path):
    paths = make_stores(tmp_path)
    recipe, mark = make_recipe(paths, "fedavg", rounds=1), tmp_path / "was-here"
    hostile = f"from flwr.clientapp import ClientApp\nopen({str(mark)!r}, 'w').close()\napp = ClientApp()\n"
    with Machine(tmp_path, paths, recipe) as machine, (tmp_path / "superlink.log").open("wb") as log:
        open_run(recipe, machine.run, Roll(count=3))
        link = open_superlink(machine.run / "flower", "127.0.0.1", machine.port, log)
        try:
            for name in paths:
                machine.join(name)
            submit(machine.run / "flower", machine.port, machine.run, run_files(SERVER_APP, "", hostile))
            machine.wait(lambda news: bool(news) and news[-1]["kind"] == "done")
        finally:
            stop(link)
    assert not mark.exists()
    assert "was-here" in (machine.run / "flower" / "app" / "fedaction_run" / "client.py").read_text()
