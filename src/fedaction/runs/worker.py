"""The process that does a site's work: `python -m fedaction.runs.worker SETTINGS`, started by `fedaction join`."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from fedaction.engines.base import choose_device
from fedaction.engines.flower.earlier import Keeping
from fedaction.engines.flower.envelope import Name
from fedaction.engines.flower.limits import Limits
from fedaction.engines.flower.site import USUAL_REPORTS, Site
from fedaction.engines.flower.status import CALL, STATUS, Diary
from fedaction.runs.sites import SiteWorkshop


class SiteSettings(BaseModel):
    """All that a site's worker is told, by the site's owner alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    """The client's."""
    data: Path
    """Where its data lie."""
    state: Path
    """Where it keeps its key and its LOCAL tensors."""
    address: str
    """Of its SuperNode's own interface."""
    secret: Path
    """The file with what the SuperNode knows it by."""
    device: str = "auto"
    """auto, cpu or cuda."""
    reports: tuple[str, ...] = USUAL_REPORTS
    """What it tells."""
    parent: int = Field(default_factory=os.getpid)
    """The process that starts it, without which it ends."""
    keep_runs: int = Field(default=10, ge=0)
    """Of how many earlier runs its LOCAL tensors are kept."""
    keep_from: str = ""
    """The run whose LOCAL tensors a new one begins with: see `Keeping`."""
    limits: Limits = Limits()
    """What a server may ask of it at most."""


def main() -> None:
    """Answers messages until whoever started it is gone, or says so."""
    from fedaction.engines.flower.node import shorten_backoff
    from fedaction.engines.flower.worker import Worker

    shorten_backoff()

    settings = SiteSettings.model_validate_json(Path(sys.argv[1]).read_bytes())
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)

    def log(text: str) -> None:
        with suppress(OSError):  # where its owner lets it write may be full, or gone
            print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    if choose_device(settings.device).type == "cpu":  # a GPU's driver reserves more addresses than there is memory
        settings.limits.bound_memory()
    workshop = SiteWorkshop(settings.name, settings.data, settings.device, settings.limits)
    diary = Diary(settings.state / STATUS, settings.name, settings.data, log)
    keeping = Keeping(settings.keep_runs, settings.keep_from)
    site = Site(settings.name, settings.state, workshop, settings.reports, log, settings.limits, diary.note, keeping)
    secret, call = settings.secret.read_bytes(), settings.state / CALL
    worker = Worker(settings.address, secret, site.answer, call, log)
    log(f"{settings.name} is ready")
    try:
        worker.run(lambda: stopped or os.getppid() != settings.parent)
    finally:
        worker.close()


if __name__ == "__main__":
    main()
