"""A SuperNode that looks for messages more often: `python -m fedaction.engines.flower.node ...`, as flower-supernode.

Flower's SuperNode sleeps 3 s between two looks, which a round of small work would consist of. The environment
variable FEDACTION_POLL says how many seconds it sleeps here (default 0.3); all else is Flower's.
"""

# Flower is an extra, which a type checker need not find.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
import time

POLL = "FEDACTION_POLL"
"""The environment variable: seconds between two looks for messages."""


class ShortSleeps:
    """Stands for the module `time` where only `sleep` is used: no sleep is longer than a limit, in seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit

    def sleep(self, seconds: float) -> None:
        """Sleeps so long, or up to the limit."""
        time.sleep(min(seconds, self._limit))


def main() -> None:
    """Starts the SuperNode with what the command line says."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    start_client_internal.time = ShortSleeps(max(0.01, float(os.environ.get(POLL, "0.3"))))
    flower_supernode()


if __name__ == "__main__":
    main()
