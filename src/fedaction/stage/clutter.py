"""What distracts from the performer: bystanders, things that cross the picture, screens, posts in front."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedaction.stage.actions import number
from fedaction.stage.actors import actor
from fedaction.stage.body import Floats
from fedaction.stage.capsules import Capsules, Paint
from fedaction.stage.performance import act, perform
from fedaction.stage.render import ENDS, RADII
from fedaction.stage.scene import Camera, Scene, between, rgb
from fedaction.stage.wardrobe import dress


def figure(joints: Floats, height: float, paint: Paint, thick: Floats, camera: Camera) -> Capsules:
    """A body of capsules, as a camera sees it.

    Joints are (F, J, 3) in metres, `height` is the person's in metres, and (limbs,) `thick` is relative to the
    usual.
    """
    flat, depth = camera.see(np.moveaxis(joints, 0, 1))  # 2, J, F and J, F
    far = depth[ENDS.T]  # 2 ends, limbs, F
    radii = camera.focal * (RADII * thick * height)[None, :, None] / far
    return Capsules(flat[:, ENDS.T], radii, far.mean(axis=0), paint)


def bystander(scene: Scene, camera: Camera, times: Floats) -> Capsules | None:
    """Somebody who stands or walks behind the performer, at (F,) times; None where there is nobody."""
    u = scene.random("bystander").random(9)
    strength = scene.variety.distractors
    if u[0] >= strength * scene.domain.bystanders:
        return None
    who = actor(scene.own, "bystander", scene.domain.cohort(u[1]))
    walks = u[2] < 0.5
    show = perform([number("walk" if walks else "salute")], [who], scene.own, 2, seconds=8.0)
    # Long before an action begins, people just stand.
    joints = act(show.script, times if walks else times - 60.0, np.float64)[0]
    turn, side = 2.0 * np.pi * u[3], np.sign(u[4] - 0.5)
    cos, sin = np.cos(turn), np.sin(turn)
    x, z = joints[..., 0], joints[..., 2]
    # Beside and behind, as seen from the camera.
    across, back = side * (0.5 + 1.5 * u[5]), 0.8 + 2.2 * u[6]
    cy, sy = np.cos(camera.yaw), np.sin(camera.yaw)
    placed = np.stack(
        [cos * x + sin * z + cy * across + sy * back, joints[..., 1], cos * z - sin * x + sy * across - cy * back],
        axis=-1,
    )
    paint, thick = dress(who.seed, scene.domain, scene.variety.clothing, u[7])
    return figure(placed, who.height, paint, thick, camera)


def crossing(scene: Scene, size: tuple[int, int], times: Floats, depth: float) -> Capsules | None:
    """Balls and bars that cross the picture, before or behind a performer at `depth` metres; None: there are none."""
    random = scene.random("crossing")
    u = random.random((4, 14))
    if u[0, 0] >= scene.variety.distractors * scene.domain.crossing:
        return None
    count = 1 + int(2.5 * u[0, 1])
    u = u[1 : 1 + count].T[..., None]  # 14, count, 1
    height, width = size
    lasts = 1.0 + 2.0 * u[2]
    begins = times.min() - 0.5 * lasts + u[3] * (np.ptp(times) + 0.5 * lasts)
    way = (times - begins) / lasts
    x = width * (-0.25 + 1.5 * np.where(u[4] < 0.5, way, 1.0 - way))
    y = height * (0.1 + 0.8 * u[5] - 0.25 * u[6] * np.abs(np.sin(np.pi * 2.0 * way)))
    radius = height * (0.02 + 0.05 * u[7])
    angle = 2.0 * np.pi * (u[8] + way * (u[9] - 0.5))
    half = np.where(u[10] < 0.5, 0.0, height * 0.12 * u[11])  # a ball, or a bar that turns
    arm = np.stack([half * np.cos(angle), half * np.sin(angle)])
    middle = np.stack([x, y])
    radii = np.broadcast_to(radius, (2, *x.shape))
    near = np.broadcast_to(np.where(u[12] < 0.35, 0.5 * depth, 2.0 * depth), x.shape)
    colours = np.array([rgb(v, 0.9, 0.3 + 0.7 * w) for v, w in random.random((count, 2))])
    paint = Paint(colours, 1.0 - colours, np.zeros(count), np.where(u[13, :, 0] < 0.5, 0.7, 0.0))
    return Capsules(np.stack([middle - arm, middle + arm], axis=1), radii, near, paint)


def screen(scene: Scene, canvas: NDArray[np.float32], shift: Floats, times: Floats) -> None:
    """A screen on the wall whose picture changes, in place on (3, F, H, W)."""
    random = scene.random("screen")
    u = random.random(8)
    if u[0] >= scene.variety.distractors * scene.domain.screens:
        return
    _, _, height, width = canvas.shape
    tall = int(height * (0.10 + 0.12 * u[1]))
    wide, rate = int(tall * (1.0 + 0.7 * u[2])), 0.7 + 3.0 * u[5]
    cut = np.floor(times * rate + u[6]).astype(np.int64) % 16
    film = random.random((16, 3, 3, 3)).astype(np.float32)  # 16 pictures of 3 x 3 patches
    for t in range(canvas.shape[1]):
        row = round(float(height * (0.05 + 0.35 * u[3]) + shift[1, t]))
        column = round(float((width - wide) * u[4] + shift[0, t]))
        top, left = max(row, 0), max(column, 0)
        spot = canvas[:, t, top : row + tall, left : column + wide]
        down = (np.arange(top, top + spot.shape[1]) - row) * 3 // tall
        across = (np.arange(left, left + spot.shape[2]) - column) * 3 // wide
        spot[:] = 0.15 + (0.3 + 0.5 * u[7]) * film[cut[t]][:, down][:, :, across]


def post(scene: Scene, canvas: NDArray[np.float32], shift: Floats) -> None:
    """A narrow post that hides a little of everything, in place on (3, F, H, W)."""
    u = scene.random("post").random(5)
    if u[0] >= scene.variety.distractors * scene.domain.posts:
        return
    _, frames, _, width = canvas.shape
    half = 0.5 * width * between(u[1], (0.03, 0.09))
    colour = rgb(u[2], 0.5, 0.1 + 0.6 * u[3]).astype(np.float32)[:, None]
    for t in range(frames):
        away = (np.arange(width) - (width * u[4] + 1.3 * shift[0, t])).astype(np.float32)
        cover = np.clip(half + 0.5 - np.abs(away), 0.0, 1.0)
        round_ = colour * (0.5 + 0.5 * np.sqrt(np.maximum(1.0 - (away / (half + 0.5)) ** 2, 0.0)))
        canvas[:, t] += cover * (round_[:, None, :] - canvas[:, t])
