"""Runs to look at from Python: a finished or running one, from its directory."""

# pandas is not installed with this package.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedaction.federation.files import read_json
from fedaction.federation.settings import nearest
from fedaction.runs.metrics import Row, read_rows
from fedaction.runs.result import read_result
from fedaction.runs.standing import check_run
from fedaction.serve.network import Network, Prediction, find_model, load_network, network_of_run

_CONTROLS = {"majority": "commonest class", "ridge": "ridge"}


class Run:
    """A run directory. What a run still writes is read anew each time that it is asked for."""

    def __init__(self, folder: str | Path) -> None:
        """`folder` is a run directory, or one of those below it (baselines/NAME, seeds/N)."""
        self.folder = Path(folder)
        if not (self.folder / "recipe.toml").exists() and not (self.folder / "metrics.jsonl").exists():
            raise FileNotFoundError(
                f"{self.folder} is not a run directory: it has neither recipe.toml nor metrics.jsonl"
            )

    def __repr__(self) -> str:
        if not self.done:
            return f"<Run {self.folder}: not done>"
        return f"<Run {self.folder}: {self.result['method']} {100 * self.result['mean']:.1f} %>"

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return (self.folder / "result.json").exists()

    @property
    def result(self) -> dict[str, Any]:
        """What `result.json` says: means, intervals, baselines, controls and warnings."""
        if not self.done:
            raise RuntimeError(f"{self.folder} is not done: its metrics so far are in `metrics`")
        check_run(self.folder)
        return read_result(self.folder)

    @property
    def accuracy(self) -> dict[str, float]:
        """Every client's accuracy on its test, 0 to 1, by name; the mean over seeds where there are several."""
        return dict(self.result["clients"])

    @property
    def mean(self) -> float:
        """The mean accuracy over clients, 0 to 1."""
        return float(self.result["mean"])

    @property
    def warnings(self) -> list[str]:
        """What to bear in mind with these numbers: docs/judge.md."""
        return list(self.result.get("warnings", []))

    @property
    def report(self) -> Path:
        """The page that shows it all."""
        return self.folder / "report.html"

    @property
    def baselines(self) -> dict[str, Run]:
        """The other methods that were run beside it, by name."""
        homes = sorted((self.folder / "baselines").glob("*/metrics.jsonl"))
        return {home.parent.name: Run(home.parent) for home in homes}

    def table(self) -> str:
        """Accuracies in per cent: a line for each client and their mean, a column for each method and control."""
        result = self.result
        columns: dict[str, Mapping[str, float]] = {result["method"]: {**result["clients"], "mean": result["mean"]}}
        for name, other in (*result.get("baselines", {}).items(), *result.get("controls", {}).items()):
            columns[_CONTROLS.get(str(name), str(name))] = {**other["clients"], "mean": other["mean"]}
        rows = [*result["clients"], "mean"]
        head = max(map(len, rows))
        lines = ["  ".join([" " * head, *columns])]
        for row in rows:
            cells = [
                (f"{100 * v:.1f}" if (v := column.get(row)) is not None else "").rjust(len(n))
                for n, column in columns.items()
            ]
            lines.append("  ".join([row.ljust(head), *cells]))
        return "\n".join(lines)

    @property
    def rows(self) -> list[Row]:
        """Everything that was measured so far: round, client, group, split, name, value."""
        return read_rows(self.folder / "metrics.jsonl")

    def metrics(
        self, name: str = "accuracy", split: str = "test"
    ) -> tuple[npt.NDArray[np.int64], list[str], npt.NDArray[np.float64]]:
        """One metric over rounds: (R,) rounds, the clients, and (R, clients) values, NaN where there is none.

        Args:
            name: "accuracy", "loss", "bytes_up", ... (`names` has all).
            split: "test", "train", "validation" or "run".
        """
        rows = [row for row in self.rows if row.name == name and row.split == split]
        if not rows:
            known = sorted({f"{row.name} ({row.split})" for row in self.rows})
            near = nearest(f"{name} ({split})", known)
            raise KeyError(f"{self.folder} has no {name} ({split}){near}; there are {', '.join(known)}")
        rounds = sorted({row.round for row in rows})
        clients = sorted({row.client for row in rows})
        values = np.full((len(rounds), len(clients)), np.nan)
        for row in rows:
            if row.value is not None:
                values[rounds.index(row.round), clients.index(row.client)] = row.value
        return np.array(rounds), clients, values

    def frame(self) -> Any:
        """All rows as a pandas DataFrame; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise ImportError("a frame needs pandas: pip install pandas; `metrics` gives arrays without it") from None
        return pandas.DataFrame([vars(row) for row in self.rows])

    def confusion(self, client: str) -> tuple[npt.NDArray[np.int64], list[str]]:
        """A client's confusion matrix, (classes, classes) with true classes in rows, and the classes' names."""
        path = self.folder / "evidence.json"
        matrices: dict[str, Any] = read_json(path).get("confusion", {}) if path.exists() else {}
        if client not in matrices:
            raise KeyError(f"{self.folder} has no confusion matrix of {client!r}{nearest(client, matrices)}")
        return np.array(matrices[client]["matrix"]), list(matrices[client]["classes"])

    def network(self, client: str | None = None) -> Network:
        """The trained network, ready for use: a client's own, or the one that all clients share."""
        return network_of_run(self.folder, client)


def load_run(folder: str | Path) -> Run:
    """A finished or running run, from its directory."""
    return Run(folder)


def predict(
    model: str | Path | Network, recording: Any, client: str | None = None, rate_hz: float | None = None
) -> Prediction:
    """What a trained network says of a recording.

    Args:
        model: a model file, an exported .onnx file, a run directory, or a network.
        recording: an array of one recording, as long as it is; or the path of a file.
        client: of a run directory: whose network.
        rate_hz: of signals: readings a second; default: the model's own.

    Returns:
        Its label, its confidence, the scores of all classes, and what was said of each window.
    """
    network = model if isinstance(model, Network) else load_network(find_model(model, client))
    return network.predict(recording, rate_hz)
