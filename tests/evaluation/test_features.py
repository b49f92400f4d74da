import torch

from fedaction.engines.base import Applied
from fedaction.evaluation import features
from fedaction.evaluation.features import block_features, pooled_features
from fedaction.federation.tree import tensors_of
from fedaction.methods.start import fresh
from tests.conftest import make_client, make_method


def test_features_are_the_networks_own_whatever_the_batches(monkeypatch):
    client = make_client(0)
    method = make_method("fsar", {"client-0": client})
    module = fresh(method, client.info, 0).eval()
    with torch.no_grad():
        module.get_parameter("topology.U").normal_(generator=torch.Generator().manual_seed(1))
        last = module(client.test.x, leave=3)
    net = Applied(module, tensors_of(module))
    whole = block_features(net, client.test.x, 3)
    assert torch.equal(whole, last.flatten(1)) and not whole.requires_grad
    pooled = pooled_features(net, client.test.x)
    assert torch.allclose(pooled, last.mean((1, 2, 3)), atol=1e-6)
    assert not torch.allclose(pooled, pooled_features(net, client.test.x, unique=False))
    monkeypatch.setattr(features, "_BATCH", 2)
    assert torch.allclose(block_features(net, client.test.x, 3), whole, atol=1e-6)
