"""What FedVSSL's items are run on: which videos stand in for its datasets, and how large everything is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedaction.data.sources import CLIP_SOURCES
from fedaction.data.sources.base import data_root
from fedaction.federation.settings import RecipeError
from fedaction.papers.fedvssl.items import CENTRAL, DOWNSTREAM, EIGHT, FOUR, HMDB, IID, POOLED, SHORT, UCF
from fedaction.papers.item import ItemRow
from fedaction.papers.setting import Scale, Setting, find_videos, parse_scale, side_before_crop
from fedaction.training.evaluate_recipe import EvaluateSettings

KINETICS = "Kinetics-400"

_LONGER = 90 / 27
"""How many times as long the paper trains centrally as a federation takes."""
_LAST_RATE = 0.01
"""Centralised: the learning rate of the end, as a share of the first."""

# Pretraining. The paper's clients train with SGD alone, the centralised network with momentum and larger batches. At
# the small scale, which is the recipe fedvssl/stage, a client takes few steps: without momentum CtP would answer 0 to
# the end, and in half the rounds of half the epochs it only begins to learn.
_RUN: dict[Scale, dict[str, Any]] = {
    "tiny": {
        **{"rounds": 2, "clients_per_round": 2, "batch_size": 4, "models_every": 1},
        **{"clip_frames": 4, "clip_size": 16, "model_width": 2, "evaluate_every": 10},
    },
    "small": {
        **{"rounds": 1200, "clients_per_round": 5, "batch_size": 28, "models_every": 100},
        **{"local_epochs": 16, "lr": 0.1, "momentum": 0.9},
        **{"clip_frames": 8, "clip_size": 32, "model_width": 16, "evaluate_every": 1200, "checkpoint_every": 50},
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
_POOLED_BATCH = {"tiny": 32, "small": 112, "paper": 32}

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

# Downstream. The paper's are the defaults. At the small scale, that of the recipe fedvssl/evaluate, clips are as fast
# as CtP's are on average; every network keeps the strides that it was trained with (of 32 x 32 pixels the standard
# ones would leave CtP's a map of 2 x 2, and it has learnt on 4 x 4); and fine-tuning is long enough for any start.
_EVALUATE: dict[Scale, dict[str, Any]] = {
    "tiny": {"clips": 1, "probe_epochs": 1, "finetune_epochs": 1, "batch_size": 16, "perturb_draws": 1},
    "small": {
        **{"clips": 4, "clip_stride": 3, "strides": "own"},
        **{"finetune_stride": 3, "finetune_epochs": 480, "finetune_lr": 0.05},
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
_WIDE = "the stage's wide domain (its labels unused)"
_STAND_INS = {KINETICS: _WIDE, UCF: "its hall domain", HMDB: "its home domain"}
AIRTLAB = ("airtlab", "airtlab_violence", "airtlab_violence_small")
"""What its folder may be called."""
REFUSED = {
    **dict.fromkeys(
        ("protocols", "probe_clips", "perturb", "perturb_levels", "retrieval_ks"), "the columns of {} name it"
    ),
    **dict.fromkeys(("depth", "width", "stem", "crop"), "it follows from model_depth, model_width or clip_size"),
}
"""Keys of an evaluation that are not the user's here, and why."""
_FOLDERS = {KINETICS: "kinetics400", UCF: "ucf101", HMDB: "hmdb51"}


@dataclass(frozen=True)
class FedvsslSetting(Setting):
    """See `Setting`; positions are those of the datasets that networks are evaluated on."""

    divisions: Mapping[str, Mapping[str, Any]]
    """Recipe keys of each way to divide the recordings among clients."""
    evaluation: Mapping[str, Any]
    """Keys that all evaluations share."""
    downstream: Mapping[str, Mapping[str, Any]]
    """Evaluation keys of each dataset that networks are evaluated on."""
    stand_ins: Mapping[str, str]
    """What each of the paper's datasets is replaced by."""

    def row_keys(self, row: ItemRow) -> Mapping[str, Any] | None:
        """See `Setting`."""
        if row.data not in self.divisions:
            return None
        central = {**_CENTRALLY, "batch_size": _POOLED_BATCH[self.scale]} if row.method == CENTRAL else {}
        vcop = {"lr": self.base["lr"] / 10} if row.overrides.get("pretext") == "vcop" else {}  # as in the paper
        return {**self.divisions[row.data], **central, **vcop}

    def derived_keys(self, row: ItemRow, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Setting`: centralised epochs are as many as the federation's rounds are worth, or 90 for 27."""
        if row.method != CENTRAL:
            return {}
        values = {**self.base, **self.source, **given}
        rounds, participants = values["rounds"], values["clients_per_round"]
        clients = values.get("stage_clients") or values.get("video_clients")
        if not all(isinstance(value, int) for value in (rounds, participants, clients, values["local_epochs"])):
            return {}  # the recipe's own check says what is wrong
        worth = rounds * values["local_epochs"] * (participants or clients) / clients
        epochs = max(1, round(worth if row.data == SHORT else worth * _LONGER))
        return {"rounds": epochs, "lr_decay": given.get("lr_decay", round(_LAST_RATE ** (1 / epochs), 6))}

    def evaluation_keys(self) -> set[str]:
        """Keys of `fedaction evaluate` that a user may set: those that item, run and `--data` do not decide."""
        sources = [CLIP_SOURCES[keys.get("data", "stage_video")] for keys in self.downstream.values()]
        known = {key for kind in (EvaluateSettings, *sources) for key in kind.model_fields}
        return known - {*REFUSED, "name", "seeds", "data", "stage_domain", "video_set", "video_root"}


def fedvssl_setting(data: str, scale: str) -> FedvsslSetting:
    """What the command's `--data` and `--scale` mean for FedVSSL. Raises RecipeError with a message for people."""
    size = parse_scale(scale)
    if data == "stage":
        alone = {"stage_clients": 1, "stage_heterogeneity": 0.0, **_FOOTAGE[size]}
        footage = {UCF: {"stage_domain": "hall", **alone}, HMDB: {"stage_domain": "home", **alone}}
        return _setting(data, size, "the synthetic stage", footage, _STAND_INS)
    if data == "real":
        names = {**_STAND_INS, UCF: "UTD-MHAD depth, tested on other people", HMDB: "AIRTLab, single actions"}
        root = data_root("", "", ("utd_mhad", "airtlab"))
        airtlab = next((root / name for name in AIRTLAB if (root / name).is_dir()), root / AIRTLAB[0])
        sets = {
            UCF: {"video_set": "utd_depth", "video_root": str(root / "utd_mhad")},
            HMDB: {"video_set": "airtlab", "video_task": "action", "video_root": str(airtlab)},
        }
        about = "real recordings: UTD-MHAD depth, AIRTLab; pretraining is on the synthetic stage"
        return _setting(data, size, about, _videos(size, sets), names)
    return _folder(data, size)


def _folder(data: str, scale: Scale) -> FedvsslSetting:
    """The paper's own datasets below a folder."""
    videos = find_videos(data, _FOLDERS)
    sets = {name: videos[name] for name in DOWNSTREAM if name in videos}
    if not sets:
        raise RecipeError(f"--data {data} holds neither ucf101 nor hmdb51, on which networks are evaluated")
    names = {name: f"{name} itself" for name in videos}
    about = f"the paper's datasets: {', '.join(videos)}"
    if KINETICS not in videos:
        about += "; pretraining is on the synthetic stage"
        names = {KINETICS: _WIDE, **names}
    return _setting(data, scale, about, _videos(scale, sets), names, videos.get(KINETICS))


def _videos(scale: Scale, sets: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    side = side_before_crop(_RUN[scale]["clip_size"])
    return {name: {"data": "video", "video_side": side, **own} for name, own in sets.items()}


def _setting(
    data: str,
    scale: Scale,
    about: str,
    downstream: Mapping[str, Mapping[str, Any]],
    names: Mapping[str, str],
    phones: Mapping[str, Any] | None = None,
) -> FedvsslSetting:
    """`phones`: keys of the videos to pretrain on, in place of the stage's."""
    classes = {EIGHT: 2, FOUR: 1} if scale == "tiny" else {EIGHT: 8, FOUR: 4}  # of a client
    source: dict[str, Any] = {"data": "stage_video", "stage_domain": "wide", **_PHONES[scale]}
    iid: dict[str, Any] = {"stage_iid": True}
    divisions = {name: {"stage_classes": count} for name, count in classes.items()}
    if phones:
        side, clients = side_before_crop(_RUN[scale]["clip_size"]), _PHONES[scale]["stage_clients"]
        source = {"data": "video", "frames": _PHONES[scale]["frames"], "video_clients": clients, **phones}
        source |= {"video_side": side, "video_test_clips": 1}
        iid = {"video_by": "equal"}
        divisions = {name: {"video_by": "classes", "video_classes": count} for name, count in classes.items()}
    return FedvsslSetting(
        data,
        scale,
        about,
        base={**_SHARED, **_RUN[scale]},
        source=source,
        positions=tuple(place for place, name in enumerate(DOWNSTREAM) if name in downstream),
        # Pooled all the same; but tests and Figure 2 show a client's recordings, which must be those of FedAvg's.
        divisions={IID: iid, **divisions, POOLED: divisions[EIGHT], SHORT: divisions[EIGHT]},
        evaluation={"probe_clips": "both", **_EVALUATE[scale]},
        downstream=downstream,
        stand_ins=names,
    )
