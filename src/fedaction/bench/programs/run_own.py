"""The work in fedaction: with the network that all contenders train ("given"), or with its own ST-GCN ("named")."""

# torch's type stubs are partial, and `work` lies beside this file.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportUnknownParameterType=false

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from work import SharedWork

import fedaction as fa
from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.layout import KINECT_V2
from fedaction.data.samples import Examples


class Log:
    """What happens in a run, as fedaction tells it."""

    def __init__(self, work: SharedWork) -> None:
        self.work, self.begun, self.round = work, False, 0
        self.learned: Mapping[str, Tensor] = {}

    def on_start(self, method: str, seed: int, folder: Path) -> None:
        """Training begins; trials of engines are over."""
        self.begun = True

    def on_round(self, rows: object) -> None:
        """A round is over, and its checkpoint is written."""
        self.work.end_round(self.round, lambda: self.learned)
        self.round += 1


def make_method(work: SharedWork, log: Log, given: bool) -> type[fa.Method]:
    """Plain averaging as every method has it, which notes its first step and what it has learned."""

    class Averaged(fa.Method):
        title = "plain averaging"

        def loss(self, net: Any, anchor: Any, batch: Any) -> Any:
            if log.begun:
                work.note_first_step()
            return super().loss(net, anchor, batch)

        def advance(self, server: Any, mean: Any) -> Any:
            state = super().advance(server, mean)
            log.learned = state.shared
            return state

    class AveragedGiven(Averaged):
        def build(self, client: ClientInfo) -> nn.Module:
            return work.build_first()

    return AveragedGiven if given else Averaged


def make_clients(work: SharedWork, given: bool) -> list[ClientData]:
    """Everybody's samples; one of each is for a test that nobody looks at."""
    classes = tuple(map(str, range(work.about["classes"])))
    clients: list[ClientData] = []
    for place, (x, y) in enumerate(zip(work.samples, work.labels, strict=True)):
        x = x if given else x.permute(0, 2, 3, 1).unsqueeze(1).contiguous()  # bodies, frames, joints, coordinates
        info = ClientInfo(
            f"client-{place:04d}", "bench", len(x), classes, tuple(x.shape[1:]), None if given else KINECT_V2
        )
        clients.append(ClientData(info, Examples(x, y), Examples(x[:1], y[:1])))
    return clients


def main(folder: str, network: str) -> None:
    """Trains. What the others do not do either is left out: controls, tests between, everybody's model files."""
    work, given = SharedWork.read(folder), network == "given"
    about, log = work.about, Log(work)
    keys = ("rounds", "batch_size", "local_epochs", "lr", "momentum", "weight_decay")
    named = {"model_last": 0, "model_projection": 0, "classifier": "shared", "augment": False}
    fa.run(
        make_method(work, log, given),
        make_clients(work, given),
        out=work.folder / "run",
        callbacks=[log],
        controls=[],
        client_models="none",
        evaluate_every=work.rounds,
        buffers="average",
        device="cpu",
        **({} if given else named),
        **{key: about[key] for key in keys},
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
