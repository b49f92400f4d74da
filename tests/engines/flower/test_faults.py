"""What ends, hangs or fills up among real processes: nothing combined is lost, nothing is counted twice."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

from fedaction.engines.flower.keep import SiteStore
from fedaction.engines.flower.keys import make_server_keys, make_site_key
from fedaction.engines.flower.launch import free_port, open_superlink, start_superlink, stop
from fedaction.engines.flower.status import is_gone
from fedaction.engines.observed import ObservedEngine
from fedaction.federation.progress import Quiet
from fedaction.runs.metrics import read_rows
from fedaction.runs.remote import Roll
from fedaction.runs.single import SingleRun
from tests.engines.flower.places import make_recipe, make_stores, simulated
from tests.engines.flower.processes import Machine
from tests.engines.flower.test_contract import compare

pytestmark = pytest.mark.slow

QUICK = {"FEDACTION_HEARTBEAT": "10"}  # a SuperLink then misses a SuperNode after 20 s, not 60
EPOCHS = 15  # so that training lasts about a second, and there is a middle of it


@pytest.fixture
def paths(tmp_path):
    """Two places: enough to lose one of."""
    stores = make_stores(tmp_path)
    return {name: stores[name] for name in ("clinic", "gym")}


def compare_with_undisturbed(recipe, machine):
    """The run is, to the last bit, the one in which nothing happened."""
    simulation = machine.folder / "simulated"
    SingleRun(recipe, simulated(recipe), simulation, Quiet()).execute()
    return compare(simulation, machine.run)


def come_back(machine, name):
    return sum(line["text"].startswith(f"{name} has come back") for line in machine.news())


def test_a_supernode_is_killed_in_training_and_its_site_starts_it_again(paths, tmp_path):
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS)
    with Machine(tmp_path, paths, recipe, environment=QUICK) as machine:
        machine.serve("--sites", "2")
        for name in paths:
            machine.join(name)
        worker = machine.stop_in_training("gym", 2)
        os.kill(machine.find_child("gym", "supernode"), signal.SIGKILL)
        os.kill(worker, signal.SIGCONT)  # it works on, for nobody
        machine.finish()
        assert "the SuperNode has ended" in machine.read_log("gym") and come_back(machine, "gym") == 1
    compare_with_undisturbed(recipe, machine)


def test_a_whole_site_is_killed_in_training_and_started_again(paths, tmp_path):
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS)
    with Machine(tmp_path, paths, recipe, environment=QUICK) as machine:
        machine.serve("--sites", "2")
        for name in paths:
            machine.join(name)
        machine.stop_in_training("gym", 2)
        machine.kill_all("gym")
        machine.join("gym")
        machine.finish()
        assert come_back(machine, "gym") == 1
    compare_with_undisturbed(recipe, machine)


def test_the_superlink_is_killed_and_the_server_starts_it_again(paths, tmp_path):
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS)
    with Machine(tmp_path, paths, recipe, environment=QUICK) as machine:
        machine.serve("--sites", "2")
        for name in paths:
            machine.join(name)
        worker = machine.stop_in_training("gym", 2)  # so that it happens in the middle of a round
        os.kill(machine.find_child("server", "superlink"), signal.SIGKILL)
        machine.wait_for_text("server", "the SuperLink has ended")
        os.kill(worker, signal.SIGCONT)
        machine.finish()
        assert [come_back(machine, name) for name in paths] == [1, 1]  # by themselves
        assert not any("has left" in machine.read_log(name) for name in paths)
    compare_with_undisturbed(recipe, machine)


def test_a_superlink_that_was_killed_while_it_made_its_database_is_opened_again(tmp_path):
    port, database = free_port(), tmp_path / "superlink.db"
    with (tmp_path / "log").open("wb") as log:
        first = start_superlink(tmp_path, "127.0.0.1", port, log)
        end = time.monotonic() + 240
        while not database.exists() or not database.stat().st_size:
            assert time.monotonic() < end and first.poll() is None
        first.kill()
        first.wait()
        whole = list_tables(database)
        again = open_superlink(tmp_path, "127.0.0.1", port, log)
        stop(again)
        assert len(list_tables(database)) > len(whole)
        once_more = open_superlink(tmp_path, "127.0.0.1", port, log)  # what is whole stays
        stop(once_more)
    assert b"already exists" not in (tmp_path / "log").read_bytes()


def list_tables(database):
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("select name from sqlite_master where type = 'table'").fetchall()


def make_keys(folder, names, host="localhost"):
    """Folders of keys of the server and of each place."""
    authority = make_server_keys([host], folder / "server")["ca.crt"]
    (folder / "server" / "sites").mkdir()
    for name in names:
        public = make_site_key(name, folder / name)["public"]
        (folder / "server" / "sites" / public.name).write_bytes(public.read_bytes())
        (folder / name / "ca.crt").write_bytes(authority.read_bytes())
    return {name: folder / name for name in ("server", *names)}


def test_a_site_with_a_key_is_killed_and_tries_until_it_is_let_in_again(paths, tmp_path):
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS)
    with Machine(tmp_path, paths, recipe, make_keys(tmp_path / "keys", paths)) as machine:
        machine.serve("--sites", "2")
        for name in paths:
            machine.join(name)
        worker = machine.stop_in_training("gym", 2)
        before = machine.read_log("gym")
        os.kill(machine.find_child("gym", "supernode"), signal.SIGKILL)
        os.kill(worker, signal.SIGCONT)
        machine.finish()
        said = machine.read_log("gym").removeprefix(before)
        assert said.count("does not let this site in (") == 1
        assert said.count("has let this site in") == 1 and said.count("gym is ready") == 1  # its worker stayed
    compare_with_undisturbed(recipe, machine)


def test_a_site_that_is_paused_and_then_goes_on_is_asked_again(paths, tmp_path):
    """Its SuperNode stands still, as after a closed lid, until the server has missed it; then it goes on."""
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS)
    with Machine(tmp_path, paths, recipe, environment=QUICK) as machine:
        machine.serve("--sites", "2")
        for name in paths:
            machine.join(name)
        worker, node = machine.stop_in_training("gym", 2), machine.find_child("gym", "supernode")
        os.kill(node, signal.SIGSTOP)
        os.kill(worker, signal.SIGCONT)
        machine.wait_for_text("server", "'gym' has gone")
        os.kill(node, signal.SIGCONT)
        machine.finish()
        assert machine.find_child("gym", "supernode") == node and come_back(machine, "gym") == 1
        assert (
            machine.read_log("gym").count("round 2 of 3: trained") == 2
        )  # the first answer came too late for anybody
    compare_with_undisturbed(recipe, machine)


@contextmanager
def open_network(name):
    """A network of its own for one site, over a cable to this machine; its namespace, both addresses, and the cable.

    The network is another one as far as a process in it can tell; the cable can be pulled.
    """
    near, far, other = f"{name}-a", f"{name}-b", os.getpid() % 250 + 2
    ours, theirs = f"10.199.{other}.1", f"10.199.{other}.2"

    def ip(*words):
        return subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    with ExitStack() as stack:
        try:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
            ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no networks can be made here (it takes root, `ip netns` and veth): {error}")
        ip("address", "add", f"{ours}/24", "dev", near)
        ip("link", "set", near, "up")
        for words in (["address", "add", f"{theirs}/24", "dev", far], ["link", "set", far, "up"]):
            ip("-n", name, *words)
        ip("-n", name, "link", "set", "lo", "up")
        yield ours, lambda state: ip("link", "set", near, state)


@pytest.mark.parametrize("back", [True, False])
def test_the_cable_of_a_site_is_pulled(paths, tmp_path, back):
    """It comes back and the run is as if nothing had been; or it does not, and the quorum goes on without it."""
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS, rounds=3 if back else 2, quorum=0.5)
    with open_network(f"fa{os.getpid()}") as (address, set_cable), ExitStack() as stack:
        keys = make_keys(tmp_path / "keys", paths, address)
        machine = stack.enter_context(Machine(tmp_path, paths, recipe, keys, address, QUICK))
        machine.serve("--sites", "2", "--absence", "120" if back else "15")
        for name in paths:
            machine.join(name, inside=["ip", "netns", "exec", f"fa{os.getpid()}"] if name == "gym" else ())
        worker = machine.stop_in_training("gym", 2)
        set_cable("down")
        os.kill(worker, signal.SIGCONT)
        machine.wait_for_text("server", "'gym' has gone")
        if back:
            set_cable("up")
        machine.finish()
        assert come_back(machine, "gym") == int(back)
    if back:
        compare_with_undisturbed(recipe, machine)
        return
    rows = read_rows(machine.run / "metrics.jsonl")
    assert [row.value for row in rows if row.name == "combined"] == [1, 1]
    assert {row.round for row in rows if (row.client, row.name) == ("gym", "refused")} == {2}


class Deaf(SingleRun):
    """A simulation whose server does not hear some clients' updates; each is a client and a round."""

    lost: frozenset[tuple[str, int]] = frozenset()

    def engine(self, state):
        def lose(job, update, store):
            return replace(update, tree={}, fault="not heard") if (job.client, job.round) in self.lost else update

        return ObservedEngine(super().engine(state), [lose])


def compare_with_deaf(recipe, machine):
    """The run is, to the last bit, one in which the server never heard the updates that it left out; gives those.

    The LOCAL tensors of every site are then, after its last job, those of that run.
    """
    rows = read_rows(machine.run / "metrics.jsonl")
    run = Deaf(recipe, simulated(recipe), machine.folder / "simulated", Quiet())
    run.lost = frozenset((row.client, row.round) for row in rows if row.client and row.name == "refused")
    run.execute()
    here, _ = compare(machine.folder / "simulated", machine.run)
    for client, tree in here.locals.committed.items():
        store = SiteStore(machine.folder / "sites" / client / Roll.read(machine.run).run, client)
        kept = store.read(store.jobs()[-1])
        assert kept.keys() == tree.keys() and all(torch.equal(kept[n], tree[n]) for n in kept)
    return run.lost


def test_a_site_that_is_late_is_left_out_of_that_round_and_its_answer_of_all_others(paths, tmp_path):
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS, rounds=4, quorum=0.5, evaluate_every=4)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", "2", "--deadline", "40")
        for name in paths:
            machine.join(name)
        worker = machine.stop_in_training("gym", 2)
        machine.wait_for_text("clinic", "round 3 of 4: trained")
        assert machine.read_log("gym").count("trained") == 1
        os.kill(worker, signal.SIGCONT)  # it ends its job of round 2 now, and is then in time for that of round 3
        machine.finish()
        assert machine.read_log("gym").count("round 2 of 4: trained") == 1  # in vain
    assert any("'gym' did not answer within 40 s" in line["text"] for line in machine.news())
    lost = compare_with_deaf(recipe, machine)
    assert ("gym", 2) in lost and ("gym", 4) not in lost


@contextmanager
def open_small_disk(place):
    """A disk of its own for one site, and what fills it up and empties it again."""
    place.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=72m", "none", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here (it takes root): {mounted.stderr.decode().strip()}")
    filler = place / "filler"

    def fill():
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"0")

    try:
        yield fill, filler.unlink
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_costs_a_site_its_rounds_until_there_is_room(paths, tmp_path):
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS, rounds=5, quorum=0.5, evaluate_every=5)
    with open_small_disk(tmp_path / "sites" / "gym") as (fill, empty):
        with Machine(tmp_path, paths, recipe) as machine:
            fill()
            machine.join("gym")
            machine.wait_for_text("gym", "make room, or say another --state")
            empty()
            machine.serve("--sites", "2")
            for name in paths:
                machine.join(name)
            worker = machine.stop_in_training("gym", 2)
            fill()
            os.kill(worker, signal.SIGCONT)
            machine.wait_for_text("server", "this site's disk is full")
            machine.wait_for_round(2)
            empty()
            machine.finish()
            said = machine.read_log("server").count("this site's disk is full")
            folder = tmp_path / "sites" / "gym" / Roll.read(machine.run).run
            assert not [path for path in folder.rglob("*") if path.name.endswith(".part")]
        lost = compare_with_deaf(recipe, machine)
        assert ("gym", 2) in lost and ("gym", 5) not in lost and said == len(lost)


def test_a_run_without_its_quorum_ends_and_resumes_when_the_site_is_back(paths, tmp_path):
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS, quorum=1.0)
    with Machine(tmp_path, paths, recipe, environment=QUICK) as machine:
        machine.serve("--sites", "2", "--absence", "30")
        for name in paths:
            machine.join(name)
        machine.stop_in_training("gym", 2)
        machine.kill_all("gym")
        assert machine.end_status() == 2
        said = " ".join(machine.read_log("server").split())
        assert "round 2: 1 of 2 sites answered, fewer than the quorum (100%): client 'gym' has been away" in said
        assert f"`fedaction serve {machine.run}` resumes" in said
        machine.join("gym")
        machine.serve(resume=True)
        machine.finish()
        assert [come_back(machine, name) for name in paths] == [1, 1]
    compare_with_undisturbed(recipe, machine)


def test_one_name_is_one_site_and_changed_data_are_no_site_until_they_are_put_back(paths, tmp_path):
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS)
    with Machine(tmp_path, paths, recipe, environment=QUICK) as machine:
        machine.serve("--sites", "2", "--absence", "900")
        for name in paths:
            machine.join(name)
        machine.stop_in_training("gym", 2)
        machine.join("gym", label="impostor", state=tmp_path / "sites" / "impostor")
        machine.wait_for_text("impostor", "leaves this site out: another site has already joined as 'gym'")
        machine.kill_all("gym")
        frames = paths["gym"] / "frames.npy"
        whole = frames.read_bytes()
        changed = np.load(frames)
        changed[3] += 0.25  # one body in one frame
        np.save(frames, changed)
        machine.join("gym", label="changed")
        machine.wait_for_text("changed", "leaves this site out: the data of 'gym' are not those that it joined with")
        machine.kill("changed")
        frames.write_bytes(whole)
        machine.join("gym")
        machine.finish()
        assert come_back(machine, "gym") == 1
        assert "put them back as they were" in " ".join(machine.read_log("server").split())
    compare_with_undisturbed(recipe, machine)


def test_data_that_change_while_a_site_works_are_noticed_and_forgiven_once_they_are_put_back(paths, tmp_path):
    recipe = make_recipe(paths, "fsar", local_epochs=EPOCHS, rounds=6, quorum=0.5)
    with Machine(tmp_path, paths, recipe) as machine:
        machine.serve("--sites", "2")
        for name in paths:
            machine.join(name)
        worker = machine.stop_in_training("gym", 2)
        frames = paths["gym"] / "frames.npy"
        whole = frames.read_bytes()
        frames.write_bytes(whole[:-40] + bytes(40))
        os.kill(worker, signal.SIGCONT)
        machine.wait_for_text("gym", "are not those that it joined with")  # the test of round 2, or the next job
        frames.write_bytes(whole)
        machine.wait_for_text("gym", "round 6 of 6: trained")
        machine.finish()
        said = " ".join(machine.read_log("server").split())
        assert "'gym' could not do it: the data of this site are not those that it joined with" in said
        assert not machine.read_log("gym").count("the worker has ended")
    rows = read_rows(machine.run / "metrics.jsonl")
    assert [row.value for row in rows if row.name == "participants"][-1] == 2


def test_what_a_site_starts_ends_with_it_however_early(tmp_path):
    """Else an orphan would hold the place of a site with a key for ever."""
    program = (
        "import os, pathlib, sys; from fedaction.engines.flower.launch import start_supernode; "
        "folder = pathlib.Path(sys.argv[1]); log = (folder / 'log').open('wb'); "
        "print(start_supernode(folder, '127.0.0.1:1', 2, folder / 'secret', log).pid, flush=True); os._exit(0)"
    )
    started = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    pid, end = int(started.stdout), time.monotonic() + 120
    while not is_gone(pid):
        assert time.monotonic() < end, (tmp_path / "log").read_text()
        time.sleep(0.2)
