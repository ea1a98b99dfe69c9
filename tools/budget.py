"""Compares the CPU seconds of each folder of tests with its budget.

    python -m tools.budget DIRECTORY [--update]

DIRECTORY has a file for each run (``pytest --spent``): ``pure.json`` is that of the run called
``pure``. tests/budget.json has the budgets, and how long the machine that they were measured on
took for a fixed piece of work: other machines get more or less accordingly. The exit status is 1 if
a folder takes more than twice its budget. ``--update`` writes new budgets instead.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

BUDGETS = Path("tests/budget.json")
MOST = 2.0  # times its budget
SMALL = 10.0  # CPU seconds that a folder may take in any case: small figures vary


class Folder(NamedTuple):
    """A folder's CPU seconds. ``budget`` is None if it has none yet."""

    run: str
    name: str
    seconds: float
    budget: float | None

    @property
    def is_over(self) -> bool:
        """Whether it takes too much."""
        return self.seconds > max(MOST * (self.budget or 0.0), SMALL)

    def __str__(self) -> str:
        budget = "none" if self.budget is None else f"{self.budget:.0f}"
        return f"{self.run:10} {self.name:26} {self.seconds:8.1f} {budget:>8}{'  !' * self.is_over}"


def reference_seconds() -> float:
    """CPU seconds that this machine takes for a fixed piece of work; the least of some attempts."""
    attempts = []
    for _ in range(7):
        start = time.process_time()
        counts: dict[int, list[bytes]] = {}
        for n in range(100_000):
            counts.setdefault(n * 7919 % 1009, []).append(b"%d" % n)
        attempts.append(time.process_time() - start)
    return min(attempts)


def compare(
    spent: Mapping[str, Mapping[str, float]],
    budgets: Mapping[str, Mapping[str, float]],
    speed: float = 1.0,
) -> Iterator[Folder]:
    """The folders of all runs.

    Args:
        spent, budgets: CPU seconds by run and folder.
        speed: how long this machine takes for what took the other one, that of the budgets, 1.
    """
    for run, folders in spent.items():
        for name, seconds in folders.items():
            budget = budgets.get(run, {}).get(name)
            yield Folder(run, name, seconds, None if budget is None else budget * speed)


def main(argv: list[str] | None = None) -> int:
    """Print the comparison; returns the exit status."""
    parser = argparse.ArgumentParser(description="CPU seconds of tests beside their budgets")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--update", action="store_true", help="write new budgets")
    options = parser.parse_args(argv)
    spent = {
        path.stem: json.loads(path.read_text()) for path in sorted(options.directory.glob("*.json"))
    }
    reference = reference_seconds()
    if options.update:
        rounded = {
            run: {name: round(seconds, 1) for name, seconds in folders.items()}
            for run, folders in spent.items()
        }
        BUDGETS.write_text(json.dumps({"reference": reference, "runs": rounded}, indent=1) + "\n")
        return 0
    known = json.loads(BUDGETS.read_text())
    folders = list(compare(spent, known["runs"], reference / known["reference"]))
    print(f"{'build':10} {'tests':26} {'CPU s':>8} {'budget':>8}")
    for folder in sorted(folders, key=lambda folder: -folder.seconds):
        print(folder)
    print(f"{'':10} {'in all':26} {sum(folder.seconds for folder in folders):8.1f}")
    over = [folder for folder in folders if folder.is_over]
    for folder in over:
        print(
            f"budget: {folder.name} ({folder.run}) takes more than twice its budget. Make it"
            " cheaper, or state a new one with python -m tools.budget --update.",
            file=sys.stderr,
        )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
