"""Runs `fedaction` commands as forks of one process that has torch loaded, so that a test can afford many of them.

Reads a task per line of standard input, as JSON, and answers with two lines: the command's process id when it starts,
its exit status when it ends. A command can be told to kill itself, with SIGKILL, right before its n-th change to a
file whose path contains a text: `{"argv": [...], "errors": FILE, "output": FILE, "die": [TEXT, N] or null}`.

Or, in the place of `die`: `"signal": [TEXT, N, SIGNAL]`, another signal at such an instant; `"fail": [TEXT, N,
ERRNO]`, the operating system refuses the n-th change and all after it; `"move": [TEXT, N, FOLDER, OTHER]`, the
folder gets another name right before the n-th change, or before the first one after it that finds the folder;
`"limits": {"RLIMIT_AS": BYTES}`; `"environment": {NAME: VALUE}`; `"backwards": true`, the machine's clock goes back
by a minute whenever it is asked.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

CHANGES = {"open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "os.rmdir"}
"""Events of Python's own auditing that are, or may be, changes to a file."""


def die_before(text: str, number: int, how: int = signal.SIGKILL) -> None:
    """Arms the current process."""
    armed = True

    def strike(*_: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            os.kill(os.getpid(), how)

    _act_before(text, number, strike)


def fail_from(text: str, number: int, code: int) -> None:
    """From the n-th change on, nothing can be written; from a full disk, files can be removed."""

    def refuse(event: str, path: str) -> None:
        if code != errno.ENOSPC or event not in ("os.remove", "os.rmdir", "os.truncate"):
            raise OSError(code, os.strerror(code), path)

    _act_before(text, number, refuse)


def move_before(text: str, number: int, folder: str, other: str) -> None:
    """The folder is renamed right before the n-th change, or when it is first there after that."""
    moved = False

    def move(*_: object) -> None:
        nonlocal moved
        if not moved and os.path.isdir(folder):
            moved = True
            os.rename(folder, other)

    _act_before(text, number, move)


def turn_back() -> None:
    """A clock that somebody keeps setting back; it is not the one that waits and durations go by."""
    now = time.time()

    def tell() -> float:
        nonlocal now
        now -= 60
        return now

    time.time, time.time_ns = tell, lambda: int(tell() * 1e9)


def _act_before(text: str, number: int, act: Callable[[str, str], object]) -> None:
    left = number

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in CHANGES or text not in str(arguments[0]):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        left -= 1
        if left <= 0:
            act(event, str(arguments[0]))

    sys.addaudithook(watch)


def carry_out(task: dict[str, Any]) -> None:
    """The child's whole life."""
    from fedaction.cli import main

    for stream, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(task[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.environ.update(task.get("environment", {}))
    if task["die"]:
        die_before(*task["die"])
    if task.get("signal"):
        die_before(*task["signal"])
    if task.get("fail"):
        fail_from(*task["fail"])
    if task.get("move"):
        move_before(*task["move"])
    for name, most in task.get("limits", {}).items():
        resource.setrlimit(getattr(resource, name), (most, most))
    if task.get("backwards"):
        turn_back()
    sys.argv = ["fedaction", *task["argv"]]
    status = 1
    try:
        main()
    except SystemExit as stop:
        status = int(stop.code or 0)
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    """Until standard input ends."""
    import torch._dynamo  # what the first optimiser step would load, seconds each time
    import torch.testing  # noqa: F401

    import fedaction.runs.study  # noqa: F401

    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if child == 0:
            carry_out(task)
        print(json.dumps(child), flush=True)
        print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)


if __name__ == "__main__":
    serve()
