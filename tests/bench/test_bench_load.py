"""How processes are watched while a benchmark goes on."""

import os
import subprocess
import sys
import time

import pytest

from fedaction.bench.watch import ProcessUse

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux says what processes use")


def test_what_a_process_has_used_is_told_by_looks_at_it():
    own, start = ProcessUse(os.getpid()), time.time()
    own.look()
    begun = time.process_time()
    while time.process_time() - begun < 0.3:
        pass
    own.look()
    end = time.time()
    assert own.cpu_between(start, end) == pytest.approx(0.3, abs=0.1)  # counted in hundredths
    assert own.cpu_between(end, end) == 0 and own.memory > 1 << 20


def test_one_that_has_ended_keeps_what_was_seen():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    seen = ProcessUse(child.pid)
    assert seen.cpu_between(0.0, 1.0) == 0 == seen.memory
    seen.look()
    memory = seen.memory
    child.communicate(b"\n")
    seen.look()
    assert seen.memory == memory > 0
