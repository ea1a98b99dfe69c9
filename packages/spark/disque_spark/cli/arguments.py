"""The arguments of ``disque-pipeline``. Imports only what is always installed."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from disque_spark.audit.rules import KINDS, TOLD, Rules
from disque_spark.cli.argument_types import given, kinds, no_directory, number, path, setting
from disque_spark.defaults import AT_LEAST_ONCE, AUTO, DEFAULT_NODES, ENGINES, EXACTLY_ONCE, FORMATS
from disque_spark.health import MAX_AGE
from disque_trio.job_options import OPTIONS, ScheduleOptions, Whole
from disque_trio.process.one_line import add_debug_option
from disque_trio.process.options import (
    Parser,
    add_login_options,
    add_metrics_option,
    add_version_option,
    rate,
    size,
    whole_period,
)

# The numbers of ``Rules``: name, minimum, unit, help.
_RULES = (
    ("settled", 0, "TIME", "jobs younger than this at the end of the log are not findings yet"),
    ("poison", 0, "NACKS", "a job with more NACKs than this is a finding"),
    ("retries", 1, "N", "a job not acknowledged within N times its RETRY is a finding"),
    ("patience", 0, "TIME", "use this time instead of --retries; 0: use --retries"),
    ("waiting", 0, "TIME", "a job that is in a queue for longer is a finding; 0: it never is"),
    ("skew", 0, "MS", "how far the clocks of two nodes may be apart"),
    ("tolerance", 0, "MS", "events of two nodes closer together than this have no order"),
)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; ``command`` is the name of the one chosen."""
    common = Parser(add_help=False)
    where = common.add_mutually_exclusive_group()
    where.add_argument("--master", help="where Spark runs (default: local[*])")
    where.add_argument("--remote", metavar="sc://HOST:PORT", help="a Spark Connect server to use")
    common.add_argument(
        "--conf",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting",
    )
    common.add_argument("--explain", action="store_true", help="only print Spark's plan")
    cluster = _cluster(DEFAULT_NODES, "nodes of the cluster (default: %(default)s)")
    asked = _cluster(None, "nodes of the cluster, which say what they know now")
    whole = Parser(
        prog="disque-pipeline", description="Audits, archives and replays Disque jobs with Spark."
    )
    add_version_option(whole)
    add_debug_option(whole.add_argument)
    debug = Parser(add_help=False, argument_default=argparse.SUPPRESS)  # also after the command
    add_debug_option(debug.add_argument)
    commands = whole.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, add_arguments, parents, text in (
        ("audit", _audit, [common], "turn nodes' event logs into tables of jobs and findings"),
        ("report", _report, [common], "write an audit as an HTML page"),
        ("watch", _watch, [common, cluster], "audit logs as they grow, and report new findings"),
        ("archive", _archive, [common, cluster], "stream queues into a table"),
        ("replay", _replay, [common, cluster], "add jobs again, chosen by a filter"),
        ("job", _job, [asked], "tell what happened to jobs, and what they wait for"),
        ("compact", _compact, [], "merge an archive's small files, and drop old days"),
        ("health", _health, [], "check an archive or a watch by its health file"),
    ):
        add_arguments(commands.add_parser(name, parents=[*parents, debug], help=text))
    return whole


def _cluster(nodes: str | None, about: str) -> argparse.ArgumentParser:
    """Options for a cluster, whose nodes are ``nodes`` by default."""
    cluster = Parser(add_help=False)
    cluster.add_argument("--nodes", default=nodes, metavar="HOST:PORT,...", help=about)
    cluster.add_argument(
        "--password",
        default=os.environ.get("DISQUECLI_AUTH") or os.environ.get("DISQUE_PASSWORD"),
        help="password of the nodes (default: environment variable DISQUECLI_AUTH)",
    )
    add_login_options(cluster.add_argument)
    return cluster


def _audit(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("log", nargs="+", type=given, help="event logs: directories or files")
    add("--output", type=path, required=True, help="directory for the tables")
    add(
        "--aof",
        nargs="+",
        type=given,
        default=[],
        action="extend",
        metavar="FILE",
        help="append-only files of all nodes, or directories: jobs in none of them are lost",
    )
    _add_judging(command)
    add(
        "--check",
        dest="check_findings",
        action="store_true",
        help="exit with status 3 if jobs were lost, not done, or delivered after their ack, or if"
        " logs are missing",
    )
    add(
        "--fail-on",
        type=kinds,
        default=[],
        metavar="KIND,...",
        help="like --check, but findings of these kinds count, too, such as dead,waiting; jobs that"
        " wait count from --waiting on, or at once",
    )


def _add_restarts(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--max-restarts",
        type=number(0),
        metavar="N",
        help=f"exit when {what} failed more than N times (default: never)",
    )


def _add_looking_after(command: argparse.ArgumentParser) -> None:
    """Add the arguments for monitoring a command that runs forever."""
    add = command.add_argument
    add(
        "--health-file",
        type=Path,
        metavar="FILE",
        help="write the state to this file, for 'health'",
    )
    add_metrics_option(add)


def _add_judging(command: argparse.ArgumentParser) -> None:
    """Add the arguments for the rules of an audit, for how long it keeps days, and for where it is
    done."""
    add = command.add_argument
    add(
        "--engine",
        choices=ENGINES,
        default=AUTO,
        help="where the work is done: in this process, which needs no Java, or by Spark (default:"
        " in this process, unless there is much to read, or an option says where Spark runs)",
    )
    add(
        "--without",
        action="append",
        default=[],
        metavar="NODE",
        help="id of a node that was removed for good: its log and append-only file need not exist",
    )
    add(
        "--keep-days",
        type=number(1),
        metavar="N",
        help="drop the days that ended more than N days before the last event (default: never)",
    )
    rules = Rules()
    for name, least, unit, text in _RULES:
        add(
            f"--{name}",
            type=whole_period(least) if unit == "TIME" else number(least),
            default=getattr(rules, name),
            metavar=unit,
            help=f"{text} (default: %(default)s)",
        )


def _watch(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("log", nargs="+", type=given, help="event logs: directories or files")
    add("--output", type=path, required=True, help="directory for the tables")
    add("--html", type=path, metavar="PAGE", help="write the report to this file")
    add("--webhook", metavar="URL", help="post new findings to this URL, as JSON")
    add(
        "--webhook-header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="an HTTP header for the webhook; may be repeated",
    )
    add("--to-queue", metavar="QUEUE", help="add new findings to this queue, as jobs")
    add(
        "--tell",
        action="append",
        choices=KINDS,
        metavar="KIND",
        help=f"a kind of finding to report; may be repeated (default: {', '.join(TOLD)})",
    )
    add(
        "--every",
        type=whole_period(1),
        default="15s",
        metavar="TIME",
        help="time between looks (default: %(default)s)",
    )
    add("--looks", type=number(1), metavar="N", help="end after N looks")
    _add_restarts(command, "looking has")
    _add_looking_after(command)
    _add_judging(command)


def _report(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("audit", type=path, help="the output directory of an audit")
    add("--html", type=path, help="the page (default: report.html in the audit)")
    add("--json", type=path, help="the numbers as JSON (default: report.json in the audit)")
    add(
        "--before",
        type=path,
        metavar="JSON",
        help="JSON of an earlier report, to compare with (default: the file that --json replaces)",
    )


def _archive(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--queue", action="append", required=True, help="a queue to archive; may be repeated")
    add("--output", type=given, required=True, help="directory of the table, or its URI")
    add(
        "--checkpoint",
        type=given,
        metavar="DIR",
        help="checkpoint of the stream (default: with the table, if that is local)",
    )
    add("--lease-directory", type=no_directory, help=argparse.SUPPRESS)
    add("--format", choices=FORMATS, default=FORMATS[0], help="the table's format")
    add("--body", metavar="json:SCHEMA|text", help="decode bodies into the column 'value'")
    add("--drop-body", action="store_true", help="do not keep the bytes of decoded bodies")
    _iceberg(command)
    add("--iceberg-table", metavar="NAMESPACE.NAME", help="table name (default: disque.archive)")
    add("--available-now", action="store_true", help="end when all queued jobs are archived")
    add(
        "--seconds",
        type=whole_period(),
        default="10s",
        metavar="TIME",
        help="time from one batch to the next (default: %(default)s)",
    )
    _add_restarts(command, "the stream has")
    add("--max-jobs", type=number(1), help="the most jobs in a batch")
    _add_looking_after(command)
    add(
        "--option",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="an option of the data source disque",
    )


def _replay(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--archive", type=given, help="archive to take bodies from")
    _iceberg(command)
    add(
        "--aof",
        nargs="+",
        type=given,
        default=[],
        action="extend",
        metavar="FILE",
        help="append-only files to take bodies from",
    )
    add("--audit", type=path, help="choose among the jobs of this audit")
    add(
        "--where",
        default="true",
        metavar="SQL",
        help="filter for jobs, such as \"array_contains(findings, 'never-delivered')\"",
    )
    add("--limit", type=number(0), help="add at most this many jobs")
    add("--dry-run", action="store_true", help="only say what would be added")
    add(
        "--rate", type=rate, metavar="RATE", help="add at most this many jobs, such as 50/s or 30/m"
    )
    add(
        "--mode",
        choices=(EXACTLY_ONCE, AT_LEAST_ONCE),
        default=EXACTLY_ONCE,
        help="at-least-once: for nodes that do not know UNIQUE; a repeat adds jobs again"
        " (default: %(default)s)",
    )
    add(
        "--unique-for",
        type=whole_period(1),
        default="1d",
        metavar="TIME",
        help="how long a repeat adds no job again (default: %(default)s)",
    )
    add(
        "--done",
        type=path,
        metavar="FILE",
        help="skip the jobs in this file, which an earlier version has written",
    )
    add("--to-queue", metavar="QUEUE", help="add the jobs to this queue instead of their own")
    for name in ScheduleOptions.__annotations__:
        option = OPTIONS[name]
        kind: Callable[[str], object] = str
        metavar = "TEXT"
        if option.value == "seconds":
            kind, metavar = whole_period(option.least), "TIME"
        elif isinstance(option, Whole):
            kind, metavar = number(option.least, most=option.most or 2**31 - 1), "N"
        add(f"--{name}", type=kind, metavar=metavar, help=option.about)


def _job(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("id", nargs="+", help="ids of jobs")
    add(
        "--log",
        nargs="+",
        type=given,
        default=[],
        action="extend",
        metavar="FILE",
        help="event logs: directories or files",
    )
    add("--audit", type=path, metavar="DIR", help="the output directory of an audit")
    _file_systems(command)


def _health(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("file", type=Path, help="the --health-file of an archive or a watch")
    add(
        "--max-age",
        type=whole_period(1),
        metavar="TIME",
        help="fail if the last sign of life is older"
        f" (default: {MAX_AGE:g}s, but no limit for a command that is done)",
    )


def _iceberg(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--iceberg-catalog",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="a property of the Iceberg catalog, such as uri=https://..."
        " (default: a file in the table's directory)",
    )


def _compact(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("table", type=given, help="the archive (its --output)")
    add(
        "--target-size",
        type=size,
        default="128mb",
        metavar="SIZE",
        help="size of the merged files (default: %(default)s)",
    )
    add(
        "--keep-days", type=number(1), metavar="N", help="remove days that ended N or more days ago"
    )
    add(
        "--keep-history",
        type=whole_period(),
        default="7d",
        metavar="TIME",
        help="how long old versions of Delta and Iceberg tables stay (default: %(default)s)",
    )
    add("--dry-run", action="store_true", help="only say what would be done")
    _file_systems(command)
    _iceberg(command)


def _file_systems(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--conf",
        action="append",
        type=setting,
        default=[],
        metavar="NAME=VALUE",
        help="a setting of a file system, such as spark.hadoop.fs.s3a.endpoint=URL",
    )
