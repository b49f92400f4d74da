"""Keys of a recipe: flat, frozen, validated; whatever is wrong with one is said in a sentence."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from fedaction.federation.outside import shorten
from fedaction.federation.words import is_text


class Settings(BaseModel):
    """Keys of a recipe: frozen and validated; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    replaced: ClassVar[Mapping[str, str]] = {}
    """Keys that are no more, and what to write in their place."""

    @classmethod
    def decides(cls, key: str) -> bool:
        """Whether a key decides what a run computes, and not only how it is carried out or kept."""
        return (_marks(cls, key) or {}).get("decides", True) is not False

    def deciding(self, *, defaults: bool = False) -> dict[str, Any]:
        """The keys that decide a result, as JSON values; those that have their default only if asked for.

        Of a key that names a file the contents count, not where it lies.
        """
        values = self.model_dump(mode="json", exclude_defaults=not defaults)
        return {
            key: _contents(value) if (_marks(type(self), key) or {}).get("decides") == "contents" else value
            for key, value in values.items()
            if self.decides(key) and (defaults or value not in self.alike(key))
        }

    @classmethod
    def alike(cls, key: str) -> tuple[Any, ...]:
        """Values of a key that give the same result, its default among them; none where there is but one."""
        return tuple((_marks(cls, key) or {}).get("alike", ())) if key in cls.model_fields else ()


_MOST_WHOLE = 2**63
HOW: dict[str, JsonValue] = {"decides": False}
"""The mark of a key that says how a run is carried out or kept: `Field(0, json_schema_extra=HOW)`."""
FILE: dict[str, JsonValue] = {"decides": "contents"}
"""The mark of a key that may name a file, whose contents decide."""


def mark_alike(*values: str) -> dict[str, JsonValue]:
    """The mark of a key some of whose values give the same result, its default among them."""
    return {"alike": list(values)}


def _marks(kind: type[Settings], key: str) -> dict[str, Any] | None:
    marks = kind.model_fields[key].json_schema_extra
    return cast("dict[str, Any]", marks) if isinstance(marks, dict) else None


def _contents(name: str) -> str:
    path = Path(name)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else name


def hash_values(values: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that stand for JSON values: what tables and checkpoints call a configuration."""
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=6).hexdigest()


class RecipeError(ValueError):
    """A recipe that cannot be run. The message says what is wrong and what to do."""


def check_flat(values: Mapping[str, Any], origin: str) -> None:
    """Refuses a recipe with tables in it."""
    for key, value in values.items():
        if isinstance(value, dict):
            raise RecipeError(f"{origin}: a recipe is flat, but {key!r} is a table; write its keys on their own")


def parse_settings(
    values: Mapping[str, Any], kinds: Mapping[str, type[Settings]], origin: str
) -> dict[str, Settings]:
    """Several kinds of settings from one flat recipe, each by the keys it knows; a key that none knows is refused."""
    known = {key for kind in kinds.values() for key in kind.model_fields}
    for key in values:
        instead = [kind.replaced[key] for kind in kinds.values() if key in kind.replaced]
        if key not in known and instead:
            raise RecipeError(f"{origin}: there is no key {key!r} any more; write {instead[0]}")
        if key not in known:
            raise RecipeError(f"{origin}: there is no key {key!r}{nearest(key, known)}")
        kinds_of_key = [kind.model_fields[key].annotation for kind in kinds.values() if key in kind.model_fields]
        if isinstance(values[key], bool) and bool not in kinds_of_key:  # which pydantic would take for 0 or 1
            raise RecipeError(f"{origin}: {key} is not a yes-or-no key (got {str(values[key]).lower()})")
        _check_value(values[key], f"{origin}: {key}")
    parsed: dict[str, Settings] = {}
    for name, kind in kinds.items():
        try:
            parsed[name] = kind.model_validate({k: v for k, v in values.items() if k in kind.model_fields})
        except ValidationError as error:
            raise RecipeError(f"{origin}: {explain(error)}") from None
    return parsed


def _check_value(value: Any, where: str) -> None:
    """Refuses whole numbers that no tensor, seed or counter could hold, and words that no recipe could say."""
    for item in cast("list[Any]", value) if isinstance(value, list | tuple) else [value]:
        if isinstance(item, str) and not is_text(item):
            raise RecipeError(f"{where} = {item!r} is not text in UTF-8, which recipes are written in")
        if isinstance(item, bool) and isinstance(value, list | tuple):
            raise RecipeError(f"{where} is no list of yes-or-no values (got {str(item).lower()})")
        if isinstance(item, int) and abs(item) >= _MOST_WHOLE:
            raise RecipeError(f"{where} must be below 2^63, got a number of {item.bit_length()} bits")


def check_choice(values: Mapping[str, Any], key: str, choices: Mapping[str, object], origin: str) -> None:
    """Refuses a key whose value is none of the choices."""
    if key not in values:
        raise RecipeError(f"{origin}: the key {key!r} is missing; it may be one of {', '.join(choices)}")
    if not isinstance(values[key], str) or values[key] not in choices:
        near, given = nearest(str(values[key]), choices), shorten(repr(values[key]), 80)
        raise RecipeError(f"{origin}: {key} = {given} is unknown{near}; there are {', '.join(choices)}")


def nearest(word: str, known: Any) -> str:
    """The end of an error about an unknown word: the known one that is most like it, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else ""


def explain(error: ValidationError) -> str:
    """What is wrong with which keys, in one line."""
    lines: list[str] = []
    for item in error.errors():
        branch = re.compile(r"(literal|tuple|float)\b.*|int")  # of a key that may be one of several types
        where = ".".join(str(part) for part in item["loc"] if not branch.fullmatch(str(part)))
        absent = item["type"] == "missing" and len(item["loc"]) == 1  # then the input is the whole recipe
        given = "" if absent else f" (got {shorten(repr(item['input']), 200)})"
        lines.append(f"{where}: {item['msg']}{given}")
    return "; ".join(lines)


def to_toml(values: Mapping[str, Any]) -> str:
    """Keys and values as TOML; reading it back gives the same."""
    return "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"  # pyright: ignore[reportUnknownVariableType]
    # For strings, numbers and booleans TOML and JSON agree, but for two things: TOML knows no surrogate pairs, so
    # characters are written as they are, and it wants the delete character escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
