"""The command line of the benchmark: ``python -m tools.bench``."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from tools.bench import report, scenarios
from tools.bench.command import number, numbers, run, say
from tools.bench.scenarios import Plan
from tools.bench.servers import (
    DISQUE_COMMAND,
    GENERATOR_CPUS,
    MAX_CLIENTS,
    ServerError,
    disque_server,
    redis_server,
)
from tools.bench.workloads import SERIAL_DIGITS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
SPARE_FILES = 200


def main(arguments: Sequence[str]) -> int:
    """Runs one scenario and prints its table. Returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.size < SERIAL_DIGITS:
        parser.error(f"--size: at least {SERIAL_DIGITS}")
    plan = _plan(options)
    needed = max(*plan.clients, plan.idle if options.scenario == "idle" else 0) + SPARE_FILES
    if needed > MAX_CLIENTS:
        parser.error(f"at most {MAX_CLIENTS - SPARE_FILES} connections")
    _raise_file_limit(needed)
    if options.write_docs:
        # Not after minutes of work: is there a place for the table?
        report.replace_section(DOCS.read_text(), options.scenario, "")
    os.sched_setaffinity(0, GENERATOR_CPUS)
    tables, data = _measure(options.scenario, plan)
    facts = report.machine()
    text = f"{report.heading(arguments, facts)}\n\n" + "\n\n".join(tables)
    print(text)
    if options.json is not None:
        whole = {"arguments": list(arguments), "machine": facts, "results": data}
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    if options.write_docs:
        page = DOCS.read_text()
        DOCS.write_text(report.replace_section(page, options.scenario, text))
    return 0


def _measure(scenario: str, plan: Plan) -> tuple[list[str], list[dict[str, object]]]:
    """The tables of a scenario, and what is in them as plain data."""
    if scenario == "matrix":
        samples = scenarios.matrix(plan)
        return [report.matrix_table(samples)], [asdict(sample) for sample in samples]
    if scenario == "held":
        samples = scenarios.held(plan)
        text = report.level_table(samples, lambda s: s.setting.held, "held")
        return [text], [asdict(sample) for sample in samples]
    samples, rests = scenarios.idle(plan)
    text = report.level_table(samples, lambda s: s.setting.idle, "idle")
    data = [asdict(sample) for sample in samples] + [asdict(rest) for rest in rests]
    return [text, report.rest_table(rests)], data


def _plan(options: argparse.Namespace) -> Plan:
    ours = (
        partial(disque_server, "disque", shlex.split(options.server))
        if options.subject == "disque"
        else partial(redis_server, "redis again")
    )
    plan = Plan(starts=(ours, redis_server), say=say)
    if options.quick:
        plan = replace(
            plan,
            rounds=1,
            pipelines=(1, 16),
            clients=(1, 50),
            held=(1_000, 10_000),
            idle=200,
            work=0.02,
        )
    given = {
        "rounds": options.rounds,
        "pipelines": options.pipelines,
        "clients": options.clients,
        "held": options.held,
        "idle": options.idle,
        "size": options.size,
        "work": options.work,
    }
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description="Measures what a command costs a Disque node, beside redis-server doing the"
        " same job in the same run. docs/performance.md explains the figures.",
    )
    add = parser.add_argument
    add(
        "--scenario",
        choices=("matrix", "held", "idle"),
        default="matrix",
        help="matrix: every command by pipeline depth and clients (the default); held: the cost"
        " with more and more jobs held; idle: the cost beside idle connections",
    )
    add("--quick", action="store_true", help="a few seconds' run, to see that everything works")
    add("--rounds", type=number, help="how often everything is measured (default 3)")
    add("--pipelines", type=numbers, metavar="N,N", help="pipeline depths (default 1,16,64)")
    add("--clients", type=numbers, metavar="N,N", help="numbers of clients (default 1,50,1000)")
    add("--held", type=numbers, metavar="N,N", help="jobs held (default 1000 to 1000000)")
    add("--idle", type=number, help="idle connections (default 10000)")
    add("--size", type=number, default=100, help="bytes of a job's body (default 100)")
    add("--work", type=float, help="scales the number of commands measured (default 1.0)")
    add(
        "--server",
        metavar="COMMAND",
        default=shlex.join(DISQUE_COMMAND),
        help="the command that starts the Disque node",
    )
    add(
        "--subject",
        choices=("disque", "redis"),
        default="disque",
        help="redis measures redis-server against itself: how far the ratios of this machine"
        " stray from 1",
    )
    add("--json", type=Path, metavar="FILE", help="write every sample of every round")
    add("--write-docs", action="store_true", help=f"replace the table in docs/{DOCS.name}")
    return parser


def _raise_file_limit(needed: int) -> None:
    """Lets this process and the servers it starts have as many connections as they need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ServerError(f"{needed} open files are needed, the limit is {hard} (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


if __name__ == "__main__":
    run(main)
