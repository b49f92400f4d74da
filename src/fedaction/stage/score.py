"""The action table as padded arrays, so that many different actions can be performed at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaction.stage.actions import ACTIONS
from fedaction.stage.pose import CHANNELS, MEASURES, REST, Action, Pose, unit_of

SHAPES = ("sine", "lift", "bounce")


@dataclass(frozen=True)
class Score:
    """Arrays over A actions, K key poses, S swings, C channels and the body measures."""

    seconds: NDArray[np.float64]  # (A,) usual durations
    moments: NDArray[np.float64]  # (A, K) times of the keys; padding keys lie beyond 1 and repeat the last pose
    twin: NDArray[np.int64]  # (A, K) for the last key of a loop the number of its first; for any other key its own
    poses: NDArray[np.float32]  # (A, K, C, measures) coefficients of the keys
    loose: NDArray[np.float32]  # (A, K, C) 1 where the size of gestures applies
    rest: NDArray[np.float32]  # (C, measures) coefficients of standing at rest
    swings: NDArray[np.float32]  # (A, S, C, measures) size of each swing, on the one channel that it moves
    beats: NDArray[np.float64]  # (A, S) start of each swing in its cycle
    times: NDArray[np.float64]  # (A, S) cycles for each cycle of the action
    shapes: NDArray[np.int64]  # (A, S) index into SHAPES
    cycles: NDArray[np.float64]  # (A,) cycles in the action
    during: NDArray[np.float64]  # (A, 2) first and last moment of the swings
    loops: NDArray[np.float64]  # (A, 2) first and last moment of the repeated part
    repeats: NDArray[np.int64]  # (A, 2) least and most repeats
    steady: NDArray[np.bool_]  # (A,) whether movement from key to key is even


def _coefficients(pose: Pose) -> NDArray[np.float32]:
    return np.array([pose[channel].measures for channel in CHANNELS], np.float32)


def write_score(actions: tuple[Action, ...]) -> Score:
    """The padded arrays of a table of actions."""
    count = len(actions)
    keys = max(len(a.keys) for a in actions)
    most = max(len(a.swings) for a in actions)
    moments = np.empty((count, keys))
    twin = np.tile(np.arange(keys), (count, 1))
    poses = np.empty((count, keys, len(CHANNELS), len(MEASURES)), np.float32)
    loose = np.empty((count, keys, len(CHANNELS)), np.float32)
    swings = np.zeros((count, most, len(CHANNELS), len(MEASURES)), np.float32)
    beats, times = np.zeros((count, most)), np.ones((count, most))
    shapes = np.zeros((count, most), np.int64)
    for i, action in enumerate(actions):
        for k in range(keys):
            moment, pose = action.keys[min(k, len(action.keys) - 1)]
            moments[i, k] = moment if k < len(action.keys) else 2.0 + k
            poses[i, k] = _coefficients(pose)
            loose[i, k] = [pose[channel].loose for channel in CHANNELS]
        if action.loop[0] < action.loop[1]:
            times_of_keys = [moment for moment, _ in action.keys]
            twin[i, times_of_keys.index(action.loop[1])] = times_of_keys.index(action.loop[0])
        for s, swing in enumerate(action.swings):
            swings[i, s, CHANNELS.index(swing.channel), MEASURES.index(unit_of(swing.channel))] = swing.size
            beats[i, s], times[i, s], shapes[i, s] = swing.beat, swing.times, SHAPES.index(swing.shape)
    return Score(
        seconds=np.array([a.seconds for a in actions]),
        moments=moments,
        twin=twin,
        poses=poses,
        loose=loose,
        rest=_coefficients(REST),
        swings=swings,
        beats=beats,
        times=times,
        shapes=shapes,
        cycles=np.array([a.cycles for a in actions]),
        during=np.array([a.during for a in actions]),
        loops=np.array([a.loop for a in actions]),
        repeats=np.array([a.repeats for a in actions]),
        steady=np.array([a.steady for a in actions]),
    )


SCORE: Score = write_score(ACTIONS)
