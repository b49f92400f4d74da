"""Where recipes lie: files of one's own, and those that come with the package, which have short names.

Loads no torch, so that a list of recipes is there at once.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from fedaction.federation.outside import MOST_SETTINGS, check_size
from fedaction.federation.settings import RecipeError

PACKAGED = Path(__file__).parents[1] / "recipes"
"""The folder of the recipes that come with the package."""


@dataclass(frozen=True)
class ListedRecipe:
    """A recipe in a list: what to call it, where it lies, and the first line of its comment."""

    name: str
    path: Path
    about: str


def packaged_recipes() -> dict[str, Path]:
    """The files of the recipes that come with the package, by name ("fsar/demo")."""
    return {path.relative_to(PACKAGED).with_suffix("").as_posix(): path for path in sorted(PACKAGED.rglob("*.toml"))}


def list_recipes(own: Path = Path("recipes")) -> list[ListedRecipe]:
    """The recipes of the package by name, then the files of a folder of one's own by path, if there is one."""
    listed = [ListedRecipe(name, path, _first_line(path)) for name, path in packaged_recipes().items()]
    return [
        *listed,
        *(ListedRecipe(path.as_posix(), path, _first_line(path)) for path in sorted(own.rglob("*.toml"))),
    ]


def find_recipe(name: str | Path) -> Path:
    """The file that a name means: a file of that path, else the package's recipe of that name.

    `fsar/demo`, `fsar/demo.toml` and `recipes/fsar/demo.toml` all name the same one. Raises RecipeError, with the
    names that are most like it.
    """
    path = Path(name)
    packaged = packaged_recipes()
    short = path.with_suffix("") if path.suffix == ".toml" else path
    parts = short.parts[1:] if short.parts[:1] == ("recipes",) else short.parts
    found = packaged.get("/".join(parts))
    if path.exists() and not (path.is_dir() and found):
        return path
    if found:
        return found
    near = _nearest_recipes("/".join(parts), list(packaged))
    hint = f"; did you mean {' or '.join(near)}?" if near else ";"
    raise RecipeError(f"there is no recipe {path}{hint} `fedaction recipes` lists those that come with it")


def _nearest_recipes(word: str, names: list[str]) -> list[str]:
    """At most three names that are like a word: first those that end with it, since people leave the folder out."""
    same = [name for name in names if name.rpartition("/")[2] == word.rpartition("/")[2]]
    return list(dict.fromkeys([*same, *difflib.get_close_matches(word, names, n=3, cutoff=0.6)]))[:3]


def _first_line(path: Path) -> str:
    """What a recipe says of itself; nothing where it cannot be read."""
    try:
        check_size(path, MOST_SETTINGS)
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(500).lstrip("# ").rstrip()
    except (OSError, ValueError):
        return ""
