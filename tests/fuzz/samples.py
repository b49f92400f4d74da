"""Valid bytes for every parser, written to a folder, and what reads a folder of them."""

from __future__ import annotations

import hashlib
import json
import struct
import wave
import zlib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedaction.data import store
from fedaction.data.features.store import FeatureSet, save_features
from fedaction.data.imports import import_recordings
from fedaction.data.inputs import Input
from fedaction.data.labelled import list_labelled
from fedaction.data.layout import OPENNI_15
from fedaction.data.poses import read_pose
from fedaction.data.public.acclaim import positions, read_amc, read_asf
from fedaction.data.public.readers import READERS
from fedaction.data.signals.store import SignalWriter
from fedaction.engines.flower.envelope import Envelope, EnvelopeError, Front, draw_token, open_envelope
from fedaction.engines.flower.members import pack_members, read_members
from fedaction.engines.messages import pack, unpack
from fedaction.federation.files import read_sealed_json, write_sealed_json
from fedaction.models.files import Card, clip_card, save_model
from fedaction.models.resnet3d import ResNet3D
from fedaction.report.files import read_evidence, read_result
from fedaction.runs.checkpoint import load_checkpoint, save_checkpoint
from fedaction.runs.metrics import MetricsFile
from fedaction.server.state import Row
from tests.data.public.formats import person, skeleton_lines, write_mat
from tests.models.common import started


def write(name: str, content: bytes | str) -> Callable[[Path], object]:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def at(name: str, read: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: read(folder / name)


def walk(frames: int = 6, joints: int = 15) -> np.ndarray[Any, Any]:
    return person(frames, 1, joints=joints)


def make_npz(folder: Path) -> None:
    x = np.stack([walk() for _ in range(4)])
    names = np.array(["sit", "wave"])
    np.savez_compressed(folder / "a.npz", x=x, y=np.arange(4) % 2, subjects=np.array(list("abab")), classes=names)


def format_table(header: bool = False, end: str = ",") -> str:
    rows = walk().reshape(6, -1)
    names = [f"{joint}_{axis}" for joint in OPENNI_15.joints for axis in "xyz"]
    lines = [end.join(names)] if header else []
    return "\n".join([*lines, *(end.join(f"{value:.4f}" for value in row) for row in rows)])


def format_clip() -> str:
    frames = [
        {joint: [round(float(v), 3) for v in row] for joint, row in zip(OPENNI_15.joints, f, strict=True)}
        for f in walk(4)
    ]
    return json.dumps({"frames": [{"joints": frame} for frame in frames]})


def accept(path: Path) -> object:
    return store.accept(read_pose(path, 3, OPENNI_15), None, "it")


def make_store(folder: Path) -> None:
    make_npz(folder)
    import_recordings(folder / "a.npz", folder / "s", layout="openni_15")
    lift(folder, folder / "s")


def lift(folder: Path, place: Path) -> None:
    """Leaves only the files of a folder in a folder, one step up."""
    for path in [path for path in folder.iterdir() if path != place]:
        path.unlink()
    for path in place.iterdir():
        path.rename(folder / path.name)
    place.rmdir()


def make_signals(folder: Path) -> None:
    with SignalWriter(folder / "s") as writer:
        for label in ("walk", "sit"):
            writer.add(np.arange(60, dtype=np.float32).reshape(20, 3), label=label, name=label, subject="p")
        writer.finish(channels=("x", "y", "z"), rate_hz=50.0, window=4, hop=2)
    lift(folder, folder / "s")


def make_features(folder: Path) -> None:
    """Without its checksum, so that what lies behind that is reached."""
    x, labels = np.arange(24, dtype=np.float32).reshape(4, 6), np.array([0, 1, 0, 1])
    save_features(FeatureSet("audio", x, labels, ("a", "b"), ("p", "p", "q", "q"), tuple("wxyz"), {}), folder / "s")
    header = folder / "s" / "features.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), "crc": None}))
    lift(folder, folder / "s")


def make_arrays(folder: Path) -> None:
    for side in ("train", "test"):
        np.save(folder / f"{side}_clips.npy", np.zeros((4, 3, 8, 8, 3), np.uint8))
        np.save(folder / f"{side}_labels.npy", np.arange(4) % 2)
    (folder / "classes.json").write_text('["a", "b"]')


def make_matlab(folder: Path) -> None:
    write_mat(folder / "a.mat", "d_skel", walk(5, 20).transpose(1, 2, 0).astype(np.float64))
    pack_matlab(folder / "a.mat")


def pack_matlab(path: Path) -> None:
    """The one variable of a MATLAB file packed, as MATLAB does it."""
    content = path.read_bytes()
    packed = zlib.compress(content[128:])
    path.write_bytes(content[:128] + struct.pack("<II", 15, len(packed)) + packed)


def make_pku(folder: Path) -> None:
    rows = np.zeros((12, 150))
    np.savetxt(folder / "0002-L.txt", rows, fmt="%.3f")
    (folder / "0002-L.label").write_text("1,2,5,2\n3,6,9,1\n")
    (folder / "cross_subject.txt").write_text("Training videos:\n0002-L, 0003-L\nValidation videos:\n0004-L\n")
    (folder / "Actions.csv").write_text("1, bow\n3, wave\n")


def read_pku(folder: Path) -> object:
    listing = READERS["pku1"].find(folder)
    return [READERS["pku1"].read(source.path) for source in listing.sources]


ASF = """:units
  length 0.5
  angle deg
:root
   order TX TY TZ RX RY RZ
   axis XYZ
   position 0 0 0
   orientation 0 0 0
:bonedata
  begin
    name fore
    direction 1 0 0
    length 3
    axis 0 0 90 XYZ
    dof rx
  end
  begin
    name upper
    direction 0 1 0
    length 2
    axis 0 0 0 XYZ
    dof rx ry rz
  end
:hierarchy
  begin
    root upper
    upper fore
  end
"""
AMC = ":FULLY-SPECIFIED\n:DEGREES\n" + "".join(
    f"{i}\nroot {i} 2 3 0 90 0\nupper 90 {i} 90\nfore 9{i}\n" for i in range(1, 5)
)


def make_acclaim(folder: Path) -> None:
    (folder / "a.asf").write_text(ASF)
    (folder / "a.amc").write_text(AMC)


def read_acclaim(folder: Path) -> object:
    skeleton = read_asf(folder / "a.asf")
    return positions(skeleton, read_amc(folder / "a.amc", skeleton))


def make_wave(folder: Path) -> None:
    with wave.open(str(folder / "a.wav"), "wb") as file:
        file.setparams((2, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.arange(400, dtype=np.int16).tobytes())


def make_checkpoint(folder: Path) -> None:
    from tests.runs.test_checkpoint import make_state

    save_checkpoint(folder, make_state(), 1, "some")


def read_checkpoint(folder: Path) -> object:
    return load_checkpoint(folder, "some")


def forge(folder: Path) -> None:
    """The digest of whatever the checkpoint is now, so that what lies behind its check is reached."""
    try:
        record = json.loads((folder / "some.json").read_bytes())
        rest = json.dumps({key: value for key, value in record.items() if key != "sha256"}, sort_keys=True)
    except (ValueError, AttributeError, RecursionError):
        return
    blob = (folder / "some.safetensors").read_bytes()
    record["sha256"] = hashlib.sha256(rest.encode() + b"\n" + blob).hexdigest()
    (folder / "some.json").write_text(json.dumps(record))


def make_program(folder: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, 2))
    save_model(folder / "a.safetensors", network, Card(classes=("a", "b"), input=Input(kind="arrays", shape=(4, 3))))


def make_resnet(folder: Path) -> None:
    card = clip_card(classes=("a", "b"), frames=4, resize=36, crop=32)
    save_model(folder / "a.safetensors", started(ResNet3D(classes=2, width=1)), card)


def make_weights(folder: Path) -> None:
    torch.save({"state_dict": {"a.weight": torch.ones(3, 4), "a.bias": torch.zeros(3)}}, folder / "a.pth")


def make_onnx(folder: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((6, 2), np.float32), "w")
    shapes = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in (("recordings", 6), ("logits", 2))
    ]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["recordings", "w"], ["logits"])], "g", shapes[:1], shapes[1:], [weight]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    card = Card(classes=("a", "b"), input=Input(kind="features", shape=(6,)))
    helper.set_model_props(model, {"fedaction": json.dumps({"card": card.model_dump()})})
    (folder / "a.onnx").write_bytes(model.SerializeToString())


def read_onnx(folder: Path) -> object:
    from fedaction.serve.onnx import open_onnx

    return open_onnx(folder / "a.onnx")


def make_video(name: str, codec: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        from tests.data.clips.made import write_video

        write_video(folder / name, 12, codec=codec, size=(32, 48))

    return make


def read_video(folder: Path) -> object:
    from fedaction.data.clips.decode import probe, read_clips

    path = next(folder.iterdir())
    return probe(path), read_clips(path, [0, 5], 4, short_side=32, crop=32)


def make_messages(folder: Path) -> None:
    from tests.engines.test_hostile_messages import WHOLE

    for number, thing in enumerate(WHOLE.values()):
        (folder / f"{number}.message").write_bytes(pack(thing))


def read_messages(folder: Path) -> object:
    from tests.engines.test_hostile_messages import WHOLE

    return [unpack(kind, (folder / f"{i}.message").read_bytes()) for i, kind in enumerate(WHOLE)]


def make_envelope(folder: Path) -> None:
    front = Front(kind="train", run=draw_token(), nonce=draw_token(), client="site", text="words")
    (folder / "a.envelope").write_bytes(Envelope(front, (b"one", b"two" * 9)).seal())


def read_envelope(folder: Path) -> object:
    return open_envelope((folder / "a.envelope").read_bytes(), 2000)


def make_pieces(folder: Path) -> None:
    """A message of Flower's, as the pieces that a SuperLink hands out; the whole one is called `root`."""
    from flwr.app import RecordDict
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    from fedaction.engines.flower.post import wrap

    record: RecordDict = wrap(b"answer" * 9)
    for id, part in get_all_nested_objects(record).items():
        name = "root" if id == record.object_id else id
        (folder / f"{name}.piece").write_bytes(part.deflate())


def read_pieces(folder: Path) -> object:
    from fedaction.engines.flower.inbox import read_answer

    answer = read_answer("root", {path.stem: path.read_bytes() for path in folder.iterdir()}, 2000)
    if "no message of Flower's but a RecordDict" not in answer.reason:
        raise EnvelopeError(answer.reason)
    return answer


def make_members(folder: Path) -> None:
    from fedaction.data.client import ClientInfo
    from tests.engines.test_hostile_messages import WHOLE

    (folder / "a.members").write_bytes(pack_members([WHOLE[ClientInfo]]))  # type: ignore[list-item]


def read_member_list(folder: Path) -> object:
    return read_members((folder / "a.members").read_bytes())


def make_metrics(folder: Path) -> None:
    rows = [Row(number, "a", "skeleton", "test", "accuracy", 0.5) for number in range(5)]
    MetricsFile(folder / "metrics.jsonl").append(rows)


def make_result(folder: Path) -> None:
    graph = {"layout": SMALL, "A": np.eye(3).tolist()}
    action = {"layout": SMALL, "frames": np.zeros((2, 3, 3)).tolist(), "label": "a", "predicted": "b"}
    confusion = {"classes": ["a", "b"], "matrix": [[3, 1], [0, 2]]}
    evidence = {"confusion": {"x": confusion}, "topology": {"x": graph}, "samples": {"x": [action]}}
    write_sealed_json(folder / "evidence.json", evidence)
    write_sealed_json(folder / "result.json", {"mean": 0.5, "clients": {"x": 0.5}, "method": "fsar", "seed": 0})


def read_run_files(folder: Path) -> object:
    read_result(folder / "result.json"), read_evidence(folder / "evidence.json")
    return read_sealed_json(folder / "result.json"), read_sealed_json(folder / "evidence.json")


def format_series() -> str:
    return "time,AcclX,AcclY,AcclZ\n" + "".join(f"{i / 50},{i},{i * 0.5},-1.25\n" for i in range(30))


def format_readings() -> str:
    return "time,x,y,label\n" + "".join(f"{i / 50},{i},{i * 0.5},walk\n" for i in range(30))


def make_labels(folder: Path) -> None:
    for name in ("a.npy", "b.npy"):
        np.save(folder / name, walk(2))
    (folder / "labels.csv").write_text("file,label,subject\na.npy,sit,p1\nb.npy,wave,p2\n")


def read_labels(folder: Path) -> object:
    return list_labelled(folder, (".npy",), labels=folder / "labels.csv")


def make_recipe(name: str) -> Callable[[Path], object]:
    """One of the package's own."""

    def make(folder: Path) -> None:
        text = resources.files("fedaction").joinpath(f"recipes/{name}.toml").read_text(encoding="utf-8")
        (folder / "a.toml").write_text(text)

    return make


def format_rows(count: int, columns: int) -> str:
    """So many rows of numbers, with blanks between them."""
    values = np.arange(count * columns).reshape(count, columns) / 8
    return "\n".join(" ".join(f"{value:.3f}" for value in row) for row in values)


DEVICES = "[camera]\nseconds_per_sample = 0.5\nupload_mbit = 8.0\ncount = 3\n[server]\nseconds_per_epoch = 4\n"
LAYOUT = {**OPENNI_15.to_dict(), "name": "mine"}
SMALL = {"name": "small", "joints": ["a", "b", "c"], "edges": [[0, 1], [1, 2]], "centre": "b"}
TABLE = "\n".join(" ".join(f"{value:.4f}" for value in row) for row in walk(4).reshape(-1, 3))
NTU = "\r\n".join(skeleton_lines([[(72057594037944738, pose)] for pose in person(3, 1)]))
