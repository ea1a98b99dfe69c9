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
from disque_spark.filesystems import LOCAL, S3
from disque_spark.lakehouse.columns import DAY, PARTITIONS, QUEUE, plain, widened
from disque_spark.lakehouse.files import DataFile, placed
from disque_spark.lakehouse.merging import (
    COMPACTED,
    REPLACED,
    STAGING,
    CurrentFile,
    NotSwappedError,
    merge,
    remove_days,
)
from disque_spark.lakehouse.settings import TableError
from disque_spark.lakehouse.table import (
    ATTEMPTS,
    SAFE_SECONDS,
    CompactionReport,
    StreamBatch,
    TableFile,
    Upkeep,
    retried,
)
from disque_trio.extras import how_to_install

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ModuleNotFoundError as missing:
    raise TableError(f"Delta needs {missing.name}: {how_to_install('delta')}") from None

# The options of S3, and ``deltalake``'s names for them.
_OF_S3 = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_REGION",
}


class DeltaFiles:
    """The table. See ``Table``."""

    whole = False

    def __init__(self, directory: Location, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._address, self._options = for_deltalake(directory)
        self._clock = clock

    def create(self, schema: pa.Schema) -> None:
        """See ``Table``."""
        table = DeltaTable.create(
            self._address,
            Schema.from_arrow(plain(schema)),
            mode="ignore",
            partition_by=list(PARTITIONS),
            storage_options=self._options,
        )
        found = plain(pa.schema(table.schema()))
        wanted = widened(str(self._directory), found, plain(schema))
        if wanted != found:
            write_deltalake(table, wanted.empty_table(), mode="append", schema_mode="merge")

    def add(self, batch: StreamBatch, files: Sequence[DataFile], staging: Location) -> None:
        """Add a batch, unless it is in the table.

        Raises:
            CommitFailedError: other writers were faster, on every attempt.
        """
        commit = CommitProperties(app_transactions=[Transaction(batch.query, batch.number)])
        actions: list[AddAction | RemoveAction] = []

        def append() -> None:
            # Also after a failure: perhaps it was our own commit that succeeded.
            table = self._table()
            if self._has(table, batch):
                return
            if not actions:
                actions.extend(self._placed(file, staging, batch.prefix) for file in files)
            table.create_write_transaction(
                actions, "append", table.schema(), list(PARTITIONS), commit_properties=commit
            )

        retried(append, CommitFailedError)
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
            outcome = remove_days(self, staging, upkeep.first_day(self._clock()), upkeep)
            merge(self, staging, upkeep, outcome, progress)
            if not upkeep.dry_run:
                progress("removing files")
                # It notes its start and end, while others replace files.
                retried(lambda: self._vacuum(upkeep, outcome), CommitFailedError)
        except DeltaError as problem:
            raise TableError(f"{self._directory}: {problem}") from None
        return outcome

    def held(self) -> list[CurrentFile]:
        """See ``Versions``."""
        return self._held(self._table())

    def _held(self, table: DeltaTable) -> list[CurrentFile]:
        if pa.table(table.deletion_vectors().read_all()).num_rows:
            raise TableError(f"{self._directory}: has deletion vectors; use a Delta reader")
        names = (f"partition.{QUEUE}", f"partition.{DAY}", "path", "size_bytes")
        found = pa.table(table.get_add_actions(flatten=True))
        columns = [found.column(name).to_pylist() for name in names]
        return [
            # The log has encoded paths, and commits encode them again.
            CurrentFile(queue, day, unquote(path), self._directory / unquote(path), size)
            for queue, day, path, size in zip(*columns, strict=True)
        ]

    def swap(self, old: Sequence[CurrentFile], new: DataFile | None, staging: Location) -> None:
        """See ``Versions``."""
        now = int(self._clock() * 1000)
        gone = {file.name for file in old}
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(
                file.name,
                new is None,
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
        tried = False

        def change() -> None:
            nonlocal tried
            table = self._table()
            there = {file.name for file in self._held(table)}
            if not gone <= there:
                # Perhaps it was our own commit that succeeded.
                if tried and not gone & there and (new is None or actions[-1].path in there):
                    return
                raise NotSwappedError(REPLACED)
            tried = True
            table.create_write_transaction(
                actions, "append", table.schema(), list(PARTITIONS), commit_properties=commit
            )

        try:
            retried(change, CommitFailedError)
        except CommitFailedError as problem:
            raise NotSwappedError(f"{ATTEMPTS} commits failed, the last: {problem}") from None

    def _vacuum(self, upkeep: Upkeep, outcome: CompactionReport) -> None:
        removed = self._table().vacuum(
            retention_hours=int(upkeep.history // 3600),
            dry_run=False,
            enforce_retention_duration=False,
            full=upkeep.history >= SAFE_SECONDS,
        )
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

    def _has(self, table: DeltaTable, batch: StreamBatch) -> bool:
        last = table.transaction_version(batch.query)
        return last is not None and last >= batch.number

    def _table(self) -> DeltaTable:
        try:
            return DeltaTable(self._address, storage_options=self._options)
        except TableNotFoundError:
            raise TableError(f"no Delta table at {self._directory}") from None


def for_deltalake(directory: Location) -> tuple[str, dict[str, str]]:
    """The address of a Delta table, and its storage options, for ``deltalake``.

    On S3, it commits with conditional PUTs.

    Raises:
        TableError: the file system is not supported.
    """
    if directory.scheme == LOCAL:
        return directory.path, {}
    if directory.scheme not in S3:
        raise TableError(f"{directory}: Delta tables have to be on a local file system or S3")
    given = dict(directory.options)
    options = {_OF_S3[name]: value for name, value in given.items() if name in _OF_S3}
    if "endpoint_override" in given:
        scheme = given.get("scheme", "https")
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{given['endpoint_override']}"
        options["AWS_ALLOW_HTTP"] = str(scheme == "http").lower()
    return f"s3://{directory.authority}{directory.path}", options
