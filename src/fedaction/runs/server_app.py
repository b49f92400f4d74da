"""The server app that Flower starts: it carries out the run of the directory that it is told of."""

# Flower is an extra, which a type checker need not find.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

from flwr.serverapp import ServerApp

from fedaction.engines.flower.node import shorten_backoff
from fedaction.engines.flower.post import FlowerPost
from fedaction.runs.remote import carry_out

app = ServerApp()


@app.main()
def main(grid: Any, context: Any) -> None:
    """See `carry_out`."""
    shorten_backoff()
    carry_out(FlowerPost(grid), Path(str(context.run_config["folder"])), str(context.run_config["attempt"]))
