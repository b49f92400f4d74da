"""All actions of the embedded world. Each is written for right-handers; others mirror it."""

from __future__ import annotations

from fedaction.stage.gestures import GESTURES
from fedaction.stage.pose import Action
from fedaction.stage.whole_body import WHOLE_BODY

ACTIONS: tuple[Action, ...] = WHOLE_BODY + GESTURES
NAMES: tuple[str, ...] = tuple(action.name for action in ACTIONS)


def number(name: str) -> int:
    """An action's number by name; an unknown name is an error that lists the known ones."""
    try:
        return NAMES.index(name)
    except ValueError:
        raise KeyError(f"no action is called {name!r}; there are {', '.join(NAMES)}") from None
