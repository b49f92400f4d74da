"""The same results on a GPU. Run with `pytest -m gpu` where there is one."""

from dataclasses import replace

import pytest
import torch

from fedaction.engines.base import set_precision
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.methods.start import initial_state
from tests.conftest import CROSS_MODAL, LABELLED, federation_for
from tests.engines.test_engines_agree import CPU, TOLERANCE, TRAINING, jobs_of
from tests.engines.test_fast import TRAINING as FAST
from tests.engines.test_fast import video_method

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


def on(device, tree):
    return {name: tensor.to(device) for name, tensor in tree.items()}


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("kind", [SequentialEngine, VectorisedEngine])
def test_cuda_agrees_with_the_cpu_and_with_itself(double, name, kind):
    set_precision(tf32=False)  # without it cuDNN may sum in another order each time
    clients, method = federation_for(name, model_dropout=0.2)
    training = replace(TRAINING, augment=None) if name in CROSS_MODAL else TRAINING
    jobs = jobs_of(method, initial_state(method, 3), clients)
    expected = list(SequentialEngine(method, clients, training, CPU).train(jobs))
    cuda = torch.device("cuda")
    first, second = (list(kind(method, clients, training, cuda).train(jobs)) for _ in range(2))
    for one, two, again in zip(expected, first, second, strict=True):
        for n in one.tree:
            torch.testing.assert_close(one.tree[n], two.tree[n].cpu(), atol=TOLERANCE, rtol=TOLERANCE)
            assert torch.equal(two.tree[n], again.tree[n]), n


@pytest.mark.parametrize("name", LABELLED)
def test_a_recorded_step_is_the_step(double, name):
    set_precision(tf32=False)
    clients, method = federation_for(name, model_dropout=0.2)
    training = replace(TRAINING, lr=0.125, augment=None if name in CROSS_MODAL else TRAINING.augment)
    cuda = torch.device("cuda")
    assert training.momentum > 0 and training.lr == float(torch.tensor(0.125))  # a recorded rate is a float32
    jobs = jobs_of(method, initial_state(method, 3), clients)
    expected = list(SequentialEngine(method, clients, training, cuda).train(jobs))
    engine = SequentialEngine(method, clients, training, cuda, recorded=True)
    recorded = [list(engine.train(jobs)) for _ in range(2)]  # the second time nothing is recorded any more
    for one, first, again in zip(expected, *recorded, strict=True):
        assert first.metrics == pytest.approx(one.metrics, rel=1e-9)
        for n in one.tree:
            torch.testing.assert_close(first.tree[n], one.tree[n], atol=1e-12, rtol=1e-12)
            assert torch.equal(first.tree[n], again.tree[n]), n
    engine.close()


@pytest.mark.parametrize("name", LABELLED)
def test_a_stacks_recorded_step_is_the_step(double, name):
    """Four rounds' worth: the first step of a shape is taken, the second recorded, later ones repeated."""
    set_precision(tf32=False)
    clients, method = federation_for(name, model_dropout=0.2)
    training = replace(TRAINING, augment=None if name in CROSS_MODAL else TRAINING.augment)
    cuda = torch.device("cuda")
    jobs = jobs_of(method, initial_state(method, 3), clients)
    expected = list(VectorisedEngine(method, clients, training, cuda).train(jobs))
    engine = VectorisedEngine(method, clients, training, cuda, recorded=True)
    for _ in range(4):
        for one, other in zip(expected, list(engine.train(jobs)), strict=True):
            assert other.metrics == pytest.approx(one.metrics, rel=1e-5)
            for n in one.tree:
                torch.testing.assert_close(other.tree[n], one.tree[n], atol=1e-6, rtol=1e-6, msg=n)
    engine.close()


@pytest.mark.parametrize("optimiser", ["adam", "adamw"])
def test_a_recorded_step_of_another_optimiser_is_the_step(double, optimiser):
    """FedRep, whose parts take turns: each counts its own steps, from zero in every job."""
    set_precision(tf32=False)
    clients, method = federation_for("fedrep", model_dropout=0.2)
    training = replace(TRAINING, lr=0.015625, optimiser=optimiser, augment=None)
    cuda = torch.device("cuda")
    jobs = jobs_of(method, initial_state(method, 3), clients)
    on_cpu = list(SequentialEngine(method, clients, training, CPU).train(jobs))
    engines = [
        SequentialEngine(method, clients, training, cuda),
        SequentialEngine(method, clients, training, cuda, recorded=True),
        VectorisedEngine(method, clients, training, cuda),
    ]
    for engine in engines:
        for _ in range(2):
            for one, other in zip(on_cpu, engine.train(jobs), strict=True):
                for n in one.tree:
                    torch.testing.assert_close(other.tree[n].cpu(), one.tree[n], atol=1e-6, rtol=1e-6, msg=n)
        engine.close()


@pytest.mark.parametrize("kind", ["vcop", "speed", "ctp"])
def test_recorded_pretext_tasks(kind):
    set_precision(tf32=False)
    clients, method = video_method(kind)
    cuda = torch.device("cuda")
    jobs = jobs_of(method, initial_state(method, 3), clients)
    expected = SequentialEngine(method, clients, FAST, cuda).train(jobs)
    for one, other in zip(
        expected, SequentialEngine(method, clients, FAST, cuda, recorded=True).train(jobs), strict=True
    ):
        assert other.metrics == pytest.approx(one.metrics, rel=1e-4)
        for n in one.tree:
            torch.testing.assert_close(other.tree[n], one.tree[n], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("kind", ["vcop", "speed", "ctp"])
@pytest.mark.parametrize("recorded", [False, True])
def test_nothing_waits_for_the_gpu_while_a_client_trains(kind, recorded):
    clients, method = video_method(kind)
    cuda = torch.device("cuda")
    engine = SequentialEngine(method, clients, FAST, cuda, channels_last=True, recorded=recorded)
    jobs = jobs_of(method, initial_state(method, 3), clients)
    jobs = [replace(job, payload=on(cuda, job.payload)) for job in jobs]
    engine._train(jobs[0])()  # builds the network, and records its step
    torch.cuda.set_sync_debug_mode("error")
    try:
        waiting = [engine._train(job) for job in jobs]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(finish().metrics["loss"] > 0 for finish in waiting)
    engine.close()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["vcop", "speed", "ctp"])
def test_bfloat16_and_channels_last_train_much_as_single_precision_does(kind, compiled):
    clients, method = video_method(kind)
    cuda = torch.device("cuda")
    jobs = jobs_of(method, initial_state(method, 3), clients)
    exact = list(SequentialEngine(method, clients, FAST, cuda).train(jobs))
    engine = SequentialEngine(method, clients, FAST, cuda, precision="bf16", channels_last=True, compiled=compiled)
    for one, other in zip(exact, engine.train(jobs), strict=True):
        assert other.metrics["loss"] == pytest.approx(one.metrics["loss"], rel=0.1)
        assert all(tensor.dtype == one.tree[n].dtype for n, tensor in other.tree.items())
        assert all(tensor.isfinite().all() for tensor in other.tree.values())
    engine.close()
