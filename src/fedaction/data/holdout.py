"""Hold-out subjects: people whom nobody trains on and everybody is tested on; the same for every kind of data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedaction.federation.settings import nearest

HoldOut = int | float | Sequence[str]
"""How many people of each store, the last by name; a share of them, above 0 and below 1; or their names.

A name holds somebody out of every store that knows the name, "store:name" out of that store alone. 0: nobody.
"""


def choose_held_out(
    hold_out: HoldOut, stores: Mapping[str, Sequence[str]], *, together: bool = False
) -> dict[str, tuple[str, ...]]:
    """The people held out of each store, sorted by name.

    Args:
        hold_out: who; see `HoldOut`.
        stores: the people of each store, in any order and as often as they were recorded; none: not known.
        together: whether people of one name in two stores are one person, who is then held out of both.
    """
    check_hold_out(hold_out)
    people = {store: sorted(set(own)) for store, own in stores.items()}
    if hold_out == 0 or (not isinstance(hold_out, int | float) and not hold_out):
        return dict.fromkeys(people, ())
    nameless = [store for store, own in people.items() if not own]
    if nameless:
        raise ValueError(
            f"hold_out = {_say(hold_out)}: {nameless[0]} does not say who was recorded; import it again with a "
            "pattern or a column for the subject, or keep a share of the samples for test (test_share)"
        )
    if isinstance(hold_out, int | float):
        held = {store: set(own[-_count(hold_out, len(own)) :]) for store, own in people.items()}
        if together:
            everyone = set[str]().union(*held.values())
            held = {store: everyone & set(own) for store, own in people.items()}
    else:
        held = _by_name(hold_out, people)
    for store, own in people.items():
        if len(held[store]) >= len(own):
            raise ValueError(
                f"hold_out = {_say(hold_out)} leaves nobody to train on in {store}, which has {len(own)} people: "
                f"{', '.join(own)}. Hold out fewer"
            )
        if not held[store]:
            raise ValueError(
                f"hold_out = {_say(hold_out)} holds nobody out of {store}, so that it has no test; it has "
                f"{', '.join(own)}"
            )
    return {store: tuple(sorted(own)) for store, own in held.items()}


def check_hold_out(hold_out: HoldOut) -> None:
    """Refuses a number that is neither a number of people nor a share of them."""
    if isinstance(hold_out, int | float) and not (hold_out >= 0 and (hold_out < 1 or isinstance(hold_out, int))):
        raise ValueError(f"{hold_out} is neither a number of people (2) nor a share of them below 1 (0.2)")


def _count(hold_out: float, people: int) -> int:
    return hold_out if isinstance(hold_out, int) else max(1, round(hold_out * people))


def _by_name(names: Sequence[str], people: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    held: dict[str, set[str]] = {store: set() for store in people}
    for name in names:
        store, colon, own = name.partition(":")
        alone = bool(colon) and store in people
        fitting = [store] if alone else list(people)
        who = own if alone else name
        knowing = [place for place in fitting if who in people[place]]
        if not knowing:
            everyone = sorted({person for place in fitting for person in people[place]})
            raise ValueError(
                f"hold_out: nobody in {', '.join(fitting)} is called {who!r}{nearest(who, everyone)}; there are "
                f"{', '.join(everyone)}"
            )
        for place in knowing:
            held[place].add(who)
    return held


def _say(hold_out: HoldOut) -> str:
    return str(list(hold_out) if not isinstance(hold_out, int | float) else hold_out)
