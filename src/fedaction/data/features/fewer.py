"""Less to train on than there is: few samples of each class, or classes that a modality's clients never see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedaction.federation.seeds import numpy_generator

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fewer:
    """What is taken away from clients' training samples; by default nothing."""

    shots: int = 0
    """Most training samples of a class at a client; 0: all."""
    missing: Mapping[str, int] = field(default_factory=dict[str, int])
    """By modality, how many classes its clients never train on; they are tested on these alone."""

    def check(self, modalities: Iterable[str], classes: int) -> None:
        """Raises ValueError where a modality is not there, or would have no class left or none missing."""
        known = sorted(modalities)
        for modality, count in self.missing.items():
            if modality not in known or not 0 < count < classes:
                raise ValueError(
                    f"{count} classes are to be missing in {modality!r}: there are {classes} classes, and the "
                    f"modalities {', '.join(known)}; name one of them, and fewer classes than there are"
                )

    def choose(
        self, sides: tuple[Rows, Rows], labels: Rows, classes: int, *, modality: str, name: str, seed: int
    ) -> tuple[Rows, Rows]:
        """The samples that a client trains on and is tested on, out of `sides`: rows of `labels` (N,).

        Missing classes are the same for all clients of a modality; few samples are drawn for each client.
        """
        train, test = sides
        if count := self.missing.get(modality):
            absent = numpy_generator(seed, "missing", modality).permutation(classes)[:count]
            train, test = train[~np.isin(labels[train], absent)], test[np.isin(labels[test], absent)]
        if self.shots:
            mixed = numpy_generator(seed, "shots", name).permutation(train)
            kept = [mixed[labels[mixed] == label][: self.shots] for label in np.unique(labels[mixed])]
            train = np.sort(np.concatenate([train[:0], *kept]))
        if not len(train) or not len(test):
            raise ValueError(
                f"client {name!r} is left with {len(train)} training and {len(test)} test samples once some are "
                "taken away; take away fewer classes (feature_missing), or give it more samples"
            )
        return train, test
