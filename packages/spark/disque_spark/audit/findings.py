"""Computes the table ``findings``, many jobs at a time."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit import trace as tr
from disque_spark.audit.classify import Classifier, Finding
from disque_spark.audit.clocks import Clocks
from disque_spark.audit.evidence import Logs
from disque_spark.audit.gaps import FOR_EVER
from disque_spark.audit.rules import CLOCK_SKEW, Rules
from disque_spark.audit.trace import Numbers
from disque_spark.audit.waits import OTHERS, UNSURE, Waits, add_waits
from disque_spark.defaults import LEASE_QUEUES
from disque_spark.options import batch_of
from disque_trio.eventlog import schema

FINDING_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("job", pa.string()),
        ("queue", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("nodes", pa.list_(pa.string())),
        ("detail", pa.string()),
        ("would_decide", pa.list_(pa.string())),
    ]
)
_NOT_DONE = pa.array([schema.EXPIRED, schema.EVICTED])

NEEDED = (
    "id",
    "queue",
    "copies",
    "retry",
    "ttl",
    "delay",
    "until",
    "nacks",
    "nacks_said",
    "deliveries",
    "ended",
    "last_delivered",
    "acked_at",
    "trace",
)


class Judged(NamedTuple):
    """What is known about some jobs.

    Attributes:
        found: their findings.
        due: end of the logs (ms) from which on time alone may change them; FOR_EVER: it cannot.
        waits: the jobs that are in queues at the end, whether these are findings or not.
    """

    found: list[Finding]
    due: int
    waits: list[Finding]


def judged(batch: pa.RecordBatch, rules: Rules, logs: Logs) -> Judged:
    """Judge the jobs of ``batch`` (rows of the table ``jobs`` with the columns NEEDED). Jobs that
    are leases are ignored: nobody is meant to take them."""
    work = pc.invert(pc.starts_with(batch.column("queue"), LEASE_QUEUES))
    batch = batch.filter(pc.fill_null(work, True))
    if not batch.num_rows:
        return Judged([], FOR_EVER, [])
    column = batch.column
    delivered = column("deliveries")
    never = pc.equal(delivered, 0)
    ended = column("ended")
    open_end = pc.or_kleene(pc.is_null(ended), pc.is_in(ended, _NOT_DONE))
    late = pa.array(_late(column("trace"), logs.offsets))
    dead = pc.equal(ended, schema.DEAD)
    poison = pc.greater(pc.max_element_wise(column("nacks_said"), column("nacks")), rules.poison)
    suspect = pc.or_kleene(
        pc.or_(pc.or_(never, open_end), pc.greater(delivered, 1)),
        pc.or_kleene(pc.or_kleene(late, dead), poison),
    )
    known = [name for name in NEEDED if name in batch.schema.names]  # older versions had fewer
    suspects = batch.select(known).filter(pc.fill_null(suspect, False))
    found: list[Finding] = []
    waits: list[Finding] = []
    due = FOR_EVER
    for row in suspects.to_pylist():
        classifier = Classifier(row, rules, logs)
        found += classifier.findings()
        due = min(due, classifier.due)
        if classifier.waits is not None:
            waits.append(classifier.waits)
    return Judged(found, due, waits)


def waits_of(waiting: Iterable[Finding]) -> Waits:
    """How many jobs wait, by kind and queue, and since when."""
    waits: Waits = {}
    for one in waiting:
        said = {one.queue or OTHERS: (1, one.time or 0)}
        add_waits(waits, {one.kind: said})
        if one.reason is not None:
            add_waits(waits, {UNSURE: said})
    return waits


def _late(traces: pa.Array, offsets: Sequence[int]) -> np.ndarray:
    """For each job, whether a delivery may have been after its acknowledgement or other end."""
    events, _, starts = tr.flat(traces)
    times = tr.times(events) - np.array(offsets, np.int64)[tr.nodes(events)]
    codes = tr.codes(events)

    def first(any_of: Sequence[int]) -> Numbers:
        return np.minimum.reduceat(np.where(np.isin(codes, any_of), times, FOR_EVER), starts)

    acked = first(tr.DONE_HERE)
    acked = np.where(acked == FOR_EVER, first(tr.DONE_BY_PEER), acked)
    late: np.ndarray = acked < np.maximum.reduceat(
        np.where(codes == tr.DELIVERED, times, 0), starts
    )
    return late


def as_batch(found: Sequence[Finding]) -> pa.RecordBatch:
    """Findings as rows of the table."""
    rows = [row._replace(time=None if row.time is None else row.time * 1000) for row in found]
    return batch_of(rows, FINDING_SCHEMA)


def clock_findings(clocks: Clocks, rules: Rules, nodes: Sequence[str]) -> list[Finding]:
    """The pairs of nodes whose clocks are too far apart, or were set."""
    found = []
    moved = {frozenset(pair) for pair in clocks.moved}
    by_id = sorted(range(len(nodes)), key=nodes.__getitem__)
    for source, target in combinations(by_id, 2):
        pair = [nodes[source], nodes[target]]
        doubt = clocks.doubt[source][target]
        if {source, target} in moved and 2 * doubt >= rules.skew:
            detail = f"one of the clocks was set by {2 * doubt} ms or more"
            found.append(Finding(CLOCK_SKEW, "set", None, None, None, pair, detail))
        elif abs(clocks.apart(source, target)) >= rules.skew:
            ms = clocks.ahead[target] - clocks.ahead[source]
            detail = f"the clock of the second is {abs(ms)} ms "
            detail += "ahead" if ms > 0 else "behind"
            detail += f", give or take {doubt} ms"
            found.append(Finding(CLOCK_SKEW, None, None, None, None, pair, detail))
    return found
