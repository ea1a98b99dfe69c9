"""Judges the jobs of the table: writes a file of findings for each file of jobs.

Findings about jobs that are over depend only on the rules, the clocks, and the gaps near them. So
their files are judged again only if one of these has changed.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from uuid import uuid4

import pyarrow as pa

from disque_spark.audit.classify import Finding
from disque_spark.audit.clocks import Clocks, clocks_by_id, ranks_of
from disque_spark.audit.engine import Engine, Tasks
from disque_spark.audit.evidence import Logs
from disque_spark.audit.findings import (
    NEEDED,
    as_batch,
    clock_findings,
    judged,
    waits_of,
)
from disque_spark.audit.gaps import FOR_EVER, Gap, gaps_of, starts_of
from disque_spark.audit.manifest import FINDINGS, JOBS, Manifest, Part, day_of, least_rows
from disque_spark.audit.rules import WAITING, Rules
from disque_spark.audit.stages import ROWS
from disque_spark.audit.store import Store
from disque_spark.audit.waits import Waits, add_waits
from disque_spark.files import Location
from disque_spark.options import batch_of
from disque_spark.parquet import parquet_file, write_file
from disque_spark.segments import grouped

TASK_BYTES = 8 << 20  # size of the files of jobs for a task, if they are small
QUIET_MS = 60_000  # a shorter time without lines is not recorded
_SECOND = 1000
_JUDGED = pa.schema(
    [
        ("part", pa.int64()),
        *((name, pa.string()) for name in ("file", "counts", "waits")),
        ("due", pa.int64()),
    ]
)

_WAITING = pa.schema([("day", pa.string()), ("file", pa.string())])
WAITS = "waits"  # the kind of jobs that wait, and are no findings


def clocks(manifest: Manifest) -> Clocks:
    """The clocks of the nodes that have logs, from all jobs, including those of dropped days."""
    parts = [part for day in manifest.days.values() for part in day.jobs]
    rows = [*manifest.copied, *(row for part in parts for row in part.copied)]
    if not manifest.without_logs:
        rows += [*manifest.heard, *(row for part in parts for row in part.heard)]
    least = {(source, target): ms for source, target, ms in least_rows(rows)}
    return clocks_by_id(least, manifest.nodes)


def logs_of(manifest: Manifest, known: Clocks) -> Logs:
    """What is known about the logs of all nodes; nodes without logs come last."""
    nodes, missing = manifest.nodes, manifest.without_logs
    gaps = gaps_of(manifest.all_ends(), nodes, manifest.segments, manifest.past)
    gaps += [Gap(len(nodes) + place, 0, FOR_EVER) for place in range(len(missing))]
    ahead = [*known.ahead, *[0] * len(missing)]
    every = [*nodes, *missing]
    is_cut = manifest.keep_from > 0
    ends = manifest.all_ends()
    live = sorted({nodes.index(ends[name].node) for name in manifest.growing if name in ends})
    return Logs(
        every,
        ahead,
        manifest.end,
        gaps,
        known.doubt,
        ranks_of(every),
        is_cut,
        starts_of(ends, nodes),
        live,
    )


def dependence(part: Part, rules: Rules, logs: Logs) -> str:
    """A digest of everything, besides the jobs, that the findings of a file depend on: if it is the
    same, so are the findings. "": they depend on the time, and have to be judged every time."""
    highest, lowest = max(logs.offsets, default=0), min(logs.offsets, default=0)
    settled = _SECOND * rules.settled
    margin = 2 * settled + 3 * (highest - lowest) + _SECOND
    after = part.last + margin
    if part.open:
        longest = max(part.wait, rules.retries * part.retry, rules.patience, rules.waiting)
        if after + _SECOND * longest >= logs.end - margin:
            return ""  # time alone may turn some of them into findings
        after = FOR_EVER
    until = logs.end - settled - highest
    near, ends = [], []
    for gap in logs.gaps:
        if gap.end != FOR_EVER:
            if gap.end >= part.first - margin and gap.start <= after:
                near.append(gap)
        else:
            start = gap.start if gap.start <= part.last + margin else FOR_EVER
            silent = part.open and gap.start - logs.offsets[gap.node] < until
            ends.append((gap.node, start, silent))
    blind = sorted({gap.node for gap in logs.gaps})
    starts = [start for start in logs.starts if part.first - margin <= start[1] <= after]
    live = list(logs.live) if part.open else []
    said = [asdict(rules), logs.nodes, logs.offsets, logs.doubt, near, ends, blind, logs.cut]
    said += [starts, live]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def is_due(old: Manifest, quiet: int) -> bool:
    """Whether ``quiet`` ms without new lines may change the findings of a version, or have to be
    recorded because they will do so later."""
    parts = (part for day in old.days.values() for part in day.jobs)
    due = min((part.due for part in parts if not part.judged), default=FOR_EVER)
    longer = quiet - old.quiet
    return longer < 0 or due <= old.last + quiet or (due < FOR_EVER and longer >= QUIET_MS)


def write_waiting(
    engine: Engine, store: Store, manifest: Manifest, rules: Rules, stamp: str
) -> list[tuple[str, Location]]:
    """Write files with the jobs that wait in queues and are no findings, if they do so for long
    enough to be judged, as rows of the table ``findings`` of kind WAITS. Returns their days, and
    the files, which do not belong to the table."""
    logs = logs_of(manifest, clocks(manifest))
    parts = [
        (day, store.place(JOBS, day) / part.file)
        for day, files in manifest.days.items()
        for part in files.jobs
        if WAITING in part.waits
    ]
    apart = max(logs.offsets, default=0) - min(logs.offsets, default=0)
    settled = logs.end - _SECOND * rules.settled - apart

    def task(number: int) -> Iterator[pa.RecordBatch]:
        day, path = parts[number]
        found: list[Finding] = []
        with parquet_file(path) as file:
            for batch in file.iter_batches(ROWS, columns=list(NEEDED)):
                about = judged(batch, rules, logs)
                late = {one.job for one in about.found if one.kind == WAITING}
                found += [
                    one._replace(kind=WAITS)
                    for one in about.waits
                    if one.kind == WAITING and one.job not in late and (one.time or 0) <= settled
                ]
        yield batch_of([(day, write_findings(found, store.place(FINDINGS, day), stamp))], _WAITING)

    rows = engine.rows(Tasks(len(parts), task, _WAITING)).to_pylist()
    return [
        (row["day"], store.place(FINDINGS, row["day"]) / row["file"]) for row in rows if row["file"]
    ]


class Judge:
    """Judges the files of a version that have to be judged.

    Args:
        manifest: manifest of the version; its files get their findings.
        stamp: prefix for names of new files.

    Attributes:
        judged: number of files judged.
    """

    def __init__(
        self, engine: Engine, store: Store, manifest: Manifest, rules: Rules, stamp: str
    ) -> None:
        self._engine = engine
        self._store = store
        self._manifest = manifest
        self._rules = rules
        self._stamp = stamp
        self.judged = 0

    def judge(self) -> None:
        """Write the findings that may have changed."""
        known = clocks(self._manifest)
        logs = logs_of(self._manifest, known)
        wanted: list[tuple[str, Part]] = []
        for day, files in self._manifest.days.items():
            for part in files.jobs:
                depends = dependence(part, self._rules, logs)
                if not depends or depends != part.judged:
                    part.judged = depends
                    wanted.append((day, part))
        self.judged = len(wanted)
        self._judge(wanted, logs)
        self._write_clocks(clock_findings(known, self._rules, self._manifest.nodes))

    def _judge(self, wanted: Sequence[tuple[str, Part]], logs: Logs) -> None:
        if not wanted:
            return
        rules, stamp = self._rules, self._stamp
        sizes = ((number, part.size) for number, (_, part) in enumerate(wanted))
        groups = grouped(sizes, TASK_BYTES)
        paths = [
            (self._store.place(JOBS, day) / part.file, self._store.place(FINDINGS, day))
            for day, part in wanted
        ]

        def task(group: int) -> Iterator[pa.RecordBatch]:
            for number in groups[group]:
                jobs, place = paths[number]
                found: list[Finding] = []
                waits: Waits = {}
                due = FOR_EVER
                with parquet_file(jobs) as file:
                    for batch in file.iter_batches(ROWS, columns=list(NEEDED)):
                        more = judged(batch, rules, logs)
                        found += more.found
                        due = min(due, more.due)
                        add_waits(waits, waits_of(more.waits))
                counts = json.dumps(counts_of(found))
                name = write_findings(found, place, stamp)
                yield batch_of([(number, name, counts, json.dumps(waits), due)], _JUDGED)

        for row in self._engine.rows(Tasks(len(groups), task, _JUDGED)).to_pylist():
            day, part = wanted[row["part"]]
            if row["file"] or part.found:
                self._manifest.changed.append(f"{FINDINGS}/{day}")
            part.found, part.counts = row["file"], json.loads(row["counts"])
            part.waits = json.loads(row["waits"])
            part.due = row["due"]

    def _write_clocks(self, found: Sequence[Finding]) -> None:
        manifest = self._manifest
        day = day_of(manifest.last)
        manifest.clocks = write_findings(found, self._store.place(FINDINGS, day), self._stamp)
        manifest.clock_counts = counts_of(found)
        if manifest.clocks or self._store.manifest.clocks:
            old = day_of(self._store.manifest.last)
            manifest.changed += [f"{FINDINGS}/{day}", f"{FINDINGS}/{old}"]


def counts_of(found: Sequence[Finding]) -> dict[str, int]:
    """The number of findings of each ``kind reason``."""
    return dict(Counter(f"{finding.kind} {finding.reason or ''}" for finding in found))


def write_findings(found: Sequence[Finding], place: Location, stamp: str) -> str:
    """Write a file of the table ``findings``. Returns its name; "": there was nothing to write."""
    if not found:
        return ""
    ordered = sorted(found, key=lambda one: (one.kind, one.time or 0, one.job or ""))
    name = f"{stamp}-{uuid4().hex[:12]}.parquet"
    write_file(place / name, pa.Table.from_batches([as_batch(ordered)]))
    return name
