"""The table ``ticks``.

There are few ticks, so the driver itself writes them, with one file for each day. Only days with
new lines are read and judged.
"""

from collections import defaultdict
from collections.abc import Iterable
from uuid import uuid4

from disque_spark.audit.judging import counts_of, write_findings
from disque_spark.audit.manifest import FINDINGS, TICKS, Manifest, TickDay, day_of
from disque_spark.audit.store import Store
from disque_spark.audit.ticks import Tick, table_of, tick_findings, ticks_in
from disque_spark.parquet import parquet_file, write_file


class TicksTable:
    """The table of a version under construction.

    Args:
        manifest: manifest of the version.
        stamp: prefix for names of new files.
    """

    def __init__(self, store: Store, manifest: Manifest, stamp: str) -> None:
        self._store = store
        self._manifest = manifest
        self._stamp = stamp

    def add(self, ticks: Iterable[Tick]) -> None:
        """Add ticks to the table, and judge their days again."""
        days: dict[str, list[Tick]] = defaultdict(list)
        for tick in ticks:
            days[day_of(tick.tick)].append(tick)
        for day, new in sorted(days.items()):
            self._add(day, new)

    def _add(self, day: str, new: list[Tick]) -> None:
        place, manifest = self._store.place(TICKS, day), self._manifest
        old = manifest.ticks.get(day)
        ticks = list(new)
        if old is not None:
            with parquet_file(place / old.file) as file:
                ticks += ticks_in(file.read())
        name = f"{self._stamp}-{uuid4().hex[:12]}.parquet"
        write_file(place / name, table_of(ticks))
        found = tick_findings(ticks)
        file = write_findings(found, self._store.place(FINDINGS, day), self._stamp)
        manifest.ticks[day] = TickDay(name, file, counts_of(found))
        manifest.changed += [f"{TICKS}/{day}", f"{FINDINGS}/{day}"]
