"""Compaction of tables with versions: the parts that Delta and Iceberg have in common.

Every step is one commit, which removes files from the table and adds one that has their jobs. It
fails if one of the files is no longer in the table. So if two compactions conflict, or a compaction
and another deletion, only one succeeds, and no job is lost or duplicated. A compaction that dies
before the commit leaves a file that no version refers to; after it, nothing.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import groupby
from typing import NamedTuple, Protocol
from uuid import uuid4

from disque_spark.files import Location
from disque_spark.lakehouse.files import DataFile, merged
from disque_spark.lakehouse.planning import Candidate, Once, groups
from disque_spark.lakehouse.table import CompactionReport, Upkeep
from disque_trio.respclient.randomness import RANDOM

COMPACTED = "part-c-"
STAGING = "_compactions"
# Younger files that nothing refers to may belong to a batch that is being added.
SAFE_SECONDS = 3600.0
REPLACED = "others have replaced or removed files meanwhile"
_PAUSE = 0.02  # s; upper limit of the pause before the first retry of a commit, doubled each time


class CurrentFile(NamedTuple):
    """A file of the newest version of a table. ``name`` is its name in the table's metadata."""

    name: str
    place: Location
    queue: str
    day: date
    size: int


class NotSwappedError(Exception):
    """A table was left unchanged; the text says why."""


class Versions(Protocol):
    """A table that has versions."""

    def held(self) -> list[CurrentFile]:
        """The files of its newest version."""

    def swap(self, old: Sequence[CurrentFile], new: DataFile | None, staging: Location) -> None:
        """Replace files of the table by another one, in one commit.

        Args:
            new: the new file, in ``staging``; None: remove the files.

        Raises:
            NotSwappedError: not all of ``old`` are in the table, or no commit succeeded.
        """

    def clean(self, upkeep: Upkeep, outcome: CompactionReport) -> None:
        """Expire old versions, and remove files that no version refers to."""


class Compaction:
    """Compacts a table.

    Args:
        staging: a directory for new files.
        clock: returns seconds since 1970.
    """

    def __init__(
        self, table: Versions, staging: Location, clock: Callable[[], float] = time.time
    ) -> None:
        self._table = table
        self._staging = staging
        self._clock = clock

    def keep_up(self, upkeep: Upkeep, progress: Callable[[str], None]) -> CompactionReport:
        """Remove old days, merge small files, and remove files that are no longer needed."""
        outcome = CompactionReport()
        files = sorted(self._table.held(), key=lambda file: (file.queue, file.day, file.name))
        first = upkeep.first_day(self._clock())
        if first is not None:
            self._remove([file for file in files if file.day < first], upkeep, outcome)
            files = [file for file in files if file.day >= first]
        for sources in _work(files, upkeep):
            progress(f"{outcome.before} files merged into {outcome.after}")
            self._merge(sources, upkeep, outcome)
        if not upkeep.dry_run:
            progress("removing files")
            self._table.clean(upkeep, outcome)
        return outcome

    def _remove(self, old: list[CurrentFile], upkeep: Upkeep, outcome: CompactionReport) -> None:
        days = sorted({f"{file.queue}, {file.day}" for file in old})
        if old and not upkeep.dry_run:
            try:
                self._table.swap(old, None, self._staging)
            except NotSwappedError as why:
                outcome.waiting.append(f"old days: {why}")
                return
        outcome.days = days

    def _merge(self, sources: list[CurrentFile], upkeep: Upkeep, outcome: CompactionReport) -> None:
        once = Once()
        if not upkeep.dry_run:
            new = self._staging / f"{uuid4().hex}.parquet"
            wanted = once.wanted if upkeep.deduplicate else lambda rows: rows
            try:
                self._staging.make_directory()
                rows, size = merged([source.place for source in sources], new, wanted)
                file = DataFile(new.name, sources[0].queue, sources[0].day.isoformat(), rows, size)
                self._table.swap(sources, file, self._staging)
            except (NotSwappedError, FileNotFoundError) as why:
                told = why if isinstance(why, NotSwappedError) else self._why_gone(sources) or why
                outcome.waiting.append(f"{sources[0].queue}, {sources[0].day}: {told}")
                return
            finally:
                new.delete()
        outcome.before += len(sources)
        outcome.after += 1
        outcome.bytes += sum(source.size for source in sources)
        outcome.duplicates += once.dropped

    def _why_gone(self, sources: list[CurrentFile]) -> str:
        """Why one of the files could not be read; empty if unknown."""
        names = {file.name for file in self._table.held()}
        if not all(file.name in names for file in sources):
            return REPLACED
        lost = [str(file.place) for file in sources if not file.place.exists()]
        return f"the table refers to missing files: {', '.join(lost)}" if lost else ""


def _work(files: list[CurrentFile], upkeep: Upkeep) -> Iterator[list[CurrentFile]]:
    """Yield groups of files to merge into one."""
    for _, own in groupby(files, lambda file: (file.queue, file.day)):
        named = {file.name: file for file in own}
        candidates = [Candidate(name, file.size, 0.0) for name, file in named.items()]
        for group in groups(candidates, set(), upkeep.target, 0.0):
            yield [named[name] for name in group]


def pause(attempt: int) -> None:
    """Wait at random, for others to commit, before a retry. ``attempt`` counts from 0."""
    time.sleep(_PAUSE * RANDOM.random() * 2**attempt)
