"""Methods in one clock: time to a target, utilisation, staleness; in the analysis and in the report."""

import json
import shutil
import statistics
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from fedaction.analyses import Analysed, analyse
from fedaction.cli.analyse import analyse as command
from fedaction.report import collect
from fedaction.report.clock import read_clock, unit_of, word_of
from fedaction.runs import parse_recipe, run_study
from fedaction.runs.metrics import Row, read_rows
from tests.conftest import TINY

STAGE: dict[str, Any] = {
    "method": "edge",
    "rounds": 3,
    "updates_per_round": 6,
    "workers": 1,
    "device": "cpu",
    "stage_clients": 3,
    "stage_layouts": ["kinect_v2"],
    "stage_train": [6],
    "stage_test": 6,
    "stage_actions": [3],
    "frames": 8,
    "batch_size": 6,
    "report_samples": 0,
    "controls": [],
    **TINY,
}
SLOW, MIDDLE, FAST = (f"stage-{i}-kinect_v2" for i in range(3))
FLEET = """
[slow]
seconds_per_epoch = 700
[middle]
seconds_per_epoch = 300
[fast]
seconds_per_epoch = 100
[server]
seconds_per_epoch = 50
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clock")
    (folder / "fleet.toml").write_text(FLEET)
    recipe = {**STAGE, "baselines": ["fedavg", "central"], "seeds": [0, 1], "devices": str(folder / "fleet.toml")}
    run_study(parse_recipe(recipe), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def done(run: Path) -> Analysed:
    return analyse(run, ["clock"], target=0.01)


def app() -> Typer:
    found = Typer()
    found.command()(command)
    return found


# A study of three methods on the same devices, with two seeds


def test_times_and_utilisation_are_those_of_the_profiles(done):
    found = done.records["clock"]["values"]["methods"]
    assert list(found) == ["edge", "fedavg", "central"] and all(
        list(f["seeds"]) == ["0", "1"] for f in found.values()
    )
    # 18 answers: at 1,300 s there are 13 of the fast, 4 of the middle (at 1,200) and 1 of the slow one.
    edge, fedavg, central = (found[method]["seeds"]["1"] for method in found)
    assert (edge["seconds"], fedavg["seconds"], central["seconds"]) == (1300, 3 * 700, 3 * 50)
    assert {client: own["updates"] for client, own in edge["clients"].items()} == {SLOW: 1, MIDDLE: 4, FAST: 13}
    # Nobody waits: the middle one is 100 s into its fifth job, the slow one 600 s into its second.
    assert [own["busy_seconds"] for own in edge["clients"].values()] == [1300] * 3
    assert edge["utilisation"] == 1 and edge["idle"] == 0
    shares = {client: own["utilisation"] for client, own in fedavg["clients"].items()}
    assert shares == pytest.approx({SLOW: 1, MIDDLE: 3 / 7, FAST: 1 / 7}, abs=1e-5)
    assert fedavg["idle"] == pytest.approx(1 - (1 + 3 / 7 + 1 / 7) / 3, abs=1e-5)
    assert list(central["clients"]) == ["everyone"] and central["utilisation"] == 1
    assert fedavg["staleness"] is None and fedavg["clients"][SLOW]["updates"] == 3
    assert done.records["clock"]["values"]["devices"]["central"] == {"server": ["everyone"]}


def test_staleness_counts_the_updates_of_the_others(done, run):
    clients = done.records["clock"]["values"]["methods"]["edge"]["seeds"]["0"]["clients"]
    # The slow one's only answer, at 700 s, came after six of the fast one (the seventh, of the same instant, was
    # asked for later) and two of the middle one.
    assert clients[SLOW]["staleness"] == clients[SLOW]["stalest"] == 8
    rows = [row for row in read_rows(run / "metrics.jsonl") if row.split == "train" and row.client == FAST]
    by = {
        name: {row.round: float(row.value or 0) for row in rows if row.name == name}
        for name in ("staleness", "updates")
    }
    total = sum(by["staleness"][r] * count for r, count in by["updates"].items())
    assert clients[FAST]["staleness"] == pytest.approx(total / 13, abs=1e-5)


def test_the_time_to_a_target_is_that_of_the_first_tested_round_that_has_it(run, done):
    found = done.records["clock"]["values"]["methods"]["fedavg"]
    means = {
        seed: {
            r: statistics.fmean(
                row.value or 0
                for row in read_rows(home / "baselines" / "fedavg" / "metrics.jsonl")
                if (row.split, row.name, row.round) == ("test", "accuracy", r)
            )
            for r in range(1, 4)
        }
        for seed, home in (("0", run), ("1", run / "seeds" / "1"))
    }
    assert found["accuracy"] == pytest.approx([(means["0"][r] + means["1"][r]) / 2 for r in range(1, 4)], abs=1e-5)
    assert found["seconds"] == [700 * r for r in range(1, 4)]
    for seed, by_round in means.items():
        first = next(r for r, mean in by_round.items() if mean >= 0.01)
        assert found["seeds"][seed]["seconds_to_target"] == 700 * first


def test_the_table_the_picture_and_the_command(run, done, tmp_path):
    table = done.records["clock"]["table"]
    assert table["columns"][:4] == ("method, devices", "last, %", "virtual time", "to 1.0 %")
    rows = {row[0]: row for row in table["rows"]}
    assert list(rows) == [
        *(f"{method}, {kind}" for method in ("Edge", "FedAvg") for kind in ("all 3", "slow", "middle", "fast")),
        "Centralised, server",
    ]
    assert rows["FedAvg, all 3"][2] == "35 min" and rows["FedAvg, all 3"][4:] == ("52.4", "47.6", "3.0", "–")
    assert rows["Edge, slow"][4:] == ("100.0", "0.0", "1.0", "8.0 (8.0)")
    text = "".join(ElementTree.fromstring(done.pictures["clock"].read_bytes()).itertext())
    assert "virtual minutes" in text and "FedAvg: middle" in text and "43 %" in text and "target 1.0 %" in text
    copy = shutil.copytree(run, tmp_path / "run")
    result = CliRunner().invoke(app(), [str(copy), "clock", "--target", "1", "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)["analyses"]["clock"]
    assert said["values"]["target"] == 1
    assert {row[3] for row in said["table"]["rows"]} == {"not reached", ""}
    wrong = CliRunner().invoke(app(), [str(copy), "clock", "--target", "60"])
    assert wrong.exit_code != 0 and "got 60.0" in wrong.output


def test_without_a_target_it_is_a_share_of_the_best(run, done, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    found = analyse(copy, ["clock"]).records["clock"]
    last = [row[1] for row in found["table"]["rows"] if row[1]]
    assert 100 * found["values"]["target"] == pytest.approx(0.9 * max(map(float, last)), abs=0.06)
    assert "90 % of the best method's" in " ".join(found["notes"])


def test_the_report_shows_accuracy_over_virtual_time(run, done):
    page = (run / "report.html").read_text(encoding="utf-8")
    start = page.index('id="data">') + len('id="data">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert data["unit"] == "virtual minutes"
    edge, fedavg, central = (method["clock"] for method in data["methods"])
    assert fedavg["curve"]["x"] == pytest.approx([700 * r / 60 for r in range(1, 4)], rel=1e-4)
    assert fedavg["curve"]["y"] == data["methods"][1]["accuracy"]["y"] and len(fedavg["curve"]["sd"]) == 3
    assert (edge["time"], edge["devices"], edge["utilisation"], edge["updates"]) == ("22 min", 3, 1, 6)
    assert (fedavg["least"], fedavg["most"]) == pytest.approx((1 / 7, 1), rel=1e-4)
    assert fedavg["staleness"] is None and central["devices"] == 1 and edge["staleness"] > 1


def test_runs_without_a_clock_say_which_key_to_set(tmp_path):
    """Without `devices` an asynchronous method still has a clock of its own, but no other method has."""
    run_study(parse_recipe({**STAGE, "rounds": 1, "baselines": ["fedavg"]}), tmp_path / "one")
    found = analyse(tmp_path / "one", ["clock"]).records["clock"]
    assert [row[0] for row in found["table"]["rows"]] == [
        "Edge, all 3",
        *(f"Edge, {c}" for c in (SLOW, MIDDLE, FAST)),
    ]
    assert "Left out: FedAvg" in found["notes"][-1] and "devices" in found["notes"][-1]
    assert collect(tmp_path / "one").methods[1].clocks == ()
    left = analyse(tmp_path / "one" / "baselines" / "fedavg", ["clock"]).left_out["clock"]
    assert "devices = 'jetson_hmdb51' or 'jetson_ucf101' or a .toml file" in left


# What metrics alone say


def rows(split: str, name: str, **values: list[float]) -> list[Row]:
    """One value a round, counted from 1; "all" is the whole federation."""
    return [
        Row(r, "" if client == "all" else client, "", split, name, value)  # type: ignore[arg-type]
        for client, series in values.items()
        for r, value in enumerate(series, 1)
    ]


def test_work_after_the_deadline_fills_its_round_and_no_more(tmp_path):
    """The slow one works 30 s for each round of 10 s that it is asked in, which is the first and the third."""
    table = rows("clock", "time", all=[10, 20, 30]) + rows("clock", "busy", slow=[30, 30, 60], fast=[4, 8, 12])
    found = read_clock(table + rows("train", "loss", fast=[1, 1, 1]), tmp_path)
    assert found is not None and found.busy == {"fast": 12, "slow": 20}
    assert found.utilisation("slow") == pytest.approx(2 / 3) and found.updates == {"fast": 3, "slow": 0}


def test_clients_never_asked_are_idle_only_where_clients_are_sampled(tmp_path):
    table = (
        rows("clock", "time", all=[10]) + rows("clock", "busy", a=[5]) + rows("test", "accuracy", a=[0.5], b=[0.7])
    )
    whole, sampled = read_clock(table, tmp_path), read_clock(table, tmp_path, sampled=True)
    assert whole is not None and sampled is not None
    assert whole.mean_utilisation == 0.5 and sampled.mean_utilisation == 0.25  # b may hold no training samples
    assert whole.accuracy == {1: 0.6} and whole.time_to(0.6) == 10 and whole.time_to(0.61) is None


def test_jobs_under_way_count_as_far_as_they_have_come(tmp_path):
    table = rows("clock", "time", all=[10]) + rows("clock", "busy", a=[6])
    table += (
        rows("train", "updates", a=[2]) + rows("train", "staleness", a=[1.5]) + rows("train", "staleness_max", a=[3])
    )
    flights = [
        {"client": "a", "start": 6, "finish": 14, "busy": 4, "lost": False},  # off for half of the time
        {"client": "b", "start": 0, "finish": None, "busy": 3, "lost": True},  # vanished after 3 s
        {"client": "c", "start": 3, "finish": None, "busy": 0, "lost": False},  # a real one, asked 7 s ago
    ]
    (tmp_path / "checkpoints").mkdir()
    path = tmp_path / "checkpoints" / "round-000001.json"
    path.write_text(json.dumps({"time": 10, "flights": flights}))
    found = read_clock(table, tmp_path)
    assert found is not None and found.busy == {"a": 8, "b": 3, "c": 7}
    assert found.updates == {"a": 2, "b": 0, "c": 0} and not found.real and word_of([found]) == "virtual"
    assert found.staleness == {"a": 1.5} and found.stalest == {"a": 3} and found.mean_staleness_of(["b"]) is None
    (tmp_path / "environment.json").write_text('{"engine": "flower"}')
    between = read_clock(table, tmp_path)
    assert between is not None and between.real and word_of([between]) == "real"
    assert word_of([between, found]) == "virtual"
    path.write_text('{"time": 10, "flights": [{"client": 3}]}')  # broken: what is known is finished jobs
    found = read_clock(table, tmp_path)
    assert found is not None and found.busy == {"a": 6}


def test_times_have_a_unit_that_suits_them():
    assert [unit_of(seconds)[0] for seconds in (0, 90, 200, 7000, 8000)] == [
        "seconds",
        "seconds",
        "minutes",
        "minutes",
        "hours",
    ]
