from dataclasses import replace

import pytest
import torch

from fedaction.data.client import ClientInfo
from fedaction.engines.base import Training
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.scope import GLOBAL, Rule, ScopeTable
from fedaction.federation.state import Update
from fedaction.federation.tree import tensors_of
from fedaction.methods import METHODS
from fedaction.methods.base import Method
from fedaction.methods.fedavg import FedAvg
from fedaction.methods.settings import NetworkSettings
from fedaction.methods.start import fresh, initial_state
from fedaction.server.federation import combine
from tests.conftest import TINY, make_client, make_method, mixed_clients
from tests.engines.test_engines_agree import jobs_of


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
    infos = [make_client(0).info, make_client(1, joints="openni_15").info]
    method = EverythingShared(infos, NetworkSettings(**TINY))
    with pytest.raises(ValueError, match=r"'topology.A'.*\(3, 25, 25\).*'client-0'.*\(3, 15, 15\).*'client-1'"):
        initial_state(method, 0)


def test_clients_share_a_classifier_by_the_names_of_their_classes(double):
    """However many they name, and in whatever order; a class is averaged over the clients that name it."""
    infos = [
        replace(make_client(0, classes=4, train=12).info, classes=("run", "jump", "sit", "wave")),
        replace(make_client(1, classes=3, train=4).info, classes=("wave", "fall", "run")),
        replace(make_client(2, classes=4, train=8).info, classes=("run", "jump", "sit", "wave")),
    ]
    method = EverythingShared(infos, NetworkSettings(**TINY))
    server = initial_state(method, 0)
    names = ("run", "jump", "sit", "wave", "fall")
    assert method.classes == names and tuple(server.shared["classifier.weight"].shape) == (5, 8)
    random, updates = torch.Generator().manual_seed(0), []
    for info in infos[:2]:  # nobody else takes part
        sent = method.payload(server, info)
        for n in ("classifier.weight", "classifier.bias"):
            assert torch.equal(sent[n], server.shared[n][[names.index(name) for name in info.classes]])
        tree = {n: t + torch.randn(t.shape, generator=random) for n, t in sent.items()}
        updates.append(Update(info.id, info.group, 0, tree, float(info.samples)))
    after = combine(method, server, updates).shared
    one, two = (update.tree for update in updates)
    for n in ("classifier.weight", "classifier.bias"):
        literal = {
            "run": (12 * one[n][0] + 4 * two[n][2]) / 16,
            "jump": one[n][1],
            "sit": one[n][2],
            "wave": (12 * one[n][3] + 4 * two[n][0]) / 16,
            "fall": two[n][1],
        }
        for row, name in enumerate(names):
            torch.testing.assert_close(after[n][row], literal[name])
    torch.testing.assert_close(
        after["projection.weight"], (12 * one["projection.weight"] + 4 * two["projection.weight"]) / 16
    )


def test_a_class_that_nobody_who_took_part_names_stays_as_it_was():
    infos = [make_client(0, classes=4).info, make_client(1, classes=6).info]
    method = EverythingShared(infos, NetworkSettings(**TINY))
    server = initial_state(method, 0)
    tree = {n: t + 1 for n, t in method.payload(server, infos[0]).items()}
    after = combine(method, server, [Update("client-0", "skeleton", 0, tree, 12.0)]).shared
    for n in ("classifier.weight", "classifier.bias"):
        assert torch.equal(after[n][4:], server.shared[n][4:])
        assert torch.equal(after[n][:4], server.shared[n][:4] + 1)


@pytest.mark.parametrize(("name", "settings"), [("fedavg", {"classifier": "shared"}), ("lgfedavg", {})])
def test_a_federation_of_unlike_classes_trains_one_classifier_on_both_engines(double, name, settings):
    clients = mixed_clients()  # they name three to six classes
    method = make_method(name, clients, **settings)
    server = initial_state(method, 3)
    assert tuple(server.shared["classifier.weight"].shape) == (6, 8)
    states = []
    for engine in (SequentialEngine, VectorisedEngine):
        worker = engine(method, clients, Training(seed=3, batch_size=4, lr=0.05), torch.device("cpu"))
        updates = list(worker.train(jobs_of(method, server, clients)))
        worker.commit(clients)
        states.append(combine(method, server, updates))
        assert [update.tree["classifier.bias"].shape[0] for update in updates] == [4, 6, 3, 5, 4]
        tests = list(worker.evaluate(jobs_of(method, states[-1], clients)))
        assert [test.client for test in tests] == list(clients)
    for n, tensor in states[0].shared.items():
        torch.testing.assert_close(states[1].shared[n], tensor, atol=1e-9, rtol=1e-9, msg=n)
    assert (states[0].shared["classifier.weight"] != server.shared["classifier.weight"]).any(-1).all()


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


MAY_OVERRIDE = {
    *("title", "settings_type", "needs_anchor", "buffer", "task", "build", "scopes"),
    *("loss", "weigh", "advance", "begin", "step", "finish", "adapt"),
}
"""What docs/core.md lists; a hook that one method uses is a question to the design."""


def test_a_method_overrides_what_it_may_and_nothing_else():
    assert len(MAY_OVERRIDE) == 14
    derived = {name for name in vars(Method) if not name.startswith("_")} - MAY_OVERRIDE
    assert derived >= {"payload", "served", "plan", "parts", "scopes_of", "weights", "trained"}
    for name, kind in METHODS.items():
        own = {key for base in kind.__mro__[: kind.__mro__.index(Method)] for key in vars(base)}
        assert not own & derived, f"{name} overrides {sorted(own & derived)}"
    used = {key for kind in METHODS.values() for base in kind.__mro__[:-2] for key in vars(base)}
    assert used >= MAY_OVERRIDE - {"title"}  # none that nobody needs
