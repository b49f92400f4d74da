"""FedVSSL's items: as printed, at the tiny scale on the stage, on videos in folders and on real ones."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedaction.analyses import landscape
from fedaction.federation.files import read_json
from fedaction.federation.seeds import generator
from fedaction.models.files import clip_card, save_model
from fedaction.models.layers import initialise
from fedaction.papers import FEDVSSL, ITEMS, SCALES, Workbench, find_item, runs_of, work
from fedaction.papers.cells import Draft
from fedaction.papers.fedvssl import models as fedvssl_models
from fedaction.papers.fedvssl.values import first_at
from fedaction.papers.item import Item
from fedaction.runs.recipe import load_recipe
from fedaction.training.evaluate import RANDOM, Backbones, run_evaluate
from fedaction.training.evaluate_recipe import load_evaluate_recipe, parse_evaluate_recipe
from tests.conftest import recordings
from tests.papers.command import app, call, document, values, write_videos

ROWS = {
    "fedvssl/table1": "Speed",
    "fedvssl/table2": "IID",
    "fedvssl/table4": "FedVSSL alpha=0.9",
    "fedvssl/fig3": "Fed",
}
"""Rows that are made of the items that have many alike; `test_whole_tables` makes all."""
FEDVSSL_ITEMS = {item.name: item for item in FEDVSSL.items}


def printed(name: str) -> dict[tuple[str, str], float | None]:
    item = ITEMS[name]
    return {
        (item.describe(row.label), column.label): value
        for row in item.rows
        for column, value in zip(item.columns, row.paper, strict=True)
    }


# As printed


def test_every_table_and_figure_of_results_is_there():
    assert list(FEDVSSL_ITEMS) == [
        f"fedvssl/{kind}{n}" for kind, ns in (("table", "1234"), ("fig", "2345")) for n in ns
    ]
    for name, item in FEDVSSL_ITEMS.items():
        word = {"table": "Table", "figure": "Figure"}[item.kind]
        assert item.title.startswith(f"FedVSSL, {word} {name[-1]}. ")
        if item.kind == "table":  # the ends of the scale, of which the paper prints nothing
            low, high = item.rows[-2:]
            assert (low.method, high.method) == ("random", "supervised")
            assert {*low.paper, *high.paper} == {None}
            ours = [column.label.endswith("*") for column in item.columns]
            assert all([value is None for value in row.paper] == ours for row in item.rows[:-2])


def test_printed_values():
    one, two, three, four = (printed(f"fedvssl/table{n}") for n in (1, 2, 3, 4))
    assert one["VCOP federated", "HMDB L-P"] == 12.22 and one["Speed centralised", "UCF R@5"] == 36.58
    assert one["CtP federated", "UCF F-T"] == two["non-IID 100/8", "UCF F-T"] == 81.95
    assert two["IID 100/-", "HMDB R@5"] == 34.56 and two["non-IID 100/4", "HMDB R@1"] == 14.70
    assert three["centralised, equal epochs", "HMDB F-T"] == three["FedU", "HMDB F-T"] == 53.73
    assert three["loss-based", "UCF R@1"] == 32.54
    for column in ("UCF R@1", "UCF R@5", "HMDB R@1", "HMDB R@5", "UCF F-T", "HMDB F-T"):
        assert three["FedAvg", column] == four["FedAvg", column] != two["non-IID 100/8", column]  # the clash
        centralised = {two["IID centralised", column], three["centralised", column], four["centralised", column]}
        assert len({*centralised, one["CtP centralised", column]}) == 1
    # What the text says of Table 4.
    best, fedavg = "FedVSSL alpha=0.9 beta=0", "FedAvg"
    for column, gain in (("UCF R@1", 2.88), ("UCF R@5", 3.86), ("HMDB R@5", 1.96), ("UCF F-T", 0.71)):
        assert four[best, column] - four[fedavg, column] == pytest.approx(gain)  # type: ignore[operator]
    assert four[best, "UCF L-P"] - four[fedavg, "UCF L-P"] == pytest.approx(5.05)  # type: ignore[operator]
    headline = four["FedVSSL alpha=1 beta=1", "UCF R@1"] - four["centralised", "UCF R@1"]  # type: ignore[operator]
    assert headline == pytest.approx(6.66)


def test_clashes_are_notes():
    for number in (1, 2, 3, 4):
        notes = FEDVSSL_ITEMS[f"fedvssl/table{number}"].notes
        assert any("29.29 / 48.90" in note and "32.62 / 50.41" in note for note in notes)
    speed = printed("fedvssl/table1")
    note = FEDVSSL_ITEMS["fedvssl/table1"].notes[0]
    for column in ("UCF R@1", "UCF R@5", "HMDB R@1", "HMDB F-T"):
        change = speed["Speed federated", column] - speed["Speed centralised", column]  # type: ignore[operator]
        assert f"{change:+.2f}" in note
    assert "62.5 %" in FEDVSSL_ITEMS["fedvssl/table3"].notes[0]


def test_the_papers_scale():
    item = FEDVSSL_ITEMS["fedvssl/table3"]
    bench = Workbench(FEDVSSL, "stage", "paper", Path("unused"))
    rows = {row.label[0]: row for row in item.rows}
    fedavg = bench.recipe(rows["FedAvg"])
    run, keys = fedavg.run, fedavg.flat()
    assert (run.rounds, run.clients_per_round, run.local_epochs, run.batch_size) == (540, 5, 1, 4)
    assert (run.lr, run.momentum, run.weight_decay, run.clip_norm) == (0.01, 0.0, 1e-4, 40)
    assert (keys["model_width"], keys["clip_size"], keys["clip_frames"], keys["stage_clients"]) == (64, 112, 16, 100)
    assert (keys["vssl_alpha"], keys["vssl_beta"], keys["heads"], keys["stage_classes"]) == (0, 0, "shared", 8)
    central, equal = bench.recipe(rows["centralised"]).run, bench.recipe(rows["centralised, equal epochs"]).run
    assert (central.rounds, equal.rounds, central.batch_size, central.momentum) == (90, 27, 32, 0.9)
    assert central.lr * central.lr_decay**central.rounds == pytest.approx(1e-4, rel=1e-3)
    (vcop,) = [row for row in FEDVSSL_ITEMS["fedvssl/table1"].rows if row.label == ("VCOP", "federated")]
    assert bench.recipe(vcop).run.lr == 0.001
    assert Workbench(FEDVSSL, "stage", "paper", Path("unused"), overrides={"lr": 0.5}).recipe(vcop).run.lr == 0.5
    (work, _) = fedvssl_models.assess(Draft(item, bench, ()), rows["random weights"])
    settings = work.recipe.settings
    assert (settings.finetune_epochs, settings.probe_epochs, settings.clips, settings.crop) == (150, 100, 10, 112)
    assert settings.probe_clips == "both" and {"UCF L-P", "UCF L-P*"} <= {
        column.label for column in FEDVSSL_ITEMS["fedvssl/table1"].columns
    }


def test_the_small_scale_is_the_recipes_that_come_with_the_project():
    """Their schedule, which is long enough (docs/fedvssl.md); how often to test and keep is each one's own."""
    table = find_item("fedvssl/table4", "FedVSSL alpha=0.9 beta=1")
    bench = Workbench(FEDVSSL, "stage", "small", Path("unused"))
    own, recipe = bench.recipe(table.rows[0]).flat(), load_recipe("fedvssl/stage").only("fedvssl", 0).flat()
    unlike = {key for key in own.keys() | recipe.keys() if own.get(key) != recipe.get(key)}
    assert unlike <= {"name", "evaluate_every", "models_every", "client_models", "update_distances"}
    assert (own["rounds"], own["local_epochs"]) == (1200, 16)
    settings = fedvssl_models._recipe(bench, "UCF", "phones.safetensors", 0, ("finetune",)).settings
    evaluate = load_evaluate_recipe("fedvssl/evaluate").settings
    assert settings.finetune_epochs == evaluate.finetune_epochs == 480
    for key in ("finetune_lr", "finetune_stride", "clip_frames", "clip_stride", "batch_size", "crop"):
        assert getattr(settings, key) == getattr(evaluate, key), key


def test_every_row_is_evaluated_with_the_strides_of_its_training(tmp_path):
    """At the small scale; a network of random weights has those of CtP, whose rows are the most."""
    bench = Workbench(FEDVSSL, "stage", "small", tmp_path)
    table = FEDVSSL_ITEMS["fedvssl/table1"]
    last = {"vcop": 2, "speed": 2, "ctp": 1, RANDOM: 1}
    for pretext, stride in last.items():
        model = RANDOM
        if pretext != RANDOM:
            row = next(row for row in table.federated if row.overrides.get("pretext", "ctp") == pretext)
            settings = bench.recipe(row).methods[row.method]
            network, model = settings.make_task().network(18, 2).backbone, str(tmp_path / f"{pretext}.safetensors")
            for module in network.modules():
                initialise(module, generator(0, "init"))
            save_model(Path(model), network, clip_card(classes=(), frames=8, stride=3, resize=40, crop=32))
        recipe = fedvssl_models._recipe(bench, "UCF", model, 0, ("retrieval",))
        assert Backbones(model, recipe.settings).of(0).arguments["image_strides"] == (1, 2, 2, stride)


@pytest.mark.parametrize("scale", SCALES)
def test_rows_change_only_what_they_vary_and_items_share_runs(scale: str):
    table = FEDVSSL_ITEMS["fedvssl/table4"]
    bench = Workbench(FEDVSSL, "stage", scale, Path("unused"))
    tuned = [row for row in table.federated if row.label[0].startswith("FedVSSL")]
    first, *others = [bench.recipe(row).flat() for row in tuned]
    for keys in others:
        assert {key for key in keys if keys[key] != first[key]} <= {"vssl_alpha", "vssl_beta"}
    hashes = {
        (name, row.label): bench.recipe(row).configuration()
        for name, item in FEDVSSL_ITEMS.items()
        for row in item.federated
    }
    assert len({*hashes.values()}) == 6 + 2 + 3 + 6  # new ones in Tables 1 to 4
    assert hashes["fedvssl/table1", ("CtP", "federated")] == hashes["fedvssl/fig5", ("FedAvg",)]
    assert hashes["fedvssl/table2", ("IID", "centralised")] == hashes["fedvssl/fig2", ("centralised",)]


def test_epochs_follow_the_federation():
    item = FEDVSSL_ITEMS["fedvssl/table3"]
    for overrides, epochs in (({}, (3200, 960)), ({"rounds": 60}, (160, 48)), ({"local_epochs": 1}, (200, 60))):
        bench = Workbench(FEDVSSL, "stage", "small", Path("unused"), overrides=overrides)
        assert tuple(bench.recipe(row).run.rounds for row in item.rows[:2]) == epochs


# On the stage


class Spy:
    """Counts what is really carried out."""

    def __init__(self, work: Any) -> None:
        self.work, self.calls = work, list[Any]()

    def __call__(self, *arguments: Any, **keys: Any) -> Any:
        self.calls.append(keys.get("folder") or arguments[1])
        return self.work(*arguments, **keys)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, dict[str, dict[str, Any]], dict[str, tuple[int, int]]]:
    """Every item, made into one folder: the folder, what was printed, how many runs and evaluations it took."""
    out = tmp_path_factory.mktemp("fedvssl")
    runs, evaluations = Spy(work.run_and_report), Spy(fedvssl_models.run_evaluate)
    found: dict[str, dict[str, Any]] = {}
    counts: dict[str, tuple[int, int]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "run_and_report", runs)
        patch.setattr(fedvssl_models, "run_evaluate", evaluations)
        patch.setattr(landscape, "STEPS", 3)  # of 17: a point takes as long as any other
        patch.setenv("FEDACTION_CACHE", str(out / "cache"))
        for name in FEDVSSL_ITEMS:
            before = len(runs.calls), len(evaluations.calls)
            found[name] = document(name, "--out", out, *(("--rows", ROWS[name]) if name in ROWS else ()))
            counts[name] = len(runs.calls) - before[0], len(evaluations.calls) - before[1]
    assert len({*runs.calls}) == len(runs.calls)  # none twice
    return out, found, counts


def test_items_share_runs_and_evaluations(made):
    out, found, counts = made
    assert counts == {
        "fedvssl/table1": (2, 4),  # two datasets
        "fedvssl/table2": (2, 4),
        "fedvssl/table3": (4, 4 * 2 + 2 * 2),  # the ends of the scale need no run
        "fedvssl/table4": (2, 4),
        "fedvssl/fig2": (0, 0),
        "fedvssl/fig3": (0, 4),  # under noise
        "fedvssl/fig4": (1, 2 + 4 * 2),  # alpha = beta = 0; and four models after the first of two rounds
        "fedvssl/fig5": (0, 0),
    }
    for item in FEDVSSL_ITEMS.values():
        if item.name not in ("fedvssl/table1", "fedvssl/table2", "fedvssl/table4"):
            assert all(run.done for run in runs_of(item, Workbench(FEDVSSL, "stage", "tiny", out)))
    assert len(list((out / "models").glob("supervised-*/seed-0/model.safetensors"))) == 1
    assert all(document["available"] for document in found.values())


@pytest.mark.slow
def test_whole_tables(made, tmp_path, monkeypatch):
    out, found, _ = made
    monkeypatch.setenv("FEDACTION_CACHE", str(out / "cache"))
    mine = shutil.copytree(out, tmp_path / "out")  # its files are others' to look at
    for name in ROWS:
        whole = document(name, "--out", mine)
        assert all(record["n"] == 1 for record in whole["table"])
        assert values(found[name]).items() <= values(whole).items()
        assert len(whole["runs"]) == len(ITEMS[name].rows)


@pytest.mark.parametrize("item", FEDVSSL_ITEMS.values(), ids=lambda item: item.name)
def test_files_of_an_item(made, item: Item):
    out, found, _ = made
    document = found[item.name]
    assert set(document["files"]) == {"csv", "md", "json"} | ({"svg", "png"} if item.kind == "figure" else set())
    kept = json.loads(Path(document["files"]["json"]).read_text())
    assert kept == {key: value for key, value in document.items() if key != "files"}
    page = Path(document["files"]["md"]).read_text(encoding="utf-8")
    assert page.startswith(f"# {item.title}\n") and document["caption"] in page and str(out) not in page
    assert "the synthetic stage; tiny scale, 2 rounds, seed 0" in document["caption"]
    for run in document["runs"]:
        assert f"| {run['method']} | {run['configuration']} |" in page
    (place,) = document["environments"]
    assert f"\nRun on {place['device']}, torch {place['torch']}.\n" in page
    if item.kind == "table":  # networks, the supervised one too, and evaluations of each
        assert any(label.endswith(" on UCF") for label in place["of"])
        assert ("supervised" in place["of"]) is any(run["method"] == "supervised" for run in document["runs"])


def test_values_are_what_evaluate_gives_for_the_runs_model(made, monkeypatch):
    out, found, _ = made
    monkeypatch.setenv("FEDACTION_CACHE", str(out / "cache"))
    keys = {
        **{
            "stage_clients": 1,
            "stage_heterogeneity": 0.0,
            "stage_train": 1,
            "stage_test": 1,
            "stage_people": 2,
            "stage_test_people": 2,
        },
        **{"frames": 6, "stage_seconds": 0.2, "stage_size": 20, "stage_variety": 0.2},
        **{"clips": 1, "clip_frames": 4, "crop": 16, "probe_epochs": 1, "finetune_epochs": 1, "batch_size": 16},
        "probe_clips": "both",
    }
    names = {"R@1": "R@1", "R@5": "R@5", "F-T": "finetune_video"}
    names |= {"L-P": "probe_drawn_video", "L-P*": "probe_video"}  # the paper's probe, and ours beside it
    for name, row, dataset, domain in (
        ("fedvssl/table1", "Speed federated", "HMDB", "home"),
        ("fedvssl/table3", "random weights", "UCF", "hall"),
    ):
        records = {(r["row"], r["column"]): r for r in found[name]["table"]}
        configuration = records[row, f"{dataset} R@1"]["configuration"]
        model, own = "random", {"width": 2}
        if configuration:
            (path,) = (out / "runs").glob(f"fedvssl-{configuration}/seed-0/model.safetensors")
            model, own = str(path), {}
        recipe = parse_evaluate_recipe({**keys, **own, "stage_domain": domain})
        result = run_evaluate(model, recipe)
        for column, score in names.items():
            expected = pytest.approx(100 * result["mean"][score], rel=1e-5)
            if (row, f"{dataset} {column}") in records or name == "fedvssl/table1":
                assert records[row, f"{dataset} {column}"]["ours_mean"] == expected


def test_tables_agree(made):
    _, found, _ = made
    two, three, four = (values(found[f"fedvssl/{name}"]) for name in ("table2", "table3", "fig4"))
    for column in ("UCF R@1", "HMDB R@1"):
        assert two["IID centralised", column] == three["centralised", column] == four["centralised", column]
        assert three["FedAvg", column] == four["FedAvg", column]
        noise = values(found["fedvssl/fig3"])
        dataset = column.split()[0]
        assert noise[f"absolute {dataset} FedAvg", "k = 0"] == noise[f"filter {dataset} FedAvg", "k = 0"]
        assert noise[f"filter {dataset} FedAvg", "k = 0"] == three["FedAvg", column]
    assert "16 classes; guessing is right in 6.2 %" in str(found["fedvssl/table2"]["notes"])


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_rounds_and_traffic_to_the_target(made):
    out, found, _ = made
    document = found["fedvssl/fig4"]
    with Path(document["files"]["csv"]).open(newline="") as file:
        points = [line for line in csv.DictReader(file) if line["round"]]
    table = values(document)
    for row in ("FedAvg", "FedVSSL alpha=0.9 beta=1"):
        for dataset in ("UCF", "HMDB"):
            own = [p for p in points if (p["row"], p["column"]) == (row, f"{dataset} R@1")]
            assert [p["round"] for p in own] == ["1", "2"]
            curve = {int(p["round"]): float(p["ours_mean"]) for p in own}
            target = table["centralised", f"{dataset} R@1"]
            assert target is not None
            reached = first_at(curve, target)
            assert table[row, f"{dataset} rounds to target"] == reached
            assert curve[2] == table[row, f"{dataset} R@1"]
            if reached is not None:
                (run,) = (out / "runs").glob(f"*-{own[0]['configuration']}/seed-0")
                sent = [r for r in rows_of(run) if r["name"] in ("bytes_up", "bytes_down") and r["round"] <= reached]
                total = sum(r["value"] for r in sent) / 1e6
                assert table[row, f"{dataset} MB to target"] == pytest.approx(total, rel=1e-5) and total > 0
    assert first_at({10: 1.0, 20: 3.0, 30: 2.0}, 2.0) == 20 and first_at({10: 1.0}, 2.0) is None
    assert "centralised" in Path(document["files"]["svg"]).read_text()


def test_distances_are_those_of_the_run(made):
    out, found, _ = made
    document = found["fedvssl/fig5"]
    (run,) = (out / "runs").glob(f"fedvssl-{document['runs'][0]['configuration']}/seed-0")
    with Path(document["files"]["csv"]).open(newline="") as file:
        points = [line for line in csv.DictReader(file) if line["round"]]
    assert [(p["row"], p["round"]) for p in points] == [
        (f"part={part}", str(round)) for part in ("backbone", "head") for round in (1, 2)
    ]
    for point in points:
        name = f"distance/{point['row'].removeprefix('part=')}"
        own = [r["value"] for r in rows_of(run) if (r["name"], r["round"]) == (name, int(point["round"]))]
        deviation = abs(own[0] - own[1]) / 2**0.5  # of two
        assert len(own) == 2 and float(point["ours_mean"]) == pytest.approx(deviation, rel=1e-4)


def test_landscape(made):
    table = values(made[1]["fedvssl/fig2"])
    assert {row for row, _ in table} == {"centralised", "FedAvg"} and table["FedAvg", "centre, loss"] is not None
    assert Path(made[1]["fedvssl/fig2"]["files"]["png"]).read_bytes().startswith(b"\x89PNG")


def test_seeds_and_overrides(made, tmp_path, monkeypatch):
    """Keys go to what knows them; those that runs and evaluations share are the runs'."""
    monkeypatch.setenv("FEDACTION_CACHE", str(made[0] / "cache"))
    options = ("--rows", "FedU", "--seeds", "0,1", "--out", tmp_path, "--engine", "vectorised")
    sets = [word for key in ("finetune_lr=0.5", "batch_size=2", "rounds=1") for word in ("--set", key)]
    found = document("fedvssl/table3", *options, *sets)
    assert {record["n"] for record in found["table"]} == {2} and "1 rounds, seeds 0, 1" in found["caption"]
    (run,) = (tmp_path / "runs").glob("fedu-*")
    keys = load_recipe(run / "seed-1" / "recipe.toml").flat()
    assert (keys["engine"], keys["batch_size"], keys["rounds"]) == ("vectorised", 2, 1)
    used = [read_json(path)["recipe"] for path in run.glob("seed-*/evaluations/*/result.json")]
    assert {(key["finetune_lr"], key["batch_size"], key["clip_frames"]) for key in used} == {(0.5, 16, 4)}
    assert sorted(key["seeds"][0] for key in used) == [0, 0, 1, 1] and len(used) == 4


@pytest.mark.slow
def test_side_by_side(made, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_CACHE", str(made[0] / "cache"))
    found = document("fedvssl/table2", "--rows", "IID", "--out", tmp_path, "--jobs", "2")
    assert values(found) == values(made[1]["fedvssl/table2"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("table1", "--set", "protocols=x"), "--set protocols: the columns of fedvssl/table1 name it"),
        (("fig3", "--set", "width=8"), "--set width: it follows from model_depth, model_width or clip_size"),
        (("table4", "--set", "model_widht=8"), "there is no key 'model_widht'; did you mean 'model_width'?"),
        (("table3", "--set", "finetune_lr=-1"), "finetune_lr: Input should be greater than 0"),
        (("table3", "--set", "rounds=many"), "rounds: Input should be a valid integer"),
        (("fig5", "--set", "vssl_alpha=1"), "--set vssl_alpha: fedvssl/fig5 varies it itself, in every row"),
    ],
)
def test_errors_come_before_anything_is_trained(tmp_path, arguments, words):
    result = call(f"fedvssl/{arguments[0]}", *arguments[1:], "--out", tmp_path / "out")
    assert result.exit_code == 2 and words in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


# Other data


def test_the_papers_datasets_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    root, actions = tmp_path / "own", ("sit", "wave")
    names = {action: [f"Film{i}_{action}_f_nm_np1_fr_med_{i}.avi" for i in range(4)] for action in actions}
    write_videos(root / "hmdb51", names, 12, 20, 24)
    for action, files in names.items():
        lines = [f"{name} {1 if i < 2 else 2} \n" for i, name in enumerate(files)]
        (root / "hmdb51" / f"{action}_test_split1.txt").write_text("".join(lines))
    for part in ("train", "val"):
        files = [f"{part}{i}.mp4" for i in range(4)]
        write_videos(root / "kinetics400" / part, dict.fromkeys(actions, files), 12, 20, 24)
    options = ("--data", root, "--out", tmp_path / "out", "--set", "pretext=speed")
    found = document("fedvssl/table2", "--rows", "100/4", *options)
    assert "the paper's datasets: Kinetics-400, HMDB" in found["caption"]
    table = values(found)
    assert table["non-IID 100/4", "HMDB R@1"] is not None and table["non-IID 100/4", "UCF R@1"] is None
    (run,) = (tmp_path / "out" / "runs").glob("fedvssl-*/seed-0")
    keys = load_recipe(run / "recipe.toml").flat()
    assert (keys["video_set"], keys["video_by"], keys["video_classes"]) == ("kinetics400", "classes", 1)
    confusion = read_json(run / "evidence.json")["confusion"]
    assert len(confusion) == 4  # clients, each of one class
    shutil.copy(root / "hmdb51/sit" / names["sit"][0], root / "hmdb51/wave" / names["wave"][3])  # is evaluated alone
    evaluated = call("fedvssl/table2", "--rows", "100/4", *options)
    assert evaluated.exit_code == 2 and "was begun with recordings (SHA-256)" in evaluated.stderr
    shutil.copy(root / "kinetics400/train/sit/train3.mp4", root / "kinetics400/train/wave/train0.mp4")
    trained = call("fedvssl/table2", "--rows", "100/4", *options)
    assert trained.exit_code == 2 and "was begun with other data than there are now" in trained.stderr


def test_folders_that_do_not_fit(tmp_path):
    for name, words in ((tmp_path, "holds neither ucf101 nor hmdb51"), ("nowhere", "neither stage")):
        result = call("fedvssl/fig3", "--data", name, "--out", tmp_path / "out")
        assert result.exit_code == 2 and words in " ".join(result.stderr.split())


@pytest.mark.slow
def test_real_recordings(made, monkeypatch):
    monkeypatch.setenv("FEDACTION_DATA", str(recordings("utd_mhad").parent))
    monkeypatch.setenv("FEDACTION_CACHE", str(made[0] / "cache"))
    found = document("fedvssl/table2", "--rows", "100/8", "--data", "real", "--out", made[0])
    assert all(record["n"] == 1 for record in found["table"]) and "UTD-MHAD depth" in str(found["notes"])
    configuration = made[1]["fedvssl/fig5"]["runs"][0]["configuration"]
    assert found["runs"][0]["configuration"] == configuration  # pretraining is the stage's


def test_list_fits_a_terminal():
    result = CliRunner().invoke(app, ["list"], env={"COLUMNS": "80"})
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and max(map(len, lines)) <= 80
    for name, item in FEDVSSL_ITEMS.items():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert line.endswith(FEDVSSL.cost(item, "small")) and "a GPU" in FEDVSSL.needs(item)
    assert "GPU" in result.stdout  # the list says what the small scale wants
