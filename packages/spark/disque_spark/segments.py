"""Reads the files of event logs: finds them, splits them into pieces, and converts lines to rows.

Runs in Spark's workers, without a session.
"""

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from typing import BinaryIO, NamedTuple, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from disque_spark.files import BUFFER, Location, Place, location

T = TypeVar("T")

OPEN = ".open"
PACKED = ".gz"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NAMES = "events-*.jsonl*"
MALFORMED = "malformed"  # the column for lines that are not events
PACKING = 10  # approximate compression ratio of segments
BLOCK = 4 << 20  # bytes parsed at a time
LOOK = 64 << 10  # bytes to ask for when a few lines of a remote file are needed
_AT_ONCE = 16  # remote files to look at in parallel
_Found = TypeVar("_Found")


class SegmentError(Exception):
    """A segment cannot be read, or a line is not an event and ``malformed`` is ``fail``."""


class Piece(NamedTuple):
    """The lines of a file that begin at or after ``start``, and before ``end`` (in bytes). In a
    compressed file, ``start`` counts uncompressed bytes, and ``end`` compressed ones."""

    place: Location
    start: int
    end: int

    @property
    def path(self) -> str:
        """Path of the file, for people."""
        return str(self.place)


def find_segments(
    paths: Sequence[Place], include_open: bool, settings: Mapping[str, str] | None = None
) -> list[Location]:
    """The segments at ``paths``: files, or directories that are searched recursively for names that
    nodes give to segments. Wildcards are expanded.

    Args:
        settings: Spark settings, for remote file systems.

    Raises:
        FileNotFoundError: there is nothing at one of ``paths``.
        OSError: a file system refuses access.
    """
    found: set[Location] = set()
    for path in paths:
        entries = location(path, settings).glob()
        if not entries:
            raise FileNotFoundError(f"no event log at {path}")
        for entry in entries:
            if entry.is_dir():
                found.update(file for file in entry.files() if fnmatch(file.name, _NAMES))
            else:
                found.add(entry)
    return sorted(place for place in found if _is_segment(place, found, include_open))


class Others(NamedTuple):
    """The files beside closed segments that say something about the logs.

    Attributes:
        open: when each open segment was last written, ms since the epoch, by name.
        unread: names of files that are called like segments, but have a form that is not read.
    """

    open: dict[str, int]
    unread: list[str]


def others_of(paths: Sequence[Place], settings: Mapping[str, str] | None = None) -> Others:
    """The files at ``paths``, or beside files there of the same nodes, that are not closed
    segments."""
    times: dict[str, float] = {}
    closed: set[str] = set()
    for path in paths:
        entries = location(path, settings).glob()
        files = [entry for entry in entries if not entry.is_dir()]
        found = [one for entry in entries if entry not in files for one in _ages_below(entry)]
        beside = {f"{file.parent}/{_node_in(file.name)}" for file in files}
        for directory in {file.parent for file in files}:
            found += [
                (file, time)
                for file, time in directory.ages()
                if f"{directory}/{_node_in(file.name)}" in beside
            ]
        for file, time in found:
            if not fnmatch(file.name, _NAMES):
                continue
            if file.name.endswith((".jsonl", ".jsonl" + PACKED)):
                closed.add(file.name.removesuffix(PACKED))
            else:
                times[file.name] = max(time, times.get(file.name, 0.0))
    # Both exist if it has just been closed, or if the node died closing it.
    left = {name: time for name, time in times.items() if _segment_of(name) not in closed}
    open_ones = {
        _segment_of(name): int(time * 1000)
        for name, time in sorted(left.items())
        if name.endswith(OPEN)
    }
    return Others(open_ones, sorted(name for name in left if _segment_of(name) not in open_ones))


def _ages_below(directory: Location) -> list[tuple[Location, float]]:
    places = {file.parent for file in directory.files()}
    return [one for place in sorted(places) for one in place.ages()]


def _node_in(name: str) -> str:
    """The prefix of the node's id in the name of a file."""
    return name.split("-")[1] if name.count("-") == 3 else name


def _segment_of(name: str) -> str:
    return name[: name.index(".jsonl") + len(".jsonl")]


def _is_segment(place: Location, all: set[Location], include_open: bool) -> bool:
    name = place.name
    if name.endswith((".jsonl", ".jsonl" + PACKED)):
        return True
    if not include_open or not name.endswith(".jsonl" + OPEN):
        return False  # for example a file that is being compressed
    # Both exist if it was closed while we listed the directory, or if the node died closing it.
    closed = place.with_name(name.removesuffix(OPEN))
    return closed not in all and closed.with_name(closed.name + PACKED) not in all


def each(look: Callable[[Location], _Found], places: Sequence[Location]) -> list[_Found]:
    """The results of ``look`` for each file. Remote files are looked at in parallel."""
    if all(place.local is not None for place in places):
        return [look(place) for place in places]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(look, places))


def grown(place: Location, start: int) -> Location | None:
    """The complete lines of a segment after its first ``start`` bytes; None if it is gone. It may
    have been closed and compressed since it was found."""
    closed = place.name.removesuffix(OPEN)
    for name in (place.name, closed, closed + PACKED):
        found = place.with_name(name)
        try:
            end = _end_of_lines(found, start) if name.endswith(OPEN) else found.size()
        except FileNotFoundError:
            continue
        return replace(found, length=end, start=start)
    return None


def _end_of_lines(place: Location, start: int) -> int:
    """The end of the last complete line; ``start`` if there is none after ``start``."""
    with place.open_input(LOOK) as file:
        end = file.seek(0, os.SEEK_END)
        while end > start:
            begin = max(end - LOOK, start)
            file.seek(begin)
            last = file.read(end - begin).rfind(b"\n")
            if last >= 0:
                return begin + last + 1
            end = begin
    return start


def pieces_of(place: Location, size: int) -> Iterator[tuple[Piece, int]]:
    """Split the lines of a segment that are to be read into pieces of ``size`` bytes. Yields each
    with the approximate size of its lines in bytes. A compressed segment is one piece, because it
    can be read only from its beginning."""
    length = place.size()
    if place.name.endswith(PACKED):
        if length:
            yield Piece(place, place.start, length), weight(place)
        return
    for start in range(place.start, length, size):
        end = min(start + size, length)
        yield Piece(place, start, end), end - start


def weight(place: Location) -> int:
    """Approximate size in bytes of the lines of a segment that are to be read."""
    if place.name.endswith(PACKED):
        return max(place.size() * PACKING - place.start, min(place.size(), 1))
    return max(place.size() - place.start, 0)


def grouped(pieces: Iterable[tuple[T, int]], size: int) -> list[list[T]]:
    """Group pieces, which come with their sizes, into groups of about ``size`` bytes."""
    groups: list[list[T]] = []
    room = 0
    for piece, cost in pieces:
        if cost > room or not groups:
            groups.append([])
            room = size
        groups[-1].append(piece)
        room -= cost
    return groups


def split(segments: Sequence[Location], size: int) -> list[list[Piece]]:
    """Split segments into groups of pieces, of about ``size`` bytes each; small files share a
    group."""
    return grouped((piece for place in segments for piece in pieces_of(place, size)), size)


def blocks(piece: Piece, size: int = BLOCK) -> Iterator[bytes]:
    """Yield the lines of ``piece`` in blocks of about ``size`` bytes, each of complete lines. A
    partial line at the end of a segment that is still being written is left out.

    Raises:
        SegmentError: the file is compressed and damaged.
    """
    try:
        yield from _blocks(piece, size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise SegmentError(f"{piece.path}: damaged: {problem}") from problem


def _blocks(piece: Piece, size: int) -> Iterator[bytes]:
    with opened(piece.place) as file:
        at = 0
        if piece.start > 0:
            file.seek(piece.start - 1)
            at = piece.start - 1 + len(file.readline())
        whole = piece.place.name.endswith(PACKED)
        is_open = piece.place.name.endswith(OPEN)
        while whole or at < piece.end:
            data = file.read(size if whole else min(size, piece.end - at))
            if not data:
                return
            if not data.endswith(b"\n"):
                data += file.readline()
            at += len(data)
            if is_open and not data.endswith(b"\n"):
                data = data[: data.rfind(b"\n") + 1]
            yield data


def opened(place: Location, buffer: int = BUFFER) -> BinaryIO:
    """Open a segment to read its lines, even if it is compressed, or was closed and compressed
    after it was found.

    Args:
        buffer: bytes to ask for at a time, for remote files.

    Raises:
        FileNotFoundError: the segment has been removed.
    """
    closed = place.name.removesuffix(OPEN)
    for name in (place.name, closed):
        with suppress(FileNotFoundError):
            return _opened(place.with_name(name), buffer)
    return _opened(place.with_name(closed.removesuffix(PACKED) + PACKED), buffer)


def _opened(place: Location, buffer: int) -> BinaryIO:
    file = place.open_input(buffer)
    return cast(BinaryIO, _Unpacked(file)) if place.name.endswith(PACKED) else file


class _Unpacked(gzip.GzipFile):
    """A reader of a compressed file that closes the file as well."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._packed = file

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._packed.close()


def events_of(block: bytes, schema: pa.Schema) -> tuple[pa.Table, list[bytes]]:
    """The fields in ``schema`` of the lines of ``block`` (null where a line lacks a field), and the
    lines that are not events."""
    try:
        if not block.isascii():
            block.decode()
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
        # pyarrow takes half of a pair for a character. Looking for one byte first is quick.
        if b"\\" in block and _SURROGATE.search(block):
            for column in table.columns:
                if pa.types.is_string(column.type):
                    column.cast(pa.binary()).cast(pa.string())
    except (pa.ArrowInvalid, UnicodeDecodeError):
        # Some line in the block is not an event: parse them one by one.
        return _one_by_one(block, schema)
    return table, []


def rows_of(block: bytes, schema: pa.Schema, malformed: str, path: str) -> pa.Table:
    """The lines of ``block`` as rows of ``schema``, which is that of events. JSON without a time is
    dropped, or with ``keep`` treated as not an event.

    Args:
        malformed: what to do with lines that are not events: ``drop``, ``fail``, or ``keep`` them
            in the column ``malformed``.
        path: the file, for errors.

    Raises:
        SegmentError: a line is not an event, and ``malformed`` is ``fail``.
    """
    lines = pa.schema(
        [
            pa.field("time", pa.int64()) if field.name == "time" else field
            for field in schema
            if field.name not in ("time_ms", MALFORMED)
        ]
    )
    table, bad = events_of(block, lines)
    if bad and malformed == "fail":
        raise SegmentError(f"{path}: not an event: {bad[0][:200]!r}")
    if table.column("time").null_count:
        if malformed == "keep":
            table, bad = _one_by_one(block, lines, needed="time")
        else:
            table = table.filter(pc.field("time").is_valid())
    columns = {name: table.column(name) for name in lines.names}
    columns["time_ms"] = columns["time"]
    columns["time"] = pc.multiply(columns["time"], 1000).cast(schema.field("time").type)
    if MALFORMED in schema.names:
        columns[MALFORMED] = pa.nulls(len(table), pa.string())
    whole = pa.table([columns[name] for name in schema.names], schema=schema)
    if not bad or malformed != "keep":
        return whole
    texts = [line.decode("utf-8", "backslashreplace") for line in bad]
    kept = pa.Table.from_pylist([{MALFORMED: text} for text in texts], schema=schema)
    return pa.concat_tables([whole, kept])


def _one_by_one(block: bytes, schema: pa.Schema, needed: str = "") -> tuple[pa.Table, list[bytes]]:
    """The good lines of a block, and the bad ones. Lines without the field ``needed`` are bad."""
    texts = {field.name for field in schema if pa.types.is_string(field.type)}
    limits = {
        field.name: 1 << (field.type.bit_width - 1) for field in schema if field.name not in texts
    }
    rows: list[dict[str, str | int | None]] = []
    bad: list[bytes] = []
    for line in block.split(b"\n"):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            bad.append(line)
            continue
        if (
            isinstance(event, dict)
            and (not needed or event.get(needed) is not None)
            and all(_is_text(event.get(name)) for name in texts)
            and all(_fits(event.get(name), limit) for name, limit in limits.items())
        ):
            rows.append(event)
        else:
            bad.append(line)
    return pa.Table.from_pylist(rows, schema=schema), bad


def _is_text(value: object) -> bool:
    if value is None:
        return True
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _fits(value: object, limit: int) -> bool:
    if value is None:
        return True
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
