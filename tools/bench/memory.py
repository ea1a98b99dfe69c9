"""What jobs take of a node's memory, and how long a node stops: ``python -m tools.bench.memory``.

A node is filled with jobs of 100 bytes and its resident memory is read, alone and in a cluster of
two in which each job has a copy; Redis holds as many beside it. Then a million jobs are added and
got rid of in several ways, and what the node does meanwhile is watched from outside (a client that
PINGs all the time) and from inside (how long its loop is busy between two looks at its sockets).
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.bench import report
from tools.bench.memory_runs import Growth, Held, Plan, Step, alone, copied, growth, redis, steps
from tools.bench.servers import DISQUE_COMMAND, GENERATOR_CPUS, ServerError
from tools.bench.workloads import SERIAL_DIGITS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
MODULE = "tools.bench.memory"
SECTION = "memory of jobs"
MB = 1_000_000
PARTS = ("held", "stops", "growth")


def held_table(found: Sequence[Held]) -> str:
    """What jobs take."""
    titles = ["who", "jobs", "bytes a job", "MB before", "MB with them", "MB after", "kept"]
    rows = []
    for held in found:
        emptied, kept = held.emptied, held.kept
        row = [held.who, f"{held.jobs:,}", f"**{held.per_job:,.0f}**"]
        row += [f"{held.empty / MB:,.0f}", f"{held.full / MB:,.0f}"]
        row.append("" if emptied is None else f"{emptied / MB:,.0f}")
        row.append("" if kept is None else f"{kept:.0%}")
        rows.append(row)
    return report.table(titles, rows)


def steps_table(found: Sequence[Step]) -> str:
    """How long the node stopped."""
    titles = ["step", "jobs", "longest wait of a PING, ms", "longest turn, ms", "its CPU time, ms"]
    titles += ["collections", "longest, ms", "objects freed by them"]
    rows = []
    for step in found:
        stops = step.stops
        row = [step.what, f"{step.jobs:,}", f"{stops.gap:.1f}" if stops.gap else ""]
        row += [f"{stops.wall:.1f}", f"**{stops.cpu:.1f}**", str(stops.collections)]
        row += [f"{stops.collector:.1f}", str(stops.freed)] if stops.collections else ["", ""]
        rows.append(row)
    return report.table(titles, rows)


def growth_text(grown: Growth) -> str:
    """What stays of many jobs and clients."""
    sizes = ", ".join(f"{size / MB:.1f}" for size in grown.rss)
    return (
        f"{grown.lives:,} jobs and {grown.clients:,} clients come and go in each round, and after"
        f" the rounds the process has {sizes} MB: {grown.per_round / 1000:+,.0f} kB a round."
    )


def main(arguments: Sequence[str]) -> int:
    """Measures and prints. Returns the exit status."""
    options = _parser().parse_args(arguments)
    quick = bool(options.quick)
    plan = Plan(
        command=shlex.split(options.server),
        jobs=options.jobs or ((2_000, 5_000) if quick else (1_000_000, 10_000_000)),
        copies=options.copies or ((2_000,) if quick else (1_000_000,)),
        stops=options.stops or (5_000 if quick else 1_000_000),
        lives=options.lives or (2_000 if quick else 500_000),
        size=max(options.size, SERIAL_DIGITS),
        say=_say,
    )
    if options.write_docs:
        # Not after minutes of work: is there a place for the tables?
        report.replace_section(DOCS.read_text(), SECTION, "")
    os.sched_setaffinity(0, GENERATOR_CPUS)
    parts = [report.heading(arguments, report.machine(), MODULE)]
    clusters: list[Step] = []
    if "held" in options.parts:
        copies, clusters = copied(plan)
        parts.append(held_table([*alone(plan), *copies, *redis(plan)]))
    if "stops" in options.parts:
        parts.append(steps_table([*steps(plan), *clusters]))
    if "growth" in options.parts:
        parts.append(growth_text(growth(plan)))
    text = "\n\n".join(parts)
    print(text)
    if options.write_docs:
        DOCS.write_text(report.replace_section(DOCS.read_text(), SECTION, text))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="few jobs, to see that everything works")
    add("--parts", type=_parts, default=PARTS, metavar="P,P", help=f"of {', '.join(PARTS)}")
    add("--jobs", type=_numbers, metavar="N,N", help="of a node alone (1000000,10000000)")
    add("--copies", type=_numbers, metavar="N,N", help="of a cluster of two (1000000)")
    add("--stops", type=_number, metavar="N", help="jobs added and freed at once (1000000)")
    add("--lives", type=_number, metavar="N", help="jobs of a round of the growth (500000)")
    add("--size", type=_number, default=100, help="bytes of a job's body (default 100)")
    add("--server", metavar="COMMAND", default=shlex.join(DISQUE_COMMAND), help="starts a node")
    add("--write-docs", action="store_true", help=f"replace the tables in docs/{DOCS.name}")
    return parser


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    if not set(parts) <= set(PARTS):
        raise argparse.ArgumentTypeError(f"of {', '.join(PARTS)}")
    return parts


def _number(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_number(part) for part in text.split(","))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ServerError, report.DocsError) as error:
        sys.exit(f"bench: {error}")
