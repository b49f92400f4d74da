"""What a server may ask of a site at most, by its owner's word: the size of networks, batches, epochs, memory."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from fedaction.federation.processes import is_out_of_memory

_SHARE = 0.8  # of a machine's memory that a site uses at most, unless its owner says otherwise
_BUILDING = threading.Lock()  # hooks are for all of a process


class LimitError(ValueError):
    """More than a site's owner allows."""


class Limits(BaseModel):
    """What a site's owner allows. What is over it is refused, with a message that the server's owner reads."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parameters: int = Field(default=200_000_000, ge=1)
    """Numbers of a network, buffers included."""
    batch: int = Field(default=1024, ge=1)
    """Samples of a batch."""
    epochs: int = Field(default=100, ge=1)
    """Passes over the site's samples in one job."""
    memory: float = Field(default=0.0, ge=0)
    """GiB of main memory; 0: four fifths of what the machine, or the container, has."""

    def check_job(self, batch: int, epochs: int) -> None:
        """Refuses a batch or a number of epochs beyond what is allowed."""
        if batch > self.batch:
            raise LimitError(f"batch_size = {batch} is over the {self.batch} samples that this site's owner allows")
        if epochs > self.epochs:
            raise LimitError(f"{epochs} epochs in a job are over the {self.epochs} that this site's owner allows")

    @contextmanager
    def bound_networks(self) -> Generator[None]:
        """Refuses a network while it is being built, as soon as it is too large."""
        with bound_network(self.parameters, "that this site's owner allows", "this site's memory"):
            yield

    def bound_memory(self) -> None:
        """Bounds this process for good, on Linux: what needs more memory fails, and the machine goes on."""
        if not sys.platform.startswith("linux"):
            return
        import resource

        most = int(self.memory * 2**30) or int(_SHARE * find_memory())
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))

    @property
    def said_memory(self) -> str:
        """The memory in words."""
        return f"{self.memory or _SHARE * find_memory() / 2**30:.1f} GiB"


@contextmanager
def bound_network(most: int, whose: str, memory: str) -> Generator[None]:
    """Refuses the networks that are built inside as soon as they have more than `most` numbers, buffers included.

    `whose` says in words what that limit is, `memory` what they would not fit into.
    """
    total = 0

    def count(module: nn.Module, name: str, tensor: Any) -> None:
        nonlocal total
        total += tensor.numel() if isinstance(tensor, torch.Tensor) else 0
        if total > most:
            raise LimitError(f"the network has more than the {most:,} parameters {whose}")

    with _BUILDING:
        handles = [
            register_module_parameter_registration_hook(count),
            register_module_buffer_registration_hook(count),
        ]
        try:
            yield
        except (MemoryError, RuntimeError, OverflowError) as error:
            if not is_out_of_memory(error):
                raise
            raise LimitError(f"the network does not fit into {memory}") from None
        finally:
            for handle in handles:
                handle.remove()


def find_memory() -> int:
    """Bytes of main memory that the machine has, or the container that this process is in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(place).read_text()))
        except (OSError, ValueError):  # no container, or one without a limit ("max")
            continue
    return total
