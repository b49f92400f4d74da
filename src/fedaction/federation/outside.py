"""Bytes from outside: no larger than is allowed, and whatever is wrong with them is one kind of error.

Libraries that read files raise errors of many kinds over damaged ones (zlib.error, RecursionError, MemoryError,
struct.error, ...). Every parser of this package reads inside `refuse_damage`, so that each has one kind of its own,
and checks sizes that a file declares before it takes memory for them. Limits are for files that nobody vouches for.
Whoever knows a file sets the environment variable FEDACTION_LIMITS: all limits are multiplied by it.

Loads no torch: processes that read public datasets start afresh, and would each load it.
"""

from __future__ import annotations

import json
import math
import os
import stat
import sys
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

LIMITS = "FEDACTION_LIMITS"
UNPACKED = 256 * 2**20
"""Bytes that any file may unpack to; a larger file may to `UNPACKED_TIMES` its size."""
UNPACKED_TIMES = 20
"""Padded skeletons, which are mostly zeros, come to about ten."""
MOST_SETTINGS = 2**20
"""Bytes of a file that people write: a recipe, a layout, a list of devices."""
MOST_JSON = 24 * 2**20
"""Bytes of a JSON file from elsewhere; as Python's objects it may take 25 times as much memory."""
_LONGEST, _LONGEST_MESSAGE = 400, 1500  # characters of what a library says in a message, and of all of it
_LONGEST_NAME = 200  # characters
_HELPFUL = 1000  # times a limit; what is farther beyond it is damage, not a large file


def allow(most: int) -> int:
    """A limit, times what FEDACTION_LIMITS says."""
    text = os.environ.get(LIMITS, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 1 <= factor < math.inf:
        raise ValueError(
            f"{LIMITS} = {text!r} in the environment must be a number from 1: limits are multiplied by it"
        )
    return int(most * factor)


def check_amount(
    amount: int, most: int, where: object, has: str, unit: str = "bytes", kind: type[ValueError] = ValueError
) -> None:
    """Refuses what is more than a limit.

    Args:
        amount: what there is, or what a file says that there is.
        most: the limit, before FEDACTION_LIMITS.
        where: the file.
        has: the verb: "has", "unpacks to".
        unit: what is counted.
        kind: of the error.
    """
    limit = allow(most)
    if amount > limit:
        factor = -(-amount // most)
        hint = f"; if you know the file, {LIMITS}={factor} in the environment lets it in" if factor < _HELPFUL else ""
        raise kind(f"{where} {has} {amount} {unit}, more than the {limit} allowed{hint}")


def check_size(path: Path, most: int, kind: type[ValueError] = ValueError) -> int:
    """The bytes of a file; more than `most` are refused, and whatever is no file (a pipe would never end)."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise kind(f"{path} is not a file")
    check_amount(status.st_size, most, path, "has", kind=kind)
    return status.st_size


def read_file(path: Path, most: int = sys.maxsize, kind: type[ValueError] = ValueError) -> bytes:
    """The bytes of a file; more than `most` are refused, and whatever is no file (a pipe would never end)."""
    check_size(path, most, kind)
    return path.read_bytes()


def most_unpacked(path: Path) -> int:
    """Bytes that a file may unpack to, before FEDACTION_LIMITS."""
    return max(UNPACKED, UNPACKED_TIMES * path.stat().st_size)


def describe(error: BaseException) -> str:
    """What is wrong, in one line that can be printed."""
    if isinstance(error, MemoryError):
        return "it asks for more memory than there is"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return shorten(text)


def shorten(text: object, most: int = _LONGEST) -> str:
    """A text of which anything may be part: in one line, printable, and not too long."""
    line = " ".join(str(text).split())
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line[: most + 1])
    return plain if len(plain) <= most else f"{plain[: most - 3]}..."


@contextmanager
def refuse_damage(where: object, what: str, kind: type[ValueError] = ValueError) -> Generator[None]:
    """Whatever goes wrong inside is a refusal: an error of one kind that says where and why.

    One of that kind that names the file already is passed on, shortened where it repeats much of it. So is, where the
    kind is ValueError itself, what the disk says of a file (not there, not readable); other kinds stand for that too.

    Args:
        where: the file.
        what: what it should have been, as in "a model file".
        kind: of the error.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        if text.startswith(LIMITS) and isinstance(error, ValueError):  # it is not the file's fault
            raise kind(text) from None
        if isinstance(error, kind) and str(where) in text:
            if len(text) <= _LONGEST_MESSAGE and text.isprintable():
                raise
            raise kind(shorten(text, _LONGEST_MESSAGE)) from None
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            if kind is ValueError:
                raise
            raise kind(f"{where} cannot be read: {describe(error)}") from None
        raise kind(f"{where} is not {what}, or is damaged: {describe(error)}") from None


def read_text(path: Path, most: int, kind: type[ValueError] = ValueError) -> str:
    """A text file in UTF-8, without its byte order mark."""
    content = read_file(path, most, kind)
    with refuse_damage(path, "text in UTF-8", kind):
        return content.decode("utf-8-sig")


def parse_json(text: str | bytes, where: object, kind: type[ValueError] = ValueError) -> Any:
    """A value of JSON."""
    with refuse_damage(where, "valid JSON", kind):
        return json.loads(text)


def parse_toml(text: str, where: object, kind: type[ValueError] = ValueError) -> dict[str, Any]:
    """Tables of TOML, with names that fit into a message."""
    with refuse_damage(where, "valid TOML", kind):
        tables = tomllib.loads(text)
        inner = [cast("dict[str, Any]", value) for value in tables.values() if isinstance(value, dict)]
        long = next((name for table in (tables, *inner) for name in table if len(name) > _LONGEST_NAME), None)
        if long is not None:
            raise ValueError(f"{shorten(long, 40)!r} is a name of more than {_LONGEST_NAME} characters")
        return tables
