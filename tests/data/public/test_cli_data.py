"""`fedaction data list`, `prepare` and `inspect` on public datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.data import store
from fedaction.data.public.readers import READERS
from tests.data.public.formats import write_one_person, write_skeleton


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def write_dataset(root: Path) -> Path:
    for i in range(4):
        write_one_person(root / f"S001C00{1 + i % 3}P00{1 + i}R001A00{1 + i}.skeleton", 12, i)
    write_skeleton(root / "S001C001P009R001A001.skeleton", [[], []])
    return root


def test_list_shows_the_public_datasets() -> None:
    shown = run("data", "list")
    assert shown.exit_code == 0
    for name, item in READERS.items():
        line = next(line for line in shown.stdout.splitlines() if line.split()[:1] == [name])
        assert str(len(item.layout)) in line and all(protocol in line for protocol in item.protocols)
    listed = json.loads(run("data", "list", "--json").stdout)
    assert set(listed) == {"layouts", "public", "stage_actions"}
    assert listed["public"][0]["name"] == "ntu60" and listed["public"][0]["joints"] == 25
    assert listed["public"][0]["rate_hz"] == 30 and listed["public"][0]["protocols"] == [
        "cross_subject",
        "cross_view",
    ]


def test_prepare_prints_the_store_and_the_skip_report(tmp_path: Path) -> None:
    root, cache = write_dataset(tmp_path / "data"), tmp_path / "cache"
    shown = run("data", "prepare", "ntu60", root, "--cache", cache, "--workers", 1)
    assert shown.exit_code == 0, shown.output
    assert (
        "4 usable recordings, 60 classes" in shown.stdout and "cross_subject: 3 to train, 1 to test" in shown.stdout
    )
    assert "cross_view: 2 to train, 2 to test" in shown.stdout
    assert "S001C001P009R001A001: none of its 2 frames is usable" in shown.stdout and not shown.stderr
    again = run("data", "prepare", "ntu60", root, "--cache", cache, "--json")
    result = json.loads(again.stdout)
    assert len(store.load(result["store"])) == result["samples"] == 4 and not again.stderr
    assert result["counts"] == {"empty": 1} and result["splits"]["cross_subject"] == {"train": 3, "test": 1}
    assert result["issues"][0]["where"] == "S001C001P009R001A001" and len(result["classes"]) == 60
    inspected = run("data", "inspect", result["store"])
    assert inspected.exit_code == 0 and inspected.stdout == shown.stdout
    (root / "S001C001P009R001A001.skeleton").unlink()
    changed = run("data", "prepare", "ntu60", root, "--cache", cache)
    assert changed.exit_code == 0 and "files of the dataset have changed" in changed.stderr
    assert "empty" not in changed.stdout


def test_prepare_says_what_is_wrong(tmp_path: Path) -> None:
    for arguments, message in (
        (("ntu", tmp_path), "there are ntu60, ntu120"),
        (("ntu60", tmp_path), "holds no file of ntu60: expected names such as S001C002P003R002A013.skeleton"),
        (("ntu60", tmp_path / "nowhere"), "does not exist"),
    ):
        shown = run("data", "prepare", *arguments, "--cache", tmp_path / "cache")
        assert shown.exit_code == 2 and message in shown.stderr and not shown.stdout
