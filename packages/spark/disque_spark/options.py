"""Parses the options that all data sources share, and converts bytes to columns.

As everywhere in Spark, the case of an option's name does not matter, and all values are strings.
"""

import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from disque_spark.client import DEFAULT_PORT
from disque_spark.defaults import DEFAULT_NODES
from disque_trio.notation.addresses import read_address
from disque_trio.process.options import size as any_size
from disque_trio.process.options import whole, whole_period
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Tls

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Options of all sources that connect to nodes.
CONNECTION = (
    *("nodes", "username", "password", "clientName"),
    *("tls", "tlsCaFile", "tlsCertFile", "tlsKeyFile"),
    *("tlsServerName", "tlsCheckHostname", "tlsInsecure"),
)
# Options that Spark adds itself: for a path passed to load or save, for streams, and for tables
# made by CREATE TABLE.
_SPARKS = {
    *("path", "paths", "queryname", "checkpointlocation"),
    *("provider", "owner", "location", "comment", "external", "is_managed_location"),
}
_SPARKS_BEGIN = ("option.", "spark.", "serialization.", "__")


# Upper limits of options: seconds or ms that sockets and threads can wait; tasks of a Spark job.
MOST_TIME = 10**9
MOST_TASKS = 100_000
MOST = 2**63 - 1  # what nodes can read


class OptionError(ValueError):
    """An option of a data source is invalid; the text says which and why."""


def check_names(
    options: Mapping[str, str],
    source: str,
    known: Collection[str],
    others: Collection[str] = (),
    what: str = "",
) -> None:
    """Check that a source has all of ``options``. Spark passes their names in lower case.

    Args:
        source: name of the source, for the error.
        known: options that the source has here.
        others: options that it has only elsewhere: when it reads, if it writes here.
        what: what it does here, such as ``when it writes``.

    Raises:
        OptionError: an option is unknown; the text suggests the most similar one.
    """
    names = {name.lower(): name for name in known}
    elsewhere = {name.lower(): name for name in others}
    for name in options:
        low = name.lower()
        if low in names or low in _SPARKS or low.startswith(_SPARKS_BEGIN):
            continue
        text = f"{elsewhere.get(low, name)}: no such option of {source}"
        if low in elsewhere:
            raise OptionError(f"{text} {what}")
        near = get_close_matches(low, names, 1)
        if near:
            raise OptionError(f"{text}; did you mean {names[near[0]]}?")
        raise OptionError(f"{text}; it has {', '.join(sorted(known, key=str.lower))}")


def nodes_of(options: Mapping[str, str]) -> list[str]:
    """The addresses in ``nodes``, separated by commas."""
    nodes = [node.strip() for node in options.get("nodes", DEFAULT_NODES).split(",")]
    if not all(nodes):
        raise OptionError("nodes: expected host:port, separated by commas")
    for node in nodes:
        try:
            read_address(node, DEFAULT_PORT)
        except ValueError as problem:
            raise OptionError(f"nodes: {problem}") from problem
    return nodes


def login_of(options: Mapping[str, str]) -> Login:
    """How to connect, from the options ``password``, ``username``, ``clientName``, ``tls``,
    ``tlsCaFile``, ``tlsCertFile``, ``tlsKeyFile``, ``tlsServerName``, ``tlsCheckHostname`` and
    ``tlsInsecure``.

    The files are read where connections are made, so every machine needs its own copy.
    """
    given = {name.lower(): value for name, value in options.items()}

    def file(name: str) -> str | None:
        return str(directory(given[name])) if given.get(name) else None

    tls = Tls(
        ca_file=file("tlscafile"),
        cert_file=file("tlscertfile"),
        key_file=file("tlskeyfile"),
        server_name=given.get("tlsservername"),
        check_hostname=flag(given, "tlscheckhostname", True),
        verify=not flag(given, "tlsinsecure", False),
    )
    encrypted = flag(given, "tls", False)
    if not encrypted and tls != Tls():
        raise OptionError("tls: must be true if other TLS options are set")
    if tls.key_file is not None and tls.cert_file is None:
        raise OptionError("tlsKeyFile: needs tlsCertFile as well")
    try:
        return Login(
            given.get("username"),
            given.get("password"),
            tls if encrypted else None,
            given.get("clientname"),
        )
    except ValueError as problem:
        raise OptionError(f"clientName: {problem}") from problem


def paths_of(options: Mapping[str, str]) -> list[str]:
    """The argument of ``load``: one path or URI, or several."""
    several = options.get("paths")
    if several is not None:
        paths = json.loads(several)
        if isinstance(paths, list) and all(isinstance(path, str) for path in paths) and paths:
            return paths
    path = options.get("path")
    if not path:
        raise OptionError("path: expected the directory or file to load")
    return [path]


def local(path: str) -> str:
    """A path of the local file system, from a path or a ``file:`` URL."""
    if path.startswith("file:"):
        url = urlsplit(path)
        if url.netloc not in ("", "localhost"):
            raise OptionError(f"path: expected a path on this machine, got {path!r}")
        return unquote(url.path)
    if "://" in path:
        raise OptionError(f"path: expected a path that the workers can open, got {path!r}")
    return path


def directory(path: str) -> Path:
    """The absolute path of a directory: driver and executors may have different working
    directories."""
    return Path(local(path)).absolute()


def number(
    options: Mapping[str, str], name: str, default: int, least: int = 1, most: int = MOST
) -> int:
    """An integer from ``least`` to ``most``."""
    return _typed(options, name, default, whole(least, most))


def seconds(
    options: Mapping[str, str], name: str, default: int, least: int = 1, most: int = MOST_TIME
) -> int:
    """A period in whole seconds, such as 90 or 15m."""
    return _typed(options, name, default, whole_period(least, most))


def size(options: Mapping[str, str], name: str, default: int) -> int:
    """A number of bytes, at least 1, such as 64mb."""
    return _typed(options, name, default, any_size)


def _typed(options: Mapping[str, str], name: str, default: int, kind: Callable[[str], int]) -> int:
    try:
        return kind(options.get(name, str(default)).strip())
    except ArgumentTypeError as wrong:
        raise OptionError(f"{name}: {wrong}") from None


def choice(options: Mapping[str, str], name: str, *values: str) -> str:
    """One of ``values``; the first is the default."""
    text = options.get(name, values[0]).strip().lower()
    if text not in values:
        raise OptionError(f"{name}: expected {' or '.join(values)}, got {text!r}")
    return text


def words(options: Mapping[str, str], name: str, known: Sequence[str]) -> list[str] | None:
    """The words of an option, separated by commas, each one of ``known``; None if it is not set."""
    if name not in options:
        return None
    found = [word.strip().lower() for word in options[name].split(",")]
    for word in found:
        if word not in known:
            raise OptionError(f"{name}: expected some of {', '.join(known)}, got {word!r}")
    return found


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """A boolean: true or false."""
    return choice(options, name, *(("true", "false") if default else ("false", "true"))) == "true"


def text(name: bytes) -> str:
    """A queue's name in a column: bytes that are not UTF-8 become ``\\xff``, as in event logs."""
    return name.decode("utf-8", "backslashreplace")


def batch_of(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of ``rows``, which have their values in the order of ``schema``."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def arrow_schema(schema: "StructType") -> pa.Schema:
    """The Arrow schema in which Spark expects record batches of ``schema``."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
