"""An archive as plain Parquet files: ``queue=orders/day=2026-11-24/part-*.parquet``.

A file gets its place by a rename, whole and on the disk. A batch that is repeated replaces its own
files, by their names.

A compaction merges files into one and removes them, in steps that each survive a crash:

1. a record in ``_compactions`` says which files the new one replaces;
2. the new file gets its place;
3. after the grace, files that it replaces are removed, and then the record.

So a reader that lists the files never misses a job, since those that are replaced stay until it
has listed them all. During the grace jobs are in two files; ``read_archive`` drops what is there
twice. Who died after the second step left the rest to the next compaction; before it, nothing but
a record of a file that is not there.
"""

import fcntl
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa

from disque_trio.disk import replace_file, sync_directory, sync_file
from disque_trio.spark.lakehouse.columns import partition_of, partition_path
from disque_trio.spark.lakehouse.files import DataFile, merged
from disque_trio.spark.lakehouse.planning import (
    Candidate,
    Once,
    compacted_name,
    groups,
    last_batches,
    part_name,
    part_prefix,
)
from disque_trio.spark.lakehouse.settings import TableError
from disque_trio.spark.lakehouse.table import Batch, Outcome, TableFile, Upkeep

RECORDS = "_compactions"
FILES = "queue=*/day=*/*.parquet"


class Record(NamedTuple):
    """A file that replaces others; paths below the table."""

    path: Path
    output: str
    inputs: list[str]


class ParquetFiles:
    """The table. See ``Table``.

    Args:
        directory: of the table.
        clock: seconds since 1970. sleep: waits for seconds.
    """

    whole = False

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._sleep = sleep

    def create(self, schema: pa.Schema) -> None:
        """Nothing: its files have their columns."""

    def add(self, batch: Batch, files: Sequence[DataFile], staging: Path) -> None:
        """Move the files of a batch into the table: on the disk, and each in one step."""
        table = self._directory
        places: dict[Path, set[str]] = {}
        for number, file in enumerate(files):
            place = table / partition_path(file.queue, file.day)
            place.mkdir(parents=True, exist_ok=True)
            name = part_name(batch, number)
            sync_file(Path(file.path))
            Path(file.path).rename(place / name)
            places.setdefault(place, set()).add(name)
        for place, names in places.items():
            # An earlier attempt, by a program that divided it in another way.
            for old in place.glob(f"{part_prefix(batch)}*.parquet"):
                if old.name not in names:
                    old.unlink()
        for place in {*places, *(place.parent for place in places), table}:
            sync_directory(place)
        shutil.rmtree(staging)

    def files(self) -> list[TableFile]:
        """Also those that are replaced, and are still there."""
        return [
            TableFile(str(path), *_partition(path)) for path in sorted(self._directory.glob(FILES))
        ]

    def keep_up(self, upkeep: Upkeep, progress: Callable[[str], None]) -> Outcome:
        """Merge small files and remove old days.

        Raises:
            TableError: another compaction is at work.
        """
        outcome = Outcome()
        with self._alone(upkeep.dry_run):
            self._finish(upkeep, outcome)
            self._remove_days(upkeep, outcome)
            for place, sources in self._work(upkeep):
                progress(f"{outcome.before} files merged into {outcome.after}")
                self._merge(place, sources, upkeep, outcome)
            if outcome.after and not upkeep.dry_run:
                progress(f"waiting {upkeep.grace:.0f} s for those who read the old files")
                self._sleep(upkeep.grace)
                self._finish(upkeep, outcome)
        return outcome

    @contextmanager
    def _alone(self, only_looks: bool) -> Iterator[None]:
        if only_looks:
            yield
            return
        path = self._directory / RECORDS
        path.mkdir(exist_ok=True)
        with (path / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TableError(f"{self._directory}: another compaction is at work") from None
            for torn in path.glob("*.new"):
                torn.unlink()
            yield

    def _records(self) -> list[Record]:
        found = []
        for path in sorted((self._directory / RECORDS).glob("*.json")):
            record = json.loads(path.read_text())
            found.append(Record(path, record["output"], record["inputs"]))
        return found

    def _finish(self, upkeep: Upkeep, outcome: Outcome) -> None:
        """The third step, where it is due."""
        for record in self._records():
            output = self._directory / record.output
            path = record.path
            if upkeep.dry_run:
                continue
            if not output.exists():
                # It never came; or that day has gone since, and so have its files.
                path.unlink()
                continue
            if self._clock() - output.stat().st_mtime < upkeep.grace:
                continue
            for name in record.inputs:
                old = self._directory / name
                if old.exists():
                    old.unlink()
                    outcome.removed += 1
            sync_directory(output.parent)
            path.unlink()

    def _work(self, upkeep: Upkeep) -> Iterator[tuple[Path, list[Path]]]:
        """What is to be merged: where, and which files."""
        table = self._directory
        open_ones = [one for one in self._records() if (table / one.output).exists()]
        replaced = {name for one in open_ones for name in (one.output, *one.inputs)}
        found: dict[Path, list[Candidate]] = {}
        for path in sorted(table.glob(FILES)):
            if str(path.relative_to(table)) not in replaced:
                facts = path.stat()
                found.setdefault(path.parent, []).append(
                    Candidate(path.name, facts.st_size, facts.st_mtime)
                )
        # A batch that Spark has not committed may be repeated, and would be there twice.
        last = last_batches(file.name for files in found.values() for file in files)
        for place, files in found.items():
            for group in groups(files, last, upkeep.target, self._clock() - upkeep.older):
                yield place, [place / name for name in group]

    def _merge(self, place: Path, sources: list[Path], upkeep: Upkeep, outcome: Outcome) -> None:
        table = self._directory
        outcome.before += len(sources)
        outcome.after += 1
        outcome.bytes += sum(source.stat().st_size for source in sources)
        if upkeep.dry_run:
            return
        name = compacted_name(sources[0].name, uuid4().hex)
        new = table / RECORDS / f"{name}.new"
        record = {
            "output": str((place / name).relative_to(table)),
            "inputs": [str(source.relative_to(table)) for source in sources],
        }
        once = Once()
        try:
            merged(sources, new, once.wanted if upkeep.deduplicate else lambda rows: rows)
            sync_file(new)
            replace_file(
                str(table / RECORDS / f"{name}.json"), (json.dumps(record) + "\n").encode()
            )
            new.touch()  # the grace begins
            new.rename(place / name)
        finally:
            new.unlink(missing_ok=True)
        sync_directory(place)
        outcome.duplicates += once.dropped

    def _remove_days(self, upkeep: Upkeep, outcome: Outcome) -> None:
        first = upkeep.first_day(self._clock())
        if first is None:
            return
        for place in sorted(self._directory.glob("queue=*/day=*")):
            if place.is_dir() and _partition(place / "file")[1] < first.isoformat():
                outcome.days.append(str(place.relative_to(self._directory)))
                if not upkeep.dry_run:
                    outcome.removed += len(list(place.glob("*.parquet")))
                    shutil.rmtree(place)
                    sync_directory(place.parent)


def _partition(path: Path) -> tuple[str, str]:
    """Queue and day of a file."""
    return partition_of(str(path.parent))
