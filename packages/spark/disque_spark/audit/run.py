"""Runs the audit: turns the event logs of all nodes into tables of jobs, queues and findings.

A run reads the segments that no earlier run has read, and makes the next version of the tables
(``store``). Its work is proportional to the new events: files of jobs without new events stay, and
so do their findings, and the minutes in which nothing new happened. Large amounts of new events are
read in rounds. An interrupted run leaves no trace.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from disque_spark.append_only import find_files
from disque_spark.audit.addresses import addresses_near
from disque_spark.audit.clients import add_clients, busiest
from disque_spark.audit.engine import Engine, Step, Tasks
from disque_spark.audit.engines import engine_of
from disque_spark.audit.findings import FINDING_SCHEMA
from disque_spark.audit.gaps import Ends, ends_of, order_of, read_before
from disque_spark.audit.held import Tables, Target, are_all, write_held
from disque_spark.audit.jobs import JOB_SCHEMA
from disque_spark.audit.jobs_table import JobsTable
from disque_spark.audit.judging import Judge, is_due, write_waiting
from disque_spark.audit.lacks import Lack
from disque_spark.audit.manifest import FINDINGS, HELD_JOBS, JOBS, MINUTES, TICKS, Day
from disque_spark.audit.partial_jobs import Notes, Seen
from disque_spark.audit.queue_minutes import TABLE_SCHEMA as MINUTE_SCHEMA
from disque_spark.audit.result import Result
from disque_spark.audit.rules import Rules
from disque_spark.audit.stages import Written
from disque_spark.audit.store import Store
from disque_spark.audit.ticks import TICK_SCHEMA
from disque_spark.audit.ticks_table import TicksTable
from disque_spark.audit.trace import MAX_NODES
from disque_spark.audit.unread import AuditError, NoLogError, Segments
from disque_spark.files import Location, Place, location
from disque_spark.segments import (
    Others,
    SegmentError,
    find_segments,
    grouped,
    others_of,
    weight,
)
from disque_spark.terminal import Reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUND_BYTES = 16 << 30  # size of the lines of a round, which bounds what is shuffled between tasks
_SCHEMAS = {
    JOBS: JOB_SCHEMA,
    MINUTES: MINUTE_SCHEMA,
    FINDINGS: FINDING_SCHEMA,
    TICKS: TICK_SCHEMA,
}


def audit(  # noqa: PLR0913
    engine: "Engine | SparkSession",
    paths: Sequence[str],
    output: Place,
    rules: Rules | None = None,
    *,
    aofs: Sequence[str] = (),
    gone: Sequence[str] = (),
    keep_days: int | None = None,
    growing: bool = False,
    quiet: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> Result:
    """Bring the tables in ``output`` up to date with the logs at ``paths``.

    Args:
        engine: does the work: ``LocalEngine()``, or a Spark session.
        paths: files, or directories that are searched recursively; wildcards are allowed.
        output: directory for the tables; created if necessary.
        rules: thresholds of the findings; None: the defaults.
        aofs: append-only files of all nodes, or directories with them. Files given to earlier runs
            do not count.
        gone: ids of nodes that were removed for good, and whose logs and append-only files are
            lost. Those given to earlier runs still count.
        keep_days: drop days that ended more than this many days before the last event from the
            tables, for good; None: keep all.
        growing: also read segments that are still being written, up to their current end; a later
            run continues from there.
        quiet: ms since the last lines arrived, if the logs are growing. If there are no new lines
            now, jobs are judged as of this long after the last event.
        progress: called with what is being done.

    Raises:
        FileNotFoundError: there is nothing at one of ``paths`` or ``aofs``.
        StoreError: ``output`` is invalid, or another audit is writing to it.
        AuditError: a log is invalid.
    """
    rules = rules or Rules()
    engine = engine_of(engine)
    settings = engine.settings
    found = find_segments(paths, growing, settings)
    store = Store(location(output, settings))
    with store.locked():
        if not found and store.current is None:
            which = "segment" if growing else "closed segment"
            raise NoLogError(f"no {which} at {', '.join(paths)}")
        others = others_of(paths, settings)
        run = _Run(engine, store, found, rules, progress, find_files(aofs, settings), gone, others)
        if growing:
            run.wait(quiet)
        if store.current is None or run.is_needed(keep_days):
            run.make(keep_days)
        return run.result()


def explain_audit(spark: "SparkSession", paths: Sequence[str], output: Place) -> str:
    """Spark's plan for turning the new segments into jobs, the biggest part of the work."""
    from disque_spark.audit.spark_engine import SparkEngine

    engine = SparkEngine(spark)
    found = find_segments(paths, False, engine.settings)
    run = _Run(engine, Store(location(output, engine.settings)), found, Rules(), lambda text: None)
    return engine.explain(*run.plan()) if run.new else "no new segments"


def new_bytes(
    paths: Sequence[str], output: Place, settings: Mapping[str, str], growing: bool = False
) -> int:
    """The approximate size of the lines that an audit would read.

    Raises:
        FileNotFoundError, StoreError, AuditError: see ``audit``.
    """
    old = Store(location(output, settings)).manifest
    found = find_segments(paths, growing, settings)
    return sum(map(weight, Segments(found, old.segments, old.is_past, old.growing).new))


class _Run:
    """The run that makes one version."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        found: Sequence[Location],
        rules: Rules,
        progress: Callable[[str], None],
        aofs: Sequence[Location] = (),
        gone: Sequence[str] = (),
        others: Others | None = None,
    ) -> None:
        self._aofs = aofs
        self._engine = engine
        self._store = store
        self._rules = rules
        self._progress = progress
        self._events = 0
        self._held: int | None = None
        self._unlogged: int | None = None
        self.manifest = deepcopy(store.manifest)
        self.manifest.aofs = len(aofs)
        self.manifest.gone = sorted({*self.manifest.gone, *gone})
        self.manifest.open, self.manifest.unread = others or Others({}, [])
        self.manifest.grown = []
        self.manifest.changed = []
        self.manifest.parts = []
        self.manifest.quiet = 0
        old = store.manifest
        self._segments = Segments(found, old.segments, old.is_past, old.growing)
        self.manifest.segments |= self._segments.sizes
        self.manifest.growing = self._segments.growing
        self.new = sorted(self._segments.new, key=lambda path: (order_of(self._name(path)), path))
        self._stamp = store.stamp()
        self._ticks = TicksTable(engine, store, self.manifest, self._stamp)
        self._table = JobsTable(engine, store, self.manifest, self._stamp)

    def _name(self, path: Location) -> str:
        return self._segments.new[path].name

    def wait(self, quiet: int) -> None:
        """``quiet`` ms have passed without new lines, and never less than before if none come."""
        self.manifest.quiet = max(quiet, self._store.manifest.quiet)

    def is_needed(self, keep_days: int | None) -> bool:
        """Whether there is anything new, or other settings are asked for."""
        old, manifest = self._store.manifest, self.manifest
        if self.new or old.aofs or self._aofs or old.parts or old.gone != manifest.gone:
            return True
        if old.settings != self._rules.settings or deepcopy(old).drop_days(keep_days):
            return True
        said = [(of.unread, sorted(of.open)) for of in (old, manifest)]
        return said[0] != said[1] or is_due(old, manifest.quiet)

    def make(self, keep_days: int | None) -> None:
        """Write the version, and make it the current one."""
        manifest, old = self.manifest, self._store.manifest
        manifest.settings = self._rules.settings
        self._learn_nodes()
        older = self._store.old_jobs
        if old.parts:
            manifest.jobs = 0
        begun = 0
        for segments in rounds(self.new):
            size = sum(map(weight, segments))
            more = f", {begun} of {len(self.new)} done" if begun else ""
            text = f"events: {len(segments)} segments, {size >> 20} MB{more}"
            self._progress(Reading(text, size))
            begun += len(segments)
            new = self._written(segments, size) if size else Written()
            self._note(new.seen, new.notes)
            self._ticks.add(new.ticks)
            if new.parts or older:
                self._progress(f"jobs and queues: {manifest.jobs}")
                self._table.add(new, older)
                self._table.put_together(new.seen.first)
                older = []
        if older:
            self._table.add(Written(), older)
        if self._events:
            manifest.quiet = 0
        manifest.drop_days(keep_days)
        self._progress("findings")
        judge = Judge(self._engine, self._store, manifest, self._rules, self._stamp)
        judge.judge()
        if self._aofs or old.aofs:
            self._hold()
        self._store.commit(manifest, _SCHEMAS)

    def result(self) -> Result:
        """The result of the run."""
        path = self._store.current
        assert path is not None
        manifest = self._store.manifest
        reasons: Counter[tuple[str, str | None]] = Counter()
        counts: Counter[str] = Counter()
        for key, count in manifest.finding_counts.items():
            kind, _, reason = key.partition(" ")
            reasons[kind, reason or None] += count
            counts[kind] += count
        return Result(
            path=path,
            segments=len(self.new),
            events=self._events,
            jobs=manifest.jobs,
            dropped=manifest.dropped,
            unknown=manifest.unknown,
            damaged=manifest.damaged,
            findings=counts,
            reasons=reasons,
            lacks=self._lacks(),
            nodes=len(manifest.nodes),
            first=manifest.first,
            copies=self._segments.copies,
            last=manifest.last,
            held=self._held,
            unlogged=self._unlogged,
            waits=manifest.waits,
            settings=manifest.settings,
        )

    def _lacks(self) -> list[Lack]:
        """What the logs lack, as seen by this run, even if it made no version."""
        seen = self.manifest
        now = time.time_ns() // 1_000_000
        version = replace(self._store.manifest, open=seen.open, grown=seen.grown)
        return version.lacks(now)

    # ---- jobs ---------------------------------------------------------------------------------

    def _written(self, segments: Sequence[Location], size: int) -> Written:
        try:
            return self._table.written(segments, size)
        except SegmentError as problem:
            raise AuditError(str(problem)) from None

    def _note(self, seen: Seen, notes: Notes) -> None:
        if seen.strange:
            raise AuditError("a segment has events of a node other than that of its first line")
        manifest = self.manifest
        manifest.peers = sorted(notes.peers.union(manifest.peers))
        add_clients(notes.clients, manifest.clients)
        manifest.clients = busiest(notes.clients)
        manifest.addresses |= addresses_near(self.new)
        read = {said[0] for said in self._store.manifest.ends.values()}
        grown: set[str] = set()
        new = {str(place): (place.start, *one) for place, one in self._segments.new.items()}
        for path, stretches in notes.segments().items():
            start, name, head = new[path]
            if head is None:
                continue
            if head.node in read:
                grown.add(head.node)
            if start:
                before = manifest.ends.get(name)
                stretches.insert(0, read_before(head, Ends(*before) if before else None))
            ends = ends_of(head, stretches)
            if ends is not None:
                manifest.ends[name] = list(ends)
        manifest.grown = sorted(grown.union(manifest.grown))
        self._events += seen.events
        manifest.events += seen.events
        manifest.dropped += seen.dropped
        manifest.unknown += seen.unknown
        manifest.damaged += seen.damaged
        if seen.events:
            manifest.first = min(manifest.first or seen.first, seen.first)
            manifest.last = max(manifest.last, seen.last)

    def plan(self) -> tuple[Tasks, Step]:
        """The biggest part of the work."""
        self._learn_nodes()
        return self._table.plan(self.new, sum(map(weight, self.new)))

    def _learn_nodes(self) -> None:
        """Learn the nodes from the first lines of segments; each is written by one node."""
        for path in sorted(self.new):
            name, head = self._segments.new[path]
            if head is None and name in self._segments.sizes:
                self.manifest.empty = sorted({*self.manifest.empty, name})
            if head is not None and head.node not in self.manifest.nodes:
                self.manifest.nodes.append(head.node)
        if len(self.manifest.nodes) > MAX_NODES:
            raise AuditError(f"the logs have more than {MAX_NODES} nodes")

    # ---- append-only files --------------------------------------------------------------------

    def _hold(self) -> None:
        """Write the jobs in the append-only files, and the findings as changed by them."""
        manifest, store = self.manifest, self._store
        manifest.changed += [f"{FINDINGS}/{day}" for day in manifest.days]
        manifest.changed.append(f"{HELD_JOBS}/")
        manifest.held, manifest.shown_counts = [], {}
        for files in manifest.days.values():
            files.shown = []
        if not self._aofs:
            return
        self._progress(f"{len(self._aofs)} append-only files")
        found = [
            (day, store.place(FINDINGS, day) / name)
            for day, names in manifest.found_files().items()
            for name in names
        ]
        waiting = write_waiting(self._engine, store, manifest, self._rules, self._stamp)
        tables = Tables(store.paths(JOBS, manifest), [*found, *waiting], manifest.jobs)
        target = Target(store.place(HELD_JOBS), store.place(FINDINGS), self._stamp)
        all_nodes = are_all(self._aofs, manifest.holders)
        new = write_held(self._engine, self._aofs, tables, target, manifest.last, all_nodes)
        manifest.held = new.files
        self._held, self._unlogged = new.jobs, new.unlogged
        for day, names in new.found.items():
            manifest.days.setdefault(day, Day()).shown += names
        manifest.shown_counts = dict(new.counts)
        for _, path in waiting:
            path.delete()


def rounds(segments: Sequence[Location]) -> list[list[Location]]:
    """The segments in groups for rounds, in order; at least one group."""
    return grouped(((path, weight(path)) for path in segments), ROUND_BYTES) or [[]]
