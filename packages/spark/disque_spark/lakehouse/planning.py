"""Plans which files of a queue and day to merge, and names files. No I/O."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from disque_spark.lakehouse.table import StreamBatch

_PART = re.compile(r"part-(\d+)-([0-9a-f-]{36})[-.]")
_COMPACTED = "part-c"
_ENOUGH = 0.75  # a file with this share of the target size is not merged


class Candidate(NamedTuple):
    """A file: its name, its size in bytes, and when it was written (seconds since 1970)."""

    name: str
    size: int
    written: float


def part_prefix(batch: StreamBatch) -> str:
    """The prefix of the names of a batch's files."""
    return f"part-{batch.number:06}-{batch.query}-"


def part_name(batch: StreamBatch, number: int) -> str:
    """The name of a batch's file; the same if the batch is repeated."""
    return f"{part_prefix(batch)}{number:05}.parquet"


def compacted_name(first: str, unique: str) -> str:
    """The name of a file that replaces others. Among compacted files, it sorts like the first of
    these."""
    found = _PART.match(first)
    return f"{_COMPACTED}{found[1] if found else '000000'}-{unique}.parquet"


def last_batches(names: Iterable[str]) -> set[tuple[str, int]]:
    """The last batch of each query among the files with these names. All earlier ones are
    committed, because Spark begins a batch only after committing the one before."""
    last: dict[str, int] = {}
    for name in names:
        found = _PART.match(name)
        if found:
            last[found[2]] = max(last.get(found[2], 0), int(found[1]))
    return set(last.items())


def groups(
    files: Iterable[Candidate], last: set[tuple[str, int]], target: int, before: float
) -> Iterator[list[str]]:
    """Yield groups of names of files to merge into one, among the files of a queue and day.

    Args:
        last: batches that may be repeated; their files are left alone.
        target: target size of a file in bytes.
        before: files written after this time are left alone.
    """
    group: list[str] = []
    size = 0
    for file in sorted(files):
        found = _PART.match(file.name)
        may_be_repeated = found is not None and (found[2], int(found[1])) in last
        if may_be_repeated or file.written > before or file.size >= _ENOUGH * target:
            continue
        if group and size + file.size > target:
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(file.name)
        size += file.size
    if len(group) > 1:
        yield group


class Once:
    """Drops rows with an ``id`` that has occurred before.

    Attributes:
        dropped: number of rows dropped.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._seen: set[str] = set()

    def wanted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with a new id."""
        ids = rows.column(rows.schema.get_field_index("id")).to_pylist()
        keep = []
        for one in ids:
            keep.append(one not in self._seen)
            self._seen.add(one)
        self.dropped += keep.count(False)
        return rows if all(keep) else rows.filter(pa.array(keep))
