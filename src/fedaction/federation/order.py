"""The order in which people expect names. For display alone: what is computed has an order of its own."""

from __future__ import annotations

import re


def natural_key(text: str) -> tuple[tuple[str, int, str], ...]:
    """A key to sort names by, numbers in them by size: client-2 before client-10.

    Numbers are compared by their lengths and digits, so that one of any length is fine.
    """
    pieces = re.findall(r"([^0-9]*)0*([0-9]*)", text)
    return tuple((words, len(digits), digits) for words, digits in pieces)
