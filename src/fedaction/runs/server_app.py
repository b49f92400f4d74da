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
from fedaction.runs.remote import Roll, carry_out

app = ServerApp()
_SLACK = 5.0  # seconds; what a slow site has not even fetched when its time is over is not worth doing


@app.main()
def main(grid: Any, context: Any) -> None:
    """See `carry_out`."""
    shorten_backoff()
    folder = Path(str(context.run_config["folder"]))
    lifetime = Roll.read(folder).answer + _SLACK
    carry_out(FlowerPost(grid, lifetime), folder, str(context.run_config["attempt"]))
