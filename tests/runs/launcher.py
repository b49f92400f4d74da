"""Runs `fedaction` commands as forks of one process that has torch loaded, so that a test can afford many of them.

Reads a task per line of standard input, as JSON, and answers with two lines: the command's process id when it starts,
its exit status when it ends. A command can be told to kill itself, with SIGKILL, right before its n-th change to a
file whose path contains a text: `{"argv": [...], "errors": FILE, "output": FILE, "die": [TEXT, N] or null}`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from typing import Any

CHANGES = {"open", "os.rename", "os.remove", "os.truncate"}
"""Events of Python's own auditing that are, or may be, changes to a file."""


def die_before(text: str, number: int) -> None:
    """Arms the current process."""
    left = number

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event not in CHANGES or text not in str(arguments[0]):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def carry_out(task: dict[str, Any]) -> None:
    """The child's whole life."""
    from fedaction.cli import main

    for stream, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(task[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    if task["die"]:
        die_before(*task["die"])
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
