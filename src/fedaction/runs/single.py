"""One run: one method, one seed, one directory. It assembles, writes down what rounds give, and resumes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from fedaction.data.client import ClientData
from fedaction.engines.base import SimulatedEngine
from fedaction.engines.observed import ObservedEngine, Observer
from fedaction.evaluation.divergence import Distances
from fedaction.evaluation.site import EVIDENCE, Evaluation, Kind, Neighbours, Question
from fedaction.federation.files import hold_folder, make_folder, write_sealed_json
from fedaction.federation.profile import NOTHING, Profile
from fedaction.federation.progress import Progress
from fedaction.federation.seeds import numpy_generator
from fedaction.methods.start import initial_state
from fedaction.runs.assembly import Assembled, Assembly, make_federation, make_rounds
from fedaction.runs.callback import Callback, tell_end, tell_start
from fedaction.runs.checkpoint import (
    CheckpointError,
    RunState,
    latest_checkpoint,
    load_checkpoint,
    prune,
    save_checkpoint,
)
from fedaction.runs.deploy import INDEX, write_model, write_models
from fedaction.runs.environment import environment, has_environment
from fedaction.runs.metrics import MetricsFile, metric_name, write_seconds
from fedaction.runs.recipe import Recipe
from fedaction.runs.result import RESULT_FILE
from fedaction.runs.seal import OF, Seal, SealError
from fedaction.runs.settle import settle
from fedaction.runs.snapshots import Snapshots
from fedaction.runs.standing import ENVIRONMENT_FILE, EVIDENCE_FILE, UNSEALED, check_begun, read_standing
from fedaction.runs.stop import is_last, is_over, is_tested
from fedaction.server.state import FederationState, Row

OF_THE_END = (RESULT_FILE, EVIDENCE_FILE, INDEX, "report.html")
"""What a run that goes on has no more: it was of another last round."""


class SingleRun:
    """A run being carried out. `execute` starts it, or resumes it from its last checkpoint."""

    def __init__(
        self,
        recipe: Recipe,
        clients: Mapping[str, ClientData],
        folder: Path,
        progress: Progress,
        callbacks: Sequence[Callback] = (),
        data: Mapping[str, str] | None = None,
        profile: Profile = NOTHING,
    ) -> None:
        """`recipe` names one method and one seed; `clients` are already prepared.

        `data` says what they were made of (`Source.fingerprint`); None: that is not known, nor compared.
        """
        self._prepare(recipe, Assembly.of(recipe, clients, profile), folder, progress, callbacks, data or {})
        self._profile = profile

    def _prepare(
        self,
        recipe: Recipe,
        assembly: Assembled,
        folder: Path,
        progress: Progress,
        callbacks: Sequence[Callback],
        data: Mapping[str, str],
        refused: Callable[[str, str], object] = lambda _client, _text: None,
    ) -> None:
        self.recipe, self.folder, self.progress, self.callbacks = recipe, folder, progress, callbacks
        self.assembly: Assembled = assembly
        self._seal, self._profile = Seal.of(recipe, data), NOTHING
        seed = self.assembly.seed
        self.label = recipe.run.method if seed == 0 else f"{recipe.run.method}, seed {seed}"
        federation = make_federation(recipe, self.assembly.method, progress.warn)
        self.federation = replace(federation, refused=refused)
        self.rounds = make_rounds(recipe, self.federation, engine=assembly.engine_name)
        self._snapshots = Snapshots(folder / "snapshots", recipe.run.rounds)

    def execute(self) -> None:
        """Trains to the last round; metrics, checkpoints and, last of all, evidence are in the folder."""
        make_folder(self.folder)
        with hold_folder(self.folder):
            self._carry_out()

    def _carry_out(self) -> None:
        state, metrics = self._open()
        self._settle(state)
        self._write_environment(state)
        if not self._over(state):  # what was written after an earlier end
            for name in OF_THE_END:
                (self.folder / name).unlink(missing_ok=True)
        tell_start(self.callbacks, self.recipe.run.method, self.assembly.seed, self.folder)
        metric = metric_name([self.recipe.run.method])
        self.progress.start(self.label, state.round, self.recipe.run.rounds, unit="round", metric=metric)
        engine = self.engine(state)
        try:
            while not self._over(state):
                state = self._advance(state, engine, metrics)
            self._finish(state, engine)
        finally:
            metrics.close()
            engine.close()
            tell_end(self.callbacks)

    def _settle(self, state: RunState) -> None:
        """Chooses how the engine works, where the recipe leaves that open; a run that goes on keeps what it had."""
        if not isinstance(self.assembly, Assembly):
            return
        with self._profile.section("choosing an engine"):
            settled = settle(self.assembly, self.federation, state, self.folder, self.progress)
        if settled is not self.assembly:
            self.assembly = settled
            self.rounds = make_rounds(self.recipe, self.federation, engine=settled.engine_name)

    def _write_environment(self, state: RunState) -> None:
        """What trains; where all is trained and it was lost, what stands in for it."""
        path, machine = self.folder / ENVIRONMENT_FILE, environment(self.assembly.device)
        machine["engine"] = self.assembly.engine_name
        if isinstance(self.assembly, Assembly):
            machine["way"] = self.assembly.way.record()
        if self._over(state):
            if has_environment(path, state.seal.word):
                return
            machine["note"] = "made again after training, perhaps on another machine"
        write_sealed_json(path, {**machine, OF: state.seal.word})

    def engine(self, state: RunState) -> SimulatedEngine:
        """The engine, with what sites keep as a state has it."""
        observers: list[Observer] = [self._snapshots]
        if self.recipe.run.update_distances:
            observers.append(Distances(self.assembly.method))
        engine = ObservedEngine(self.assembly.engine(), observers)
        engine.store.load(state.locals, self.assembly.device)
        return engine

    def _open(self) -> tuple[RunState, MetricsFile]:
        """The newest whole checkpoint whose metrics are there, or a fresh start."""
        table, checkpoints = self.folder / "metrics.jsonl", self.folder / "checkpoints"
        make_folder(checkpoints)
        check_begun(self.recipe, self.folder, self._seal.data)
        state = latest_checkpoint(checkpoints, table)
        if state is None:
            (self.folder / "clock.jsonl").unlink(missing_ok=True)
            if read_standing(self.folder) is not None:  # by its result
                self.progress.warn(f"{self.folder} has a result, but no checkpoint: it is trained from the beginning")
            state = RunState(FederationState(0, initial_state(self.assembly.method, self.assembly.seed)))
        else:
            self._check(state)
        prune(checkpoints, state.round, self.recipe.run.keep_checkpoints)
        seal = self._seal if self._seal.data else replace(self._seal, data=state.seal.data)
        if state.seal.seed is not None and self._over(state):
            seal = state.seal  # which no other checkpoint follows
        state = replace(state, federation=state.federation.to(self.assembly.device), seal=seal)
        return state, MetricsFile(table, state.metrics_length)

    def _check(self, state: RunState) -> None:
        """Refuses a checkpoint of another run; says in one line what an older version has not sealed."""
        state.seal.check(self.recipe, self.folder, self._seal.data)
        if state.seal.configuration not in (self._seal.configuration, self.recipe.older_hash):
            raise SealError(
                f"{self.folder} was begun with configuration {state.seal.configuration}, but its recipe now gives "
                f"{self._seal.configuration}: defaults have changed; use the version of fedaction that began it"
            )
        if state.seal.seed is None:
            self.progress.warn(UNSEALED.format(self.folder))

    def _advance(self, state: RunState, engine: SimulatedEngine, metrics: MetricsFile) -> RunState:
        """One round, and what is written after it."""
        run, round, start = self.recipe.run, state.round + 1, time.perf_counter()
        section = self._profile.section
        self._profile.begin(str(self.folder), round)
        with section("guards and averaging"):  # what engines do is noted by them
            federation, rows = self.rounds.advance(state.federation, engine, round)
        self._snapshots.write(round)
        trained, accuracy = time.perf_counter(), None
        best = False
        if is_tested(run, round, federation.time):
            with section("test"):
                tests = self._test(federation, engine)
            rows += tests
            last = max((row.round for row in tests), default=0)
            known = [r.value for r in tests if (r.round, r.name) == (last, "accuracy") and r.value is not None]
            accuracy = fmean(known) if known else None
            if run.validation:
                with section("validation"):
                    chosen, validated = self._validate(federation, engine)
                rows += validated
                best = chosen > state.best[0]
                state = replace(state, best=(chosen, round) if best else state.best)
        with section("metrics"):
            state = replace(state, federation=federation, metrics_length=metrics.append(rows))
            state = replace(state, metrics_sha256=metrics.sha256)
        write_seconds(self.folder / "clock.jsonl", round, trained - start, time.perf_counter() - start)
        if run.models_every and round % run.models_every == 0:
            path = self.folder / "models" / f"round-{round:06d}.safetensors"
            write_model(path, self.recipe, self.assembly.described, state.server)
        due = round % run.checkpoint_every == 0 or self._over(state)
        with section("checkpoint"):
            if best or due:
                state = replace(state, locals=engine.store.save())
            if best:
                state = save_checkpoint(self.folder / "checkpoints", state, run.keep_checkpoints, "best")
            if due:
                state = save_checkpoint(self.folder / "checkpoints", state, run.keep_checkpoints)
        self.progress.advance(self.label, round, accuracy)
        for callback in self.callbacks:
            callback.on_round(rows)
        return state

    def _test(self, state: FederationState, engine: SimulatedEngine) -> list[Row]:
        """The rows of what clients report of their tests, and the unseen one of its own."""
        run = self.recipe.run
        tested = self.assembly.tested
        if not is_last(run, state.round, state.time):
            tested = self._draw(tested)
        reports = self.federation.evaluate(state, engine, tested)
        return self._rows_of(state.round, reports + self._test_unseen(state, engine))

    def _test_unseen(
        self, state: FederationState, engine: SimulatedEngine, evidence: tuple[Kind, ...] = ()
    ) -> list[Evaluation]:
        """What the unseen client reports, if there is one."""
        run = self.recipe.run
        if not run.unseen:
            return []
        how = Neighbours(run.knn_k, run.knn_distance, run.knn_temperature or None)
        return self.federation.evaluate(state, engine, [run.unseen], Question(evidence, neighbours=how))

    def _draw(self, clients: list[str]) -> list[str]:
        """Those of some clients who are tested between the first round and the last: in every round the same."""
        count = self.recipe.run.clients_per_test
        if not 0 < count < len(clients):
            return clients
        order: list[int] = numpy_generator(self.assembly.seed, "tested").permutation(len(clients)).tolist()
        return [clients[place] for place in sorted(order[:count])]

    def _rows_of(self, round: int, reports: Sequence[Evaluation]) -> list[Row]:
        """The rows of tests of a round's model."""
        return [
            Row(round, report.client, self.federation.group(report.client), "test", name, value)
            for report in reports
            for name, value in report.metrics.items()
        ]

    def _validate(self, state: FederationState, engine: SimulatedEngine) -> tuple[float, list[Row]]:
        """The mean accuracy on what clients keep out of training, and its rows."""
        reports = self.federation.evaluate(
            state, engine, self._draw(self.assembly.validated), Question(split="validation")
        )
        rows = [
            Row(state.round, report.client, self.federation.group(report.client), "validation", name, value)
            for report in reports
            for name, value in report.metrics.items()
            if name in ("accuracy", "loss")
        ]
        accuracies = [report.metrics["accuracy"] for report in reports if "accuracy" in report.metrics]
        return fmean(accuracies) if accuracies else -1.0, rows

    def _over(self, state: RunState) -> bool:
        return is_over(self.recipe.run, state.round, state.best, state.federation.time)

    def _chosen(self, state: RunState, engine: SimulatedEngine) -> RunState:
        """The state that stands for the run: with validation that of the best round, else the last."""
        if not self.recipe.run.validation or state.best[1] == state.round:
            return state
        best = load_checkpoint(self.folder / "checkpoints", "best")
        if best.round != state.best[1]:
            raise CheckpointError(
                f"{self.folder / 'checkpoints' / 'best.json'} is of round {best.round}, but round {state.best[1]} "
                "was the best; put it back from a copy, or run the recipe into another directory"
            )
        self._check(best)
        engine.store.load(best.locals, self.assembly.device)
        return replace(best, federation=best.federation.to(self.assembly.device))

    def _finish(self, state: RunState, engine: SimulatedEngine) -> None:
        """The models, and what the report shows besides numbers, by kind and client."""
        state = replace(self._chosen(state, engine), seal=state.seal)
        self._profile.begin(str(self.folder), 0)
        with self._profile.section("models"):
            self._write_models(state, engine)
        question = Question(tuple(EVIDENCE), self.recipe.run.report_samples)
        with self._profile.section("evidence"):
            reports = self.federation.evaluate(state.federation, engine, self.assembly.tested, question)
            reports += self._test_unseen(state.federation, engine, ("confusion",))
        evidence: dict[str, dict[str, Any]] = {
            kind: {report.client: report.evidence[kind] for report in reports if kind in report.evidence}
            for kind in EVIDENCE
        }
        about = {"round": state.round, OF: state.seal.word}
        write_sealed_json(self.folder / EVIDENCE_FILE, {**evidence, **about})

    def _write_models(self, state: RunState, engine: SimulatedEngine) -> None:
        """The model files; a run of real sites has other ones."""
        assert isinstance(self.assembly, Assembly)
        about = {"name": self.recipe.run.name, "round": state.round}
        warn, word = self.progress.warn, state.seal.word
        write_models(self.folder, self.assembly, state.server, engine.store, warn, about, word)
