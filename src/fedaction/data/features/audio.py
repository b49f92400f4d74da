"""Sound as a log-mel spectrogram: how loud each of a few bands of pitch is over time."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_LEAST_POWER = 1e-8  # below the noise of any microphone, so that silence has a finite logarithm


def log_mel(
    sound: npt.NDArray[np.floating],
    rate_hz: float,
    *,
    bands: int = 48,
    window: float = 0.032,
    hop: float = 0.016,
    low_hz: float = 30.0,
    high_hz: float = 8000.0,
) -> npt.NDArray[np.float32]:
    """A log-mel spectrogram.

    Args:
        sound: (S,) samples in [-1, 1].
        rate_hz: samples a second. Bands above half of it are silent, so that recordings of different rates have the
            same bands.
        bands: B, triangles of equal width on the mel scale.
        window: seconds of the Hann window.
        hop: seconds from one window to the next.
        low_hz: lower end of the lowest band.
        high_hz: upper end of the highest band.

    Returns:
        (T, B) natural logarithms of power.
    """
    if sound.ndim != 1 or not rate_hz > 0:
        raise ValueError(f"a sound is (samples,) at a rate; got shape {sound.shape} at {rate_hz} Hz")
    size, step = max(int(window * rate_hz), 16), max(int(hop * rate_hz), 1)
    wave = torch.from_numpy(np.array(sound, dtype=np.float32))
    if len(wave) < size:
        wave = torch.nn.functional.pad(wave, (0, size - len(wave)))
    spectrum = torch.stft(wave, size, step, window=torch.hann_window(size), center=False, return_complex=True)
    power = spectrum.abs().square() / size  # F, T
    return (mel_bands(size, rate_hz, bands, low_hz, high_hz) @ power + _LEAST_POWER).log().T.numpy()


@lru_cache(maxsize=8)
def mel_bands(size: int, rate_hz: float, bands: int, low_hz: float, high_hz: float) -> Tensor:
    """Triangular filters (B, size // 2 + 1) over the bins of a Fourier transform of `size` samples.

    Each is at least one bin wide on both sides of its centre, so that none is empty where bins are coarse.
    """
    if not 0 <= low_hz < high_hz or bands < 1:
        raise ValueError(f"bands need 0 <= low < high and at least one; got {low_hz}, {high_hz}, {bands}")
    mel = np.linspace(2595 * np.log10(1 + low_hz / 700), 2595 * np.log10(1 + high_hz / 700), bands + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)  # hertz
    bins = np.arange(size // 2 + 1) * rate_hz / size
    width = rate_hz / size
    up = (bins - edges[1:-1, None]) / np.maximum(np.diff(edges)[:-1, None], width)
    down = (edges[1:-1, None] - bins) / np.maximum(np.diff(edges)[1:, None], width)
    return torch.from_numpy(np.maximum(1 + np.minimum(up, down), 0).astype(np.float32))
