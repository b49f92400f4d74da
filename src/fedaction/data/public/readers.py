"""All public datasets that can be read."""

from __future__ import annotations

from fedaction.data.public import florence3d, hdm05, kard, msr_action3d, ntu, pku, uestc, utd_mhad
from fedaction.data.public.base import Reader, unique

READERS: dict[str, Reader] = unique(
    [
        ntu.NTU60,
        ntu.NTU120,
        pku.PKU1,
        pku.PKU2,
        uestc.READER,
        utd_mhad.READER,
        msr_action3d.READER,
        kard.READER,
        florence3d.READER,
        hdm05.READER,
    ]
)
"""Readers by the name that the command line and recipes use."""


def reader(name: str) -> Reader:
    """A reader by name."""
    try:
        return READERS[name]
    except KeyError:
        raise ValueError(f"no public dataset is called {name!r}; there are {', '.join(READERS)}") from None
