import json
from dataclasses import replace
from functools import partial

import torch
from typer.testing import CliRunner

from fedaction.bench import loop as bench
from fedaction.bench.timing import jobs_of
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
    method = bench._Averaging([c.info for c in clients.values()], workload)
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


def test_engines_are_compared():
    result = bench.bench_engines(clients=2, rounds=1, device=torch.device("cpu"))
    assert result["device"] == "CPU" and result["seconds"].keys() == {"sequential", "vectorised"}
    assert abs(result["speed_up"] - result["seconds"]["sequential"] / result["seconds"]["vectorised"]) < 1e-9


def test_fdarn_is_compared_at_the_size_of_its_paper_or_smaller():
    ticks = []
    result = bench.bench_fdarn(clients=4, rounds=1, device=torch.device("cpu"), tick=ticks.append, width=16)
    encoder, classifier = 2 * 17 * 16, 17 * 16 + 17 * 97
    assert result["parameters"] == 2 * encoder + 2 * classifier + 17 * 128 + 128 * 4
    assert result["clients"] == 4 and ticks == ["sequential"] * 2 + ["vectorised"] * 2
    for name, seconds in result["seconds"].items():
        assert abs(result["samples_per_second"][name] * seconds - 4 * 64) < 1e-6
    assert abs(result["speed_up"] - result["seconds"]["sequential"] / result["seconds"]["vectorised"]) < 1e-9


def test_the_command_says_what_was_measured(monkeypatch):
    small = partial(bench.bench_fdarn, width=8)
    monkeypatch.setattr(bench, "bench_fdarn", small)
    arguments = ["fdarn", "--clients", "4", "--rounds", "1", "--device", "cpu"]
    result = CliRunner().invoke(bench_app, arguments)
    assert result.exit_code == 0, result.output
    assert "vectorised: " in result.stdout and "samples/s on CPU" in result.stdout and "speed-up: " in result.stdout
    found = json.loads(CliRunner().invoke(bench_app, [*arguments, "--json"]).stdout)
    assert found["clients"] == 4 and found["seconds"].keys() == {"sequential", "vectorised"}
