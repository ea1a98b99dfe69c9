"""The table ``ticks``, with one file for each day. Only days with new lines are read and judged."""

import json
from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

import pyarrow as pa

from disque_spark.audit.engine import Engine, Tasks
from disque_spark.audit.judging import counts_of, write_findings
from disque_spark.audit.manifest import FINDINGS, TICKS, Manifest, TickDay
from disque_spark.audit.store import Store
from disque_spark.audit.ticks import TICK_SCHEMA, in_order, tick_findings
from disque_spark.options import batch_of
from disque_spark.parquet import parquet_file, write_file

_WRITTEN = pa.schema([(name, pa.string()) for name in ("day", "file", "found", "counts")])


class TicksTable:
    """The table of a version under construction.

    Args:
        manifest: manifest of the version.
        stamp: prefix for names of new files.
    """

    def __init__(self, engine: Engine, store: Store, manifest: Manifest, stamp: str) -> None:
        self._engine = engine
        self._store = store
        self._manifest = manifest
        self._stamp = stamp

    def add(self, new: Mapping[str, Sequence[str]]) -> None:
        """Add the ticks in new files to the table, and judge their days again.

        Args:
            new: names of files in the table's directories, by day. They are deleted.
        """
        manifest, stamp, days = self._manifest, self._stamp, sorted(new)
        places = [self._store.place(TICKS, day) for day in days]
        findings = [self._store.place(FINDINGS, day) for day in days]
        old = [manifest.ticks.get(day) for day in days]
        files = [
            [place / name for name in (*([had.file] if had else ()), *new[day])]
            for place, had, day in zip(places, old, days, strict=True)
        ]

        def task(number: int) -> Iterator[pa.RecordBatch]:
            tables = []
            for path in files[number]:
                with parquet_file(path) as file:
                    tables.append(file.read().cast(TICK_SCHEMA))
            ticks = in_order(pa.concat_tables(tables))
            name = f"{stamp}-{uuid4().hex[:12]}.parquet"
            write_file(places[number] / name, ticks)
            found = tick_findings(ticks)
            said = write_findings(found, findings[number], stamp)
            yield batch_of([(days[number], name, said, json.dumps(counts_of(found)))], _WRITTEN)

        for row in self._engine.rows(Tasks(len(days), task, _WRITTEN)).to_pylist():
            day = row["day"]
            manifest.ticks[day] = TickDay(row["file"], row["found"], json.loads(row["counts"]))
            manifest.changed += [f"{TICKS}/{day}", f"{FINDINGS}/{day}"]
        for place, day in zip(places, days, strict=True):
            for name in new[day]:
                (place / name).delete()
