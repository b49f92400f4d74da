"""Accuracy of a recipe against the number of hostile clients, under each guard: the tables of docs/robust.md.

    python examples/robust.py robust/utd --attacks scale sign=5 labels noise --attackers 0 1 2 3 --out runs/robust-utd

Every run is kept, so that a sweep which was stopped goes on. Attackers of a seed are drawn one after the other: those
who are hostile among two are among three, too. Accuracy is the mean over clients that are honest in every cell.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import product
from pathlib import Path
from statistics import fmean

from fedaction.engines.hostile import choose_attackers
from fedaction.runs.recipe import load_recipe
from fedaction.runs.study import load_clients, run_study

GUARDS = ("none", "norm", "median", "trimmed", "krum")


def main() -> None:
    """Runs what is missing and prints a table for each attack."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("recipe")
    parser.add_argument("--attacks", nargs="+", default=["scale"], help="kinds, each perhaps with =SIZE")
    parser.add_argument("--attackers", nargs="+", type=int, default=[0, 1, 2, 3], help="how many")
    parser.add_argument("--guards", nargs="+", default=GUARDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    clients = load_clients(load_recipe(given.recipe, given.set))
    honest = {
        seed: sorted({*clients} - choose_attackers(max(given.attackers), clients, seed)) for seed in given.seeds
    }

    def accuracy(seed: int, attack: str, count: int, guard: str, method: str = "") -> float:
        kind, _, size = attack.partition("=")
        attack, size = (attack, size or 0) if count else ("no", 0)
        keys = [f"seeds=[{seed}]", f"guard={guard}", "controls=[]", "client_models=none", "checkpoint_every=1000"]
        keys += [f"attack={kind if count else 'none'}", f"attackers={count}", f"attack_size={size}"]
        keys += [f"method={method}"] if method else []
        recipe = load_recipe(given.recipe, [*given.set, *keys])
        folder = given.out / f"{method or recipe.run.method}-{attack}-{count}-{guard}-{seed}"
        result = run_study(recipe, folder, given=list(clients.values()))
        return fmean(result["clients"][name] or 0.0 for name in honest[seed])

    def cell(attack: str, count: int, guard: str, method: str = "") -> str:
        each = [100 * accuracy(seed, attack, count, guard, method) for seed in given.seeds]
        return f"{fmean(each):.1f} ({min(each):.0f} to {max(each):.0f})"

    print(f"Alone: {cell(given.attacks[0], 0, 'none', 'local')}", flush=True)
    for attack in given.attacks:
        print(f"\n| {attack}: attackers | {' | '.join(given.guards)} |\n|---|{'---|' * len(given.guards)}")
        cells = {key: cell(attack, *key) for key in product(given.attackers, given.guards)}
        for count in given.attackers:
            print(f"| {count} | {' | '.join(cells[count, guard] for guard in given.guards)} |", flush=True)


if __name__ == "__main__":
    main()
