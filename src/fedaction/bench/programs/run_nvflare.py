"""The work in NVFlare's simulator: as many threads as clients, each of which is then a process for the whole job."""

# NVFlare is another environment's, and its type stubs are partial.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false
# pyright: reportUntypedBaseClass=false

from __future__ import annotations

import sys
from pathlib import Path

from nvflare import FedJob
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.job_config.script_runner import ScriptRunner
from work import SharedWork


class TimedNVFlare(FedAvg):
    """NVFlare's own, with tensors from a folder, which notes when a round is over."""

    def __init__(self, folder: str, num_clients: int, num_rounds: int) -> None:
        super().__init__(num_clients=num_clients, num_rounds=num_rounds, persistor_id="")
        self.folder = folder

    def load_model(self) -> FLModel:
        """See `FedAvg`."""
        return FLModel(params=SharedWork.read(self.folder).read_weights())

    def save_model(self, model: FLModel) -> None:
        """See `FedAvg`; called at the end of each round."""
        SharedWork.read(self.folder).end_round(self.current_round, lambda: model.params)


def main(folder: str) -> None:
    """Trains."""
    work = SharedWork.read(folder)
    job = FedJob(name="bench", min_clients=work.clients)
    job.to_server(TimedNVFlare(folder, work.clients, work.rounds))
    script = Path(__file__).parent / "nvflare_site.py"
    for client in range(work.clients):
        runner = ScriptRunner(str(script), script_args=f"{folder} {client}")
        job.to(runner, f"site-{client + 1}")
    job.simulator_run(str(work.folder / "nvflare"), threads=work.clients)


if __name__ == "__main__":
    import run_nvflare  # by this name the server's process finds the controller

    run_nvflare.main(sys.argv[1])
