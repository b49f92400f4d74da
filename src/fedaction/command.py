"""The first step of the `fedaction` command: while its parts are loaded, who stops it is not shown where that was."""

from __future__ import annotations

import signal


def main() -> None:
    """Entry point. Until the command itself listens, Ctrl-C ends the process at once, silently, as SIGTERM does."""
    loading = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is not to be heard at all
    if loading:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fedaction.cli import main as carry_out

    if loading:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    carry_out()
