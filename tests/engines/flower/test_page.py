"""docs/sites.md, run as it is written: real processes, without keys and with them; and nobody calls home."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

from fedaction.engines.flower.launch import free_port
from tests.engines.flower.processes import ROOT
from tests.report.test_report import blob
from tests.test_docs import fenced_blocks

pytestmark = pytest.mark.slow
SITES = {"clinic", "gym", "home"}
# Every Python process of the test writes down whom it would connect to, and whose name it looks up.
WATCH = """
import os, sys

def watch(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        what = str(arguments[1][0])
    elif event == "socket.getaddrinfo":
        what = arguments[0].decode() if isinstance(arguments[0], bytes) else str(arguments[0])
    else:
        return
    file = os.open({path!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (what + "\\n").encode())
    os.close(file)

sys.addaudithook(watch)
"""


class Newcomer:
    """Somebody with a shell, in an empty directory, who types what the page says."""

    def __init__(self, folder: Path) -> None:
        self.home, programs, self.calls = folder / "home", folder / "bin", folder / "calls.txt"
        for made in (self.home, programs):
            made.mkdir()
        shim = programs / "fedaction"
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from fedaction.cli import main; main()" "$@"\n')
        shim.chmod(0o755)
        (programs / "sitecustomize.py").write_text(WATCH.replace("{path!r}", repr(str(self.calls))))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
        self.environment |= {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(programs)]),
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        }
        self.ports = {number: str(free_port()) for number in ("8000", "8001")}

    def translate(self, text: str) -> str:
        return re.sub(r"\b800[01]\b", lambda match: self.ports[match[0]], text)

    def type(self, block: str) -> str:
        """Types lines into a shell that stops at the first that fails; what they say."""
        command = ["sh", "-e", "-c", self.translate(block)]
        done = subprocess.run(
            command, cwd=self.home, env=self.environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def open_terminals(self, block: str) -> list[subprocess.Popen[bytes]]:
        return [
            subprocess.Popen(["sh", "-c", f"exec {line}"], cwd=self.home, env=self.environment)
            for line in self.translate(block).splitlines()
        ]


def close(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def environments(processes: list[subprocess.Popen[bytes]]) -> dict[int, dict[str, str]]:
    """The environment of Flower's processes below some others, by process number, as the system knows it."""
    found: dict[int, dict[str, str]] = {}
    left = [process.pid for process in processes]
    while left:
        pid = left.pop()
        try:
            left += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if b"fedaction.engines.flower.node" in words or b"fedaction.runs.worker" in words:
            found[pid] = dict(pair.decode().split("=", 1) for pair in pairs if b"=" in pair)
    return found


def test_the_page_for_three_sites_runs_as_it_is_written(tmp_path):
    someone, open_now, said = Newcomer(tmp_path), [], []
    try:
        for _, info, block in fenced_blocks((ROOT / "docs" / "sites.md").read_text(encoding="utf-8")):
            if info in (["sh", "run"], ["sh", "after"]):
                said.append(someone.type(block))
            elif info[:1] == ["toml"]:
                (someone.home / info[1]).write_text(block, encoding="utf-8")
            elif info == ["sh", "terminals"]:
                close(open_now)
                open_now = someone.open_terminals(block)
                seen: dict[int, dict[str, str]] = {}
                for _ in range(1200):
                    seen |= environments(open_now)
                    try:
                        assert open_now[0].wait(1) == 0
                        break
                    except subprocess.TimeoutExpired:
                        continue
                assert open_now[0].poll() == 0
                assert [process.poll() for process in open_now[1:]] == [None] * 3  # they wait for the next run
                assert len(seen) >= 7  # the server's SuperLink, and a SuperNode and a worker at each site
                for environment in seen.values():
                    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
                    assert environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    finally:
        close(open_now)
    words = " ".join(said)
    assert words.count("fsar, done, accuracy") == 2 and words.count("3 of 3") == 2 and "in contact" in words
    for run, sites in (("run", "sites"), ("secure", "secure-sites")):
        home = someone.home / run
        assert set(json.loads((home / "result.json").read_text())["clients"]) == SITES
        page = blob((home / "report.html").read_text(encoding="utf-8"))
        assert page["samples"] == [] and {row[0] for row in page["served"]["sites"]} == SITES
        assert page["served"]["sent"] > 0 and page["served"]["leftOut"] == 0
        for name in SITES:
            (model,) = (someone.home / sites / name).glob("*/model.safetensors")
            said_of = someone.type(f"fedaction predict {model} stores/{name} --json")
            classes = set(json.loads((someone.home / "stores" / name / "dataset.json").read_text())["classes"])
            lines = [json.loads(line) for line in said_of.splitlines()]
            assert lines and all(line["actions"][0]["action"] in classes for line in lines)
    called = set(someone.calls.read_text().split("\n")) - {""}
    # 127.0.0.2 is this machine as well: from there the server tries whether its own port is closed to others.
    assert called and called <= {"127.0.0.1", "127.0.0.2", "localhost", "::1", "0.0.0.0", "::"}, called
