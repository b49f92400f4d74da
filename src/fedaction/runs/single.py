"""One run: one method, one seed, one directory. The loop over rounds is here."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from fedaction.data.augment import Augment
from fedaction.data.client import ClientData
from fedaction.engines.base import Engine, Evaluation, Training, check_precision, choose_device, set_precision
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.evaluation.divergence import MeasuredEngine
from fedaction.evaluation.knn import knn_accuracy
from fedaction.evaluation.neighbours import neighbour_evaluations
from fedaction.evaluation.unseen import unseen_features
from fedaction.federation.clock import Clock, spread_devices
from fedaction.federation.files import write_atomically, write_json
from fedaction.federation.processes import cores
from fedaction.federation.progress import Progress
from fedaction.federation.scope import Scope, matches
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import Tree, tensors_of, tree_bytes
from fedaction.guard.validate import Refusal, validated
from fedaction.methods import METHODS
from fedaction.methods.central import EVERYONE
from fedaction.methods.start import condensed, fresh, initial_state
from fedaction.runs.asynchronous import Asynchronous, clock_rows
from fedaction.runs.checkpoint import RunState, latest_checkpoint, moved, prune, save_checkpoint
from fedaction.runs.deploy import write_model
from fedaction.runs.environment import environment
from fedaction.runs.evidence import confusion_of, samples_of, topology_of
from fedaction.runs.metrics import MetricsFile, Row
from fedaction.runs.recipe import Recipe
from fedaction.server.devices import deal_devices, fleet_of
from fedaction.server.events import Events
from fedaction.server.rounds import RoundPlan, Rounds


def snapshot_rounds(rounds: int) -> set[int]:
    """When snapshots are taken: the first round, the quarters, the last."""
    return {1, *(-(-rounds * quarter // 4) for quarter in (1, 2, 3, 4))}


class SingleRun:
    """A run being carried out. `execute` starts it, or goes on where its last checkpoint left it."""

    def __init__(self, recipe: Recipe, clients: Mapping[str, ClientData], folder: Path, progress: Progress) -> None:
        """`recipe` names one method and one seed; `clients` are already prepared."""
        run = recipe.run
        kind = METHODS[run.method]
        self.recipe, self.clients, self.folder, self.progress = recipe, kind.arrange(clients), folder, progress
        self.seed = run.seeds[0]
        self.label = run.method if self.seed == 0 else f"{run.method}, seed {self.seed}"
        self.device = choose_device(run.device)
        check_precision(run.precision, self.device)
        infos = [self.clients[name].info for name in sorted(self.clients)]
        self.method = kind(infos, recipe.methods[run.method])
        self._before = {info.id: info for info in infos}
        ready = condensed(self.method, self.clients, self.seed, self.device)
        if any(ready[info.id].info != info for info in infos):
            self.clients = ready
            infos = [ready[info.id].info for info in infos]
            self.method = kind(infos, recipe.methods[run.method])
        self.members = [info for info in infos if info.samples and info.id != run.unseen]  # those who train
        self.tested = [i.id for i in infos if len(self.clients[i.id].test) and i.id != run.unseen]
        skeletons = all(info.layout is not None for info in infos)
        augment = Augment(run.augment_shear, run.augment_crop) if run.augment and skeletons else None
        self.training = Training(
            seed=self.seed,
            batch_size=run.batch_size,
            local_epochs=run.local_epochs,
            lr=run.lr,
            lr_decay=run.lr_decay,
            momentum=run.momentum,
            nesterov=run.nesterov,
            weight_decay=run.weight_decay,
            clip_norm=run.clip_norm,
            augment=augment,
        )
        clock = self._clock()
        self.schedule = Rounds(
            seed=self.seed,
            per_round=run.clients_per_round or None,
            quorum=run.quorum,
            drop_out=run.drop_out,
            deadline=run.deadline or None,
            clock=clock if run.devices or run.deadline else None,
        )
        self.timed = bool(run.devices) or self.method.asynchronous
        self.events = Asynchronous(
            self.method,
            self.members,
            Events(self.seed, clock, run.clients_per_round or None),
            updates=run.updates_per_round or min(run.clients_per_round or len(self.members), len(self.members)),
            oldest=run.oldest_update or None,
            ahead=(run.clients_per_step or 64) if run.engine == "vectorised" else run.workers or cores(),
            local=self._local,
            frozen=lambda client: tree_bytes(self._first(client, Scope.FROZEN)),
        )
        self._initial: dict[tuple[object, ...], dict[str, Tensor]] = {}

    def _clock(self) -> Clock:
        """How long every client's jobs take."""
        run = self.recipe.run
        samples = {member.id: member.samples for member in self.members}
        if run.devices:
            devices = deal_devices(fleet_of(run.devices), [*samples], [name for name in samples if name == EVERYONE])
        else:
            devices = spread_devices(self.seed, samples, run.seconds_per_sample, run.speed_spread)
        traffic = {member.id: self.method.plan(member).traffic for member in self.members}
        return Clock(self.seed, devices, samples, run.local_epochs, traffic)

    def execute(self) -> None:
        """Trains to the last round; metrics, checkpoints and, last of all, evidence are in the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / "environment.json", environment(self.device))
        state, metrics = self._open()
        self.progress.started(self.label, state.round, self.recipe.run.rounds)
        engine = self._engine()
        if self.recipe.run.update_distances:
            engine = MeasuredEngine(engine, self.method)
        try:
            while state.round < self.recipe.run.rounds:
                state = self._advance(state, engine, metrics)
            self._finish(state, engine)
        finally:
            metrics.close()
            engine.close()

    def _open(self) -> tuple[RunState, MetricsFile]:
        """The newest whole checkpoint whose metrics are there, or a fresh start."""
        configuration = self.recipe.begun_as
        table = self.folder / "metrics.jsonl"
        checkpoints = self.folder / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        state = latest_checkpoint(checkpoints, table.stat().st_size if table.exists() else 0)
        if state is None:
            (self.folder / "clock.jsonl").unlink(missing_ok=True)
            state = RunState(0, initial_state(self.method, self.seed), configuration=configuration)
        if state.configuration != configuration:
            raise ValueError(
                f"{self.folder} was begun with configuration {state.configuration}, but its recipe now says "
                f"{configuration}; put recipe.toml back as it was, or run the new recipe into another directory"
            )
        prune(checkpoints, state.round, self.recipe.run.keep_checkpoints)
        return moved(state, self.device), MetricsFile(table, state.metrics_length)

    def _engine(self) -> Engine:
        run = self.recipe.run
        set_precision(run.tf32, fastest=run.precision == "bf16")
        if run.engine == "vectorised":
            return VectorisedEngine(
                self.method,
                self.clients,
                self.training,
                self.device,
                run.clients_per_step,
                run.compile_step,
                run.precision,
            )
        return SequentialEngine(
            self.method,
            self.clients,
            self.training,
            self.device,
            run.workers or cores(),
            precision=run.precision,
            channels_last=run.channels_last,
            compiled=run.compile_step,
            recorded=run.record_step,
        )

    # One round

    def _advance(self, state: RunState, engine: Engine, metrics: MetricsFile) -> RunState:
        run, round = self.recipe.run, state.round + 1
        clock = time.perf_counter()
        if self.method.asynchronous:
            state, rows, refusals = self.events.advance(state, engine, round)
            for reason in refusals:
                self.progress.warned(f"round {round}: {reason}; the update is not used")
        else:
            present = [member for member in self.members if member.id not in run.late or round >= run.late_round]
            state, rows = self._train(state, engine, self.schedule.plan(round, present, state.time), round)
        if self.timed:
            rows += clock_rows(round, state.time, state.busy, self._group)
        trained = time.perf_counter()
        accuracy = None
        if round % run.evaluate_every == 0 or round == run.rounds:
            found = self._evaluate(state, engine)
            rows += [Row(round, e.client, self._group(e.client), "test", "accuracy", e.accuracy) for e in found]
            rows += [Row(round, e.client, self._group(e.client), "test", "loss", e.loss) for e in found]
            rows += [
                Row(round, e.client, self._group(e.client), "test", "recordings", e.recordings)
                for e in found
                if e.recordings is not None
            ]
            if run.unseen:
                rows.append(Row(round, run.unseen, self._group(run.unseen), "test", "knn", self._unseen(state)))
            accuracy = sum(e.accuracy for e in found) / len(found)
        best = accuracy is not None and accuracy > state.best[0]
        if best and accuracy is not None:
            state = replace(state, best=(accuracy, round))
        state = replace(state, metrics_length=metrics.append(rows))
        seconds = {"round": round, "train": trained - clock, "total": time.perf_counter() - clock}
        with (self.folder / "clock.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(seconds) + "\n")
        if run.models_every and round % run.models_every == 0:
            write_model(
                self.folder / "models" / f"round-{round:06d}.safetensors", self.recipe, self._before, state.server
            )
        if best:
            save_checkpoint(self.folder / "checkpoints", state, run.keep_checkpoints, "best")
        if round % run.checkpoint_every == 0 or round == run.rounds:
            save_checkpoint(self.folder / "checkpoints", state, run.keep_checkpoints)
        self.progress.advanced(self.label, round, accuracy)
        return state

    def _train(self, state: RunState, engine: Engine, plan: RoundPlan, round: int) -> tuple[RunState, list[Row]]:
        """Trains and combines; if too few sound updates came, the round leaves everything as it was."""
        jobs = {name: self._job(state, name, round, self.method.payload) for name in plan.working}
        refusals: list[Refusal] = []
        accepted: dict[str, Update] = {}
        snapshot: dict[str, Tensor] = {}
        watched = self.method.snapshots and round in snapshot_rounds(self.recipe.run.rounds)
        up = 0

        def counted(updates: Iterable[Update]) -> Iterator[Update]:
            nonlocal up
            for update in updates:
                up += tree_bytes(update.tree)  # it has travelled, whether or not it is then refused
                yield update

        def kept(updates: Iterable[Update]) -> Iterator[Update]:
            for update in updates:
                # Only what stays with the client is held on to; the shared tensors are folded in and let go.
                accepted[update.client] = replace(update, tree={})
                if watched:
                    snapshot.update(self._watched(update))
                yield update

        sound = validated(counted(engine.train(jobs.values())), jobs.__getitem__, refusals.append)
        server = self.method.combine(state.server, kept(sound)) if jobs else state.server
        if snapshot:
            write_atomically(self.folder / "snapshots" / f"round-{round:06d}.safetensors", save(snapshot))
        enough = self.schedule.enough(plan, len(accepted))
        visits = dict(state.visits)
        down = 0
        for name in plan.chosen:
            down += self._download(state, name, jobs.get(name))
            visits[name] = visits.get(name, 0) + 1
        if enough:
            locals_ = dict(state.locals) | {name: update.local for name, update in accepted.items() if update.local}
            state = replace(state, server=server, locals=locals_)
        else:
            self.progress.warned(
                f"round {round}: {len(accepted)} sound updates from {len(plan.chosen)} clients asked are fewer than "
                f"the quorum ({self.schedule.quorum:.0%}); the model stays as it was"
            )
        rows = [
            Row(round, name, self._group(name), "train", metric, value)
            for name, update in accepted.items()
            for metric, value in update.metrics.items()
        ]
        rows += [
            Row(round, refusal.client, self._group(refusal.client), "server", "refused", 1) for refusal in refusals
        ]
        for refusal in refusals:
            self.progress.warned(f"round {round}: {refusal.reason}; the update is not used")
        counts = {
            "participants": len(accepted),
            "refused": len(refusals),
            "dropped": len(plan.dropped),
            "late": len(plan.late),
            "combined": int(enough),
            "bytes_down": down,
            "bytes_up": up,
        }
        rows += [Row(round, "", "", "server", name, value) for name, value in counts.items()]
        busy = dict(state.busy)
        for name, span in plan.spans.items():
            busy[name] = busy.get(name, 0.0) + span.busy
        return replace(state, round=round, visits=visits, time=plan.end, busy=busy), rows

    def _watched(self, update: Update) -> dict[str, Tensor]:
        """The tensors of an update that snapshots keep, as "client|name"."""
        held = {**update.tree, **update.local}
        names = [n for n in held if any(matches(pattern, n) for pattern in self.method.snapshots)]
        return {f"{update.client}|{n}": held[n].cpu().contiguous() for n in names}

    def _evaluate(self, state: RunState, engine: Engine) -> list[Evaluation]:
        """Every client's test set under the server's model and the client's own tensors."""
        if self.method.task is not None:
            clients = [self.clients[client] for client in self.tested]
            clip = self.method.task.frames, self.method.task.size
            return list(neighbour_evaluations(self.method, state.server, clients, clip, self.seed, self.device))
        jobs = [self._job(state, client, state.round, self.method.served) for client in self.tested]
        return list(engine.evaluate(jobs))

    def _unseen(self, state: RunState) -> float:
        """The unseen client's k-NN accuracy."""
        run, client = self.recipe.run, self.clients[self.recipe.run.unseen]
        served = self.method.served(state.server, client.info)
        train, test = unseen_features(self.method, served, client, self.seed, self.device)
        k = min(run.knn_k, len(train))
        votes = knn_accuracy(
            train, client.train.labels, test, client.test.labels, k, run.knn_distance, run.knn_temperature or None
        )
        return votes

    def _job(self, state: RunState, client: str, round: int, payload: Callable[..., Tree]) -> Job:
        info = self.clients[client].info
        shared = payload(state.server, info)
        return Job(client, info.group, state.server.version, round, shared, self._local(state.locals, client))

    def _local(self, locals_: Mapping[str, Tree], client: str) -> Tree:
        """A client's LOCAL tensors: among those of the clients that have trained, or as they start."""
        local = locals_.get(client)
        return self._first(client, Scope.LOCAL) if local is None else local

    def _first(self, client: str, scope: Scope) -> dict[str, Tensor]:
        """A client's tensors of a scope before it has ever trained; one copy per architecture."""
        info = self.clients[client].info
        if info.architecture not in self._initial:
            tensors = tensors_of(fresh(self.method, info, self.seed).to(self.device))
            self._initial[info.architecture] = {name: tensor.detach() for name, tensor in tensors.items()}
        scopes = self.method.scopes_of(client)
        return {n: t for n, t in self._initial[info.architecture].items() if scopes[n] is scope}

    def _download(self, state: RunState, client: str, job: Job | None) -> int:
        """Bytes sent to a client: the payload, and FROZEN tensors the first time."""
        payload = job.payload if job else self.method.payload(state.server, self.clients[client].info)
        first = 0 if state.visits.get(client) else tree_bytes(self._first(client, Scope.FROZEN))
        return tree_bytes(payload) + first

    def _group(self, client: str) -> str:
        return self.clients[client].info.group

    # The end

    def _finish(self, state: RunState, engine: Engine) -> None:
        write_model(self.folder / "model.safetensors", self.recipe, self._before, state.server)
        found = self._evaluate(state, engine)
        evidence: dict[str, dict[str, Any]] = {"confusion": {}, "topology": {}, "samples": {}}
        for item in found:
            client = self.clients[item.client]
            evidence["confusion"][item.client] = confusion_of(client, item)
            topology = topology_of(client, self.tensors(state, item.client))
            if topology is not None:
                evidence["topology"][item.client] = topology
            samples = samples_of(client, item, self.recipe.run.report_samples)
            if samples:
                evidence["samples"][item.client] = samples
        write_json(self.folder / "evidence.json", evidence)

    def tensors(self, state: RunState, client: str) -> Tree:
        """All of a client's tensors: the server's, its own and the frozen ones."""
        job = self._job(state, client, state.round, self.method.served)
        return {**job.payload, **job.local, **self._first(client, Scope.FROZEN)}
