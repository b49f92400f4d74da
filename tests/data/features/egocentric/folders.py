"""Whole folders of FDARN's four datasets, small, in the datasets' own file formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.data.features.egocentric.made import write_inertial, write_rows, write_sound

RETURNING = [
    "P01",
    "P02",
    "P03",
    "P04",
    "P06",
    "P07",
    "P09",
    "P11",
    "P12",
    "P22",
    "P23",
    "P25",
    "P26",
    "P27",
    "P28",
    "P30",
]
"""Who filmed in 2018 and in 2020."""
WIDTH = 24
"""Numbers of a vector that was made elsewhere."""


def write_annotations(root: Path, segments: int = 8) -> None:
    """EPIC-KITCHENS-100: for each person, a new one too, so many segments of two verbs in a video of each year."""
    root.mkdir(parents=True, exist_ok=True)
    changes = []
    for who in (*RETURNING, "P33"):
        for number in range(segments):
            video = f"{who}_101" if number % 4 else f"{who}_01"
            times = {"start_timestamp": f"00:00:{number:02d}.00", "stop_timestamp": f"00:00:{number + 1:02d}.50"}
            names = {"narration_id": f"{video}_{number}", "participant_id": who, "video_id": video}
            changes.append({**names, **times, "verb_class": str(number % 2)})
    write_rows(root / "EPIC_100_train.csv", *changes)
    verbs = [f"{number},verb-{number},['verb-{number}'],some" for number in range(97)]
    (root / "EPIC_100_verb_classes.csv").write_text("\n".join(["id,key,instances,category", *verbs]) + "\n")
    people = [*(f"{who},1,0,0" for who in RETURNING), "P33,0,0,1"]
    head = "Participant,ReturningKitchen,ChangingKitchen,NewParticipant"
    (root / "Extension_Participants.csv").write_text("\n".join([head, *people]) + "\n")


def write_epic(root: Path) -> None:
    """Vectors of video and flow, sound, inertial signals; of everybody, whatever they hold in the end."""
    write_annotations(root / "annotations")
    rng = np.random.default_rng(0)
    for modality in ("video", "flow"):
        (root / modality).mkdir()
    for who in RETURNING:
        write_inertial(root, f"{who}_101")
        for video in (f"{who}_01", f"{who}_101"):
            write_sound(root / f"{video}.wav", rng.integers(-9000, 9000, (16000 * 10, 1)).astype("<i2"))
            vectors = {f"{video}_{number}": rng.normal(size=WIDTH) + number % 2 for number in range(8)}
            np.savez(root / "video" / f"{video}.npz", **vectors)
            for name, vector in vectors.items():
                np.save(root / "flow" / f"{name}.npy", vector)


def write_multimodal_ea(root: Path) -> None:
    """All 200 clips: sensor files, and vectors of the videos."""
    rng = np.random.default_rng(1)
    for folder in ("sensor", "video"):
        (root / folder).mkdir(parents=True)
    for activity in range(1, 21):
        for clip in range(1, 11):
            name = f"act{activity:02d}seq{clip:02d}"
            rows = np.round(rng.normal(size=(150, 19)) + activity, 3)
            (root / "sensor" / f"{name}.csv").write_text("\n".join(",".join(map(str, row)) for row in rows.tolist()))
            np.save(root / "video" / f"{name}.npy", rng.normal(size=WIDTH) + activity)


def write_stanford_ecm(root: Path, videos: int = 3, pieces: int = 200) -> None:
    """Videos with a labelled piece every two seconds, 23 activities, and vectors of the pieces; some background."""
    rng = np.random.default_rng(2)
    (root / "video").mkdir(parents=True)
    for number in range(videos):
        video, seconds = f"v{number}", 2 * (pieces + 1)
        samples = "".join(f"{t / 10},{t % 7},{t % 11},9.8\n" for t in range(10 * seconds + 10))
        (root / f"{video}_acc.csv").write_text(f"time,x,y,z\n{samples}")
        (root / f"{video}_hr.csv").write_text(
            "time,hr\n" + "".join(f"{t},{70 + t % 9}\n" for t in range(seconds + 5))
        )
        spans = [(2 * i, 2 * i + 2, f"activity {i % 23}") for i in range(pieces)]
        labels = "".join(f"{start},{stop},{label}\n" for start, stop, label in spans)
        end = f"{2 * pieces},{2 * pieces + 2},background\n"
        (root / f"{video}_labels.csv").write_text(f"start,end,activity\n{labels}{end}")
        vectors = {f"{video}:{start}-{stop}": rng.normal(size=WIDTH) for start, stop, _ in spans}
        np.savez(root / "video" / f"{video}.npz", **vectors)  # pyright: ignore[reportArgumentType]


def write_ego_exo(root: Path) -> None:
    """14 people with 465 samples of 15 activities: seven have images, seven bracelets."""
    rng = np.random.default_rng(3)
    root.mkdir(parents=True)
    count = 14 * 465
    np.savez(
        root / "ego_exo.npz",
        x=rng.normal(size=(count, WIDTH)),
        y=np.arange(count) % 15,
        client=np.repeat([f"p{number:02d}" for number in range(14)], 465),
        modality=np.repeat([("image", "sensor")[number % 2] for number in range(14)], 465),
    )
