import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from typer.testing import CliRunner

from fedaction.bench import engines
from fedaction.bench import loop as bench
from fedaction.bench.timing import count_parameters, jobs_of
from fedaction.cli.bench import bench_app
from fedaction.engines.base import Training, plan_batches
from fedaction.engines.sequential import SequentialEngine
from fedaction.methods.start import fresh, initial_state
from fedaction.server.federation import combine


def test_the_bare_loop_does_the_same_work_as_the_engine(double):
    """A ratio between two pieces of work means something only if they are the same work."""
    workload = replace(bench.STGCN_CLIENTS, shape=(1, 12, 25, 3), samples=8)  # smaller: the steps are the same
    clients = bench.make_clients(workload, 2)
    training = Training(seed=0, batch_size=4, lr=0.01)
    method = bench.average_plainly(workload, clients.values())
    server = initial_state(method, 0)
    jobs = jobs_of(method, server)
    engine = SequentialEngine(method, clients, training, torch.device("cpu"))
    found = combine(method, server, engine.train(jobs)).shared
    model = fresh(method, method.clients[jobs[0].client], 0)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    plans = {job.client: plan_batches(training, job, workload.samples) for job in jobs}
    expected = bench.bare_round(model, weights, clients, plans, training.lr)
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-9, rtol=1e-9)


def test_both_workloads_are_the_ones_named_and_have_ratios():
    ticks = []
    result = bench.bench_loop(clients=2, rounds=1, tick=ticks.append)
    for name, parameters in (("ST-GCN", 216_768), ("MLP", 4_867_896)):
        found = result["workloads"][name]
        assert found["parameters"] == parameters
        assert found["ratio_all_workers"] > 0 and found["ratio_one_worker"] > 0
    assert {"ST-GCN: bare", "MLP: all workers"} <= set(ticks)


TINY = engines.Skeletons(clients=3, batch=2, steps=2, frames=8, width=2)


@pytest.mark.parametrize(
    ("work", "way"),
    [
        (TINY, engines.EngineSetup()),
        (
            replace(TINY, method="fsar", bodies=2, augment=True, steps=1),
            engines.EngineSetup(("vectorised",), recorded=True),
        ),
        (replace(TINY, backbone="ctrgcn", width=4, steps=1, clients=1), engines.EngineSetup(("sequential",))),
    ],
)
def test_whole_rounds_are_timed_and_every_sample_of_a_step_counts_once(work, way):
    ticks = []
    result = engines.bench_engines(work, way, 1, torch.device("cpu"), ticks.append)
    assert ticks == list(way.engines) and result["device"] == "CPU"
    assert (result["method"], result["bodies"], result["augment"]) == (work.method, work.bodies, work.augment)
    for name in way.engines:
        samples = work.clients * work.steps * work.batch
        assert result["samples_per_second"][name] * result["seconds"][name] == pytest.approx(samples)
        assert 0 < result["seconds_first_step"][name] <= result["seconds_first_round"][name]
    if len(way.engines) > 1:
        assert result["speed_up"] == pytest.approx(result["seconds"]["sequential"] / result["seconds"]["vectorised"])


def test_the_quarter_width_network_is_the_loops_own():
    method, data, training = engines.Skeletons(clients=2, steps=4, augment=True).make()
    assert count_parameters(method) == 216_768
    assert {len(client.train) for client in data.values()} == {64} and training.augment is not None


def test_fdarn_is_compared_at_the_size_of_its_paper_or_smaller():
    ticks = []
    result = engines.bench_fdarn(4, engines.EngineSetup(), 1, torch.device("cpu"), ticks.append, width=16)
    encoder, classifier = 2 * 17 * 16, 17 * 16 + 17 * 97
    assert result["parameters"] == 2 * encoder + 2 * classifier + 17 * 128 + 128 * 4
    assert result["clients"] == 4 and ticks == ["sequential", "vectorised"]
    for name, seconds in result["seconds"].items():
        assert abs(result["samples_per_second"][name] * seconds - 4 * 64) < 1e-6


def test_the_command_says_what_was_measured(monkeypatch):
    monkeypatch.setattr(engines, "bench_fdarn", partial(engines.bench_fdarn, width=8))
    arguments = ["fdarn", "--clients", "4", "--rounds", "1", "--device", "cpu"]
    result = CliRunner().invoke(bench_app, arguments)
    assert result.exit_code == 0, result.output
    assert "vectorised: " in result.stdout and "samples/s on CPU" in result.stdout and "speed-up: " in result.stdout
    assert "the first step done after" in result.stdout
    found = json.loads(CliRunner().invoke(bench_app, [*arguments, "--engine", "sequential", "--json"]).stdout)
    assert found["clients"] == 4 and found["seconds"].keys() == {"sequential"} and "speed_up" not in found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine", "warp"), "there is no engine 'warp'; say sequential, vectorised or both"),
        (("--precision", "fp8"), "there is no precision 'fp8'; say fp32 or bf16"),
        (("--precision", "bf16"), '"bf16" needs a GPU'),
        (("--method", "fedsar"), "--method = 'fedsar' is unknown; did you mean 'fsar'"),
        (("--backbone", "gcn"), "backbone"),
    ],
)
def test_what_cannot_be_measured_is_said(options, said):
    result = CliRunner().invoke(bench_app, ["engines", "--clients", "1", "--device", "cpu", *options])
    assert result.exit_code == 2 and said in " ".join(result.stderr.split())
