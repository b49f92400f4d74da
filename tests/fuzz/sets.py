"""Valid files of datasets and their lists, and what reads a folder of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedaction.data.clips.folders import airtlab
from fedaction.data.clips.listed import hmdb51, kinetics400, ucf101
from fedaction.data.features.egocentric import ego_exo, epic, multimodal_ea, stanford_ecm
from fedaction.data.features.egocentric.given import FeatureFiles, Piece
from fedaction.data.features.extract import Recording
from fedaction.data.features.given import find_extractor
from tests.data.features.egocentric.made import write_rows
from tests.data.public.formats import write_mat
from tests.fuzz.samples import pack_matlab


def touch(folder: Path, *names: str) -> None:
    """Videos that are listed, and not read."""
    for name in names:
        (folder / name).write_bytes(b"x")


def make_ucf(folder: Path) -> None:
    names = {side: [f"v_{a}_g0{side}_c01.avi" for a in ("Archery", "Bowling")] for side in (1, 2)}
    touch(folder, *names[1], *names[2])
    (folder / "classInd.txt").write_text("1 Archery\r\n2 Bowling\r\n")
    (folder / "trainlist01.txt").write_text("".join(f"{n[2:9]}/{n} {i}\r\n" for i, n in enumerate(names[1], 1)))
    (folder / "testlist01.txt").write_text("".join(f"{n[2:9]}/{n}\r\n" for n in names[2]))


def make_hmdb(folder: Path) -> None:
    for action in ("run", "wave"):
        names = [f"film_{action}_f_cm_{number}.avi" for number in range(3)]
        touch(folder, *names)
        lines = "".join(f"{name} {flag} \r\n" for flag, name in enumerate(names))
        (folder / f"{action}_test_split1.txt").write_text(lines)


def make_kinetics(folder: Path) -> None:
    sides = enumerate(("train", "val"))
    rows = [f"{a},{a[:3]}_00000000{n},5,15,{side}" for n, side in sides for a in ("abseiling", "zumba")]
    touch(folder, *(f"{row.split(',')[1]}_000005_000015.mp4" for row in rows))
    (folder / "kinetics400.csv").write_text("label,youtube_id,time_start,time_end,split\n" + "\n".join(rows) + "\n")


def read_kinetics(folder: Path) -> object:
    return kinetics400(folder, lists=[folder / "kinetics400.csv"])


def read_ucf(folder: Path) -> object:
    return ucf101(folder, lists=folder)


def read_hmdb(folder: Path) -> object:
    return hmdb51(folder, lists=folder)


def make_airtlab(folder: Path) -> None:
    for kind, action in (("violent", "kick"), ("nonviolent", "wave")):
        rows = "".join(f"{number}.mp4;{action}\n" for number in range(1, 4))
        (folder / f"{kind}-action-classes.csv").write_text("File;Action\n" + rows)


def read_airtlab(folder: Path) -> object:
    for kind in ("violent", "non-violent"):
        if not (place := folder / kind / "cam1").is_dir():
            place.mkdir(parents=True)
            touch(place, *(f"{number}.mp4" for number in range(1, 4)))
    return airtlab(folder, task="action")


def make_sensors(folder: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(8, 19)).round(3).tolist()
    (folder / "act01seq01.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))


def read_sensors(folder: Path) -> object:
    return multimodal_ea.read(folder / "act01seq01.csv", None), multimodal_ea.read_all(folder, None)


def make_stanford(folder: Path) -> None:
    (folder / "v_acc.csv").write_text("time,x,y,z\n" + "".join(f"{t / 4},{t % 7},{t},9.8\n" for t in range(40)))
    (folder / "v_hr.csv").write_text("time,hr\n" + "".join(f"{t},{70 + t % 9}\n" for t in range(11)))
    (folder / "v_labels.csv").write_text("start,end,activity\n0,2,walk\n00:00:02.0,00:00:04.50,sit\n5,9,background\n")


def read_stanford(folder: Path) -> object:
    stanford_ecm.read_all(folder)
    return [stanford_ecm.read(recording) for recording in stanford_ecm.find(folder)]


def make_epic(folder: Path) -> None:
    write_rows(folder / "EPIC_100_train.csv", {}, {"narration_id": "P01_101_1", "verb_class": "3"})
    verbs = [f"{number},verb-{number},['verb-{number}'],some" for number in range(epic.VERBS)]
    (folder / "EPIC_100_verb_classes.csv").write_text("\n".join(["id,key,instances,category", *verbs]) + "\n")
    (folder / "EPIC_100_video_info.csv").write_text("video_id,duration,fps,resolution\nP01_101,70.5,50.0,1920x1080\n")
    head = "Participant,ReturningKitchen,ChangingKitchen,NewParticipant"
    (folder / "Extension_Participants.csv").write_text(f"{head}\nP01,1,0,0\nP33,0,0,1\n")


def make_vectors(folder: Path) -> None:
    np.savez(folder / "v.npz", **{"v:0-2": np.arange(6.0), "v:2-4": np.ones(6, np.float32)})  # pyright: ignore


def read_vectors(folder: Path) -> object:
    files = FeatureFiles(folder.parent, folder.name)  # type: ignore[arg-type]
    return [files.read(Piece(f"v:{span}", "v", 0)) for span in ("0-2", "2-4")]


def make_ego_exo(folder: Path) -> None:
    modality = np.array(["image", "image", "sensor", "sensor"])
    client, classes = np.array(["a", "a", "b", "b"]), np.array(["sit", "wave"])
    x = np.arange(24.0).reshape(4, 6)
    np.savez(folder / "a.npz", x=x, y=np.arange(4) % 2, client=client, modality=modality, classes=classes)


def make_matrix(name: str, *shape: int) -> Callable[[Path], object]:
    """A MATLAB file of one matrix of small numbers."""

    def make(folder: Path) -> None:
        write_mat(folder / "a.mat", name, np.arange(np.prod(shape), dtype=np.float64).reshape(shape))
        pack_matlab(folder / "a.mat")

    return make


def read_ego_exo(folder: Path) -> object:
    return ego_exo.read(folder / "a.npz")


def read_extractor(folder: Path) -> object:
    extractor = find_extractor("inertial", str(folder / "a.onnx"))
    return extractor([Recording(np.arange(6, dtype=np.float32), 50.0)])
