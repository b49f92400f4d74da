"""The order in which people expect names. For display alone: what is computed has an order of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable


def natural_key(text: str) -> tuple[tuple[str, int, str], ...]:
    """A key to sort names by, numbers in them by size: client-2 before client-10.

    Numbers are compared by their lengths and digits, so that one of any length is fine.
    """
    pieces = re.findall(r"([^0-9]*)0*([0-9]*)", text)
    return tuple((words, len(digits), digits) for words, digits in pieces)


def order_names(names: Iterable[str]) -> list[str]:
    """Different names, each once: those in alphabetical order by the numbers in them, any other order as it is.

    Clients come sorted by their letters, 10 before 2; where somebody has put them in an order, it stays.
    """
    given = list(dict.fromkeys(names))
    return sorted(given, key=natural_key) if given == sorted(given) else given
