"""What a microphone in the room records: steps, claps, touches, at the instants when the motion makes them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedaction.federation.seeds import numpy_generator
from fedaction.stage.actions import ACTIONS
from fedaction.stage.body import BODY, Floats
from fedaction.stage.performance import Performance, moment, progress

_RATE = 200  # hertz at which the motion is searched for contacts

# Kind: (loudness, pitch in hertz, decay in seconds, share of hiss against tone).
_VOICES: dict[str, tuple[float, float, float, float]] = {
    "step": (0.35, 95.0, 0.050, 0.35),
    "clap": (0.80, 1100.0, 0.018, 0.85),
    "touch": (0.45, 420.0, 0.035, 0.50),
    "thud": (0.90, 60.0, 0.120, 0.30),
}


def contacts(performance: Performance) -> list[list[tuple[float, str, float]]]:
    """For each performance its contacts, in order: (seconds, kind, speed of the impact in m/s).

    Steps, claps and thuds are found from the motion: a foot or the hips come down to the ground, two hands meet.
    Touches of things that are not drawn come from the action's own table.
    """
    samples = round(performance.seconds * _RATE)
    track = performance.at(samples)
    impacts: list[list[tuple[float, str, float]]] = [[] for _ in range(len(performance))]

    def add(distance: Floats, kind: str, touch: Floats, least: float) -> None:
        """An impact: a distance (N, T') comes within `touch` at `least` m/s or more, and then stops."""
        speed = -np.diff(distance, axis=1) * _RATE
        near = distance < touch[:, None]
        for i, j in zip(*np.nonzero(near[:, 1:] & ~near[:, :-1] & (speed > least)), strict=True):
            # The distance has closed for good when most of the speed is gone.
            ended = np.nonzero(speed[i, j:] < 0.25 * speed[i, j])[0]
            if len(ended):
                impacts[i].append((float((j + ended[0]) / _RATE), kind, float(speed[i, j])))

    heights = {joint: track[:, :, BODY.index(joint), 1] for joint in ("left_foot", "right_foot", "spine_base")}
    for side in ("left", "right"):
        foot = heights[f"{side}_foot"]
        add(foot, "step", np.percentile(foot, 10, axis=1) + 0.025, 0.15)
    hands = track[:, :, BODY.index("left_hand")] - track[:, :, BODY.index("right_hand")]
    add(np.sqrt((hands * hands).sum(-1)), "clap", np.full(len(track), 0.16), 0.4)
    add(heights["spine_base"], "thud", np.full(len(track), 0.30), 0.3)

    times = np.arange(samples) / _RATE
    when = moment(performance.script, progress(performance.script, times))
    for i, number in enumerate(performance.script.action):
        for mark in ACTIONS[number].contacts:
            crossed = np.nonzero((when[i, :-1] < mark) & (when[i, 1:] >= mark))[0]
            impacts[i] += [(float(times[j + 1]), "touch", 1.0) for j in crossed]
    return [_merge(sorted(events)) for events in impacts]


def _merge(events: list[tuple[float, str, float]]) -> list[tuple[float, str, float]]:
    """Of impacts of one kind that follow each other too closely to tell apart, the strongest."""
    kept: list[tuple[float, str, float]] = []
    for event in events:
        last = next((k for k in range(len(kept) - 1, -1, -1) if kept[k][1] == event[1]), None)
        if last is None or event[0] - kept[last][0] > 0.12:
            kept.append(event)
        elif event[2] > kept[last][2]:
            kept[last] = event
    return sorted(kept)


def sound(
    performance: Performance, rate_hz: int = 16_000, seed: int = 0, *, room_noise: float = 1.0
) -> NDArray[np.float32]:
    """Sound of N performances: (N, S) within [-1, 1], S = seconds * rate_hz.

    The seed is that of the room's noise and of each impact's timbre; `room_noise` is 1 for a living room, 0 for
    silence.
    """
    samples = round(performance.seconds * rate_hz)
    out = np.zeros((len(performance), samples), np.float32)
    for i, events in enumerate(contacts(performance)):
        rng = numpy_generator(seed, "sound", performance.keys[i])
        hiss = rng.standard_normal(samples, np.float32)
        hum = np.cumsum(hiss) / np.sqrt(np.arange(1, samples + 1))
        out[i] = room_noise * (0.004 * hiss + 0.002 * hum)
        for time, kind, speed in events:
            loudness, pitch, decay, rough = _VOICES[kind]
            t = np.arange(min(round(6.0 * decay * rate_hz), samples - round(time * rate_hz))) / rate_hz
            pitch *= 0.85 + 0.3 * rng.random()
            tone = np.sin(2.0 * np.pi * pitch * t)
            burst = (1.0 - rough) * tone + 0.5 * rough * rng.standard_normal(len(t))
            begin = round(time * rate_hz)
            out[i, begin : begin + len(t)] += loudness * np.tanh(0.4 + 0.4 * speed) * burst * np.exp(-t / decay)
    return np.clip(out, -1.0, 1.0)
