"""What an archive's directory says of its table: a small file that the first run writes."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from disque_trio.spark.defaults import ICEBERG, PARQUET
from disque_trio.spark.files import Location

FILE = "_archive.json"
_SECRET = re.compile(r"password|secret|token|credential|key|oauth", re.IGNORECASE)


class TableError(Exception):
    """A table cannot be used as it is asked for; the text says which and why."""


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
    """

    format: str = PARQUET
    body: str | None = None
    drop_body: bool = False
    catalog: Mapping[str, str] = field(default_factory=dict)
    table: str = "disque.archive"

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
        kept = asdict(self) | {"catalog": public(self.catalog)}
        if before is None or asdict(before) != kept:
            (directory / FILE).write_bytes((json.dumps(kept) + "\n").encode())
            (directory / FILE).sync()
            directory.sync()

    def _check(self, before: "TableSettings", directory: Location) -> None:
        if before.format != self.format:
            raise TableError(
                f"{directory} has a table in the format {before.format}, not {self.format}"
            )
        later = self.format == PARQUET and before.body is None  # files without the column are read
        same = (before.body, before.drop_body) == (self.body, self.drop_body)
        if not same and not later:
            raise TableError(
                f"{directory}: its bodies are {_told(before)}, not {_told(self)}: that needs a"
                " table of its own"
            )
        if self.format == ICEBERG and before.table != self.table:
            raise TableError(f"{directory} belongs to the table {before.table}, not {self.table}")


def _told(settings: TableSettings) -> str:
    how = f"decoded by {settings.body}" if settings.body else "not decoded"
    return how + (" and dropped" if settings.drop_body else "")


def public(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties without those that are nobody's business."""
    return {name: value for name, value in properties.items() if not _SECRET.search(name)}
