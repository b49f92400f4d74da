"""The items as the papers print them: names, rows, values; and the recipes that stand behind them."""

import statistics
from pathlib import Path

import pytest

from fedaction.federation.settings import RecipeError
from fedaction.methods import METHODS
from fedaction.papers import FSAR, ITEMS, SCALES, Workbench, find_item
from fedaction.papers.fsar.tables import DATASETS
from fedaction.papers.item import Item
from fedaction.runs.recipe import load_recipe

FSAR_ITEMS = {item.name: item for item in FSAR.items}
NAMES = [
    *(f"fsar/table{n}" for n in (1, 2, 3, 4)),
    *(f"fsar/fig{n}" for n in (2, 5, 7, 8, 9, 10)),
    *(f"fsar/s-table{n}" for n in range(1, 7)),
    *(f"fsar/s-fig{n}" for n in range(1, 8)),
]


def paper(name: str, *label: str) -> tuple[float | None, ...]:
    """What is printed in a row."""
    (row,) = [row for row in ITEMS[name].rows if row.label == label]
    return tuple(row.paper)


def test_every_table_and_figure_of_paper_and_supplement_is_there():
    assert sorted(FSAR_ITEMS) == sorted(NAMES) and len(NAMES) == 23
    for name, item in FSAR_ITEMS.items():
        assert item.name == name and item.kind == ("table" if "table" in name else "figure")
        number = name.rsplit("table" if item.kind == "table" else "fig")[1]
        place = "FSAR supplement" if "/s-" in name else "FSAR"
        assert item.title.startswith(f"{place}, {item.kind.title()} {number}. "), item.title


def test_one_row_is_chosen_by_its_whole_label():
    def labels(name: str, *texts: str) -> list[str]:
        return ["/".join(row.label) for row in find_item(name, *texts).rows]

    assert labels("fsar/table1", "st-gcn/FSAR") == labels("fsar/table1", "ST-GCN FSAR") == ["ST-GCN/FSAR"]
    assert labels("fsar/table1", "ST-GCN/FSAR", "MOON") == ["ST-GCN/MOON", "ST-GCN/FSAR"]
    assert labels("fsar/table1", "fsar") == [f"{name}/FSAR" for name in ("ST-GCN", "CTR-GCN", "MST-GCN", "MS-G3D")]
    assert labels("fsar/table1", "FSAR w/o") == ["ST-GCN/FSAR w/o ATS", "ST-GCN/FSAR w/o MKD"]
    assert labels("fsar/table3", "1/0/0") == ["1/0/0"] and labels("fdarn/table4", "FDARN") == ["FDARN"]
    assert labels("fedvssl/table2", "100/8") == labels("fedvssl/table2", "non-IID/100/8") == ["non-IID/100/8"]
    with pytest.raises(ValueError, match=r"has no row that begins with 'ST-GCN/X'; it has ST-GCN/Vanilla FSAR, ST-G"):
        find_item("fsar/table1", "ST-GCN/X")


def test_every_row_can_be_chosen_alone():
    for item in ITEMS.values():
        for row in item.rows:
            assert find_item(item.name, "/".join(row.label)).rows == (row,), item.name


def test_a_wrong_name_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"no item 'fsar/s-tabel2'; did you mean 'fsar/s-table2'\?"):
        find_item("fsar/s-tabel2")
    with pytest.raises(ValueError, match=r"no item '…'; `fedaction paper list` names all"):
        find_item("…")


@pytest.mark.parametrize("item", ITEMS.values(), ids=lambda item: item.name)
def test_rows_are_whole(item: Item):
    assert item.rows and len({row.label for row in item.rows}) == len(item.rows)
    for row in item.rows:
        assert len(row.paper) in (0, len(item.columns)), row.label
        assert not row.spread or [value is None for value in row.spread] == [value is None for value in row.paper]
        assert row.method in (*METHODS, "distil", "random", "supervised") or (
            not row.method and item.shows in ("sizes", "profiles", "times")
        )
    if item.kind == "table":
        assert all(len(row.label) == len(item.heads) and row.paper for row in item.rows)


def test_table_1():
    rows = [row.label for row in ITEMS["fsar/table1"].rows]
    stgcn = ["Vanilla FSAR", "FedProx", "FedBN", "FedAGM", "MOON", "FSAR", "FSAR w/o ATS", "FSAR w/o MKD"]
    others = [(name, model) for name in ("CTR-GCN", "MST-GCN", "MS-G3D") for model in ("Vanilla FSAR", "FSAR")]
    starred = ["Vanilla FSAR, statistics re-estimated*", "Vanilla FSAR, twice the local epochs*"]  # not in the paper
    assert rows == [*(("ST-GCN", model) for model in (*stgcn, *starred)), *others]
    assert {paper("fsar/table1", "ST-GCN", model) for model in starred} == {(None,) * 5}
    # The differences from Vanilla FSAR that the paper prints.
    vanilla = paper("fsar/table1", "ST-GCN", "Vanilla FSAR")
    printed = {
        "FedProx": (-0.92, -1.08, +0.29, +0.55, -0.03),
        "FedBN": (+0.36, -2.40, -2.63, -1.88, -1.19),
        "FedAGM": (+0.28, +0.24, +0.48, +1.23, -1.64),
        "MOON": (-2.08, -2.01, -1.63, -1.07, +0.57),
        "FSAR": (+4.19, +7.41, +10.22, +9.54, +10.97),
        "FSAR w/o ATS": (+1.96, +3.49, +3.37, +2.06, +3.65),
        "FSAR w/o MKD": (+3.59, +4.94, +8.42, +8.57, +9.42),
    }
    for model, differences in printed.items():
        found = [a - b for a, b in zip(paper("fsar/table1", "ST-GCN", model), vanilla, strict=True)]
        assert found == pytest.approx(differences, abs=1e-9), model
    backbones = {
        "CTR-GCN": (+2.34, +7.17, +8.73, +8.43, +11.23),
        "MST-GCN": (+3.47, +7.31, +8.09, +8.60, +10.64),
        "MS-G3D": (+4.66, +6.09, +10.83, +9.82, +10.53),
    }
    for name, differences in backbones.items():
        one, other = paper("fsar/table1", name, "FSAR"), paper("fsar/table1", name, "Vanilla FSAR")
        assert [a - b for a, b in zip(one, other, strict=True)] == pytest.approx(differences, abs=1e-9), name


@pytest.mark.parametrize(
    ("name", "label", "mean"),
    [
        ("fsar/table1", ("ST-GCN", "FSAR"), 81.150),
        ("fsar/table1", ("ST-GCN", "Vanilla FSAR"), 72.684),
        ("fsar/table1", ("CTR-GCN", "FSAR"), 82.476),
        ("fsar/table2", ("Vanilla FSAR",), 71.802),
        ("fsar/table2", ("FSAR",), 74.050),
        ("fsar/table3", ("1", "0", "1"), 77.184),
        ("fsar/table3", ("*", "*", "*"), 79.064),
        ("fsar/s-table2", ("1", "5", "0.1"), 82.100),
        ("fsar/s-table3", ("1",), 81.432),
        ("fsar/s-table4", ("0.6", "0.8"), 78.868),
        ("fsar/s-table5", ("w/o KD loss",), 79.690),
        ("fsar/s-table6", ("FSAR",), 81.272),
    ],
)
def test_means_of_printed_rows(name: str, label: tuple[str, ...], mean: float):
    values = [value for value in paper(name, *label) if value is not None]
    assert statistics.fmean(values) == pytest.approx(mean, abs=5e-4)


def test_differences_printed_in_the_supplement():
    """Against the default row; the three that the papers print wrongly are named in the notes."""
    printed = {
        "fsar/s-table2": [
            *[(+4.40, -1.70, +2.23, +1.48, -1.66), (+1.99, +0.31, +1.42, +0.96, -0.04)],
            *[(-0.69, +0.67, -0.20, +1.61, +0.79), (+0.52, -1.20, +0.81, -1.07, +1.13)],
        ],
        "fsar/s-table3": [
            *[(+1.98, -0.20, -1.39, -0.33, +0.92), (+3.78, -1.17, -1.21, -0.89, +0.81)],
            *[(+4.10, -0.32, -3.23, -3.05, +0.36), (+4.88, +2.67, -2.26, -5.87, +1.99)],
        ],
        "fsar/s-table4": [
            *[(+0.25, +1.57, -1.20, -3.61, -1.21), (+0.40, -1.53, -3.60, -5.42, -1.26)],
            *[(+2.11, +3.29, -3.33, -5.05, +0.41), (+0.56, +3.82, -5.07, -4.58, -0.08)],
        ],
        "fsar/s-table5": [(-1.20, -0.10, -2.46, -1.56, -1.98)],
        "fsar/s-table6": [(+3.46, +6.84, +9.24, +8.61, +9.47)],
    }
    for name, differences in printed.items():
        first, *rest = [row.paper for row in ITEMS[name].rows]
        found = [[a - b for a, b in zip(row, first, strict=True)] for row in rest]  # type: ignore[operator]
        assert found == [pytest.approx(row, abs=1e-9) for row in differences], name
    for name, wrong in (("s-table3", "-0.17"), ("s-table5", "-0.33"), ("s-table6", "+3.66")):
        assert any(wrong in note for note in ITEMS[f"fsar/{name}"].notes)


def test_the_default_row_is_the_headline_wherever_it_is_printed():
    headline = paper("fsar/table1", "ST-GCN", "FSAR")
    for name in ("fsar/s-table2", "fsar/s-table3", "fsar/s-table4", "fsar/s-table5"):
        assert ITEMS[name].rows[0].paper == headline
    assert paper("fsar/s-fig3", "1") == headline
    assert paper("fsar/fig7", "FSAR") == tuple(headline[i] for i in (1, 3, 4))


def test_values_that_cannot_be_read_are_none():
    assert paper("fsar/table4", "alpha") == (None, 0.77, 1.10, 0.91, 0.85)
    assert paper("fsar/table4", "beta") == (0.95, 1.01, 0.90, 0.67, 0.86)
    assert paper("fsar/table4", "gamma") == (None, 1.27, 0.85, 1.07, 1.11)
    assert paper("fsar/fig9", "2") == (None, 94.3, None, 90.8)
    assert paper("fsar/s-fig3", "2") == (None,) * 5
    assert paper("fsar/s-fig2", "FSAR") == (0.1,) and paper("fsar/s-fig2", "centralised") == (0.7,)
    assert paper("fsar/s-table1", "NTU 120") == (63026, 50919, 120)


def test_columns_are_the_papers_clients():
    for item in FSAR_ITEMS.values():
        if item.shows not in ("sizes", "curves", "topology") and item.name not in ("fsar/fig9", "fsar/s-fig2"):
            assert tuple(column.label for column in item.columns) == DATASETS, item.name
    assert [c.label for c in ITEMS["fsar/fig7"].columns] == ["PKU II", "NTU 120", "UESTC"]
    assert [c.label for c in ITEMS["fsar/s-fig1"].columns] == ["NTU 60", "PKU I"]
    assert [c.among for c in ITEMS["fsar/fig9"].columns] == [(0, 4), (0, 4), (0, 2), (0, 2)]
    assert [c.client for c in ITEMS["fsar/fig9"].columns] == [0, 4, 0, 2]


# Recipes


def recipes(name: str, scale: str) -> dict[tuple[str, ...], str]:
    """Each row's configuration on the stage."""
    bench = Workbench(FSAR, "stage", scale, Path("unused"))
    return {row.label: bench.recipe(row).configuration() for row in ITEMS[name].rows}


@pytest.mark.parametrize("scale", SCALES)
def test_rows_share_runs_where_they_mean_the_same(scale: str):
    table1 = recipes("fsar/table1", scale)
    assert len(set(table1.values())) == len(table1)
    default, vanilla = table1["ST-GCN", "FSAR"], table1["ST-GCN", "Vanilla FSAR"]
    assert recipes("fsar/s-table2", scale)["1", "1", "0.1"] == default
    assert recipes("fsar/s-table3", scale)["5",] == default
    assert recipes("fsar/s-table4", scale)["0.8", "0.8"] == default
    assert recipes("fsar/s-table5", scale)["w KD loss (FSAR)",] == default
    assert recipes("fsar/s-fig3", scale)["1",] == default
    assert set(recipes("fsar/table4", scale).values()) == {default}
    assert recipes("fsar/fig2", scale) == {("Vanilla FSAR",): vanilla, ("FSAR",): default}
    table3 = recipes("fsar/table3", scale)
    assert table3["1", "0", "0"] == vanilla and table3["*", "*", "*"] == table1["ST-GCN", "FSAR w/o MKD"]
    assert table3.pop(("1", "0", "0*")) not in {vanilla, table1["ST-GCN", "FSAR w/o ATS"], *table3.values()}
    assert list(recipes("fsar/s-fig1", scale).values()) == list(table3.values())[:4]
    assert recipes("fsar/s-fig5", scale)["A + IM",] == table3["1", "1", "0"]
    assert recipes("fsar/s-fig7", scale)["A + UM",] == table3["1", "0", "1"]
    assert recipes("fsar/s-fig4", scale) == recipes("fsar/s-fig6", scale) == {("A + IM + UM",): table3["1", "1", "1"]}
    everything = {
        hash for item in FSAR_ITEMS.values() if item.rows[0].method for hash in recipes(item.name, scale).values()
    }
    # Tables 1 and 3 (with their controls), s2 to s5, fig. 9 (b = 1, 3), s3, central.
    assert len(everything) == 16 + 4 + 4 + 4 + 4 + 1 + 2 + 2 + 1


def test_small_and_paper_are_the_recipes_that_come_with_the_project():
    for scale, file in (("small", "demo"), ("paper", "paper")):
        recipe = load_recipe(f"fsar/{file}")
        found = recipes("fsar/fig2", scale)
        assert found["FSAR",] == recipe.only("fsar", 0).configuration()
        assert found["Vanilla FSAR",] == recipe.only("fedavg", 0).configuration()


def test_rows_are_the_papers_settings_and_nothing_else():
    bench = Workbench(FSAR, "stage", "small", Path("unused"))

    def changed(name: str, *label: str) -> dict[str, object]:
        (row,) = [row for row in ITEMS[name].rows if row.label == label]
        default = bench.recipe(ITEMS["fsar/table1"].rows[5]).flat()
        return {key: value for key, value in bench.recipe(row).flat().items() if default[key] != value}

    assert changed("fsar/table1", "ST-GCN", "FSAR w/o ATS") == {"ats": False}
    assert changed("fsar/table1", "ST-GCN", "FSAR w/o MKD") == {"mkd_blocks": 0}
    assert changed("fsar/table3", "1", "1", "0") == {"mkd_blocks": 0, "ats_coefficients": (1.0, 1.0, 0.0)}
    assert changed("fsar/s-table2", "1", "0.5", "0.1") == {"lambda_kd": 0.5}
    assert changed("fsar/s-table2", "1", "1", "0.05") == {"lambda_reg": 0.05}
    assert changed("fsar/s-table3", "2") == {"clients_per_round": 2}
    assert changed("fsar/s-table4", "0.4", "0.8") == {"tau": 0.4}
    assert changed("fsar/s-table4", "0.8", "0.4") == {"xi": 0.4}
    assert changed("fsar/s-table5", "w/o KD loss") == {"lambda_kd": 0.0}
    assert changed("fsar/s-fig3", "3") == {"local_epochs": 3}
    assert changed("fsar/table1", "CTR-GCN", "FSAR") == {"backbone": "ctrgcn", "model_width": 8}


@pytest.mark.parametrize(
    ("data", "given", "epochs"), [("stage", {}, 1), ("real", {}, 4), ("stage", {"local_epochs": 3}, 3)]
)
def test_the_starred_rows_of_table_1_are_vanilla_fsar_with_one_thing_changed(
    data: str, given: dict[str, object], epochs: int
):
    bench = Workbench(FSAR, data, "small", Path("unused"), overrides=given)
    rows = {row.label[1]: bench.recipe(row).flat() for row in find_item("fsar/table1", "ST-GCN").rows}
    vanilla, fsar = rows["Vanilla FSAR"], rows["FSAR"]
    again, longer = (rows[name] for name in rows if name.endswith("*"))
    assert vanilla["local_epochs"] == fsar["local_epochs"] == epochs
    assert again == {**vanilla, "statistics": "reestimate"} != vanilla
    assert longer == {**vanilla, "local_epochs": 2 * epochs}


def test_overrides_reach_the_rows_that_know_them():
    bench = Workbench(FSAR, "stage", "tiny", Path("unused"), overrides={"mkd_blocks": 1, "lr": 0.5})
    vanilla, fsar = (bench.recipe(row) for row in ITEMS["fsar/fig2"].rows)
    assert "mkd_blocks" not in vanilla.flat() and fsar.flat()["mkd_blocks"] == 1
    assert vanilla.run.lr == fsar.run.lr == 0.5
    without = ITEMS["fsar/table1"].rows[7]
    assert without.label[1] == "FSAR w/o MKD" and bench.recipe(without).flat()["mkd_blocks"] == 0
    bench.check(ITEMS["fsar/fig2"])


@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("fsar/fig2", {"lrr": 1}, "fsar/fig2: there is no key 'lrr'; did you mean 'lr'"),
        ("fsar/table2", {"public_sets": ["kard"]}, "there is no key 'public_sets'"),
        ("fsar/s-table4", {"tau": 0.5}, "--set tau: fsar/s-table4 varies it itself"),
        ("fsar/s-table1", {"tau": 0.5}, "fsar/s-table1: there is no key 'tau'"),
    ],
)
def test_overrides_that_can_mean_nothing(name: str, overrides: dict[str, object], words: str):
    bench = Workbench(FSAR, "stage", "tiny", Path("unused"), overrides=overrides)
    with pytest.raises(RecipeError, match=words):
        bench.check(ITEMS[name])


@pytest.mark.parametrize("key", ["method", "baselines", "seeds", "data", "name"])
def test_overrides_that_belong_elsewhere(key: str):
    with pytest.raises(RecipeError, match=f"--set {key}: "):
        Workbench(FSAR, "stage", "tiny", Path("unused"), overrides={key: "x"})


def test_a_pair_of_clients_keeps_what_is_their_own():
    bench = Workbench(FSAR, "stage", "small", Path("unused"), overrides={"stage_train": [10, 20, 30, 40, 50]})
    source = bench.recipe(ITEMS["fsar/fig9"].rows[0], (0, 4)).flat()
    assert source["stage_clients"] == 2 and source["stage_layouts"] == ("kinect_v2", "coco_17")
    assert source["stage_train"] == (10, 50) and source["stage_actions"] == (16, 12)
    with pytest.raises(RecipeError, match="--set stage_train: a list with a value per client"):
        Workbench(FSAR, "stage", "small", Path("unused"), overrides={"stage_train": 10})
