"""The seal of a run: what its checkpoints and its result vouch for, and how it is told that something differs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedaction.methods.given import Missing
from fedaction.runs.recipe import Recipe, RunSettings

_OF_DATA = ("given_sha256",)  # keys that say what the data are, and are compared as such
_SHA256 = re.compile(r"[0-9a-f]{64}")
OF = "of"
"""The key of a file that follows from a run: which run; see `Seal.word`."""


class SealError(ValueError):
    """A run directory that is not what it vouches for. The message says what differs, where, and what to do."""


@dataclass(frozen=True)
class Seal:
    """What a run was begun with, and goes on with or not at all."""

    configuration: str = ""
    """A hash of the recipe but for its rounds; see `Recipe.checkpoint_hash`."""
    seed: int | None = None
    """None: of a version that sealed nothing but the configuration."""
    rounds: int = 0
    """How many the recipe wanted."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Every key that decides the result, with its value; see `Settings.deciding`."""
    data: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the data are, by what they are read from; see `Source.fingerprint`. Of real sites: each site's word."""
    extended: tuple[int, ...] | None = None
    """The rounds it was to have before it was made longer; None: of a version that did not seal them."""

    @property
    def word(self) -> str:
        """A hash of what a run is: another recipe, seed or data have another. Its rounds are not in it."""
        about = {"configuration": self.configuration, "seed": self.seed, "data": dict(self.data)}
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    @classmethod
    def of(cls, recipe: Recipe, data: Mapping[str, str] | None = None) -> Seal:
        """What a recipe of one method and one seed asks for; without `data`, those are not compared."""
        run = recipe.run
        keys = recipe.deciding()
        return cls(recipe.checkpoint_hash, run.seeds[0], run.rounds, keys, dict(data or {}), run.extended)

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Seal:
        """From a checkpoint's JSON or a result's; what an older version has not written is not known."""
        seal: Mapping[str, Any] = record.get("seal") or {}
        seed, data, extended = seal.get("seed"), dict[str, str](seal.get("data") or {}), seal.get("extended")
        return cls(
            str(record["configuration"] if "configuration" not in seal else seal["configuration"]),
            None if seed is None else int(seed),
            int(seal.get("rounds", 0)),
            dict(seal.get("settings") or {}),
            {str(name): str(word) for name, word in data.items()},
            None if extended is None else tuple(int(rounds) for rounds in extended),
        )

    def record(self) -> dict[str, Any]:
        """As JSON; `configuration` stands beside it in a checkpoint."""
        record = {"seed": self.seed, "rounds": self.rounds, "settings": self.settings, "data": self.data}
        return record if self.extended is None else {**record, "extended": list(self.extended)}

    def check(self, recipe: Recipe, home: Path, data: Mapping[str, str] | None = None) -> None:
        """Refuses a recipe, or data, other than those of the run in `home`, which this seal is of.

        Data that are not given are not compared, and of an older run there is only the configuration to compare.
        """
        now = Seal.of(recipe, data)
        begun, back = f"{home} was begun with", "run the new recipe into another directory"
        keys = self._differing_keys(now, recipe)
        if self.seed is not None and self.seed != now.seed:
            keys.insert(0, f"seed {self.seed}, now it is {now.seed}")
        if keys:
            raise SealError(f"{begun} {'; '.join(keys)}: put recipe.toml back as it was, or {back}")
        if not self.settings and self.configuration != now.configuration:
            raise SealError(
                f"{begun} configuration {self.configuration}, but its recipe now says {now.configuration}: put "
                f"recipe.toml back as it was, or {back}; or use the version of fedaction that began it"
            )
        if not self._goes_on_as(now):
            more = max(now.rounds, self.rounds + 1)
            how = f"`fedaction resume {home} --extend rounds={more}`"
            if recipe.run.own or recipe.run.data == "given":  # whose program alone can resume it
                how = f"fedaction.run(..., rounds={more}, extended={[*(self.extended or ()), self.rounds]})"
            raise SealError(
                f"{begun} rounds = {_say_rounds(self)}, now they are {_say_rounds(now)}: put recipe.toml back as it "
                f"was; {how} makes a run longer"
            )
        other = [n for n in sorted({*self.data, *now.data}) if self.data.get(n) != now.data.get(n)]
        if self.data and now.data and other:
            more = f" and {len(other) - 3} more" if len(other) > 3 else ""
            raise SealError(
                f"{begun} other data than there are now ({', '.join(other[:3])}{more}): bring those back that it was "
                "begun with, or run the recipe on these into another directory"
            )

    def _goes_on_as(self, now: Seal) -> bool:
        """Whether a recipe has as many rounds, or more, and then says how many it had."""
        before, after = self.extended, now.extended or ()
        if not self.rounds or self.rounds == now.rounds:
            return not self.rounds or before in (None, after)
        if before is None:
            return self.rounds < now.rounds and self.rounds in after
        return self.rounds < now.rounds and after[: len(before) + 1] == (*before, self.rounds)

    def _differing_keys(self, now: Seal, recipe: Recipe) -> list[str]:
        """Keys with other values, in words. A key that this version does not know, or added, is not compared."""
        known = {*now.settings} - {*_OF_DATA}
        if issubclass(recipe.kinds[recipe.run.method], Missing):  # a program's own, whose keys are not here
            known &= {key for own in (recipe.run, recipe.guard, recipe.source) for key in own.deciding(defaults=True)}
        return [
            f"{key} = {_say(value)}, now it is {_say(now.settings[key])}"
            for key, value in self.settings.items()
            if key in known and value != now.settings[key] and not _is_lost(value, now.settings[key])
            if not all(word in RunSettings.alike(key) for word in (value, now.settings[key]))
        ]


def _is_lost(sealed: Any, now: Any) -> bool:
    """Whether a key names a file whose contents were sealed, and which is not there any more."""
    return bool(isinstance(sealed, str) and isinstance(now, str) and _SHA256.fullmatch(sealed)) and not (
        _SHA256.fullmatch(now)
    )


def _say_rounds(seal: Seal) -> str:
    """How long a run is to be, and was to be."""
    return f"{seal.rounds} (extended = {list(seal.extended)})" if seal.extended else str(seal.rounds)


def _say(value: Any) -> str:
    text = str(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def hash_beginning(path: Path, length: int) -> str:
    """SHA-256 of a file's first bytes; "" where it has fewer."""
    digest, left = hashlib.sha256(), length
    if not path.exists():
        return "" if length else digest.hexdigest()
    with path.open("rb") as file:
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
    return "" if left else digest.hexdigest()
