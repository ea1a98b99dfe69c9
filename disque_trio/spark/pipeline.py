"""``disque-pipeline``: the pipelines as commands. Thin: what they do can be imported.

Exit status: 0 done, 1 something failed, 2 wrong arguments, 3 done, and ``audit --check`` found jobs
that were lost, delivered after their acknowledge, or expired undelivered.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from disque_trio.spark import register
from disque_trio.spark.archive import Archive, follow
from disque_trio.spark.audit import AuditError, audit, explain_audit
from disque_trio.spark.audit_findings import (
    AFTER_ACK,
    EXPIRED,
    KINDS,
    NEVER_DELIVERED,
    Rules,
)
from disque_trio.spark.audit_store import StoreError
from disque_trio.spark.options import DEFAULT_NODES, nodes_of
from disque_trio.spark.replay import Choice, ReplayError, Target, replay
from disque_trio.spark.report import make_report, write_report

OK, FAILED, USAGE, FOUND = 0, 1, 2, 3
_WIDTH = 78
# The last line of what Python says of an exception in a worker.
_CAUSE = re.compile(r"^(?:[A-Za-z_]+\.)+([A-Za-z_]*(?:Error|Exception): .*)$", re.MULTILINE)


def session(master: str | None = None, settings: Sequence[str] = ()) -> SparkSession:
    """A session for the pipelines.

    Args:
        master: None: what ``spark-submit`` says, or else all cores of this machine.
        settings: ``name=value`` each; they come before what is set here.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().appName("disque-pipeline")
    if master is not None:
        builder = builder.master(master)
    elif "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master("local[*]")
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.ui.showConsoleProgress": "false",
    }
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        chosen["spark.ui.enabled"] = "false"
    for setting in settings:
        name, _, value = setting.partition("=")
        chosen[name] = value
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # What fails is raised as well, and told in short.
    spark.sparkContext.setLogLevel("FATAL")
    register(spark)
    return spark


class Progress:
    """A line on a terminal that changes; nothing where there is none."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        if self._shown:
            seconds = time.monotonic() - self._started
            line = f"{seconds:6.0f} s  {text}"[:_WIDTH]
            print(f"\r{line:<{_WIDTH}}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(f"\r{'':<{_WIDTH}}\r", end="", file=sys.stderr, flush=True)


def main(
    arguments: Sequence[str] | None = None,
    spark_of: Callable[[argparse.Namespace], SparkSession] | None = None,
) -> int:
    """Run a command. Returns the exit status.

    Args:
        spark_of: gives the session, instead of a new one that is stopped at the end.
    """
    options = _parser().parse_args(arguments)
    problem = options.check(options)
    if problem:
        print(f"disque-pipeline: {problem}", file=sys.stderr)
        return USAGE if problem.startswith("--") else FAILED
    spark: SparkSession | None = None
    progress = Progress()
    try:
        if spark_of is None:
            progress("Spark starts")
            spark = session(options.master, options.conf)
        status: int = options.run(spark or spark_of(options), options, progress)  # type: ignore[misc]
    except KeyboardInterrupt:
        progress.end()
        return 130
    except (PySparkException, AuditError, StoreError, ReplayError, OSError, ValueError) as failure:
        progress.end()
        print(f"disque-pipeline: {_first_lines(failure)}", file=sys.stderr)
        return FAILED
    finally:
        if spark is not None:
            spark.stop()
    return status


def _first_lines(failure: BaseException) -> str:
    """What a person wants to know; Spark adds pages of the stack of Java."""
    text = str(failure).strip() or type(failure).__name__
    causes = _CAUSE.findall(text)
    return str(causes[-1]) if causes else "\n".join(text.splitlines()[:2])


# ---- audit ------------------------------------------------------------------------------------


def _audit(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> int:
    if options.explain:
        print(explain_audit(spark, options.log, options.output))
        return OK
    rules = Rules(options.settled, options.poison, options.skew, options.tolerance)
    started = time.monotonic()
    result = audit(spark, options.log, options.output, rules, progress=progress)
    progress.end()
    took = time.monotonic() - started
    print(f"{result.events} new events in {result.segments} segments, {took:.1f} s")
    print(f"{result.jobs} jobs in {result.path}")
    if result.dropped:
        print(f"{result.dropped} events are missing in the logs")
    if result.unknown:
        print(f"{result.unknown} events are of unknown kinds")
    for kind in KINDS:
        if result.findings[kind]:
            print(f"{kind}: {result.findings[kind]}")
    if not result.findings:
        print("no findings")
    bad = sum(result.findings[kind] for kind in (NEVER_DELIVERED, AFTER_ACK, EXPIRED))
    return FOUND if options.check_findings and bad else OK


def _check_audit(options: argparse.Namespace) -> str:
    from disque_trio.spark.segments import find_segments

    try:
        find_segments(options.log, False)
    except FileNotFoundError as missing:
        return str(missing)
    return ""


# ---- report -----------------------------------------------------------------------------------


def _report(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> int:
    if options.explain:
        from disque_trio.spark.audit_store import Store

        current = Store(options.audit).current
        spark.read.parquet(str(current / "jobs") if current else "").explain("formatted")
        return OK
    progress("reading the tables")
    numbers = make_report(spark, options.audit)
    progress.end()
    html = options.html
    if html is None and options.json is None:
        html = options.audit / "report.html"
    write_report(numbers, html, options.json)
    for path in (html, options.json):
        if path is not None:
            print(path)
    return OK


def _check_report(options: argparse.Namespace) -> str:
    return "" if (options.audit / "current").exists() else f"no audit at {options.audit}"


# ---- archive ----------------------------------------------------------------------------------


def _archive(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> int:
    more = dict(option.split("=", 1) for option in options.option)
    if options.max_jobs is not None:
        more["maxJobsPerBatch"] = str(options.max_jobs)
    if options.password is not None:
        more["password"] = options.password
    archive = Archive(
        nodes=_nodes(options),
        queues=options.queue,
        table=options.output,
        format=options.format,
        seconds=options.seconds,
        available_now=options.available_now,
        options=more,
    )
    if options.explain:
        archive.jobs(spark).explain("formatted")
        return OK
    query = archive.start(spark)
    try:
        total = follow(query, progress)
    finally:
        query.stop()
        progress.end()
    print(f"{total} jobs archived in {options.output}")
    return OK


def _check_archive(options: argparse.Namespace) -> str:
    wrong = [option for option in options.option if "=" not in option]
    return f"--option {wrong[0]}: expected name=value" if wrong else ""


# ---- replay -----------------------------------------------------------------------------------


def _replay(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> int:
    choice = Choice(
        archive=options.archive,
        aof=options.aof,
        audit=options.audit,
        where=options.where,
        limit=options.limit,
    )
    jobs = choice.jobs(spark)
    if options.explain:
        jobs.explain("formatted")
        return OK
    names = ("delay", "retry", "ttl", "replicate")
    target = Target(
        nodes=_nodes(options),
        password=options.password,
        queue=options.to_queue,
        options={
            name: getattr(options, name) for name in names if getattr(options, name) is not None
        },
        rate=options.rate,
        done=options.done,
    )
    outcome = replay(jobs, target, dry_run=options.dry_run, progress=progress)
    progress.end()
    would = "would be " if options.dry_run else ""
    print(f"{outcome.added} jobs {would}added")
    for queue, count in sorted(outcome.queues.items()):
        print(f"  {queue}: {count}")
    if outcome.already:
        print(f"{outcome.already} had been added before")
    if outcome.without_body:
        print(f"{outcome.without_body} have no body in what was named")
    for error, count in outcome.refused.items():
        print(f"{count} refused: {error}")
    return FAILED if outcome.refused else OK


def _check_replay(options: argparse.Namespace) -> str:
    if options.archive is None and not options.aof:
        return "--archive or --aof: bodies of jobs have to come from somewhere"
    for path in (options.archive, options.audit):
        if path is not None and not path.is_dir():
            return f"no directory at {path}"
    return ""


def _nodes(options: argparse.Namespace) -> list[str]:
    return nodes_of({"nodes": options.nodes})


# ---- arguments --------------------------------------------------------------------------------


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text}: expected more than 0")
    return value


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--master", help="where Spark runs (default: local[*])")
    common.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark"
    )
    common.add_argument("--explain", action="store_true", help="print the plan, and do nothing")
    cluster = argparse.ArgumentParser(add_help=False)
    cluster.add_argument("--nodes", default=DEFAULT_NODES, metavar="HOST:PORT,...")
    cluster.add_argument("--password", default=os.environ.get("DISQUE_PASSWORD"))
    parser = argparse.ArgumentParser(prog="disque-pipeline", description="Disque and Spark.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser(
        "audit", parents=[common], help="event logs of all nodes to tables of jobs and findings"
    )
    command.add_argument("log", nargs="+", help="directories or files of event logs")
    command.add_argument("--output", type=Path, required=True, help="directory for the tables")
    rules = Rules()
    command.add_argument(
        "--settled",
        type=int,
        default=rules.settled,
        metavar="SECONDS",
        help="one that is younger at the end of the log is not lost (default: %(default)s)",
    )
    command.add_argument(
        "--poison",
        type=int,
        default=rules.poison,
        metavar="NACKS",
        help="more NACKs than this are a finding (default: %(default)s)",
    )
    command.add_argument(
        "--skew",
        type=int,
        default=rules.skew,
        metavar="MS",
        help="so far may clocks be apart (default: %(default)s)",
    )
    command.add_argument(
        "--tolerance",
        type=int,
        default=rules.tolerance,
        metavar="MS",
        help="what two nodes say within this time has no order (default: %(default)s)",
    )
    command.add_argument(
        "--check",
        dest="check_findings",
        action="store_true",
        help="exit status 3 if jobs were lost, expired, or delivered after their ack",
    )
    command.set_defaults(run=_audit, check=_check_audit)

    command = commands.add_parser("report", parents=[common], help="an audit as a page to read")
    command.add_argument("audit", type=Path, help="the output directory of an audit")
    command.add_argument("--html", type=Path, help="the page (default: report.html in it)")
    command.add_argument("--json", type=Path, help="the same as JSON")
    command.set_defaults(run=_report, check=_check_report)

    command = commands.add_parser(
        "archive", parents=[common, cluster], help="stream queues into a table"
    )
    command.add_argument("--queue", action="append", required=True, help="may be repeated")
    command.add_argument("--output", type=Path, required=True, help="directory of the table")
    command.add_argument("--format", default="parquet", help="parquet, or delta if Spark has it")
    command.add_argument("--available-now", action="store_true", help="end when all is archived")
    command.add_argument("--seconds", type=int, default=10, help="between batches")
    command.add_argument("--max-jobs", type=int, help="in a batch")
    command.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of the source disque"
    )
    command.set_defaults(run=_archive, check=_check_archive)

    command = commands.add_parser(
        "replay", parents=[common, cluster], help="add jobs again that a filter chooses"
    )
    command.add_argument("--archive", type=Path, help="a table of archive, for the bodies")
    command.add_argument("--aof", action="append", default=[], help="append-only files, likewise")
    command.add_argument("--audit", type=Path, help="choose among the jobs of an audit")
    command.add_argument(
        "--where",
        default="true",
        metavar="SQL",
        help="which jobs, as \"array_contains(findings, 'never-delivered')\"",
    )
    command.add_argument("--limit", type=int)
    command.add_argument("--dry-run", action="store_true", help="only say what would be added")
    command.add_argument("--rate", type=_positive, metavar="JOBS", help="a second at most")
    command.add_argument("--done", type=Path, metavar="FILE", help="note there what was added")
    command.add_argument("--to-queue", metavar="QUEUE", help="instead of the one they had")
    for name in ("delay", "retry", "ttl", "replicate"):
        command.add_argument(f"--{name}", type=int, help="for ADDJOB")
    command.set_defaults(run=_replay, check=_check_replay)
    return parser


if __name__ == "__main__":
    sys.exit(main())
