import pytest
import torch

from fedaction.data.client import ClientInfo
from fedaction.federation.scope import GLOBAL, Rule, ScopeTable
from fedaction.federation.tree import tensors_of
from fedaction.methods.fedavg import FedAvg
from fedaction.methods.settings import NetworkSettings
from fedaction.methods.start import fresh, initial_state
from tests.conftest import TINY, make_client, make_method, mixed_clients


def test_initial_values_depend_on_the_seed_and_the_name_only():
    clients = mixed_clients()
    method = make_method("fsar", clients)
    before = torch.random.get_rng_state()
    trees = [tensors_of(fresh(method, client.info, 3)) for client in clients.values()]
    assert torch.equal(before, torch.random.get_rng_state())
    name = "units.1.temporal.weight"
    assert all(torch.equal(trees[0][name], tree[name]) for tree in trees)
    assert not torch.equal(trees[0][name], tensors_of(fresh(method, clients["client-0"].info, 4))[name])


def test_the_first_state_does_not_depend_on_the_order_of_clients():
    clients = mixed_clients()
    backwards = dict(reversed(clients.items()))
    one, two = (initial_state(make_method("fsar", c), 0) for c in (clients, backwards))
    assert one.shared.keys() == two.shared.keys()
    assert all(torch.equal(one.shared[n], two.shared[n]) for n in one.shared)


class EverythingShared(FedAvg):
    def scopes(self):
        return ScopeTable((Rule("**", GLOBAL),))


def test_clients_that_cannot_share_a_tensor_are_named():
    infos = [make_client(0, classes=4).info, make_client(1, classes=6).info]
    method = EverythingShared(infos, NetworkSettings(**TINY))
    with pytest.raises(ValueError, match=r"'classifier.weight'.*\(4, 8\).*'client-0'.*\(6, 8\).*'client-1'"):
        initial_state(method, 0)


def test_a_client_without_a_layout_cannot_join_a_skeleton_federation():
    info = ClientInfo("mic", "audio", 3, ("a",), (16000,))
    with pytest.raises(ValueError, match="'mic' holds 'audio' samples without a skeleton layout"):
        initial_state(FedAvg([info], NetworkSettings()), 0)


def test_only_their_own_joints_travel():
    clients = mixed_clients()
    method = make_method("fedavg", clients)
    server = initial_state(method, 0)
    shapes = {c: tuple(method.payload(server, clients[c].info)["importance.0"].shape) for c in clients}
    assert shapes == {
        "client-0": (3, 25, 25), "client-1": (3, 25, 25), "client-2": (3, 25, 25),
        "client-3": (3, 20, 20), "client-4": (3, 15, 15),
    }  # fmt: skip
