"""What a client holds and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass

from fedaction.data.layout import Layout
from fedaction.data.samples import Samples


@dataclass(frozen=True)
class ClientInfo:
    """What a server may know of a client: everything a method needs to build its model, none of its data."""

    id: str
    """Stable name, unique in the federation."""
    group: str
    """What GROUP tensors are averaged within, e.g. the modality ("skeleton")."""
    samples: int
    """Number of training samples; the client's weight in averages."""
    classes: tuple[str, ...]
    """Names of the actions the client labels, in label order."""
    shape: tuple[int, ...]
    """Shape of one sample. Skeletons: (bodies M, frames T, joints V, coordinates C)."""
    layout: Layout | None = None
    """The skeleton's layout, where samples are skeletons."""

    @property
    def architecture(self) -> tuple[object, ...]:
        """Clients equal in this get the same network from any method."""
        return (self.group, self.shape, len(self.classes), self.layout)


@dataclass(frozen=True)
class ClientData:
    """A client with its two splits. Never leaves the client's machine."""

    info: ClientInfo
    train: Samples
    test: Samples
