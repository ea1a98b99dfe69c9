"""The command: see the package."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.affected.changes import since_base
from tools.affected.history import measure
from tools.affected.selection import graph_of, select

DESCRIPTION = """\
Select the tests that a change can reach. A change is what the checkout has, committed or not, that
the base does not: the upstream branch, or another revision. If there is nothing, it is the last
commit.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.affected", description=DESCRIPTION)
    parser.add_argument("--base", help="compare with where HEAD left this revision")
    parser.add_argument("--list", action="store_true", help="print only the selected test files")
    parser.add_argument("--why", metavar="TEST", help="print how a test file reaches a change")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the selected test files, for pytest @FILE"
    )
    parser.add_argument(
        "--compiled", metavar="ARGUMENTS", default="",
        help="also write FILE-compiled: those that pytest would run with these arguments",
    )  # fmt: skip
    parser.add_argument(
        "--history", type=int, metavar="N", help="measure selections of the last N commits"
    )
    parser.add_argument(
        "--durations", type=Path, nargs="*", default=[], metavar="FILE",
        help="for --history: lines of JSON with the id of each test, and its CPU seconds",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    root = Path.cwd()
    if options.history:
        print(*measure(root, options.history, options.durations), sep="\n")
        return 0
    changes = since_base(root, options.base or None)
    found = select(root, changes, graph_of(root, changes))
    compiled = found.among(options.compiled.split())
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        _write(options.write, found.ways)
        _write(options.write.with_name(f"{options.write.name}-compiled"), compiled)
    if options.why:
        print(*found.ways.get(options.why) or ["not selected, or with everything"], sep="\n  -> ")
    elif options.list:
        print(*found.ways, sep="\n")
    else:
        print(f"changed since {changes.since[:12]}: {len(changes.all)} files")
        print(*found.report(), sep="\n")
        if options.compiled:
            print(f"also in the compiled build: {len(compiled)}")
    return 0


def _write(path: Path, tests: Iterable[str]) -> None:
    path.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
