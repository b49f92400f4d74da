"""Reading the values of FedVSSL's items from runs and evaluations that are done."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import accumulate, chain, product

from fedaction.evaluation.divergence import SENT, consistency, deviations
from fedaction.papers.cells import Draft
from fedaction.papers.fedvssl.items import CENTRAL, DOWNSTREAM, LEVELS
from fedaction.papers.fedvssl.models import assess, assessments, row_configuration, runs_of
from fedaction.papers.fedvssl.setting import FedvsslSetting
from fedaction.papers.measure import by_round, points_of
from fedaction.papers.outcome import Value
from fedaction.papers.work import RowRun

PARTS = ("backbone", "head")
"""Figure 5: the two modules of a network."""
_Draft = Draft[FedvsslSetting]


def read_downstream(draft: _Draft) -> Iterator[Value]:
    """Tables 1 to 4: every score in per cent."""
    for row in draft.item.rows:
        works, configuration = list(assess(draft, row)), row_configuration(draft, row)
        for column, paper in zip(draft.item.columns, row.paper, strict=True):
            own = [work for work in works if work.dataset == DOWNSTREAM[column.client]]
            scores = tuple(100 * work.scores[column.metric] for work in own)
            yield Value(row.label, column.label, scores, paper, "", configuration)


def read_perturbation(draft: _Draft) -> Iterator[Value]:
    """Figure 3: R@1 by kind of noise, dataset and model at every level; the same as points of curves."""
    works = assessments(draft)
    kinds = dict.fromkeys(kind for work in works for kind, _ in work.noisy)
    for kind, dataset, row in product(kinds, draft.bench.setting.downstream, draft.item.rows):
        own = [work for work in works if (work.row, work.dataset) == (draft.item.run_label(row), dataset)]
        label, configuration = (kind, dataset, *row.label), row_configuration(draft, row)
        for column, level in zip(draft.item.columns, LEVELS, strict=True):
            values = tuple(100 * work.noisy[kind, level] for work in own)
            yield Value(label, column.label, values, None, "", configuration)
            yield Value(label, "R@1", values, None, "", configuration, {"k": level})


def read_traffic(draft: _Draft) -> Iterator[Value]:
    """Figure 4: R@1 at the end, and rounds and traffic to the centralised model's; R@1 over rounds."""
    seeds, item = draft.bench.seeds, draft.item
    curves: dict[tuple[str, ...], dict[str, list[dict[int, float]]]] = {}  # row, dataset, seed, round: R@1 in %
    for row in item.rows:
        rounds = {run.seed: run.recipe.run.rounds for run in runs_of(draft, row)}
        for work in assess(draft, row):
            own = curves.setdefault(row.label, {}).setdefault(work.dataset, [{} for _ in seeds])
            own[seeds.index(work.seed)][work.round or rounds[work.seed]] = 100 * work.scores["R@1"]
    central = next((row.label for row in item.rows if row.method == CENTRAL), ())
    for row in item.rows:
        spent, configuration = [megabytes(run) for run in runs_of(draft, row)], row_configuration(draft, row)
        for column, paper in zip(item.columns, row.paper, strict=True):
            dataset = DOWNSTREAM[column.client]
            own, target = (curves.get(label, {}).get(dataset, []) for label in (row.label, central))
            values = [seed[max(seed)] for seed in own]
            if column.metric == "R@1":
                yield from points_of(own, row.label, column.label, configuration)
            else:
                ends = [seed[max(seed)] for seed in target if row.label != central]
                reached = [first_at(seed, end) for seed, end in zip(own, ends, strict=False)]
                pairs = [(round, sums) for round, sums in zip(reached, spent, strict=False) if round is not None]
                values = [sums[round] if column.metric == "megabytes" else float(round) for round, sums in pairs]
            yield Value(row.label, column.label, tuple(values), paper, "", configuration)


def first_at(curve: dict[int, float], target: float) -> int | None:
    """The first round in which a curve is at a target or above; None where it never is."""
    return next((round for round in sorted(curve) if curve[round] >= target), None)


def megabytes(run: RowRun) -> dict[int, float]:
    """What a run's clients have sent and received up to each round, in 10^6 bytes."""
    sent = by_round(run.folder, lambda row: row.name in ("bytes_up", "bytes_down"))
    rounds = range(1, run.recipe.run.rounds + 1)
    return dict(zip(rounds, accumulate(sum(sent.get(round, [])) / 1e6 for round in rounds), strict=True))


def read_distances(draft: _Draft) -> Iterator[Value]:
    """Figure 5: how unequal the clients of a round are in how far they go, by module; over rounds, and in numbers."""
    runs = runs_of(draft, draft.item.rows[0])
    configuration = runs[0].configuration if runs else ""
    for part in PARTS:
        distances = [by_round(run.folder, lambda row, part=part: row.name == f"{SENT}{part}") for run in runs]
        curves = [deviations(rounds) for rounds in distances]
        numbers = [consistency(curve) for curve in curves if curve]
        columns = (
            [one.mean for one in numbers],
            [one.variation for one in numbers],
            [100 * one.variation / one.mean for one in numbers if one.mean],
            [statistics.fmean(chain.from_iterable(rounds.values())) for rounds in distances if rounds],
        )
        for column, values in zip(draft.item.columns, columns, strict=True):
            yield Value((part,), column.label, tuple(values), None, "", configuration)
        yield from points_of(curves, (part,), "deviation", configuration)


def note_datasets(draft: _Draft) -> list[str]:
    """Notes on what networks were evaluated on."""
    notes: dict[str, str] = {}
    for work in assessments(draft):
        if work.dataset not in notes:
            (gallery, queries), classes = work.data["recordings"], len(work.data["classes"])
            notes[work.dataset] = (
                f"{work.dataset}: {queries} test recordings (queries), {gallery} for training (the gallery), "
                f"{classes} classes; guessing is right in {100 / classes:.1f} %."
            )
    return list(notes.values())
