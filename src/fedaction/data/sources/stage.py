"""The embedded world: skeletons, and cameras."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from fedaction.data.client import ClientData
from fedaction.data.clips.clips import join
from fedaction.data.inputs import skeleton_input
from fedaction.data.layout import LAYOUTS
from fedaction.data.preprocess import normalise
from fedaction.data.samples import in_memory
from fedaction.data.sources.base import MOST_MADE_BYTES, ClipSource, SequenceSource, Tell, check_made
from fedaction.federation.settings import HOW
from fedaction.stage import VERSION, stage_federation
from fedaction.stage.footage import stage_video
from fedaction.stage.scene import DOMAINS


class StageSource(SequenceSource):
    """The embedded world: synthetic actors, any number of clients, nothing to download."""

    stage_clients: int = Field(5, ge=1, le=100_000)
    """How many clients."""
    stage_layouts: tuple[str, ...] = ("kinect_v2",)
    """Skeleton layouts, dealt to the clients in turn."""
    stage_train: tuple[int, ...] = (120,)
    """Training samples per client, dealt in turn."""
    stage_test: int = Field(80, ge=1)
    """Test samples per client."""
    stage_actions: tuple[int, ...] = (12,)
    """How many actions a client labels, dealt in turn."""
    stage_heterogeneity: float = Field(1.0, ge=0)
    """How much clients differ in people, habits, cameras and sensors; 0: not at all."""
    stage_noise: float = Field(1.0, ge=0)
    """Sensor noise and drop-outs; 1 is a consumer depth camera, 0 none."""

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        given, last = self.stage_train or (0,), self.stage_clients % len(self.stage_train or (0,))
        count = self.stage_clients // len(given) * sum(given) + sum(given[:last])
        joints = max((len(LAYOUTS[name]) for name in self.stage_layouts if name in LAYOUTS), default=0)
        check_made(count + self.stage_clients * self.stage_test, 0, self.frames * joints * 12)
        raw = stage_federation(
            clients=self.stage_clients,
            layouts=self.stage_layouts,
            train=self.stage_train,
            test=self.stage_test,
            actions=self.stage_actions,
            seed=seed,
            frames=self.frames,
            heterogeneity=self.stage_heterogeneity,
            noise=self.stage_noise,
            progress=tell,
        )
        return [_normalise(client, self.align) for client in raw]

    def fingerprint(self, seed: int) -> dict[str, str]:
        """See `Source.fingerprint`: the keys and the seed decide what a version of the stage makes."""
        return {"the stage": f"version {VERSION}"}


class StageVideoSource(ClipSource):
    """The embedded world, filmed: cameras with their own people, rooms and views; test people are others."""

    frames: int = Field(8, ge=1, le=1000)
    """Frames of a clip; where a method or an evaluation cuts clips from these (clip_frames), of a recording."""
    stage_domain: Literal["wide", "home", "hall"] = "home"
    """wide: the most actions, people, places and views; home, hall: smaller worlds with some actions of their own."""
    stage_clients: int = Field(4, ge=1, le=10_000)
    """How many cameras."""
    stage_train: int = Field(20, ge=1)
    """Recordings of each action for training, at all clients together, on average."""
    stage_test: int = Field(8, ge=1)
    """Recordings of each action for test, likewise."""
    stage_clips: int = Field(1, ge=1)
    """Clips of each recording."""
    stage_actions: int = Field(0, ge=0)
    """How many of the domain's actions; 0: all."""
    stage_people: int = Field(4, ge=1)
    """People at each client who are recorded for training."""
    stage_test_people: int = Field(2, ge=1)
    """Other people at each client, for test."""
    stage_iid: bool = False
    """Whether recordings are dealt to the clients at random, whosever they are."""
    stage_classes: int = Field(0, ge=0)
    """Deal recordings so that each client has so many of the actions; 0: each camera has its own."""
    stage_overlapping: bool = False
    """With stage_classes: the division that FedVSSL's authors released, in which clients share recordings."""
    stage_heterogeneity: float = Field(0.5, ge=0, le=1)
    """How much clients differ in rooms, views, light and in which actions are common."""
    stage_variety: float = Field(1.0, ge=0, le=2)
    """How strongly recordings differ; 0 is a plain studio."""
    stage_seconds: float = Field(0.3, gt=0, le=10)
    """Seconds from one frame of a clip to the next; an action takes 2 to 4."""
    stage_size: int = Field(64, ge=16, le=512)
    """Rows and columns of a frame, in pixels."""
    stage_cache: str = Field("", json_schema_extra=HOW)
    """Folder where clips are kept once made; empty: FEDACTION_CACHE, else ~/.cache/fedaction."""
    stage_workers: int = Field(0, ge=0, json_schema_extra=HOW)
    """Processes that film; 0: one for each core."""

    @property
    def clip(self) -> tuple[int, int]:
        """See `Source.clip`; as of a video with 30 frames a second."""
        return max(1, round(30 * self.stage_seconds)), self.stage_size

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        names = DOMAINS[self.stage_domain].actions
        kinds = min(self.stage_actions, len(names)) or len(names)
        recordings = kinds * (self.stage_train + self.stage_test)
        people = self.stage_clients * (self.stage_people + self.stage_test_people)
        pixels = self.stage_clips * self.frames * self.stage_size**2 * 3
        check_made(recordings, people, pixels, 4 * MOST_MADE_BYTES)
        clients = stage_video(
            domain=self.stage_domain,
            clients=self.stage_clients,
            actions=names[: self.stage_actions or None],
            recordings=self.stage_train,
            test_recordings=self.stage_test,
            clips=self.stage_clips,
            people=self.stage_people,
            test_people=self.stage_test_people,
            iid=self.stage_iid,
            each=self.stage_classes,
            overlapping=self.stage_overlapping,
            frames=self.frames,
            stride=self.stage_seconds,
            size=self.stage_size,
            seed=seed,
            variety=self.stage_variety,
            heterogeneity=self.stage_heterogeneity,
            cache=self.stage_cache or None,
            workers=self.stage_workers,
            progress=tell,
        )
        return [self.describe(client) for client in clients]

    def fingerprint(self, seed: int) -> dict[str, str]:
        """See `Source.fingerprint`: the keys and the seed decide what a version of the stage makes."""
        return {"the stage": f"version {VERSION}"}

    def pool(self, seed: int, tell: Tell | None = None, *, whole: bool = False) -> ClientData:
        """See `ClipSource.pool`: what was filmed is as long as it is."""
        clients = self.load(seed, tell)
        train, test = join([client.train for client in clients]), join([client.test for client in clients])
        return ClientData(replace(clients[0].info, id=self.stage_domain, samples=len(train)), train, test)


def _normalise(client: ClientData, align: bool) -> ClientData:
    layout = client.info.layout
    assert layout is not None
    train, test = (replace(s, x=normalise(s.x, layout, align)) for s in map(in_memory, (client.train, client.test)))
    return replace(client, train=train, test=test, input=skeleton_input(layout, train.shape, align))
