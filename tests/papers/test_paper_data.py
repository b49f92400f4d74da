"""Items on other data than the stage: the paper's datasets, imported ones, public recordings."""

import csv
import json
import shutil
from pathlib import Path

from fedaction.data.layout import OPENNI_15
from fedaction.data.store import StoreWriter
from fedaction.papers import FSAR
from fedaction.papers.fsar.tables import DATASETS
from fedaction.runs.recipe import load_recipe
from tests.conftest import recordings
from tests.data.public.formats import person, write_one_person
from tests.papers.command import call


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_papers_own_datasets_in_a_folder(tmp_path, monkeypatch):
    """Two of the five, in NTU's file format; persons 1 and 2 train, 3 tests."""
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    for folder, first in (("ntu60", 1), ("ntu120", 61)):
        for who in (1, 2, 3):
            for action in (first, first + 1):
                name = f"S001C001P{who:03d}R001A{action:03d}.skeleton"
                write_one_person(tmp_path / "sets" / folder / name, 10, 100 * who + action)
    options = ("--data", tmp_path / "sets", "--out", tmp_path / "out", "--json")
    found = json.loads(call("fsar/s-table1", *options).stdout)
    ours = [record["ours_mean"] for record in found["table"]]
    assert ours == [*[None] * 6, 4, 2, 2, 4, 2, 2, *[None] * 3]
    result = call("fsar/fig2", *options)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["caption"].startswith("Ours (the paper's). Data: the paper's datasets: ntu60, ntu120 only; tiny")
    assert [(r["column"], r["client"]) for r in found["table"][:5]] == [
        *[("PKU I", ""), ("PKU II", ""), ("NTU 60", "ntu60"), ("NTU 120", "ntu120"), ("UESTC", "")]
    ]
    assert [r["n"] for r in found["table"]] == [0, 0, 1, 1, 0] * 2
    assert Path(found["files"]["svg"]).name == "fig2-sets-tiny.svg"


def test_views_and_setups_split_the_papers_own_datasets(tmp_path, monkeypatch):
    """S-Table 6: NTU 60 across cameras (1 tests), NTU 120 across setups (odd ones test)."""
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    for camera in (1, 2, 3):
        for action in (1, 2):
            name = f"S001C{camera:03d}P001R001A{action:03d}.skeleton"
            write_one_person(tmp_path / "sets" / "ntu60" / name, 10, 10 * camera + action)
    for setup in (1, 2, 4, 6):
        for action in (61, 62):
            name = f"S{setup:03d}C001P001R001A{action:03d}.skeleton"
            write_one_person(tmp_path / "sets" / "ntu120" / name, 10, 10 * setup + action)
    result = call("fsar/s-table6", "--data", tmp_path / "sets", "--out", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    tested = {r["client"]: r["n"] for r in found["table"] if r["client"]}
    assert found["available"] and tested == {"ntu60": 1, "ntu120": 1}
    (recipe,) = (tmp_path / "out" / "runs").glob("fsar-*/seed-0/recipe.toml")
    source = load_recipe(recipe).source
    assert [(len(c.train), len(c.test)) for c in source.load(0)] == [(4, 2), (6, 2)]


def test_a_figure_of_clients_that_are_not_there(tmp_path):
    for number, name in enumerate(("clinic", "studio")):
        write_store(tmp_path / "own" / name, number)
    options = ("--data", tmp_path / "own", "--out", tmp_path / "out", "--json")
    found = json.loads(call("fsar/fig9", *options).stdout)
    assert not found["available"] and "none of the clients that it shows has a stand-in" in found["caption"]
    assert set(found["files"]) == {"csv", "md", "json"} and not (tmp_path / "out" / "runs").exists()
    result = call("fsar/fig8", *options)  # one of its two clients
    assert result.exit_code == 0, result.stderr
    assert {line["client"] for line in rows(json.loads(result.stdout)["files"]["csv"])} == {"clinic"}


def test_every_dataset_of_the_paper_has_its_own_split_across_views(tmp_path):
    for name in ("pku1", "pku2", "ntu60", "ntu120", "uestc"):
        (tmp_path / name).mkdir()
    keys, absent = FSAR.setting(str(tmp_path), "paper").split("views")
    assert not absent
    assert keys == {"public_split": ("cross_view", "cross_view", "cross_view", "cross_setup", "cross_subject")}


def write_store(path: Path, seed: int, *protocols: str) -> None:
    """An imported dataset: two actions of two people, who train and test."""
    with StoreWriter(path, layout=OPENNI_15, classes=("sit", "wave")) as writer:
        for number in range(8):
            side = "train" if number < 4 else "test"
            sequence = person(10, 10 * seed + number, joints=15)[None]
            splits = dict.fromkeys(protocols, side)
            writer.add(sequence, label=number % 2, name=str(number), subject=side, splits=splits)
        writer.finish()


def test_imported_datasets_in_a_folder(tmp_path):
    for number, name in enumerate(("clinic", "studio")):
        write_store(tmp_path / "own" / name, number, "cross_subject", "cross_view")
    options = ("--data", tmp_path / "own", "--out", tmp_path / "out", "--json")
    views = json.loads(call("fsar/s-table6", *options).stdout)
    assert views["available"] and [record["n"] for record in views["table"]] == [1, 1, 0, 0, 0, 0] * 2
    people = json.loads(call("fsar/fig2", *options).stdout)
    assert people["data"] == "imported datasets: clinic, studio"
    assert [record["client"] for record in people["table"]] == ["clinic", "studio", "", "", ""] * 2
    for document, protocol in ((views, "cross_view"), (people, "cross_subject")):
        *controls, uncertain = [note for note in document["notes"] if note.startswith("On the same split")]
        assert "other test samples would move a mean by up to" in uncertain
        assert [note.split(", ")[1].split(":")[0] for note in controls] == [
            "always the commonest class",
            "a ridge classifier on the input",
        ]
        assert all("clinic" in note and "studio" in note for note in controls)
        for run in document["runs"]:
            recipe = tmp_path / "out" / "runs" / f"{run['method']}-{run['configuration']}" / "seed-0" / "recipe.toml"
            assert f'store_protocol = "{protocol}"' in recipe.read_text()


def test_a_table_is_not_put_together_from_two_sets_of_data(tmp_path):
    """The same folders, with other recordings in them."""
    for number, name in enumerate(("clinic", "studio")):
        write_store(tmp_path / "own" / name, number)
    options = ("fsar/fig2", "--data", tmp_path / "own", "--out", tmp_path / "out")
    assert call(*options).exit_code == 0
    shutil.move(tmp_path / "own", tmp_path / "before")
    for number, name in enumerate(("clinic", "studio")):
        write_store(tmp_path / "own" / name, 7 + number)
    again = call(*options)
    assert again.exit_code == 2 and "was begun with other data than there are now" in again.stderr
    shutil.rmtree(next((tmp_path / "out" / "runs").glob("fedavg-*")))  # with one of two runs to do
    assert call(*options).exit_code == 2 and not [*(tmp_path / "out" / "runs").glob("fedavg-*")]
    assert call(*options[:-1], tmp_path / "new").exit_code == 0
    shutil.rmtree(tmp_path / "own")
    shutil.move(tmp_path / "before", tmp_path / "own")
    assert call(*options).exit_code == 0
    clients, controls = (sorted((tmp_path / "out" / "data").glob(kind)) for kind in ("*.json", "*/controls.json"))
    before = [path.read_bytes() for path in (*clients, *controls)]
    assert len(before) == 2
    for content in (None, b"[]", b'{"clients": [{"id": 1}]}'):  # of other data, and damaged
        for path in (*clients, *controls):
            (other,) = (tmp_path / "new").rglob(str(path.relative_to(tmp_path / "out")))
            path.write_bytes(other.read_bytes() if content is None else content)
        assert call(*options).exit_code == 0
        assert before == [path.read_bytes() for path in (*clients, *controls)]


def test_imported_datasets_without_views(tmp_path):
    for number, name in enumerate(("clinic", "studio")):
        write_store(tmp_path / "own" / name, number)
    found = json.loads(call("fsar/s-table6", "--data", tmp_path / "own", "--out", tmp_path / "out", "--json").stdout)
    assert not found["available"] and "no split across views is known for clinic, studio." in found["caption"]
    for number in range(4):
        write_store(tmp_path / "own" / str(number), number)
    result = call("fsar/table1", "--data", tmp_path / "own", "--out", tmp_path / "none")
    assert result.exit_code == 2 and "holds 6 imported datasets" in result.stderr
    assert not (tmp_path / "none").exists()


def test_real_recordings(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDACTION_DATA", str(recordings("florence3d").parent))
    monkeypatch.setenv("FEDACTION_CACHE", str(tmp_path / "cache"))
    found = json.loads(call("fsar/s-table1", "--data", "real", "--out", tmp_path / "out", "--json").stdout)
    clients = [record["row"] for record in found["table"][::3]]
    pairs = zip(DATASETS, ("utd_mhad", "msr_action3d", "kard", "florence3d", "hdm05"), strict=True)
    assert clients == [f"{dataset} / {name}" for dataset, name in pairs]
    assert [record["ours_mean"] for record in found["table"][2::3]] == [27, 20, 18, 9, 11]


def test_words_when_data_are_missing(tmp_path: Path):
    def words(*arguments: object) -> str:
        result = call(*arguments, "--out", tmp_path / "out")
        assert result.exit_code == 2 and not result.stdout and not (tmp_path / "out").exists()
        return " ".join(result.stderr.split())

    assert "--data nowhere is neither stage nor real nor a folder" in words("fsar/table1", "--data", "nowhere")
    (tmp_path / "empty").mkdir()
    assert "holds neither two or more of the folders pku1, pku2" in words("fsar/table1", "--data", tmp_path / "empty")
