"""An archive as plain Parquet files: ``queue=orders/day=2026-11-24/part-*.parquet``.

A complete, synced file is renamed into its place. A repeated batch replaces its own files, which
have the same names.

A compaction merges files into one and removes them, in steps that each survive a crash:

1. It writes a record to ``_compactions`` that says which files the new one replaces.
2. It renames the new file into its place.
3. After the grace period, it removes the replaced files, and then the record.

To remove a day, it writes a record without a new file: from then on, the day's files are not part
of the table, and they are removed after the grace period.

So a reader that lists the files never misses a job, since replaced files stay until it has finished
listing. During the grace period, jobs are in two files; ``read_archive`` drops duplicates. If a
compaction dies after the second step, the next one does the rest; if it dies before, it leaves only
a record of a file that does not exist.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa

from disque_spark.files import Location, location
from disque_spark.lakehouse.alone import alone
from disque_spark.lakehouse.columns import partition_of, partition_path, plain
from disque_spark.lakehouse.files import DataFile, merged
from disque_spark.lakehouse.planning import (
    Candidate,
    Once,
    compacted_name,
    groups,
    last_batches,
    part_name,
    part_prefix,
)
from disque_spark.lakehouse.table import CompactionReport, StreamBatch, TableFile, Upkeep

RECORDS = "_compactions"


class Record(NamedTuple):
    """A compaction: ``output`` replaces ``inputs``; without an output, these are to be removed. The
    names are paths relative to the table; ``path`` is the record's own file."""

    path: Location
    output: str | None
    inputs: list[str]


class ParquetFiles:
    """The table. See ``Table``.

    Args:
        directory: the table's directory.
        clock: returns seconds since 1970.
        sleep: as ``time.sleep``.
    """

    whole = False

    def __init__(
        self,
        directory: Location | PathLike[str],
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = location(directory)
        self._clock = clock
        self._sleep = sleep

    def create(self, schema: pa.Schema) -> None:
        """Only check the columns: every file has its own schema."""
        plain(schema)

    def add(self, batch: StreamBatch, files: Sequence[DataFile], staging: Location) -> None:
        """Move the files of a batch into the table: synced, and each atomically."""
        table = self._directory
        places: dict[Location, set[str]] = {}
        for number, file in enumerate(files):
            place = table / partition_path(file.queue, file.day)
            name = part_name(batch, number)
            (staging / file.name).sync()
            _put(staging / file.name, place, name)
            places.setdefault(place, set()).add(name)
        for place, names in places.items():
            # Files of an earlier attempt, which may have divided the batch in another way.
            for old in _files(place):
                if old.name.startswith(part_prefix(batch)) and old.name not in names:
                    old.delete()
        for place in {*places, *(place.parent for place in places), table}:
            with suppress(FileNotFoundError):  # a day that a compaction has removed
                place.sync()
        staging.delete_tree()

    def files(self) -> list[TableFile]:
        """The files of the table, without those that were replaced and will be removed soon."""
        # Before listing: files that are replaced later stay for the grace period.
        replaced = self.replaced()
        return [
            TableFile(path, *_partition(place))
            for place in self._days()
            for path in _files(place)
            if path.name.endswith(".parquet") and self._below(path) not in replaced
        ]

    def replaced(self) -> set[str]:
        """Paths, relative to the table, of replaced files, which may still exist."""
        return {name for record in self._open_records() for name in record.inputs}

    def keep_up(self, upkeep: Upkeep, progress: Callable[[str], None]) -> CompactionReport:
        """Merge small files and remove old days.

        Raises:
            TableError: another compaction is running.
        """
        outcome = CompactionReport()
        with self._alone(upkeep.dry_run):
            self._finish(upkeep, outcome)
            self._remove_days(upkeep, outcome)
            for place, sources in self._work(upkeep):
                progress(f"{outcome.before} files merged into {outcome.after}")
                self._merge(place, sources, upkeep, outcome)
            if (outcome.after or outcome.days) and not upkeep.dry_run:
                progress(f"waiting {upkeep.grace:.0f} s for those who read the old files")
                self._sleep(upkeep.grace)
                self._finish(upkeep, outcome)
        return outcome

    @contextmanager
    def _alone(self, only_looks: bool) -> Iterator[None]:
        if only_looks:
            yield
            return
        records = self._directory / RECORDS
        with alone(records, self._clock):
            for torn in (records / "*.new").glob():
                torn.delete()
            yield

    def _days(self) -> list[Location]:
        return (self._directory / "queue=*" / "day=*").glob()

    def _below(self, path: Location) -> str:
        return path.path[len(self._directory.path) :].lstrip("/")

    def _records(self) -> list[Record]:
        found = []
        for path in (self._directory / RECORDS / "*.json").glob():
            try:
                record = json.loads(path.read_bytes())
            except FileNotFoundError:
                continue  # a compaction has finished meanwhile
            found.append(Record(path, record["output"], record["inputs"]))
        return found

    def _open_records(self) -> list[Record]:
        """The records in force: those whose new file is in its place."""
        return [
            one
            for one in self._records()
            if one.output is None or (self._directory / one.output).exists()
        ]

    def _finish(self, upkeep: Upkeep, outcome: CompactionReport) -> None:
        """Do the third step, where it is due."""
        if upkeep.dry_run:
            return
        for record in self._records():
            since = record.path if record.output is None else self._directory / record.output
            if not since.exists():
                # It was never put in place, or has been removed with its day since.
                record.path.delete()
                continue
            if self._clock() - dict(since.parent.ages())[since] < upkeep.grace:
                continue
            place = (self._directory / record.inputs[0]).parent
            there = {self._below(path) for path in _files(place)}
            for name in record.inputs:
                if name in there:
                    (self._directory / name).delete()
                    outcome.removed += 1
            if record.output is None and place.local is not None:
                with suppress(OSError):  # not empty: a batch was repeated
                    place.local.rmdir()
                place.parent.sync()
            elif record.output is not None:
                place.sync()
            record.path.delete()

    def _work(self, upkeep: Upkeep) -> Iterator[tuple[Location, list[Location]]]:
        """Yield what to merge: a directory, and files in it."""
        replaced = {name for one in self._open_records() for name in (one.output, *one.inputs)}
        first = upkeep.first_day(self._clock())
        oldest = "" if first is None else first.isoformat()
        found: dict[Location, list[Candidate]] = {}
        for place in self._days():
            if _partition(place)[1] < oldest:
                continue
            found[place] = [
                Candidate(path.name, path.size(), written)
                for path, written in place.ages()
                if path.name.endswith(".parquet") and self._below(path) not in replaced
            ]
        # A batch that Spark has not committed may be repeated, and would then be there twice.
        last = last_batches(file.name for files in found.values() for file in files)
        for place, files in found.items():
            for group in groups(files, last, upkeep.target, self._clock() - upkeep.older):
                yield place, [place / name for name in group]

    def _merge(
        self, place: Location, sources: list[Location], upkeep: Upkeep, outcome: CompactionReport
    ) -> None:
        outcome.before += len(sources)
        outcome.after += 1
        outcome.bytes += sum(source.size() for source in sources)
        if upkeep.dry_run:
            return
        name = compacted_name(sources[0].name, uuid4().hex)
        new = self._directory / RECORDS / f"{name}.new"
        once = Once()
        try:
            merged(sources, new, once.wanted if upkeep.deduplicate else lambda rows: rows)
            new.sync()
            self._note(name, place / name, sources)
            new.rename(place / name)
        finally:
            new.delete()
        place.sync()
        outcome.duplicates += once.dropped

    def _note(self, name: str, output: Location | None, inputs: list[Location]) -> None:
        """Write a record."""
        record = {
            "output": None if output is None else self._below(output),
            "inputs": [self._below(source) for source in inputs],
        }
        noted = self._directory / RECORDS / f"{name}.json"
        noted.write_bytes((json.dumps(record) + "\n").encode())
        noted.sync()
        noted.parent.sync()

    def _remove_days(self, upkeep: Upkeep, outcome: CompactionReport) -> None:
        first = upkeep.first_day(self._clock())
        if first is None:
            return
        going = self.replaced()
        for place in self._days():
            files = place.files(recursive=False)
            if _partition(place)[1] >= first.isoformat():
                continue
            if not files or all(self._below(file) in going for file in files):
                continue  # there is a record already
            outcome.days.append(self._below(place))
            if not upkeep.dry_run:
                self._note(f"day-{uuid4().hex}", None, files)


def _put(file: Location, place: Location, name: str) -> None:
    """Move ``file`` into the directory ``place``, which a compaction may remove while it is
    empty."""
    while True:
        place.make_directory()
        try:
            file.rename(place / name)
        except FileNotFoundError:
            if not file.exists():
                raise
        else:
            return


def _files(place: Location) -> list[Location]:
    """The files in ``place``; none if a compaction has removed it with its day."""
    try:
        return place.files(recursive=False)
    except FileNotFoundError:
        return []


def _partition(place: Location) -> tuple[str, str]:
    """Queue and day of a directory."""
    return partition_of(place.path)
