"""A client in NVFlare's simulator: what its client API calls for."""

# NVFlare is another environment's, and its type stubs are partial.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import sys

import nvflare.client as flare
from nvflare.app_common.abstract.fl_model import FLModel
from work import SharedWork, load, take


def main(folder: str, client: int) -> None:
    """Trains when asked to."""
    work = SharedWork.read(folder)
    network = work.build()
    flare.init()
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        load(network, received.params)
        work.train(network, client, received.current_round)
        counts = {"NUM_STEPS_CURRENT_ROUND": work.labels.shape[1]}
        flare.send(FLModel(params=take(network), meta=counts))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
