"""FSAR's and FDARN's items at the tiny scale on the stage: what they run, print and leave behind."""

import csv
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedaction.analyses import landscape
from fedaction.federation import files as run_files
from fedaction.federation.progress import Quiet
from fedaction.papers import FDARN, FSAR, ITEMS, Workbench, find_item, paper_of, regenerate, runs_of, work
from fedaction.papers.fdarn.items import COLUMNS
from fedaction.papers.fsar.tables import DATASETS
from fedaction.papers.item import Item
from fedaction.papers.measure import read_analysis
from fedaction.report import run_and_report
from tests.papers.command import app, call

BOTH = {item.name: item for item in (*FSAR.items, *FDARN.items)}
STAGE = tuple(f"stage-{i}-openni_15" for i in range(5))
LEFT_OUT = {
    "fsar/table1": ("ST-GCN FedProx", "ST-GCN FedAGM", "CTR-GCN Vanilla FSAR", "MST-GCN FSAR", "MS-G3D FSAR"),
    "fsar/table2": ("Vanilla FSAR",),
    "fsar/s-table2": ("1 5 0.1", "1 1 0.5"),
    "fsar/s-table3": ("4", "3"),
    "fdarn/table2": ("FedAvg", "pFedMe", "FedProx", "PerAvg", "LG-FedAvg", "FedRep", "FedBN"),
    "fdarn/table3": ("w/o psi_pc", "w/o phi_e", "w/o L_sp"),
}
"""Rows like their neighbours, which are not run here, nor are those of FDARN's Figure 4 for other methods.

Their recipes are parsed and counted below, and every method and backbone runs in tests of its own.
"""


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Spy:
    """Counts the runs that are really carried out."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    def __call__(self, recipe: Any, folder: Path, progress: Any) -> Any:
        self.folders.append(folder)
        # Threads change no value, and runs as small as these would only wait for them.
        settings = recipe.run.model_copy(update={"workers": 1})
        return run_and_report(replace(recipe, run=settings), folder, progress)


def chosen(item: Item) -> Item:
    """An item with those of its rows that are run here."""
    rows = [row for row in item.rows if " ".join(row.label) not in LEFT_OUT.get(item.name, ())]
    if item.name == "fdarn/fig4":
        rows = [row for row in rows if row.method == "fdarn"]
    return replace(item, rows=tuple(rows))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, dict[str, dict[str, Any]], Spy]:
    """Every item, made into one folder: the folder, what the command printed, the runs that it took."""
    out = tmp_path_factory.mktemp("paper")
    spy = Spy()
    found: dict[str, dict[str, Any]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "run_and_report", spy)
        patch.setattr(landscape, "STEPS", 5)
        patch.setenv("FEDACTION_CACHE", str(out / "cache"))  # FDARN's features
        for name, item in BOTH.items():
            patch.setitem(ITEMS, name, chosen(item))
            result = call(name, "--out", out, "--json")
            assert result.exit_code == 0, result.stderr
            assert result.stdout.count("\n") == 1
            found[name] = json.loads(result.stdout)
    return out, found, spy


def runs_by_item(out: Path, items: Iterable[Item]) -> dict[str, list[Path]]:
    """The folders of the runs that an item needs beside those of the items before it."""
    found: dict[str, list[Path]] = {}
    for item in items:
        before = {folder for folders in found.values() for folder in folders}
        runs = runs_of(item, Workbench(paper_of(item), "stage", "tiny", out))
        found[item.name] = [run.folder for run in runs if run.folder not in before]
    return found


def test_items_share_runs(made):
    counts = {name: len(folders) for name, folders in runs_by_item(made[0], BOTH.values()).items()}
    assert counts == {
        **dict.fromkeys(BOTH, 0),
        "fsar/table1": 16,  # two controls among them
        "fsar/table2": 10,
        "fsar/table3": 4,  # the first and the last row are Table 1's
        **dict.fromkeys(("fsar/s-table2", "fsar/s-table3", "fsar/s-table4"), 4),  # the default row is Table 1's
        "fsar/s-table5": 1,
        "fsar/fig9": 6,
        "fsar/s-fig2": 1,  # centralised
        "fsar/s-fig3": 2,
        **{"fdarn/table1": 10, "fdarn/table2": 10},
        "fdarn/table3": 7,  # the last row is Table 1's
        "fdarn/table4": 2,  # so is one of these, and another is Table 3's
        "fdarn/fig4": 27,  # three numbers of epochs of nine methods; the fourth is Table 1's
    }
    assert sum(counts.values()) == 52 + 56


def test_no_run_is_carried_out_twice(made):
    out, _, spy = made
    expected = runs_by_item(out, map(chosen, BOTH.values()))
    assert spy.folders == [folder for folders in expected.values() for folder in folders]
    kept = {path.parent for path in (out / "runs").glob("*/seed-0/result.json")}
    assert kept == set(spy.folders) and len(kept) == len(spy.folders)
    for item in map(chosen, BOTH.values()):
        assert all(run.done for run in runs_of(item, Workbench(paper_of(item), "stage", "tiny", out)))


def test_an_analysis_with_another_digit_or_of_another_run_is_made_again(made, monkeypatch):
    out, _, _ = made
    monkeypatch.setattr(landscape, "STEPS", 5)
    monkeypatch.setenv("FEDACTION_CACHE", str(out / "cache"))
    bench = Workbench(FSAR, "stage", "tiny", out)
    item = next(item for item in BOTH.values() if item.shows == "landscape")
    first, second = (
        next(run for run in runs_of(chosen(item), bench) if run.recipe.run.method == name)
        for name in ("fsar", "fedavg")
    )
    path, other = (run.folder / "analyses" / "landscape.json" for run in (first, second))
    before = path.read_bytes()
    said: list[str] = []
    for content in (re.sub(rb'("centre": )\d', rb"\g<1>7", before), other.read_bytes(), b"[]"):
        assert content != before
        path.write_bytes(content)
        read_analysis(first, "landscape", said.append)
        assert path.read_bytes() == before
    assert len(said) == 3


@pytest.mark.parametrize("item", BOTH.values(), ids=lambda item: item.name)
def test_files_of_an_item(made, item: Item):
    out, found, _ = made
    document = found[item.name]
    kinds = {"csv", "md", "json"} | ({"svg", "png"} if item.kind == "figure" else set())
    assert set(document["files"]) == kinds
    for kind, path in document["files"].items():
        assert Path(path) == out / f"{item.name}-stage-tiny.{kind}" and Path(path).stat().st_size
    assert json.loads(Path(document["files"]["json"]).read_text()) == {
        key: value for key, value in document.items() if key != "files"
    }
    page = Path(document["files"]["md"]).read_text(encoding="utf-8")
    assert page.startswith(f"# {item.title}\n") and document["caption"] in page
    command = f"fedaction paper {item.name} --data stage --scale tiny --seeds 0"
    assert document["command"] == command and f"```\n{command}\n```" in page
    assert "synthetic stage" in document["caption"] and str(out) not in page
    assert document["available"] is (item.name != "fsar/s-table6")
    for run in document["runs"]:
        assert f"| {run['method']} | {run['configuration']} |" in page
    assert len(document["environments"]) == bool(document["runs"])
    assert all(f"\nRun on {place['device']}, torch {place['torch']}.\n" in page for place in document["environments"])
    table = rows(Path(document["files"]["csv"]))[: len(document["table"])]
    for line, record in zip(table, document["table"], strict=True):
        assert {key: line[key] for key in record} == {k: "" if v is None else str(v) for k, v in record.items()}
        assert (line["n"] == "1") is bool(line["ours_mean"])
    if item.kind == "figure":
        assert Path(document["files"]["png"]).read_bytes().startswith(b"\x89PNG\r\n")
        text = "".join(ET.parse(document["files"]["svg"]).getroot().itertext())
        assert "synthetic stage; tiny scale" in " ".join(text.split())
        assert f"]({item.name.split('/')[1]}-stage-tiny.svg)" in page


def test_values_are_those_of_the_runs(made):
    out, found, _ = made
    for record in found["fsar/table1"]["table"]:
        (run,) = (out / "runs").glob(f"*-{record['configuration']}/seed-0")
        result = run_files.read_json(run / "result.json")
        ours = result["mean"] if record["column"] == "mean" else result["clients"][record["client"]]
        assert record["ours_mean"] == pytest.approx(100 * ours, rel=1e-5)
        assert result["configuration"] == record["configuration"]
    clients = [record["client"] for record in found["fsar/table1"]["table"][:6]]
    assert clients == [*STAGE, ""]
    assert len({record["ours_mean"] for record in found["fsar/table1"]["table"]}) > 3  # not all alike


def test_tables_have_controls_and_warnings(made):
    """Of each split on which runs show their accuracy; of unseen clients, of the tests that rows are means over."""
    notes = {name: document["notes"] for name, document in made[1].items()}
    few = f"Fewer than 50 test samples: {STAGE[0]} (7), {STAGE[1]} (7), {STAGE[2]} (7) and 2 more."
    for name in ("fsar/table1", "fsar/table3", "fsar/fig2"):
        assert few in notes[name] and sum("On the same split, a ridge" in note for note in notes[name]) == 1
    close = next(note for note in notes["fsar/table3"] if note.startswith("Not told apart by this test"))
    assert "alpha=1 beta=" in close  # rows, not methods: five of them are FSAR
    pairs = [note for note in notes["fsar/fig9"] if note.startswith("Fewer than 50 test samples")]
    assert len(pairs) == 2 and not any("On the same split" in note for note in notes["fsar/fig9"])
    unseen = [note for note in notes["fsar/table2"] if "On the same tests" in note]
    assert len(unseen) == 3 and all(f"{name} " in unseen[1] for name in STAGE) and few in notes["fsar/table2"]
    floor = next(note for note in notes["fsar/table1"] if "On the same split, a ridge" in note)
    assert floor.replace("split", "tests") in unseen  # each of the five is unseen once


def test_values_of_modalities_are_means_over_their_clients(made):
    out, found, _ = made
    names = [item.name.removeprefix("fdarn/") for item in FDARN.items]
    tables = {name: {(r["row"], r["column"]): r for r in found[f"fdarn/{name}"]["table"]} for name in names}
    standing = {"video": "video", "flow": "flow", "audio": "audio", "sensor": "inertial"}
    for name, count in (("table1", 2), ("table2", 1)):
        for (row, column), record in tables[name].items():
            dataset, modality = column.rsplit(" ", 1)
            assert record["n"] == (dataset == "Epic-Kitchens"), (row, column)
            if record["n"]:
                assert record["client"] == standing[modality]
                (run,) = (out / "runs").glob(f"*-{record['configuration']}/seed-0")
                clients = run_files.read_json(run / "result.json")["clients"]
                values = [value for client, value in clients.items() if client.startswith(f"{standing[modality]}-")]
                assert len(values) == count and len(clients) == 4 * count
                assert record["ours_mean"] == pytest.approx(100 * statistics.fmean(values), rel=1e-5)
    for row in (row.label[0] for row in ITEMS["fdarn/table1"].rows):
        parts = [tables["table1"][row, f"Epic-Kitchens {modality}"]["ours_mean"] for modality in standing]
        whole = tables["fig3"][row, "Epic-Kitchens"]["ours_mean"]
        assert whole == pytest.approx(statistics.fmean(parts), abs=1e-4)
        if row == "FDARN":
            assert tables["fig4"]["method=FDARN local epochs=2", "Epic-Kitchens"]["ours_mean"] == whole
    same = [tables[name]["FDARN", "Epic-Kitchens"] for name in ("table3", "table4", "fig3")]
    assert {r["configuration"] for r in same} == {tables["table1"]["FDARN", COLUMNS[0]]["configuration"]}
    assert len({r["ours_mean"] for r in same}) == 1
    curves = rows(Path(found["fdarn/fig3"]["files"]["csv"]))
    ends = {line["row"]: line["ours_mean"] for line in curves if line["round"] == "2"}
    assert ends == {line["row"]: line["ours_mean"] for line in curves if not line["round"] and line["ours_mean"]}


def test_table_layout(made):
    out, found, _ = made
    page = (out / "fsar/s-table4-stage-tiny.md").read_text(encoding="utf-8").splitlines()
    heads = " | ".join(f"{dataset} / {client}" for dataset, client in zip(DATASETS, STAGE, strict=True))
    first = page.index(f"| tau | xi | {heads} | mean |")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page[first + 2 : first + 7]]
    assert [line[:2] for line in lines] == [[*row.label] for row in ITEMS["fsar/s-table4"].rows]
    record = found["fsar/s-table4"]["table"][6]
    assert (record["row"], record["column"], record["paper"]) == ("tau=0.8 xi=0.6", "PKU I", 82.21)
    assert lines[1][2] == f"{record['ours_mean']:.1f} (82.21)" and lines[1][-1].endswith(" (80.31)")
    shown = call("fsar/s-table4", "--out", out)
    assert shown.exit_code == 0 and lines[1][2] in shown.stdout and record["configuration"] in shown.stdout


def test_a_table_that_the_data_cannot_give(made):
    out, found, _ = made
    document = found["fsar/s-table6"]
    assert document["caption"].startswith("Not available on the synthetic stage: a recording's camera is drawn by")
    assert document["runs"] == [] and {record["ours_mean"] for record in document["table"]} == {None}
    assert "| – (83.39) |" in (out / "fsar/s-table6-stage-tiny.md").read_text(encoding="utf-8")


def test_sizes(made):
    _, found, _ = made
    table = {(record["row"], record["column"]): record for record in found["fsar/s-table1"]["table"]}
    last = f"UESTC / {STAGE[4]}"
    ours = [table[last, column]["ours_mean"] for column in ("training samples", "test samples", "classes")]
    assert ours == [10, 7, 7] and table[last, "classes"]["paper"] == 40 and len(table) == 15


def test_unseen_clients_do_not_train(made):
    out, found, _ = made
    for record in found["fsar/table2"]["table"]:
        if record["column"] == "mean":
            continue
        (run,) = (out / "runs").glob(f"*-{record['configuration']}/seed-0")
        metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        own = {(row["split"], row["name"]) for row in metrics if row["client"] == record["client"]}
        assert own == {("test", name) for name in ("knn", "balanced_accuracy", "macro_f1")}
    assert len({record["configuration"] for record in found["fsar/table2"]["table"]} - {""}) == 5


def test_series_behind_figures(made):
    _, found, _ = made
    curves = rows(Path(found["fsar/fig7"]["files"]["csv"]))
    assert [line["round"] for line in curves[9:]] == ["1", "2"] * 9 and {line["paper"] for line in curves[9:]} == {""}
    assert curves[10]["ours_mean"] == curves[0]["ours_mean"]  # the last round is the table's value
    cka = rows(Path(found["fsar/fig5"]["files"]["csv"]))
    assert len(cka) == 3 + 3 * 25
    assert all(float(line["ours_mean"]) == pytest.approx(1) for line in cka[3:] if line["with"] == line["column"])
    block = [
        float(line["ours_mean"]) for line in cka[3:] if line["row"] == "block=2" and line["with"] != line["column"]
    ]
    assert statistics.fmean(block) == pytest.approx(float(cka[1]["ours_mean"]), rel=1e-4)
    graphs = rows(Path(found["fsar/s-fig4"]["files"]["csv"]))
    assert [line["row"] for line in graphs[:6]] == ["matrix=IM round=1"] * 3 + ["matrix=IM round=2"] * 3
    assert len(graphs) == 6 + 2 * 3 * 15 * 15
    surface = rows(Path(found["fsar/fig10"]["files"]["csv"]))[8:]
    middle = [line for line in surface if float(line["first"]) == float(line["second"]) == 0]
    centre = [record["ours_mean"] for record in found["fsar/fig10"]["table"] if record["column"] == "centre, nats"]
    assert [float(line["ours_mean"]) for line in middle] == pytest.approx(centre)
    bars = rows(Path(found["fsar/s-fig2"]["files"]["csv"]))[4:]
    for model in ("FSAR", "centralised"):
        for column in ("D", "D'"):
            shares = [float(line["ours_mean"]) for line in bars if (line["row"], line["column"]) == (model, column)]
            assert sum(shares) == pytest.approx(100, abs=0.01)


def test_coefficients_are_the_clients_own(made):
    out, found, _ = made
    record = found["fsar/table4"]["table"][1]
    (run,) = (out / "runs").glob(f"fsar-{record['configuration']}/seed-0")
    graph = run_files.read_json(run / "evidence.json")["topology"][STAGE[1]]
    assert record["row"] == "alpha" and record["ours_mean"] == pytest.approx(graph["alpha"], rel=1e-5)
    alphas = [r["ours_mean"] for r in found["fsar/table4"]["table"][:5]]
    changes = [r for r in found["fsar/table4"]["table"] if r["column"].endswith("Δ")]
    assert abs(changes[0]["ours_mean"]) == pytest.approx(max(abs(alpha - 1) for alpha in alphas), abs=1e-5)
    assert [r["paper"] for r in changes] == [-0.23, -0.09, -0.33, 0.01, -0.27, 0.07]


def test_pictures_are_the_same_to_the_byte(made):
    out, found, _ = made
    path = Path(found["fsar/s-fig3"]["files"]["svg"])
    before = path.read_bytes()
    assert call("fsar/s-fig3", "--out", out).exit_code == 0
    assert path.read_bytes() == before


def test_several_seeds_give_mean_and_deviation(made, tmp_path, monkeypatch):
    out, item = tmp_path / "out", ITEMS["fsar/s-table5"]
    for run in runs_of(item, Workbench(FSAR, "stage", "tiny", made[0])):
        shutil.copytree(run.folder, out / run.folder.relative_to(made[0]))
    spy = Spy()
    monkeypatch.setattr(work, "run_and_report", spy)
    result = call("fsar/s-table5", "--seeds", "0,1", "--out", out, "--json")
    found = json.loads(result.stdout)
    assert [folder.name for folder in spy.folders] == ["seed-1", "seed-1"]  # seed 0 is done
    for record in found["table"]:
        runs = sorted((out / "runs").glob(f"*-{record['configuration']}/seed-*"))
        results = [run_files.read_json(run / "result.json") for run in runs]
        whole = record["column"] == "mean"
        values = [100 * (one["mean"] if whole else one["clients"][record["client"]]) for one in results]
        assert record["n"] == 2 and record["ours_mean"] == pytest.approx(statistics.fmean(values), rel=1e-5)
        assert record["ours_std"] == pytest.approx(statistics.stdev(values), rel=1e-5, abs=1e-9)
    page = (out / "fsar/s-table5-stage-tiny.md").read_text(encoding="utf-8")
    first = found["table"][0]
    shown = f"| {first['ours_mean']:.1f} ± {first['ours_std']:.1f} (81.96) |"
    assert "seeds 0, 1. Mean ± standard deviation over seeds." in page and shown in page


KILLED = """
import sys
from tests.runs.launcher import die_before
import typer
from fedaction.cli.paper import paper
die_before("round-000002.json", 4)  # three changes for each file: opened, renamed, the leftover removed
typer.run(paper)
"""


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on(made, tmp_path, monkeypatch):
    whole, _, _ = made
    process = subprocess.run(
        [sys.executable, "-c", KILLED, "fsar/s-table5", "--scale", "tiny", "--out", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
    )
    assert process.returncode == -9, process.stderr.decode()
    assert not (tmp_path / "fsar").exists()
    assert len(list(tmp_path.glob("runs/*/seed-0/result.json"))) == 1  # the second run was under way
    spy = Spy()
    monkeypatch.setattr(work, "run_and_report", spy)
    result = call("fsar/s-table5", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert len(spy.folders) == 1 and "w/o KD loss: fsar: round 1 of 2" not in result.stderr  # gone on, not begun anew
    runs = runs_of(ITEMS["fsar/s-table5"], Workbench(FSAR, "stage", "tiny", tmp_path))
    assert len(runs) == 2
    metrics = [run.folder.relative_to(tmp_path) / "metrics.jsonl" for run in runs]
    for name in ("fsar/s-table5-stage-tiny.csv", "fsar/s-table5-stage-tiny.md", *metrics):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes(), name


def test_a_run_that_is_not_whole_is_not_taken_for_one(made, tmp_path):
    item = ITEMS["fsar/table4"]
    (old,) = runs_of(item, Workbench(FSAR, "stage", "tiny", made[0]))
    shutil.copytree(old.folder, tmp_path / old.folder.relative_to(made[0]))
    (run,) = runs_of(item, Workbench(FSAR, "stage", "tiny", tmp_path))
    assert run.done
    result = run_files.read_json(run.folder / "result.json")
    for broken in ({**result, "complete": False}, {**result, "configuration": "0" * 12}):
        run_files.write_json(run.folder / "result.json", broken)
        assert not run.done
    (run.folder / "result.json").unlink()
    assert not run.done
    assert call("fsar/table4", "--out", tmp_path).exit_code == 0 and run.done


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fsar/tabel1",), "there is no item 'fsar/tabel1'; did you mean 'fsar/table1'?"),
        (("fsar/table1", "--scale", "huge"), "--scale huge is unknown; there are tiny, small, paper"),
        (("fsar/table1", "--seeds", "0,x"), "--seeds takes whole numbers with commas between"),
        (("fsar/table1", "--seeds", "1,1"), "--seeds names a seed twice"),
        (("fsar/table1", "--set", "lr"), "--set takes key=value, got 'lr'"),
        (("fsar/table1", "--set", "lr=-1"), "lr: Input should be greater than 0"),
        (("fsar/table1", "--engine", "warp"), "engine: Input should be 'sequential', 'vectorised' or 'auto'"),
    ],
)
def test_errors_say_what_is_wrong_and_leave_nothing(tmp_path, arguments, words):
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")], env={"COLUMNS": "200"})
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())
    assert not result.stdout and not (tmp_path / "out").exists()


def test_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)["items"]
    assert [item["id"] for item in found] == list(ITEMS)
    first = found[0]
    assert first["runs"] == 16 and first["needs"] == "16 runs" and first["kind"] == "table"
    assert set(first["cost"]) == {"tiny", "small", "paper"} and first["cost"]["paper"] == "16 x 300 rounds"
    shown = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0 and all(name in shown.stdout for name in ITEMS)
    assert not list(tmp_path.iterdir())


def test_jobs_make_the_same_values_and_one_that_fails_is_named(made, tmp_path):
    """Runs in processes of their own, side by side, are the runs of one process."""
    item, bench = find_item("fsar/s-fig3"), Workbench(FSAR, "stage", "tiny", tmp_path)
    *sound, broken = runs_of(item, bench)
    assert len(sound) == 2
    obstacle = broken.folder / "environment.json"  # where a file must go
    obstacle.mkdir(parents=True)
    with pytest.raises(OSError) as caught:
        regenerate(item, bench, Quiet(), jobs=2)
    assert broken.label in caught.value.__notes__[0]
    end = time.monotonic() + 60
    while not all(run.done for run in sound):  # those under way come to their end
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not broken.done
    obstacle.rmdir()
    outcome = regenerate(item, bench, Quiet(), jobs=2)
    assert outcome.csv().encode() == Path(made[1]["fsar/s-fig3"]["files"]["csv"]).read_bytes()


def test_rows_are_chosen_by_how_they_begin(tmp_path):
    chosen = find_item("fsar/table1", "st-gcn")
    assert [row.label[0] for row in chosen.rows] == ["ST-GCN"] * 10 and len(ITEMS["fsar/table1"].rows) == 16
    assert {row.label[1] for row in find_item("fsar/table1", "moo").rows} == {"MOON"}
    several = find_item("fsar/table1", "mst-gcn", "ctr-gcn")
    assert {row.label[0] for row in several.rows} == {"CTR-GCN", "MST-GCN"}
    assert [row for row in ITEMS["fsar/table1"].rows if row in several.rows] == list(several.rows)  # the item's order
    found = call("fsar/table1", "--rows", "ST-GCN", "--rows", "AGCN", "--out", tmp_path)
    assert found.exit_code == 2 and "has no row that begins with 'AGCN'" in found.stderr.replace("\n", " ")


def test_table_2_says_how_many_neighbours_voted(tmp_path):
    item, keys = find_item("fsar/table2", "vanilla"), {"knn_k": 3, "knn_distance": "euclidean"}
    bench = Workbench(FSAR, "stage", "tiny", tmp_path, overrides=keys)
    bench.setting = replace(bench.setting, positions=(0, 1))
    page = regenerate(item, bench, Quiet()).markdown("")
    assert "Ours: k = 3, euclidean distance, equal votes, on pooled features." in page
