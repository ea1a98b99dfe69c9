"""The speed of auditing an event log, and whether it finds the planted faults."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from disque_spark.audit.engine import Engine, LocalEngine
from disque_spark.audit.manifest import FINDINGS
from disque_spark.audit.run import audit
from disque_spark.defaults import LOCAL
from packages.spark.tests.support.planted_log import JOBS_A_SECOND, Key, about_of, generate
from packages.spark.tests.support.written_logs import read
from tools.bench.cli import option, say
from tools.bench.servers import family, family_cpu_seconds, highest

PINNED = False
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to audit."""

    events: int = option(1_000_000, "events in the log", quick=5_000)
    faults: int = option(0, "faults of each kind and reason (default: one per 20,000 events)")
    hours: int = option(0, "hours that the log spans (default: at 400 jobs per second)")
    engine: str = option("local", "where the work is done: local or spark")
    cores: int = option(2, "cores that the audit may use")
    runs: int = option(1, "audits, each from the beginning; only the last one is shown")
    directory: str = option(
        "", "directory in which to keep the log and the tables (default: do not keep them)"
    )


def run(plan: Plan) -> int:
    """Generate, audit, compare, print. Returns the exit status: 1 if the audit is wrong."""
    with ExitStack() as stack:
        directory = Path(
            plan.directory or stack.enter_context(tempfile.TemporaryDirectory(prefix="audit-log-"))
        )
        log = directory / f"log-{plan.events}"
        tables = directory / f"tables-{plan.events}-{plan.engine}-{plan.cores}"
        for old in (log, tables):
            shutil.rmtree(old, ignore_errors=True)
        begun = time.monotonic()
        faults = plan.faults or max(20, plan.events // 20_000)
        rate = plan.events / 9 / (3600 * plan.hours) if plan.hours else JOBS_A_SECOND
        planted = generate(log, plan.events, anomalies=faults, torn=True, rate=rate)
        size = sum(file.stat().st_size for file in log.iterdir())
        say(f"log: {size / 1e6:.0f} MB, written in {time.monotonic() - begun:.0f} s")
        most = stack.enter_context(highest(held_megabytes, LOOK_SECONDS))
        begun = time.monotonic()
        engine = stack.enter_context(opened(plan.engine, plan.cores))
        started = time.monotonic() - begun
        for _ in range(plan.runs):
            shutil.rmtree(tables, ignore_errors=True)
            begun, used = time.monotonic(), family_cpu_seconds([os.getpid()])
            result = audit(engine, [str(log)], tables)
            took = time.monotonic() - begun
            used = family_cpu_seconds([os.getpid()]) - used
        rows = read(tables, FINDINGS)
    found: dict[Key, set[str]] = {}
    for row in rows:
        found.setdefault((row.kind, row.reason or ""), set()).add(about_of(row))
    missed = sum(len(jobs - found.get(key, set())) for key, jobs in planted.items())
    invented = sum(len(jobs - planted.get(key, set())) for key, jobs in found.items())
    print(
        f"{result.events} events, {plan.engine}, {plan.cores} cores: {took:.1f} s,"
        f" {result.events / took:,.0f} events/s, {used:.1f} s of CPU time,"
        f" {used / result.events * 1e6:.2f} us an event; {result.jobs} jobs;"
        f" session {started:.1f} s;"
        f" most memory {most[0]:.0f} MB; findings: {sum(map(len, found.values()))},"
        f" missed {missed}, invented {invented}"
    )
    return 1 if missed or invented else 0


@contextmanager
def opened(engine: str, cores: int, memory: str | None = None) -> Iterator[Engine]:
    """An engine that uses some cores."""
    if engine == LOCAL:
        yield LocalEngine(cores)
        return
    from disque_spark.audit.spark_engine import SparkEngine
    from disque_spark.session import session

    settings = {} if memory is None else {"spark.driver.memory": memory}
    spark = session(f"local[{cores}]", settings)
    try:
        yield SparkEngine(spark)
    finally:
        spark.stop()


def held_megabytes() -> float:
    """Memory of this process and its descendants in MB; shared memory is counted once."""
    total = 0
    for pid in family([os.getpid()]):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        sizes = (line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
        total += sum(map(int, sizes))
    return total / 1024
