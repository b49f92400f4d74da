"""What a site's data were when it joined a run, and whether they still are that.

A cheap look (sizes, times and inodes of files) comes before each job; only where it differs are the files read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from fedaction.data.client import ClientData
from fedaction.data.clips.clips import Clips
from fedaction.data.samples import Samples, in_batches

CHANGED = (
    "the data of this site are not those that it joined with: put them back as they were, and it takes part in the "
    "next job; or start it again, for another run"
)


@dataclass
class JoinedData:
    """A client's samples, and what their files looked like when they were loaded."""

    data: ClientData
    look: Callable[[], str]
    """What can be seen of the files without reading them."""
    read: Callable[[], str]
    """The same as long as the files have the same contents; takes longer."""
    _seen: str
    _files: str

    @classmethod
    def load(
        cls, name: str, load: Callable[[], ClientData], look: Callable[[], str], read: Callable[[], str]
    ) -> JoinedData:
        """Loads the samples of the client `name`; the look comes first, so that no later change is missed."""
        seen, data = look(), load()
        return cls(replace(data, info=replace(data.info, id=name)), look, read, seen, read())

    def is_unchanged(self) -> bool:
        """Whether the files are those that were loaded; one that was only touched, or put back, is."""
        seen = self.look()
        if seen == self._seen:
            return True
        if self.read() != self._files:
            return False
        self._seen = seen
        return True

    def digest(self) -> bytes:
        """A digest of everything that the client has; signed with the site's secret before it goes anywhere."""
        digest = hashlib.sha256(repr(self.data.info).encode())

        def add(samples: Samples) -> None:
            digest.update(samples.labels.numpy().tobytes())
            if isinstance(samples, Clips) and samples.digest:  # of the files: names, sizes, first frames
                digest.update(samples.digest.encode())
                return
            for x in (
                in_batches(samples, 256) if samples.resident else ()
            ):  # to decode all of a site's video takes hours
                digest.update(x.contiguous().cpu().numpy().tobytes())

        for part in (self.data.train, self.data.test, self.data.validation):
            if part is not None:
                add(part)
        digest.update(self._files.encode())  # what is streamed is known by its files
        return digest.digest()
