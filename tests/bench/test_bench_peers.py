"""The same work by other frameworks: what it is, how it is watched, and what is said where one is not to be had."""

import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

from fedaction.bench import environments, peers, shared_work
from fedaction.bench.environments import NotToBeHad
from fedaction.bench.loop import STGCN_CLIENTS, average_plainly, make_clients
from fedaction.bench.watch import watch
from fedaction.cli.bench import bench_app
from fedaction.federation.files import write_json
from fedaction.methods.start import fresh


@pytest.fixture(scope="module")
def work():
    """The module that all programs share, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("work", peers.PROGRAMS / "work.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["work"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["work"]


def test_plain_networks_learn_as_the_packages_own_do(double, work):
    """The ST-GCN that others train computes the package's, and so do its gradients."""
    clients = make_clients(replace(STGCN_CLIENTS, shape=(1, 12, 25, 3), samples=4), 1)
    method = average_plainly(STGCN_CLIENTS, clients.values())
    (client,) = clients.values()
    own = fresh(method, client.info, 0).train()
    plain = work.PlainSTGCN(own.topology.A, 60).train()
    work.load(plain, {n: shared_work.as_plain(n, t) for n, t in own.named_parameters()})
    x, y = client.train.take(torch.arange(4)), client.train.labels
    losses = [F.cross_entropy(own(x), y), F.cross_entropy(plain(x.squeeze(1).permute(0, 3, 1, 2)), y)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[0], losses[1], atol=1e-12, rtol=1e-12)
    found = dict(plain.named_parameters())
    expected = {n: p for n, p in own.named_parameters() if p.grad is not None}
    assert found.keys() == expected.keys()
    for name, parameter in expected.items():
        torch.testing.assert_close(found[name].grad, shared_work.as_plain(name, parameter.grad), atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("name", ["stgcn", "mlp"])
def test_the_work_is_one_that_every_program_can_read(tmp_path, work, name):
    workload = replace(peers.WORKLOADS[name], samples=6, batch_size=2)
    shared_work.write_work(tmp_path / "base", name, workload, 3, 2)
    read = work.SharedWork.read(tmp_path / "base")
    steps = 3 * workload.epochs
    assert read.batches.shape == (2, 3, steps, 2) and read.labels.shape == (3, 6) and read.samples.shape[:2] == (3, 6)
    assert all(len(set(epoch.tolist())) == 6 for epoch in read.batches.view(-1, 6))  # everything once an epoch
    assert not torch.equal(read.batches[0], read.batches[1])
    network = read.build_first()
    assert work.take(network).keys() == read.read_weights().keys()
    read.train(network, client=1, round=0)
    first = float((tmp_path / "base" / "first_step").read_text())
    read.end_round(0, lambda: work.take(network))
    read.end_round(1, lambda: work.take(network))
    ends = [float(line) for line in (tmp_path / "base" / "rounds").read_text().split()]
    assert first < ends[0] <= ends[1]
    start, last = (shared_work.read_plain(tmp_path / "base" / f"{end}.npz") for end in ("weights", "last"))
    assert all((start[n] != last[n]).any() for n in start) and not any("running" in n for n in start)


FAMILY = """
import subprocess, sys, time
held = bytearray(b"x") * 60_000_000
inner = "held = bytearray(b'x') * 50_000_000; import time; time.sleep({0})"
child = subprocess.Popen([sys.executable, "-c", inner.format(sys.argv[1])], start_new_session=True)
print("child", child.pid, flush=True)
end = time.process_time() + 0.6
while time.process_time() < end:
    pass
time.sleep(float(sys.argv[2]))
"""


def test_a_program_is_watched_with_all_its_processes(tmp_path):
    watched = watch([sys.executable, "-c", FAMILY, "1", "1"], os.environ, tmp_path / "log", 60)
    assert watched.status == 0 and watched.seconds > 1
    assert watched.memory is not None and 110_000_000 < watched.memory < 250_000_000
    assert 0.5 < watched.work[-1][1] < 10
    middle = watched.start + watched.seconds / 2
    assert watched.work_by(watched.start - 1) is None and 0 < (watched.work_by(middle) or 0) <= watched.work[-1][1]


def test_nothing_stays_behind_of_a_program_that_takes_too_long(tmp_path):
    watched = watch([sys.executable, "-c", FAMILY, "100", "100"], os.environ, tmp_path / "log", 1.5)
    assert watched.status is None and watched.seconds < 30
    child = int((tmp_path / "log").read_text().split()[1])
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_ratios_are_against_the_runs_before_and_after():
    before = peers.Measurement(2.0, 3.0, 4.0, 100, 20.0, 0.0, (2.0,))
    after = replace(before, round=4.0, processor=5.0, start_up=2.0, memory=200)
    other = peers.Measurement(6.0, 6.0, 12.0, 600, 50.0, 0.0, (6.0,))
    found = peers.compare_runs(other, before, after)
    assert found == {"faster": 2.0, "faster_processor": 1.5, "start_up": 0.25, "memory": 0.25}
    assert peers.compare_runs(replace(other, memory=None), before, after)["memory"] is None


def test_what_pip_says_is_the_reason(tmp_path):
    words = "print('WARNING: old'); print('no such thing as flwr'); raise SystemExit(1)"
    with pytest.raises(NotToBeHad, match=r"^its installation failed: no such thing as flwr$"):
        environments._run_pip(sys.executable, "-c", words)
    with pytest.raises(NotToBeHad, match="could not begin"):
        environments._run_pip(str(tmp_path / "nowhere"))


def test_an_environment_that_is_there_is_used_again(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    made = {"needs": ["x"], "torch": version("torch"), "python": platform.python_version()}
    write_json(tmp_path / "made.json", made)
    assert environments.make_environment(tmp_path, ["x"], print, install=False) == tmp_path / "bin" / "python"
    with pytest.raises(NotToBeHad, match=r"not installed in .*; leave out --no-install"):
        environments.make_environment(tmp_path, ["y"], print, install=False)


def test_one_that_is_not_to_be_had_is_skipped_and_fedaction_is_measured(tmp_path):
    """Flower's environment is there, but empty; the other is not there."""
    (tmp_path / "flwr" / "bin").mkdir(parents=True)
    write_python(tmp_path / "flwr" / "bin" / "python")
    flower = peers.PEERS["flower"]
    made = {"needs": list(flower.needs), "torch": version("torch"), "python": platform.python_version()}
    write_json(tmp_path / "flwr" / "made.json", made)
    size = ("--workload", "mlp", "--clients", "2", "--rounds", "2", "--envs", str(tmp_path))
    done = CliRunner().invoke(bench_app, ["peers", "--no-install", "--peers", "flower,nvflare", *size, "--json"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stderr.split())
    assert "flower is skipped: it cannot be loaded" in said and "nvflare is skipped: it is not installed in" in said
    result = json.loads(done.stdout)
    assert result["skipped"].keys() == {"flower", "nvflare"}
    (line,) = result["workloads"]["mlp"]
    assert line["name"] == "fedaction" and line["round"] > 0 and "against" not in line
    assert 0 < line["start_up"] < line["whole"] and line["memory"] > 100_000_000


def write_python(path: Path) -> None:
    """A Python that has no packages."""
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--peers", "flowers"), "--peers = 'flowers' is unknown; did you mean 'flower'"),
        (("--workload", "cnn"), "--workload = 'cnn' is unknown"),
        (("--rounds", "1"), "--rounds"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, said):
    result = CliRunner().invoke(bench_app, ["peers", "--no-install", *options])
    assert result.exit_code == 2 and said in " ".join(result.stderr.split())


def test_a_bench_that_is_stopped_leaves_no_process_behind(tmp_path):
    code = (
        f"from fedaction.bench.watch import watch; watch([{sys.executable!r}, '-c', {FAMILY!r}, '99', '99'], {{}}, "
    )
    code += f"__import__('pathlib').Path({str(tmp_path / 'log')!r}), 99)"
    bench = subprocess.Popen([sys.executable, "-c", code], env={**os.environ})
    while not (tmp_path / "log").exists() or not (tmp_path / "log").read_text():
        assert bench.poll() is None
        time.sleep(0.05)
    bench.send_signal(signal.SIGINT)
    bench.wait(30)
    child = int((tmp_path / "log").read_text().split()[1])
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.slow
def test_real_frameworks_do_the_same_work():
    """In environments that are kept; those that are not to be had are skipped, with a reason."""
    size = ("--workload", "stgcn", "--clients", "2", "--rounds", "2")
    done = CliRunner().invoke(bench_app, ["peers", *size, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    own, *others = result["workloads"]["stgcn"]
    assert own["name"] == "fedaction" and others[0]["name"] == "fedaction-named"
    gone = {name.removeprefix("stgcn: ") for name in result["skipped"]}
    assert {line["name"] for line in others[1:]} | gone == peers.PEERS.keys()
    for line in others:
        assert line["same"], line["apart"]
        assert all(value > 0 for value in line["against"].values())
        assert line["version"] or line["name"] == "fedaction-named"
    table = CliRunner().invoke(bench_app, ["peers", *size, "--no-install", "--peers", "pfl"])
    assert "fedaction, its own ST-GCN" in table.stdout
