"""An item as it came out, and its files: a tidy CSV, a Markdown page, a JSON object."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from fedaction.papers.item import Item
from fedaction.papers.setting import Setting
from fedaction.papers.work import Environment


@dataclass(frozen=True)
class Value:
    """One number of an item, beside the paper's."""

    row: tuple[str, ...]
    """Its row's label."""
    column: str
    """Its column's label."""
    values: tuple[float, ...]
    """Ours, one per seed; none where there is nothing to measure."""
    paper: float | None = None
    """The printed one."""
    client: str = ""
    """Whose it is, where a client stands in for one of the paper's."""
    configuration: str = ""
    """The hash of the runs it comes from."""
    at: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Where it belongs in a figure, e.g. {"round": 3}; empty for a value of a table."""
    spread: float | None = None
    """The printed standard deviation, where there is one."""

    @property
    def mean(self) -> float | None:
        """Over seeds."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds; None for fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def format(self, digits: tuple[int, int]) -> str:
        """Ours with its deviation, and the paper's in brackets: "61.9 ± 1.9 (81.96)", "31.0 (34.18 ± 0.5)"."""
        ours = "–" if self.mean is None else f"{self.mean:.{digits[0]}f}"
        spread = "" if self.std is None else f" ± {self.std:.{digits[0]}f}"
        printed = "" if self.spread is None else f" ± {self.spread:.1f}"
        paper = "" if self.paper is None else f" ({self.paper:.{digits[1]}f}{printed})"
        return ours + spread + paper

    def record(self, item: Item) -> dict[str, Any]:
        """As one line of a tidy table."""
        return {
            "row": item.describe(self.row),
            "column": self.column,
            "client": self.client,
            **self.at,
            "ours_mean": _round(self.mean),
            "ours_std": _round(self.std),
            "n": len(self.values),
            "paper": self.paper,
            **({} if self.spread is None else {"paper_std": self.spread}),
            "configuration": self.configuration,
        }


class Origin(NamedTuple):
    """Where values come from: label and configuration of a run, a distillation or an evaluation, and its device."""

    label: str
    configuration: str
    environment: Environment


@dataclass(frozen=True)
class Outcome:
    """An item as it came out."""

    item: Item
    """What was made."""
    setting: Setting
    """On which data, at which scale."""
    seeds: tuple[int, ...]
    """Over which seeds."""
    table: tuple[Value, ...]
    """The values of the printed layout."""
    series: tuple[Value, ...]
    """Further values that only the figure shows."""
    rounds: int
    """How many rounds the runs had; 0 where there were none."""
    command: str
    """What makes it again."""
    runs: tuple[tuple[str, str, str], ...]
    """Label, method and configuration of every row's runs."""
    origins: tuple[Origin, ...] = ()
    """All that values were read from."""
    absent: str = ""
    """Why there is nothing of ours in it; "" where there is."""
    notes: tuple[str, ...] = ()
    """About these values, besides the item's own."""

    @property
    def columns(self) -> list[str]:
        """Heads of the columns; where a client stands in for one of the paper's, both are named."""
        clients = {value.column: value.client for value in self.table if value.client}
        columns = dict.fromkeys(value.column for value in self.table)
        return [f"{column} / {clients[column]}" if column in clients else column for column in columns]

    @property
    def lines(self) -> list[tuple[tuple[str, ...], list[str]]]:
        """Rows as printed: label and one text per column."""
        columns = list(dict.fromkeys(value.column for value in self.table))
        rows: dict[tuple[str, ...], dict[str, str]] = {}
        for value in self.table:
            rows.setdefault(value.row, {})[value.column] = value.format(self.item.digits_of(value.column))
        return [(row, [texts.get(column, "") for column in columns]) for row, texts in rows.items()]

    @property
    def caption(self) -> str:
        """What is shown, on which data, at which scale."""
        if self.absent:
            return f"Not available on {self.setting.about}: {self.absent} Only the paper's values are shown."
        seeds = f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"
        scale = f"{self.setting.scale} scale, {self.rounds} {self.item.across}s, {seeds}" if self.rounds else ""
        printed = any(value.paper is not None for value in self.table)
        words = ["Ours (the paper's)." if printed else "Ours; the paper prints no numbers."]
        words.append(f"Data: {self.setting.about}{'; ' if scale else ''}{scale}.")
        if any(value.std is not None for value in self.table):
            words.append("Mean ± standard deviation over seeds.")
        return " ".join(words)

    @property
    def environments(self) -> dict[Environment, list[str]]:
        """On what the values were computed, and labels of what was computed there."""
        labels: dict[Environment, dict[str, None]] = {}
        for origin in self.origins:
            labels.setdefault(origin.environment, {})[origin.label] = None
        return {environment: list(names) for environment, names in labels.items()}

    @property
    def footer(self) -> str:
        """Device and torch version of the values; where there are several, of which. "" where nothing was run."""
        places = {f"{place.device}, torch {place.torch}": labels for place, labels in self.environments.items()}
        if len(places) > 1:
            return "Run on " + "; ".join(f"{place} ({', '.join(labels)})" for place, labels in places.items()) + "."
        return "".join(f"Run on {place}." for place in places)

    def _environment_of(self, value: Value) -> dict[str, str]:
        """A value's device and torch version: those of its configuration, or of all where it has none."""
        named = [origin for origin in self.origins if origin.configuration == value.configuration]
        places = dict.fromkeys(origin.environment for origin in named or self.origins if value.values)
        facts = [asdict(place) for place in places]
        return {key: "; ".join(dict.fromkeys(fact[key] for fact in facts)) for key in ("device", "torch")}

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        return {
            "item": self.item.name,
            "title": self.item.title,
            "data": self.setting.about,
            "scale": self.setting.scale,
            "seeds": list(self.seeds),
            "rounds": self.rounds,
            "available": not self.absent,
            "caption": self.caption,
            "notes": [*self.item.notes, *self.notes],
            "command": self.command,
            "environments": [{**asdict(place), "of": labels} for place, labels in self.environments.items()],
            "runs": [dict(zip(("row", "method", "configuration"), run, strict=True)) for run in self.runs],
            "table": [value.record(self.item) for value in self.table],
        }

    def csv(self) -> str:
        """Every value on its own line, those of the figure too."""
        values = (*self.table, *self.series)
        records = [{**value.record(self.item), **self._environment_of(value)} for value in values]
        first = ["row", "column", "client"]
        printed = ["paper_std"] if any("paper_std" in record for record in records) else []
        last = ["ours_mean", "ours_std", "n", "paper", *printed, "configuration", "device", "torch"]
        extra = dict.fromkeys(key for record in records for key in record if key not in (*first, *last))
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [*first, *extra, *last], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return text.getvalue()

    def markdown(self, figure: str = "") -> str:
        """A page with the table, the figure if there is one, the command and the configurations."""
        parts = [f"# {self.item.title}", self.caption]
        if figure:
            parts.append(f"![{self.item.title}]({figure})")
        lines = [[*label, *texts] for label, texts in self.lines]
        parts.append(_table([*self.item.heads, *self.columns], lines))
        if notes := [*self.item.notes, *self.notes]:
            parts.append("\n".join(f"- {note}" for note in notes))
        parts.append(f"```\n{self.command}\n```")
        if self.runs:
            parts.append(_table(["row", "method", "configuration"], self.runs))
        return "\n\n".join([*parts, *([self.footer] if self.footer else [])]) + "\n"


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [
        [text.replace("|", "\\|").replace("*", "\\*") for text in row] for row in (heads, ["---"] * len(heads), *rows)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
