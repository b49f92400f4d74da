"""When a run is over: after its rounds, or before them, by validation or by the clock."""

from __future__ import annotations

from fedaction.runs.recipe import RunSettings


def is_tested(run: RunSettings, round: int, time: float) -> bool:
    """Whether clients are tested after a round, at which the clock shows so many seconds."""
    return round % run.evaluate_every == 0 or is_last(run, round, time)


def is_last(run: RunSettings, round: int, time: float) -> bool:
    """Whether a round is the last, whatever validation says of it."""
    return round >= run.rounds or _out_of_time(run, time)


def is_over(run: RunSettings, round: int, best: tuple[float, int], time: float) -> bool:
    """Whether no round follows. It depends on nothing but what a checkpoint holds, so that resuming changes nothing.

    Args:
        run: the recipe's keys.
        round: rounds done.
        best: the best mean validation accuracy so far, 0 to 1, and the round it was reached in.
        time: seconds on the clock.
    """
    if is_last(run, round, time):
        return True
    if not run.stop or not round or not is_tested(run, round, time):
        return False
    return best[0] >= run.stop_target if run.stop == "target" else round - best[1] >= run.stop_patience


def _out_of_time(run: RunSettings, time: float) -> bool:
    return bool(run.stop_time) and time >= run.stop_time
