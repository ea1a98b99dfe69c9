"""What all table formats have in common."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, Protocol

import pyarrow as pa

from disque_spark.files import Location
from disque_spark.lakehouse.files import DataFile
from disque_trio.respclient.randomness import RANDOM

# Younger files that nothing refers to may belong to a batch that is being added.
SAFE_SECONDS = 3600.0
ATTEMPTS = 10  # of a commit
_PAUSE = 0.02  # s; upper limit of the pause before the first retry of a commit, doubled each time


class StreamBatch(NamedTuple):
    """A batch of a stream: its number, and the id of the query, which its checkpoint keeps."""

    query: str
    number: int

    @property
    def prefix(self) -> str:
        """The prefix of the names of its files."""
        return f"part-{self.number:06}-{self.query}-"


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
        history: seconds that old versions of Delta and Iceberg tables stay.
        days: how many days to keep jobs, at least; None: forever.
        dry_run: change nothing.
    """

    target: int = 128 << 20
    history: float = 168 * 3600.0
    days: int | None = None
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
        days: partitions that were removed.
        removed: number of unneeded files that were deleted.
        waiting: reasons why something was left for the next compaction.
    """

    before: int = 0
    after: int = 0
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


def retried(change: Callable[[], object], *failures: type[Exception]) -> None:
    """Change a table. Tries again after one of ``failures``: another commit was faster."""
    for attempt in range(ATTEMPTS):
        try:
            change()
            return
        except failures:
            if attempt == ATTEMPTS - 1:
                raise
            time.sleep(_PAUSE * RANDOM.random() * 2**attempt)
