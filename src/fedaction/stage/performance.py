"""Performances: actions done by actors, as every joint's position over time.

A performance is a script, numbers that fix the motion at every instant. All views of it (skeletons, inertial signals,
video, sound) read the same script at their own rates, so they agree in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fedaction.federation.seeds import derive, numpy_generator
from fedaction.stage.actions import ACTIONS
from fedaction.stage.actors import CHANNEL_SPREAD, Actor, style
from fedaction.stage.body import BODY, Floats, joint_positions, measures, place
from fedaction.stage.pose import CHANNELS, MEASURES, unit_of
from fedaction.stage.score import SCORE

_FIDGETS = 3  # slow idle movements in every performance
_BATCH = 128  # performances computed at once: large enough for NumPy, small enough for the cache

_UNIT = np.array([MEASURES.index(unit_of(channel)) for channel in CHANNELS])
_HIPS, _LEAN, _NOD = (CHANNELS.index(c) for c in ("hips.height", "lean", "nod"))
_STANCE = [CHANNELS.index(f"{side}_foot.out") for side in ("right", "left")]
_ELBOWS = [CHANNELS.index(f"{side}.elbow") for side in ("right", "left")]
_STILL = np.array([c.startswith(("travel.", "right_foot.", "left_foot.")) or c == "hips.height" for c in CHANNELS])


@dataclass(frozen=True)
class Script:
    """What N performances do at every instant. Times are in seconds, lengths in metres, angles in radians."""

    action: NDArray[np.int64]  # (N,) numbers in ACTIONS
    bones: Floats  # (N, B) segment lengths
    start: Floats  # (N,) when the action begins
    span: Floats  # (N,) how long it takes
    warp: Floats  # (N,) uneven progress, in (-1, 1)
    pause: Floats  # (N, 2) when the performer hesitates and for how long
    repeats: Floats  # (N,) passes through the action's loop
    cycles: Floats  # (N,) cycles of the swings
    snap: Floats  # (N,) brisk moves between poses (1: even)
    mirrored: NDArray[np.bool_]  # (N,) done with the other hand
    facing: Floats  # (N,) angle of the body to the left of forward
    spot: Floats  # (N, 2) standpoint
    pose: Floats  # (N, C) first key pose
    # (N, M, C) differences of following poses, then swings, then detours between poses, then idle movements
    moves: Floats
    idle: Floats  # (N, F, 2) rate in hertz and phase in turns of the idle movements

    def __getitem__(self, which: slice | NDArray[np.integer]) -> Script:
        return Script(**{f.name: getattr(self, f.name)[which] for f in fields(self)})


@dataclass(frozen=True)
class Performance:
    """N performances."""

    positions: NDArray[np.float32]  # (N, T, J, 3) float32 metres, joints as in `BODY`; y is up, the floor is y = 0
    seconds: float  # length of the clip; frame i is at i * seconds / T
    actors: tuple[Actor, ...]  # who performs each
    keys: tuple[int, ...]  # each performance's own seed; views derive their noise from it
    script: Script  # what `at` evaluates

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, which: slice) -> Performance:
        return replace(
            self,
            positions=self.positions[which],
            actors=self.actors[which],
            keys=self.keys[which],
            script=self.script[which],
        )

    def at(self, frames: int, dtype: DTypeLike = np.float32) -> Floats:
        """The same motion at another rate: (N, frames, J, 3) metres, frame i at i * seconds / frames."""
        if frames == self.positions.shape[1] and dtype == self.positions.dtype:
            return self.positions
        return act(self.script, np.arange(frames) * (self.seconds / frames), dtype)


def perform(
    actions: ArrayLike,
    actors: Sequence[Actor],
    seed: int,
    frames: int = 50,
    *,
    seconds: float = 4.0,
    takes: ArrayLike | None = None,
) -> Performance:
    """Performs (N,) actions, by number, by N actors. A performance depends on its action, actor and take only.

    Of `seconds`, the length of the clip, the action starts early; slow performers may not finish. (N,) `takes`
    tell repeated performances apart; 0 to N - 1 by default.
    """
    number = np.asarray(actions, np.int64)
    take = np.arange(len(number)) if takes is None else np.asarray(takes, np.int64)
    if number.ndim != 1 or len(number) != len(actors) or take.shape != number.shape:
        raise ValueError(
            f"perform needs as many actions, actors and takes; got {number.shape}, {len(actors)}, {take.shape}"
        )
    if len(number) and not 0 <= number.min() <= number.max() < len(ACTIONS):
        raise ValueError(f"action numbers run from 0 to {len(ACTIONS) - 1}; got {number.min()} to {number.max()}")
    if frames < 2 or seconds <= 0.0:
        raise ValueError(f"a clip needs at least 2 frames and some length; got {frames} frames, {seconds} s")
    keys = tuple(
        derive(seed, "take", who.seed, int(a), int(t)) for who, a, t in zip(actors, number, take, strict=True)
    )
    script = _write_script(number, actors, keys, seconds)
    positions = act(script, np.arange(frames) * (seconds / frames), np.float32)
    return Performance(positions.astype(np.float32, copy=False), seconds, tuple(actors), keys, script)


def _write_script(
    number: NDArray[np.int64], actors: Sequence[Actor], keys: tuple[int, ...], seconds: float
) -> Script:
    count, key_count = len(number), SCORE.moments.shape[1]
    normal = np.empty((count, key_count + _FIDGETS, len(CHANNELS)), np.float32)
    uniform = np.empty((count, 14 + 2 * _FIDGETS))
    own = np.empty((count, len(CHANNELS)), np.float32)
    pace, taste = np.empty(count), np.empty(count)
    for i, (key, who) in enumerate(zip(keys, actors, strict=True)):
        rng = numpy_generator(key)
        rng.standard_normal(dtype=np.float32, out=normal[i])
        rng.random(out=uniform[i])
        own[i], pace[i], taste[i] = style(who.seed, ACTIONS[number[i]].name)

    def habit(name: str) -> Floats:
        return np.array([getattr(who, name) for who in actors], np.float64)

    bones = np.array([who.bones for who in actors], np.float64).reshape(count, -1)
    size = measures(bones)
    u = uniform.T
    spread = habit("spread")

    span = SCORE.seconds[number] * pace * np.exp(0.2 * (u[0] - 0.5)) / habit("tempo")
    span = np.clip(span, 0.3 * seconds, 1.1 * seconds)
    least, most = SCORE.repeats[number].T
    repeats = np.minimum(least + np.floor((0.5 * taste + 0.5 * u[1]) * (most - least + 1)), most).astype(np.float64)
    span = np.minimum(span * (1.0 + 0.35 * (repeats - least)), 1.1 * seconds)
    start = u[2] * np.maximum(0.25 * seconds, 0.9 * (seconds - span))
    start = np.where(u[3] < 0.12, 0.0, start)  # now and then the clip was cut tight

    pose, moves = _resolve(number, size, habit("amplitude") * np.exp(0.16 * (u[4] - 0.5)))
    unit = size[:, _UNIT].astype(np.float32) * CHANNEL_SPREAD * spread.astype(np.float32)[:, None]
    pose[:, _LEAN] += habit("stoop")
    pose[:, _NOD] -= 0.5 * habit("stoop")
    pose[:, _HIPS] -= habit("knees") * size[:, MEASURES.index("leg")]
    pose[:, _STANCE] += (habit("stance") * size[:, MEASURES.index("leg")])[:, None]
    pose[:, _ELBOWS] += habit("carry")[:, None]
    # A hand that has a goal to touch strays less from the table than one that is free.
    free = 0.3 + 0.7 * SCORE.loose[number]
    # A loop must end in the very pose in which it began, or the body would jump.
    stray = np.take_along_axis(normal[:, :key_count], SCORE.twin[number][..., None], axis=1)
    wobble = (own[:, None, :] + 0.6 * stray) * free * unit[:, None, :]
    pose += wobble[:, 0]
    moves[:, : key_count - 1] += np.diff(wobble, axis=1)
    arcs = _arcs(pose, moves[:, : key_count - 1], size[:, MEASURES.index("arm")])
    fidgets = 0.22 * normal[:, key_count:] * unit[:, None, :] * habit("sway").astype(np.float32)[:, None, None]
    fidgets[..., _STILL] = 0.0
    left_handed = habit("left_handed") > 0.5
    return Script(
        action=number,
        bones=bones,
        start=start,
        span=span,
        warp=1.0 * (u[5] - 0.5),
        pause=np.stack([start + u[6] * span, 2.0 * habit("hesitation") * u[7] ** 2], axis=1),
        repeats=repeats,
        cycles=SCORE.cycles[number] * habit("rhythm") * np.exp(0.2 * (u[8] - 0.5)),
        snap=habit("snap"),
        mirrored=left_handed ^ (u[9] < habit("off_hand")),
        facing=0.8 * (u[10] - 0.5) + 0.4 * (u[11] - 0.5),
        spot=0.5 * (uniform[:, 12:14] - 0.5),
        pose=pose,
        moves=np.concatenate([moves, arcs, fidgets], axis=1),
        idle=np.stack([0.15 + 0.5 * uniform[:, 14 : 14 + _FIDGETS], uniform[:, 14 + _FIDGETS :]], axis=2),
    )


def _resolve(number: NDArray[np.int64], size: Floats, amplitude: Floats) -> tuple[Floats, Floats]:
    """Key poses and swings for given bodies: the first pose (N, C), then moves (N, K - 1 + S, C)."""
    own = size.astype(np.float32)[:, None, :, None]  # N, 1, measures, 1
    gain = amplitude.astype(np.float32)[:, None, None]
    poses = (SCORE.poses[number] @ own)[..., 0]  # N, K, C
    rest = (SCORE.rest @ own)[..., 0]  # N, 1, C
    poses = poses + SCORE.loose[number] * (gain - 1.0) * (poses - rest)
    swings = (SCORE.swings[number] @ own)[..., 0] * gain
    return poses[:, 0], np.concatenate([np.diff(poses, axis=1), swings], axis=1)


def _arcs(pose: Floats, moves: Floats, arm: Floats) -> Floats:
    """Detours of the hands halfway between poses, (N, K - 1, C).

    On the straight line from the hip to the head a hand would pass through its own shoulder, where the elbow has
    nowhere to go. People take it around, to the front and side.
    """
    arcs = np.zeros_like(moves)
    ends = np.concatenate([pose[:, None, :], pose[:, None, :] + np.cumsum(moves, axis=1)], axis=1)
    for side in ("right", "left"):
        hand = [CHANNELS.index(f"{side}.{part}") for part in ("out", "up", "forward")]
        start, path = ends[:, :-1, hand], moves[..., hand]
        nearest = np.clip(-(start * path).sum(-1) / ((path * path).sum(-1) + 1e-9), 0.0, 1.0)
        close = np.linalg.norm(start + nearest[..., None] * path, axis=-1)
        lack = np.maximum(0.5 * arm[:, None] - close, 0.0) * np.minimum(8.0 * nearest * (1.0 - nearest), 1.2)
        arcs[..., hand[0]], arcs[..., hand[2]] = 0.5 * lack, 0.85 * lack
    return arcs


def act(script: Script, times: Floats, dtype: DTypeLike) -> Floats:
    """Every joint at given times in seconds: (N, len(times), J, 3) metres."""
    count = len(script.action)
    # Coordinates first in memory, as they are computed; callers see the usual order of axes.
    out = np.empty((len(BODY), 3, count, len(times)), dtype)
    for first in range(0, count, _BATCH):
        part = script[first : first + _BATCH]
        channels = _channels(part, times, dtype)
        body = joint_positions(channels, part.bones)
        out[:, :, first : first + _BATCH] = place(body, channels, part.mirrored, part.facing, part.spot)
    return np.moveaxis(out, (0, 1), (2, 3))


def _ease(u: Floats) -> Floats:
    """From 0 to 1 without a jump in speed or acceleration."""
    return u * u * u * (u * (6.0 * u - 15.0) + 10.0)


def progress(script: Script, times: Floats) -> Floats:
    """How much of the action is done at each time: (N, T) from 0 to 1."""
    when, length = script.pause[:, :1], np.maximum(script.pause[:, 1:], 1e-3)
    t = times[None, :] - length * _ease(np.clip((times[None, :] - when) / (2.5 * length), 0.0, 1.0))
    s = np.clip((t - script.start[:, None]) / script.span[:, None], 0.0, 1.0)
    return s + script.warp[:, None] * np.sin(2.0 * np.pi * s) / (2.0 * np.pi)


def moment(script: Script, s: Floats) -> Floats:
    """Where progress `s` (N, T) is on the time axis of the key poses, loops included."""
    first, last = SCORE.loops[script.action].T[..., None]
    length = last - first
    extra = (script.repeats[:, None] - 1.0) * length
    run = s * (1.0 + extra)
    inside = first + np.mod(run - first, np.maximum(length, 1e-9))
    return np.where(run < first, run, np.where(run < last + extra, inside, run - extra))


def _channels(script: Script, times: Floats, dtype: DTypeLike) -> Floats:
    """Channel values (C, N, T)."""
    # Where the action is at each time is found exactly; what follows is as exact as the caller asks.
    s = progress(script, times)
    m = moment(script, s).astype(dtype)[..., None]  # N, T, 1
    s = s.astype(dtype)
    moments = SCORE.moments[script.action].astype(dtype)[:, None, :]  # N, 1, K
    u = (m - moments[..., :-1]) / np.diff(moments, axis=2)
    eased = _ease(np.clip(0.5 + (u - 0.5) * script.snap.astype(dtype)[:, None, None], 0.0, 1.0))
    poses = np.where(SCORE.steady[script.action][:, None, None], np.clip(u, 0.0, 1.0), eased)

    first, last = SCORE.during[script.action].T.astype(dtype)[..., None]
    inside = np.clip((s - first) / np.maximum(last - first, 1e-6), 0.0, 1.0)
    fade = np.clip(np.minimum(s - first, last - s) / 0.05 + 0.2, 0.0, 1.0)
    rate = (2.0 * np.pi * script.cycles[:, None] * SCORE.times[script.action]).astype(dtype)[:, None, :]
    begin = (2.0 * np.pi * SCORE.beats[script.action]).astype(dtype)[:, None, :]
    wave = np.sin(inside[..., None] * rate + begin)
    shape = SCORE.shapes[script.action][:, None, :]
    wave = np.where(shape == 1, np.maximum(wave, 0.0), np.where(shape == 2, np.abs(wave), wave))
    wave *= _ease(fade)[..., None]

    turns = times[None, :, None] * script.idle[:, None, :, 0] + script.idle[:, None, :, 1]
    idle = np.sin((2.0 * np.pi * turns).astype(dtype))
    weights = np.concatenate([poses, wave, 4.0 * poses * (1.0 - poses), idle], axis=2)  # N, T, M
    values = weights @ script.moves.astype(dtype) + script.pose[:, None, :].astype(dtype)
    return np.ascontiguousarray(np.moveaxis(values, 2, 0))
