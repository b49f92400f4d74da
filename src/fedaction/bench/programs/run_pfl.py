"""The work in pfl-research: in one process with torch's threads, or started by torchrun in one process a core."""

# pfl is another environment's, and its type stubs are partial.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false
# pyright: reportUntypedBaseClass=false

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from work import SharedWork, take


class Learner(nn.Module):
    """The network with its loss, as pfl wants it."""

    def __init__(self, work: SharedWork) -> None:
        super().__init__()
        self.work, self.network = work, work.build_first()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Of a batch."""
        self.work.note_first_step()
        self.train()
        return F.cross_entropy(self.network(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """None."""
        return {}


class UntestedModel(PyTorchModel):
    """pfl's own, without the test before and after training that clients have in the first round."""

    def evaluate(self, dataset: Any, name_formatting_fn: Any = None, eval_params: Any = None) -> Metrics:
        """Nothing."""
        return Metrics()


class PlannedDataset(PyTorchTensorDataset):
    """A client whose batches are given."""

    def __init__(self, work: SharedWork, client: int, round: int) -> None:
        super().__init__((work.samples[client], work.labels[client]), user_id=str(client))
        self.rows = iter(work.batches[round, client])

    def iter(self, batch_size: int | None) -> Iterator[list[Tensor]]:
        """The batches of an epoch."""
        x, y = self.raw_data
        for _ in range(-(-len(x) // (batch_size or len(x)))):
            rows = next(self.rows)
            yield [x[rows], y[rows]]


class RoundNotes(TrainingProcessCallback):
    """Notes when a round is over, and counts them."""

    def __init__(self, work: SharedWork, learner: Learner) -> None:
        self.work, self.learner, self.round = work, learner, 0

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """See pfl."""
        if os.environ.get("RANK", "0") == "0":
            self.work.end_round(self.round, lambda: take(self.learner.network))
        self.round += 1
        return False, Metrics()


def main(folder: str) -> None:
    """Trains."""
    work = SharedWork.read(folder)
    learner, about = Learner(work), work.about
    note = RoundNotes(work, learner)
    model = UntestedModel(
        learner,
        partial(torch.optim.SGD, momentum=about["momentum"], weight_decay=about["weight_decay"]),
        torch.optim.SGD(learner.parameters(), lr=1.0),
    )
    clients = FederatedDataset(
        lambda client: PlannedDataset(work, client, note.round), MinimizeReuseUserSampler(range(work.clients))
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=work.rounds + 1,
            train_cohort_size=work.clients,
            val_cohort_size=None,
        ),
        SimulatedBackend(clients, clients, [WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=about["local_epochs"],
            local_learning_rate=about["lr"],
            local_batch_size=about["batch_size"],
        ),
        callbacks=[note],
    )


if __name__ == "__main__":
    main(sys.argv[1])
