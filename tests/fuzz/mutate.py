"""Bytes with something wrong in them: by chance, but the same for the same seed."""

from __future__ import annotations

import io
import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable

import numpy as np

Change = Callable[[bytes, np.random.Generator], bytes]

ODD = [None, True, -1, 0, 2**63, 10**400, 1e308, math.nan, math.inf, "", "\ud800", "x" * 5000, [], {}, [[]]]
WORDS = [
    *(b"0", b"-1", b"1e308", b"-1e-320", b"nan", b"inf", b"1_0", b"0x10", b"1e999999999", b'"', b"'", b"\x00", b"\r"),
    *(b"9" * 20, b"9" * 5000, b"4294967295", b"18446744073709551616", b"[" * 3000, b"{" * 3000, b"\xff\xfe", b"\n\n"),
]
_LONG = b"7" * 30_000
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def change(content: bytes, random: np.random.Generator) -> bytes:
    """Single bits, pieces cut, doubled or put in; whole numbers and numbers in text made odd; a header's size."""
    changed = bytearray(content)
    for _ in range(int(random.integers(1, 4))):
        first, second = sorted(int(place) for place in random.integers(0, len(changed) + 1, 2))
        match int(random.integers(9)):
            case 0 if changed:
                changed[first % len(changed)] ^= 1 << int(random.integers(8))
            case 1:
                del changed[first:]
            case 2:
                del changed[first:second]
            case 3:
                changed[first:first] = changed[first:second]
            case 4:
                changed[first:first] = random.bytes(int(random.integers(1, 40)))
            case 5:
                changed[:8] = int(random.integers(0, 2 ** int(random.integers(1, 63)))).to_bytes(8, "little")
            case 6:
                _put_integer(changed, first, random)
            case 7:
                _put_word(changed, first, random)
            case _:
                changed = bytearray(change_message(bytes(changed), random))
    return bytes(changed)


def change_ends(content: bytes, random: np.random.Generator) -> bytes:
    """Bits and whole numbers in the first and last bytes of a file, where containers have their headers."""
    changed = bytearray(content)
    for _ in range(int(random.integers(1, 5))):
        near = int(random.integers(0, min(2000, len(changed))))
        place = near if random.integers(2) else len(changed) - 1 - near
        if random.integers(2):
            changed[place] ^= 1 << int(random.integers(8))
        else:
            _put_integer(changed, place, random)
    return bytes(changed) if random.integers(20) else bytes(changed[: int(random.integers(len(changed)))])


def _put_integer(changed: bytearray, place: int, random: np.random.Generator) -> None:
    size = int(random.choice((1, 2, 4, 8)))
    values = (0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size) - 1, 2 ** int(random.integers(8 * size)))
    value = values[int(random.integers(len(values)))]
    changed[place : place + size] = value.to_bytes(size, "little" if random.integers(2) else "big")


def _put_word(changed: bytearray, place: int, random: np.random.Generator) -> None:
    """An odd word in place of the next number in a text, or where there is none, at the place."""
    word = WORDS[int(random.integers(len(WORDS)))] if random.integers(40) else _LONG
    number = _NUMBER.search(changed, place)
    first, last = number.span() if number and random.integers(4) else (place, place)
    changed[first:last] = word


def change_message(content: bytes, random: np.random.Generator) -> bytes:
    """A message whose header, or whose tensors' header, still parses, but says something odd somewhere."""
    size = int.from_bytes(content[:8], "little")
    own, rest = content[8 : 8 + size], content[8 + size :]
    try:
        if random.integers(2):
            inner = int.from_bytes(rest[:8], "little")
            text = put_odd(rest[8 : 8 + inner], random)
            return content[: 8 + size] + len(text).to_bytes(8, "little") + text + rest[8 + inner :]
        text = put_odd(own, random)
        return len(text).to_bytes(8, "little") + text + rest
    except (ValueError, TypeError, LookupError, RecursionError):  # it was broken before
        return content


def change_json(content: bytes, random: np.random.Generator) -> bytes:
    """JSON that says something odd somewhere, or JSON no more."""
    try:
        return put_odd(content, random) if random.integers(3) else change(content, random)
    except (ValueError, TypeError, LookupError, RecursionError):
        return change(content, random)


def put_odd(text: bytes, random: np.random.Generator) -> bytes:
    """JSON with one value that is odd; text in it that is JSON itself is looked into as well."""
    value = json.loads(text)
    places = [(value, key) for key in (value if isinstance(value, dict) else range(len(value)))]
    for inside, key in places[:]:
        for _ in range(5):
            inside = inside[key]
            if not isinstance(inside, dict | list) or not inside:
                break
            keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            key = keys[int(random.integers(len(keys)))]
            places.append((inside, key))
    where, key = places[int(random.integers(len(places)))]
    inner = where[key]
    if isinstance(inner, str) and inner[:1] in "{[" and random.integers(4):
        where[key] = put_odd(inner.encode(), random).decode()
    else:
        where[key] = ODD[int(random.integers(len(ODD)))]
    return json.dumps(value).encode()


def change_tensors(content: bytes, random: np.random.Generator) -> bytes:
    """A .safetensors file with something odd in its header, its metadata or anywhere."""
    if not random.integers(3):
        return change(content, random)
    size = int.from_bytes(content[:8], "little")
    try:
        text = put_odd(content[8 : 8 + size], random)
    except (ValueError, TypeError, LookupError, RecursionError):
        return change(content, random)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def change_archive(content: bytes, random: np.random.Generator) -> bytes:
    """An archive one of whose members is damaged, packed again with the right checksum; or the archive itself."""
    if not random.integers(3):
        return change(content, random)
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        which = names[int(random.integers(len(names)))]
        with zipfile.ZipFile(packed, "w", int(random.choice((0, 8, 8, 8, 14)))) as other:
            for name in names:
                data = archive.read(name)
                other.writestr(name, change_front(data, random) if name == which else data)
    return packed.getvalue()


def change_front(content: bytes, random: np.random.Generator) -> bytes:
    """Changes the first bytes of a file alone, in three cases of four: the header of an array."""
    return change(content[:140], random) + content[140:] if random.integers(4) else change(content, random)


def change_matlab(content: bytes, random: np.random.Generator) -> bytes:
    """A MATLAB file of one packed variable, damaged before it is packed; or the file itself."""
    if not random.integers(3):
        return change(content, random)
    inside = zlib.decompress(content[136:])
    packed = zlib.compress(change_front(inside, random), 1)
    return content[:128] + struct.pack("<II", 15, len(packed)) + packed
