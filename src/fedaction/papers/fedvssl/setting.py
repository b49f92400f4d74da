"""What FedVSSL's items are run on: which videos stand in for its datasets, and how large everything is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedaction.data.sources import CLIP_SOURCES
from fedaction.data.sources.base import data_root
from fedaction.federation.settings import RecipeError
from fedaction.papers.fedvssl.items import DOWNSTREAM, EIGHT, FOUR, HMDB, IID, POOLED, SHORT, UCF
from fedaction.papers.setting import Scale, Setting, known_scale
from fedaction.training.evaluate_recipe import EvaluateSettings

KINETICS = "Kinetics-400"

_CENTRAL = 90 / 27
"""How many times as long the paper trains centrally as a federation takes."""
_LAST_RATE = 0.01
"""Centralised: the learning rate of the end, as a share of the first."""

# Pretraining. The paper's clients train with SGD alone, the centralised network with momentum and larger batches. At
# the small scale a client takes few steps: without momentum CtP would answer 0 to the end.
_RUN: dict[Scale, dict[str, Any]] = {
    "tiny": {
        **{"rounds": 2, "clients_per_round": 2, "batch_size": 4, "models_every": 1},
        **{"clip_frames": 4, "clip_size": 16, "model_width": 2, "evaluate_every": 10},
    },
    "small": {
        **{"rounds": 600, "clients_per_round": 5, "batch_size": 28, "models_every": 100},
        **{"local_epochs": 8, "lr": 0.1, "momentum": 0.9},
        **{"clip_frames": 8, "clip_size": 32, "model_width": 16, "evaluate_every": 1000, "checkpoint_every": 100},
    },
    "paper": {
        **{"rounds": 540, "clients_per_round": 5, "batch_size": 4, "models_every": 20},
        **{"clip_frames": 16, "clip_size": 112, "model_width": 64, "evaluate_every": 180, "checkpoint_every": 20},
    },
}
_SHARED: dict[str, Any] = {
    **{"lr": 0.01, "momentum": 0.0, "weight_decay": 1e-4, "clip_norm": 40.0, "local_epochs": 1},
    **{"update_distances": True, "report_samples": 0, "record_step": True},
}
_CENTRALLY: dict[str, Any] = {
    **{"momentum": 0.9, "clients_per_round": 0, "local_epochs": 1},
    **{"models_every": 0, "checkpoint_every": 5},
}
_POOLED: dict[Scale, dict[str, Any]] = {
    "tiny": {"batch_size": 32},
    "small": {"batch_size": 112},
    "paper": {"batch_size": 32},
}

# The stage's recordings for pretraining. A hundred phones with 8 of 28 actions each want 29 test recordings of each.
_PHONES: dict[Scale, dict[str, Any]] = {
    "tiny": {
        **{"stage_clients": 4, "stage_actions": 4, "stage_train": 4, "stage_test": 2, "stage_size": 20},
        **{"stage_people": 1, "stage_test_people": 1, "frames": 10, "stage_seconds": 0.2, "stage_variety": 0.2},
    },
    "small": {
        **{"stage_clients": 100, "stage_train": 100, "stage_test": 30, "stage_size": 40},
        **{"stage_people": 2, "stage_test_people": 1, "frames": 40, "stage_seconds": 0.1, "stage_variety": 0.5},
    },
    "paper": {
        **{"stage_clients": 100, "stage_train": 200, "stage_test": 30, "stage_size": 128},
        **{"stage_people": 2, "stage_test_people": 1, "frames": 64, "stage_seconds": 0.1},
    },
}
_CLASSES: dict[Scale, dict[str, int]] = {
    "tiny": {EIGHT: 2, FOUR: 1},
    "small": {EIGHT: 8, FOUR: 4},
    "paper": {EIGHT: 8, FOUR: 4},
}
"""How many classes a client has."""

# Downstream. The paper's are the defaults. At the small scale clips are as fast as CtP's are on average; of 32 x
# 32 pixels the standard strides would leave a map of 2 x 2; and in a few hundred steps a rate of 0.01 leads nowhere.
_EVALUATE: dict[Scale, dict[str, Any]] = {
    "tiny": {"clips": 1, "probe_epochs": 1, "finetune_epochs": 1, "batch_size": 16, "perturb_draws": 1},
    "small": {
        **{"clips": 4, "clip_stride": 3, "strides": "ctp"},
        **{"finetune_stride": 3, "finetune_epochs": 60, "finetune_lr": 0.05},
    },
    "paper": {},
}
# Recordings of each action, all in one place; people and views of the queries are others than the gallery's.
_FOOTAGE: dict[Scale, dict[str, Any]] = {
    "tiny": {
        **{"stage_train": 1, "stage_test": 1, "stage_people": 2, "stage_test_people": 2},
        **{"frames": 6, "stage_seconds": 0.2, "stage_size": 20, "stage_variety": 0.2},
    },
    "small": {
        **{"stage_train": 30, "stage_test": 60, "stage_people": 40, "stage_test_people": 40},
        **{"frames": 40, "stage_seconds": 0.1, "stage_size": 40, "stage_variety": 0.5},
    },
    "paper": {
        **{"stage_train": 70, "stage_test": 30, "stage_people": 100, "stage_test_people": 40},
        **{"frames": 40, "stage_seconds": 0.1, "stage_size": 128},
    },
}
_DOMAINS = {UCF: "hall", HMDB: "home"}
_STAND_INS = {
    KINETICS: "the stage's wide domain (its labels unused)",
    UCF: "its hall domain",
    HMDB: "its home domain",
}
AIRTLAB = ("airtlab", "airtlab_violence", "airtlab_violence_small")
"""What its folder may be called."""
NOT_EVALUATION = {
    **dict.fromkeys(("protocols", "perturb", "perturb_levels", "retrieval_ks"), "the columns of {} name it"),
    **dict.fromkeys(("depth", "width", "stem", "crop"), "it follows from model_depth, model_width or clip_size"),
}
"""Keys of an evaluation that are not the user's here, and why."""
_FOLDERS = {KINETICS: "kinetics400", UCF: "ucf101", HMDB: "hmdb51"}


def fedvssl_setting(data: str, scale: str) -> Setting:
    """What the command's `--data` and `--scale` mean for FedVSSL. Raises RecipeError with a message for people."""
    size = known_scale(scale)
    if data == "stage":
        return _setting(data, size, "the synthetic stage", _footage(size), _STAND_INS)
    if data == "real":
        names = {**_STAND_INS, UCF: "UTD-MHAD depth, tested on other people", HMDB: "AIRTLab, single actions"}
        root = data_root("", "", ("utd_mhad", "airtlab"))
        sets = {
            UCF: {"video_set": "utd_depth", "video_root": str(root / "utd_mhad")},
            HMDB: {"video_set": "airtlab", "video_task": "action", "video_root": str(_found(root, AIRTLAB))},
        }
        about = "real recordings: UTD-MHAD depth, AIRTLab; pretraining is on the synthetic stage"
        return _setting(data, size, about, _videos(size, sets), names)
    return _folder(data, size)


def schedule(setting: Setting, data: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Recipe keys of centralised training: as many epochs as the federation's rounds are worth, or 90 for 27.

    Args:
        setting: of the item.
        data: `POOLED` or `SHORT`.
        given: keys that the user has set for all rows.
    """
    values = {**setting.base, **setting.rest, **given}
    rounds, asked = values["rounds"], values["clients_per_round"]
    clients = values.get("stage_clients") or values.get("video_clients")
    if not all(isinstance(value, int) for value in (rounds, asked, clients, values["local_epochs"])):
        return {}  # the recipe's own check says what is wrong
    worth = rounds * values["local_epochs"] * (asked or clients) / clients
    epochs = max(1, round(worth if data == SHORT else worth * _CENTRAL))
    return {"rounds": epochs, "lr_decay": given.get("lr_decay", round(_LAST_RATE ** (1 / epochs), 6))}


def evaluation_keys(setting: Setting) -> set[str]:
    """Keys of `fedaction evaluate` that a user may set: those that the item, the run or `--data` does not decide."""
    sources = [CLIP_SOURCES[keys.get("data", "stage_video")] for keys in setting.downstream.values()]
    known = {key for kind in (EvaluateSettings, *sources) for key in kind.model_fields}
    return known - {*NOT_EVALUATION, "name", "seeds", "data", "stage_domain", "video_set", "video_root"}


def _folder(data: str, scale: Scale) -> Setting:
    """The paper's own datasets below a folder."""
    root = Path(data)
    if not root.is_dir():
        raise RecipeError(f"--data {data} is neither stage nor real nor a folder")
    there = {name: root / folder for name, folder in _FOLDERS.items() if (root / folder).is_dir()}
    if not {UCF, HMDB} & {*there}:
        raise RecipeError(f"--data {data} holds neither ucf101 nor hmdb51, on which networks are evaluated")
    sets = {
        name: {"video_set": _FOLDERS[name], "video_root": str(there[name])} for name in DOWNSTREAM if name in there
    }
    names = {name: f"{name} itself" for name in there}
    about = f"the paper's datasets: {', '.join(there)}"
    phones: dict[str, Any] = {}
    if KINETICS in there:
        phones = {"video_set": "kinetics400", "video_root": str(there[KINETICS])}
    else:
        about += "; pretraining is on the synthetic stage"
        names = {KINETICS: _STAND_INS[KINETICS], **names}
    return _setting(data, scale, about, _videos(scale, sets), names, phones)


def _found(root: Path, names: Sequence[str]) -> Path:
    return next((root / name for name in names if (root / name).is_dir()), root / names[0])


def _footage(scale: Scale) -> dict[str, dict[str, Any]]:
    alone = {"stage_clients": 1, "stage_heterogeneity": 0.0}
    return {name: {"stage_domain": domain, **alone, **_FOOTAGE[scale]} for name, domain in _DOMAINS.items()}


def _videos(scale: Scale, sets: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {"data": "video", "video_side": _side(scale), **own} for name, own in sets.items()}


def _side(scale: Scale) -> int:
    """The shorter side that videos are brought to before a square is cut: 128 for 112."""
    return round(_RUN[scale]["clip_size"] * 8 / 7)


def _setting(
    data: str,
    scale: Scale,
    about: str,
    downstream: Mapping[str, Mapping[str, Any]],
    names: Mapping[str, str],
    phones: Mapping[str, Any] | None = None,
) -> Setting:
    """`phones`: keys of the videos to pretrain on, in place of the stage's."""
    classes = _CLASSES[scale]
    rest: dict[str, Any] = {"data": "stage_video", "stage_domain": "wide", **_PHONES[scale]}
    iid: dict[str, Any] = {"stage_iid": True}
    divisions = {name: {"stage_classes": count} for name, count in classes.items()}
    if phones:
        side, clients = _side(scale), _PHONES[scale]["stage_clients"]
        rest = {"data": "video", "frames": _PHONES[scale]["frames"], "video_clients": clients, **phones}
        rest |= {"video_side": side, "video_test_clips": 1}
        iid = {"video_by": "equal"}
        divisions = {name: {"video_by": "classes", "video_classes": count} for name, count in classes.items()}
    base = {**_SHARED, **_RUN[scale]}
    return Setting(
        data,
        scale,
        about,
        base=base,
        positions=tuple(place for place, name in enumerate(DOWNSTREAM) if name in downstream),
        parts={},
        rest=rest,
        paper="fedvssl",
        methods={"centralvssl": {**_CENTRALLY, **_POOLED[scale]}},
        # Pooled all the same; but tests and Figure 2 show a client's recordings, which must be those of FedAvg's.
        datasets={IID: iid, **divisions, POOLED: divisions[EIGHT], SHORT: divisions[EIGHT]},
        models=_EVALUATE[scale],
        downstream=downstream,
        stand_ins=names,
        tasks={"vcop": {"lr": base["lr"] / 10}},  # as in the paper
    )
