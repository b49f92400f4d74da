"""Sound as a log-mel spectrogram: how loud each of a few bands of pitch is over time."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_BANDS, _LOW_HZ, _HIGH_HZ = 48, 30.0, 8000.0
_WINDOW, _HOP = 0.032, 0.016  # seconds of the Hann window, and from one to the next
_LEAST_POWER = 1e-8  # below the noise of any microphone, so that silence has a finite logarithm


def log_mel(sound: npt.NDArray[np.floating], rate_hz: float) -> npt.NDArray[np.float32]:
    """A log-mel spectrogram of (S,) samples in [-1, 1]: (T, B) natural logarithms of power, every 16 ms.

    B = 48 triangles of equal width on the mel scale from 30 to 8000 Hz. Bands above half of the rate are silent,
    so that recordings of different rates have the same bands.
    """
    if sound.ndim != 1 or not rate_hz > 0:
        raise ValueError(f"a sound is (samples,) at a rate; got shape {sound.shape} at {rate_hz} Hz")
    size, step = max(int(_WINDOW * rate_hz), 16), max(int(_HOP * rate_hz), 1)
    wave = torch.from_numpy(np.array(sound, dtype=np.float32))
    if len(wave) < size:
        wave = torch.nn.functional.pad(wave, (0, size - len(wave)))
    spectrum = torch.stft(wave, size, step, window=torch.hann_window(size), center=False, return_complex=True)
    power = spectrum.abs().square() / size  # F, T
    return (mel_bands(size, rate_hz) @ power + _LEAST_POWER).log().T.numpy()


@lru_cache(maxsize=8)
def mel_bands(size: int, rate_hz: float) -> Tensor:
    """Triangular filters (B, size // 2 + 1) over the bins of a Fourier transform of `size` samples.

    Each is at least one bin wide on both sides of its centre, so that none is empty where bins are coarse.
    """
    mel = np.linspace(2595 * np.log10(1 + _LOW_HZ / 700), 2595 * np.log10(1 + _HIGH_HZ / 700), _BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)  # hertz
    bins = np.arange(size // 2 + 1) * rate_hz / size
    width = rate_hz / size
    up = (bins - edges[1:-1, None]) / np.maximum(np.diff(edges)[:-1, None], width)
    down = (edges[1:-1, None] - bins) / np.maximum(np.diff(edges)[1:, None], width)
    return torch.from_numpy(np.maximum(1 + np.minimum(up, down), 0).astype(np.float32))
