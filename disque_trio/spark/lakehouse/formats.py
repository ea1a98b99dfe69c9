"""Opens the table of an archive. Imports only what its format needs."""

from collections.abc import Mapping
from pathlib import Path

from disque_trio.spark.lakehouse.settings import DELTA, ICEBERG, TableSettings
from disque_trio.spark.lakehouse.table import Table


def table_of(
    directory: Path, settings: TableSettings, more: Mapping[str, str] | None = None
) -> Table:
    """The table of an archive.

    Args:
        directory: of the archive. more: properties of the catalog.

    Raises:
        TableError: what its format needs is not installed.
    """
    if settings.format == DELTA:
        from disque_trio.spark.lakehouse.delta import DeltaFiles

        return DeltaFiles(directory)
    if settings.format == ICEBERG:
        from disque_trio.spark.lakehouse.iceberg import IcebergFiles

        return IcebergFiles(directory, settings.table, {**settings.catalog, **(more or {})})
    from disque_trio.spark.lakehouse.parquet import ParquetFiles

    return ParquetFiles(directory)
