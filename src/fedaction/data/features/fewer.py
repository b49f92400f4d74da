"""Less to train on than there is: few samples of each class, or classes that a modality never or rarely sees."""

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
    rare: int = 0
    """Training samples of each missing class that a client keeps all the same: rarely seen, then, not never."""

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

        Missing classes are the same for all clients of a modality; few and rare samples are drawn for each client.
        """
        train, test = sides
        if count := self.missing.get(modality):
            absent = numpy_generator(seed, "missing", modality).permutation(classes)[:count]
            missing, test = np.isin(labels[train], absent), test[np.isin(labels[test], absent)]
            kept = _keep(train[missing], labels, self.rare, numpy_generator(seed, "rare", name))
            train = np.sort(np.concatenate([train[~missing], kept]))
        if self.shots:
            train = _keep(train, labels, self.shots, numpy_generator(seed, "shots", name))
        if not len(train) or not len(test):
            raise ValueError(
                f"client {name!r} is left with {len(train)} training and {len(test)} test samples once some are "
                "taken away; take away fewer classes (feature_missing), or give it more samples"
            )
        return train, test


def _keep(rows: Rows, labels: Rows, count: int, random: np.random.Generator) -> Rows:
    """At most `count` of the rows of each class, drawn at random and in order."""
    mixed = random.permutation(rows)
    return np.sort(np.concatenate([rows[:0], *(mixed[labels[mixed] == y][:count] for y in np.unique(labels[rows]))]))
