"""Worker processes whose memory runs out: the kernel refuses them what they ask for. Real processes throughout."""

import os
from pathlib import Path

import pytest

from tests.data.public.test_cache import left_in, write_dataset

LIMITED = """
import resource, sys

limited = False

def limit(event, arguments):
    global limited
    if not limited and event == "open" and {text!r} in str(arguments[0]):
        limited = True
        with open("/proc/self/statm") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + ({more} << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

if "--multiprocessing-fork" in sys.orig_argv:
    sys.addaudithook(limit)
"""
"""In every worker: from the first opening of some file on, it gets so many MB more and no others."""


def limited(folder: Path, text: str, more: int) -> dict[str, str]:
    """The environment of a command whose workers get so little memory."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(LIMITED.format(text=text, more=more))
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def test_memory_that_runs_out_in_a_reader_leaves_no_good_file_out(launcher, tmp_path):
    write_dataset(tmp_path / "ntu", count=6)
    large = tmp_path / "ntu" / "S001C001P003R001A003.skeleton"
    content = large.read_bytes()
    large.write_bytes(content + b"\n" * (40 << 20))
    command = ["data", "prepare", "ntu60", tmp_path / "ntu", "--workers", "2", "--cache", tmp_path / "cache"]
    environment = limited(tmp_path / "site", ".skeleton", 20)
    assert launcher.do(*command, environment=environment) == 2, launcher.said()
    said = launcher.said()
    assert said.count("error:") == 1 and f"memory ran out: reading {large}" in said and "Traceback" not in said, said
    assert not left_in(tmp_path / "cache")
    large.write_bytes(content)
    assert launcher.do(*command, "--workers", "1") == 0, launcher.said()


@pytest.mark.slow
def test_memory_that_runs_out_in_one_of_several_runs_ends_the_command(launcher, tmp_path):
    command = ["paper", "fsar/s-table5", "--scale", "tiny", "--jobs", "2", "--device", "cpu", "--out", tmp_path / "a"]
    wide = [*command, "--set", "model_width=600"]
    assert launcher.do(*wide, environment=limited(tmp_path / "site", "metrics.jsonl", 16)) == 2, launcher.said()
    said = launcher.said()
    assert said.count("error:") == 1 and "memory ran out" in said and "Traceback" not in said, said
    assert "This was" in said and "the same command resumes from the last checkpoint" in said, said
    assert not list((tmp_path / "a").rglob("*.part"))
    assert launcher.do(*command) == 0, launcher.said()
