"""Extractors: pure, of one width, and telling of what they should tell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedaction.data.features import MODALITIES, Modality, Recording, built_in
from fedaction.data.features.audio import log_mel, mel_bands
from fedaction.data.features.series import kernel_features, project, resample
from fedaction.data.features.vision import clip_features, flow_features, picture_features
from fedaction.data.layout import KINECT_V2
from fedaction.federation.seeds import generator, numpy_generator

RANDOM = numpy_generator(3, "extractors")


def recordings(modality: Modality, count: int = 5) -> list[Recording]:
    """Random recordings of unequal length and size."""

    def array(*shape: int) -> npt.NDArray[np.float32]:
        return RANDOM.normal(size=shape).astype(np.float32)

    def pixels(*shape: int) -> npt.NDArray[np.uint8]:
        return RANDOM.integers(0, 256, shape).astype(np.uint8)

    made = {
        "skeleton": lambda i: Recording(array(1 + i % 2, 20 + i, 25, 3), 30.0, KINECT_V2),
        "inertial": lambda i: Recording(array(60 + 11 * i, 6), 50.0),
        "audio": lambda i: Recording(0.1 * array(4000 + 500 * i), 8000.0),
        "video": lambda i: Recording(pixels(7 + i, 30 + i, 40, 3)),
        "flow": lambda i: Recording(array(7 + i, 30, 40, 2)),
        "image": lambda i: Recording(pixels(50, 40 + i, 3)),
    }
    return [made[modality](i) for i in range(count)]


@pytest.mark.parametrize("modality", MODALITIES)
def test_vectors_are_pure_functions_of_one_recording(modality: Modality) -> None:
    given = recordings(modality)
    taken = built_in(modality, bodies=2)
    x = taken(given)
    assert x.shape == (5, 1024) and x.dtype == np.float32
    again = built_in(modality, bodies=2)(given[::-1])[::-1]
    np.testing.assert_allclose(again, x, rtol=1e-4, atol=1e-4)  # neither company nor order matter
    np.testing.assert_allclose(taken(given[2:3])[0], x[2], rtol=1e-4, atol=1e-4)
    assert np.abs(x[0] - x[1]).mean() > 1e-3
    for width in (8, 200):
        assert built_in(modality, width=width)(given).shape == (5, width)
    assert built_in(modality).describe()["parameters"]["width"] == 1024


def test_which_extractor_is_for_what() -> None:
    with pytest.raises(ValueError, match="'cells' is for video, flow, image, not for audio"):
        built_in("audio", "cells")
    with pytest.raises(ValueError, match="no extractor is called 'i3d'; there are kernels, cells, and your own"):
        built_in("video", "i3d")
    with pytest.raises(ValueError, match="width must lie between 8 and 65536"):
        built_in("video", width=3)
    with pytest.raises(ValueError, match="ask for a width of 1024 or less, not 2000"):
        built_in("video", width=2000)(recordings("video", 1))
    with pytest.raises(ValueError, match="skeletons need one layout"):
        built_in("skeleton")([Recording(np.ones((1, 9, 25, 3), np.float32))])
    with pytest.raises(ValueError, match="no usable frame"):
        built_in("skeleton")([Recording(np.zeros((1, 9, 25, 3), np.float32), layout=KINECT_V2)])
    with pytest.raises(ValueError, match="a sound is"):
        built_in("audio")([Recording(np.zeros(100, np.float32))])


def test_kernels_against_a_literal_convolution() -> None:
    x = torch.randn(2, 3, 40, generator=generator(0, "series"))
    width = 40  # 6 statistics, 17 kernels
    found = kernel_features(x, width, floor=0.1)
    from fedaction.data.features import series

    groups = series._kernels(3, 40, 17, 0)
    assert [dilation for dilation, _, _ in groups] == [1, 2, 4] and sum(len(b) for _, _, b in groups) == 17
    shares, peaks = [], []
    spread = x[0].std(1, correction=0)
    even = (x[0] - x[0].mean(1, keepdim=True)) / (spread + 0.1 * spread.max() + 1e-6)[:, None]
    for dilation, weights, biases in groups:
        for kernel, bias in zip(weights, biases, strict=True):
            values = []
            for t in range(40):
                total = float(bias)
                for tap in range(9):
                    at = t + (tap - 4) * dilation
                    if 0 <= at < 40:
                        total += float((kernel[:, tap] * even[:, at]).sum())
                values.append(total)
            shares.append(np.mean([value > 0 for value in values]))
            peaks.append(max(values))
    assert torch.allclose(found[0, :17], torch.tensor(shares, dtype=torch.float32), atol=1e-6)
    assert torch.allclose(found[0, 17:34], torch.tensor(peaks, dtype=torch.float32), atol=1e-5)
    assert torch.allclose(found[0, 34:37], x[0].mean(1)) and torch.allclose(found[0, 37:], spread.log(), atol=1e-4)


def test_units_do_not_matter_to_kernels_but_are_not_forgotten() -> None:
    x = torch.randn(4, 6, 64, generator=generator(1, "series"))
    other = x.clone()
    other[:, 3:] = 100 * other[:, 3:] + 7
    a, b = kernel_features(x, 200), kernel_features(other, 200)
    assert torch.allclose(a[:, :188], b[:, :188], atol=0.04)  # a share may jump by a sample or two of 64
    assert torch.allclose(b[:, 194:] - a[:, 194:], torch.tensor([0.0] * 3 + [4.60517] * 3), atol=1e-3)
    assert kernel_features(torch.zeros(1, 2, 9), 16).isfinite().all()  # a still recording
    assert kernel_features(torch.randn(3, 300, 16), 64).shape == (3, 64)  # statistics are projected
    with pytest.raises(ValueError, match="2 samples"):
        kernel_features(torch.zeros(1, 2, 1), 16)


def test_resampling_and_projecting() -> None:
    ramp = np.stack([np.arange(10), -np.arange(10)], axis=1)
    out = resample([ramp, ramp[::2]], 5)
    assert out.shape == (2, 2, 5) and out[0, 0].tolist() == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert out[1, 1].tolist() == [0.0, -2.0, -4.0, -6.0, -8.0]
    x = torch.randn(30, 400, generator=generator(0, "wide"))
    small = project(x, 300)
    assert project(x, 400) is x and torch.equal(project(x, 300), small)
    ratio = torch.pdist(small) / torch.pdist(x) * (400 / 300) ** 0.5
    assert ratio.min() > 0.8 and ratio.max() < 1.25  # distances are kept


def test_a_tone_is_loud_in_the_band_of_its_pitch() -> None:
    times = np.arange(8000) / 8000
    edges = 700 * (10 ** (np.linspace(2595 * np.log10(1 + 30 / 700), 2595 * np.log10(1 + 8000 / 700), 50) / 2595) - 1)
    for pitch in (200.0, 1000.0, 3000.0):
        mel = log_mel(np.sin(2 * np.pi * pitch * times), 8000)
        assert mel.shape == (61, 48)
        centre = edges[1:-1][mel.mean(axis=0).argmax()]
        assert abs(centre - pitch) < max(0.06 * pitch, 32)
        assert mel.max() - np.median(mel) > 5
    assert np.allclose(log_mel(np.zeros(8000), 8000), np.log(1e-8))
    # The same sound at twice the rate has the same loudness in the same bands.
    fast = log_mel(np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000), 16000)
    slow = log_mel(np.sin(2 * np.pi * 1000 * times), 8000)
    assert fast.mean(axis=0).argmax() == slow.mean(axis=0).argmax()
    assert log_mel(np.zeros(3), 8000).shape == (1, 48)


def test_mel_bands_leave_no_gap() -> None:
    bank = mel_bands(512, 16000).numpy()
    inside = bank[:, 4:245].sum(axis=0)  # from 125 to 7625 hertz
    assert bank.shape == (48, 257) and (bank.max(axis=1) > 0.4).all() and inside.min() > 0.5


def moving_bar(step: int) -> npt.NDArray[np.uint8]:
    """A bright vertical bar on grey that moves `step` pixels right each frame."""
    clip = np.full((16, 48, 48, 3), 60, np.uint8)
    for t in range(16):
        left = 20 + step * (t - 8)
        clip[t, 12:36, left : left + 6] = 220
    return clip


def test_movement_is_told_by_its_direction() -> None:
    right, left = clip_features([moving_bar(2), moving_bar(-2)]).reshape(2, 4, 16, 4, 4)
    direction = right[:, 8:].square().sum((0, 2, 3))  # the eight directions of movement
    assert direction.argmax() == 0 and direction[0] > 20 * direction[4]
    assert left[:, 8:].square().sum((0, 2, 3)).argmax() == 4
    flow = np.zeros((5, 96, 96, 2), np.float32)
    flow[:, :48, :48, 1] = 4.0  # the upper left quarter moves down
    (found,) = flow_features([flow]).reshape(1, 4, 16, 4, 4)
    assert found[:, 2, :2, :2].allclose(torch.tensor(2.0).sqrt())  # 4 of 96 pixels are 2 of 48
    assert found[:, 2, 2:].max() == 0 and found[:, 6].max() == 0


def test_a_resting_camera_does_not_see_the_background() -> None:
    background = RANDOM.integers(0, 255, (1, 48, 48, 3)).astype(np.uint8)
    still = np.repeat(background, 16, axis=0)
    assert clip_features([still]).abs().max() < 1e-2
    assert picture_features([still[0]]).abs().max() > 0.1


def test_pictures_are_told_by_contours_and_brightness() -> None:
    picture = np.zeros((64, 64, 1), np.uint8)
    picture[:, 32:] = 255
    found = picture_features([picture]).reshape(16, 8, 8)
    assert found[0, :, 3].min() > 0.1 and found[0, :, [0, 1, 6, 7]].max() == 0  # one contour, rightwards
    assert found[8, :, :3].min() > found[15, :, :3].max() and found[15, :, 5:].min() > found[8, :, 5:].max()


@pytest.mark.parametrize("shape", [(4, 8, 8), (4, 8, 8, 5), (0, 8, 8, 3)])
def test_pictures_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"clip 0: expected numbers \(frames, height, width, 1 or 3\)"):
        clip_features([np.zeros(shape, np.uint8)])
    with pytest.raises(ValueError, match="picture 0: expected"):
        picture_features([np.zeros((8, 8), np.uint8)])
