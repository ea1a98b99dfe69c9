"""The commands of ``disque-pipeline``: thin wrappers around functions that can be imported.

Exit status: 0 done; 1 something failed; 2 invalid arguments; 3 done, and ``audit --check`` found
jobs that were lost, not done, or delivered after their acknowledgement, or missing log lines, or
``--fail-on`` what it names; 130
and 143 stopped by SIGINT and SIGTERM. For an ``archive`` without ``--available-now``, and for a
``watch``, being stopped is 0.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from disque_spark.audit.engine import Engine
from disque_spark.audit.engines import engine_of
from disque_spark.audit.rules import Rules
from disque_spark.audit.store import StoreError
from disque_spark.audit.unread import AuditError
from disque_spark.cli.checks import (
    UsageError,
    addresses,
    archive_of,
    check_archive,
    check_audit,
    check_replay,
    connection_options,
)
from disque_spark.cli.engines import local_engine
from disque_spark.cli.lacking import judged, lacking
from disque_spark.cli.outcome import outcome
from disque_spark.cli.sessionless import FAILED, OK, STOPPED, USAGE
from disque_spark.cli.watching import check_watch, watch
from disque_spark.client import RefusedError
from disque_spark.failures import one_line
from disque_spark.files import location, settings_of
from disque_spark.health import HealthFile
from disque_spark.lakehouse.settings import TableError
from disque_spark.leases.store import LeaseError
from disque_spark.package import is_remote
from disque_spark.restarts import Restarts
from disque_spark.segments import SegmentError
from disque_spark.signals import Signals, Stopped
from disque_spark.terminal import TerminalProgress
from disque_trio.aof.format import AofError
from disque_trio.job_options import ScheduleOptions
from disque_trio.process.one_line import show_traceback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from disque_spark.replay import ReplayCounts

FOUND = 3


def _trouble() -> tuple[type[Exception], ...]:
    """What may go wrong in a command. Does not import PySpark if the command does not use it."""
    known = (AuditError, StoreError, AofError, LeaseError, TableError, RefusedError)
    always = (*known, SegmentError, OSError, ValueError)
    if "pyspark" not in sys.modules:
        return always
    from pyspark.errors import PySparkException

    from disque_spark.archive import ArchiveError
    from disque_spark.classic import Py4JError
    from disque_spark.replay import ReplayError

    return (*always, PySparkException, Py4JError, ReplayError, ArchiveError)


class Run(NamedTuple):
    """What a command runs with: an engine for an audit or a watch, a session for other commands."""

    given: "Engine | SparkSession"
    options: argparse.Namespace
    progress: TerminalProgress
    signals: Signals
    health: HealthFile

    @property
    def spark(self) -> "SparkSession":
        """The session. Raises TypeError if there is only an engine of this process."""
        if isinstance(self.given, Engine):
            raise TypeError("no Spark session")
        return self.given

    @property
    def engine(self) -> Engine:
        """What does the work of an audit."""
        return engine_of(self.given)


def run(
    options: argparse.Namespace,
    spark_of: "Callable[[argparse.Namespace], SparkSession] | None",
) -> int:
    """Run the command that ``options`` name. Returns the exit status.

    Args:
        spark_of: returns the session to use if one is needed; None: use a new one, and stop it at
            the end.
    """
    check, command = _COMMANDS[options.command]
    progress = TerminalProgress()
    signals = Signals()
    signals.catch()
    health = HealthFile(getattr(options, "health_file", None))
    spark: SparkSession | None = None
    own = False  # whether the session is ours to stop
    try:
        note = check(options)
        if note is not None:
            _say(progress, note)
        health.starting(note)
        given: Engine | SparkSession | None = local_engine(options)
        if given is None:
            from disque_spark.session import quiet, session

            quiet()
            if spark_of is None:
                progress("starting Spark")
                own = True
                spark = session(options.master, dict(options.conf), options.remote)
                signals.catch()
            else:
                spark = spark_of(options)
            given = spark
        status = command(Run(given, options, progress, signals, health))
        health.done() if signals.stopped is None else health.stopped()
        if own and spark is not None:
            spark.stop()
    except Stopped as stopped:
        health.stopped()
        _say(progress, str(stopped))
        if own:
            _end(spark)
        return STOPPED + stopped.signal
    except UsageError as problem:
        health.stopped(str(problem))
        _say(progress, str(problem))
        return USAGE
    except _trouble() as failure:
        show_traceback(options.debug)
        text = one_line(failure)  # while the JVM can still be asked for it
        killed = _end(spark) if own else 0
        text = f"Spark's JVM was killed by signal {killed}" if killed else text
        health.stopped(text)
        _say(progress, text)
        return FAILED
    finally:
        signals.release()
    return status


def _end(spark: "SparkSession | None") -> int:
    """End the session at once. Returns the signal that had killed its JVM, or 0."""
    from disque_spark.classic import end_java

    if spark is not None and is_remote(spark):
        try:
            spark.stop()  # otherwise its streams would go on
        except _trouble():  # the server has gone
            pass
    return end_java()


def _say(progress: TerminalProgress, text: str) -> None:
    progress.end()
    print(f"disque-pipeline: {text}", file=sys.stderr)


def _audit(run: Run) -> int:
    from disque_spark.audit.run import audit, explain_audit

    options = run.options
    if options.explain:
        print(explain_audit(run.spark, options.log, options.output))
        return OK
    rules = Rules(**{rule.name: getattr(options, rule.name) for rule in fields(Rules)})
    started = time.monotonic()
    engine = run.engine
    with engine.shown_by(run.progress):
        result = audit(
            engine,
            options.log,
            options.output,
            rules,
            aofs=options.aof,
            gone=options.without,
            keep_days=options.keep_days,
            progress=run.progress,
        )
    run.progress.end()
    took = time.monotonic() - started
    print(f"{result.events} new events in {result.segments} segments, {took:.1f} s")
    print(f"{result.jobs} jobs in {result.path}")
    if result.last:
        print(judged(result))
    for text in lacking(result):
        print(text)
    if result.copies:
        print(f"{result.copies} files are copies of other segments and were ignored")
    if result.held is not None:
        print(f"{result.held} jobs in append-only files, {result.unlogged} of them not in the logs")
    for text in outcome(result):
        print(text)
    if not (options.check_findings or options.fail_on):
        return OK
    return FOUND if result.fails(options.fail_on) else OK


def _archive(run: Run) -> int:
    options = run.options
    archive = archive_of(options, settings_of(run.spark))
    if options.explain:
        archive.jobs(run.spark).explain("formatted")
        return OK
    whole = False
    try:
        with run.signals.held(), _metrics(run):
            total = archive.run(
                run.spark,
                run.progress,
                lambda text: _say(run.progress, text),
                lambda: run.signals.stopped,
                Restarts(options.max_restarts),
                run.health,
            )
            run.progress.end()
            print(f"{total} jobs archived in {options.output}")
            if archive.undecoded:
                print(f"{archive.undecoded} bodies could not be decoded: their value is null")
            if archive.bad:
                print(f"{archive.bad} fields of other bodies had another type: they are null")
            archive.acknowledge()
            whole = True
    except Stopped:
        if not whole or options.available_now:
            raise
    return OK


@contextmanager
def _metrics(run: Run) -> Iterator[None]:
    """Serve metrics during the block, if ``--metrics`` is given."""
    place = run.options.metrics
    if place is None:
        yield
        return
    from disque_spark.metrics import serve_metrics

    with closing(serve_metrics(run.spark, *place)):
        yield


def _replay(run: Run) -> int:
    from disque_spark.replay import Choice, Target, replay
    from disque_spark.session import cancelled_by

    options = run.options
    catalog = dict(options.iceberg_catalog)
    choice = Choice(options.archive, options.aof, options.audit, options.where, catalog)
    jobs = choice.jobs(run.spark)
    if options.explain:
        jobs.explain("formatted")
        return OK
    job_options = {name: getattr(options, name) for name in ScheduleOptions.__annotations__}
    target = Target(
        nodes=addresses(options),
        connection=connection_options(options),
        queue=options.to_queue,
        options=cast(ScheduleOptions, job_options),
        mode=options.mode,
        unique_for=options.unique_for,
        rate=options.rate,
        done=None if options.done is None else location(options.done, settings_of(run.spark)),
    )
    with cancelled_by(run.signals, run.spark), run.progress.of(run.spark):
        outcome = replay(jobs, target, limit=options.limit, dry_run=options.dry_run)
    run.progress.end()
    _print_outcome(outcome, options.dry_run)
    return FAILED if outcome.refused else OK


def _print_outcome(outcome: "ReplayCounts", dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    print(f"{outcome.added} jobs {would}added")
    for queue, count in sorted(outcome.queues.items()):
        print(f"  {queue}: {count}")
    if outcome.already:
        print(f"{outcome.already} jobs are in --done")
    if outcome.without_body:
        print(f"{outcome.without_body} jobs have no body in the files given")
    for error, count in outcome.refused.items():
        print(f"{count} jobs refused: {error}")


def _watch(run: Run) -> int:
    from disque_spark.audit.run import explain_audit

    if run.options.explain:
        print(explain_audit(run.spark, run.options.log, run.options.output))
        return OK
    say = partial(_say, run.progress)
    watch(run.engine, run.options, run.progress, run.signals, say, run.health)
    return OK


_COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], str | None], Callable[[Run], int]]] = {
    "audit": (check_audit, _audit),
    "archive": (check_archive, _archive),
    "replay": (check_replay, _replay),
    "watch": (check_watch, _watch),
}
