"""Metrics of a run as series: a value for each round."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping

from fedaction.runs.metrics import Row

Series = Mapping[int, float]


def tabulate(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, dict[int, float]]]:
    """By split and name, then by client ("" is the federation), the known values of a metric by round."""
    table: dict[tuple[str, str], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.value is not None:
            table[row.split, row.name][row.client][row.round] = float(row.value)
    return table


def average(several: Iterable[Series]) -> dict[int, tuple[float, float]]:
    """Mean and standard deviation (0 for one series) at the rounds that all series have."""
    series = list(several)
    common = sorted(set[int].intersection(*map(set, series))) if series else []
    columns = {r: [own[r] for own in series] for r in common}
    return {r: (statistics.fmean(v), statistics.stdev(v) if len(v) > 1 else 0.0) for r, v in columns.items()}


def mean_over_clients(by_client: Mapping[str, Series]) -> dict[int, float]:
    """The mean over clients, at the rounds that have all of them."""
    return {r: mean for r, (mean, _) in average(own for client, own in by_client.items() if client).items()}
