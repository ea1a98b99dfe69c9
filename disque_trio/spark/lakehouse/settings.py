"""What an archive's directory says of its table: a small file that the first run writes."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Self

from disque_trio.spark.defaults import ICEBERG, PARQUET
from disque_trio.spark.files import Location

FILE = "_archive.json"
_SECRET = re.compile(r"password|secret|token|credential|key|oauth", re.IGNORECASE)


class TableError(Exception):
    """A table cannot be used as it is asked for; the text says which and why."""


class TableFailedError(TableError):
    """A file system, a catalog, or the library of a table's format has failed; it may pass."""


@contextmanager
def failures_told(name: str) -> Iterator[None]:
    """What goes wrong in the block, whatever library raises it, is a ``TableFailedError``. What
    is wrong with arguments (``ValueError``) or with the table stays as it is.

    Args:
        name: of the table.
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
        body: how bodies are decoded, as ``json:a INT``; None: they are not.
        drop_body: those that were decoded are left out.
        catalog: properties of the catalog of an Iceberg table; without any it is a file in the
            directory.
        table: the name of an Iceberg table, with its namespace.
        columns: more than all archives have, and their types in Spark's SQL.
    """

    format: str = PARQUET
    body: str | None = None
    drop_body: bool = False
    catalog: Mapping[str, str] = field(default_factory=dict)
    table: str = "disque.archive"
    columns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Location) -> Self | None:
        """Those of a table; None: no archive has written there since there are such settings.

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
        """For those who read the table, and for later runs. Passwords in properties are left out:
        everybody who uses the table has to give them.

        Raises:
            TableError: the table is written in another way.
        """
        before = self.read(directory)
        if before is None and (directory / "queue=*" / "day=*" / "*.parquet").glob():
            before = TableSettings()  # of an older version
        if before is not None:
            self._check(before, directory)
        columns = {**(before.columns if before is not None else {}), **self.columns}
        kept = asdict(self) | {"catalog": public(self.catalog), "columns": columns}
        if before is None or asdict(before) != kept:
            (directory / FILE).write_bytes((json.dumps(kept) + "\n").encode())
            (directory / FILE).sync()
            directory.sync()

    def _check(self, before: "TableSettings", directory: Location) -> None:
        if before.format != self.format:
            raise TableError(
                f"{directory} has a table in the format {before.format}, not {self.format}"
            )
        later = before.body is None  # files without the column are read
        same = (before.body, before.drop_body) == (self.body, self.drop_body)
        if not same and not later:
            raise TableError(
                f"{directory}: its bodies are {_told(before)}, not {_told(self)}: that needs a"
                " table of its own"
            )
        for name, kind in self.columns.items():
            if before.columns.get(name, kind) != kind:
                raise TableError(
                    f"{directory}: the column {name} is {before.columns[name]} there, not {kind}"
                )
        if self.format == ICEBERG and before.table != self.table:
            raise TableError(f"{directory} belongs to the table {before.table}, not {self.table}")


def _told(settings: TableSettings) -> str:
    how = f"decoded by {settings.body}" if settings.body else "not decoded"
    return how + (" and dropped" if settings.drop_body else "")


def public(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties without those that are nobody's business."""
    return {name: value for name, value in properties.items() if not _SECRET.search(name)}
