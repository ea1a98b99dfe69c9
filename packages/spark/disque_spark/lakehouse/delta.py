"""An archive as a Delta table, with the library ``deltalake`` (extra ``delta``).

The files of a batch are moved into the table's directory, and one commit adds them, with an
application transaction: the id of the query and the number of the batch. So a repeated batch is
recognized. Nothing refers to files that were moved but never committed; ``vacuum`` removes them.
"""

import json
import time
from collections.abc import Callable, Sequence
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa

from disque_spark.files import Location
from disque_spark.lakehouse.columns import DAY, PARTITIONS, QUEUE, lacking, plain, types_of
from disque_spark.lakehouse.files import DataFile
from disque_spark.lakehouse.placing import for_deltalake, placed
from disque_spark.lakehouse.planning import part_prefix
from disque_spark.lakehouse.settings import TableError
from disque_spark.lakehouse.table import CompactionReport, StreamBatch, TableFile, Upkeep
from disque_spark.lakehouse.versions import (
    COMPACTED,
    REPLACED,
    SAFE_SECONDS,
    STAGING,
    Compaction,
    CurrentFile,
    NotSwappedError,
    pause,
)
from disque_trio.extras import how_to_install

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ModuleNotFoundError as missing:
    raise TableError(f"Delta needs {missing.name}: {how_to_install('delta')}") from None

_ATTEMPTS = 10


class DeltaFiles:
    """The table. See ``Table``."""

    whole = False

    def __init__(self, directory: Location, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._address, self._options = for_deltalake(directory)
        self._clock = clock

    def create(self, schema: pa.Schema) -> None:
        """See ``Table``."""
        wanted = Schema.from_arrow(plain(schema))
        table = DeltaTable.create(
            self._address,
            wanted,
            mode="ignore",
            partition_by=list(PARTITIONS),
            storage_options=self._options,
        )
        found = plain(pa.schema(table.schema()))
        missing = lacking(str(self._directory), types_of(found), types_of(plain(schema)))
        if missing:
            table.alter.add_columns([one for one in wanted.fields if one.name in missing])

    def add(self, batch: StreamBatch, files: Sequence[DataFile], staging: Location) -> None:
        """Add a batch, unless it is in the table.

        Raises:
            CommitFailedError: other writers were faster, on every attempt.
        """
        if self._has(batch):
            staging.delete_tree()
            return
        prefix = part_prefix(batch)
        actions: list[AddAction | RemoveAction] = [
            self._placed(file, staging, prefix) for file in files
        ]
        commit = CommitProperties(app_transactions=[Transaction(batch.query, batch.number)])
        for attempt in range(_ATTEMPTS):
            table = self._table()
            try:
                table.create_write_transaction(
                    actions, "append", table.schema(), list(PARTITIONS), commit_properties=commit
                )
                break
            except CommitFailedError:
                # Perhaps it was our own commit that succeeded.
                if self._has(batch):
                    break
                if attempt == _ATTEMPTS - 1:
                    raise
        staging.delete_tree()

    def files(self) -> list[TableFile]:
        """The files of the newest version.

        Raises:
            TableError: there is no table, or somebody has deleted rows without rewriting files.
        """
        return [TableFile(file.place, file.queue, file.day.isoformat()) for file in self.held()]

    def keep_up(self, upkeep: Upkeep, progress: Callable[[str], None]) -> CompactionReport:
        """Remove old days, merge small files, and remove files that are no longer needed.

        Raises:
            TableError: Delta fails, or as in ``files``.
        """
        staging = self._directory / STAGING
        try:
            return Compaction(self, staging, self._clock).keep_up(upkeep, progress)
        except DeltaError as problem:
            raise TableError(f"{self._directory}: {problem}") from None

    def held(self) -> list[CurrentFile]:
        """See ``Versions``."""
        return self._held(self._table())

    def _held(self, table: DeltaTable) -> list[CurrentFile]:
        if pa.table(table.deletion_vectors().read_all()).num_rows:
            raise TableError(f"{self._directory}: has deletion vectors; use a Delta reader")
        names = ("path", f"partition.{QUEUE}", f"partition.{DAY}", "size_bytes")
        found = pa.table(table.get_add_actions(flatten=True))
        encoded, *columns = [found.column(name).to_pylist() for name in names]
        paths = map(unquote, encoded)  # the log has encoded paths, and commits encode them again
        return [
            CurrentFile(path, self._directory / path, queue, day, size)
            for path, queue, day, size in zip(paths, *columns, strict=True)
        ]

    def swap(self, old: Sequence[CurrentFile], new: DataFile | None, staging: Location) -> None:
        """See ``Versions``."""
        now = int(self._clock() * 1000)
        change = new is None
        gone = {file.name for file in old}
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(
                file.name,
                change,
                now,
                file.size,
                {QUEUE: file.queue, DAY: file.day.isoformat()},
            )
            for file in old
        ]
        if new is not None:
            actions.append(self._placed(new, staging, COMPACTED, data_change=False))
        # The library would retry by itself, without noticing that another compaction was faster.
        commit = CommitProperties(max_commit_retries=0)
        for attempt in range(_ATTEMPTS):
            table = self._table()
            there = {file.name for file in self._held(table)}
            if not gone <= there:
                # Perhaps it was our own commit that succeeded.
                if attempt and not gone & there and (change or actions[-1].path in there):
                    return
                raise NotSwappedError(REPLACED)
            try:
                table.create_write_transaction(
                    actions, "append", table.schema(), list(PARTITIONS), commit_properties=commit
                )
                return
            except CommitFailedError as problem:
                if attempt == _ATTEMPTS - 1:
                    raise NotSwappedError(
                        f"{_ATTEMPTS} commits failed, the last one: {problem}"
                    ) from None
                pause(attempt)

    def clean(self, upkeep: Upkeep, outcome: CompactionReport) -> None:
        """See ``Versions``."""
        for attempt in range(_ATTEMPTS):
            try:
                removed = self._table().vacuum(
                    retention_hours=int(upkeep.history // 3600),
                    dry_run=False,
                    enforce_retention_duration=False,
                    full=upkeep.history >= SAFE_SECONDS,
                )
                break
            except CommitFailedError:  # it notes its start and end, while others replace files
                if attempt == _ATTEMPTS - 1:
                    raise
                pause(attempt)
        outcome.removed = len(removed)

    def _placed(
        self, file: DataFile, staging: Location, prefix: str, data_change: bool = True
    ) -> AddAction:
        """Move a file into the table's directory, and return the action that adds it."""
        name = f"{prefix}{uuid4().hex}.parquet"
        placed(staging / file.name, self._directory / name)
        return AddAction(
            path=name,
            size=file.size,
            partition_values={QUEUE: file.queue, DAY: file.day},
            modification_time=int(self._clock() * 1000),
            data_change=data_change,
            stats=json.dumps({"numRecords": file.rows}),
        )

    def _has(self, batch: StreamBatch) -> bool:
        last = self._table().transaction_version(batch.query)
        return last is not None and last >= batch.number

    def _table(self) -> DeltaTable:
        try:
            return DeltaTable(self._address, storage_options=self._options)
        except TableNotFoundError:
            raise TableError(f"no Delta table at {self._directory}") from None
