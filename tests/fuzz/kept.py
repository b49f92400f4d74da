"""Valid files of what runs, servers and sites keep, and what reads a folder of them."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

from fedaction.cli.serve import follow
from fedaction.cli.status import show_run, show_site
from fedaction.data.client import ClientInfo
from fedaction.engines.flower.keys import (
    fingerprint_pem,
    make_server_keys,
    make_site_key,
    read_key,
)
from fedaction.engines.flower.status import (
    JOIN,
    SERVE,
    STATUS,
    Holder,
    Remark,
    SeenSite,
    ServerStatus,
    SiteStatus,
    read_record,
    write_record,
)
from fedaction.engines.messages import pack
from fedaction.federation.files import write_json
from fedaction.federation.profile import Profile
from fedaction.papers.work import Environment
from fedaction.report.files import read_analyses, read_environment
from fedaction.report.profile import read_profile, write_profile
from fedaction.runs.checkpoint import save_checkpoint
from fedaction.runs.controls import has_controls, read_split, sum_up_controls
from fedaction.runs.deploy import INDEX, describe_models, has_models
from fedaction.runs.environment import has_environment
from fedaction.runs.metrics import read_seconds, write_seconds
from fedaction.runs.remote import NEWS, ROLL, Roll
from fedaction.runs.segments import Segments, list_segments
from fedaction.training.distil import DATA_FILE, read_source
from fedaction.training.folders import read_part
from tests.fuzz.samples import forge

SITE = "site.json"
"""A site's status; it is called as the server's is, but lies in another folder."""


def make_segments(folder: Path) -> None:
    """A checkpoint whose LOCAL tensors lie in a file beside it, as those of more than 200 clients do."""
    from tests.runs.test_checkpoint import make_state

    begun = replace(make_state(), segments=Segments({1: ""}, {1: 0}))
    save_checkpoint(folder, begun, 1, "some")


def forge_segments(folder: Path) -> None:
    """The digests of whatever the segments are now, then the checkpoint's own."""
    try:
        record = json.loads((folder / "some.json").read_bytes())
        for path in list_segments(folder):
            record["segments"][str(int(path.stem[6:]))] = hashlib.sha256(path.read_bytes()).hexdigest()
        (folder / "some.json").write_text(json.dumps(record))
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    forge(folder)


def make_records(folder: Path) -> None:
    remark = Remark(time=1.5, text="a site has gone")
    server = ServerStatus(stage="training", method="fsar", rounds=9, sites={"a": SeenSite(about="12 samples")})
    write_record(server.model_copy(update={"remarks": [remark]}), folder / STATUS)
    write_record(SiteStatus(name="a", told={"loss": 0.5}, remarks=[remark]), folder / SITE)
    for name in (SERVE, JOIN):
        write_record(Holder(pid=7, born="12", machine="here", place="host:9092", since=1.5), folder / name)


def read_records(folder: Path) -> object:
    kinds = {STATUS: ServerStatus, SITE: SiteStatus, SERVE: Holder, JOIN: Holder}
    site = folder / "site"
    site.mkdir(exist_ok=True)
    for name, own in ((SITE, STATUS), (JOIN, JOIN)):
        shutil.copy(folder / name, site / own)
    return [read_record(kind, folder / name) for name, kind in kinds.items()], show_run(folder), show_site(site)


def make_roll(folder: Path) -> None:
    from tests.engines.test_hostile_messages import WHOLE

    info = pack(WHOLE[ClientInfo]).hex()
    member = {"info": info, "proof": "12", "data": "ab", "splits": ["test"]}
    write_json(folder / ROLL, {"run": "0" * 32, "count": 1, "keys": {"ab": "site"}, "members": [member]})


def read_roll(folder: Path) -> object:
    return Roll.read(folder).joined()


def make_news(folder: Path) -> None:
    kinds = ("start", "round", "tell", "warn", "done")
    lines = [{"time": 1.5, "pid": 7, "attempt": "ab", "kind": kind, "text": "words", "round": 1} for kind in kinds]
    (folder / NEWS).write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_news(folder: Path) -> object:
    """As whoever waits: from the beginning, since the file was not there when the waiting began."""
    path = folder / NEWS
    aside = path.rename(path.with_suffix(".aside"))
    lines = follow(path)
    next(lines)
    aside.rename(path)
    return next(lines)


def make_keys(folder: Path) -> None:
    make_server_keys(["server.clinic.org", "10.0.0.5"], folder)
    make_site_key("clinic", folder)


def read_keys(folder: Path) -> object:
    for path in folder.iterdir():
        fingerprint_pem(path.read_bytes())
    return [read_key(path) for path in sorted(folder.iterdir())]


def make_models(folder: Path) -> None:
    """Without the hash of itself, so that what lies behind its check is reached."""
    index = {"server": "model.safetensors", "clients": {"a": "models/clients/a.safetensors"}, "left_out": ""}
    write_json(folder / INDEX, {**index, "round": 3, "files": {"model.safetensors": "12"}})


def read_models(folder: Path) -> object:
    return has_models(folder, 3), describe_models(folder)


def make_controls(folder: Path) -> None:
    """Without the hash, as above."""
    scores = {"a": {"accuracy": 0.5, "interval": [0.4, 0.6]}, "b": {"accuracy": 0.25, "interval": [0.0, 0.5]}}
    split = {"a": {"train": 3, "test": 4, "held_out": ["p"]}, "b": {"train": 5, "test": 4, "held_out": None}}
    write_json(folder / "controls.json", {"split": split, "majority": scores, "ridge": scores})


def read_controls(folder: Path) -> object:
    return has_controls(folder), read_split(folder), sum_up_controls([folder], "b")


def make_analysis(folder: Path) -> None:
    """Without the hash, as above; and where the time went."""
    table = {"columns": ["round", "accuracy"], "rows": [["1", "0.5"], ["2", "0.75"]]}
    about = {"name": "curves", "place": 1, "round": 2, "title": "Curves", "caption": "Of two.", "notes": ["One."]}
    write_json(folder / "curves.json", {**about, "table": table, "values": {"mean": [0.5, 0.75]}})
    profile = Profile()
    profile.begin("run", 1)
    with profile.section("test"):
        pass
    write_profile(folder, profile)


def read_analysis(folder: Path) -> object:
    inner = folder / "analyses"
    inner.mkdir(exist_ok=True)
    shutil.copy(folder / "curves.json", inner)
    return read_analyses(inner), read_profile(folder)


def make_parts(folder: Path) -> None:
    """Without the hash, as above: what an evaluation's protocols gave, and which clips a distillation learned."""
    scores = {"probe_clip": 0.5, "probe_recall": [0.5, None, 1.0]}
    write_json(folder / "probe.json", {"value": scores, "seconds": 1.5, "of": "12ab"})
    write_json(folder / "perturb.json", {"value": [["gaussian", 0.5, 0.25, 0.0]], "seconds": 0.5})
    write_json(folder / DATA_FILE, {"clips": "ab12", "source": {"mine": "cd34"}, "train": 4, "test": 2})


def read_parts(folder: Path) -> object:
    return read_part(folder / "probe.json"), read_part(folder / "perturb.json"), read_source(folder)


def make_seconds(folder: Path) -> None:
    for number in range(1, 5):
        write_seconds(folder / "clock.jsonl", number, 0.5, 0.75)


def read_clock(folder: Path) -> object:
    return read_seconds(folder / "clock.jsonl", "train"), read_seconds(folder / "clock.jsonl", "total")


def make_environment(folder: Path) -> None:
    about = {"fedaction": "1", "python": "3.11", "packages": {"torch": "2.13", "numpy": None}, "git_revision": None}
    write_json(folder / "environment.json", {**about, "device": "cpu", "device_name": "a processor, AVX2"})


def read_machine(folder: Path) -> object:
    path = folder / "environment.json"
    return has_environment(path), read_environment(path), Environment.read(path)
