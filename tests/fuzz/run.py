"""Gives mutants to parsers and counts what became of them.

    python -m tests.fuzz.run                          all parsers, 100,000 mutants each, a process for each parser
    python -m tests.fuzz.run --count 1000 npz mat     some of them

A mutant is refused (the parser's own error, in one line) or accepted; anything else is uncaught, and is printed with
what makes it again. `peak` is the most memory that the process had, what it takes to load the package included, and
`seconds` are the processor's, so that they mean the same on a busy machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import multiprocessing
import resource
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from fedaction.federation.seeds import numpy_generator

MOST_MESSAGE = 2000
"""Characters of a refusal."""
_CEILING = 8 * 2**30  # bytes of address space: a parser that breaks its promise does not take the machine along


@dataclass
class Tally:
    """What became of the mutants of a parser."""

    refused: int = 0
    accepted: int = 0
    uncaught: list[str] = field(default_factory=list[str])
    mutants: int = 0


def fuzz(name: str, count: int, seed: int = 0, first: int = 0, seconds: float = math.inf) -> Tally:
    """Gives mutants `first` to `first + count` of a seed to a parser; fewer where `seconds` are over before."""
    end = time.monotonic() + seconds
    from tests.fuzz.parsers import PARSERS

    parser, tally = PARSERS[name], Tally()
    whole = parser.files()
    names = [file for file in whole if callable(parser.change) or any(file.endswith(end) for end in parser.change)]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        folder = Path(place)
        for file, content in whole.items():
            (folder / file).write_bytes(content)
        parser.read(folder)  # what nothing was done to is taken
        for number in range(first, first + count):
            if time.monotonic() > end:
                break
            tally.mutants += 1
            random = numpy_generator(seed, "fuzz", name, number)
            file = names[int(random.integers(len(names)))]
            (folder / file).write_bytes(parser.change_file(file, whole[file], random))
            if parser.seal is not None:
                parser.seal(folder)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    parser.read(folder)
                tally.accepted += 1
            except parser.refusal as error:
                tally.refused += 1
                if len(text := str(error)) > MOST_MESSAGE or not text.isprintable():
                    tally.uncaught.append(
                        f"{name} {seed} {number}: a message of {len(text)} characters, {text[:300]!r}"
                    )
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(last.filename).name}:{last.lineno}"
                tally.uncaught.append(
                    f"{name} {seed} {number}: {type(error).__name__} at {where}: {str(error)[:200]}"
                )
            for left in whole if parser.seal is not None else (file,):
                (folder / left).write_bytes(whole[left])
    return tally


def is_there(name: str) -> bool:
    """Whether what a parser needs is installed."""
    from tests.fuzz.parsers import PARSERS

    needs = PARSERS[name].needs
    return not needs or importlib.util.find_spec(needs) is not None


def _work(
    name: str,
    count: int,
    seed: int,
    first: int,
    seconds: float,
    answer: multiprocessing.Queue[tuple[Tally, int, float]],
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_CEILING, _CEILING))
    tally = fuzz(name, count, seed, first, seconds)
    answer.put((tally, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()))


def main() -> int:
    """The command."""
    from tests.fuzz.parsers import PARSERS

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parsers", nargs="*", metavar="PARSER", help=", ".join(PARSERS))
    arguments.add_argument("--count", type=int, default=100_000)
    arguments.add_argument("--first", type=int, default=0, help="The number of the first mutant: to go on later.")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument(
        "--seconds", type=float, default=math.inf, help="The most that a parser is given; what is done then counts."
    )
    given = arguments.parse_args()
    faults = 0
    print(
        "| parser | mutants | refused | accepted | uncaught | peak, MB | seconds |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    start = multiprocessing.get_context("spawn")
    for name in given.parsers or [name for name in PARSERS if is_there(name)]:
        answer = start.Queue()
        process = start.Process(
            target=_work, args=(name, given.count, given.seed, given.first, given.seconds, answer)
        )
        process.start()
        while process.is_alive() and answer.empty():
            time.sleep(0.2)
        if answer.empty():
            faults += 1
            print(f"| {name} | the process ended with {process.exitcode} |", flush=True)
            continue
        tally, peak, seconds = answer.get()
        process.join()
        lost = len(tally.uncaught)
        cells = (name, tally.mutants, tally.refused, tally.accepted, lost, f"{peak / 1000:.0f}", f"{seconds:.0f}")
        print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)
        print("\n".join(tally.uncaught[:20]), end="\n" if lost else "", file=sys.stderr, flush=True)
        faults += lost
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
