"""Looks at growing logs again and again: an audit each time, what is new in it told, a page."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from disque_trio.spark.audit.findings import FINDING_SCHEMA
from disque_trio.spark.audit.manifest import FINDINGS, MINUTES, day_of
from disque_trio.spark.audit.queue_minutes import TABLE_SCHEMA as MINUTE_SCHEMA
from disque_trio.spark.audit.rules import TOLD, Rules
from disque_trio.spark.audit.run import Result, audit
from disque_trio.spark.audit.store import Store
from disque_trio.spark.audit.unread import NoLogError
from disque_trio.spark.classic import Py4JError
from disque_trio.spark.failures import text_of, told
from disque_trio.spark.files import Location, Place, location, settings_of
from disque_trio.spark.parquet import rows_of
from disque_trio.spark.report import make_report, write_report
from disque_trio.spark.restarts import Restarts, wait
from disque_trio.spark.watch.notices import MINUTE, Row, Told, compare
from disque_trio.spark.watch.receivers import Receiver, ReceiverError

EVERY = 15.0  # s
STATE = "watch.json"
_FIGURES = 24 * 60 * MINUTE  # so old may minutes be that are told when a watch begins


@dataclass
class Watch:
    """The settings of a watch.

    Attributes:
        paths: of the logs. output: directory of the tables, those of an audit.
        receivers: who is told.
        rules: of the findings. kinds: that are told.
        page: where the report goes after each look; None: nowhere.
        every: s from one look to the next.
        gone, keep_days: see ``audit``.
    """

    paths: Sequence[str]
    output: Place
    receivers: Sequence[Receiver]
    rules: Rules = field(default_factory=Rules)
    kinds: Sequence[str] = TOLD
    page: Place | None = None
    every: float = EVERY
    gone: Sequence[str] = ()
    keep_days: int | None = None
    _rows: dict[Location, list[Row]] = field(default_factory=dict, init=False, repr=False)

    def run(
        self,
        spark: SparkSession,
        *,
        tell: Callable[[str], None],
        stop: Callable[[], object] = lambda: False,
        progress: Callable[[str], None] = lambda text: None,
        looked: Callable[[Result], None] = lambda result: None,
        looks: int | None = None,
        restarts: Restarts | None = None,
    ) -> None:
        """Look until the end. What fails and may pass is tried again.

        Args:
            tell: is told in a line what went wrong.
            stop: whether to end; the look that it is at is finished first.
            progress: is told what is being done. looked: is told of each look.
            looks: how many; None: without end.

        Raises:
            AuditError, StoreError: the logs or the tables are not what they should be.
            PySparkException, Py4JError: Spark failed, and trying again does not help.
        """
        restarts = restarts or Restarts()
        while not stop() and looks != 0:
            begun = monotonic()
            try:
                looked(self.look(spark, tell, progress))
                restarts.progress()
                pause = max(self.every - (monotonic() - begun), 0.0)
                looks = None if looks is None else looks - 1
            except NoLogError as nothing:
                tell(f"{nothing}: looks again in {self.every:.0f} s")
                pause = self.every
            except (PySparkException, Py4JError, OSError) as failure:
                line = told(failure)
                again = restarts.pause(text_of(failure), line)
                if again is None:
                    raise
                pause = again
                tell(f"{line}: looks again in {pause:.0f} s")
            if looks != 0:
                wait(pause, stop)

    def look(
        self,
        spark: SparkSession,
        tell: Callable[[str], None],
        progress: Callable[[str], None] = lambda text: None,
    ) -> Result:
        """Bring the tables up to date, and tell what is new in them."""
        result = audit(
            spark,
            self.paths,
            self.output,
            self.rules,
            gone=self.gone,
            keep_days=self.keep_days,
            growing=True,
            progress=progress,
        )
        output = location(self.output, settings_of(spark))
        self._tell(result, output, tell)
        if self.page is not None:
            progress("page")
            page = location(self.page, settings_of(spark))
            write_report(make_report(spark, output), page, None)
        return result

    def _tell(self, result: Result, output: Location, tell: Callable[[str], None]) -> None:
        """Tell each receiver what is new to it. Who cannot be told is told with the next look."""
        store = Store(output)
        last = store.manifest.last
        known = _read_state(output)
        fresh = Told(until=max(last - _FIGURES, 0))
        before = {one.name: known.get(one.name, fresh) for one in self.receivers}
        findings = list(self._findings(store.paths(FINDINGS)))
        since = min((told.until for told in before.values()), default=last)
        minutes = list(self._minutes(store, since))
        missing = sorted(result.missing_segments)
        for receiver in self.receivers:
            notice, after = compare(
                before[receiver.name], findings, minutes, last, result.missing_nodes, missing
            )
            try:
                if not notice.is_empty:
                    receiver.tell(notice)
                known[receiver.name] = after
            except ReceiverError as problem:
                tell(f"{problem}: tells again with the next look")
        state = {name: told.as_json() for name, told in known.items()}
        (output / STATE).write_bytes(json.dumps(state, separators=(",", ":")).encode())

    def _findings(self, files: Sequence[Location]) -> Iterator[Row]:
        """Those that are told. Files never change, so each is read once."""
        self._rows = {
            file: self._rows[file] if file in self._rows else findings_in(file, self.kinds)
            for file in files
        }
        for rows in self._rows.values():
            yield from rows

    def _minutes(self, store: Store, since: int) -> Iterator[Row]:
        first = day_of(since)
        for day, names in store.manifest.files(MINUTES).items():
            for name in names if day >= first else ():
                yield from minutes_in(store.place(MINUTES, day) / name, since)


def _read_state(output: Location) -> dict[str, Told]:
    """What each receiver knows, by name. Raises ValueError: the file is not that of a watch."""
    try:
        state = json.loads((output / STATE).read_bytes())
        return {name: Told.of(told) for name, told in state.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError) as problem:
        raise ValueError(f"{output / STATE}: {problem}") from None


def findings_in(file: Location, kinds: Sequence[str]) -> list[Row]:
    """The findings of some kinds in a file."""
    table = pa.Table.from_batches(rows_of(file, FINDING_SCHEMA), FINDING_SCHEMA)
    chosen = table.filter(pc.is_in(table.column("kind"), pa.array(kinds)))
    return _rows_of(chosen, "time")


def minutes_in(file: Location, since: int) -> list[Row]:
    """The minutes in a file that begin at ``since`` (ms) or later."""
    table = pa.Table.from_batches(rows_of(file, MINUTE_SCHEMA), MINUTE_SCHEMA)
    start = pa.scalar(since * 1000, pa.int64()).cast(table.schema.field("minute").type)
    return _rows_of(table.filter(pc.greater_equal(table.column("minute"), start)), "minute")


def _rows_of(table: pa.Table, time: str) -> list[Row]:
    """The rows, with their time in ms."""
    place = table.schema.get_field_index(time)
    ms = pc.divide(table.column(time).cast(pa.int64()), 1000)
    rows: list[Mapping[str, object]] = table.set_column(place, time, ms).to_pylist()
    return [dict(row) for row in rows]
