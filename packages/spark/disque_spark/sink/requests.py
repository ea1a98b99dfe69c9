"""The columns of rows that become jobs, and the ADDJOBs made from them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from disque_spark.client import Arg
from disque_spark.options import MOST, OptionError, number, seconds
from disque_spark.sink.keys import RowKeys
from disque_trio.job_options import OPTIONS, Seconds, Whole, Words, of_kind

NUMBERS = of_kind(Whole, Seconds)
TIMES = [name for name in NUMBERS if OPTIONS[name].value == "seconds"]
TEXTS = of_kind(Words)
WORDS = ("body", "queue", *TEXTS, "unique")
COLUMNS = (*WORDS, "timeout", "headers", "at", *NUMBERS)


class Requests:
    """Makes ADDJOBs from rows.

    Args:
        timeout: ms that each ADDJOB waits for its copies.
        defaults: options of ADDJOB, and ``queue``, for rows without values of their own.
        kept: seconds that the key of a job stays taken; 0: as long as the job lives.
    """

    def __init__(self, timeout: int, defaults: Mapping[str, Arg], kept: int) -> None:
        self._timeout = timeout
        self._defaults = dict(defaults)
        self._queue = self._defaults.pop("queue", None)
        self._kept: tuple[Arg, ...] = ("FOR", kept) if kept else ()

    def of(self, rows: pa.RecordBatch, keys: RowKeys | None) -> Iterator[tuple[Arg, ...] | str]:
        """Yield an ADDJOB for each row, or an error. ``keys`` makes keys for rows without one."""
        nothing = [None] * rows.num_rows
        names = [name.lower() for name in rows.schema.names]
        given = {name: _values(name, rows.column(at)) for at, name in enumerate(names)}
        bodies = given.pop("body", nothing)
        own = list(zip(*given.values(), strict=True)) if given else [()] * rows.num_rows
        queues, timeouts, headers, uniques = (
            given.pop(name, nothing) for name in ("queue", "timeout", "headers", "unique")
        )
        # Options that are the same for all rows come first.
        names = sorted({*given, *self._defaults}, key=lambda name: (name in given, name))
        columns = [given.get(name, nothing) for name in names]
        numbers = list(zip(*columns, strict=True)) if names else [()] * rows.num_rows
        for place, body in enumerate(bodies):
            queue = self._queue if queues[place] is None else queues[place]
            if body is None or queue is None:
                yield "NULL the row has no " + ("body" if body is None else "queue")
                continue
            if any(not pair or pair["key"] is None for pair in headers[place] or ()):
                yield "NULL a header has no name"
                continue
            options: list[Arg] = []
            for name, value in zip(names, numbers[place], strict=True):
                chosen = self._defaults.get(name) if value is None else value
                if chosen is not None:
                    options += (name, chosen)
            if headers[place]:
                options += _headers(headers[place])
            key = uniques[place]
            if key is None and keys is not None:
                key = keys.key(body, own[place])
            if key is not None:
                options += ("UNIQUE", key, *self._kept)
            yield ("ADDJOB", queue, body, timeouts[place] or self._timeout, *options)

    def without_key(self, request: tuple[Arg, ...], keys: RowKeys) -> tuple[Arg, ...]:
        """An ADDJOB from ``of``, without its key if ``keys`` made it."""
        end = len(request) - len(self._kept) - 2
        return request[:end] if keys.made(request[end + 1]) else request


def defaults_of(options: Mapping[str, str]) -> dict[str, Arg]:
    """``queue``, and options of ADDJOB, from options of the sink.

    Raises:
        OptionError: one is invalid.
    """
    found: dict[str, Arg] = {name: options[name] for name in ("queue", *TEXTS) if name in options}
    for name in NUMBERS:
        if name in options:
            option = OPTIONS[name]
            read = seconds if name in TIMES else number
            found[name] = read(options, name, 0, option.least, option.most or MOST)
    return found


def check(schema: StructType, queue: bool) -> None:
    """Check that a DataFrame has the columns of jobs. ``queue``: whether the option is set.

    Raises:
        OptionError: it does not.
    """
    names = [name.lower() for name in schema.fieldNames()]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or "body" not in names:
        raise OptionError(
            f"columns: expected body and some of {', '.join(COLUMNS[1:])}; "
            + (f"unknown: {', '.join(unknown)}" if unknown else "there is no body")
        )
    if "queue" not in names and not queue:
        raise OptionError("queue: expected a column or an option")
    for name, column in zip(names, schema.fields, strict=True):
        wrong = _expected(name, column.dataType)
        if wrong:
            raise OptionError(f"{name}: expected a column of {wrong}")


def _expected(name: str, kind: DataType) -> str:
    """The type that a column has to have; empty if it has it."""
    words = (BinaryType, StringType)
    if name in WORDS:
        return "" if isinstance(kind, words) else "type binary or string"
    if name == "at":
        return "" if isinstance(kind, TimestampType) else "timestamps"
    if name == "headers":
        pairs = kind.elementType if isinstance(kind, ArrayType) else None
        if isinstance(pairs, StructType) and pairs.fieldNames() == ["key", "value"]:
            key, value = [field.dataType for field in pairs.fields]
            if isinstance(key, StringType) and isinstance(value, words):
                return ""
        return "type array<struct<key string, value binary>>"
    whole = isinstance(kind, ByteType | ShortType | IntegerType | LongType)
    return "" if whole else "integers"


def _values(name: str, column: pa.Array) -> list[Any]:
    """The values of a column; times as ms since the epoch, rounded up."""
    if name != "at":
        return list(column.to_pylist())
    times = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if time is None else -(-time // 1000) for time in times]


def _headers(pairs: Sequence[Mapping[str, Arg]]) -> list[Arg]:
    options: list[Arg] = ["HEADERS", len(pairs)]
    for pair in pairs:
        options += (pair["key"], b"" if pair["value"] is None else pair["value"])
    return options
