"""Counts how many small changes of the code no unit test notices, and lists them.

    python -m tools.mutants [--seed 1] [--count 300] [--jobs 2] [--at-least 85] [PATH...]

Draws a sample of all mutations of the files in PATH (by default of the parts where behaviour is
decided), and runs the unit tests that reach each. The same seed draws the same mutations, as long
as the files stay the same. A mutation that no test reaches survives. The exit status is 1 if too
few are noticed. Ctrl-C counts what has been run, which is a sample too.

tools/mutants/equal.yaml lists mutations that change no behaviour, each with the reason. They are
not counted.

Why not a tool that exists? cosmic-ray 8.7 starts pytest for each mutation, which takes two seconds
of CPU time before the first test. mutmut 3.8 forks, but collects in each fork, picks tests by
function instead of by line (hundreds call some functions of the core), leaves out no statement, and
draws no sample of the 17,000 mutations.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import yaml

from tools.mutants.mutations import Mutation, find
from tools.mutants.runs import AT_IMPORT, KILLED, SURVIVED, Result, run

PATHS = [
    "disque_trio/aof",
    "disque_trio/cluster",
    "disque_trio/node/core",
    "disque_trio/respserver/acl",
]
TESTS = ["tests/unit/aof", "tests/unit/cluster", "tests/unit/node", "tests/unit/respserver"]
EQUAL = Path(__file__).with_name("equal.yaml")
SAME = "equal"  # changes no behaviour


def sample(mutations: Sequence[Mutation], seed: int, count: int) -> list[Mutation]:
    """Return ``count`` of ``mutations``, or all, in a random order: the first of them are a sample
    too, if time is short."""
    return random.Random(seed).sample(mutations, min(count, len(mutations)))


def read_equal(file: Path) -> dict[tuple[str, str, str, str], str]:
    """The mutations that change no behaviour, with the reasons."""
    entries = yaml.safe_load(file.read_text()) or []
    names = ("file", "function", "before", "after")
    return {tuple(entry[name] for name in names): entry["why"] for entry in entries}


class Report:
    """Prints the survivors as they are found, and counts by the paths that were given."""

    def __init__(self, paths: Sequence[str], out: TextIO) -> None:
        self._paths = paths
        self._out = out
        self._counts: dict[str, Counter[str]] = {path: Counter() for path in paths}

    def add(self, result: Result) -> None:
        """Count ``result``."""
        file = Path(result.mutation.file)
        path = next(path for path in self._paths if file.is_relative_to(path))
        self._counts[path][result.fate] += 1
        if result.fate == SURVIVED:
            self.print(f"{result.mutation}  ({result.tests} tests reach it)")

    def print(self, line: str) -> None:
        """Print ``line`` at once."""
        print(line, file=self._out, flush=True)

    def share(self) -> float:
        """Print the counts; return how many percent of the mutations were killed."""
        total = sum(self._counts.values(), Counter[str]())
        for path, counts in [*self._counts.items(), ("all", total)]:
            fates = [f"{counts[fate]} {fate}" for fate in (KILLED, SURVIVED, SAME, AT_IMPORT)]
            self.print(f"{path}: {_percent(counts):.1f} % killed: {', '.join(fates)}")
        return _percent(total)


def _percent(counts: Counter[str]) -> float:
    return 100 * counts[KILLED] / max(counts[KILLED] + counts[SURVIVED], 1)


def main(words: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants")
    parser.add_argument("paths", nargs="*", default=PATHS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--at-least", type=float, default=85, help="percent to be killed")
    parser.add_argument("--tests", nargs="+", default=TESTS)
    parser.add_argument("--equal", type=Path, default=EQUAL)
    options = parser.parse_args(words)
    mutations = find([Path(path) for path in options.paths])
    chosen = sample(mutations, options.seed, options.count)
    equal = read_equal(options.equal)
    report = Report(options.paths, os.fdopen(os.dup(sys.stdout.fileno()), "w"))
    start = time.monotonic()
    report.print(f"{len(chosen)} of {len(mutations)} mutations, seed {options.seed}")
    for mutation in chosen:
        if mutation.key in equal:
            report.add(Result(mutation, SAME, 0))
    rest = [mutation for mutation in chosen if mutation.key not in equal]
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile("w+") as output:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = directory
        try:
            runner = run(rest, options.tests, options.jobs, report.add, output)
        except RuntimeError as problem:
            output.seek(0)
            print(f"{output.read()}{problem}", file=sys.stderr)
            return 2
    share = report.share()
    report.print(f"{runner.number_of_tests} tests, {time.monotonic() - start:.0f} s")
    for test in runner.broken:
        report.print(f"left out, since it fails without a mutation: {test}")
    for test in runner.repeated:
        report.print(f"left out, since it fails in a fork without a mutation: {test}")
    for test, mutation in runner.by_chance:
        report.print(f"not counted, since it failed only once: {test}, {mutation}")
    searched = {mutation.file for mutation in mutations}
    for key in equal.keys() - {mutation.key for mutation in mutations}:
        if key[0] in searched:
            report.print(f"no longer in the code, but in {options.equal}: {key}")
    return 0 if share >= options.at_least else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
