"""An archive as an Iceberg table, with the library ``pyiceberg`` (extra ``iceberg``).

The files of a batch are moved into the table's directory, and one commit adds them and stores the
number of the batch in a property of the table, so that a repeated batch is recognized. The summary
of the snapshot has the number, too. Nothing refers to files that were moved but never committed;
``keep_up`` removes them.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa

from disque_spark.files import Location, location
from disque_spark.lakehouse.columns import PARTITIONS, plain, widened
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
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        CommitStateUnknownException,
        NoSuchTableError,
        ValidationException,
    )
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table
except ModuleNotFoundError as missing:
    raise TableError(f"Iceberg needs {missing.name}: {how_to_install('iceberg')}") from None

CATALOG, WAREHOUSE = "_catalog.db", "_warehouse"
# Another commit was faster, or the outcome is unknown. The library retries by itself, but refuses
# files that others have replaced. Besides, its threads share the object that compares partitions,
# so one may look for the files of another queue, and miss them even if nobody else is writing.
_RETRIED = (CommitFailedException, CommitStateUnknownException, ValidationException)
_SETTINGS = {
    "s3.endpoint": "fs.s3a.endpoint",
    "s3.region": "fs.s3a.endpoint.region",
    "s3.access-key-id": "fs.s3a.access.key",
    "s3.secret-access-key": "fs.s3a.secret.key",
    "s3.session-token": "fs.s3a.session.token",
}
_PROPERTIES = {
    # There may be a commit every ten seconds: the metadata must not grow with each.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergFiles:
    """The table. See ``Table``.

    Args:
        directory: the archive's directory.
        name: name of the table, with its namespace.
        properties: properties of the catalog; if empty, the catalog is a file in the directory.
    """

    whole = True

    def __init__(
        self,
        directory: Path,
        name: str,
        properties: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory.absolute()
        self._name = name
        self._properties = dict(properties) or {
            "type": "sql",
            "uri": f"sqlite:///{self._directory / CATALOG}",
            "warehouse": f"file://{self._directory / WAREHOUSE}",
        }
        self._clock = clock

    def create(self, schema: pa.Schema) -> None:
        """See ``Table``."""
        wanted = plain(schema)
        catalog = load_catalog("disque", **self._properties)
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        if not catalog.table_exists(self._name):
            catalog.create_table_if_not_exists(self._name, wanted, properties=_PROPERTIES)
        table = catalog.load_table(self._name)
        if not table.spec().fields:
            with table.update_spec() as spec:
                for name in PARTITIONS:
                    spec.add_identity(name)
        found = plain(table.schema().as_arrow())
        both = widened(self._name, found, wanted)
        if both != found:
            with table.update_schema() as change:
                change.union_by_name(both)

    def add(self, batch: StreamBatch, files: Sequence[DataFile], staging: Location) -> None:
        """Add a batch, unless it is in the table.

        Raises:
            CommitFailedException: other writers were faster, on every attempt.
        """
        table = self._table()
        if files and not _has(table, batch):
            places = [self._placed(table, staging / file.name, batch.prefix) for file in files]
            self._append(batch, places)
        staging.delete_tree()

    def _append(self, batch: StreamBatch, places: list[str]) -> None:
        noted = {"disque.query": batch.query, "disque.batch": str(batch.number)}

        def append() -> None:
            table = self._table()
            # Check again: the outcome of an earlier attempt may be unknown.
            if not _has(table, batch):
                with table.transaction() as change:
                    change.add_files(places, noted, check_duplicate_files=False)
                    change.set_properties({_property(batch): str(batch.number)})

        retried(append, *_RETRIED)

    def files(self) -> list[TableFile]:
        """The files of the newest version.

        Raises:
            TableError: there is no table, or somebody has deleted rows without rewriting files.
        """
        return [TableFile(file.place, None, None) for file in self.held()]

    def keep_up(self, upkeep: Upkeep, progress: Callable[[str], None]) -> CompactionReport:
        """Remove old days, merge small files, and remove files that are no longer needed.

        Raises:
            TableError: as in ``files``.
        """
        staging = location(self._directory) / STAGING
        outcome = remove_days(self, staging, upkeep.first_day(self._clock()), upkeep)
        merge(self, staging, upkeep, outcome, progress)
        if not upkeep.dry_run:
            progress("removing files")
            self._clean(upkeep, outcome)
        return outcome

    def held(self) -> list[CurrentFile]:
        """See ``Versions``."""
        table = self._table()
        settings = _file_system(table)
        return [
            CurrentFile(
                *_part(file),
                file.file_path,
                location(file.file_path, settings),
                file.file_size_in_bytes,
            )
            for file in self._data(table)
        ]

    def swap(self, old: Sequence[CurrentFile], new: DataFile | None, staging: Location) -> None:
        """See ``Versions``."""
        names = {file.name for file in old}
        address: str | None = None
        if new is not None:
            address = self._placed(self._table(), staging / new.name, COMPACTED)
        tried = False

        def change() -> None:
            nonlocal tried
            table = self._table()
            there = {file.file_path: file for file in self._data(table)}
            if not names <= there.keys():
                # Perhaps it was our own commit that succeeded.
                if tried and not names & there.keys() and (address is None or address in there):
                    return
                raise NotSwappedError(REPLACED)
            tried = True
            with table.transaction() as commit, commit.update_snapshot().overwrite() as both:
                for name in names:
                    both.delete_data_file(there[name])
                if address is not None:
                    file = parquet_file_to_data_file(table.io, table.metadata, address)
                    both.append_data_file(file)

        try:
            retried(change, *_RETRIED)
        except (CommitFailedException, ValidationException) as problem:
            raise NotSwappedError(f"{ATTEMPTS} commits failed, the last: {problem}") from None

    def _clean(self, upkeep: Upkeep, outcome: CompactionReport) -> None:
        """Expire old versions, and remove files that no version refers to."""
        now = self._clock()
        until = datetime.fromtimestamp(now, UTC) - timedelta(seconds=upkeep.history)
        if self._table().current_snapshot() is not None:
            retried(
                lambda: self._table().maintenance.expire_snapshots().older_than(until).commit(),
                *_RETRIED,
            )
        table = self._table()
        settings = _file_system(table)
        root = location(table.location(), settings)
        used = {location(path, settings) for path in _referred(table)}
        before = now - max(upkeep.history, SAFE_SECONDS)
        for name, kind in (("data", ".parquet"), ("metadata", ".avro")):
            for file, written in _ages(root / name):
                if file.name.endswith(kind) and file not in used and written < before:
                    file.delete()
                    outcome.removed += 1

    def _data(self, table: Table) -> list[IcebergFile]:
        tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise TableError(f"{self._name}: has delete files; use an Iceberg reader")
        return [task.file for task in tasks]

    def _placed(self, table: Table, source: Location, prefix: str) -> str:
        """Move a file into the table's directory; returns its address."""
        name = f"data/{prefix}{uuid4().hex}.parquet"
        address = f"{table.location().rstrip('/')}/{name}"
        if _is_local(address):
            placed(source, location(_local(address)))
            return address
        with source.open_input() as read, table.io.new_output(address).create() as write:
            shutil.copyfileobj(read, write, 1 << 20)
        source.delete()
        return address

    def _table(self) -> Table:
        try:
            return load_catalog("disque", **self._properties).load_table(self._name)
        except NoSuchTableError:
            raise TableError(f"no Iceberg table {self._name}") from None


def _property(batch: StreamBatch) -> str:
    return f"disque.batch.{batch.query}"


def _has(table: Table, batch: StreamBatch) -> bool:
    return int(table.properties.get(_property(batch), -1)) >= batch.number


def _part(file: IcebergFile) -> tuple[str, date]:
    queue, day = file.partition[0], file.partition[1]
    return queue, day if isinstance(day, date) else date(1970, 1, 1) + timedelta(day)


def _referred(table: Table) -> Iterator[str]:
    """Yield all files that any version of the table refers to."""
    seen = set()
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    yield entry.data_file.file_path


def _ages(directory: Location) -> Iterator[tuple[Location, float]]:
    """Yield all files below a directory, if it exists, and when they were written."""
    with suppress(FileNotFoundError):
        for place in sorted({file.parent for file in directory.files()}):
            yield from place.ages()


def _file_system(table: Table) -> dict[str, str]:
    """The catalog's properties of the file system, as Spark settings."""
    said = table.io.properties
    return {setting: said[name] for name, setting in _SETTINGS.items() if name in said}


def _is_local(address: str) -> bool:
    return urlsplit(address).scheme in ("", "file")


def _local(address: str) -> str:
    """The path of a local address; other addresses as they are."""
    return address.removeprefix("file://") if _is_local(address) else address
