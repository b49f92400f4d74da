"""The edge paper's items: as printed, at the tiny scale on the stage, on videos in folders and on real ones."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedaction.federation.files import read_json
from fedaction.papers import EDGE, ITEMS, SCALES, Workbench, runs_of, work
from fedaction.papers.edge import models as edge_models
from fedaction.papers.edge.items import CHAINS
from fedaction.papers.item import Item
from fedaction.runs.recipe import load_recipe
from tests.conftest import recordings
from tests.papers.command import app, call, document, values, write_videos

EDGE_ITEMS = {item.name: item for item in EDGE.items}
TABLES, FIGURES = ("I", "II", "III", "IV", "V"), (3, *range(5, 13))


def printed(name: str) -> dict[tuple[str, ...], tuple[float | None, ...]]:
    return {row.label: tuple(row.paper) for row in ITEMS[name].rows}


# As printed


def test_every_table_and_figure_of_results_is_there():
    names = [*(f"edge/table{n}" for n in range(1, 6)), *(f"edge/fig{n}" for n in FIGURES)]
    assert list(EDGE_ITEMS) == names and len(names) == 14
    heads = [*(f"Table {number}. " for number in TABLES), *(f"Figure {number}. " for number in FIGURES)]
    for item, head in zip(EDGE_ITEMS.values(), heads, strict=True):
        assert item.title.startswith(f"Edge, {head}") and item.kind == head.split()[0].lower()


def test_printed_values_agree_with_each_other():
    chains, times, tuned = printed("edge/table1"), printed("edge/table2"), printed("edge/table3")
    hours = [row[2] for row in chains.values()]
    increases = [100 * (one / hours[0] - 1) for one in hours]  # type: ignore[operator]
    assert [row[3] for row in chains.values()] == pytest.approx(increases, abs=0.06)
    assert (times["Kinetics", "KD, no TA"][1], times["Kinetics", "KD, one TA"][1]) == (hours[0], hours[1])
    assert times["Kinetics", "KD, no TA"][1] / times["Kinetics", "from scratch"][1] == pytest.approx(1.43, abs=0.005)  # type: ignore[operator]
    for number, dataset, task in ((5, "HMDB51", "no clients"), (8, "UCF101", "synchronous")):
        assert printed(f"edge/fig{number}")[task,] == tuned[dataset, task][:1]
    for number, dataset in ((9, "HMDB51"), (10, "HMDB51"), (11, "UCF101"), (12, "UCF101")):
        best = max(printed(f"edge/fig{number}").values())  # type: ignore[type-var]
        assert best == tuned[dataset, "asynchronous"][:1]
        assert printed(f"edge/fig{number}")["0.5" if number % 2 else "0.7",] == best
    assert printed("edge/fig3")["KD, one TA",] == (54.6,) and printed("edge/table5")["UCF101", "Jetson TX2"] == (
        381.2,
    )


def test_the_papers_scale():
    item = EDGE_ITEMS["edge/fig9"]
    bench = Workbench(EDGE, "stage", "paper", Path("unused"))
    recipe = bench.recipe(item.rows[0])
    run = recipe.run
    assert (run.rounds, run.batch_size, run.lr, run.momentum, run.local_epochs) == (80, 8, 0.001, 0.9, 3)
    assert (run.devices, recipe.flat()["model_frozen"], recipe.flat()["mixing"]) == ("jetson_hmdb51", 6, 0.7)
    student = edge_models.student_of(item, bench)
    assert student is not None
    settings = student.recipe.settings
    assert (settings.chain, settings.width, settings.epochs) == ((34, 26, 18), 64, (200,))
    assert (settings.batch_size, settings.lr, settings.weight_decay) == (128, 0.1, 0.001)
    central = bench.recipe(EDGE_ITEMS["edge/fig5"].rows[0])
    assert central.run.local_epochs * central.run.rounds == 80


@pytest.mark.parametrize("data", ["stage", "real"])
@pytest.mark.parametrize("scale", SCALES)
def test_recipes_are_valid_and_rows_change_only_what_they_vary(data: str, scale: str):
    item = EDGE_ITEMS["edge/fig10"]
    bench = Workbench(EDGE, data, scale, Path("unused"))
    first, *others = [bench.recipe(row).flat() for row in item.rows]
    for keys, row in zip(others, item.rows[1:], strict=True):
        assert {key for key in keys if keys[key] != first[key]} == {"mixing"} and keys["mixing"] == float(
            row.label[0]
        )
    assert len({bench.recipe(row).configuration() for row in (*item.rows, *EDGE_ITEMS["edge/fig9"].rows)}) == 7


# The clock


@pytest.mark.parametrize(
    ("dataset", "rows"),
    [
        # Hours worked out by hand from Table IV: the slowest device in every round; updates by the sum of all rates.
        (
            "HMDB51",
            {"no clients": [3.25], "synchronous": [8.691, 26.073, 8.691], "asynchronous": [3.426, 2.606, 0.869]},
        ),
        (
            "UCF101",
            {"no clients": [22.083], "synchronous": [59.813, 179.44, 59.813], "asynchronous": [23.29, 17.81, 5.94]},
        ),
    ],
)
def test_times_of_the_readings(tmp_path, dataset: str, rows: dict[str, list[float]]):
    """Nothing is trained for them."""
    found = document("edge/table2", "--rows", dataset, "--out", tmp_path)
    for task, hours in rows.items():
        ours = [value for (row, _), value in values(found).items() if row == f"{dataset} {task}"]
        assert ours == pytest.approx(hours, rel=2e-3), task
    assert {path.name for path in tmp_path.iterdir()} == {"edge"} and found["runs"] == []
    less = {"HMDB51": 40, "UCF101": 41}[dataset]
    saved = (
        f"{dataset}: asynchronous takes 61 % less time than synchronous at equal work, 90 % less for 80 aggregations"
    )
    assert f"{saved}; the paper reports {less} % less." in found["notes"]
    tx2 = {"HMDB51": 293.1, "UCF101": 2001.4}[dataset]  # what the notes observe of the paper's own times
    assert printed("edge/table2")[dataset, "asynchronous"][1] == pytest.approx(80 * tx2 / 3600, rel=0.01)
    assert printed("edge/table2")[dataset, "synchronous"][1] == pytest.approx(1.25 * rows["synchronous"][0], rel=0.01)


def test_rows_may_be_named_one_by_one(tmp_path):
    found = document("edge/table2", "--rows", "UCF101", "--rows", "hmdb51", "--out", tmp_path)
    assert {row.split()[0] for row, _ in values(found)} == {"HMDB51", "UCF101"}
    assert found["command"].endswith(" --seeds 0 --rows UCF101 --rows hmdb51")


def test_own_devices(tmp_path):
    profiles = tmp_path / "mine.toml"
    profiles.write_text(
        "[camera]\nseconds_per_sample = 2.0\ncount = 3\n[phone]\nseconds_per_epoch = 30\ntest_seconds = 4\n"
    )
    options = ("--set", f"devices={profiles}", "--out", tmp_path / "out")
    train, test = (values(document(f"edge/table{n}", "--rows", "HMDB51", *options)) for n in (4, 5))
    samples = [size["train"] for size in read_json(next((tmp_path / "out" / "data").iterdir()))["clients"]]
    assert train == {
        ("HMDB51 camera", "seconds per local epoch"): pytest.approx(2.0 * sum(samples) / len(samples)),
        ("HMDB51 phone", "seconds per local epoch"): 30,
    }
    assert test == {
        (f"HMDB51 {kind}", "seconds for the test set"): time for kind, time in (("camera", None), ("phone", 4))
    }
    hours = values(document("edge/table2", "--rows", "HMDB51", *options))
    assert hours["HMDB51 synchronous", "hours"] == pytest.approx(80 * 2.0 * max(15, *samples) / 3600, rel=0.1)


def test_devices_that_vanish_never_come_to_an_end(tmp_path):
    profiles = tmp_path / "gone.toml"
    profiles.write_text("[camera]\nseconds_per_epoch = 30\nvanishes = 100\n")
    options = ("--rows", "UCF101", "--set", f"devices={profiles}", "--out", tmp_path / "out")
    hours = values(document("edge/table2", *options))
    assert hours["UCF101 asynchronous", "hours"] is hours["UCF101 synchronous", "hours"] is None


# On the stage


class Spy:
    """Counts what is really carried out."""

    def __init__(self, work: Any) -> None:
        self.work, self.folders = work, list[Path]()

    def __call__(self, recipe: Any, folder: Path, progress: Any = None) -> Any:
        self.folders.append(folder)
        return self.work(recipe, folder, progress)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, dict[str, dict[str, Any]], dict[str, tuple[int, int]]]:
    """Every item, made into one folder: the folder, what was printed, how many distillations and runs it took."""
    out = tmp_path_factory.mktemp("edge")
    runs, chains = Spy(work.run_and_report), Spy(edge_models.run_distil)
    found: dict[str, dict[str, Any]] = {}
    counts: dict[str, tuple[int, int]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "run_and_report", runs)
        patch.setattr(edge_models, "run_distil", chains)
        patch.setenv("FEDACTION_CACHE", str(out / "cache"))
        for name in EDGE_ITEMS:
            before = len(chains.folders), len(runs.folders)
            found[name] = document(name, "--out", out)
            counts[name] = len(chains.folders) - before[0], len(runs.folders) - before[1]
    for spy in (runs, chains):
        assert len({*spy.folders}) == len(spy.folders)  # none twice
    return out, found, counts


def test_items_share_networks_and_runs(made):
    out, _, counts = made
    assert counts == {
        **dict.fromkeys(EDGE_ITEMS, (0, 0)),
        "edge/table1": (5, 0),  # the teacher and four chains
        "edge/table2": (1, 0),  # from scratch
        "edge/table3": (0, 10),
        **{f"edge/fig{n}": (0, 3) for n in (9, 10, 11, 12)},  # one of four is Table III's
    }
    for item in EDGE_ITEMS.values():
        assert all(run.done for run in runs_of(item, Workbench(EDGE, "stage", "tiny", out)))
    (student,) = (out / "models").glob("resnet-34-26-18-*/seed-0/stage-3-resnet18/model.safetensors")
    recipes = [load_recipe(path) for path in (out / "runs").glob("*/seed-0/recipe.toml")]
    assert {recipe.flat()["pretrained"] for recipe in recipes} == {str(student), ""} and len(recipes) == 22


@pytest.mark.parametrize("item", EDGE_ITEMS.values(), ids=lambda item: item.name)
def test_files_of_an_item(made, item: Item):
    out, found, _ = made
    document = found[item.name]
    assert set(document["files"]) == {"csv", "md", "json"} | ({"svg", "png"} if item.kind == "figure" else set())
    kept = json.loads(Path(document["files"]["json"]).read_text())
    assert kept == {key: value for key, value in document.items() if key != "files"} and kept["available"]
    page = Path(document["files"]["md"]).read_text(encoding="utf-8")
    assert page.startswith(f"# {item.title}\n") and document["caption"] in page and str(out) not in page
    assert "the synthetic stage" in document["caption"]
    for run in document["runs"]:
        assert f"| {run['method']} | {run['configuration']} |" in page
    (*places,) = document["environments"]  # of distillations too, but the clock needs none
    assert len(places) == bool(document["runs"]) and all(f"\nRun on {place['device']}, " in page for place in places)


def test_chains(made):
    out, found, _ = made
    table = values(found["edge/table1"])
    for assistants, chain in CHAINS.items():
        (folder,) = (out / "models").glob(f"resnet-{'-'.join(map(str, chain))}-*/seed-0")
        stages = read_json(folder / "result.json")["stages"]["0"]
        assert [stage["depth"] for stage in stages] == list(chain) and stages[0][
            "epochs"
        ] == 0  # the teacher is given
        row = f"assistants={assistants}"
        assert table[row, "per-clip, %"] == pytest.approx(100 * stages[-1]["clip_accuracy"], rel=1e-5)
        seconds = sum(stage["seconds"] for stage in stages[1:])
        assert table[row, "wall, s"] == pytest.approx(seconds, rel=1e-5)
        alone = table["assistants=0", "wall, s"]
        assert alone is not None
        increase = 100 * (seconds / alone - 1)
        assert table[row, "increase, %"] == pytest.approx(increase, abs=1e-3)
    times = values(found["edge/table2"])
    assert times["Kinetics KD, one TA", "wall, s"] == table["assistants=1", "wall, s"]


def test_accuracies_are_those_of_the_runs(made):
    out, found, _ = made
    for record in found["edge/table3"]["table"]:
        (run,) = (out / "runs").glob(f"*-{record['configuration']}/seed-0")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        name = {"per-clip, %": "accuracy", "per-video, %": "recordings"}[record["column"]]
        last = [row["value"] for row in rows if (row["split"], row["name"], row["round"]) == ("test", name, 2)]
        assert len(last) == 4 and record["ours_mean"] == pytest.approx(100 * sum(last) / 4, rel=1e-5)
        domain = load_recipe(run / "recipe.toml").flat()["stage_domain"]
        assert domain == {"HMDB51": "home", "UCF101": "hall"}[record["row"].split()[0]]
    same = values(found["edge/fig7"])["synchronous", "per-clip, %"]
    assert same == values(found["edge/table3"])["HMDB51 synchronous", "per-clip, %"]
    best = [values(found[f"edge/fig{n}"])[row, "per-clip, %"] for n, row in ((11, "a=0.5"), (12, "beta=0.7"))]
    assert {*best} == {values(found["edge/table3"])["UCF101 asynchronous", "per-clip, %"]}


def test_curves(made):
    _, found, _ = made
    for number, rows in ((3, 3), (6, 1), (9, 4)):
        document = found[f"edge/fig{number}"]
        with Path(document["files"]["csv"]).open(newline="") as file:
            lines = list(csv.DictReader(file))
        table, series = lines[:rows], lines[rows:]
        assert [line["round"] for line in series] == ["1", "2"] * rows
        assert [line["ours_mean"] for line in series[1::2]] == [line["ours_mean"] for line in table]
        assert Path(document["files"]["png"]).read_bytes().startswith(b"\x89PNG")
    assert "tiny scale, 2 epochs, seed 0" in found["edge/fig3"]["caption"]
    svg = Path(found["edge/fig9"]["files"]["svg"]).read_text()
    assert "a=0.3" in svg and ">round<" in svg
    assert ">aggregation<" in Path(found["edge/fig7"]["files"]["svg"]).read_text()


def test_profiles_are_the_papers(made):
    _, found, _ = made
    for name in ("edge/table4", "edge/table5"):
        assert len(found[name]["table"]) == 8
        assert all(record["ours_mean"] == record["paper"] for record in found[name]["table"])
        assert "equal by construction" in found[name]["notes"][0]


def test_seeds_and_overrides(made, tmp_path, monkeypatch):
    """Seeds distil anew, but fine-tuning starts from one student; keys go to what knows them."""
    monkeypatch.setenv("FEDACTION_CACHE", str(made[0] / "cache"))
    options = ("--seeds", "0,1", "--out", tmp_path, "--set", "epochs=1")
    several = document("edge/fig3", *options)
    assert {record["n"] for record in several["table"]} == {2} and "2 epochs" not in several["caption"]
    assert sorted(path.name for path in (tmp_path / "models").glob("resnet-34-26-18-*/*")) == ["seed-0", "seed-1"]
    tuned = document("edge/fig7", *options, "--set", "lr=0.5")
    (run,) = (tmp_path / "runs").glob("fedavg-*")
    keys = [load_recipe(run / f"seed-{seed}" / "recipe.toml").flat() for seed in (0, 1)]
    assert {key["lr"] for key in keys} == {0.5} and len({key["pretrained"] for key in keys}) == 1
    assert Path(keys[0]["pretrained"]).parts[-3] == "seed-0"
    assert len(list((tmp_path / "models").glob("resnet-34-26-18-*"))) == 1  # lr is not the student's
    assert "it is one for all seeds" in " ".join(tuned["notes"])


@pytest.mark.slow
def test_networks_are_distilled_side_by_side(made, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_CACHE", str(made[0] / "cache"))
    options = ("edge/fig3", "--rows", "KD", "--out", tmp_path, "--jobs", "2")
    assert values(document(*options)) == {k: v for k, v in values(made[1]["edge/fig3"]).items() if "KD" in k[0]}


def test_a_model_file_of_ones_own(made, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_CACHE", str(made[0] / "cache"))
    (own,) = (made[0] / "models").glob("resnet-18-*/seed-0/stage-1-resnet18/model.safetensors")
    found = document("edge/fig8", "--set", f"pretrained={own}", "--out", tmp_path)
    assert found["available"] and not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("table1", "--engine", "vectorised"), "--set engine: edge/table1 trains no clients"),
        (("table1", "--set", "chain=[34,18]"), "--set chain: the rows of edge/table1 name their chains"),
        (("table3", "--set", "teacher=x"), "--set teacher: one teacher is trained for all chains"),
        (("table3", "--set", "widht=8"), "there is no key 'widht'; did you mean 'width'?"),
        (("table3", "--set", "devices=jetson"), "devices = 'jetson' is unknown"),
        (("table3", "--set", "alpha=2"), "alpha: Input should be less than or equal to 1"),
        (("fig9", "--set", "staleness_a=1"), "--set staleness_a: edge/fig9 varies it itself, in every row"),
        (("table4", "--set", "lr=1"), "edge/table4: there is no key 'lr'"),
    ],
)
def test_errors_come_before_anything_is_trained(tmp_path, arguments, words):
    result = call(f"edge/{arguments[0]}", *arguments[1:], "--out", tmp_path / "out")
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


# Other data


def test_the_papers_datasets_in_a_folder(made, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_CACHE", str(made[0] / "cache"))
    root = tmp_path / "own"
    names = {action: [f"Film{i}_{action}_f_nm_np1_fr_med_{i}.avi" for i in range(8)] for action in ("sit", "wave")}
    write_videos(root / "hmdb51", names, 9, 32, 40)
    for action, files in names.items():
        lines = [f"{name} {1 if i < 4 else 2} \n" for i, name in enumerate(files)]
        (root / "hmdb51" / f"{action}_test_split1.txt").write_text("".join(lines))
    options = ("--data", root, "--out", made[0])
    found = document("edge/fig7", *options)
    assert "the paper's datasets: HMDB51; the student is distilled on the synthetic stage" in found["caption"]
    assert len(list((made[0] / "models").glob("resnet-34-26-18-*"))) == 1  # the stage's own
    absent = document("edge/fig8", *options)
    assert absent["available"] is False and absent["table"][0]["paper"] == 84.3 and not absent["runs"]
    for part in ("train", "val"):
        files = [f"{part}0.mp4", f"{part}1.mp4"]
        write_videos(root / "kinetics400" / part, dict.fromkeys(("jump", "run"), files), 9, 32, 40)
    table = document("edge/table1", "--rows", "0", *options)
    assert "Kinetics itself for Kinetics" in " ".join(table["notes"])
    (folder,) = (made[0] / "models").glob(f"resnet-34-18-{table['runs'][0]['configuration']}/seed-0")
    assert read_json(folder / "data.json")["train"] == 4
    train = root / "kinetics400" / "train"
    shutil.copy(train / "run" / "train1.mp4", train / "jump" / "train0.mp4")
    again = call("edge/table1", "--rows", "0", *options)
    assert again.exit_code == 2 and "was begun with other clips than the recipe now gives" in again.stderr


def test_folders_that_do_not_fit(tmp_path):
    for name, words in (
        (tmp_path, "holds none of the folders kinetics400, hmdb51, ucf101"),
        ("nowhere", "neither stage"),
    ):
        result = call("edge/fig7", "--data", name, "--out", tmp_path / "out")
        assert result.exit_code == 2 and words in " ".join(result.stderr.split())


@pytest.mark.slow
def test_real_recordings(made, monkeypatch):
    monkeypatch.setenv("FEDACTION_DATA", str(recordings("utd_mhad").parent))
    monkeypatch.setenv("FEDACTION_CACHE", str(made[0] / "cache"))
    found = document("edge/table3", "--rows", "synchronous", "--data", "real", "--out", made[0])
    assert all(record["n"] == 1 for record in found["table"]) and "AIRTLab, two cameras for HMDB51" in str(
        found["notes"]
    )
    runs = [(made[0] / "runs" / f"fedavg-{run['configuration']}" / "seed-0") for run in found["runs"]]
    counts = [len(read_json(run / "result.json")["clients"]) for run in runs]
    assert counts == [2, 2, 6, 6]  # of each dataset also from random weights


def test_list_fits_a_terminal():
    result = CliRunner().invoke(app, ["list"], env={"COLUMNS": "80"})
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and max(map(len, lines)) <= 80
    for name, item in EDGE_ITEMS.items():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert line.endswith(EDGE.cost(item, "small"))
    assert sum(line.startswith("  ") for line in lines) < 20  # few take a second line
