"""Real processes on this machine: `fedaction serve`, and `fedaction join` for each place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedaction.engines.flower.launch import free_port
from fedaction.federation.settings import to_toml
from fedaction.runs.recipe import Recipe

ROOT = Path(__file__).parents[3]


class Machine:
    """What runs on it; everything is ended at the end, by its process id."""

    def __init__(
        self,
        folder: Path,
        paths: dict[str, Path],
        recipe: Recipe,
        keys: Mapping[str, Path] | None = None,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepares a machine.

        Args:
            folder: everything is written there.
            paths: the data of each place.
            recipe: what is trained.
            keys: folders of keys of the "server" and of each place; None: nothing is encrypted.
            host: where sites reach the server.
            environment: variables of every process, besides those of this one.
        """
        self.folder, self.paths, self.port, self.keys = folder, paths, free_port(), keys
        self.host, self.environment = host, dict(environment or {})
        self.run, self.rounds = folder / "run", recipe.run.rounds
        self._old = 0  # lines of news from before the server was started last
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "recipe.toml").write_text(to_toml(recipe.flat()))

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def serve(self, *options: str, resume: bool = False) -> None:
        self._old = len(self.news())
        what = [str(self.run)] if resume else [str(self.folder / "recipe.toml"), "--out", str(self.run)]
        where = [] if self.host == "127.0.0.1" else ["--host", "0.0.0.0"]
        self._start("server", "serve", *what, *where, "--port", str(self.port), *self._trust("server"), *options)

    def _trust(self, name: str) -> list[str]:
        return ["--insecure"] if self.keys is None else ["--keys", str(self.keys[name])]

    def join(
        self, name: str, *options: str, label: str = "", state: Path | None = None, inside: Sequence[str] = ()
    ) -> None:
        """`inside`: the command that the site's own is run by, such as one for another network."""
        place = ["--data", str(self.paths[name]), "--name", name, "--device", "cpu", *self._trust(name)]
        place += ["--state", str(state or self.folder / "sites" / name)]
        self._start(label or name, "join", f"{self.host}:{self.port}", *place, *options, inside=inside)

    def kill(self, name: str) -> None:
        """At once, as a power cut would."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_all(self, name: str) -> None:
        """A site with its SuperNode and its worker, at one moment."""
        children = [self.find_child(name, what) for what in ("supernode", "worker")]
        process = self._processes.pop(name)
        for pid in (process.pid, *children):
            os.kill(pid, signal.SIGKILL)
        process.wait()

    def kill_worker(self, name: str) -> None:
        """Only the process that does a site's work."""
        os.kill(self.find_child(name, "worker"), signal.SIGKILL)

    @contextmanager
    def slow(self, name: str, work: float = 0.2, rest: float = 1.0) -> Generator[None]:
        """A site whose worker has the processor for so many seconds, then rests for so many, again and again."""
        over = threading.Event()

        def hold() -> None:
            while not over.wait(work):
                stopped = [worker for worker in self.find_children(name, "worker") if _send(worker, signal.SIGSTOP)]
                over.wait(rest)
                for worker in stopped:
                    _send(worker, signal.SIGCONT)

        thread = threading.Thread(target=hold)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def find_child(self, name: str, what: str) -> int:
        """The process id of a site's "supernode" or "worker", or of the server's "superlink"."""
        found = self.find_children(name, what)
        assert found, f"{name} has no {what}; {self.tell()}"
        return found[0]

    def find_children(self, name: str, what: str) -> list[int]:
        """The same, if it is there."""
        parent, found = self._processes[name].pid, list[int]()
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if what.encode() in words or f"fedaction.runs.{what}".encode() in words:
                found.append(int(child))
        return found

    def read_log(self, name: str) -> str:
        """What a site or the server has said."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for_text(self, name: str, text: str, count: int = 1, seconds: float = 600) -> None:
        """Until a site or the server has said something so often."""
        self.wait(lambda _: self.read_log(name).count(text) >= count, seconds)

    def stop_in_training(self, name: str, round: int) -> int:
        """Pauses a site's worker in the middle of a round's training; its process id."""
        begun = f"round {round} of {self.rounds}: train"
        self.wait_for_text(name, f"{begun}ing")
        pid = self.find_child(name, "worker")
        os.kill(pid, signal.SIGSTOP)
        assert f"{begun}ed" not in self.read_log(name), "it was too quick; give it more epochs"
        return pid

    def news(self) -> list[dict[str, Any]]:
        path = self.run / "news.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def wait(self, until: Callable[[list[dict[str, Any]]], bool], seconds: float = 600) -> list[dict[str, Any]]:
        """The news, as soon as they are as a test wants them."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            news = self.news()
            if until(news):
                return news
            if len(news) > self._old and news[-1]["kind"] == "failed":
                break
            time.sleep(0.1)
        raise AssertionError(self.tell())

    def wait_for_round(self, round: int, seconds: float = 240) -> None:
        self.wait(lambda news: any(line["kind"] == "round" and line["round"] >= round for line in news), seconds)

    def finish(self, seconds: float = 600) -> None:
        self.wait(lambda news: bool(news) and news[-1]["kind"] == "done", seconds)
        assert self._processes["server"].wait(60) == 0, self.tell()

    def tell(self) -> str:
        """All that was said, for whoever reads a failed test."""
        logs = [
            *self.folder.glob("*.log"),
            *self.folder.glob("sites/*/supernode.log"),
            *self.run.glob("flower/*.log"),
        ]
        texts = [f"--- {path}\n{path.read_text(errors='replace')[-3000:]}" for path in logs]
        return "\n".join([*map(str, self.news()), *texts])

    def end_status(self, seconds: float = 600) -> int:
        """The status that the server ends with."""
        return self._processes.pop("server").wait(seconds)

    def _start(self, label: str, *command: str, inside: Sequence[str] = ()) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), **self.environment}
        with (self.folder / f"{label}.log").open("ab") as log:
            self._processes[label] = subprocess.Popen(
                [*inside, sys.executable, "-c", "from fedaction.cli import main; main()", *command],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def _send(process: int, what: signal.Signals) -> bool:
    """Whether a process was there to be told."""
    try:
        os.kill(process, what)
    except ProcessLookupError:
        return False
    return True
