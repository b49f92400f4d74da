"""Bytes of any kind, given to every parser: they are taken, or refused by its one error; nothing else happens.

The count decides how long it takes, not a clock: all of the default run is some seconds. `-m slow` gives each parser
as many mutants as the environment variable FEDACTION_MUTANTS says (2,000), each parser in a process of its own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.parsers import PARSERS
from tests.fuzz.run import fuzz, is_there

GIGABYTE = 10**6  # in the kilobytes that the system counts in


@pytest.mark.parametrize("name", PARSERS)
def test_mutants_are_refused_or_taken(name: str) -> None:
    if not is_there(name):
        pytest.skip(f"needs {PARSERS[name].needs}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tally = fuzz(name, PARSERS[name].default)
    assert not tally.uncaught, "\n".join(tally.uncaught[:10])
    assert tally.refused or PARSERS[name].lenient  # the mutator does reach the parser
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GIGABYTE


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
