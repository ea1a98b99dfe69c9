"""The arguments of ``disque-pipeline``, and what can be wrong with them before Spark is started."""

import argparse
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from disque_trio.spark.aof import find_files
from disque_trio.spark.archive import FORMATS, LEASES
from disque_trio.spark.audit_judge import Rules
from disque_trio.spark.leases import LOCK_SECONDS, LeaseLog
from disque_trio.spark.options import DEFAULT_NODES, OptionError, local, nodes_of
from disque_trio.spark.segments import find_segments
from disque_trio.spark.wire import RefusedError, Wire, WireError, split_address

WAIT_SECONDS = LOCK_SECONDS
_MASTERS = ("local", "spark://", "k8s://", "yarn")
_PATTERN = re.compile(r"[][{}*?\\]")  # Spark takes paths with these for patterns
_OWN = ("leasedirectory", "checkpointlocation", "path", "nodes", "queue", "queues")
# What Spark writes otherwise in the name of a partition's directory: %3A.
_ESCAPED = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{[\]^]")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_NAME = 255  # bytes, of file systems
_REPLY_SECONDS = 10.0


class UsageError(Exception):
    """Arguments that cannot be meant; the text says which and why."""


def addresses(options: argparse.Namespace) -> list[str]:
    """The nodes.

    Raises:
        UsageError: they are no addresses.
    """
    try:
        nodes = nodes_of({"nodes": options.nodes})
        for node in nodes:
            split_address(node)
    except (OptionError, ValueError) as problem:
        raise UsageError(f"--nodes: {problem}") from None
    return nodes


# Each of the checks raises UsageError, OSError, or what the part raises whose business it is.


def check_audit(options: argparse.Namespace) -> None:
    """The logs are there, and the tables have a place."""
    _check_settings(options)
    find_segments([local(path) for path in options.log], False)
    if options.aof:
        find_files([local(path) for path in options.aof])
    check_path("--output", options.output)
    check_directory(options.output)


def check_report(options: argparse.Namespace) -> None:
    """There is an audit, and a place for the page."""
    _check_settings(options)
    check_path("the audit", options.audit)
    if not (options.audit / "current").exists():
        raise FileNotFoundError(f"no audit at {options.audit}")
    for path in (options.html, options.json):
        if path is not None and path.is_dir():
            raise IsADirectoryError(f"{path} is a directory")


def check_archive(options: argparse.Namespace) -> None:
    """A node answers, and the table has a place where nobody else is writing."""
    _check_settings(options)
    nodes = addresses(options)
    for option in options.option:
        if "=" not in option:
            raise UsageError(f"--option {option}: expected NAME=VALUE")
        if option.partition("=")[0].lower() in _OWN:
            raise UsageError(f"--option {option}: an archive sets it itself")
    check_queues(options.queue)
    check_path("--output", options.output)
    check_directory(options.output)
    if not options.explain:
        leases = options.output / LEASES
        if leases.is_dir():
            # Of an archive that was killed the processes need a moment to end.
            LeaseLog(leases, WAIT_SECONDS).close()
        check_nodes(nodes, options.password)


def check_replay(options: argparse.Namespace) -> None:
    """There are bodies, and a node answers."""
    _check_settings(options)
    nodes = addresses(options)
    if options.archive is None and not options.aof:
        raise UsageError("--archive or --aof: bodies of jobs have to come from somewhere")
    for name, path in (("--archive", options.archive), ("--audit", options.audit)):
        if path is None:
            continue
        check_path(name, path)
        if not path.is_dir():
            raise FileNotFoundError(f"no directory at {path}")
    find_files(options.aof)
    if options.done is not None:
        if options.done.is_dir():
            raise IsADirectoryError(f"{options.done} is a directory")
        check_directory(options.done.parent)
    if not options.explain and not options.dry_run:
        check_nodes(nodes, options.password)


def check_queues(queues: Sequence[str]) -> None:
    """Their names can be those of partitions, and stand in a list if there are several.

    Raises:
        UsageError: one cannot.
    """
    for queue in queues:
        try:
            name = f"queue={_ESCAPED.sub('%XX', queue)}".encode()
        except UnicodeEncodeError:
            raise UsageError(f"--queue {queue!r}: its name is not UTF-8") from None
        if queue in ("", _NULL_PARTITION):
            raise UsageError(f"--queue {queue!r}: a table cannot have a partition of this name")
        if len(name) > _LONGEST_NAME:
            raise UsageError(f"--queue {queue[:20]}...: too long for the name of a directory")
        if len(queues) > 1 and ("," in queue or queue != queue.strip()):
            raise UsageError(
                f"--queue {queue!r}: one whose name has a comma, or a space at its beginning or"
                " end, needs an archive of its own"
            )


def check_path(argument: str, path: Path) -> None:
    """Spark finds a directory of this name again.

    Raises:
        UsageError: it would take the name for a pattern.
    """
    found = _PATTERN.search(str(path.absolute()))
    if found:
        raise UsageError(f"{argument} {path}: Spark cannot read paths that have {found[0]} in them")


def check_directory(path: Path) -> None:
    """It can be made, or written to.

    Raises:
        OSError: it cannot.
    """
    while not path.exists() and path != path.parent:
        path = path.parent
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a directory")
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written to")


def check_nodes(nodes: Sequence[str], password: str | None) -> None:
    """One of them answers.

    Raises:
        WireError: none does.
        UsageError: it wants another password.
    """
    with Wire(nodes, password, reply_timeout=_REPLY_SECONDS) as wire:
        try:
            wire.hello()
        except RefusedError as refused:
            raise WireError(f"{wire.address or nodes[0]}: {refused}") from None


def _check_settings(options: argparse.Namespace) -> None:
    if options.master is not None and not options.master.startswith(_MASTERS):
        raise UsageError(f"--master {options.master}: expected one of {', '.join(_MASTERS)}")
    for setting in options.conf:
        name, equals, _ = setting.partition("=")
        if not name or not equals:
            raise UsageError(f"--conf {setting}: expected NAME=VALUE")


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


def parser() -> argparse.ArgumentParser:
    """All commands; the name of the chosen one is in ``command``."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--master", help="where Spark runs (default: local[*])")
    common.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark"
    )
    common.add_argument("--explain", action="store_true", help="print the plan, and do nothing")
    cluster = argparse.ArgumentParser(add_help=False)
    cluster.add_argument("--nodes", default=DEFAULT_NODES, metavar="HOST:PORT,...")
    cluster.add_argument("--password", default=os.environ.get("DISQUE_PASSWORD"))
    whole = argparse.ArgumentParser(prog="disque-pipeline", description="Disque and Spark.")
    commands = whole.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _audit(
        commands.add_parser(
            "audit", parents=[common], help="event logs of all nodes to tables of jobs and findings"
        )
    )
    _report(commands.add_parser("report", parents=[common], help="an audit as a page to read"))
    _archive(
        commands.add_parser("archive", parents=[common, cluster], help="stream queues into a table")
    )
    _replay(
        commands.add_parser(
            "replay", parents=[common, cluster], help="add jobs again that a filter chooses"
        )
    )
    return whole


def _audit(command: argparse.ArgumentParser) -> None:
    command.add_argument("log", nargs="+", help="directories or files of event logs")
    command.add_argument("--output", type=Path, required=True, help="directory for the tables")
    command.add_argument(
        "--aof",
        nargs="+",
        default=[],
        action="extend",
        metavar="FILE",
        help="append-only files of all nodes, or directories: what is in none of them is lost",
    )
    rules = Rules()
    command.add_argument(
        "--settled",
        type=_number(0),
        default=rules.settled,
        metavar="SECONDS",
        help="one that is younger at the end of the log is not lost (default: %(default)s)",
    )
    command.add_argument(
        "--poison",
        type=_number(0),
        default=rules.poison,
        metavar="NACKS",
        help="more NACKs than this are a finding (default: %(default)s)",
    )
    command.add_argument(
        "--skew",
        type=_number(0),
        default=rules.skew,
        metavar="MS",
        help="so far may clocks be apart (default: %(default)s)",
    )
    command.add_argument(
        "--tolerance",
        type=_number(0),
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


def _report(command: argparse.ArgumentParser) -> None:
    command.add_argument("audit", type=Path, help="the output directory of an audit")
    command.add_argument("--html", type=Path, help="the page (default: report.html in it)")
    command.add_argument("--json", type=Path, help="the same as JSON")


def _archive(command: argparse.ArgumentParser) -> None:
    command.add_argument("--queue", action="append", required=True, help="may be repeated")
    command.add_argument("--output", type=Path, required=True, help="directory of the table")
    command.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help="delta if Spark has it"
    )
    command.add_argument("--available-now", action="store_true", help="end when all is archived")
    command.add_argument(
        "--seconds", type=_number(0), default=10, help="between batches (default: %(default)s)"
    )
    command.add_argument("--max-jobs", type=_number(1), help="in a batch")
    command.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of the source disque"
    )


def _replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("--archive", type=Path, help="a table of archive, for the bodies")
    command.add_argument("--aof", action="append", default=[], help="append-only files, likewise")
    command.add_argument("--audit", type=Path, help="choose among the jobs of an audit")
    command.add_argument(
        "--where",
        default="true",
        metavar="SQL",
        help="which jobs, as \"array_contains(findings, 'never-delivered')\"",
    )
    command.add_argument("--limit", type=_number(0), help="at most so many jobs")
    command.add_argument("--dry-run", action="store_true", help="only say what would be added")
    command.add_argument("--rate", type=_rate, metavar="JOBS", help="a second at most")
    command.add_argument("--done", type=Path, metavar="FILE", help="note there what was added")
    command.add_argument("--to-queue", metavar="QUEUE", help="instead of the one they had")
    for name in ("delay", "retry", "ttl", "replicate"):
        command.add_argument(f"--{name}", type=_number(0), help="for ADDJOB")
