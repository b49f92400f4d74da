"""Augmentation against a literal version for one sample at a time."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedaction.data.augment import Augment, Drawn
from fedaction.federation.seeds import generator


def literal(sample: npt.NDArray[np.float32], shear: npt.NDArray[np.float32], start: int, crop: int):
    """One sample (M, T, V, 3): pad with reversed ends, cut the window, multiply each joint."""
    frames = sample.shape[1]
    pad = frames // crop
    padded = np.concatenate([sample[:, :pad][:, ::-1], sample, sample[:, frames - pad :][:, ::-1]], axis=1)
    window = padded[:, start : start + frames]
    out = np.zeros_like(window)
    for place in np.ndindex(window.shape[:3]):
        out[place] = window[place] @ shear.T
    return out


def batch(count: int, bodies: int = 2, frames: int = 50) -> torch.Tensor:
    return torch.randn(count, bodies, frames, 5, 3, generator=generator(0, "test", frames))


@pytest.mark.parametrize(("frames", "crop"), [(50, 6), (13, 6), (5, 6), (12, 1), (7, 2)])
def test_equals_the_literal_version(frames: int, crop: int) -> None:
    augment, x = Augment(0.5, crop), batch(20, frames=frames)
    drawn = augment.draw(20, generator(1, "draw"))
    out = augment.apply(x, drawn)
    starts = np.floor(drawn.start.double().numpy() * (2 * (frames // crop) + 1)).astype(int)
    for i in range(20):
        expected = literal(x[i].numpy(), drawn.shear[i].numpy(), starts[i], crop)
        assert np.allclose(out[i].numpy(), expected, atol=1e-5)


def test_every_start_occurs_and_none_outside() -> None:
    x = torch.arange(50.0).reshape(1, 1, 50, 1, 1).expand(4000, 1, 50, 1, 3)
    out = Augment(0).apply(x, Augment(0).draw(4000, generator(2, "draw")))
    # Frame 25 of the window is frame 25 + start - 8 of the sequence, never within the padding.
    assert set((out[:, 0, 25, 0, 0] - 17).int().tolist()) == set(range(17))
    last = Drawn(torch.eye(3).expand(2, 3, 3), torch.tensor([0.0, 1 - 2**-24]), torch.zeros(2, 2, 4))
    ends = Augment(0).apply(x[:2], last)[:, 0, :, 0, 0]
    assert ends[0, :9].tolist() == [7, 6, 5, 4, 3, 2, 1, 0, 0]
    assert ends[1, -9:].tolist() == [49, 49, 48, 47, 46, 45, 44, 43, 42]


def test_drawn_matrices_have_unit_diagonal_and_bounded_independent_entries() -> None:
    drawn = Augment(0.5).draw(5000, generator(3, "draw"))
    assert torch.equal(torch.diagonal(drawn.shear, dim1=1, dim2=2), torch.ones(5000, 3))
    entries = drawn.shear[:, ~torch.eye(3, dtype=torch.bool)]
    assert entries.abs().max() <= 0.5
    assert entries.mean(dim=0).abs().max() < 0.02
    assert (entries.std(dim=0) - 1 / 12**0.5).abs().max() < 0.01
    correlation = torch.corrcoef(torch.cat([entries, drawn.start[:, None]], dim=1).T)
    assert (correlation - torch.eye(7)).abs().max() < 0.06


def test_result_does_not_depend_on_batching() -> None:
    augment, x = Augment(), batch(24)
    drawn = augment.draw(24, generator(4, "draw"))
    whole = augment.apply(x, drawn)
    for size in (1, 5, 8):
        parts = [
            augment.apply(x[i : i + size], Drawn(*(part[i : i + size] for part in drawn))) for i in range(0, 24, size)
        ]
        assert torch.allclose(torch.cat(parts), whole, atol=1e-6)
    stacked = augment.apply(
        x.reshape(4, 6, *x.shape[1:]), Drawn(*(part.reshape(4, 6, *part.shape[1:]) for part in drawn))
    )
    assert torch.allclose(stacked.reshape(x.shape), whole, atol=1e-6)


def test_same_generator_same_draw() -> None:
    first, second = (Augment().draw(6, generator(5, "draw", "client")) for _ in range(2))
    assert torch.equal(first.shear, second.shear) and torch.equal(first.start, second.start)


def test_turned_off_it_is_the_identity_and_zero_bodies_stay_zero() -> None:
    x = batch(3)
    off = Augment(0, 0)
    assert torch.equal(off.apply(x, off.draw(3, generator(6, "draw"))), x)
    x[:, 1] = 0
    out = Augment().apply(x, Augment().draw(3, generator(6, "draw")))
    assert not out[:, 1].any()
    assert not torch.equal(out[:, 0], x[:, 0])


def test_input_is_not_changed_and_dtype_is_kept() -> None:
    x = batch(3).double()
    before = x.clone()
    out = Augment().apply(x, Augment().draw(3, generator(7, "draw")))
    assert torch.equal(x, before) and out.dtype == torch.float64


def test_refusals() -> None:
    drawn = Augment().draw(2, generator(8, "draw"))
    with pytest.raises(ValueError, match=r"\(\.\.\., M, T, V, 3\)"):
        Augment().apply(torch.zeros(2, 1, 10, 5, 2), drawn)
    with pytest.raises(ValueError, match="batch has"):
        Augment().apply(torch.zeros(3, 1, 10, 5, 3), drawn)
    with pytest.raises(ValueError, match="negative"):
        Augment(-0.1)


def test_a_slow_move_is_st_gcns_random_move() -> None:
    """Frame by frame: x and y turned, scaled and shifted by what lies between the first and the last."""
    augment = Augment(shear=0.0, crop=0, move=True)
    x = torch.randn(3, 2, 7, 5, 3, generator=generator(5, "move"))
    x[1, 1, 4] = 0.0  # a body that is absent from one frame
    drawn = augment.draw(3, generator(6, "move"))
    moved = augment.apply(x, drawn)
    for n in range(3):
        ends = drawn.move[n].double()
        for t in range(7):
            angle, scale, right, up = (ends[0] + (ends[1] - ends[0]) * t / 6).tolist()
            cos, sin = math.cos(angle) * scale, math.sin(angle) * scale
            for m in range(2):
                for v in range(5):
                    a, b, c = x[n, m, t, v].tolist()
                    there = [cos * a - sin * b + right, sin * a + cos * b + up, c]
                    expected = there if x[n, m, t].any() else [0.0] * 3
                    assert moved[n, m, t, v].tolist() == pytest.approx(expected, abs=1e-5)
    many = augment.draw(500, generator(7, "move")).move
    assert {round(math.degrees(value)) for value in many[..., 0].flatten().tolist()} == {-10, -5, 0, 5, 10}
    assert {round(value, 3) for value in many[..., 1].flatten().tolist()} == {0.9, 1.0, 1.1}
    assert torch.equal(augment.draw(4, generator(8, "m")).start, Augment().draw(4, generator(8, "m")).start)
