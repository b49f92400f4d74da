"""Samples of signal stores: windows cut from recordings, and clients made of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.inputs import Input
from fedaction.data.preprocess import locate_frames
from fedaction.data.samples import Examples
from fedaction.data.signals.store import SignalSet

Rows = npt.NDArray[np.int64]
_MOST = 10.0  # deviations; what lies further out is cut there
_PIECE = 8  # windows; a longer recording is cut into pieces where one person's readings are split


@dataclass(frozen=True)
class WindowSet:
    """Recordings and how samples are cut from them. What is dealt and split are recordings, never their windows."""

    store: SignalSet
    window: int  # readings of a sample
    hop: int  # readings to the next; 0: a recording is one sample, resized to `window` readings

    modality: ClassVar[Literal["inertial"]] = "inertial"

    @property
    def device(self) -> str:
        """What recorded them; "": it has no name of its own."""
        return self.store.device

    @property
    def labels(self) -> Rows:
        """(N,) indices into `classes`, one for each recording."""
        return self.store.labels

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of activities."""
        return self.store.classes

    @property
    def subjects(self) -> tuple[str, ...]:
        """Who was recorded, one for each recording; empty when not known."""
        return self.store.subjects

    def __len__(self) -> int:
        return len(self.store)

    def cut(self, rows: Sequence[int] | Rows) -> tuple[Tensor, Tensor]:
        """The samples of some recordings, (N, window, C) float32, and the recording of each, (N,) int64."""
        recordings = [self.store.recordings[row] for row in rows]
        if not self.hop:
            x = torch.stack([resize(own, self.window) for own in recordings])
            return x, torch.as_tensor(np.asarray(rows), dtype=torch.int64)
        views = [
            np.lib.stride_tricks.sliding_window_view(own, self.window, axis=0)[:: self.hop].transpose(0, 2, 1)
            for own in recordings
        ]
        which = np.repeat(np.asarray(rows, dtype=np.int64), [len(view) for view in views])
        return torch.from_numpy(np.concatenate(views)), torch.from_numpy(which)


def resize(recording: npt.NDArray[np.float32], frames: int) -> Tensor:
    """A recording (T, C) as (frames, C), by linear interpolation."""
    values = torch.from_numpy(np.array(recording))  # a copy: what is mapped is read-only
    left, right, share = locate_frames(torch.tensor([len(values)]), frames)
    return torch.lerp(values[left[0]], values[right[0]], share[0, :, None])


def window_recordings(
    item: SignalSet, *, window_s: float = 0.0, hop_s: float = 0.0, frames: int = 128, pieces: bool = False
) -> WindowSet:
    """How samples are cut from a store's recordings.

    Args:
        item: the store.
        window_s: seconds of a window; 0: as the store was imported, and where that was without windows, a recording
            is one sample.
        hop_s: seconds from one window to the next; 0: half a window, or as the store was imported.
        frames: readings that whole recordings are resized to.
        pieces: cut long recordings, so that a share of a person's readings can be kept for test: windows of two
            pieces have no reading in common.
    """
    window, hop = item.window, item.hop
    if window_s:
        if item.rate_hz is None:
            raise ValueError(
                f"signal_window = {window_s:g}: the rate of {item.name} is not known, so seconds mean nothing; "
                "import it again with --rate"
            )
        window = max(round(window_s * item.rate_hz), 2)
        hop = min(max(round((hop_s or window_s / 2) * item.rate_hz), 1), window)
    elif hop_s and window and item.rate_hz is not None:
        hop = min(max(round(hop_s * item.rate_hz), 1), window)
    if not window:
        return WindowSet(item, frames, 0)
    long = [i for i, own in enumerate(item.recordings) if len(own) >= window]
    if not long:
        longest = max(len(own) for own in item.recordings)
        raise ValueError(f"no recording of {item.name} has a window of {window} readings; the longest has {longest}")
    if len(long) < len(item):
        warnings.warn(
            f"{item.name}: {len(item) - len(long)} of {len(item)} recordings are shorter than a window of {window} "
            "readings, and left out",
            stacklevel=2,
        )
    spans = [(i, 0, len(item.recordings[i])) for i in long]
    if pieces:
        most = window + (_PIECE - 1) * hop
        spans = [(i, at, min(at + most, end)) for i, _, end in spans for at in range(0, end - window + 1, most)]
    picked = [i for i, _, _ in spans]
    item = replace(
        item,
        recordings=[item.recordings[i][first:end] for i, first, end in spans],
        labels=item.labels[picked],
        names=tuple(item.names[i] for i in picked),
        subjects=tuple(item.subjects[i] for i in picked) if item.subjects else (),
    )
    return WindowSet(item, window, hop)


def make_signal_client(
    item: WindowSet,
    sides: tuple[Rows, Rows],
    labels: Rows,
    name: str,
    classes: tuple[str, ...],
    scale: Literal["client", "unit", "none"],
    group: str,
) -> ClientData:
    """A client of some of a store's recordings: `sides` are those to train and those to test on.

    `labels` (N,) are those of all recordings, as indices into `classes`. With `scale` "client" each channel has mean
    0 and deviation 1 over the client's training windows, whose numbers the test is scaled by, too; with "unit" each
    window is scaled to a root mean square of 1.
    """
    halves: list[Examples] = []
    mean, factor = torch.zeros(0), torch.zeros(0)
    for side in sides:
        x, which = item.cut(side)
        if scale == "unit":
            x = x / x.square().mean((1, 2), keepdim=True).sqrt().clamp(min=1e-12)
        elif scale == "client":
            if not halves:
                mean, spread = x.mean((0, 1)), x.std((0, 1), correction=0)
                factor = torch.where(spread > 1e-5 * (mean.abs() + 1e-3), 1 / spread.clamp(min=1e-12), 0.0)
            x = ((x - mean) * factor).clamp(-_MOST, _MOST)
        y = torch.from_numpy(labels)[which]
        who = tuple(item.subjects[i] for i in which.tolist()) if item.subjects else ()
        halves.append(Examples(x, y, who, which))
    store, shape = item.store, (item.window, len(item.store.channels))
    info = ClientInfo(name, group, len(halves[0]), classes, shape)
    taken = Input(
        kind="signals",
        shape=shape,
        device=store.device,
        rate_hz=store.rate_hz,
        channels=store.channels,
        hop=item.hop or None,
        scale=scale,
        mean=tuple(mean.tolist()),
        factor=tuple(factor.tolist()),
    )
    return ClientData(info, halves[0], halves[1], input=taken)
