"""Papers as objects: one list of them, of which nothing else knows any by name; and on what values were computed."""

import csv
import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from fedaction import papers
from fedaction.federation.files import read_sealed_json, write_sealed_json
from fedaction.papers import ITEMS, PAPERS, SCALES, Workbench, paper_of, runs_of
from fedaction.papers.item import Item
from fedaction.papers.work import Environment
from tests.papers.command import document

NAMES = [paper.name for paper in PAPERS]


def test_items_are_those_of_the_papers():
    assert NAMES == ["fsar", "fdarn", "edge", "fedvssl"] and len(ITEMS) == 51
    assert list(ITEMS.values()) == [item for paper in PAPERS for item in paper.items]
    for paper in PAPERS:
        assert all(paper_of(item) is paper and item.name.startswith(f"{paper.name}/") for item in paper.items)
        assert {type(paper.setting("stage", scale)) for scale in SCALES} == {type(paper.setting("stage", "tiny"))}


def test_settings_have_only_what_their_paper_needs():
    settings = [type(paper.setting("stage", "tiny")) for paper in PAPERS]
    assert len({*settings}) == len(PAPERS)
    common = {"data", "scale", "about", "base", "source", "positions"}
    own = [{*setting.__dataclass_fields__} - common for setting in settings]
    assert own == [
        {"parts"},
        {"groups", "federations", "own"},
        {"distillation", "datasets", "stand_ins"},
        {"divisions", "evaluation", "downstream", "stand_ins"},
    ]


def test_no_common_file_knows_a_paper():
    folder = Path(papers.__file__).parent
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "__init__.py":
            assert not re.search(rf"fedaction\.papers\.({'|'.join(NAMES)})\b", text), path.name
        assert not re.search(rf"[=(,\[] ?[\"']({'|'.join(NAMES)})[\"']", text), path.name


@pytest.mark.parametrize("item", ITEMS.values(), ids=lambda item: item.name)
def test_costs_and_needs(item: Item):
    paper = paper_of(item)
    assert paper.cost(item, "tiny") == "seconds" and paper.needs(item)
    small, whole = paper.cost(item, "small"), paper.cost(item, "paper")
    if paper.work_count(item):
        assert re.fullmatch(r"\d+ (min|h)", small) and re.fullmatch(r"\d+ x \d+ (rounds|epochs)(, .*)?", whole)
    else:
        assert small == whole == "seconds"


def test_an_environment_names_the_processor_or_the_gpu():
    written = {"device": "cpu", "device_name": "Neoverse-N1, DEFAULT", "packages": {"torch": "2.9.0"}}
    assert Environment.parse(written) == Environment("Neoverse-N1, DEFAULT", "2.9.0")
    written |= {"device": "cuda", "device_name": "NVIDIA H200"}
    assert Environment.parse(written) == Environment("NVIDIA H200", "2.9.0")


def test_values_of_two_devices_name_both(tmp_path):
    options = ("fsar/s-table5", "--device", "cpu", "--out", tmp_path)
    first = document(*options)
    (only,) = first["environments"]
    assert only["device"].endswith(f", {torch.backends.cpu.get_cpu_capability()}") and only["torch"] == version(
        "torch"
    )
    page = Path(first["files"]["md"]).read_text(encoding="utf-8")
    assert page.endswith(f"\n\nRun on {only['device']}, torch {only['torch']}.\n")
    bench = Workbench(papers.FSAR, "stage", "tiny", tmp_path)
    _, run = runs_of(ITEMS["fsar/s-table5"], bench)
    file = run.folder / "environment.json"  # as if another machine had carried it out
    write_sealed_json(file, {**read_sealed_json(file), "device": "cuda", "device_name": "NVIDIA H200"})
    second = document(*options)
    assert [place["of"] for place in second["environments"]] == [["w KD loss (FSAR)"], ["w/o KD loss"]]
    assert [place["device"] for place in second["environments"]] == [only["device"], "NVIDIA H200"]
    page = Path(second["files"]["md"]).read_text(encoding="utf-8")
    assert f"NVIDIA H200, torch {only['torch']} (w/o KD loss)." in page and "(w KD loss (FSAR)); " in page
    with Path(second["files"]["csv"]).open(newline="") as lines:
        devices = {line["row"]: line["device"] for line in csv.DictReader(lines)}
    assert devices == {"w KD loss (FSAR)": only["device"], "w/o KD loss": "NVIDIA H200"}
    assert {key: value for key, value in second.items() if key not in ("environments", "files")} == {
        key: value for key, value in first.items() if key not in ("environments", "files")
    }
    assert json.loads(Path(second["files"]["json"]).read_text())["environments"] == second["environments"]
