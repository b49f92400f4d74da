import json
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from fedaction.bench import pretext as bench
from fedaction.bench.timing import jobs_of
from fedaction.cli.bench import bench_app
from fedaction.engines.base import dropout_buffers, dropout_key
from fedaction.engines.sequential import SequentialEngine
from fedaction.federation.tree import tensors_of
from fedaction.methods.start import initial_state

CPU = torch.device("cpu")
TINY = bench.Size(width=2, size=16, frames=4, batch=3, clients=2, recordings=4)
SPEED = {"ours", "plain", "eager", "ours_batch4"}


@pytest.mark.parametrize("task", ["vcop", "speed", "ctp"])
def test_the_plain_loop_does_the_same_work_as_the_engine(double, task):
    """A ratio between two pieces of work means something only if they are the same work."""
    phones = bench.make_phones(TINY, CPU)
    method, training = bench.make_method(task, TINY, phones), bench.training_of(TINY.batch)
    jobs = jobs_of(method, initial_state(method, training.seed))
    engine = SequentialEngine(method, phones, training, CPU)
    update = list(engine.train(jobs))[1]
    engine.close()
    for options in [dict[str, Any](), {"channels_first": True}, {"channels_last": True}]:
        loop = bench.PlainLoop(method, training, CPU, **options)
        for name in dropout_buffers(loop.module):  # the masks are the client's own, whoever trains
            loop.module.get_buffer(name).fill_(dropout_key(training, jobs[1], name))
        before = {n: t.detach().clone() for n, t in tensors_of(loop.module).items()}
        loss = loop.epoch(phones[jobs[1].client].train.x, jobs[1])
        assert loss == pytest.approx(update.metrics["loss"], rel=1e-9)
        found = {**update.tree, **engine.store.pending(update.client)}
        assert found.keys() == tensors_of(loop.module).keys()
        for n, tensor in tensors_of(loop.module).items():
            torch.testing.assert_close(tensor.detach(), found[n], atol=1e-10, rtol=1e-10, msg=f"{options} {n}")
        assert not torch.equal(before["backbone.conv1.weight"], found["backbone.conv1.weight"])


def test_the_eager_loop_has_its_channels_first():
    phones = bench.make_phones(TINY, CPU)
    method = bench.make_method("vcop", TINY, phones)
    orders: list[bool] = []
    for first in (True, False):
        loop = bench.PlainLoop(method, bench.training_of(2), CPU, channels_first=first)
        layer = loop.module.get_submodule("backbone.layer2.0.bn1")
        hook = layer.register_forward_pre_hook(
            lambda _, given: orders.append(given[0].movedim(-1, 1).is_contiguous())
        )
        loop.epoch(phones["phone-000"].train.x, jobs_of(method, initial_state(method, 0))[0])
        hook.remove()
    assert orders == [True, True, False, False]


def test_rates_and_ratios_are_of_what_was_timed():
    ticks: list[str] = []
    threads = torch.get_num_threads()
    result = bench.bench_pretext(("vcop",), TINY, rounds=1, device=CPU, tick=ticks.append)
    assert torch.get_num_threads() == threads
    assert (result["precision"], result["channels_last"], result["device"]) == ("fp32", False, "CPU")
    assert result["shape"] == (16, 18, 24, 3) and result["batch"] == 3
    found = result["tasks"]["vcop"]
    assert not found["compiled"] and not found["compile_error"] and found["compile_seconds"] == 0
    seconds, speed = found["seconds"], found["clips_per_second"]
    assert speed.keys() == SPEED and seconds.keys() == SPEED | {"draw", "apply"}
    clips = {"ours": 24, "plain": 24, "eager": 12, "ours_batch4": 12}  # three of each recording
    for name, count in clips.items():
        assert speed[name] * seconds[name] == pytest.approx(count)
    assert found["ratio_plain"] == pytest.approx(seconds["plain"] / seconds["ours"])
    assert found["ratio_eager"] == pytest.approx(speed["ours"] / speed["eager"])
    assert found["ratio_eager_batch4"] == pytest.approx(speed["ours_batch4"] / speed["eager"])
    assert found["share_draw"] == pytest.approx(seconds["draw"] / seconds["ours"])
    assert 0 < found["share_apply"] < 1
    assert len(ticks) == 2 * 6 and ticks[0] == "vcop: ours, first turn" and ticks[-1] == "vcop: apply, turn 1 of 1"


def test_what_cannot_be_compiled_is_measured_as_it_is(monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setattr(torch, "compile", broken)
    found = bench._bench("speed", TINY, 1, CPU, True, lambda _: None)
    assert found["compile_error"] == "RuntimeError: no compiler here"
    assert not found["compiled"] and found["compile_seconds"] == 0 and found["clips_per_second"]["ours"] > 0
    monkeypatch.setattr(bench, "_times", broken)
    with pytest.raises(RuntimeError, match="no compiler"):  # what fails uncompiled is not swallowed
        bench._bench("speed", TINY, 1, CPU, False, lambda _: None)


def test_the_command_prints_a_table_or_json():
    small = ["--width", "2", "--size", "16", "--frames", "4", "--batch", "2", "--clients", "1", "--recordings", "2"]
    arguments = ["pretext", "--task", "speed", "--rounds", "1", "--device", "cpu", *small]
    result = CliRunner().invoke(bench_app, arguments)
    assert result.exit_code == 0, result.output
    assert "plain loop" in result.stdout and "speed: fp32 on CPU, not compiled; drawing" in result.stdout
    found = json.loads(CliRunner().invoke(bench_app, [*arguments, "--no-compile", "--json"]).stdout)
    assert found["tasks"].keys() == {"speed"} and found["clients"] == 1
    refused = CliRunner().invoke(bench_app, ["pretext", "--task", "nope"])
    assert refused.exit_code != 0 and "there is no task" in refused.output
    with pytest.raises(ValueError, match="must be at least 1"):
        bench.bench_pretext(rounds=0)
