"""Ready callbacks for `fedaction.run(..., callbacks=[...])`; each needs a package that does not come with this one.

A callback of your own is any object with `on_round(rows)`; `on_start(method, seed, folder)` and `on_end()` are called
where it has them, the latter also after an interruption. A row has round, client ("" for the whole run), group,
split, name and value.
"""

# None of the three has type stubs.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedaction.server.state import Row


def _tag(row: Row) -> str:
    return "/".join(part for part in (row.split, row.name, row.client) if part)


def _finite(rows: Sequence[Row]) -> list[tuple[str, float, int]]:
    return [(_tag(row), row.value, row.round) for row in rows if row.value is not None]


class TensorBoard:
    """Writes every metric for TensorBoard: `tensorboard --logdir RUN`. Needs the package tensorboard."""

    def __init__(self, folder: str | Path | None = None) -> None:
        """`folder`: where to write, a folder for each method and seed; default: in each run's directory."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ImportError("TensorBoard needs the package tensorboard: pip install tensorboard") from None
        self._folder, self._open, self._writer = folder, SummaryWriter, None

    def on_start(self, method: str, seed: int, folder: Path) -> None:
        """Opens a writer."""
        place = folder / "tensorboard" if self._folder is None else Path(self._folder) / f"{method}-{seed}"
        self._writer: Any = self._open(str(place))

    def on_round(self, rows: Sequence[Row]) -> None:
        """Writes a round."""
        for tag, value, round in _finite(rows):
            self._writer.add_scalar(tag, value, round)
        self._writer.flush()

    def on_end(self) -> None:
        """Closes the writer."""
        self._writer.close()


class MLflow:
    """Logs every metric to MLflow, a run for each method and seed. Needs the package mlflow."""

    def __init__(self, experiment: str = "fedaction", uri: str | Path | None = None) -> None:
        """`uri`: where MLflow keeps runs, such as sqlite:///mlflow.db; default: its own (MLFLOW_TRACKING_URI)."""
        try:
            import mlflow
        except ImportError:
            raise ImportError("MLflow needs the package mlflow: pip install mlflow") from None
        self._mlflow: Any = mlflow
        if uri is not None:
            mlflow.set_tracking_uri(str(uri))
        mlflow.set_experiment(experiment)

    def on_start(self, method: str, seed: int, folder: Path) -> None:
        """Begins an MLflow run."""
        self._mlflow.start_run(run_name=f"{method}, seed {seed}")
        self._mlflow.log_params({"method": method, "seed": seed, "folder": str(folder)})

    def on_round(self, rows: Sequence[Row]) -> None:
        """Logs a round."""
        for tag, value, round in _finite(rows):
            self._mlflow.log_metric(tag, value, step=round)

    def on_end(self) -> None:
        """Ends the MLflow run."""
        self._mlflow.end_run()


class WandB:
    """Logs every metric to Weights & Biases, offline: `wandb sync` sends it if you want. Needs the package wandb."""

    def __init__(self, project: str = "fedaction", folder: str | Path | None = None) -> None:
        """`folder`: where to write; default: wandb in each run's directory."""
        try:
            import wandb
        except ImportError:
            raise ImportError("WandB needs the package wandb: pip install wandb") from None
        self._wandb: Any = wandb
        self._project, self._folder, self._run = project, folder, None

    def on_start(self, method: str, seed: int, folder: Path) -> None:
        """Begins an offline run."""
        self._run: Any = self._wandb.init(
            project=self._project,
            name=f"{method}, seed {seed}",
            dir=str(self._folder or folder),
            mode="offline",
            config={"method": method, "seed": seed},
        )

    def on_round(self, rows: Sequence[Row]) -> None:
        """Logs a round."""
        values = {tag: value for tag, value, _ in _finite(rows)}
        if rows:
            self._run.log(values, step=rows[0].round)

    def on_end(self) -> None:
        """Ends it."""
        self._run.finish()
