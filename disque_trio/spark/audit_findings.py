"""What is wrong with jobs: the table ``findings``, and the rules that lead to it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from disque_trio.spark import audit_trace as tr
from disque_trio.spark.audit_clocks import Skew
from disque_trio.spark.audit_trace import Step

NEVER_DELIVERED = "never-delivered"
AFTER_ACK = "delivered-after-ack"
TWICE = "delivered-twice"
EXPIRED = "expired-undelivered"
POISON = "poison"
CLOCK_SKEW = "clock-skew"
KINDS = (NEVER_DELIVERED, AFTER_ACK, TWICE, EXPIRED, POISON, CLOCK_SKEW)

FINDING_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("job", pa.string()),
        ("queue", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("nodes", pa.list_(pa.string())),
        ("detail", pa.string()),
    ]
)
_NEEDED = ("id", "queue", "retry", "ttl", "nacks", "nacks_said", "deliveries", "ended", "trace")


@dataclass(frozen=True)
class Rules:
    """From where on something is a finding.

    Attributes:
        settled: seconds before the end of the log after which a job is not young any more.
        poison: more NACKs than this.
        skew: ms that the clocks of two nodes may be apart.
        tolerance: ms by which times of two nodes have to differ to say what was first.
    """

    settled: int = 60
    poison: int = 3
    skew: int = 500
    tolerance: int = 100


class Finding(NamedTuple):
    """A row of the table; ``time`` in ms by the clock of the node."""

    kind: str
    reason: str | None
    job: str | None
    queue: str | None
    time: int | None
    nodes: list[str]
    detail: str


def findings(
    jobs: DataFrame, rules: Rules, nodes: Sequence[str], offsets: Sequence[int], end: int
) -> DataFrame:
    """What is wrong with jobs.

    Args:
        offsets: what each node's clock is ahead, ms.
        end: time of the last event of the log, ms.
    """
    spread = max(offsets, default=0) - min(offsets, default=0)
    due = f.unix_millis(f.coalesce("confirmed_at", "added_at", "first_event")) + 1000 * (
        f.coalesce("delay", f.lit(0)) + rules.settled
    )
    confirmed = (
        f.col("confirmed_at").isNotNull()
        | f.col("first_queued").isNotNull()
        | (f.col("added_at").isNotNull() & (f.col("repl") <= 1))
    )
    lost = (
        confirmed
        & (f.col("deliveries") == 0)
        & (f.col("ended").isNull() | (f.col("ended") == "evicted"))
        & (due < end)
    )
    late = f.unix_millis("last_delivered") + spread + rules.tolerance > f.unix_millis("acked_at")
    # With clocks that are right only times of one ms are in doubt.
    suspect = (f.col("deliveries") > 1) | (
        late & (f.col("last_delivered") > f.col("acked_at"))
        if not spread
        else late & f.col("last_delivered").isNotNull()
    )
    expired = confirmed & (f.col("ended") == "expired") & (f.col("deliveries") == 0)
    poison = f.greatest("nacks_said", "nacks") > rules.poison
    rows = jobs.where(lost | suspect | expired | poison).select(*_NEEDED, lost.alias("lost"))
    names = list(nodes)
    ahead = list(offsets)

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [
                finding
                for row in batch.to_pylist()
                for finding in _Judge(row, rules, names, ahead).findings()
            ]
            yield as_batch(found)

    return rows.mapInArrow(judge, from_arrow_schema(FINDING_SCHEMA))


def as_batch(found: Sequence[Finding]) -> pa.RecordBatch:
    """Findings as rows."""
    columns = list(zip(*found, strict=True)) or [()] * len(FINDING_SCHEMA)
    arrays = [
        pa.array([None if ms is None else ms * 1000 for ms in column], pa.int64()).cast(kind.type)
        if kind.name == "time"
        else pa.array(column, kind.type)
        for column, kind in zip(columns, FINDING_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=FINDING_SCHEMA)


def skew_findings(skews: Iterable[Skew], rules: Rules, nodes: Sequence[str]) -> list[Finding]:
    """The pairs of nodes whose clocks are too far apart."""
    found = []
    for skew in skews:
        if abs(skew.ms) < rules.skew:
            continue
        detail = (
            f"the clock of the second is {abs(skew.ms)} ms {'ahead' if skew.ms > 0 else 'behind'}"
        )
        if not skew.exact:
            detail += ", give or take the time of a packet"
        pair = [nodes[skew.source], nodes[skew.target]]
        found.append(Finding(CLOCK_SKEW, None, None, None, None, pair, detail))
    return found


class _Judge:
    """What is wrong with one job."""

    def __init__(
        self, row: dict[str, object], rules: Rules, nodes: list[str], offsets: list[int]
    ) -> None:
        trace = row["trace"]
        assert isinstance(trace, list)
        self._row = row
        self._rules = rules
        self._nodes = nodes
        self._offsets = offsets
        self._steps = unpacked = tr.unpack(trace, offsets)
        self._delivered = [step for step in unpacked if step.kind == tr.DELIVERED]

    def findings(self) -> Iterator[Finding]:
        row = self._row
        if row["lost"]:
            yield self._lost()
        if row["ended"] == "expired" and not self._delivered:
            step = next(step for step in self._steps if step.kind == tr.EXPIRED)
            yield self._finding(EXPIRED, step, f"after {row['ttl'] or '?'} s")
        nacks = max(_int(row["nacks_said"]), _int(row["nacks"]))
        if nacks > self._rules.poison:
            said = [step for step in self._steps if step.kind == tr.NACKED]
            yield self._finding(POISON, (said or self._steps)[-1], f"{nacks} times said NACK")
        yield from self._deliveries()

    def _lost(self) -> Finding:
        last = self._steps[-1]
        name = tr.NAMES[last.code].strip(":").replace(":", ", ")
        detail = f"last heard of: {name}"
        if self._row["ended"] == "evicted":
            detail = "evicted, since memory was short"
        elif self._row["retry"] == 0:
            detail += "; RETRY 0, at most once"
        return self._finding(NEVER_DELIVERED, last, detail)

    def _deliveries(self) -> Iterator[Finding]:
        acks = [step for step in self._steps if step.code == tr.ACKED]
        acks = acks or [step for step in self._steps if step.code == tr.ACKED_PEER]
        after = [step for step in self._delivered if acks and self._is_after(step, acks[0])]
        if after:
            gap = after[0].time - acks[0].time
            yield self._finding(AFTER_ACK, after[0], f"{gap} ms after it was acknowledged")
        reasons: dict[str, list[Step]] = {}
        for step, reason in self._again():
            if step not in after:
                reasons.setdefault(reason, []).append(step)
        for reason, steps in reasons.items():
            times = "once more" if len(steps) == 1 else f"{len(steps)} times more"
            yield self._finding(TWICE, steps[0], times, reason)

    def _is_after(self, step: Step, ack: Step) -> bool:
        if step.node == ack.node:
            return step.time > ack.time
        return step.time > ack.time + self._rules.tolerance

    def _again(self) -> Iterator[tuple[Step, str]]:
        """The deliveries but for the first one, and why each happened."""
        queued: dict[int, list[Step]] = {}
        entries: list[Step] = []
        before: Step | None = None
        for step in self._steps:
            if step.kind == tr.QUEUED:
                queued.setdefault(step.node, []).append(step)
                entries.append(step)
            elif step.kind == tr.DELIVERED:
                waiting = queued.get(step.node)
                entry = waiting.pop(0) if waiting else None
                if before is not None:
                    yield step, self._why(entry, before, entries)
                before = step
            elif step.kind in tr.LEAVES:
                queued.pop(step.node, None)

    def _why(self, entry: Step | None, before: Step, entries: list[Step]) -> str:
        """Why a job is delivered again that came into the queue by ``entry``, after it was
        delivered ``before``."""
        if entry is None:
            return "restart"  # nothing put it into the queue again but the node's own files
        if entry.node != before.node and entry.time < before.time:
            return "partition"  # it was in two queues
        if entry.reason == "retry":
            # A node that hears of the other's queueing waits for a whole retry time.
            soon = entry.time - 500 * _int(self._row["retry"])
            for other in entries:
                if other.node != entry.node and soon < other.time < entry.time:
                    return "partition"
        if entry.reason == "import":
            # It was brought here: what counts is why it was queued where it came from.
            origins = [other for other in entries if before.time <= other.time < entry.time]
            if origins:
                return origins[-1].reason
        return entry.reason or "unknown"

    def _finding(self, kind: str, step: Step, detail: str, reason: str | None = None) -> Finding:
        seen = sorted({step.node for step in self._steps if step.kind in (tr.QUEUED, tr.DELIVERED)})
        return Finding(
            kind,
            reason,
            str(self._row["id"]),
            None if self._row["queue"] is None else str(self._row["queue"]),
            step.time + self._offsets[step.node],
            [self._nodes[node] for node in seen],
            detail,
        )


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def names_of_counts(counts: Counter[str]) -> str:
    """As ``3 poison, 1 clock-skew``."""
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]) or "none"
