"""A SuperLink that was there before: `fedaction serve --superlink`. Real processes on this machine."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

from fedaction.engines.flower.launch import ServerKeys, answers, flower_environment, stop
from fedaction.engines.flower.link import GivenLink
from fedaction.runs.remote import Roll
from tests.engines.flower.places import make_recipe, make_stores
from tests.engines.flower.processes import ROOT, Machine
from tests.engines.flower.test_faults import EPOCHS, compare_with_undisturbed, make_keys

pytestmark = pytest.mark.slow


@contextmanager
def keep_superlink(folder, port, keys=None):
    """Somebody's SuperLink, started as docs/sites.md says; gives what starts it, and starts it again."""
    held = []

    def start():
        words = ["--host", "127.0.0.1", "--port", str(port), "--database", str(folder / "theirs.db")]
        words += ["--disable-runtime-dependency-installation"]
        if keys is None:
            words.append("--insecure")
        else:
            words += ["--ssl-certfile", f"{keys}/server.pem", "--ssl-keyfile", f"{keys}/server.key"]
            words += ["--ssl-ca-certfile", f"{keys}/ca.crt", "--enable-supernode-auth"]
        program = str(Path(sys.executable).parent / "flower-superlink")
        environment = {**flower_environment(folder / "theirs"), "PYTHONPATH": str(ROOT / "src")}
        with (folder / "theirs.log").open("ab") as log:
            held.append(subprocess.Popen([program, *words], env=environment, stdout=log, stderr=subprocess.STDOUT))
        return held[-1]

    try:
        yield start
    finally:
        for process in held:
            stop(process)


def test_a_run_goes_through_a_superlink_that_is_there_and_leaves_it(tmp_path):
    """With keys, twice: the SuperLink knows the keys already the second time. In the first it is killed."""
    stores = make_stores(tmp_path)
    paths = {name: stores[name] for name in ("clinic", "gym")}
    recipe, keys = make_recipe(paths, "fsar", local_epochs=EPOCHS), make_keys(tmp_path / "keys", paths)
    machine = Machine(tmp_path, paths, recipe, keys)
    with keep_superlink(tmp_path, machine.port, keys["server"]) as start, machine:
        link = start()
        machine.serve("--sites", "2", "--superlink")
        for name in paths:
            machine.join(name)
        worker = machine.stop_in_training("gym", 2)
        link.kill()
        link.wait()
        machine.wait_for_text("server", "the SuperLink has ended; waiting for it")
        again = start()
        os.kill(worker, signal.SIGCONT)
        machine.finish()
        compare_with_undisturbed(recipe, machine)
        assert again.poll() is None  # it is somebody else's

        machine.run = tmp_path / "second"
        machine.serve("--sites", "2", "--superlink")
        machine.wait_for_round(1)
        machine.kill("server")  # whose app would go on for nobody
        machine.serve("--superlink", resume=True)
        machine.finish()
        assert again.poll() is None and answers(machine.port, ServerKeys(keys["server"]))
    keyed = Roll.read(machine.run).keys
    assert keyed is not None and sorted(keyed.values()) == ["clinic", "gym"]


def test_a_superlink_that_is_not_there_is_said():
    link = GivenLink(1, patience=0.5)
    assert link.has_ended() and not link.own
    with pytest.raises(ValueError, match=r"no SuperLink answers at 127\.0\.0\.1:1 without encryption; start it"):
        link.open()
