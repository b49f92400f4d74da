"""Flower's long processes, as `fedaction serve` and `join` start them: `python -m THIS_MODULE ROLE ...`.

ROLE is superlink, supernode, superexec or flwr; what follows is what Flower's own commands take. Some things differ.
Those that `fedaction` has started end with it. A SuperLink stands behind a gate (see `gate`). A SuperNode sends every
answer at once (`flush_replies`), ends when a thread of it has failed (`end_with_threads`), and leaves marks whenever
the server has answered (`mark_contact`) and whenever there is a message (`call_worker`). And it looks for messages
more often: Flower's sleeps 3 s between two looks, which a round of small work would consist of; here it sleeps less
where there is work (see `Rests`), as little as the environment variable FEDACTION_POLL says in seconds (default 0.3).
FEDACTION_HEARTBEAT is the time in which it shows that it is there (see `set_heartbeat`).
"""

# Flower is an extra, which a type checker need not find.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportPrivateUsage=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedaction.engines.flower.gate import SECRET, guard_superlink, show_secret

POLL = "FEDACTION_POLL"
"""The environment variable: seconds between two looks for messages, while messages come."""
PARENT = "FEDACTION_PARENT"
"""The environment variable: the process that started this one, which may be gone before this one can look."""
HEARTBEAT = "FEDACTION_HEARTBEAT"
"""The environment variable: seconds in which a SuperNode shows at least once that it is there, 10 or more."""
MARK = "FEDACTION_CONTACT"
"""The environment variable: the file that is touched when the server has answered."""
CALLED = "FEDACTION_CALL"
"""The environment variable: the file that is touched when a message has come."""
_SHARE = 0.25  # of the time without a message: how long a SuperNode sleeps before it looks again


class Rests:
    """Stands for the module `time` where a SuperNode sleeps: a fourth of the time that nothing has come or gone.

    A look costs a SuperLink several milliseconds of its one core, and every site looks. This way no message waits
    much longer than a fourth of what the site has waited for it, and who has long had nothing to do looks as seldom
    as Flower's own.
    """

    def __init__(
        self, least: float, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """`least`: seconds that it sleeps at least, unless Flower wants to sleep less."""
        self._least, self._now, self._sleep = least, now, sleep
        self._since = now()

    def sleep(self, seconds: float) -> None:
        """Sleeps as long as Flower wants to, or less."""
        self._sleep(min(seconds, max(self._least, _SHARE * (self._now() - self._since))))

    def follow(
        self, pull: Callable[..., int | None], push: Callable[..., None]
    ) -> tuple[Callable[..., int | None], Callable[..., None]]:
        """Flower's steps that fetch a message and send answers, after which the time begins anew."""

        def fetch(*positional: Any, **named: Any) -> int | None:
            run = pull(*positional, **named)
            if run is not None:
                self._since = self._now()
            return run

        def send(*positional: Any, **named: Any) -> None:
            push(*positional, **named)
            self._since = self._now()

        return fetch, send


def shorten_backoff(seconds: float = 0.1) -> bool:
    """Has Flower in this process wait so long, not 1 s, before it looks again for a piece of a message.

    A message is announced before its pieces are there, so one who looks often must often look twice. Returns whether
    there was such a wait.
    """
    from flwr.supercore.inflatable import inflatable_utils

    defaults: Any = inflatable_utils.pull_objects.__kwdefaults__
    if not defaults or "initial_backoff" not in defaults:
        return False
    defaults["initial_backoff"] = seconds
    return True


class _Looked:
    """A SuperNode's state some of whose answers were looked at: Flower gives each out once, so they are kept here."""

    def __init__(self, state: Any, replies: Sequence[Any]) -> None:
        self._state, self._replies = state, [*replies]

    def get_messages_legacy(self, **named: Any) -> Sequence[Any]:
        """Those answers; later the state's."""
        replies, self._replies = self._replies, []
        return replies or self._state.get_messages_legacy(**named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


def flush_replies(
    pull: Callable[..., int | None], push: Callable[..., None]
) -> tuple[Callable[..., int | None], Callable[..., None]]:
    """Flower's steps that fetch a message and send answers; an answer that lies there counts as a message fetched.

    A SuperNode sends answers only after it has fetched a message. Where a run ended while one of its messages came,
    two answers follow one message, and every later one would lie there until the next message.
    """
    looked: list[Any] = []

    def fetch(*positional: Any, **named: Any) -> int | None:
        run = pull(*positional, **named)
        if run is None and (state := named.get("state")) is not None:
            looked.extend(state.get_messages_legacy(is_reply=True))
            return 0 if looked else None
        return run

    def send(*positional: Any, **named: Any) -> None:
        if looked:
            named["state"] = _Looked(named["state"], looked)
            looked.clear()
        push(*positional, **named)

    return fetch, send


def set_heartbeat(seconds: float) -> bool:
    """Has a SuperNode in this process promise to show that it is there every so many seconds; Flower's are 30.

    A SuperLink takes it for gone after twice that time, and takes 10 s at least. Returns whether it can be set.
    """
    from flwr.common.constant import HEARTBEAT_MIN_INTERVAL
    from flwr.supercore import heartbeat
    from flwr.supernode import fleet_http_connection

    if seconds < HEARTBEAT_MIN_INTERVAL:
        raise ValueError(f"{HEARTBEAT}={seconds:g}: Flower takes {HEARTBEAT_MIN_INTERVAL} s at least")
    modules: tuple[Any, ...] = (heartbeat, fleet_http_connection)  # one waits so long, the other says so
    if not all(hasattr(module, "HEARTBEAT_DEFAULT_INTERVAL") for module in modules):
        return False
    for module in modules:
        module.HEARTBEAT_DEFAULT_INTERVAL = seconds
    return True


def end_with_threads() -> None:
    """Ends this process when one of its threads has failed: a SuperNode whose heart has stopped looks alive here.

    Whoever started it starts it again.
    """

    def end(failed: threading.ExceptHookArgs) -> None:
        threading.__excepthook__(failed)
        os._exit(1)

    threading.excepthook = end


def mark_contact(pull: Callable[..., int | None], path: Path | None) -> Callable[..., int | None]:
    """Flower's step that fetches a message, which touches a file when the server has answered.

    Where the server cannot be reached the step does not return, and the file grows old.
    """
    if path is None:
        return pull
    last = float("-inf")

    def fetch(*positional: Any, **named: Any) -> int | None:
        nonlocal last
        run = pull(*positional, **named)
        if time.monotonic() - last >= 1.0:
            last = time.monotonic()
            with suppress(OSError):
                path.touch()
        return run

    return fetch


def call_worker(pull: Callable[..., int | None], path: Path | None) -> Callable[..., int | None]:
    """Flower's step that fetches a message, which touches a file when there is one: its worker looks at that."""

    def fetch(*positional: Any, **named: Any) -> int | None:
        run = pull(*positional, **named)
        if run is not None and path is not None:
            with suppress(OSError):
                path.touch()
        return run

    return fetch


def end_with_parent() -> None:
    """Ends this process soon after the one of ours that started it, however that ended."""
    if PARENT not in os.environ:
        return
    parent = int(os.environ[PARENT])

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def find_database(words: Sequence[str]) -> Path:
    """The file in which a SuperLink keeps what it has, by its command line; one in this folder where it has none."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name == "--database" and (value or following):
            return Path(value or following).resolve()
    return Path("superlink.db").resolve()


def main() -> None:
    """Starts what the command line says."""
    role = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    secret = Path(os.environ[SECRET]) if SECRET in os.environ else None
    if role in ("flwr", "superexec"):
        from flwr.cli.app import app
        from flwr.supercore.cli import flower_superexec

        if secret is not None:
            show_secret(secret.read_bytes())
        (app if role == "flwr" else flower_superexec)()
        return
    if role not in ("superlink", "supernode"):
        sys.exit("the first argument must be superlink, supernode, superexec or flwr")
    end_with_parent()
    if role == "superlink":
        from flwr.superlink.cli import flower_superlink

        guard_superlink(find_database(sys.argv).parent, secret)
        flower_superlink()
        return
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    end_with_threads()
    shorten_backoff()
    if HEARTBEAT in os.environ:
        set_heartbeat(float(os.environ[HEARTBEAT]))
    mark, call = (Path(os.environ[name]) if name in os.environ else None for name in (MARK, CALLED))
    fetch = mark_contact(start_client_internal._pull_and_store_message, mark)
    fetch, send = flush_replies(fetch, start_client_internal._push_messages)
    rests = Rests(max(0.01, float(os.environ.get(POLL, "0.3"))))
    fetch, send = rests.follow(call_worker(fetch, call), send)
    start_client_internal._pull_and_store_message, start_client_internal._push_messages = fetch, send
    start_client_internal.time = rests
    flower_supernode()


if __name__ == "__main__":
    main()
