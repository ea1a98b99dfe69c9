"""An archive as a Delta table, by the library ``deltalake``: the extra ``delta``.

The files of a batch are moved into the table's directory, and one commit adds them, with a
transaction of the application: the id of the query and the number of the batch. So a batch that is
repeated is known. What was moved and never committed nothing refers to; ``vacuum`` removes it.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa

from disque_trio.extras import how_to_install
from disque_trio.spark.files import Location, location
from disque_trio.spark.lakehouse.columns import DAY, PARTITIONS, QUEUE, plain
from disque_trio.spark.lakehouse.files import DataFile
from disque_trio.spark.lakehouse.placing import placed
from disque_trio.spark.lakehouse.planning import part_prefix
from disque_trio.spark.lakehouse.settings import TableError
from disque_trio.spark.lakehouse.table import Batch, Outcome, TableFile, Upkeep

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ModuleNotFoundError as missing:
    raise TableError(f"Delta needs {missing.name}: {how_to_install('delta')}") from None

_ATTEMPTS = 5
_TASKS = 2  # merges at once
# Files that nothing refers to may be of a batch that is just being added.
_SAFE_SECONDS = 3600.0


class DeltaFiles:
    """The table. See ``Table``."""

    whole = False

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock

    def create(self, schema: pa.Schema) -> None:
        """Make it, if it is not there.

        Raises:
            TableError: it has other columns.
        """
        wanted = Schema.from_arrow(plain(schema))
        table = DeltaTable.create(
            str(self._directory), wanted, mode="ignore", partition_by=list(PARTITIONS)
        )
        if table.schema() != wanted:
            raise TableError(f"{self._directory}: the table has other columns")

    def add(self, batch: Batch, files: Sequence[DataFile], staging: Location) -> None:
        """Add a batch, if it is not in the table.

        Raises:
            CommitFailedError: others were always faster.
        """
        if self._has(batch):
            staging.delete_tree()
            return
        actions: list[AddAction | RemoveAction] = []
        for file in files:
            name = f"{part_prefix(batch)}{uuid4().hex}.parquet"
            placed(staging / file.name, location(self._directory / name))
            actions.append(
                AddAction(
                    path=name,
                    size=file.size,
                    partition_values={QUEUE: file.queue, DAY: file.day},
                    modification_time=int(self._clock() * 1000),
                    data_change=True,
                    stats=json.dumps({"numRecords": file.rows}),
                )
            )
        commit = CommitProperties(app_transactions=[Transaction(batch.query, batch.number)])
        for attempt in range(_ATTEMPTS):
            table = self._table()
            try:
                table.create_write_transaction(
                    actions, "append", table.schema(), list(PARTITIONS), commit_properties=commit
                )
                break
            except CommitFailedError:
                # It may have been ours that came through.
                if self._has(batch):
                    break
                if attempt == _ATTEMPTS - 1:
                    raise
        staging.delete_tree()

    def files(self) -> list[TableFile]:
        """Those of the newest version.

        Raises:
            TableError: there is no table, or somebody has deleted rows without writing files anew.
        """
        table = self._table()
        if pa.table(table.deletion_vectors().read_all()).num_rows:
            raise TableError(f"{self._directory}: rows were deleted in files: use Delta's readers")
        return [
            TableFile(location(self._directory / file.path), file.queue, file.day.isoformat())
            for file in _files(table)
        ]

    def keep_up(self, upkeep: Upkeep, progress: Callable[[str], None]) -> Outcome:
        """Remove old days, merge small files, and remove files that are no longer needed.

        Raises:
            TableError: Delta fails, or duplicates are to be dropped, which it cannot.
        """
        if upkeep.deduplicate:
            raise TableError("--deduplicate: Delta's own compaction cannot do that")
        try:
            return self._keep_up(upkeep, progress)
        except DeltaError as problem:
            raise TableError(f"{self._directory}: {problem}") from None

    def _keep_up(self, upkeep: Upkeep, progress: Callable[[str], None]) -> Outcome:
        outcome = Outcome()
        table = self._table()
        files = _files(table)
        first = upkeep.first_day(self._clock())
        if first is not None:
            old = {(file.queue, file.day) for file in files if file.day < first}
            outcome.days = [f"{queue}, {day}" for queue, day in sorted(old)]
            files = [file for file in files if file.day >= first]
            if old and not upkeep.dry_run:
                table.delete(f"{DAY} < '{first.isoformat()}'")
        if upkeep.dry_run:
            small = [file for file in files if file.size < upkeep.target]
            several = [
                n for n in Counter((file.queue, file.day) for file in small).values() if n > 1
            ]
            outcome.before, outcome.after = sum(several), len(several)
            return outcome
        progress("merging files")
        done = table.optimize.compact(target_size=upkeep.target, max_concurrent_tasks=_TASKS)
        outcome.before, outcome.after = done["numFilesRemoved"], done["numFilesAdded"]
        if outcome.before:
            outcome.bytes = json.loads(_details(done["filesRemoved"]))["totalSize"]
        progress("removing files")
        removed = self._table().vacuum(
            retention_hours=int(upkeep.history // 3600),
            dry_run=False,
            enforce_retention_duration=False,
            full=upkeep.history >= _SAFE_SECONDS,
        )
        outcome.removed = len(removed)
        return outcome

    def _has(self, batch: Batch) -> bool:
        last = self._table().transaction_version(batch.query)
        return last is not None and last >= batch.number

    def _table(self) -> DeltaTable:
        try:
            return DeltaTable(str(self._directory))
        except TableNotFoundError:
            raise TableError(f"no Delta table at {self._directory}") from None


class _File(NamedTuple):
    """A file as Delta's log has it; the path is relative."""

    path: str
    queue: str
    day: date
    size: int


def _files(table: DeltaTable) -> list[_File]:
    names = ("path", f"partition.{QUEUE}", f"partition.{DAY}", "size_bytes")
    found = pa.table(table.get_add_actions(flatten=True))
    columns = [found.column(name).to_pylist() for name in names]
    return [
        _File(unquote(path), queue, day, size)
        for path, queue, day, size in zip(*columns, strict=True)
    ]


def _details(found: object) -> str:
    return found if isinstance(found, str) else json.dumps(found)
