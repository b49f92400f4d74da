"""A federation in Flower's own simulation: the server and the sites of `fedaction serve` and `join`, on one machine.

Ray starts a few processes, which take the sites' messages in turn; no SuperLink, no network, no keys. What the server
and each site do is what they do between machines, so that a load of hundreds of sites can be tried before they exist.
For experiments `fedaction run` is far faster.
"""

# Flower is an extra, which a type checker need not find.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedaction.engines.flower.envelope import open_envelope
from fedaction.engines.flower.post import FlowerPost, unwrap, wrap
from fedaction.engines.flower.site import Site
from fedaction.engines.messages import MOST_BYTES
from fedaction.federation.files import write_atomically
from fedaction.runs.remote import carry_out
from fedaction.runs.result import read_result
from fedaction.runs.sites import SiteWorkshop

_TOLD = ("hello", "begin")  # messages that a site remembers while its process lives
_HERE: dict[Path, Site] = {}  # the sites that this process has worked for, by where they keep their state


def run_rayed(home: Path, sites: Mapping[str, Path], state: Path, workers: int = 1) -> dict[str, Any]:
    """Carries out the run of a directory (see `open_run`) over sites in Flower's simulation; its result.

    Args:
        home: the run's directory.
        sites: where each site's data lie, by its name.
        state: where sites keep what they keep, a folder for each.
        workers: how many processes do the sites' work.
    """
    for name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):  # nothing calls home unless somebody says so
        os.environ.setdefault(name, "0")
    from flwr.app import Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    server, client, names = ServerApp(), ClientApp(), sorted(sites)
    failures: list[BaseException] = []

    @server.main()
    def _serve(grid: Any, context: Any) -> None:
        try:
            carry_out(FlowerPost(grid), home)
        except BaseException as error:  # Flower would tell of another one
            failures.append(error)

    def answer(message: Any, context: Any) -> Any:
        name = names[int(context.node_config["partition-id"])]
        return Message(wrap(_answer(name, sites[name], state / name, unwrap(message.content))), reply_to=message)

    for register in (client.train(), client.evaluate(), client.query()):
        register(answer)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": workers}}
    run_simulation(server, client, len(names), backend_config=resources)  # pyright: ignore[reportArgumentType]
    if failures:
        raise failures[0]
    return read_result(home)


def _answer(name: str, data: Path, state: Path, content: bytes) -> bytes:
    """A site's answer, from whichever process Ray has chosen.

    One that has not worked for this site in this run is told what others were: the greeting, and who takes part.
    """
    if state not in _HERE:
        _HERE[state] = Site(name, state, SiteWorkshop(name, data, "cpu"))
    site = _HERE[state]
    reply, kind = site.answer(content), open_envelope(content, MOST_BYTES).header.kind
    if open_envelope(reply, MOST_BYTES).header.kind == "unknown":
        for told in _TOLD[: _TOLD.index(kind)] if kind in _TOLD else _TOLD:
            site.answer((state / told).read_bytes())
        reply = site.answer(content)
    if kind in _TOLD:
        write_atomically(state / kind, content)
    return reply
