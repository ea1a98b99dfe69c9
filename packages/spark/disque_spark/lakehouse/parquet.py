"""An archive as plain Parquet files: ``queue=orders/day=2026-11-24/part-*.parquet``.

A complete, synced file is renamed into its place. Its name says the query, the batch, and the part
of the batch, so that a repeated batch replaces its own files. There are no versions, so files are
never merged; use Delta or Iceberg for that.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from os import PathLike

import pyarrow as pa

from disque_spark.files import Location, location
from disque_spark.lakehouse.columns import partition_of, partition_path, plain
from disque_spark.lakehouse.files import DataFile, placed
from disque_spark.lakehouse.settings import TableError
from disque_spark.lakehouse.table import CompactionReport, StreamBatch, TableFile, Upkeep

RECORDS = "_compactions"
NO_MERGING = (
    "plain Parquet files are not merged; write the archive with --format delta or iceberg, or with"
    " fewer batches (--seconds)"
)


class ParquetFiles:
    """The table. See ``Table``.

    Args:
        directory: the table's directory.
        clock: returns seconds since 1970.
    """

    whole = False

    def __init__(
        self, directory: Location | PathLike[str], clock: Callable[[], float] = time.time
    ) -> None:
        self._directory = location(directory)
        self._clock = clock

    def create(self, schema: pa.Schema) -> None:
        """Check the columns: every file has its own schema. Also remove the files that a compaction
        by an earlier version of this program has replaced."""
        plain(schema)
        for path in (self._directory / RECORDS / "*.json").glob():
            record = json.loads(path.read_bytes())
            if record["output"] is None or (self._directory / record["output"]).exists():
                for name in record["inputs"]:
                    (self._directory / name).delete()
            path.delete()

    def add(self, batch: StreamBatch, files: Sequence[DataFile], staging: Location) -> None:
        """Move the files of a batch into the table: synced, and each atomically."""
        names: dict[Location, set[str]] = {}
        for file in files:
            place = self._directory / partition_path(file.queue, file.day)
            own = names.setdefault(place, set())
            name = f"{batch.prefix}{len(own):05}.parquet"
            placed(staging / file.name, place / name)
            own.add(name)
        for place, own in names.items():
            # Files of an earlier attempt, which may have divided the batch in another way.
            for old in (place / f"{batch.prefix}*").glob():
                if old.name not in own:
                    old.delete()
        for place in {*(place.parent for place in names), self._directory}:
            place.sync()
        staging.delete_tree()

    def files(self) -> list[TableFile]:
        """The files of the table."""
        return [
            TableFile(path, *partition_of(path.parent.path))
            for path in (self._directory / "queue=*" / "day=*" / "*.parquet").glob()
        ]

    def keep_up(self, upkeep: Upkeep, progress: Callable[[str], None]) -> CompactionReport:
        """Remove old days.

        Raises:
            TableError: there is nothing else to do.
        """
        first = upkeep.first_day(self._clock())
        if first is None:
            raise TableError(f"{self._directory}: {NO_MERGING}")
        outcome = CompactionReport()
        for place in (self._directory / "queue=*" / "day=*").glob():
            if partition_of(place.path)[1] < first.isoformat():
                outcome.days.append(", ".join(partition_of(place.path)))
                if not upkeep.dry_run:
                    outcome.removed += _emptied(place)
        return outcome


def _emptied(place: Location) -> int:
    """Remove a directory and its files, while others may do that, too, or add files to it. Returns
    how many files there were."""
    try:
        files = place.files(recursive=False)
    except FileNotFoundError:
        return 0
    for file in files:
        file.delete()
    if place.local is not None:
        with suppress(OSError):  # a batch was repeated
            place.local.rmdir()
    return len(files)
