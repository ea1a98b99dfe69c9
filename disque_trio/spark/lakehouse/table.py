"""What the formats of tables have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, Protocol

import pyarrow as pa

from disque_trio.spark.files import Location
from disque_trio.spark.lakehouse.files import DataFile


class Batch(NamedTuple):
    """A batch of a stream: its number, and the id of the query, which its checkpoint has."""

    query: str
    number: int


class TableFile(NamedTuple):
    """A file of a table. ``queue`` and ``day`` (ISO) are not in it if they are not None here."""

    path: Location
    queue: str | None
    day: str | None


@dataclass(frozen=True)
class Upkeep:
    """What a compaction shall do.

    Attributes:
        target: bytes that a file should have.
        older: s that a file has to be old to be merged.
        grace: s that files stay that were replaced, for those who read them.
        history: s that versions of Delta and Iceberg tables stay.
        days: that jobs are kept, at least; None: for ever.
        deduplicate: drop jobs that are twice in the files that become one.
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
        """The first day that is kept; None: all are. ``now``: seconds since 1970."""
        if self.days is None:
            return None
        today = datetime.fromtimestamp(now, UTC).date()
        return today - timedelta(min(self.days, (today - date.min).days))


@dataclass
class Outcome:
    """What a compaction came to.

    Attributes:
        before, after: files that were merged, and what became of them. bytes: of these files.
        duplicates: jobs that were dropped. days: parts of the table that were removed.
        removed: files that nothing needs any more, and that are gone.
        waiting: why something was left for the next time.
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
        """Make it, if it is not there, with these columns; or else add those that it lacks.

        Raises:
            TableError: it is there and they do not go with those that it has.
        """

    def add(self, batch: Batch, files: Sequence[DataFile], staging: Location) -> None:
        """Bring a batch into the table, once: one that is in it is left out, or replaced.

        Args:
            files: of the batch, in ``staging``, which is gone afterwards.
        """

    def files(self) -> list[TableFile]:
        """Those of its newest version."""

    def keep_up(self, upkeep: Upkeep, progress: Callable[[str], None]) -> Outcome:
        """Merge small files, remove old days, and files that nothing needs any more."""
