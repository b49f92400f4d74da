"""A directory that is moved while it is written: the command ends with one message, and begins nothing anew."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from fedaction.runs.remote import Roll, carry_out, open_run
from tests.engines.flower.places import HousePost, make_recipe
from tests.runs.commands import Launcher, lasting
from tests.runs.test_faults import RECIPE
from tests.runs.test_killed import DISTIL, command
from tests.training.distilling import write_arrays

GONE = "is not there any more: somebody has removed, moved or replaced it while it was being written"


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> Path:
    """What the commands work on."""
    root = tmp_path_factory.mktemp("given")
    write_arrays(root / "arrays")
    (root / "distil.toml").write_text(DISTIL.format(arrays=root / "arrays"))
    more = 'baselines = ["fedbn"]\nvalidation = 0.3\n'
    text = RECIPE.format(rounds=2).replace("controls = []", 'controls = ["majority"]')
    (root / "run.toml").write_text(text + more)
    return root


def begin(name: str, given: Path, folder: Path) -> list[Any]:
    return ["run", given / "run.toml", "--out", folder] if name == "run" else command(name, given, folder)


def go_on(name: str, given: Path, folder: Path) -> list[Any]:
    begun = name == "run" and (folder / "recipe.toml").exists()
    return ["resume", folder] if begun else begin(name, given, folder)


QUICK = {"run": (2, 5, 14, 30, 52), "distil": (9, 34), "evaluate": (6,)}


@pytest.mark.parametrize(("name", "number"), [(name, number) for name in QUICK for number in QUICK[name]])
def test_moved_before_a_change_of_a_file(name, number, launcher, given, tmp_path):
    assert move(name, number, launcher, given, tmp_path) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_moved_before_every_change_of_a_file(name, launcher, given, tmp_path):
    whole = tmp_path / "whole"
    assert launcher.do(*begin(name, given, whole)) == 0, launcher.said()
    for number in itertools.count(1):
        (tmp_path / str(number)).mkdir()
        if move(name, number, launcher, given, tmp_path / str(number)) == 0:
            assert number > max(QUICK[name])
            break
        moved = tmp_path / str(number) / "elsewhere"
        if number % 5 == 0:
            assert launcher.do(*go_on(name, given, moved)) == 0, launcher.said()
            assert lasting(moved) == lasting(whole)


def move(name: str, number: int, launcher: Launcher, given: Path, place: Path) -> int:
    """Its status where the directory is moved; 0: after the last change."""
    folder, other = place / "folder", place / "elsewhere"
    status = launcher.do(*begin(name, given, folder), move=(str(folder), number, str(folder), str(other)))
    said = launcher.said()
    assert "Traceback" not in said, said
    if status:
        assert said.count("error:") == 1 and GONE in said, (number, said)
    assert not [path for path in place.rglob("folder/**/*") if path.name != ".lock"], (number, said)
    assert other.is_dir()
    return status


class MovingPost(HousePost):
    """Nobody is there; the server's directory is moved when it has asked so often."""

    def __init__(self, folder: Path, after: int) -> None:
        super().__init__({})
        self.folder, self.after = folder, after

    def nodes(self) -> set[int]:
        self.after -= 1
        if self.after == 0:
            self.folder.rename(self.folder.with_name("elsewhere"))
        if self.after < 0:
            raise OSError("the connection is lost")
        return set()


@pytest.mark.parametrize("after", [1, 2])
def test_a_server_says_the_same_and_its_last_words_begin_nothing_anew(after, tmp_path):
    folder = tmp_path / "folder"
    recipe = make_recipe({"gym": tmp_path / "gym"}, "fedavg")
    open_run(recipe, folder, Roll(count=1, wait=1))
    with pytest.raises(FileNotFoundError, match=GONE):
        carry_out(MovingPost(folder, after), folder)
    assert not folder.exists()
    assert "waiting for 1 sites" in (tmp_path / "elsewhere" / "news.jsonl").read_text()
