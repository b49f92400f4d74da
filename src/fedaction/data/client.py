"""What a client holds and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from fedaction.data.layout import Layout


@dataclass(frozen=True)
class ClientInfo:
    """What a server may know of a client: everything a method needs to build its model, none of its data.

    Attributes:
        id: stable name, unique in the federation.
        group: what GROUP tensors are averaged within, e.g. the modality ("skeleton").
        samples: number of training samples; the client's weight in averages.
        classes: names of the actions the client labels, in label order.
        shape: shape of one sample. Skeletons: (bodies M, frames T, joints V, coordinates C).
        layout: the skeleton's layout, where samples are skeletons.
    """

    id: str
    group: str
    samples: int
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    layout: Layout | None = None

    @property
    def architecture(self) -> tuple[object, ...]:
        """Clients equal in this get the same network from any method."""
        return (self.group, self.shape, len(self.classes), self.layout)


@dataclass(frozen=True)
class Examples:
    """Labelled samples in memory.

    Attributes:
        x: (N, *shape) float32; clips of video are uint8.
        y: (N,) int64, indices into the client's classes.
        subjects: who performed each sample, where known.
        recording: (N,) int64, which recording each sample is a clip of, where recordings have several; else None.
    """

    x: Tensor
    y: Tensor
    subjects: tuple[str, ...] = field(default=(), repr=False)
    recording: Tensor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.y.shape[0])


@dataclass(frozen=True)
class ClientData:
    """A client with its two splits. Never leaves the client's machine."""

    info: ClientInfo
    train: Examples
    test: Examples
