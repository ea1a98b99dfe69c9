"""The command line: ``python -m tools.bench.latency``."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tools.bench import report
from tools.bench.command import number, run, say
from tools.bench.latency.plot import plot
from tools.bench.latency.situations import (
    EXPIRY,
    FEDERATION,
    LEVELS,
    REWRITE,
    Finding,
    Plan,
    measure,
    sync_times,
)
from tools.bench.latency.tables import aims_table, disk_line, latency_table
from tools.bench.servers import DISQUE_COMMAND, GENERATOR_CPUS, SERVER_CPUS

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "performance.md"
PICTURE = DOCS / "latency.svg"
SECTION = "latency"
MODULE = "tools.bench.latency"
SITUATIONS = (*LEVELS, REWRITE, EXPIRY, FEDERATION)


def main(arguments: Sequence[str]) -> int:
    """Measures, and prints the tables. Returns the exit status."""
    options = _parser().parse_args(arguments)
    plan = _plan(options)
    if options.write_docs:
        # Not after minutes of work: is there a place for the tables?
        report.replace_section(PAGE.read_text(), SECTION, "")
    os.sched_setaffinity(0, GENERATOR_CPUS)
    facts = _facts()
    syncs = sync_times()
    found = measure(plan)
    parts = [report.heading(arguments, facts, MODULE), aims_table(found), latency_table(found)]
    text = "\n\n".join([*parts, disk_line(syncs)])
    print(text)
    if options.json is not None:
        results = [_data(one) for one in found]
        whole = {"arguments": list(arguments), "machine": facts, "results": results}
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    if options.svg is not None:
        options.svg.write_text(plot(found))
    if options.write_docs:
        PICTURE.write_text(plot(found))
        picture = f"![Time of a cycle by percentile, in all situations]({PICTURE.name})"
        page = report.replace_section(PAGE.read_text(), SECTION, f"{picture}\n\n{text}")
        PAGE.write_text(page)
    return 0


def _plan(options: argparse.Namespace) -> Plan:
    plan = Plan(command=shlex.split(options.server), situations=options.situations, say=say)
    if options.quick:
        plan = replace(
            plan,
            loads=(0.5,),
            seconds=1.0,
            peak_seconds=0.3,
            clients=8,
            held=2_000,
            expiring=5_000,
        )
    given = {name: getattr(options, name) for name in ("seconds", "clients", "held", "expiring")}
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def _facts() -> dict[str, str]:
    """What the figures depend on: date, versions, machine."""
    try:
        machine = report.machine()
    except FileNotFoundError:  # it asks redis-server for its version
        machine = {}
    machine.pop("redis-server", None)
    shared = GENERATOR_CPUS & SERVER_CPUS
    return {
        **machine,
        "CPUs for the nodes": str(len(SERVER_CPUS)),
        "for the generator": "the same" if shared else str(len(GENERATOR_CPUS)),
    }


def _data(one: Finding) -> dict[str, object]:
    measured = one.measured
    load = measured.load
    histograms = {name: getattr(load, name).as_data() for name in ("cycles", "late", "rounds")}
    return {
        "situation": one.situation,
        "load": one.load,
        "peak": one.peak,
        "note": one.note,
        "order": asdict(measured.order),
        "seconds": load.seconds,
        "own_cpu": load.own_cpu,
        "cpu": measured.cpu,
        **histograms,
        "pings": measured.watched.times.as_data(),
        "longest_own": measured.watched.longest_own,
        "pauses": [asdict(pause) for pause in measured.watched.pauses],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {MODULE}",
        description="How long a job's life takes at a given load, and how long the node pauses."
        " docs/performance.md explains the figures.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a few seconds a situation, to see that it works")
    add(
        "--situations",
        type=_situations,
        default=SITUATIONS,
        metavar="NAME,NAME",
        help=f"of {', '.join(SITUATIONS)} (default: all)",
    )
    add("--seconds", type=float, help="of each measurement (default 8)")
    add("--clients", type=number, help="connections (default 50)")
    add("--held", type=number, help="jobs in the file that is rewritten (default 500000)")
    add("--expiring", type=number, help="jobs that expire at the same time (default 1000000)")
    add(
        "--server",
        metavar="COMMAND",
        default=shlex.join(DISQUE_COMMAND),
        help="the command that starts the node",
    )
    add("--json", type=Path, metavar="FILE", help="write all histograms and pauses")
    add("--svg", type=Path, metavar="FILE", help="write the picture")
    add(
        "--write-docs",
        action="store_true",
        help=f"replace the tables in docs/{PAGE.name} and docs/{PICTURE.name}",
    )
    return parser


def _situations(text: str) -> tuple[str, ...]:
    names = text.split(",")
    for name in names:
        if name not in SITUATIONS:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(SITUATIONS)}")
    return tuple(name for name in SITUATIONS if name in names)


if __name__ == "__main__":
    run(main)
