"""The settings of an archive's table, in a small file that the first run writes."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Self

from disque_spark.defaults import ICEBERG, PARQUET
from disque_spark.files import Location

FILE = "_archive.json"
_SECRET = re.compile(r"password|secret|token|credential|key|oauth", re.IGNORECASE)


class TableError(Exception):
    """A table cannot be used in this way; the text says which, and why."""


class TableFailedError(TableError):
    """A file system, a catalog, or the library of a table's format failed; it may be transient."""


@contextmanager
def table_failures(name: str) -> Iterator[None]:
    """Turn errors in the block, from whatever library, into ``TableFailedError``. ``ValueError``
    (for wrong arguments) and ``TableError`` pass unchanged.

    Args:
        name: name of the table, for the text.
    """
    try:
        yield
    except (TableError, ValueError):
        raise
    except Exception as problem:
        line = next(iter(str(problem).strip().splitlines()), "")
        raise TableFailedError(f"{name}: {type(problem).__name__}: {line}") from problem


@dataclass(frozen=True)
class TableSettings:
    """How a table is written.

    Attributes:
        format: one of FORMATS.
        body: how bodies are decoded, such as ``json:a INT``; None: they are not.
        drop_body: leave out bodies that were decoded.
        catalog: properties of the catalog of an Iceberg table; if empty, the catalog is a file in
            the directory.
        table: name of an Iceberg table, with its namespace.
        columns: columns in addition to those of all archives, and their types in Spark SQL.
    """

    format: str = PARQUET
    body: str | None = None
    drop_body: bool = False
    catalog: Mapping[str, str] = field(default_factory=dict)
    table: str = "disque.archive"
    columns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Location) -> Self | None:
        """Read the settings of a table; None: there are none, because there is no archive, or it is
        older than settings.

        Raises:
            TableError: they are damaged.
        """
        path = directory / FILE
        try:
            return cls(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as problem:
            raise TableError(f"{path}: {problem}") from None

    def keep(self, directory: Location) -> None:
        """Store the settings, for readers of the table and for later runs. Leaves out passwords in
        properties, which all users of the table have to provide.

        Raises:
            TableError: the table has other settings.
        """
        before = self.read(directory)
        if before is None and (directory / "queue=*" / "day=*" / "*.parquet").glob():
            before = TableSettings()  # written by an older version
        if before is not None:
            self._check(before, directory)
        columns = {**(before.columns if before is not None else {}), **self.columns}
        body = self.body or (before and before.body)
        kept = asdict(self) | {"catalog": public(self.catalog), "columns": columns, "body": body}
        if before is None or asdict(before) != kept:
            (directory / FILE).write_bytes((json.dumps(kept) + "\n").encode())
            (directory / FILE).sync()
            directory.sync()

    def _check(self, before: "TableSettings", directory: Location) -> None:
        if before.format != self.format:
            raise TableError(
                f"{directory} has a table in the format {before.format}, not {self.format}"
            )
        if None not in (before.body, self.body) and _kind(before) != _kind(self):
            raise TableError(
                f"{directory}: its bodies are decoded as {_kind(before)}, not as {_kind(self)}; use"
                " another table for that"
            )
        for name, kind in self.columns.items():
            if before.columns.get(name, kind) != kind:
                raise TableError(
                    f"{directory}: the column {name} has type {before.columns[name]}, not {kind}"
                )
        if self.format == ICEBERG and before.table != self.table:
            raise TableError(f"{directory} belongs to the table {before.table}, not {self.table}")


def _kind(settings: TableSettings) -> str:
    return (settings.body or "").partition(":")[0]


def public(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties without the secret ones."""
    return {name: value for name, value in properties.items() if not _SECRET.search(name)}
