"""What a round's books do with what clients say."""

import math

import pytest
import torch

from fedaction.federation.state import Update
from fedaction.guard.validate import validate
from fedaction.methods.start import initial_state
from fedaction.server.federation import Federation, Ledger
from fedaction.server.state import FederationState
from tests.conftest import make_method, mixed_clients


class ByLoss:
    """Weighs by what a client reports, as FedVSSL does."""

    def __init__(self, method):
        self.method = method

    def __getattr__(self, name):
        return getattr(self.method, name)

    def weigh(self, report):
        return math.exp(-report.metrics["loss"])


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"loss": math.nan}, ["loss nan", "its weight in the mean would be [nan]"]),
        ({"loss": math.inf}, ["loss inf", "would be [0.0]"]),
        ({"loss": -1e9}, ["from which no weight follows: OverflowError"]),
        ({}, ["nothing, from which no weight follows: KeyError 'loss'"]),
    ],
)
def test_a_report_from_which_no_weight_follows_is_a_refused_update(metrics, words):
    clients = mixed_clients()
    method = ByLoss(make_method("fedavg", clients))
    said: list[str] = []
    infos = [client.info for client in clients.values()]
    federation = Federation(method, infos, (validate,), said.append)
    state = FederationState(0, initial_state(method.method, 0))
    ledger = Ledger(federation, state)
    job = federation.job(state.server, "client-1", 1)
    bad, good = (
        Update("client-1", "skeleton", 0, job.payload, 21.0, given, occasion=1) for given in (metrics, {"loss": 0.5})
    )
    assert not ledger.receive(bad, job, state.server, 1) and not ledger.accepted
    assert len(said) == 1 and said[0].startswith("round 1: client 'client-1' reported 21 samples and ")
    assert all(word in said[0] for word in words), said[0]
    assert ledger.receive(good, job, state.server, 1)
    after = ledger.combine(state.server)
    assert all(torch.equal(after.shared[n], t) for n, t in state.server.shared.items())
    rows = {(row.client, row.name): row.value for row in ledger.rows(1, 0.0, {})}
    assert rows["client-1", "refused"] == rows["", "refused"] == rows["", "participants"] == 1
    assert rows["", "bytes_up"] == 2 * method.plan(infos[1]).traffic  # both had travelled
