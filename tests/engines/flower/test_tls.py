"""Sites that are known by their keys, over TLS: real processes on this machine."""

import pytest

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

from fedaction.engines.flower.keys import make_server_keys, make_site_key
from tests.engines.flower.places import make_recipe, make_stores
from tests.engines.flower.processes import Machine

pytestmark = pytest.mark.slow


def test_sites_with_keys_train_and_one_under_anothers_name_is_left_out(tmp_path):
    paths = make_stores(tmp_path)
    clinic, *others = paths
    authority = make_server_keys(["localhost"], tmp_path / "keys" / "server")["ca.crt"]
    (tmp_path / "keys" / "server" / "sites").mkdir()
    keys = {"server": tmp_path / "keys" / "server"}
    for name in (*paths, "thief"):
        keys[name] = tmp_path / "keys" / name
        public = make_site_key(name, keys[name])["public"]
        (keys["server"] / "sites" / public.name).write_bytes(public.read_bytes())
        (keys[name] / "ca.crt").write_bytes(authority.read_bytes())
    # The thief's key is known to the server, but it says that it is the clinic.
    stolen = keys["thief"] / clinic
    stolen.write_bytes((keys["thief"] / "thief").read_bytes())
    keys["stranger"] = tmp_path / "keys" / "stranger"  # whose key the server was never given
    make_site_key("stranger", keys["stranger"])
    (keys["stranger"] / "ca.crt").write_bytes(authority.read_bytes())
    recipe = make_recipe(paths, "fsar", rounds=2)
    with Machine(tmp_path, {**paths, "stranger": paths[clinic]}, recipe, keys) as machine:
        machine.serve("--sites", "3")
        honest, machine.keys = keys, {**keys, clinic: keys["thief"]}
        machine.join(clinic, label="thief", state=tmp_path / "sites" / "thief")
        left_out = f"it says that it is {clinic!r}, but"
        machine.wait(lambda news: any(left_out in line["text"] for line in news))
        machine.join("stranger")
        for label, reason in (("thief", left_out), ("stranger", "the server does not let the key 'stranger' in")):
            log = tmp_path / f"{label}.log"
            machine.wait(lambda _, log=log, reason=reason: reason in log.read_text())  # its owner is told
        machine.keys = honest
        for name in (clinic, *others):
            machine.join(name)
        machine.finish()
    joined = [line["text"] for line in machine.news() if " has joined" in line["text"]]
    assert len(joined) == 3 and sum(text.startswith(f"{clinic} ") for text in joined) == 1
