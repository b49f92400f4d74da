"""Words for people: what came from elsewhere (a site, a server, a file), fit to be shown; amounts. Loads no torch."""

from __future__ import annotations

LONGEST_TEXT = 1000
"""Characters that are kept of what somebody elsewhere says in words."""


def quote(text: str, most: int = LONGEST_TEXT) -> str:
    """What somebody else says, fit to be shown: no control characters, no line breaks, and not too long."""
    shown = text[:most]
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in shown)
    return plain if len(text) <= most else f"{plain}... ({len(text)} characters)"


def is_text(text: str) -> bool:
    """Whether UTF-8 can say it; a name that a disk has in another encoding may not be such."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def amount(number: float) -> str:
    """An amount of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}" if unit != "B" else f"{number:.0f} B"
        number /= 1000
    return f"{number:.4g} TB"
