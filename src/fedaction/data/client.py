"""What a client holds and what is known about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from fedaction.data.inputs import Input
from fedaction.data.layout import Layout
from fedaction.data.samples import Samples

Split = Literal["test", "validation"]
"""What a client may be tested on."""


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
    """A client with its splits. Never leaves the client's machine."""

    info: ClientInfo
    train: Samples
    test: Samples
    validation: Samples | None = None
    """Kept out of training to choose a checkpoint and when to stop; None: there are none."""
    input: Input | None = None
    """How recordings became samples, for those who use what was trained; None: that is not known."""

    def tested_on(self, split: Split) -> ClientData:
        """The client with another split in the place of its test."""
        if split == "test":
            return self
        if self.validation is None:
            raise ValueError(f"client {self.info.id!r} has no validation samples")
        return replace(self, test=self.validation)
