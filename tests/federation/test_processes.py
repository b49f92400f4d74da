"""Worker processes of programs that people write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from fedaction.stage.footage import stage_footage

stage_footage(domain="home", recordings=2, test_recordings=0, people=2, frames=2, size=16, workers=2, cache="cache")
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(text)
    words = [sys.executable, "program.py"]
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_a_program_without_a_guard_ends_and_says_what_to_write(tmp_path):
    """Its workers come to the call that started them, whose lock the parent holds: they must not wait for it."""
    found = run(tmp_path, SCRIPT)
    assert found.returncode == 1
    advice = 'put what a program does under `if __name__ == "__main__":`'
    assert f"RuntimeError: {advice}" in found.stderr  # a worker
    last = found.stderr.rstrip().splitlines()[-1]  # the program itself
    assert last.startswith("ChildProcessError: ") and advice in last, found.stderr
    assert "waiting for it" not in found.stderr


def test_data_that_is_there_may_be_read_while_a_worker_reads_the_program(tmp_path):
    """Nothing is to be made, so nobody waits for anybody."""
    guarded = """
from fedaction.federation.files import lock_path
from fedaction.federation.processes import worker_pool
from pathlib import Path

with lock_path(Path("thing")):  # in every worker, too
    seen = 1

if __name__ == "__main__":
    with worker_pool(1) as pool:
        print(pool.submit(abs, -seen).result())
"""
    found = run(tmp_path, guarded)
    assert (found.returncode, found.stdout) == (0, "1\n"), found.stderr


HEAPS = """
import ctypes, sys, threading
from fedaction.federation.processes import share_heap

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
if "shared" in sys.argv:
    share_heap()
together = threading.Barrier(4)

def take():
    together.wait()
    libc.malloc(ctypes.c_size_t(100_000))
    together.wait()

threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def test_threads_share_a_heap_only_where_they_are_told_to():
    def count(*arguments: str) -> int:
        done = subprocess.run([sys.executable, "-c", HEAPS, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.count("<heap nr=")

    assert count("shared") == 1
    assert count() > 1  # by itself the GNU C library has several
