"""`fedaction recipes`: the recipes there are, what is in one, and the keys that they may have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedaction.cli.common import JsonFlag, fail, literal, load, say, show

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    Groups = Mapping[str, Mapping[str, FieldInfo]]


def recipes(
    words: Annotated[
        list[str],
        typer.Argument(
            help="A recipe's name, to print it. With --keys: a method, a kind of data, a command, one key, or all."
        ),
    ] = [],  # noqa: B006
    keys: Annotated[bool, typer.Option("--keys", help="What keys a recipe may have, and what each one is.")] = False,
    copy: Annotated[Path | None, typer.Option(help="Write the named recipe to this file, to change it.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the recipes that come with the package, and those in ./recipes; print or copy one; or explain their keys.

    `fedaction recipes fsar/demo` prints one, `--copy my.toml` keeps it as a file. `--keys` says who reads keys;
    `--keys run`, `--keys fsar`, `--keys stage_video`, `--keys distil` or `--keys lr` explain some, `--keys all` every
    one.
    """
    if keys:
        _show_keys(words, as_json)
    elif words:
        _show_recipe(words, copy)
    else:
        _show_list(as_json)


def _show_list(as_json: bool) -> None:
    from fedaction.federation.recipes import list_recipes

    listed = list_recipes()
    if as_json:
        print(json.dumps({"recipes": [{"recipe": item.name, "about": item.about} for item in listed]}))
        return
    table = Table("recipe", "what it is", box=None)
    for item in listed:
        table.add_row(literal(item.name), literal(item.about))
    show(table)


def _show_recipe(words: list[str], copy: Path | None) -> None:
    from fedaction.federation.files import write_atomically
    from fedaction.federation.outside import MOST_SETTINGS, read_text
    from fedaction.federation.recipes import find_recipe

    if len(words) > 1:
        raise fail(
            f"one recipe at a time, not {', '.join(words)}; for keys say `fedaction recipes --keys {words[0]}`"
        )
    text = load(lambda: read_text(find_recipe(words[0]), MOST_SETTINGS))
    if copy is None:
        print(text, end="")
        return
    if copy.exists():
        raise fail(f"{copy} exists; choose another name, or remove it")
    load(write_atomically, copy, text.encode())
    say(f"{copy}: change what you like, then `fedaction run {copy}`")


def _show_keys(words: list[str], as_json: bool) -> None:
    from fedaction.federation.settings import nearest

    groups = _read_groups()
    names = {word for reader in groups for word in _words(reader)} - {"data", "method"}
    single = {key for fields in groups.values() for key in fields}
    for word in words:
        if word not in names | single | {"all"}:
            raise fail(f"no method, kind of data, command or key is called {word!r}{nearest(word, names | single)}")
    chosen: dict[str, dict[str, FieldInfo]] = {}
    for reader, fields in groups.items():
        whole = "all" in words or any(word in _words(reader) for word in words)
        kept = {key: field for key, field in fields.items() if whole or key in words}
        if kept:
            chosen[reader] = kept
    if as_json:
        print(json.dumps({"keys": {reader: _plain(fields) for reader, fields in (chosen or groups).items()}}))
    elif not words:
        _show_readers(groups)
    else:
        for reader, fields in chosen.items():
            table = Table("key", "default", "what it is", title=reader, title_justify="left", box=None)
            for key, field in fields.items():
                table.add_row(key, literal(_default(field)), literal(field.description or ""))
            show(table)
            say("")


def _read_groups() -> Groups:
    """Every key by who reads it: every run, a kind of data, a method, a command."""
    from fedaction.runs.recipe import all_keys
    from fedaction.training.distil_recipe import DistilSettings
    from fedaction.training.evaluate_recipe import EvaluateSettings

    return all_keys() | {"distil": DistilSettings.model_fields, "evaluate": EvaluateSettings.model_fields}


def _show_readers(groups: Groups) -> None:
    """One line for each reader of keys: all of them would be a thousand."""
    table = Table("read by", "keys", "such as", box=None)
    seen: set[str] = set()
    for reader, fields in groups.items():
        own = [key for key in fields if key not in seen] or list(fields)  # methods share most of theirs
        seen |= fields.keys()
        table.add_row(literal(reader), str(len(fields)), ", ".join(own[:3]))
    show(table)
    say("\n`fedaction recipes --keys run`, `--keys fsar`, `--keys lr` explain keys; `--keys all` every one.")


def _plain(fields: Mapping[str, FieldInfo]) -> dict[str, dict[str, str]]:
    return {key: {"default": _default(field), "about": field.description or ""} for key, field in fields.items()}


def _default(field: FieldInfo) -> str:
    return "(must be given)" if field.is_required() else json.dumps(field.default)


def _words(reader: str) -> list[str]:
    return re.findall(r"\w+", reader)
