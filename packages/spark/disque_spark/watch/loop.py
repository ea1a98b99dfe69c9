"""Looks at growing logs at intervals: audits them, reports what is new, and writes a page."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit.engine import Engine
from disque_spark.audit.engines import engine_of
from disque_spark.audit.findings import FINDING_SCHEMA
from disque_spark.audit.manifest import FINDINGS, MINUTES, day_of
from disque_spark.audit.queue_minutes import TABLE_SCHEMA as MINUTE_SCHEMA
from disque_spark.audit.result import Result
from disque_spark.audit.rules import TOLD, Rules
from disque_spark.audit.run import audit
from disque_spark.audit.store import BusyError, Store
from disque_spark.audit.unread import AuditError, NoLogError
from disque_spark.failures import one_line, text_of
from disque_spark.files import Location, Place, location
from disque_spark.parquet import rows_of
from disque_spark.report import make_report, write_report
from disque_spark.restarts import Restarts, wait
from disque_spark.watch.notices import (
    MINUTE,
    Findings,
    News,
    Row,
    Standing,
    Told,
    View,
    missing_logs,
)
from disque_spark.watch.receivers import Receiver, ReceiverError
from disque_spark.watch.state import WatchState, alone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = 15.0  # s
TELL_SECONDS = 60.0  # s per look for one receiver; it gets the rest after the next look
_FIGURES = 24 * 60 * MINUTE  # how far back a new receiver gets figures of queues


class Observer:
    """Hears about the progress of a watch. This base class ignores it."""

    def looked(self, result: Result, began: float) -> None:
        """A look is done: everything written before it ``began`` (seconds since 1970) was read, and
        reported to the receivers that could be reached."""

    def failed(self, error: str, seconds: float) -> None:
        """A look failed; the next one is in ``seconds``."""

    def told(self, receiver: str, problem: str | None, left: int) -> None:
        """A notice was sent to a receiver. ``problem``: why it failed; ``left``: rows to send."""


@dataclass
class Watch:
    """A watch: its settings, and the loop.

    Attributes:
        paths: paths of the logs.
        output: directory for the tables of the audit.
        receivers: receivers of notices.
        rules: thresholds of the findings.
        kinds: kinds of findings to report.
        page: where to write the report after each look; None: nowhere.
        every: seconds from one look to the next.
        gone, keep_days: see ``audit``.
        observer: hears about the progress.
        clock: returns seconds since 1970.
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
    observer: Observer = field(default_factory=Observer)
    clock: Callable[[], float] = time
    _findings: dict[Location, Findings] = field(default_factory=dict, init=False, repr=False)
    _state: WatchState | None = field(default=None, init=False, repr=False)
    _heard: float | None = field(default=None, init=False, repr=False)
    _absent: set[str] = field(default_factory=set, init=False, repr=False)
    _shown: int = field(default=0, init=False, repr=False)

    def run(
        self,
        engine: "Engine | SparkSession",
        *,
        tell: Callable[[str], None],
        stop: Callable[[], object] = lambda: False,
        progress: Callable[[str], None] = lambda text: None,
        looks: int | None = None,
        restarts: Restarts | None = None,
    ) -> None:
        """Look until told to stop. Looks that fail are repeated, if that may help.

        Args:
            engine: see ``audit``.
            tell: called with a line about each problem.
            stop: whether to end; the current look is finished first.
            progress: called with what is being done.
            looks: number of looks; None: no limit.
            restarts: decides about repeats.

        Raises:
            AuditError, StoreError: the logs or the tables are invalid.
            OSError, or PySparkException, Py4JError if Spark does the work: it failed, and trying
                again does not help.
        """
        restarts = restarts or Restarts()
        engine = engine_of(engine)
        repeated: tuple[type[Exception], ...] = (*engine.failures, AuditError, OSError)
        with alone(location(self.output, engine.settings)):
            while not stop() and looks != 0:
                begun = monotonic()
                try:
                    self.look(engine, tell, progress)
                    restarts.progress()
                    pause = max(self.every - (monotonic() - begun), 0.0)
                    looks = None if looks is None else looks - 1
                except (NoLogError, BusyError) as nothing:
                    pause = self.every
                    self._failed(str(nothing), pause, tell)
                except repeated as failure:
                    line = one_line(failure)
                    again = None if engine.is_gone() else restarts.pause(text_of(failure), line)
                    if again is None:
                        raise
                    pause = again
                    self._failed(line, pause, tell)
                if looks != 0:
                    wait(pause, stop)

    def _failed(self, line: str, pause: float, tell: Callable[[str], None]) -> None:
        tell(f"{line}; looking again in {pause:.0f} s")
        self.observer.failed(line, pause)

    def look(
        self,
        engine: "Engine | SparkSession",
        tell: Callable[[str], None],
        progress: Callable[[str], None] = lambda text: None,
    ) -> Result:
        """Update the tables, and report what is new in them."""
        began, now = self.clock(), monotonic()
        engine = engine_of(engine)
        settings = engine.settings
        output = location(self.output, settings)
        result = audit(
            engine,
            self._present(settings, tell),
            output,
            self.rules,
            gone=self.gone,
            keep_days=self.keep_days,
            growing=True,
            quiet=0 if self._heard is None else int((now - self._heard) * 1000),
            progress=progress,
        )
        store = Store(output)
        if result.events or self._heard is None:
            self._heard = now - store.manifest.quiet / 1000
        end = store.manifest.last + int((now - self._heard) * 1000)
        self._tell(result, store, end, tell)
        if self.page is not None:
            self._write_page(store, location(self.page, settings), tell, progress)
        self.observer.looked(result, began)
        return result

    def _present(self, settings: Mapping[str, str], tell: Callable[[str], None]) -> list[str]:
        """The paths that exist: a node may be away, or start later."""
        present = [path for path in self.paths if location(path, settings).glob()]
        absent = {*self.paths} - {*present}
        for path in self.paths:
            if path in absent and path not in self._absent:
                tell(f"no event log at {path}; waiting for it")
            elif path in self._absent and path not in absent:
                tell(f"{path} exists now")
        self._absent = absent
        if not present:
            raise NoLogError(f"no event log at {', '.join(self.paths)}")
        return present

    def _write_page(
        self,
        store: Store,
        page: Location,
        tell: Callable[[str], None],
        progress: Callable[[str], None],
    ) -> None:
        """Write the page, unless it already shows this version of the audit."""
        version = store.manifest.version
        if version == self._shown and page.exists():
            return
        numbers = make_report(store.directory, progress=progress)
        try:
            write_report(numbers, page, None)
            self._shown = version
        except OSError as problem:
            tell(f"{problem}; will write the page after the next look")

    def _tell(self, result: Result, store: Store, end: int, tell: Callable[[str], None]) -> None:
        """Report to each receiver what is new to it. A receiver that cannot be reached gets it
        after the next look.

        Args:
            end: time up to which it is known what happened, ms.
        """
        if self._state is None:
            self._state = WatchState(store.directory)
        state = self._state
        end = min(end, int(self.clock() * 1000))  # a node's clock may be far ahead
        for one in self.receivers:
            state.told.setdefault(one.key, Told(until=max(end - _FIGURES, 0)))
        since = min((state.told[one.key].until for one in self.receivers), default=end)
        view = View(
            time=store.manifest.last,
            over=end,
            standing=Standing(
                self._found(store.paths(FINDINGS)),
                self.kinds,
                missing_logs(result.missing_nodes, result.missing_segments),
            ),
            minutes=list(_minutes(store, since)),
            missing_nodes=result.missing_nodes,
            missing_segments=sorted(result.missing_segments),
        )
        for receiver in self.receivers:
            self._tell_one(receiver, News(state.told[receiver.key], view), tell)
            with suppress(OSError):  # even if the disk is full, go on with the next receiver
                state.save()
        state.save()

    def _tell_one(self, receiver: Receiver, news: News, tell: Callable[[str], None]) -> None:
        until = monotonic() + TELL_SECONDS
        while (notice := news.notice()) is not None:
            problem = None
            try:
                receiver.tell(notice)
                news.was_told(notice)
            except ReceiverError as failure:
                problem = str(failure)
                tell(f"{problem}; will try again after the next look")
            self.observer.told(receiver.name, problem, news.left)
            if problem is not None or monotonic() > until:
                return

    def _found(self, files: Sequence[Location]) -> Iterable[Findings]:
        """The findings in ``files`` of the kinds to report. Files never change, so each is read
        only once."""
        known = self._findings
        self._findings = {
            file: known[file] if file in known else findings_in(file, self.kinds) for file in files
        }
        return self._findings.values()


def _minutes(store: Store, since: int) -> Iterator[Row]:
    first = day_of(since)
    for day, names in store.manifest.files(MINUTES).items():
        for name in names if day >= first else ():
            yield from minutes_in(store.place(MINUTES, day) / name, since)


def findings_in(file: Location, kinds: Sequence[str]) -> Findings:
    """The findings of ``kinds`` in a file."""
    table = pa.Table.from_batches(rows_of(file, FINDING_SCHEMA), FINDING_SCHEMA)
    chosen = table.filter(pc.is_in(table.column("kind"), pa.array(kinds)))
    return Findings(in_ms(chosen, "time"))


def minutes_in(file: Location, since: int) -> list[Row]:
    """The minutes in a file that begin at ``since`` (ms) or later."""
    table = pa.Table.from_batches(rows_of(file, MINUTE_SCHEMA), MINUTE_SCHEMA)
    start = pa.scalar(since * 1000, pa.int64()).cast(table.schema.field("minute").type)
    chosen = table.filter(pc.greater_equal(table.column("minute"), start))
    rows: list[Row] = in_ms(chosen, "minute").to_pylist()
    return rows


def in_ms(table: pa.Table, time: str) -> pa.Table:
    """The table with the column ``time`` in ms."""
    place = table.schema.get_field_index(time)
    return table.set_column(place, time, pc.divide(table.column(time).cast(pa.int64()), 1000))
