"""The embedded world: articulated actors perform named actions, seen as skeletons, sensor signals, video and sound.

All of it is synthetic. It exists for demonstrations and tests, needs no download, and is a function of its seeds;
figures obtained on it say nothing about real people and must be labelled as synthetic wherever they are shown.
"""

from fedaction.stage.actions import ACTIONS, NAMES, number
from fedaction.stage.actors import ADULTS, CHILDREN, ELDERLY, Actor, Cohort, actor
from fedaction.stage.body import BODY
from fedaction.stage.federation import stage_federation
from fedaction.stage.microphone import contacts, sound
from fedaction.stage.performance import Performance, perform
from fedaction.stage.render import Shot, flow, image, video
from fedaction.stage.sensor import Sensor, skeletons
from fedaction.stage.wearable import MOUNTS, inertial

VERSION = 1
"""Raised whenever the same keys and seeds give other recordings: a run that was begun with another one is refused."""

__all__ = [
    "ACTIONS",
    "ADULTS",
    "BODY",
    "CHILDREN",
    "ELDERLY",
    "MOUNTS",
    "NAMES",
    "VERSION",
    "Actor",
    "Cohort",
    "Performance",
    "Sensor",
    "Shot",
    "actor",
    "contacts",
    "flow",
    "image",
    "inertial",
    "number",
    "perform",
    "skeletons",
    "sound",
    "stage_federation",
    "video",
]
