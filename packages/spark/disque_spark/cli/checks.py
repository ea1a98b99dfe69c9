"""Checks the arguments of ``disque-pipeline`` before the work starts. Only the checks of commands
that need PySpark import it."""

import argparse
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from disque_spark.append_only import find_files
from disque_spark.audit.store import Store
from disque_spark.client import BlockingClient, RefusedError, WireError
from disque_spark.defaults import ICEBERG
from disque_spark.files import Location, location
from disque_spark.lakehouse.columns import ESCAPED
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.settings import TableSettings
from disque_spark.link import RETRIED
from disque_spark.options import OptionError, login_of, nodes_of
from disque_spark.segments import find_segments
from disque_trio.notation.addresses import format_address
from disque_trio.process.health import check_writable
from disque_trio.respclient.login import Login

if TYPE_CHECKING:
    from disque_spark.archive import Archive

_MASTERS = ("local", "spark://", "k8s://", "yarn")
_PATTERN = re.compile(r"[][{}*?\\]")  # Spark treats paths with these characters as patterns
_OWN = ("checkpointlocation", "path", "nodes", "queue", "queues")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
READ_ONLY = (
    "--done is only read, and no longer written: nodes keep the ids of replayed jobs for"
    " --unique-for"
)
_NODE = re.compile("[0-9a-f]{40}")
_LONGEST_NAME = 255  # bytes; the limit of most file systems
_REPLY_SECONDS = 10.0
_CONNECT_PORT = 15002


class UsageError(Exception):
    """Invalid arguments; the text says which and why."""


def addresses(options: argparse.Namespace) -> list[str]:
    """The addresses of ``--nodes``.

    Raises:
        UsageError: one is not an address.
    """
    try:
        return nodes_of({"nodes": options.nodes})
    except OptionError as problem:
        raise UsageError(f"--nodes: {problem}") from None


# The checks raise UsageError, OSError, or the error of the component that they ask. A string that
# they return is a note for the user; the command starts anyway.


def check_audit(options: argparse.Namespace) -> None:
    """Check that the logs and append-only files exist, and that the tables can be written."""
    check_logs(options)
    if options.aof:
        find_files(options.aof, _check_settings(options))


def check_logs(options: argparse.Namespace, *, now: bool = True) -> None:
    """Check that the tables can be written, and if ``now``, that the logs exist."""
    settings = _check_settings(options)
    if now:
        find_segments(options.log, False, settings)
    for node in options.without:
        if not _NODE.fullmatch(node):
            raise UsageError(f"--without {node}: expected the id of a node, 40 hexadecimal digits")
    check_output("--output", location(options.output, settings))


def check_report(options: argparse.Namespace) -> None:
    """Check that there is an audit, and that the page can be written."""
    from disque_spark.report import read_report

    settings = _check_settings(options)
    audit = location(options.audit, settings)
    check_path("the audit", audit)
    if Store(audit).current is None:
        raise FileNotFoundError(f"no audit at {audit}")
    for path in (options.html, options.json):
        if path is None:
            continue
        place = location(path, settings)
        if place.local is not None and place.is_dir():
            raise IsADirectoryError(f"{place} is a directory")
    if options.before is not None:
        read_report(location(options.before, settings))


def check_archive(options: argparse.Namespace) -> str | None:
    """Check that the table can be written, that nobody else is writing it, and that a node answers.
    Without ``--available-now`` an archive can wait for a node; this returns a line about it."""
    spark_settings = _check_settings(options)
    nodes = addresses(options)
    for name, _ in options.option:
        if name.lower() in _OWN:
            raise UsageError(f"--option {name}: the archive sets this option itself")
    place = location(options.output, spark_settings)
    table_of(place, table_settings(options))
    check_queues(options.queue)
    if place.local is not None:
        check_path("--output", place.local)
        check_directory(place.local)
    elif not options.checkpoint:
        raise UsageError("--checkpoint: required for a remote table; Spark must be able to use it")
    check_metrics(options.metrics)
    if options.health_file is not None:
        check_writable(options.health_file)
    if not options.explain:
        try:
            check_nodes(nodes, login(options))
            # After an archive was killed, its processes need a moment to end.
            archive_of(options, spark_settings).leases().open().close()
        except WireError as problem:
            if options.available_now:
                raise
            return f"{problem}; waiting for a node"
    return None


def archive_of(options: argparse.Namespace, settings: Mapping[str, str]) -> "Archive":
    """The archive that the arguments describe.

    Args:
        settings: Spark settings; those of file systems are used.
    """
    from disque_spark.archive import Archive

    more = dict(options.option)
    if options.max_jobs is not None:
        more["maxJobsPerBatch"] = str(options.max_jobs)
    return Archive(
        nodes=addresses(options),
        queues=options.queue,
        table=location(options.output, settings),
        checkpoint=options.checkpoint,
        settings=table_settings(options),
        seconds=options.seconds,
        available_now=options.available_now,
        options=more | connection_options(options),
    )


def table_settings(options: argparse.Namespace) -> TableSettings:
    """How to write an archive.

    Raises:
        UsageError: options do not go together.
        OSError: a file cannot be read.
    """
    from disque_spark.cli.bodies import columns_of
    from disque_spark.lakehouse.bodies import JSON, TEXT

    body = options.body
    if body is not None and body != TEXT:
        if not body.startswith(JSON):
            raise UsageError(f"--body {body}: expected 'text', or 'json:' and columns as in SQL")
        try:
            body = JSON + columns_of(body.removeprefix(JSON))
        except ValueError as problem:
            raise UsageError(f"--body {body}: {problem}") from None
    if options.drop_body and body is None:
        raise UsageError("--drop-body: needs --body")
    catalog = dict(options.iceberg_catalog)
    if (catalog or options.iceberg_table) and options.format != ICEBERG:
        raise UsageError("--iceberg-catalog, --iceberg-table: need --format iceberg")
    table = options.iceberg_table or TableSettings.table
    if "." not in table:
        raise UsageError(f"--iceberg-table {table}: expected NAMESPACE.NAME")
    return TableSettings(options.format, body, options.drop_body, catalog, table)


def check_compact(options: argparse.Namespace) -> TableSettings:
    """Check that there is an archive. Returns its settings.

    Raises:
        FileNotFoundError: there is no archive.
        TableError: its settings are damaged.
    """
    place = location(options.table, dict(options.conf))
    settings = TableSettings.read(place)
    if settings is None:
        if not (place / "queue=*").glob():
            raise FileNotFoundError(f"no archive at {options.table}")
        settings = TableSettings()
    return settings


def check_replay(options: argparse.Namespace) -> str | None:
    """Check that the files to replay from exist, and that a node answers. Returns a line about
    ``--done``, if it is given."""
    settings = _check_settings(options)
    nodes = addresses(options)
    if options.archive is None and not options.aof:
        raise UsageError("--archive or --aof: one is required, for the bodies of jobs")
    archive = location(options.archive).local if options.archive is not None else None
    for name, path in (("--archive", archive), ("--audit", options.audit)):
        if path is None:
            continue
        place = location(path, settings)
        check_path(name, place)
        if not place.is_dir():
            raise FileNotFoundError(f"no directory at {place}")
    find_files(options.aof, settings)
    if options.done is not None:
        check_path("--done", location(options.done, settings))
    if not options.explain and not options.dry_run:
        check_nodes(nodes, login(options))
    return None if options.done is None else READ_ONLY


def check_queues(queues: Sequence[str]) -> None:
    """Check that names of queues can be names of partitions, and if there are several, elements of
    a list that is separated by commas.

    Raises:
        UsageError: one cannot.
    """
    for queue in queues:
        try:
            name = f"queue={ESCAPED.sub('%XX', queue)}".encode()
        except UnicodeEncodeError:
            raise UsageError(f"--queue {queue!r}: its name is not UTF-8") from None
        if queue in ("", _NULL_PARTITION):
            raise UsageError(f"--queue {queue!r}: a table cannot have a partition of this name")
        if len(name) > _LONGEST_NAME:
            raise UsageError(f"--queue {queue[:20]}...: too long to be the name of a directory")
        if len(queues) > 1 and ("," in queue or queue != queue.strip()):
            raise UsageError(
                f"--queue {queue!r}: a queue whose name contains a comma, or begins or ends with a"
                " space, needs an archive of its own"
            )


def check_path(argument: str, path: Path | Location) -> None:
    """Check that Spark can read a directory of this name.

    Raises:
        UsageError: Spark would treat the name as a pattern.
    """
    found = _PATTERN.search(str(path.absolute() if isinstance(path, Path) else path))
    if found:
        raise UsageError(f"{argument} {path}: Spark cannot read paths that contain {found[0]}")


def check_output(argument: str, place: Location) -> None:
    """Check that tables can be written to a directory.

    Raises:
        UsageError: Spark would treat the name as a pattern.
        OSError: it is not writable, or there is no such bucket.
    """
    check_path(argument, place)
    if place.local is not None:
        check_directory(place.local)
        return
    root = replace(place, path="")
    if not root.exists():
        raise FileNotFoundError(f"{place}: no bucket {place.authority}")


def check_directory(path: Path) -> None:
    """Check that a directory is writable, or can be created.

    Raises:
        OSError: it is not.
    """
    while not path.exists() and path != path.parent:
        path = path.parent
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a directory")
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} is not writable")


def check_metrics(place: tuple[str, int] | None) -> None:
    """Check that metrics can be served at ``place`` (host and port), if it is given.

    Raises:
        UsageError: they cannot, or something is not installed.
    """
    if place is None:
        return
    try:
        import disque_spark.metrics  # noqa: F401
    except ImportError as missing:
        raise UsageError(f"--metrics: {missing}") from None
    try:
        family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        socket.create_server(place, family=family).close()
    except OSError as problem:
        raise UsageError(f"--metrics {format_address(*place)}: {problem.strerror}") from None


def connection_options(options: argparse.Namespace) -> dict[str, str]:
    """The command line's options for connections, as options of the data sources."""
    named = {
        "password": options.password,
        "username": options.user,
        "tls": "true" if options.tls else None,
        "tlsCaFile": options.cacert,
        "tlsCertFile": options.cert,
        "tlsKeyFile": options.key,
        "tlsServerName": options.sni,
        "tlsInsecure": "true" if options.insecure else None,
    }
    return {name: value for name, value in named.items() if value is not None}


def login(options: argparse.Namespace) -> Login:
    """The same, as a ``Login``. Raises UsageError if options do not go together, or a file cannot
    be used."""
    try:
        found = login_of(connection_options(options))
        found.encryption()
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    return found


def check_nodes(nodes: Sequence[str], login: Login) -> None:
    """Check that one of ``nodes`` answers.

    Raises:
        WireError: none answers, or the first that does is still loading.
        UsageError: it rejects the password, or is not a Disque node.
    """
    with BlockingClient(nodes, login, _REPLY_SECONDS) as client:
        try:
            client.hello()
        except RefusedError as refused:
            text = f"{client.address or nodes[0]}: {refused}"
            raise (WireError if refused.code in RETRIED else UsageError)(text) from None


def check_remote(url: str) -> None:
    """Check that something listens at a Spark Connect URL. PySpark would try for ten minutes.

    Raises:
        UsageError: it is not such a URL.
        OSError: nothing listens there.
    """
    if url.startswith("local"):
        return
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or _CONNECT_PORT
    except ValueError:
        host = None
    if parts.scheme != "sc" or not host:
        raise UsageError(f"--remote {url}: expected sc://HOST:PORT")
    try:
        socket.create_connection((host, port), _REPLY_SECONDS).close()
    except OSError as problem:
        raise OSError(f"--remote: no Spark Connect at {host}:{port}: {problem.strerror}") from None


def _check_settings(options: argparse.Namespace) -> dict[str, str]:
    """The Spark settings of the command line, after a check of ``--master`` and ``--remote``."""
    if options.master is not None and not options.master.startswith(_MASTERS):
        raise UsageError(f"--master {options.master}: expected one of {', '.join(_MASTERS)}")
    if options.remote is not None:
        check_remote(options.remote)
    return dict(options.conf)
