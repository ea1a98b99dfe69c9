"""The arguments of ``disque-pipeline``. Imports only what is always installed."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from disque_spark.audit.rules import KINDS, TOLD, Rules
from disque_spark.cli.argument_types import address, given, number, path, period, rate, size
from disque_spark.defaults import DEFAULT_NODES, FORMATS
from disque_spark.health import MAX_AGE
from disque_trio.job_options import OPTIONS, ScheduleOptions, Words
from disque_trio.respclient.arguments import add_certificate_options
from disque_trio.version import VERSION

# The numbers of ``Rules``: name, minimum, unit, help.
_RULES = (
    ("settled", 0, "SECONDS", "jobs younger than this at the end of the log are not findings yet"),
    ("poison", 0, "NACKS", "a job with more NACKs than this is a finding"),
    ("retries", 1, "N", "a job not acknowledged within N times its RETRY is a finding"),
    ("patience", 0, "SECONDS", "use this time instead of --retries; 0: use --retries"),
    ("skew", 0, "MS", "how far the clocks of two nodes may be apart"),
    ("tolerance", 0, "MS", "events of two nodes closer together than this have no order"),
)


class _Command(argparse.ArgumentParser):
    """The arguments of one command. It reports unknown ones itself, and suggests known ones."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            from difflib import get_close_matches  # slow to import

            word = unknown[0].partition("=")[0]
            near = get_close_matches(word, self._option_string_actions, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            self.error(f"no such argument: {word}{meant}")
        return options, unknown


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; ``command`` is the name of the one chosen."""
    common = _Command(add_help=False)
    where = common.add_mutually_exclusive_group()
    where.add_argument("--master", help="where Spark runs (default: local[*])")
    where.add_argument(
        "--remote",
        metavar="sc://HOST:PORT",
        help="a Spark Connect server to use",
    )
    common.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting"
    )
    common.add_argument("--explain", action="store_true", help="only print Spark's plan")
    cluster = _Command(add_help=False)
    cluster.add_argument(
        "--nodes",
        default=DEFAULT_NODES,
        metavar="HOST:PORT,...",
        help="nodes of the cluster (default: %(default)s)",
    )
    cluster.add_argument(
        "--password",
        default=os.environ.get("DISQUECLI_AUTH") or os.environ.get("DISQUE_PASSWORD"),
        help="password of the nodes (default: environment variable DISQUECLI_AUTH)",
    )
    cluster.add_argument("--user", metavar="NAME", help="the user that the password belongs to")
    cluster.add_argument("--tls", action="store_true", help="connect with TLS")
    add_certificate_options(cluster.add_argument)
    whole = argparse.ArgumentParser(
        prog="disque-pipeline", description="Audits, archives and replays Disque jobs with Spark."
    )
    whole.add_argument("--version", action="version", version=f"disque-pipeline {VERSION}")
    commands = whole.add_subparsers(
        required=True, metavar="COMMAND", dest="command", parser_class=_Command
    )
    for name, add_arguments, parents, text in (
        ("audit", _audit, [common], "turn nodes' event logs into tables of jobs and findings"),
        ("report", _report, [common], "write an audit as an HTML page"),
        ("watch", _watch, [common, cluster], "audit logs as they grow, and report new findings"),
        ("archive", _archive, [common, cluster], "stream queues into a table"),
        ("replay", _replay, [common, cluster], "add jobs again, chosen by a filter"),
        ("compact", _compact, [], "merge an archive's small files, and drop old days"),
        ("health", _health, [], "check an archive or a watch by its health file"),
    ):
        add_arguments(commands.add_parser(name, parents=parents, help=text))
    return whole


def _audit(command: argparse.ArgumentParser) -> None:
    command.add_argument("log", nargs="+", type=given, help="event logs: directories or files")
    command.add_argument("--output", type=path, required=True, help="directory for the tables")
    command.add_argument(
        "--aof",
        nargs="+",
        type=given,
        default=[],
        action="extend",
        metavar="FILE",
        help="append-only files of all nodes, or directories: jobs in none of them are lost",
    )
    _add_judging(command)
    command.add_argument(
        "--check",
        dest="check_findings",
        action="store_true",
        help="exit with status 3 if jobs were lost, not done, or delivered after their ack, or if"
        " logs are missing",
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
    command.add_argument(
        "--health-file",
        type=Path,
        metavar="FILE",
        help="write the state to this file, for 'health'",
    )
    command.add_argument(
        "--metrics",
        type=address,
        metavar="[HOST:]PORT",
        help="serve /metrics for Prometheus at this address (default host: 127.0.0.1)",
    )


def _add_judging(command: argparse.ArgumentParser) -> None:
    """Add the arguments for the rules of an audit, and for how long it keeps days."""
    command.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NODE",
        help="id of a node that was removed for good: its log and append-only file need not exist",
    )
    command.add_argument(
        "--keep-days",
        type=number(1),
        metavar="N",
        help="drop the days that ended more than N days before the last event (default: never)",
    )
    rules = Rules()
    for name, least, unit, text in _RULES:
        command.add_argument(
            f"--{name}",
            type=number(least),
            default=getattr(rules, name),
            metavar=unit,
            help=f"{text} (default: %(default)s)",
        )


def _watch(command: argparse.ArgumentParser) -> None:
    command.add_argument("log", nargs="+", type=given, help="event logs: directories or files")
    command.add_argument("--output", type=path, required=True, help="directory for the tables")
    command.add_argument("--html", type=path, metavar="PAGE", help="write the report to this file")
    command.add_argument("--webhook", metavar="URL", help="post new findings to this URL, as JSON")
    command.add_argument(
        "--webhook-header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="an HTTP header for the webhook; may be repeated",
    )
    command.add_argument(
        "--to-queue", metavar="QUEUE", help="add new findings to this queue, as jobs"
    )
    command.add_argument(
        "--tell",
        action="append",
        choices=KINDS,
        metavar="KIND",
        help=f"a kind of finding to report; may be repeated (default: {', '.join(TOLD)})",
    )
    command.add_argument(
        "--every",
        type=number(1),
        default=15,
        metavar="SECONDS",
        help="time between looks (default: %(default)s)",
    )
    command.add_argument("--looks", type=number(1), metavar="N", help="end after N looks")
    _add_restarts(command, "looking has")
    _add_looking_after(command)
    _add_judging(command)


def _report(command: argparse.ArgumentParser) -> None:
    command.add_argument("audit", type=path, help="the output directory of an audit")
    command.add_argument("--html", type=path, help="the page (default: report.html in the audit)")
    command.add_argument(
        "--json", type=path, help="the numbers as JSON (default: report.json in the audit)"
    )
    command.add_argument(
        "--before",
        type=path,
        metavar="JSON",
        help="JSON of an earlier report, to compare with (default: the file that --json replaces)",
    )


def _archive(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--queue", action="append", required=True, help="a queue to archive; may be repeated"
    )
    command.add_argument(
        "--output", type=given, required=True, help="directory of the table, or its URI"
    )
    command.add_argument(
        "--checkpoint",
        type=given,
        metavar="DIR",
        help="checkpoint of the stream (default: with the table, if that is local)",
    )
    command.add_argument(
        "--lease-directory",
        type=given,
        metavar="DIR",
        help="leases of the stream (default: with the table, if that is local; otherwise in"
        " Disque)",
    )
    command.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="the table's format")
    command.add_argument(
        "--body", metavar="json:SCHEMA|text", help="decode bodies into the column 'value'"
    )
    command.add_argument(
        "--drop-body", action="store_true", help="do not keep the bytes of decoded bodies"
    )
    _iceberg(command)
    command.add_argument(
        "--iceberg-table", metavar="NAMESPACE.NAME", help="table name (default: disque.archive)"
    )
    command.add_argument(
        "--available-now", action="store_true", help="end when all queued jobs are archived"
    )
    command.add_argument(
        "--seconds",
        type=number(0),
        default=10,
        help="time from one batch to the next (default: %(default)s)",
    )
    _add_restarts(command, "the stream has")
    command.add_argument("--max-jobs", type=number(1), help="the most jobs in a batch")
    _add_looking_after(command)
    command.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the data source disque",
    )


def _replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("--archive", type=given, help="archive to take bodies from")
    _iceberg(command)
    command.add_argument(
        "--aof",
        nargs="+",
        type=given,
        default=[],
        action="extend",
        metavar="FILE",
        help="append-only files to take bodies from",
    )
    command.add_argument("--audit", type=path, help="choose among the jobs of this audit")
    command.add_argument(
        "--where",
        default="true",
        metavar="SQL",
        help="filter for jobs, such as \"array_contains(findings, 'never-delivered')\"",
    )
    command.add_argument("--limit", type=number(0), help="add at most this many jobs")
    command.add_argument("--dry-run", action="store_true", help="only say what would be added")
    command.add_argument(
        "--rate", type=rate, metavar="JOBS", help="add at most this many jobs per second"
    )
    command.add_argument(
        "--done",
        type=path,
        metavar="FILE",
        help="record added jobs in this file, and skip those already in it",
    )
    command.add_argument(
        "--to-queue", metavar="QUEUE", help="add the jobs to this queue instead of their own"
    )
    for name in ScheduleOptions.__annotations__:
        option = OPTIONS[name]
        kind = str if isinstance(option, Words) else number(option.least, option.most or 2**31 - 1)
        command.add_argument(
            f"--{name}", type=kind, metavar="TEXT" if kind is str else "N", help=option.about
        )


def _health(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, help="the --health-file of an archive or a watch")
    command.add_argument(
        "--max-age",
        type=number(1),
        metavar="SECONDS",
        help="fail if the last sign of life is older"
        f" (default: {MAX_AGE}, but no limit for a command that is done)",
    )


def _iceberg(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--iceberg-catalog",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of the Iceberg catalog, such as uri=https://..."
        " (default: a file in the table's directory)",
    )


def _compact(command: argparse.ArgumentParser) -> None:
    command.add_argument("table", type=given, help="the archive (its --output)")
    command.add_argument(
        "--older-than",
        type=period,
        default="1h",
        metavar="TIME",
        help="leave younger Parquet files alone (default: %(default)s)",
    )
    command.add_argument(
        "--target-size",
        type=size,
        default="128MB",
        metavar="BYTES",
        help="size of the merged files (default: %(default)s)",
    )
    command.add_argument(
        "--keep-days",
        type=number(1),
        metavar="N",
        help="remove days that ended N or more days ago",
    )
    command.add_argument(
        "--deduplicate", action="store_true", help="drop duplicates within each merged file"
    )
    command.add_argument(
        "--grace",
        type=period,
        default="60s",
        metavar="TIME",
        help="how long replaced Parquet files stay, for readers (default: %(default)s)",
    )
    command.add_argument(
        "--keep-history",
        type=period,
        default="7d",
        metavar="TIME",
        help="how long old versions of Delta and Iceberg tables stay (default: %(default)s)",
    )
    command.add_argument("--dry-run", action="store_true", help="only say what would be done")
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of a file system, such as spark.hadoop.fs.s3a.endpoint=URL",
    )
    _iceberg(command)
