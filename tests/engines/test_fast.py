"""What makes steps faster and must not change them: channels last, compiled networks, bfloat16 around networks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from torch import nn

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.engines.base import Preparation, Training, align_gradients, set_network_precision
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.progress import Quiet
from fedaction.federation.seeds import generator
from fedaction.federation.settings import RecipeError
from fedaction.federation.tree import Tree
from fedaction.methods import METHODS
from fedaction.methods.pretext import PRETEXTS
from fedaction.methods.start import initial_state
from fedaction.models.layers import Dropout
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.single import SingleRun
from tests.conftest import federation_for, mixed_clients
from tests.engines.test_engines_agree import CPU, jobs_of

TRAINING = Training(seed=3, batch_size=2, lr=0.01, momentum=0.9, clip_norm=40.0)
SMALL = {"clip_frames": 4, "clip_size": 16, "model_width": 2}
FRAMES = {"vcop": 14, "speed": 8, "ctp": 8}


def filmed(frames: int, size: int, counts: tuple[int, ...] = (4, 3)) -> dict[str, ClientData]:
    """Clients with recordings of noise."""
    found: dict[str, ClientData] = {}
    for number, count in enumerate(counts):
        shape = (frames, size, size, 3)
        x = torch.randint(0, 256, (count, *shape), generator=generator(7, number), dtype=torch.uint8)
        examples = Examples(x, torch.arange(count) % 2)
        found[f"phone-{number}"] = ClientData(
            ClientInfo(f"phone-{number}", "video", count, ("a", "b"), shape), examples, examples
        )
    return found


def video_method(kind: str):
    """A method on video, and its clients: a pretext task, or plain averaging of a 3D ResNet."""
    if kind in PRETEXTS:
        clients, values, name = filmed(FRAMES[kind], 20), {**SMALL, "pretext": kind}, "fedvssl"
    else:
        clients, name = filmed(4, 16), "fedavg"
        values = {"backbone": "resnet3d", "model_depth": 18, "model_width": 2}
    method = METHODS[name]([c.info for c in clients.values()], METHODS[name].settings_type(**values))
    return clients, method


class Result(NamedTuple):
    """What a client sent, and what it keeps."""

    client: str
    metrics: Mapping[str, float]
    tree: Tree
    local: Tree


def keep(engine, sent) -> list[Result]:
    return [Result(u.client, u.metrics, u.tree, engine.store.pending(u.client)) for u in sent]


def updates(method, clients, training=TRAINING, engine=SequentialEngine, **options):
    made = engine(method, clients, training, CPU, **options)
    results = keep(made, made.train(jobs_of(method, initial_state(method, 3), clients)))
    made.close()
    return results


def assert_same(one, other, tolerance: float) -> None:
    for a, b in zip(one, other, strict=True):
        assert a.metrics == pytest.approx(b.metrics, rel=tolerance)
        for mine, theirs in ((a.tree, b.tree), (a.local, b.local)):
            assert mine.keys() == theirs.keys()
            for n in mine:
                torch.testing.assert_close(mine[n], theirs[n], atol=tolerance, rtol=tolerance, msg=f"{a.client} {n}")


@pytest.mark.parametrize("kind", ["ctp", "speed", "fedavg"])
def test_channels_last_in_memory_is_the_same_arithmetic(double, kind):
    clients, method = video_method(kind)
    engine = SequentialEngine(method, clients, TRAINING, CPU, channels_last=True)
    jobs = jobs_of(method, initial_state(method, 3), clients)
    found = keep(engine, [engine._train(job)() for job in jobs])
    assert_same(found, updates(method, clients), 1e-10)
    weights = [t for t in engine._resident(jobs[0].client, "train").tensors.values() if t.dim() == 5]
    assert len(weights) > 10 and all(t.is_contiguous(memory_format=torch.channels_last_3d) for t in weights)
    assert not all(t.is_contiguous() for t in weights)
    # What leaves the engine lies in memory as it always did.
    assert all(t.is_contiguous() for update in found for t in (*update.tree.values(), *update.local.values()))
    engine.close()


def test_channels_last_in_single_precision():
    clients, method = video_method("ctp")
    assert_same(updates(method, clients, channels_last=True), updates(method, clients), 1e-5)


def test_without_a_gpu_steps_are_taken_one_by_one():
    clients, method = video_method("speed")
    assert_same(updates(method, clients, recorded=True), updates(method, clients), 0.0)
    one, other = (parse_recipe({"method": "fedavg", "record_step": given}) for given in (False, True))
    assert one.configuration() == other.configuration()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ctp", "speed"])
def test_a_compiled_network_is_compiled_once_for_all_clients_and_rounds(double, kind):
    clients, method = video_method(kind)
    assert {min(len(c.train), 2) for c in clients.values()} == {2}
    engine = SequentialEngine(method, clients, TRAINING, CPU, channels_last=True, compiled=True)
    jobs = jobs_of(method, initial_state(method, 3), clients)
    first = keep(engine, engine.train(jobs[:1]))
    with torch._dynamo.config.patch(error_on_recompile=True):
        second = keep(engine, engine.train(jobs))
        list(engine.train([replace(job, round=2) for job in jobs]))
    engine.close()
    expected = updates(method, clients)
    assert_same(first, expected[:1], 1e-9)
    assert_same(second, expected, 1e-9)


@pytest.mark.slow
def test_a_compiled_dropout_goes_back_through_the_mask_it_went_forward_with():
    """torch may compute a mask again in the backward pass: then from a key that has moved on."""
    found = []
    for compiled in (False, True):
        network = nn.Sequential(nn.Linear(8, 16), Dropout(0.5), nn.Linear(16, 3))
        for number, parameter in enumerate(network.parameters()):
            parameter.data = torch.randn(parameter.shape, generator=generator(0, number))
        apply = torch.compile(network) if compiled else network
        x = torch.randn(4, 8, generator=generator(0, "x"))
        for _ in range(2):
            apply(x).square().sum().backward()
        found.append([parameter.grad for parameter in network.parameters()])
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(plain, compiled)


@pytest.mark.parametrize("name", ["fedavg", "pfedme"])
def test_a_methods_own_step_is_not_compiled(name):
    clients, method = federation_for(name, few=True)
    engine = SequentialEngine(method, clients, TRAINING, CPU, compiled=True)
    resident = engine._resident(next(iter(clients)), "train")
    assert (resident.compiled is None) == method.overrides("step")
    engine.close()


def test_a_network_in_bfloat16_gives_and_keeps_single_precision():
    layer = nn.Linear(8, 4)
    x = torch.randn(16, 8, generator=generator(0, "x"))
    exact = layer(x).detach()
    rounded = set_network_precision(layer, CPU, "bf16")(x)
    assert rounded.dtype == torch.float32 and layer.weight.dtype == torch.float32
    assert not torch.equal(rounded, exact) and (rounded - exact).abs().max() < 0.05
    rounded.sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32
    same = nn.Linear(8, 4)
    assert set_network_precision(same, CPU, "fp32") is same and "forward" not in vars(same)


# Perceptrons: 3D convolutions in bfloat16 crash some processors, which is why runs refuse them without a GPU.
@pytest.mark.parametrize("name", ["lgfedavg", "pfedme"])
@pytest.mark.parametrize("engine", [SequentialEngine, VectorisedEngine])
def test_engines_round_networks_and_nothing_else(name, engine):
    clients, method = federation_for(name, few=True)
    training = replace(TRAINING, batch_size=4)
    exact, found = (updates(method, clients, training, engine, precision=name) for name in ("fp32", "bf16"))
    differ = False
    for one, other in zip(exact, found, strict=True):
        for n, tensor in {**one.tree, **one.local}.items():
            rounded = {**other.tree, **other.local}[n]
            assert rounded.dtype == tensor.dtype
            torch.testing.assert_close(rounded, tensor, atol=0.05, rtol=0.05)
            differ = differ or not torch.equal(rounded, tensor)
    assert differ


def test_bfloat16_is_refused_without_a_gpu(tmp_path):
    recipe = parse_recipe({"method": "fedavg", "precision": "bf16", "device": "cpu"})
    with pytest.raises(ValueError, match='"bf16" needs a GPU; say --set precision=fp32'):
        SingleRun(recipe, mixed_clients(), tmp_path, Quiet())


def test_channels_last_is_refused_where_clients_are_stacked():
    with pytest.raises(RecipeError, match="channels_last goes with engine = 'sequential'"):
        parse_recipe({"method": "fedavg", "channels_last": True, "engine": "vectorised"})


def test_precision_decides_results_but_channels_last_does_not():
    plain, last, rounded = (
        parse_recipe({"method": "fedavg", **keys}).configuration()
        for keys in ({}, {"channels_last": True}, {"precision": "bf16"})
    )
    assert plain == last != rounded


@pytest.mark.parametrize("kind", ["vcop", "speed", "ctp"])
def test_all_of_a_job_is_drawn_at_once(kind):
    task, shape = PRETEXTS[kind](frames=4, size=16), (20, 20, 20, 3)
    found = Preparation(task, None).draw(torch.zeros(3, 2), shape, generator(1, "draw"), 1)
    for name, whole in task.draw(6, shape, generator(1, "draw")).items():
        assert found[name].shape[:2] == (3, 2) and torch.equal(found[name].flatten(0, 1), whole)


def test_gradients_take_their_weights_strides():
    weight = nn.Parameter(torch.zeros(4, 2, 1, 1, 1))
    values = torch.arange(8.0).view(4, 2, 1, 1, 1)
    weight.grad = values.as_strided((4, 2, 1, 1, 1), (2, 1, 2, 2, 2))
    assert weight.grad.stride() != weight.stride()
    align_gradients([weight, nn.Parameter(torch.zeros(2))])
    assert weight.grad.stride() == weight.stride() and torch.equal(weight.grad, values)
