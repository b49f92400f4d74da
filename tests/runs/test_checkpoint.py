"""Checkpoints: bit-exact, atomic, checked when read; the last few are kept and a broken one is passed over."""

import hashlib
import json
import math
import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedaction.engines.store import LocalState
from fedaction.federation.files import remove_partial, write_atomically
from fedaction.federation.seeds import generator
from fedaction.federation.state import ServerState
from fedaction.federation.tree import Tree
from fedaction.runs.checkpoint import CheckpointError, RunState, latest_checkpoint, load_checkpoint, save_checkpoint
from fedaction.runs.seal import Seal, SealError
from fedaction.server.state import FederationState

METRICS = b"".join(b'{"line":%4d}\n' % number for number in range(100))
"""More metrics than any checkpoint here asks for."""


@pytest.fixture
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("metrics") / "metrics.jsonl"
    path.write_bytes(METRICS)
    return path


def tree(number: int) -> dict[str, torch.Tensor]:
    random = generator(0, "checkpoint", number)
    return {
        "layer.weight": torch.randn(3, 4, generator=random),
        "layer.norm.running_var": torch.tensor(
            [math.pi, 1e-45, -0.0, 3e38]
        ),  # subnormal, signed zero, near the limit
        "counter": torch.tensor(7 + number),
        "doubles": torch.randn(2, generator=random, dtype=torch.float64),
        "mask": torch.tensor([True, False]),
        "nothing": torch.empty(0, 5),
        "diverged": torch.tensor([math.nan, math.inf]),
    }


def make_state(round: int = 4) -> RunState:
    shared = tree(round)
    groups: dict[str, Tree] = {"skeleton": tree(1), "video": {}}
    server = ServerState(version=round - 1, shared=shared, groups=groups, ahead=tree(30), memory=shared)
    return RunState(
        FederationState(round, server, visits={"client-0": round, "client-3": 1, "client-7": 2}),
        LocalState({"client-0": tree(10 + round), "client-7": tree(20 + round)}, {"client-3": tree(40)}),
        metrics_length=100 * round,
        best=(1 / 3, round - 1),
        metrics_sha256=hashlib.sha256(METRICS[: 100 * round]).hexdigest(),
        seal=Seal("abc", 7, 20, {"lr": 0.1, "late": ["a"]}, {"mine": "123"}),
    )


def bits(values: Tree) -> dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]:
    return {name: (t.dtype, tuple(t.shape), t.contiguous().numpy().tobytes()) for name, t in values.items()}


def assert_same(one: RunState, other: RunState) -> None:
    assert (one.round, one.server.version, one.metrics_length) == (
        other.round,
        other.server.version,
        other.metrics_length,
    )
    assert (one.seal, one.metrics_sha256) == (other.seal, other.metrics_sha256)
    assert (dict(one.federation.visits), one.best) == (dict(other.federation.visits), other.best)
    assert bits(one.server.shared) == bits(other.server.shared)
    assert bits(one.server.memory) == bits(other.server.memory)
    assert bits(one.server.ahead) == bits(other.server.ahead)
    pairs = [(one.server.groups, other.server.groups), (one.locals.committed, other.locals.committed)]
    for here, there in (*pairs, (one.locals.pending, other.locals.pending)):
        assert {name: bits(values) for name, values in here.items()} == {n: bits(v) for n, v in there.items()}


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Round trip


def test_a_checkpoint_comes_back_to_the_last_bit(tmp_path, table):
    state = make_state()
    save_checkpoint(tmp_path, state, keep=2)
    assert_same(load_checkpoint(tmp_path, "round-000004"), state)
    found = latest_checkpoint(tmp_path, table)
    assert found is not None
    assert_same(found, state)


def test_tensors_that_are_views_or_need_gradients_are_kept_as_values(tmp_path):
    base = torch.arange(12.0).view(3, 4).requires_grad_()
    shared = {"transposed": base.t(), "part": base[1:, ::2], "leaf": base}
    state = RunState(FederationState(1, ServerState(1, shared, memory=shared)))
    save_checkpoint(tmp_path, state, keep=1)
    found = load_checkpoint(tmp_path, "round-000001")
    for name, values in shared.items():
        assert torch.equal(found.server.shared[name], values) and torch.equal(found.server.memory[name], values)


def test_saving_twice_writes_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        save_checkpoint(tmp_path / folder, make_state(), keep=2)
    for name in names(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize(
    "name", ["a|b", "|", "shared|x", "a/b/../c", "two words", "naïve 𝄞", "local|", "", "__metadata__", "a\nb"]
)
def test_odd_names_of_clients_and_groups_survive(tmp_path, name):
    state = replace(
        make_state(),
        federation=FederationState(4, ServerState(3, tree(0), {name: tree(1), "other": tree(2)}), visits={name: 2}),
        locals=LocalState({name: tree(3), "other": tree(4)}),
    )
    save_checkpoint(tmp_path, state, keep=2)
    assert_same(load_checkpoint(tmp_path, "round-000004"), state)
    assert names(tmp_path) == ["round-000004.json", "round-000004.safetensors"]


# Which are kept


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_last_few_are_kept(tmp_path, keep):
    for round in range(1, 6):
        save_checkpoint(tmp_path, make_state(round), keep)
    kept = [f"round-{round:06d}" for round in range(6 - keep, 6)]
    assert names(tmp_path) == sorted(f"{stem}.{kind}" for stem in kept for kind in ("json", "safetensors"))


def test_the_best_is_kept_apart(tmp_path, table):
    save_checkpoint(tmp_path, make_state(1), 1, name="best")
    for round in (1, 2, 3):
        save_checkpoint(tmp_path, make_state(round), 1)
    assert names(tmp_path) == ["best.json", "best.safetensors", "round-000003.json", "round-000003.safetensors"]
    assert_same(load_checkpoint(tmp_path, "best"), make_state(1))
    found = latest_checkpoint(tmp_path, table)
    assert found is not None and found.round == 3  # the best one is not where a run goes on


def test_later_rounds_of_a_run_that_starts_again_go(tmp_path):
    """Or the checkpoints of the new start would be taken for the oldest, and removed as they are written."""
    for round in (5, 6):
        save_checkpoint(tmp_path, make_state(round), 2)
    save_checkpoint(tmp_path, make_state(1), 2)
    assert names(tmp_path) == ["round-000001.json", "round-000001.safetensors"]


def test_tensors_without_their_json_are_cleared_away(tmp_path):
    save_checkpoint(tmp_path, make_state(1), 2)
    (tmp_path / "round-000001.json").unlink()  # killed while old checkpoints were removed
    save_checkpoint(tmp_path, make_state(2), 2)
    assert names(tmp_path) == ["round-000002.json", "round-000002.safetensors"]


# Damage


def truncate(folder, stem):
    path = folder / f"{stem}.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def empty(folder, stem):
    (folder / f"{stem}.safetensors").write_bytes(b"")


def flip(folder, stem):
    path = folder / f"{stem}.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1  # one bit of one value
    path.write_bytes(bytes(content))


def no_tensors(folder, stem):
    (folder / f"{stem}.safetensors").unlink()


def half_json(folder, stem):
    path = folder / f"{stem}.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def not_text(folder, stem):
    (folder / f"{stem}.json").write_bytes(b"\xff\xfe\x00")


def other_json(folder, stem):
    (folder / f"{stem}.json").write_text("[1, 2]")


def changed_json(folder, stem):
    path = folder / f"{stem}.json"
    path.write_text(path.read_text().replace('"client-3": 1', '"client-3": 3'))


def others_tensors(folder, stem):
    (folder / f"{stem}.safetensors").write_bytes((folder / "round-000003.safetensors").read_bytes())


DAMAGE = [truncate, empty, flip, no_tensors, half_json, not_text, other_json, changed_json, others_tensors]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_the_one_before_is_used(tmp_path, table, damage):
    for round in (3, 4):
        save_checkpoint(tmp_path, make_state(round), 2)
    damage(tmp_path, "round-000004")
    with pytest.raises(CheckpointError, match="round-000004"):
        load_checkpoint(tmp_path, "round-000004")
    with pytest.warns(UserWarning, match=r"round-000004.*going back to round 3"):
        found = latest_checkpoint(tmp_path, table)
    assert found is not None
    assert_same(found, make_state(3))


def test_a_checkpoint_without_its_json_does_not_count(tmp_path, table):
    """Not damage: the JSON is written last, so a run killed before that has not taken the checkpoint."""
    for round in (3, 4):
        save_checkpoint(tmp_path, make_state(round), 2)
    (tmp_path / "round-000004.json").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = latest_checkpoint(tmp_path, table)
    assert found is not None and found.round == 3


def test_where_all_are_damaged_a_run_starts_again(tmp_path, table):
    for round in (3, 4):
        save_checkpoint(tmp_path, make_state(round), 2)
        flip(tmp_path, f"round-{round:06d}")
    with pytest.warns(UserWarning) as caught:
        assert latest_checkpoint(tmp_path, table) is None
    assert [str(w.message).rpartition("; ")[2] for w in caught] == [
        "going back to round 3",
        "going back to the beginning",
    ]


def test_a_checkpoint_whose_metrics_are_not_there_is_passed_over(tmp_path, table):
    for round in (3, 4):
        save_checkpoint(tmp_path, make_state(round), 2)
    table.write_bytes(METRICS[:400])
    found = latest_checkpoint(tmp_path, table)
    assert found is not None and found.round == 4
    table.write_bytes(METRICS[:399])
    with pytest.warns(UserWarning, match="400 bytes were sealed, but only 399 are there; going back to round 3"):
        found = latest_checkpoint(tmp_path, table)
    assert found is not None and found.round == 3


def test_a_checkpoint_whose_metrics_were_altered_is_passed_over_and_where_all_are_it_is_an_error(tmp_path, table):
    for round in (3, 4):
        save_checkpoint(tmp_path, make_state(round), 2)
    table.write_bytes(METRICS[:349] + b"7" + METRICS[350:])
    with pytest.warns(UserWarning, match="first 400 bytes are not as they were sealed; going back to round 3"):
        found = latest_checkpoint(tmp_path, table)
    assert found is not None and found.round == 3
    table.write_bytes(b"7" + METRICS[1:])
    with (
        pytest.warns(UserWarning, match="going back to round 3"),
        pytest.raises(SealError, match=r"first 300 bytes.*that of round 4 is sound. Put metrics.jsonl back"),
    ):
        latest_checkpoint(tmp_path, table)


def test_a_checkpoint_of_an_older_version_has_no_seal_and_is_read(tmp_path, table):
    save_checkpoint(tmp_path, make_state(), 2)
    path = tmp_path / "round-000004.json"
    record = json.loads(path.read_text())
    for key in ("seal", "metrics_sha256", "sha256"):
        del record[key]
    blob = path.with_suffix(".safetensors").read_bytes()
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode() + b"\n" + blob).hexdigest()
    path.write_text(json.dumps({**record, "sha256": digest}))
    found = latest_checkpoint(tmp_path, table)
    assert found is not None and found.round == 4
    assert found.seal == Seal("abc") and found.metrics_sha256 == ""


def test_another_format_is_refused(tmp_path):
    save_checkpoint(tmp_path, make_state(), 2)
    path = tmp_path / "round-000004.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 4}))
    with pytest.raises(CheckpointError, match="has format 4, this version reads 2 and 3"):
        load_checkpoint(tmp_path, "round-000004")


def test_no_checkpoints_is_a_fresh_start(tmp_path, table):
    assert latest_checkpoint(tmp_path, table) is None
    assert latest_checkpoint(tmp_path / "absent", table) is None


# Atomicity


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new, and longer")
    assert names(tmp_path) == ["file"] and path.read_bytes() == b"old"


def test_a_file_appears_whole_under_its_name(tmp_path, monkeypatch):
    seen = []
    real = os.replace

    def watch(source, target):
        seen.append((names(tmp_path), Path(source).read_bytes()))
        real(source, target)

    monkeypatch.setattr(os, "replace", watch)
    write_atomically(tmp_path / "file", b"content")
    ((before, beside),) = seen
    assert beside == b"content" and "file" not in before  # complete before it got its name
    assert names(tmp_path) == ["file"]


def test_what_a_killed_writer_left_is_cleared_away(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    left = tmp_path / "checkpoints" / ".round-000003.json.123.part"
    left.write_bytes(b"{")
    (tmp_path / "mine.part").write_bytes(b"")
    remove_partial(tmp_path)
    assert not left.exists() and (tmp_path / "mine.part").exists()
