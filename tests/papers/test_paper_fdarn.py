"""FDARN's items as its paper prints them, their recipes, and what stands in for its modalities."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from fedaction.cli.paper import paper
from fedaction.data.features import FeatureSet, Modality, save_features
from fedaction.federation.settings import RecipeError
from fedaction.papers import FDARN, ITEMS, SCALES, Workbench, find_item, paper_of
from fedaction.papers.fdarn.items import COLUMNS, MODALITIES
from fedaction.papers.item import Item
from fedaction.runs.recipe import load_recipe
from tests.conftest import recordings

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(paper)
FDARN_ITEMS = {item.name: item for item in FDARN.items}
METHODS = ["local", "fedavg", "pfedme", "fedprox", "perfedavg", "lgfedavg", "fedrep", "fedbn", "metahar", "fdarn"]


def printed(name: str, *label: str) -> list[float]:
    """What the paper has in a row."""
    (row,) = [row for row in ITEMS[name].rows if row.label == label]
    return [value for value in row.paper if value is not None]


def averages(row: list[float]) -> list[float]:
    """Of a row of Table 1, by dataset."""
    return [statistics.fmean(row[i:j]) for i, j in ((0, 4), (4, 6), (6, 8), (8, 10))]


def bench(item: Item, data: str = "stage", scale: str = "small") -> Workbench:
    return Workbench(paper_of(item), data, scale, Path("unused"))


def test_every_table_and_figure_of_results_is_there():
    assert list(FDARN_ITEMS) == [*(f"fdarn/table{n}" for n in (1, 2, 3, 4)), "fdarn/fig3", "fdarn/fig4"]
    for name, item in FDARN_ITEMS.items():
        assert item.kind == ("table" if "table" in name else "figure")
        assert item.title.startswith(f"FDARN, {item.kind.title()} {name[-1]}. "), item.title


def test_rows_and_columns_are_the_papers():
    for name in ("fdarn/table1", "fdarn/table2", "fdarn/fig3"):
        assert [row.method for row in ITEMS[name].rows] == METHODS
    assert [column.label for column in ITEMS["fdarn/table1"].columns] == list(COLUMNS) and len(COLUMNS) == 10
    assert [column.label for column in ITEMS["fdarn/table2"].columns] == list(COLUMNS[:4])
    for name in ("table3", "table4", "fig3", "fig4"):
        assert [column.label for column in ITEMS[f"fdarn/{name}"].columns] == list(MODALITIES)
    left_out = [row.overrides.get("fdarn_without") for row in ITEMS["fdarn/table3"].rows]
    assert left_out == ["psi_sc_at_test", "psi_pc_at_test", "phi_a", "phi_e", "psi_md", "L_sep", "L_sp", None]
    epochs = [row.label for row in ITEMS["fdarn/fig4"].rows]
    assert len(epochs) == 36 and epochs[-4:] == [("FDARN", n) for n in "1234"]


def test_printed_values():
    last = ITEMS["fdarn/table1"].rows[-1]
    assert last.paper == (34.18, 43.57, 47.52, 33.90, 68.40, 42.80, 65.62, 38.49, 42.38, 38.31)
    assert last.spread == (0.5, 0.4, 0.4, 0.5, 0.8, 1.7, 1.8, 1.0, 0.6, 0.7)
    assert printed("fdarn/table1", "Meta-HAR")[3] == 34.62 and printed("fdarn/table1", "FedBN")[4] == 64.00
    assert printed("fdarn/table2", "FDARN") == [26.86, 43.23, 40.60, 31.01]
    assert printed("fdarn/table3", "w/o psi_md") == [36.10, 51.20, 47.51, 36.12]
    assert ITEMS["fdarn/table4"].rows[2].paper == (34.55, 47.60, 45.56, None)  # the text is damaged there
    assert printed("fdarn/table4", "FDARN*") == printed("fdarn/table3", "w/o L_sep")


def test_the_papers_tables_agree_with_each_other():
    """Modalities have as many clients each, so Table 3's FDARN is the mean of Table 1's; but for rounding."""
    means = averages(printed("fdarn/table1", "FDARN"))
    assert means == pytest.approx([39.79, 55.60, 52.06, 40.35], abs=0.006)
    assert printed("fdarn/table3", "FDARN") == pytest.approx(means, abs=0.011)
    assert printed("fdarn/table4", "FDARN") == printed("fdarn/table3", "FDARN")
    for row in ITEMS["fdarn/table1"].rows:
        found = averages(printed("fdarn/table1", *row.label))
        assert printed("fdarn/fig3", *row.label) == pytest.approx(found, abs=0.006)
    # "by 2.00, 2.32 and 2.26 over the second best" on Epic-Kitchens' first three modalities.
    columns = list(zip(*(row.paper for row in ITEMS["fdarn/table1"].rows), strict=True))[:3]
    gains = [values[-1] - max(values[:-1]) for values in columns]  # type: ignore[type-var]
    assert gains == pytest.approx([2.00, 2.32, 2.26], abs=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_items_share_runs(scale: str):
    found = {
        name: {row.label: bench(item, scale=scale).recipe(row).configuration() for row in item.rows}
        for name, item in FDARN_ITEMS.items()
    }
    first = found["fdarn/table1"]
    assert found["fdarn/table3"]["FDARN",] == found["fdarn/table4"]["FDARN",] == first["FDARN",]
    assert found["fdarn/table4"]["FDARN*",] == found["fdarn/table3"]["w/o L_sep",]
    assert found["fdarn/fig3"] == first
    assert all(found["fdarn/fig4"][label[0], "2"] == first[label] for label in first if label != ("SingleSet",))
    assert len({hash for rows in found.values() for hash in rows.values()}) == 10 + 7 + 2 + 27


def test_rows_change_what_the_paper_changes_and_nothing_else():
    default = bench(ITEMS["fdarn/table1"]).recipe(ITEMS["fdarn/table1"].rows[-1])
    keys = default.flat()
    for row in (*ITEMS["fdarn/table3"].rows, *ITEMS["fdarn/table4"].rows, *ITEMS["fdarn/fig4"].rows[-4:]):
        changed = {k: v for k, v in bench(ITEMS["fdarn/table3"]).recipe(row).flat().items() if keys[k] != v}
        assert changed == row.overrides, row.label
    assert (default.run.local_epochs, default.run.weight_decay, default.run.augment) == (2, 1e-5, False)
    alone = ITEMS["fdarn/table2"]
    cells = bench(alone).cells(alone, **bench(alone).setting.split(alone.protocol)[0])
    assert {cell.runs[0].recipe.flat()["stage_clients"] for cell in cells} == {1} and keys["stage_clients"] == 4


def test_the_papers_scale():
    recipe = bench(ITEMS["fdarn/table1"], scale="paper").recipe(ITEMS["fdarn/table1"].rows[-1])
    assert (recipe.run.rounds, recipe.run.lr, recipe.run.batch_size) == (300, 0.001, 64)
    assert recipe.flat()["model_features"] == recipe.flat()["model_hidden"] == recipe.flat()["feature_width"] == 1024
    recipe = bench(ITEMS["fdarn/table1"], "real", "paper").recipe(ITEMS["fdarn/table1"].rows[0])
    assert (recipe.run.lr, recipe.run.batch_size, recipe.run.rounds * recipe.run.local_epochs) == (0.01, 32, 300)


def test_at_the_papers_scale_networks_have_no_normalisation_but_fedbns():
    for scale, normalised in (("small", set(METHODS)), ("paper", {"fedbn"})):
        made = bench(ITEMS["fdarn/table1"], scale=scale)
        recipes = {row.method: made.recipe(row) for row in ITEMS["fdarn/table1"].rows}
        assert {name for name, recipe in recipes.items() if recipe.flat()["model_norm"]} == normalised
    assert recipes["fdarn"].flat()["stage_modalities"] == ("video", "flow", "audio", "inertial")


def test_a_setting_is_one_papers():
    for name, other in (("fdarn/table1", "fsar/table1"), ("fsar/table1", "fdarn/table1")):
        with pytest.raises(RecipeError, match=f"{name}: the setting is one for the items of {other.split('/')[0]}"):
            bench(ITEMS[other]).check(ITEMS[name])


# Other data than the stage


def call(*arguments: object) -> Result:
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, [*words, "--scale", "tiny"], env={"COLUMNS": "200"})


def write_store(path: Path, modality: Modality, people: bool = True) -> None:
    """Two classes of four people, twelve samples each, told apart by their mean."""
    rng = np.random.default_rng(len(modality))
    labels = np.arange(48) % 2
    x = (rng.normal(size=(48, 16)) + labels[:, None]).astype(np.float32)
    who = tuple(f"p{i // 12}" for i in range(48)) if people else ()
    about = {"extractor": {"name": "drawn", "version": 1, "parameters": {}}, "source": {"what": "a test"}}
    names = tuple(map(str, range(48)))
    save_features(FeatureSet(modality, x, labels, ("sit", "wave"), who, names, about), path)


def document(result: Result) -> dict[str, list[dict[str, str]]]:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_feature_stores_in_a_folder(tmp_path):
    """Columns go by modality, not by the folders' names; people are dealt where they are known."""
    for name, modality in (("a", "inertial"), ("b", "image")):
        write_store(tmp_path / "two" / name, modality)  # type: ignore[arg-type]
    options = ("fdarn/table1", "--rows", "FDARN", "--data", tmp_path / "two", "--out", tmp_path / "out", "--json")
    found = {record["column"]: record for record in document(call(*options))["table"]}
    measured = {column: record["client"] for column, record in found.items() if record["n"]}
    assert measured == {"Ego-Exo-AR image": "image", "Ego-Exo-AR sensor": "inertial"}
    (path,) = (tmp_path / "out" / "runs").glob("*/seed-0/recipe.toml")
    names = [client.info.id for client in load_recipe(path).source.load(0)]
    assert names == ["image-p0", "image-p2", "inertial-p1", "inertial-p3"]
    whole = document(call("fdarn/table3", *options[1:]))["table"]
    parts = [float(record["ours_mean"]) for record in found.values() if record["n"]]
    assert [record["column"] for record in whole if record["n"]] == ["Ego-Exo-AR"]
    assert float(whole[3]["ours_mean"]) == pytest.approx(statistics.fmean(parts), abs=1e-4)
    absent = document(call("fdarn/table2", *options[1:]))
    assert absent["available"] is False and not absent["runs"]  # nothing stands in for Epic-Kitchens


@pytest.mark.parametrize("people", [True, False])
def test_one_client_of_each_modality(tmp_path, people: bool):
    for modality in ("video", "flow", "audio", "inertial"):
        write_store(tmp_path / "four" / modality, modality, people)  # type: ignore[arg-type]
    options = ("--rows", "FDARN", "--data", tmp_path / "four", "--out", tmp_path / "out", "--json")
    for item, count in (("fdarn/table2", 1), ("fdarn/table1", 1 if people else 4)):
        made = document(call(item, *options))
        assert [record["client"] for record in made["table"] if record["n"]] == ["video", "flow", "audio", "inertial"]
        (path,) = (tmp_path / "out" / "runs").glob(f"*-{made['runs'][0]['configuration']}/seed-0/recipe.toml")
        assert len(load_recipe(path).source.load(0)) == 4 * count


def test_folders_that_do_not_fit(tmp_path):
    write_store(tmp_path / "one" / "video", "video")
    result = call("fdarn/table1", "--data", tmp_path / "one", "--out", tmp_path / "out")
    said = " ".join(result.stderr.split())
    assert result.exit_code == 2 and "holds feature stores of video; FDARN's tables have columns for two or" in said
    result = call("fdarn/table1", "--data", tmp_path / "none", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "neither stage nor real nor a folder" in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


def test_real_recordings(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_DATA", str(recordings("utd_mhad").parent))
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    options = ("--rows", "FDARN", "--data", "real", "--out", tmp_path / "out", "--json")
    made = document(call("fdarn/table1", *options))
    measured = {record["column"]: record["client"] for record in made["table"] if record["n"]}
    assert measured == {"Multimodal-EA video": "skeleton", "Multimodal-EA sensor": "inertial"}
    assert "real recordings: UTD-MHAD" in made["caption"]


def test_rows_can_be_chosen():
    assert [row.label for row in find_item("fdarn/fig4", "fedbn").rows] == [("FedBN", n) for n in "1234"]
