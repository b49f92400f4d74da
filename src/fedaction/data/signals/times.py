"""When readings were taken: the unit of a time column, the rate, gaps, and readings at even steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedaction.federation.outside import UNPACKED, UNPACKED_TIMES, check_amount

Unit = Literal["s", "ms", "us", "ns"]
UNITS: dict[Unit, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Units of a column of numbers, in seconds."""
_NAMES: dict[Unit, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_USUAL_HZ = 30.0  # where a column could be two units, the rate nearest to this decides
_RATES_HZ = (0.05, 10_000.0)  # rates that people's sensors may have
_EPOCH = (datetime(2000, 1, 1, tzinfo=UTC).timestamp(), datetime(2100, 1, 1, tzinfo=UTC).timestamp())
_EVEN = 0.2  # steps that differ by less of their length are even

Floats = npt.NDArray[np.float64]


def find_unit(times: Floats, rate_hz: float | None = None) -> Unit:
    """The unit of a column of numbers, from its steps and from where it starts.

    A start that is a date from 2000 to 2100 in one unit decides; else the unit in which readings come nearest to
    `rate_hz`, or to what sensors that people wear usually have.
    """
    step = typical_step(times)
    likely: list[Unit] = [u for u, size in UNITS.items() if _RATES_HZ[0] <= 1 / (step * size) <= _RATES_HZ[1]]
    if not likely:
        raise ValueError(
            f"its time column goes in steps of {step:g}, which is a usual step of a sensor neither in seconds nor in "
            "ms, us or ns: name the unit, or another column"
        )
    dated: list[Unit] = [unit for unit in likely if _EPOCH[0] <= times[0] * UNITS[unit] <= _EPOCH[1]]
    wanted = rate_hz or _USUAL_HZ
    return min(dated or likely, key=lambda unit: abs(math.log(1 / (step * UNITS[unit]) / wanted)))


def say_unit(unit: Unit) -> str:
    """A unit in words."""
    return _NAMES[unit]


def typical_step(times: Floats) -> float:
    """The median of the steps forward; an error where time does not go on."""
    steps = np.diff(times[np.isfinite(times)])
    steps = steps[steps > 0]
    if not len(steps):
        raise ValueError("its time column does not go on: it needs two different times")
    return float(np.median(steps))


def parse_dates(cells: Sequence[str]) -> Floats:
    """ISO dates and times as seconds; what is none is NaN. Without a zone they count as UTC: only steps matter."""
    seconds = np.full(len(cells), np.nan)
    for i, cell in enumerate(cells):
        try:
            when = datetime.fromisoformat(cell.strip())
        except ValueError:
            continue
        seconds[i] = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return seconds


def round_rate(rate_hz: float) -> float:
    """A measured rate as its maker would say it: a whole number where one is within 2 %."""
    whole = max(round(rate_hz), 1)
    return float(whole) if abs(whole - rate_hz) <= 0.02 * rate_hz else round(rate_hz, 3)


def longest_step(rate_hz: float) -> float:
    """Seconds between two readings beyond which something is missing: half a second, or three readings."""
    return max(0.5, 3.5 / rate_hz)


def even_out(times: Floats, values: Floats, rate_hz: float) -> npt.NDArray[np.float32]:
    """Readings (T, C) at rising times (T,), in seconds, as readings at even steps, (T', C) float32.

    As they are where their own steps are even and right; else by linear interpolation, and where the rate falls by
    half or more, of means over as many readings as become one, so that what is too fast for the new rate does not
    come back as something slow.
    """
    steps = np.diff(times)
    if not len(steps) or ((np.abs(steps * rate_hz - 1) <= _EVEN).all() and _keeps_pace(times, rate_hz)):
        return values.astype(np.float32)
    merged = round(1 / (float(np.median(steps)) * rate_hz))
    if merged >= 2:
        padded = np.pad(values, ((merged // 2, merged - 1 - merged // 2), (0, 0)), mode="edge")
        sums = np.cumsum(np.concatenate([np.zeros((1, values.shape[1])), padded]), axis=0)
        values = (sums[merged:] - sums[:-merged]) / merged
    check_length((times[-1] - times[0]) * rate_hz, values, rate_hz)
    at = np.arange(int((times[-1] - times[0]) * rate_hz + 1e-6) + 1) / rate_hz + times[0]
    return np.stack([np.interp(at, times, column) for column in values.T], axis=1).astype(np.float32)


def check_length(readings: float, values: npt.NDArray[Any], rate_hz: float) -> None:
    """Refuses readings (T, C) of which there would be far more at another rate: times may say anything."""
    size = round(readings) * values.shape[1] * 8
    most = max(UNPACKED, UNPACKED_TIMES * values.nbytes)
    check_amount(size, most, "a recording", f"at {rate_hz:g} readings a second comes to")


def _keeps_pace(times: Floats, rate_hz: float) -> bool:
    """Whether the last reading comes when a clock of this rate says, to within 1 % or half a reading."""
    readings = (times[-1] - times[0]) * rate_hz
    return abs(readings - (len(times) - 1)) <= max(0.01 * readings, 0.5)
