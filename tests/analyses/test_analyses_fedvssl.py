"""Analyses of runs that learn without labels: FedVSSL's Figures 2, 4 and 5."""

import json
import math
import re
import shutil
import statistics
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaction.analyses import ANALYSES, Analysed, analyse
from fedaction.analyses import landscape as landscape_module
from fedaction.analyses.study import Study
from fedaction.analyses.target import Cost, way_of
from fedaction.engines.sequential import SequentialEngine
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job
from fedaction.methods.base import Batch
from fedaction.methods.start import fresh, initial_state
from fedaction.report.page import SCRIPTS
from fedaction.runs import parse_recipe, run_study
from fedaction.runs.checkpoint import latest_checkpoint
from fedaction.runs.metrics import MetricsFile, Row, metric_name, read_rows
from tests.conftest import PHONES, TINY, reseal

RECIPE: dict[str, Any] = {**PHONES, "lr": 0.05, "workers": 1, "device": "cpu", "update_distances": True}
METHODS = ("fedvssl", "fedu", "centralvssl")


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A landscape of 3 x 3 points, and a cache of films for this file alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDACTION_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(landscape_module, "STEPS", 3)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rounds, in which three of the four clients take part."""
    folder = tmp_path_factory.mktemp("phones") / "run"
    recipe = {**RECIPE, "rounds": 3, "seeds": [2], "baselines": ["fedu", "centralvssl"], "clients_per_round": 2}
    run_study(parse_recipe(recipe), folder)
    return folder


@pytest.fixture(scope="module")
def done(run: Path) -> Analysed:
    return analyse(run)


def distances(folder: Path) -> dict[tuple[int, str, str], float]:
    """Recorded distances by round, client and name."""
    rows = read_rows(folder / "metrics.jsonl")
    return {(r.round, r.client, r.name): float(r.value or 0) for r in rows if "distance/" in r.name}


# What is recorded


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_distances_are_those_between_checkpoints_where_one_client_is_the_federation(tmp_path, engine):
    """Then what the server has after a round is what the client has sent."""
    keys = {"clients_per_round": 1, "vssl_alpha": 0.0, "heads": "shared", "rounds": 2, "engine": engine}
    recipe = parse_recipe({**RECIPE, **keys, "keep_checkpoints": 2})
    run_study(recipe, tmp_path)
    found = distances(tmp_path)
    trained = Study(tmp_path).trained("fedvssl")
    last = latest_checkpoint(tmp_path / "checkpoints", tmp_path / "metrics.jsonl")
    for path in (tmp_path / "checkpoints").glob("round-000002.*"):
        path.unlink()
    first = latest_checkpoint(tmp_path / "checkpoints", tmp_path / "metrics.jsonl")
    assert first is not None and last is not None and (first.round, last.round) == (1, 2)
    start = initial_state(trained.method, 0).shared
    names = [
        name for name, _ in fresh(trained.method, next(iter(trained.clients.values())).info, 0).named_parameters()
    ]
    for r, before, after in ((1, start, first.server.shared), (2, first.server.shared, last.server.shared)):
        for module in ("backbone", "head"):
            squares = [float((after[n] - before[n]).double().square().sum()) for n in names if n.startswith(module)]
            ((_, value),) = [item for item in found.items() if item[0][0] == r and item[0][2] == f"distance/{module}"]
            assert value == pytest.approx(math.sqrt(sum(squares)), rel=1e-4) and value > 0
    assert {name for *_, name in found} == {"distance/backbone", "distance/head"}


def test_recording_distances_changes_nothing_else(tmp_path, run):
    recipe = parse_recipe({**RECIPE, "rounds": 3, "seeds": [2], "update_distances": False})
    run_study(recipe, tmp_path)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert rows == [row for row in read_rows(run / "metrics.jsonl") if "distance/" not in row.name]
    with_, without = ((folder / "model.safetensors").read_bytes() for folder in (run, tmp_path))
    assert with_ == without and distances(tmp_path) == {}
    left = analyse(tmp_path, ["divergence"]).left_out["divergence"]
    assert "update_distances = true" in left


def test_asynchronous_clients_are_measured_against_what_they_were_sent(tmp_path):
    recipe = parse_recipe(
        {
            "method": "edge",
            "rounds": 2,
            "updates_per_round": 1,
            "update_distances": True,
            "device": "cpu",
            "workers": 1,
            "stage_clients": 1,
            "stage_train": [6],
            "stage_test": 2,
            "stage_actions": [2],
            "frames": 8,
            "report_samples": 0,
            **TINY,
        }
    )
    run_study(recipe, tmp_path)
    found = distances(tmp_path)
    assert sorted({r for r, _, _ in found}) == [1, 2]
    trained = Study(tmp_path).trained("edge")
    method, (client,) = trained.method, trained.clients
    info = trained.clients[client].info
    server = initial_state(method, 0)
    engine = SequentialEngine(method, trained.assembly.clients, trained.assembly.training, trained.device)
    job = Job(client, info.group, 0, 1, method.payload(server, info), 1)
    (update,) = engine.train([job])
    engine.close()
    names = [n for n, leaf in method.plan(info).leaves.items() if leaf.kind == "parameter" and n in job.payload]
    sums: dict[str, float] = {}
    for n in names:
        sums[n.split(".")[0]] = sums.get(n.split(".")[0], 0) + float((update.tree[n] - job.payload[n]).square().sum())
    own = {name.removeprefix("distance/"): v for (r, _, name), v in found.items() if r == 1 and name[0] == "d"}
    assert own == pytest.approx({module: math.sqrt(total) for module, total in sums.items()}, rel=1e-4)


# Figure 5


def test_divergence_is_the_deviation_over_the_clients_of_a_round(run, done):
    found = done.records["divergence"]["values"]["methods"]
    recorded = distances(run)
    assert found.keys() == {"fedvssl", "fedu"}  # centralised training has one client
    assert found["fedvssl"].keys() == {"distance/backbone", "own_distance/head"}  # heads stay
    assert found["fedu"].keys() == {"distance/backbone", "distance/head"}
    for name, values in found["fedvssl"].items():
        expected = [
            statistics.stdev(v for (r, _, n), v in recorded.items() if (r, n) == (round, name)) for round in (1, 2, 3)
        ]
        assert values["rounds"] == [1, 2, 3] and values["deviation"] == pytest.approx(expected, rel=1e-5)
        assert values["mean"] == pytest.approx(statistics.fmean(expected), rel=1e-5)
        assert values["variation"] == pytest.approx(statistics.stdev(expected), rel=1e-5)
        assert (values["first"], values["last"]) == pytest.approx((expected[0], expected[-1]), rel=1e-5)
    rows = [row[0] for row in done.records["divergence"]["table"]["rows"]]
    assert rows == ["FedVSSL, backbone", "FedVSSL, head (own)", "FedU, backbone", "FedU, head"]
    notes = " ".join(done.records["divergence"]["notes"])
    assert 'heads = "shared"' in notes and "of which no round has two clients" in notes


# Figure 4


def write(path: Path, accuracy: list[float | None], up: int, clients: tuple[str, ...], asked: int) -> None:
    """Metrics by hand: an accuracy a round (None: not tested) of two tested clients, 0.1 above and below it."""
    path.unlink(missing_ok=True)
    file = MetricsFile(path)
    for r, value in enumerate(accuracy, 1):
        rows = [Row(r, client, "video", "train", "loss", 1.0) for client in clients]
        if value is not None:
            rows += [Row(r, f"home-{i}", "video", "test", "accuracy", value + d) for i, d in ((0, 0.1), (1, -0.1))]
        counts = {"participants": asked - 1, "refused": 1, "bytes_up": up, "bytes_down": 2 * up}
        file.append(rows + [Row(r, "", "", "server", name, count) for name, count in counts.items()])
    file.close()


def test_the_way_to_a_target_is_counted_up_to_the_round_that_has_it(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [0.2, None, 0.4, 0.3, 0.5], 100, ("home-0", "home-1", "home-2", "home-3"), 3)
    way = way_of(read_rows(path), local_epochs=2)
    assert way is not None and not way.central and way.clients == 4 and way.last == pytest.approx(0.5)
    assert way.accuracy == pytest.approx({1: 0.2, 3: 0.4, 4: 0.3, 5: 0.5})
    # Three rounds with three clients, two epochs each; four clients.
    assert way.reach(0.35) == Cost(3, 300, 600, 18, 4.5)
    assert way.reach(0.2) == Cost(1, 100, 200, 6, 1.5) and way.reach(0.51) is None
    write(path, [None], 100, ("home-0",), 2)
    assert way_of(read_rows(path), 1) is None
    write(path, [0.3], 10, ("everyone",), 1)
    central = way_of(read_rows(path), 1)
    assert central is not None and central.central and central.reach(0.1) == Cost(1, 10, 20, 1, 1.0)


def test_the_target_is_what_centralised_training_has_at_its_end(run, done, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    everyone = ("home-0", "home-1", "home-2", "home-3")
    homes = {"fedvssl": copy, **{name: copy / "baselines" / name for name in METHODS[1:]}}
    curves = {"fedvssl": [0.1, 0.3, 0.7], "fedu": [0.1, 0.2, 0.3], "centralvssl": [0.2, 0.6, 0.55]}
    for method, curve in curves.items():
        rounds = [*curve[:2], *[None] * 150, curve[2]]  # longer than what the checkpoint goes with
        path, size = homes[method] / "metrics.jsonl", (homes[method] / "metrics.jsonl").stat().st_size
        write(path, rounds, 1000, everyone if method != "centralvssl" else ("everyone",), 2)
        assert path.stat().st_size > size
        reseal(homes[method])
    found = analyse(copy, ["target"]).records["target"]
    assert found["values"]["target"] == 0.55
    methods = found["values"]["methods"]
    assert methods["fedvssl"]["reached"] == [
        {"round": 153, "bytes_up": 153_000, "bytes_down": 306_000, "client_epochs": 306, "passes": 76.5}
    ]
    assert methods["fedu"]["reached"] == [None] and methods["centralvssl"]["reached"][0]["round"] == 2
    assert found["table"]["rows"][0] == ("FedVSSL", "70.0", "153", "153 kB", "306 kB", "306", "76.50")
    assert found["table"]["rows"][1][2:] == ("not reached", "–", "–", "–", "–")
    assert "has at its end" in found["notes"][0] and "brought there" in found["notes"][1]
    asked = analyse(copy, ["target"], target=0.2).records["target"]
    assert [m["reached"][0]["round"] for m in asked["values"]["methods"].values()] == [2, 2, 1]
    shutil.rmtree(homes["centralvssl"])
    text = (copy / "recipe.toml").read_text().replace('"fedu", "centralvssl"', '"fedu"')
    (copy / "recipe.toml").write_text(text)
    share = analyse(copy, ["target"]).records["target"]
    assert share["values"]["target"] == pytest.approx(0.63) and "90 % of the best" in share["notes"][0]


def test_the_traffic_of_a_run_is_that_of_its_result(run, done):
    result = json.loads((run / "result.json").read_text())
    (whole,) = done.records["target"]["values"]["methods"]["fedvssl"]["whole"]
    assert (whole["bytes_up"], whole["bytes_down"]) == (result["bytes_up"], result["bytes_down"])
    assert (whole["round"], whole["client_epochs"], whole["passes"]) == (3, 6, 1.5)
    (central,) = done.records["target"]["values"]["methods"]["centralvssl"]["whole"]
    assert (central["client_epochs"], central["passes"]) == (3, 3)


# Figure 2


def test_the_landscape_is_of_the_tasks_loss_on_the_same_draws(run, done):
    found = done.records["landscape"]["values"]
    study = Study(run)
    seen = sorted(study.states["fedvssl"].locals.committed)
    assert len(seen) == 3 and found["loss"] == "loss of Speed"  # one client never took part: its head is untrained
    for name in METHODS:
        trained = study.trained(name)
        method = trained.method
        assert method.task is not None
        surface = torch.tensor(found["methods"][name]["mean"]["surface"])
        assert list(found["methods"][name]["clients"]) == seen
        centres = []
        for client in seen:
            x = study.clients[client].train.x
            order = torch.randperm(len(x), generator=generator(2, "landscape samples", client))[:16].sort().values
            drawn = method.task.draw(len(order), tuple(x.shape[1:]), generator(2, "landscape task", client))
            module = fresh(method, trained.assembly.clients[client].info, 9)
            tensors = dict(trained.tensors(client))
            module.load_state_dict({**tensors, **method.begin(tensors)})
            clips, targets = method.task.apply(x[order], drawn)
            with torch.no_grad():
                logits = module.eval()(clips)
            centres.append(float(torch.nn.functional.cross_entropy(logits, targets)))
            assert found["methods"][name]["clients"][client]["centre"] == pytest.approx(centres[-1], abs=1e-4)
            net = trained.net(client)
            net = net.with_tensors(method.begin(net.tensors))
            assert float(method.loss(net, net, Batch(clips, targets))[0]) == pytest.approx(centres[-1], abs=1e-5)
        assert surface.shape == (3, 3) and float(surface[1, 1]) == pytest.approx(statistics.fmean(centres), abs=1e-4)
        assert len({round(v, 4) for v in surface.flatten().tolist()}) > 5
    heads = [study.states["fedvssl"].locals.committed[client] for client in seen]
    assert not all(torch.equal(tensor, heads[1][name]) for name, tensor in heads[0].items())  # each has its own


def test_where_boxes_are_tracked_the_loss_is_least_at_the_weights_and_has_another_unit(tmp_path):
    keys = {"pretext": "ctp", "lr": 0.01, "rounds": 1, "local_epochs": 8}
    run_study(parse_recipe({**RECIPE, **keys}), tmp_path)
    done = analyse(tmp_path, ["landscape"])
    found = done.records["landscape"]
    surface = torch.tensor(found["values"]["methods"]["fedvssl"]["mean"]["surface"])
    assert int(surface.argmin()) == 4
    trained = Study(tmp_path).trained("fedvssl")
    losses = []
    for client in sorted(trained.state.locals.committed):
        x, task = trained.clients[client].train.x, trained.method.task
        assert task is not None and len(x) <= 16
        drawn = task.draw(len(x), tuple(x.shape[1:]), generator(0, "landscape task", client))
        order = torch.randperm(len(x), generator=generator(0, "landscape samples", client)).sort().values
        net = trained.net(client)
        with torch.no_grad():
            losses.append(float(trained.method.loss(net, net, Batch(*task.apply(x[order], drawn)))[0]))
    assert float(surface[1, 1]) == pytest.approx(statistics.fmean(losses), rel=1e-4)
    assert found["values"]["loss"] == "loss of CtP" and "nats" not in json.dumps(found)


# All of them


def test_a_run_without_labels_can_be_analysed_whole(run, done):
    assert list(done.records) == ["curves", "target", "confusion", "landscape", "divergence"]
    assert set(done.records) | set(done.left_out) == set(ANALYSES)
    assert "which are no skeletons" in done.left_out["cka"] and "which are no skeletons" in done.left_out["epsilon"]
    for name in ("curves", "target"):
        assert "recall at 1" in done.records[name]["caption"] and "accuracy" not in done.records[name]["caption"]
        assert b"test recall at 1, %" in done.pictures[name].read_bytes()
    assert b"loss of Speed" in done.pictures["landscape"].read_bytes()
    assert done.records["landscape"]["table"]["columns"][1] == "centre, loss"
    assert "nearest training recording" in done.records["confusion"]["caption"]
    page = done.report.read_text(encoding="utf-8")
    start = page.index('id="data">') + len('id="data">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert data["measure"] == "recall at 1" and "mean recall at 1 over" in page
    assert [item["name"] for item in data["analyses"]] == list(done.records)


def test_the_same_run_gives_the_same_bytes(run, done, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "analyses")
    analyse(copy, ["target", "landscape", "divergence"])
    made = sorted((copy / "analyses").iterdir())
    assert len(made) == 6
    for path in made:
        assert (run / "analyses" / path.name).read_bytes() == path.read_bytes(), path.name


def test_tests_are_called_what_they_are():
    assert metric_name(["fsar", "fedavg"]) == metric_name(["of one's own"]) == "accuracy"
    assert metric_name(METHODS) == "recall at 1" and metric_name(["fedvssl", "fedavg"]) == "accuracy or recall at 1"


def test_the_reports_scripts_share_one_scope_without_a_name_twice():
    """They are joined into one script, which a name declared twice would break as a whole."""
    here = files("fedaction.report")
    text = "\n".join(here.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    names = re.findall(r"^(?:const|let|function|class) (\w+)", text, re.MULTILINE)
    assert len(names) > 20 and len(names) == len(set(names))
