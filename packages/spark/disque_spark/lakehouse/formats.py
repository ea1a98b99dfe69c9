"""Opens the table of an archive. Imports only what its format needs."""

from collections.abc import Mapping

from disque_spark.defaults import DELTA, PARQUET
from disque_spark.files import Location
from disque_spark.lakehouse.settings import TableError, TableSettings
from disque_spark.lakehouse.table import Table


def table_of(
    directory: Location, settings: TableSettings, more: Mapping[str, str] | None = None
) -> Table:
    """The table of an archive.

    Args:
        directory: the archive's directory.
        more: further properties of the catalog.

    Raises:
        TableError: a package that the format needs is not installed, or the format does not support
            the file system.
    """
    if settings.format == PARQUET:
        from disque_spark.lakehouse.parquet import ParquetFiles

        return ParquetFiles(directory)
    if settings.format == DELTA:
        from disque_spark.lakehouse.delta import DeltaFiles

        return DeltaFiles(directory)
    here = directory.local
    if here is None:
        raise TableError(
            f"{directory}: Iceberg needs a directory on a local file system; a catalog may keep the"
            " data elsewhere"
        )
    from disque_spark.lakehouse.iceberg import IcebergFiles

    return IcebergFiles(here, settings.table, {**settings.catalog, **(more or {})})
