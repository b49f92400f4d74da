"""Commands as processes of their own, for tests of what becomes of them when something happens to the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

LAUNCHER = Path(__file__).with_name("launcher.py")
KILLED = -signal.SIGKILL
LIMIT = 400
"""Seconds that a command may take, also on a machine that does much else; most take one."""


def waits_for(happened: Callable[[], bool], what: str, seconds: float = 60, pause: float = 0.001) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"waited {seconds} s in vain for {what}"
        time.sleep(pause)


class Launcher:
    """Starts commands through `launcher.py`: processes of their own, without their own seconds of loading torch."""

    def __init__(self, folder: Path) -> None:
        self.errors, self.output, self._child = folder / "errors", folder / "output", 0
        self._process = subprocess.Popen(
            [sys.executable, str(LAUNCHER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answers: Queue[str] = Queue()
        Thread(target=self._listen, daemon=True).start()

    def start(self, *argv: str | Path, die: tuple[str, int] | None = None, **more: Any) -> int:
        """Begins a command; gives its process id. `more`: what else the launcher may be told."""
        task = {"argv": [str(a) for a in argv], "errors": str(self.errors), "output": str(self.output), "die": die}
        task |= more
        self.errors.unlink(missing_ok=True)
        assert self._process.stdin
        print(json.dumps(task), file=self._process.stdin, flush=True)
        self._child = self._answer()
        return self._child

    def status(self) -> int:
        """Waits for the command to end; gives its exit status, or less than zero where a signal ended it."""
        status, self._child = self._answer(), 0
        return status

    def do(self, *argv: str | Path, die: tuple[str, int] | None = None, **more: Any) -> int:
        """Both."""
        self.start(*argv, die=die, **more)
        return self.status()

    def said(self) -> str:
        """What the last command wrote on standard error, in one line."""
        return " ".join(self.errors.read_text().split()) if self.errors.exists() else ""

    def close(self) -> None:
        """Ends the launcher, and a command that a test which failed has left."""
        if self._child:
            os.kill(self._child, signal.SIGKILL)
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _answer(self) -> int:
        try:
            line = self._answers.get(timeout=LIMIT)
        except Empty:
            if self._child:
                os.kill(self._child, signal.SIGKILL)
                self._answers.get(timeout=60)  # so that the next command gets its own
                self._child = 0
            else:
                self._process.kill()
            raise AssertionError(f"a command took more than {LIMIT} s; so far it said: {self.said()}") from None
        assert line, "the launcher is gone"
        return int(line)


def is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


TIMES = ("seconds", "run", "sha256", "time")
"""What differs between any two runs of one recipe: where they lie, how long they took, and hashes of that."""


def timeless(value: Any) -> Any:
    """A JSON value without them."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in TIMES}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def lasting(folder: Path) -> dict[str, Any]:
    """All files of a folder by name: their bytes, of JSON what is in them but for times, of others that tell times
    nothing but that they are there.
    """
    kept: dict[str, Any] = {}
    for name, blob in content(folder).items():
        if name.endswith(("clock.jsonl", "report.html", ".lock", "environment.json")):
            kept[name] = None
        else:
            kept[name] = timeless(json.loads(blob)) if name.endswith(".json") else blob
    return kept
