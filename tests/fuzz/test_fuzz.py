"""Bytes of any kind, given to every parser: they are taken, or refused by its one error; nothing else happens.

The count decides how long it takes, not a clock: all of the default run is some seconds. `-m slow` gives each parser
as many mutants as the environment variable FEDACTION_MUTANTS says (2,000), each parser in a process of its own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fuzz.parsers import PARSERS
from tests.fuzz.run import fuzz, is_there

GIGABYTE = 10**6  # in the kilobytes that the system counts in


def forget_peak() -> None:
    """The most memory that this process had is from now on what it has now, so that each parser is measured alone."""
    with suppress(OSError):  # where there is no Linux, what was before counts too
        Path("/proc/self/clear_refs").write_text("5")


def read_peak() -> int:
    """The most memory, in kilobytes, since then."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(status.read_text().partition("VmHWM:")[2].split()[0])


def test_the_peak_is_measured_anew() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the system does not forget the most memory that a process had")
    peaks: list[int] = []
    for size in (300, 100):
        forget_peak()
        before, taken = read_peak(), bytearray(size << 20)
        taken[::4096] = b"x" * (size << 8)
        del taken
        peaks.append(read_peak() - before)
    assert peaks[0] > 250_000 and 80_000 < peaks[1] < 150_000


@pytest.mark.parametrize("name", PARSERS)
def test_mutants_are_refused_or_taken(name: str) -> None:
    if not is_there(name):
        pytest.skip(f"needs {PARSERS[name].needs}")
    forget_peak()
    before = read_peak()
    tally = fuzz(name, PARSERS[name].default)
    assert not tally.uncaught, "\n".join(tally.uncaught[:10])
    assert tally.refused or PARSERS[name].lenient  # the mutator does reach the parser
    assert read_peak() - before < GIGABYTE


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_mutants_are_refused_or_taken_for_longer(name: str) -> None:
    if not is_there(name):
        pytest.skip(f"needs {PARSERS[name].needs}")
    count = os.environ.get("FEDACTION_MUTANTS", "2000")
    command = [sys.executable, "-m", "tests.fuzz.run", "--seed", "1", "--count", count, name]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    peak = int(done.stdout.splitlines()[-1].split("|")[6])  # megabytes
    assert peak < 1000
