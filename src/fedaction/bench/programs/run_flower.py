"""The work in Flower's simulation: as many actors as cores, one torch thread each, the network kept in each actor."""

# Flower is another environment's, and its type stubs are partial.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false
# pyright: reportUntypedBaseClass=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from work import SharedWork, load, take


@cache
def prepare(folder: str) -> tuple[SharedWork, nn.Module]:
    """What an actor keeps between messages."""
    work = SharedWork.read(folder)
    return work, work.build()


def train(message: Message, context: Context) -> Message:
    """A client's round."""
    config = message.content["config"]
    work, network = prepare(config["folder"])
    load(network, message.content["arrays"].to_torch_state_dict())
    work.train(network, int(context.node_config["partition-id"]), config["server-round"] - 1)
    counts = MetricRecord({"num-examples": work.labels.shape[1]})
    return Message(RecordDict({"arrays": ArrayRecord(take(network)), "metrics": counts}), reply_to=message)


class TimedFlower(FedAvg):
    """Flower's own, which notes when a round is over."""

    work: SharedWork

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """See `FedAvg`."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.work.end_round(server_round - 1, lambda: arrays.to_torch_state_dict() if arrays else {})
        return arrays, metrics


def main(folder: str) -> None:
    """Trains."""
    work = SharedWork.read(folder)
    client, server = ClientApp(), ServerApp()
    client.train()(train)

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = TimedFlower(fraction_evaluate=0.0, min_train_nodes=work.clients, min_available_nodes=work.clients)
        strategy.work = work
        arrays = ArrayRecord({name: torch.from_numpy(array) for name, array in work.read_weights().items()})
        strategy.start(grid, arrays, work.rounds, train_config=ConfigRecord({"folder": folder}))

    cores = int(work.about["cores"])
    resources = {"init_args": {"num_cpus": cores}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, work.clients, backend_config=resources)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))  # actors find these modules
    import run_flower  # by this name they know the client's function

    run_flower.main(sys.argv[1])
