"""The command line of the comparison: ``python -m tools.bench.compare``."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tools.bench import report
from tools.bench.command import number, numbers, run, say
from tools.bench.compare.chart import chart
from tools.bench.compare.rounds import Plan, rounds
from tools.bench.compare.subjects import LEVELS, Level, Subject, all_subjects
from tools.bench.compare.tables import LEVEL_TITLES, figures, ratio_table
from tools.bench.servers import DISQUE_COMMAND, GENERATOR_CPUS, SERVER_CPUS, ServerError
from tools.bench.workloads import SERIAL_DIGITS

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "performance.md"
CHART = DOCS / "compare.svg"
SECTION = "compare"
MODULE = "tools.bench.compare"


def main(arguments: Sequence[str]) -> int:
    """Measures, and prints the table. Returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.size < SERIAL_DIGITS:
        parser.error(f"--size: at least {SERIAL_DIGITS}")
    subjects, notes = _present(all_subjects(shlex.split(options.server)), options.subjects)
    if not subjects:
        raise ServerError("\n".join(["there is nothing to measure", *notes]))
    plan = Plan(
        subjects=subjects,
        levels=options.durability,
        pipelines=options.pipelines,
        clients=options.clients,
        rounds=options.rounds,
        jobs=options.jobs,
        seconds=options.seconds,
        size=options.size,
        directory=options.dir,
        say=say,
    )
    for level in plan.levels:
        lacks = filter(None, (subject.lacks(level) for subject in subjects))
        notes += [f"Synced {LEVEL_TITLES[level]}: {lack}." for lack in lacks]
    for note in notes:
        say(note)
    if options.write_docs:
        # Not after minutes of work: is there a place for the table?
        report.replace_section(PAGE.read_text(), SECTION, "")
    os.sched_setaffinity(0, GENERATOR_CPUS)
    facts = _facts(subjects, options.dir)
    results = rounds(plan)
    found = figures(results, subjects)
    parts = [report.heading(arguments, facts, MODULE), ratio_table(found)]
    parts += [f"- {note}" for note in notes]
    text = "\n\n".join(parts)
    print(text)
    if options.json is not None:
        whole = {
            "arguments": list(arguments),
            "machine": facts,
            "notes": notes,
            "results": [asdict(result) for result in results],
        }
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    if options.svg is not None:
        options.svg.write_text(chart(found))
    if options.write_docs:
        CHART.write_text(chart(found))
        picture = f"![Jobs a second and CPU time a job of each server]({CHART.name})"
        page = report.replace_section(PAGE.read_text(), SECTION, f"{picture}\n\n{text}")
        PAGE.write_text(page)
    return 0


def _present(
    subjects: Sequence[Subject], wanted: Sequence[str] | None
) -> tuple[list[Subject], list[str]]:
    """The subjects that are wanted and installed, and what to say about the others."""
    found, notes = [], []
    for subject in subjects:
        if wanted is not None and subject.key not in wanted:
            continue
        missing = subject.missing()
        if missing is None:
            found.append(subject)
        else:
            notes.append(missing)
    return found, notes


def _facts(subjects: Sequence[Subject], directory: Path | None) -> dict[str, str]:
    """What the figures depend on: date, versions, machine."""
    try:
        machine = report.machine()
    except FileNotFoundError:  # it asks redis-server for its version
        machine = {}
    versions = {subject.package or subject.title: subject.version() for subject in subjects}
    return {
        **machine,
        **versions,
        "CPUs for the servers": str(len(SERVER_CPUS)),
        "for the generator": str(len(GENERATOR_CPUS)),
        "files on": _file_system(directory or Path(tempfile.gettempdir())),
    }


def _file_system(path: Path) -> str:
    """The kind of file system that a directory is on: a sync of a tmpfs costs nothing."""
    path = path.resolve()
    best, kind = -1, "?"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, this_kind, *_ = line.split(" ")
        if path.is_relative_to(where) and len(where) > best:
            best, kind = len(where), this_kind
    return kind


def _parser() -> argparse.ArgumentParser:
    keys = [subject.key for subject in all_subjects()]
    parser = argparse.ArgumentParser(
        prog=f"python -m {MODULE}",
        description="Measures our node beside other queues that do the same jobs in the same run."
        " docs/performance.md explains the figures.",
    )
    add = parser.add_argument
    add("--rounds", type=number, default=3, help="how often everything is measured (default 3)")
    add("--jobs", type=number, default=100_000, help="most jobs of a measurement (default 100000)")
    add("--seconds", type=float, default=3.0, help="most time of a measurement (default 3)")
    add("--clients", type=number, default=50, help="connections (default 50)")
    add("--pipelines", type=numbers, default=(1, 16), metavar="N,N", help="(default 1,16)")
    add("--size", type=number, default=100, help="bytes of a job's body (default 100)")
    add(
        "--subjects",
        type=lambda text: _names(text, keys),
        metavar="NAME,NAME",
        help=f"what is measured, of {', '.join(keys)} (default: all that are installed)",
    )
    add(
        "--durability",
        type=_levels,
        default=LEVELS,
        metavar="LEVEL,LEVEL",
        help=f"of {', '.join(LEVELS)} (default: all)",
    )
    add(
        "--server",
        metavar="COMMAND",
        default=shlex.join(DISQUE_COMMAND),
        help="the command that starts the Disque node",
    )
    add("--dir", type=Path, help="where the servers have their files (default: $TMPDIR)")
    add("--json", type=Path, metavar="FILE", help="write every result of every round")
    add("--svg", type=Path, metavar="FILE", help="write the chart")
    add(
        "--write-docs",
        action="store_true",
        help=f"replace the table in docs/{PAGE.name} and docs/{CHART.name}",
    )
    return parser


def _names(text: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
    return names


def _levels(text: str) -> tuple[Level, ...]:
    names = _names(text, LEVELS)
    return tuple(level for level in LEVELS if level in names)


if __name__ == "__main__":
    run(main)
