"""Many clients, many rounds: what a round does depends on who is asked, not on how many there are or were.

The quick tests count rows, tests and bytes. The slow ones, real processes, are the sizes that docs/reliability.md
gives.
"""

import html
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedaction as fa
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.store import LocalState
from fedaction.federation.progress import Quiet
from fedaction.federation.seeds import numpy_generator
from fedaction.federation.state import ServerState
from fedaction.runs import segments
from fedaction.runs.checkpoint import CheckpointError, RunState, load_checkpoint, prune, save_checkpoint
from fedaction.runs.metrics import read_rows
from fedaction.server.state import FederationState


def crowd(count: int) -> list[Any]:
    """Clients with four samples to train on and two to test."""
    random = np.random.default_rng(0)
    y = np.tile(np.arange(6) % 2, count)
    x = random.normal(size=(len(y), 5)) + y[:, None]
    return fa.clients(x, y, by=np.repeat([f"c{i:05d}" for i in range(count)], 6), holdout=0.3)


def network(client: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, len(client.classes)))


KEYS: dict[str, Any] = {"lr": 0.05, "controls": [], "workers": 1, "device": "cpu", "buffers": "local"}


class Counts:
    """Per round: rows, clients tested, and bytes of every file written or added to."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.rounds = folder, list[dict[str, int]]()
        self._tested = 0
        answer = SequentialEngine._answer

        def count(engine: SequentialEngine, jobs: Any, split: Any = "test") -> Iterator[Any]:
            for answers in answer(engine, jobs, split):
                self._tested += 1
                yield answers

        monkeypatch.setattr(SequentialEngine, "_answer", count)

    def on_round(self, rows: Any) -> None:
        newest = {kind: max(self.folder.glob(f"checkpoints/{kind}"), default=None) for kind in NEWEST}
        sizes = {kind: path.stat().st_size if path else 0 for kind, path in newest.items()}
        self.rounds.append({"rows": len(rows), "tested": self._tested, **sizes})
        self._tested = 0


NEWEST = ("local-*.safetensors", "round-*.safetensors")


def test_what_a_round_does_and_writes_does_not_depend_on_how_many_clients_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MOST_WHOLE", 4)
    seen: dict[int, list[dict[str, int]]] = {}
    for count in (40, 160):
        counts = Counts(tmp_path / str(count), monkeypatch)
        fa.run(
            network,
            crowd(count),
            out=counts.folder,
            callbacks=[counts],
            progress=Quiet(),
            **{**KEYS, "rounds": 6, "clients_per_round": 5, "clients_per_test": 3},
        )
        seen[count] = counts.rounds
        result = json.loads((counts.folder / "result.json").read_text())
        assert len(result["clients"]) == count  # everybody has a result
    few, many = seen[40], seen[160]
    assert few[:5] == many[:5]
    assert [one["tested"] for one in few] == [3] * 5 + [40] and many[5]["tested"] == 160
    assert all(one["local-*.safetensors"] for one in few)


def test_validation_by_some_clients_chooses_the_round_and_the_result_is_everybodys(tmp_path):
    keys = {**KEYS, "rounds": 4, "clients_per_round": 5, "clients_per_test": 3, "validation": 0.3}
    run = fa.run(network, crowd(12), out=tmp_path / "run", progress=Quiet(), **keys)
    rows = read_rows(run.folder / "metrics.jsonl")
    for split, most in (("test", 12), ("validation", 3)):
        by_round = {r: {row.client for row in rows if (row.round, row.split) == (r, split)} for r in (1, 2, 3, 4)}
        assert [len(by_round[r]) for r in (1, 2, 3, 4)] == [3, 3, 3, most]
        assert by_round[1] == by_round[2] == by_round[3] <= by_round[4]
    result = json.loads((run.folder / "result.json").read_text())
    assert len(result["clients"]) == len(result["n"]) == 12
    chosen = {r.client: r.value for r in rows if (r.round, r.split, r.name) == (result["chosen"], "test", "accuracy")}
    assert chosen.items() <= result["clients"].items()


# Checkpoints that name the files of others


def store(number: int) -> dict[str, torch.Tensor]:
    return {"a": torch.full((4,), float(number)), "b.c": torch.tensor(number)}


def states(clients: int, asked: int, rounds: int) -> Iterator[RunState]:
    """A run's states, round after round, in which some clients change."""
    committed: dict[str, Any] = {}
    for round in range(1, rounds + 1):
        chosen = numpy_generator(0, "segments", round).permutation(clients)[:asked].tolist()
        committed |= {f"client|{number}": store(1000 * round + number) for number in chosen}
        changed = frozenset(f"client|{number}" for number in chosen)
        server = FederationState(round, ServerState(round, {"w": torch.tensor(round)}))
        yield RunState(server, LocalState(dict(committed), changed=changed))


def same(one: LocalState, other: LocalState) -> bool:
    def values(state: LocalState) -> dict[str, Any]:
        return {client: {n: t.tolist() for n, t in tree.items()} for client, tree in state.committed.items()}

    return values(one) == values(other)


def test_segments_hold_what_changed_and_little_more_and_every_checkpoint_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MOST_WHOLE", 20)
    clients, asked, kept = 60, 6, segments.Segments()
    for state in states(clients, asked, 90):
        state = save_checkpoint(tmp_path, replace(state, segments=kept), 2)
        kept = state.segments
        if state.round == 37:
            save_checkpoint(tmp_path, state, 2, "best")
            best = state
        loaded = load_checkpoint(tmp_path, f"round-{state.round:06d}")
        assert same(loaded.locals, state.locals) and loaded.segments == kept
        if kept.digests:
            assert kept.sizes[state.round] <= 3 * asked or len(kept.sizes) == 1  # the first has all so far
            assert sum(kept.sizes.values()) <= 2 * len(state.locals.committed) + asked
    assert same(load_checkpoint(tmp_path, "best").locals, best.locals)  # whose segments were kept
    held = {path.name for path in tmp_path.glob("local-*")}
    records = [
        json.loads((tmp_path / f"{stem}.json").read_text()) for stem in ("best", "round-000089", "round-000090")
    ]
    assert held == {f"local-{int(number):06d}.safetensors" for record in records for number in record["segments"]}


def test_a_run_that_goes_on_from_a_checkpoint_writes_the_same_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MOST_WHOLE", 20)

    def carry_out(folder: Path, stops: tuple[int, ...]) -> dict[str, bytes]:
        kept = segments.Segments()
        for state in states(60, 6, 40):
            kept = save_checkpoint(folder, replace(state, segments=kept), 2).segments
            if state.round in stops:  # killed: a segment without its checkpoint is left, and goes
                (folder / "local-000999.safetensors").write_bytes(b"half")
                prune(folder, state.round, 2)
                kept = load_checkpoint(folder, f"round-{state.round:06d}").segments
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    assert carry_out(tmp_path / "a", ()) == carry_out(tmp_path / "b", (5, 17, 18, 39))


def test_a_damaged_segment_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MOST_WHOLE", 2)
    kept = segments.Segments()
    for state in states(10, 3, 3):
        kept = save_checkpoint(tmp_path, replace(state, segments=kept), 2).segments
    path = tmp_path / f"local-{min(kept.digests):06d}.safetensors"
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    path.write_bytes(bytes(blob))
    with pytest.raises(
        CheckpointError, match=r"round-000003.*local-00000\d.safetensors, which it needs, is not as it"
    ):
        load_checkpoint(tmp_path, "round-000003")
    path.unlink()
    with pytest.raises(CheckpointError, match=r"round-000003.*cannot be read"):
        load_checkpoint(tmp_path, "round-000003")


def test_a_run_of_many_clients_that_was_killed_ends_as_one_that_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "MOST_WHOLE", 8)

    class Killed(Exception):
        pass

    class Kill:
        def __init__(self, after: int) -> None:
            self.after = after

        def on_round(self, rows: Any) -> None:
            if rows[0].round == self.after:
                raise Killed

    keys = {**KEYS, "rounds": 7, "clients_per_round": 4, "clients_per_test": 2, "progress": Quiet()}
    fa.run(network, crowd(30), out=tmp_path / "whole", **keys)
    for after in (2, 3, 5):
        with pytest.raises(Killed):
            fa.run(network, crowd(30), out=tmp_path / "killed", callbacks=[Kill(after)], **keys)
    fa.run(network, crowd(30), out=tmp_path / "killed", **keys)
    one, other = (
        {path.name: path.read_bytes() for path in sorted((tmp_path / name / "checkpoints").iterdir())}
        for name in ("whole", "killed")
    )
    assert one == other and any(name.startswith("local-") for name in one)
    for name in ("metrics.jsonl", "evidence.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()


# The real sizes

MEASURE = Path(__file__).with_name("measured.py")


def measure(tmp_path: Path, **keys: Any) -> list[dict[str, Any]]:
    """A line for each round of a process of its own, and a last one, which has what it said, too."""
    done = subprocess.run(
        [sys.executable, str(MEASURE), str(tmp_path / "run"), json.dumps(keys)],
        capture_output=True,
        text=True,
        timeout=3000,
        check=True,
    )
    *lines, end = [json.loads(line) for line in done.stdout.splitlines()]
    return [*lines, {**end, "said": done.stderr}]


@pytest.mark.slow
def test_ten_thousand_clients_fit_in_memory_and_a_round_costs_by_who_is_asked(tmp_path):
    *rounds, end = measure(tmp_path, clients=10_000, rounds=30, clients_per_round=100, clients_per_test=100)
    assert end["most_mb"] < 1500
    assert end["start_cpu"] < 30
    assert "10000 clients" in end["said"] and re.search(r"round 3 of 30, .*left", end["said"]), end["said"]
    later = rounds[5:-1]
    assert max(one["written"] for one in later) < 2 * min(one["written"] for one in later)
    assert {one["rows"] for one in later} == {rounds[5]["rows"]}
    assert (tmp_path / "run" / "report.html").stat().st_size < 5 << 20


@pytest.mark.slow
@pytest.mark.parametrize("clients", [400, 2000])
def test_the_time_of_a_round_is_linear_in_the_clients_that_are_asked(tmp_path, clients):
    """Both in one process, and of many rounds the middle one: the machine does other things, too."""
    few, many = 40, 160
    lines = measure(tmp_path, clients=clients, rounds=24, clients_per_round=[few, many], clients_per_test=10)
    first, second = lines[5:23], lines[30:48]
    assert [one["round"] for one in first] == [one["round"] for one in second] == [*range(6, 24)]
    ratio = median(one["cpu"] for one in second) / median(one["cpu"] for one in first)
    assert ratio < 2 * many / few, ratio  # it would be 16 if a round cost their square
    print(f"{few} and {many} of {clients} clients a round: {ratio:.2f} times the time")


@pytest.mark.slow
def test_a_thousand_rounds_leave_memory_descriptors_and_what_is_written_flat(tmp_path):
    *rounds, _ = measure(tmp_path, clients=300, rounds=1000, clients_per_round=10, clients_per_test=10)
    early, late = rounds[150:250], rounds[-101:-1]
    assert max(one["rss_mb"] for one in late) < max(one["rss_mb"] for one in early) + 20
    assert sum(one["checkpoint"] for one in late) < 1.5 * sum(one["checkpoint"] for one in early)
    assert {one["descriptors"] for one in late} == {one["descriptors"] for one in early}
    assert sum(one["written"] for one in late) < 1.2 * sum(one["written"] for one in early)
    assert all(one["metrics_grew"] for one in rounds)


TELL = """<script>
const faults = []; addEventListener("error", event => faults.push(event.message));
addEventListener("load", () => setTimeout(() => {
  const count = name => document.querySelectorAll(name).length;
  document.body.dataset.seen = JSON.stringify({
    nodes: count("*"), pictures: count("svg"), faults, height: document.documentElement.scrollHeight,
    drawn: [...document.querySelectorAll("svg")].filter(one => one.getBoundingClientRect().width > 50).length,
  });
}));
</script></body>"""


@pytest.mark.slow
def test_the_report_of_a_thousand_clients_is_a_small_page_that_a_browser_shows(tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium")
    measure(tmp_path, clients=1000, rounds=20, clients_per_round=50)
    text = (tmp_path / "run" / "report.html").read_text()
    assert len(text) < 5 << 20
    (tmp_path / "page.html").write_text(text.replace("</body>", TELL))
    flags = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking"]
    flags += ["disable-component-update", "disable-sync", f"user-data-dir={tmp_path / 'profile'}", "dump-dom"]
    begun = time.monotonic()
    shown = subprocess.run(
        [
            chromium,
            *(f"--{flag}" for flag in flags),
            "--virtual-time-budget=5000",
            f"file://{tmp_path / 'page.html'}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    told = html.unescape(shown.stdout.partition('data-seen="')[2].partition('"')[0])
    assert told, shown.stderr
    seen = json.loads(told)
    assert seen["faults"] == [] and seen["pictures"] > 5 and seen["nodes"] < 10_000
    assert seen["drawn"] >= 1 and seen["height"] > 1000, seen
    print(
        f"{len(text) >> 10} kB, shown by a browser, its start included, in {time.monotonic() - begun:.1f} s: {seen}"
    )
