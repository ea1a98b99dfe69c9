"""What all table formats have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, Protocol

import pyarrow as pa

from disque_spark.files import Location
from disque_spark.lakehouse.files import DataFile


class StreamBatch(NamedTuple):
    """A batch of a stream: its number, and the id of the query, which its checkpoint keeps."""

    query: str
    number: int


class TableFile(NamedTuple):
    """A file of a table. ``queue`` and ``day`` (ISO) are None if the file has them as columns."""

    path: Location
    queue: str | None
    day: str | None


@dataclass(frozen=True)
class Upkeep:
    """What a compaction should do.

    Attributes:
        target: target size of a file in bytes.
        older: seconds; leave younger files alone.
        grace: seconds that replaced files stay, for readers.
        history: seconds that old versions of Delta and Iceberg tables stay.
        days: how many days to keep jobs, at least; None: forever.
        deduplicate: drop duplicates among the files that are merged into one.
        dry_run: change nothing.
    """

    target: int = 128 << 20
    older: float = 3600.0
    grace: float = 60.0
    history: float = 168 * 3600.0
    days: int | None = None
    deduplicate: bool = False
    dry_run: bool = False

    def first_day(self, now: float) -> date | None:
        """The first day to keep; None: keep all. ``now``: seconds since 1970."""
        if self.days is None:
            return None
        today = datetime.fromtimestamp(now, UTC).date()
        return today - timedelta(min(self.days, (today - date.min).days))


@dataclass
class CompactionReport:
    """What a compaction has done.

    Attributes:
        before: number of files that were merged.
        after: number of files they were merged into.
        bytes: total size of the merged files.
        duplicates: duplicate jobs that were dropped.
        days: partitions that were removed.
        removed: number of unneeded files that were deleted.
        waiting: reasons why something was left for the next compaction.
    """

    before: int = 0
    after: int = 0
    bytes: int = 0
    duplicates: int = 0
    days: list[str] = field(default_factory=list)
    removed: int = 0
    waiting: list[str] = field(default_factory=list)


class Table(Protocol):
    """A table of one format."""

    whole: bool  # whether files have queue and day as columns

    def create(self, schema: pa.Schema) -> None:
        """Create the table with these columns; if it exists, add the columns that it lacks.

        Raises:
            TableError: the table exists, and its columns conflict with these.
        """

    def add(self, batch: StreamBatch, files: Sequence[DataFile], staging: Location) -> None:
        """Add a batch to the table exactly once: if it is there, skip or replace it.

        Args:
            files: the batch's files, in ``staging``, which is deleted afterwards.
        """

    def files(self) -> list[TableFile]:
        """The files of its newest version."""

    def keep_up(self, upkeep: Upkeep, progress: Callable[[str], None]) -> CompactionReport:
        """Merge small files, and remove old days and files that are no longer needed."""
