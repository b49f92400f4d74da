"""Which participant of EPIC-KITCHENS-100 holds which modality, as in FDARN (Yang et al., AAAI 2022)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedaction.data.features.egocentric.epic import Segment
from fedaction.data.features.store import Modality
from fedaction.federation.seeds import numpy_generator

EPIC_MODALITIES: tuple[Modality, ...] = ("video", "flow", "audio", "inertial")
_LEAST = 4  # segments: with fewer, a quarter for test is none


@dataclass(frozen=True)
class Dealt:
    """One client: a participant whose segments are kept in one modality."""

    participant: str
    modality: Modality
    segments: tuple[Segment, ...] = field(repr=False)


@dataclass(frozen=True)
class Deal:
    """Clients in order of modality, then of participant."""

    clients: tuple[Dealt, ...]

    @property
    def assignment(self) -> dict[str, Modality]:
        """The modality of each participant."""
        return {client.participant: client.modality for client in self.clients}

    @property
    def counts(self) -> dict[str, int]:
        """Segments of each participant."""
        return {client.participant: len(client.segments) for client in self.clients}

    def segments(self, modality: Modality) -> tuple[Segment, ...]:
        """All segments that are held in a modality, client by client."""
        return tuple(item for client in self.clients if client.modality == modality for item in client.segments)

    def one_each(self, seed: int) -> Deal:
        """One client of each modality, drawn at random: the paper's four-client task."""
        rng = numpy_generator(seed, "egocentric", "one each")
        chosen: list[Dealt] = []
        for modality in dict.fromkeys(client.modality for client in self.clients):
            members = [client for client in self.clients if client.modality == modality]
            chosen.append(members[int(rng.integers(len(members)))])
        return Deal(tuple(chosen))


def deal_clients(
    segments: Sequence[Segment],
    participants: Sequence[str],
    modalities: Sequence[Modality] = EPIC_MODALITIES,
    per_modality: int = 4,
    seed: int = 0,
) -> Deal:
    """Draws participants for each modality; each participant holds one modality, or none.

    Inertial signals exist for the extension of 2020 only, so participants of that modality are drawn first, among
    those with segments there, and keep those segments alone. All others keep all of theirs. The result depends on
    neither the order of the segments nor that of the participants.

    Args:
        segments: of all participants.
        participants: who may be drawn; the paper's 16 are taken to be those that `epic.returning` names.
        modalities: in the order of the clients.
        per_modality: clients of each modality.
        seed: run seed.
    """
    people = sorted(set(participants))
    if per_modality < 1 or not modalities or len(set(modalities)) != len(modalities):
        raise ValueError(f"a deal needs different modalities and at least one client each, got {per_modality}")
    if len(modalities) * per_modality > len(people):
        raise ValueError(
            f"{len(modalities)} x {per_modality} clients need as many participants; there are {len(people)}"
        )
    rng = numpy_generator(seed, "egocentric", "deal")
    drawn: dict[Modality, list[str]] = {}
    taken: set[str] = set()
    for modality in sorted(modalities, key=lambda name: (name != "inertial", modalities.index(name))):
        amounts = Counter(item.participant for item in segments if modality != "inertial" or item.extension)
        free = [person for person in people if person not in taken and amounts[person] >= _LEAST]
        if len(free) < per_modality:
            where, why = "", ""
            if modality == "inertial":
                where = " in videos of the 2020 extension (three-digit numbers)"
                why = ". The validation file holds none of these: add EPIC_100_train.csv, or leave this modality out"
            raise ValueError(
                f"{per_modality} participants with at least {_LEAST} segments{where} are needed for {modality!r}; "
                f"{len(free)} are left{why}"
            )
        drawn[modality] = sorted(free[int(i)] for i in rng.choice(len(free), per_modality, replace=False))
        taken.update(drawn[modality])
    clients: list[Dealt] = []
    for modality in modalities:
        for person in drawn[modality]:
            own = [s for s in segments if s.participant == person and (modality != "inertial" or s.extension)]
            own.sort(key=lambda item: (item.video, item.start_s, item.name))
            clients.append(Dealt(person, modality, tuple(own)))
    return Deal(tuple(clients))
