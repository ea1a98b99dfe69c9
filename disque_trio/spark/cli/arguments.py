"""The arguments of ``disque-pipeline``. Imports only what is always installed."""

import argparse
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from disque_trio.respclient.arguments import add_certificate_options
from disque_trio.spark.audit.rules import KINDS, TOLD, Rules
from disque_trio.spark.defaults import DEFAULT_NODES, FORMATS
from disque_trio.spark.health import MAX_AGE
from disque_trio.version import VERSION

# The numbers of ``Rules``: name, the least that it may be, unit, help.
_RULES = (
    ("settled", 0, "SECONDS", "one that is younger at the end of the log is not lost"),
    ("poison", 0, "NACKS", "more NACKs than this are a finding"),
    ("retries", 1, "N", "a job not acknowledged within N times its RETRY is a finding"),
    ("patience", 0, "SECONDS", "one not acknowledged so long is one, instead; 0: as --retries"),
    ("skew", 0, "MS", "so far may clocks be apart"),
    ("tolerance", 0, "MS", "what two nodes say within this time has no order"),
)


def _number(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not least <= value < 2**31:
            raise argparse.ArgumentTypeError(f"{text}: expected a number of at least {least}")
        return value

    parse.__name__ = "number"  # for argparse, where it says what was expected
    return parse


def _rate(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected more than 0")
    return value


def _place(text: str) -> tuple[str, int]:
    from disque_trio.spark.client import split_address  # needs hiredis, which takes a while

    host, port = split_address(text if ":" in text else f":{text}")
    return host or "127.0.0.1", port


def _given(text: str) -> str:
    """A path that an unset variable of a shell has not made empty: that would be this directory."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, not nothing")
    return text


def _path(text: str) -> Path | str:
    """A path, or a URI as it is."""
    text = _given(text)
    return text if "://" in text or text.startswith("file:") else Path(text)


class _Command(argparse.ArgumentParser):
    """The arguments of one command, which says itself which of them it does not know, and what may
    have been meant."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            from difflib import get_close_matches  # takes a while

            word = unknown[0].partition("=")[0]
            near = get_close_matches(word, self._option_string_actions, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            self.error(f"no such argument: {word}{meant}")
        return options, unknown


def parser() -> argparse.ArgumentParser:
    """All commands; the name of the chosen one is in ``command``."""
    common = _Command(add_help=False)
    where = common.add_mutually_exclusive_group()
    where.add_argument("--master", help="where Spark runs (default: local[*])")
    where.add_argument(
        "--remote",
        metavar="sc://HOST:PORT",
        help="a server of Spark Connect",
    )
    common.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark"
    )
    common.add_argument("--explain", action="store_true", help="print the plan, and do nothing")
    cluster = _Command(add_help=False)
    cluster.add_argument("--nodes", default=DEFAULT_NODES, metavar="HOST:PORT,...")
    cluster.add_argument("--password", default=os.environ.get("DISQUE_PASSWORD"))
    cluster.add_argument("--user", metavar="NAME", help="whose password it is")
    cluster.add_argument("--tls", action="store_true", help="connect by TLS")
    add_certificate_options(cluster.add_argument)
    whole = argparse.ArgumentParser(prog="disque-pipeline", description="Disque and Spark.")
    whole.add_argument("--version", action="version", version=f"disque-pipeline {VERSION}")
    commands = whole.add_subparsers(
        required=True, metavar="COMMAND", dest="command", parser_class=_Command
    )
    for name, add_arguments, parents, text in (
        ("audit", _audit, [common], "event logs of all nodes to tables of jobs and findings"),
        ("report", _report, [common], "an audit as a page to read"),
        ("watch", _watch, [common, cluster], "audit logs while they grow, and tell what is new"),
        ("archive", _archive, [common, cluster], "stream queues into a table"),
        ("replay", _replay, [common, cluster], "add jobs again that a filter chooses"),
        ("compact", _compact, [], "merge an archive's small files, and drop old days"),
        ("health", _health, [], "say how an archive or a watch is, from its health file"),
    ):
        add_arguments(commands.add_parser(name, parents=parents, help=text))
    return whole


def _audit(command: argparse.ArgumentParser) -> None:
    command.add_argument("log", nargs="+", type=_given, help="directories or files of event logs")
    command.add_argument("--output", type=_path, required=True, help="directory for the tables")
    command.add_argument(
        "--aof",
        nargs="+",
        type=_given,
        default=[],
        action="extend",
        metavar="FILE",
        help="append-only files of all nodes, or directories: what is in none of them is lost",
    )
    _add_judging(command)
    command.add_argument(
        "--check",
        dest="check_findings",
        action="store_true",
        help="exit status 3 if jobs were lost, not done, or delivered after their ack, or logs are"
        " missing",
    )


def _add_restarts(command: argparse.ArgumentParser, what: str) -> None:
    command.add_argument(
        "--max-restarts",
        type=_number(0),
        metavar="N",
        help=f"end when {what} failed once more than this (default: go on)",
    )


def _add_looking_after(command: argparse.ArgumentParser) -> None:
    """For those who look after what runs without end."""
    command.add_argument(
        "--health-file", type=Path, metavar="FILE", help="keep there how it is, for health"
    )
    command.add_argument(
        "--metrics",
        type=_place,
        metavar="[HOST:]PORT",
        help="serve /metrics for Prometheus there (host: 127.0.0.1)",
    )


def _add_judging(command: argparse.ArgumentParser) -> None:
    """What an audit goes by, and what it keeps."""
    command.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NODE",
        help="id of a node that was taken out for good: its log and file are not missing",
    )
    command.add_argument(
        "--keep-days",
        type=_number(1),
        metavar="N",
        help="drop the days that ended more than N days before the last event (default: none)",
    )
    rules = Rules()
    for name, least, unit, text in _RULES:
        command.add_argument(
            f"--{name}",
            type=_number(least),
            default=getattr(rules, name),
            metavar=unit,
            help=f"{text} (default: %(default)s)",
        )


def _watch(command: argparse.ArgumentParser) -> None:
    command.add_argument("log", nargs="+", type=_given, help="directories or files of event logs")
    command.add_argument("--output", type=_path, required=True, help="directory for the tables")
    command.add_argument("--html", type=_path, metavar="PAGE", help="write the report there")
    command.add_argument("--webhook", metavar="URL", help="post what is new there, as JSON")
    command.add_argument(
        "--webhook-header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="a header for it; may be repeated",
    )
    command.add_argument("--to-queue", metavar="QUEUE", help="add what is new as jobs there")
    command.add_argument(
        "--tell",
        action="append",
        choices=KINDS,
        metavar="KIND",
        help=f"kinds of findings to tell of; may be repeated (default: {', '.join(TOLD)})",
    )
    command.add_argument(
        "--every",
        type=_number(1),
        default=15,
        metavar="SECONDS",
        help="from one look to the next (default: %(default)s)",
    )
    command.add_argument("--looks", type=_number(1), metavar="N", help="end after so many")
    _add_restarts(command, "looking has")
    _add_looking_after(command)
    _add_judging(command)


def _report(command: argparse.ArgumentParser) -> None:
    command.add_argument("audit", type=_path, help="the output directory of an audit")
    command.add_argument("--html", type=_path, help="the page (default: report.html in it)")
    command.add_argument("--json", type=_path, help="the same as JSON (default: report.json in it)")
    command.add_argument(
        "--before",
        type=_path,
        metavar="JSON",
        help="the JSON of an earlier report, to compare with (default: what --json replaces)",
    )


def _archive(command: argparse.ArgumentParser) -> None:
    command.add_argument("--queue", action="append", required=True, help="may be repeated")
    command.add_argument(
        "--output", type=_given, required=True, help="directory of the table, or its URI"
    )
    command.add_argument(
        "--checkpoint",
        type=_given,
        metavar="DIR",
        help="of the stream (default: beside a local table)",
    )
    command.add_argument(
        "--lease-directory",
        type=_given,
        metavar="DIR",
        help="of the stream (default: beside a local table; else leases are kept in Disque)",
    )
    command.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="of the table")
    command.add_argument(
        "--body", metavar="json:SCHEMA|text", help="decode bodies into a column, value"
    )
    command.add_argument(
        "--drop-body", action="store_true", help="leave bodies out that were decoded"
    )
    _iceberg(command)
    command.add_argument(
        "--iceberg-table", metavar="NAMESPACE.NAME", help="its name (default: disque.archive)"
    )
    command.add_argument("--available-now", action="store_true", help="end when all is archived")
    command.add_argument(
        "--seconds", type=_number(0), default=10, help="between batches (default: %(default)s)"
    )
    _add_restarts(command, "the stream has")
    command.add_argument("--max-jobs", type=_number(1), help="in a batch")
    _add_looking_after(command)
    command.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of the source disque"
    )


def _replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("--archive", type=_given, help="a table of archive, for the bodies")
    _iceberg(command)
    command.add_argument(
        "--aof", type=_given, action="append", default=[], help="append-only files, likewise"
    )
    command.add_argument("--audit", type=_path, help="choose among the jobs of an audit")
    command.add_argument(
        "--where",
        default="true",
        metavar="SQL",
        help="which jobs, as \"array_contains(findings, 'never-delivered')\"",
    )
    command.add_argument("--limit", type=_number(0), help="at most so many jobs")
    command.add_argument("--dry-run", action="store_true", help="only say what would be added")
    command.add_argument("--rate", type=_rate, metavar="JOBS", help="a second at most")
    command.add_argument("--done", type=_path, metavar="FILE", help="note there what was added")
    command.add_argument("--to-queue", metavar="QUEUE", help="instead of the one they had")
    for name in ("delay", "retry", "ttl", "replicate"):
        command.add_argument(f"--{name}", type=_number(0), help="for ADDJOB")


def _health(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, help="the --health-file of an archive or a watch")
    command.add_argument(
        "--max-age",
        type=_number(1),
        metavar="SECONDS",
        help=f"within which there was a sign of life (default: {MAX_AGE}; none for what is done)",
    )


def _iceberg(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--iceberg-catalog",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of the catalog, as uri=https://... (default: a file in the directory)",
    )


_SIZE = re.compile(r"([0-9]+)(?:([KMG])I?)?B?", re.IGNORECASE)
_PERIOD = re.compile(r"([0-9]+)([smhd]?)")
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LONGEST = 36500 * 86400  # s: clocks and dates have an end
_PERIODS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text}: expected bytes, as 64MB")
    return int(found[1]) * _SIZES[(found[2] or "").upper()]


def _period(text: str) -> int:
    found = _PERIOD.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text}: expected a time, as 90s, 30m, 1h, 7d")
    seconds = int(found[1]) * _PERIODS[found[2]]
    if seconds > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text}: expected at most 36500d")
    return seconds


def _compact(command: argparse.ArgumentParser) -> None:
    command.add_argument("table", type=_given, help="the --output of an archive")
    command.add_argument(
        "--older-than",
        type=_period,
        default="1h",
        metavar="TIME",
        help="leave younger files alone (default: %(default)s)",
    )
    command.add_argument(
        "--target-size",
        type=_size,
        default="128MB",
        metavar="BYTES",
        help="of the new files (default: %(default)s)",
    )
    command.add_argument(
        "--keep-days", type=_number(1), metavar="N", help="remove days that ended N days ago"
    )
    command.add_argument(
        "--deduplicate", action="store_true", help="drop jobs that a new file would have twice"
    )
    command.add_argument(
        "--grace",
        type=_period,
        default="60s",
        metavar="TIME",
        help="replaced Parquet files stay so long, for readers (default: %(default)s)",
    )
    command.add_argument(
        "--keep-history",
        type=_period,
        default="7d",
        metavar="TIME",
        help="versions of Delta and Iceberg tables stay so long (default: %(default)s)",
    )
    command.add_argument("--dry-run", action="store_true", help="only say what would be done")
    command.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of a file system, as spark.hadoop.fs.s3a.endpoint=URL",
    )
    _iceberg(command)
