from dataclasses import fields, replace

import numpy as np
import pytest

from fedaction.federation.seeds import derive
from fedaction.stage import actor, number, perform
from fedaction.stage.capsules import Capsules, Paint, draw
from fedaction.stage.film import Shooting, film
from fedaction.stage.scene import DOMAINS, Camera, Domain, Scene, Variety

KINDS = [kind.name for kind in fields(Variety)]
NOTHING = Variety.of(0.0)
TICKS = np.arange(6) * 0.3
WALL = (slice(None), slice(0, 3), slice(0, 3))  # a corner of the picture, where no performer is


def shoot(
    own: int,
    variety: Variety = NOTHING,
    domain: Domain = DOMAINS["hall"],
    *,
    action: str = "punch",
    size: tuple[int, int] = (48, 48),
    place: int = 0,
    keep: float = 0.0,
) -> Shooting:
    seed = derive(5, "test", own)
    show = perform([number(action)], [actor(seed, "somebody")], seed, 2)
    times = np.stack([show.script.start[0] + TICKS, show.script.start[0] + 0.4 + TICKS])
    return Shooting(show, times, size, Scene(domain, variety, derive(place, "place"), seed, keep))


def shots(own: int, *args, **kwargs) -> np.ndarray:
    return shoot(own, *args, **kwargs).clip(0).astype(int)


def test_a_film_has_the_shape_and_the_pixels_of_its_scene_only():
    seed = derive(5, "test", 1)
    show = perform([number("punch")], [actor(seed, "somebody")], seed, 2)
    scene = Scene(DOMAINS["home"], Variety(), 3, 4)
    times = np.stack([0.3 + TICKS, 0.9 + TICKS])
    first = film(show, times, (40, 56), scene)
    assert first.shape == (2, 6, 40, 56, 3)
    assert first.dtype == np.uint8
    assert first.tobytes() == film(show, times, (40, 56), scene).tobytes()
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, film(show, times, (40, 56), replace(scene, own=5)))
    with pytest.raises(ValueError, match="one performance"):
        film(show, times[0], (40, 56), scene)


def test_without_variety_everyone_is_in_the_same_studio():
    clips = np.stack([shots(own) for own in range(4)])
    assert not np.ptp(clips[:, *WALL], axis=(0, 1)).any()
    assert np.ptp(clips, axis=0).any()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_variety_changes_the_picture(kind):
    alone = replace(NOTHING, **{kind: 1.0})
    moved = [np.abs(shots(own, alone) - shots(own)).mean() for own in range(6)]
    assert np.mean(np.array(moved) > 0.3) >= 0.3, moved
    some = [np.abs(shots(own, replace(NOTHING, **{kind: 0.3})) - shots(own)).mean() for own in range(6)]
    assert np.mean(some) < np.mean(moved)


@pytest.mark.parametrize("what", ["bystanders", "crossing", "screens", "posts"])
def test_every_distractor_shows(what):
    none = replace(DOMAINS["hall"], bystanders=0.0, crossing=0.0, screens=0.0, posts=0.0)
    busy, variety = replace(none, **{what: 1.0}), replace(NOTHING, distractors=1.0)
    for own in range(5):
        changed = np.abs(shots(own, variety, busy) - shots(own, variety, none)).sum(axis=-1) > 10
        if changed.any():
            break
    assert 0.005 < changed.mean() < 0.4
    if what in ("crossing", "screens"):  # it differs from frame to frame
        assert np.ptp(shots(own, variety, busy), axis=0)[changed.any(axis=0)].max() > 20


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("strength", [0.0, 1.0, 2.0])
def test_the_performer_stays_in_the_picture(domain, strength):
    for own, action in enumerate(("walk", "fall", "jump", "jumping_jack", "run", "kick", "type", "pick_up")):
        take = shoot(own, Variety.of(strength), DOMAINS[domain], action=action, size=(48, 64))
        body = take.body.move(take.shift)
        assert (body.ends - body.radii).min() >= 0.0
        assert (body.ends[0] + body.radii).max() <= 63.0
        assert (body.ends[1] + body.radii).max() <= 47.0
        tall = np.ptp(body.ends[1], axis=(0, 1)).max()
        assert tall > 48 / 4  # and is not a speck


def test_clips_of_one_class_differ_strongly_and_share_nothing_but_the_action():
    for domain in DOMAINS.values():
        clips = np.stack([shots(own, Variety(), domain) for own in range(6)]).astype(float)
        plain = np.stack([shots(own, NOTHING, domain) for own in range(6)]).astype(float)
        pairs = np.triu_indices(6, 1)
        apart = np.abs(clips[pairs[0]] - clips[pairs[1]]).mean(axis=(1, 2, 3, 4))
        alike = np.abs(plain[pairs[0]] - plain[pairs[1]]).mean(axis=(1, 2, 3, 4))
        assert apart.min() > 15.0
        assert apart.mean() > 3.0 * alike.mean()


def test_a_place_keeps_its_room_and_light():
    def rooms(keep: float) -> np.ndarray:
        takes = [shoot(own, Variety(), DOMAINS["home"], keep=keep, place=own // 3) for own in range(12)]
        corner = [take.clip(0)[:, :6].mean(axis=(0, 1, 2)) for take in takes]
        return np.array(corner, float).reshape(4, 3, 3)

    def inside(colours: np.ndarray) -> float:
        return float(colours.std(axis=1).mean() / colours.reshape(12, 3).std(axis=0).mean())

    assert inside(rooms(1.0)) < 0.6 < inside(rooms(0.0))


def test_mirrored_clips_are_the_same_clips_from_right_to_left():
    always = replace(NOTHING, mirror=2.0)
    np.testing.assert_array_equal(shots(3, always), shots(3)[:, :, ::-1])


def test_the_camera_sees_where_its_rays_come_from():
    camera = Camera(yaw=0.0, pitch=0.3, roll=0.1, distance=4.0, height=2.0, focal=80.0, centre=(30.0, 20.0))
    points = np.array([[0.5, 0.0, 0.4], [-1.0, 0.0, -0.7], [0.2, 0.0, 1.5]])
    pixels, depth = camera.see(points)
    for (column, row), point in zip(pixels.T, points, strict=True):
        right, up, ahead = (float(a[0, 0]) for a in camera.rays(np.array([column]), np.array([row])))
        far = camera.height / -up  # to the floor
        np.testing.assert_allclose([right * far, 4.0 - ahead * far], point[[0, 2]], atol=1e-9)
    # From above, what is nearer is lower in the picture and larger.
    level = replace(camera, roll=0.0)
    rows = level.see(np.array([[0.0, 0.0, z] for z in (-1.0, 0.0, 1.0)]))[0][1]
    assert (np.diff(rows) > 0).all()
    assert depth[2] < depth[0]
    # To the right in the room, as the performer's left, is to the right in the picture.
    assert np.diff(level.see(np.array([[-0.5, 1.0, 0.0], [0.5, 1.0, 0.0]]))[0][0])[0] > 0


def test_capsules_cover_what_a_literal_drawing_covers_also_at_the_edges():
    rng = np.random.Generator(np.random.Philox(3))
    count, frames, size = 5, 3, 24
    ends = rng.uniform(-6, 30, (2, 2, count, frames))
    radii = rng.uniform(1, 5, (2, count, frames))
    depth = rng.uniform(1, 5, (count, frames))
    colours = rng.uniform(0, 1, (count, 3))
    paint = Paint(colours, colours, np.zeros(count), np.zeros(count))
    canvas = np.full((3, frames, size, size), 0.5, np.float32)
    draw(canvas, Capsules(ends, radii, depth, paint), np.array([0.0, 0.0, 1.0]), 1.0)
    expected = np.full((3, frames, size, size), 0.5)
    for t in range(frames):
        for one in sorted(range(count), key=lambda i: -depth[i, t]):
            (x0, x1), (y0, y1) = ends[:, :, one, t]
            for row in range(size):
                for column in range(size):
                    dx, dy = x1 - x0, y1 - y0
                    along = min(max(((column - x0) * dx + (row - y0) * dy) / (dx * dx + dy * dy), 0.0), 1.0)
                    away = np.hypot(column - x0 - along * dx, row - y0 - along * dy)
                    radius = radii[0, one, t] + along * np.diff(radii[:, one, t])[0]
                    cover = min(max(radius + 0.5 - away, 0.0), 1.0)
                    bright = 1.0 + 0.35 * np.sqrt(max(1.0 - (away / radius) ** 2, 0.0))
                    spot = expected[:, t, row, column]
                    spot += cover * (bright * colours[one] - spot)
    np.testing.assert_allclose(canvas, expected, atol=2e-4)


def test_a_variety_out_of_range_is_refused():
    with pytest.raises(ValueError, match="light=3"):
        Variety(light=3.0)
    with pytest.raises(ValueError, match="between 0"):
        Variety.of(-0.1)
