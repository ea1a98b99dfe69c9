"""The ticks of schedules: which of them added a job, none, or more than one.

For each tick, nodes log that they added its job (``ticked``), or that no node did in time
(``missed``).
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit.classify import Finding
from disque_spark.audit.rules import SCHEDULE_DOUBLED, SCHEDULE_MISSED
from disque_trio.eventlog.schema import MISSED, TICKED

_TIME = pa.timestamp("ms", tz="UTC")
TICK_SCHEMA = pa.schema(
    [
        ("schedule", pa.string()),
        ("tick", _TIME),
        ("event", pa.string()),  # TICKED or MISSED
        ("job", pa.string()),
        ("queue", pa.string()),
        ("reason", pa.string()),
        ("until", _TIME),  # all ticks before this time were missed as well
        ("node", pa.string()),
        ("time", _TIME),
    ]
)
_LINE = ("schedule", "tick", "event", "id", "queue", "reason", "until", "node", "time")


class Tick(NamedTuple):
    """A row of the table; times in ms."""

    schedule: str
    tick: int
    event: str
    job: str | None
    queue: str | None
    reason: str | None
    until: int | None
    node: str
    time: int


def ticks_of(lines: pa.Table, events: pa.DictionaryArray) -> pa.Table | None:
    """The ticks in some lines, as rows of the table; None: there are none.

    Args:
        events: the column ``event`` of the lines.
    """
    kinds = pc.is_in(events.dictionary, pa.array([TICKED, MISSED]))
    if not pc.any(kinds).as_py():
        return None
    told = np.append(kinds.to_numpy(False), False)  # the last element is for null
    codes = pc.fill_null(events.indices, len(kinds)).to_numpy()
    mine = lines.select(_LINE).take(pa.array(np.flatnonzero(told[codes])))
    mine = mine.filter(
        pc.and_(pc.is_valid(mine.column("schedule")), pc.is_valid(mine.column("tick")))
    )
    return pa.table(
        [column.cast(field.type) for column, field in zip(mine.columns, TICK_SCHEMA, strict=True)],
        schema=TICK_SCHEMA,
    )


def in_order(ticks: pa.Table) -> pa.Table:
    """The rows of the table in the order of its files."""
    order = [(name, "ascending") for name in ("tick", "schedule", "time", "node")]
    return ticks.take(pc.sort_indices(ticks, order))


def suspects(ticks: pa.Table) -> pa.Table:
    """The rows that may lead to a finding: not those of a tick with one row, that says that its job
    was added."""
    counts = ticks.group_by(["schedule", "tick"], use_threads=False).aggregate(
        [("event", "count"), ("event", "max")]
    )
    fine = pc.and_(
        pc.equal(counts.column("event_count"), 1), pc.equal(counts.column("event_max"), TICKED)
    )
    rest = counts.filter(pc.invert(fine)).select(["schedule", "tick"])
    return ticks.join(rest, ["schedule", "tick"], join_type="left semi", use_threads=False)


def ticks_in(table: pa.Table) -> list[Tick]:
    """Rows of the table as ticks."""
    numbers = [
        field.with_type(pa.int64()) if field.type == _TIME else field for field in TICK_SCHEMA
    ]
    rows = table.cast(TICK_SCHEMA).cast(pa.schema(numbers))
    return [Tick(*row.values()) for row in rows.to_pylist()]


def tick_findings(ticks: pa.Table) -> list[Finding]:
    """The findings about ticks, rows of the table, that added no job, or more than one."""
    groups: dict[tuple[str, int], list[Tick]] = defaultdict(list)
    some = ticks_in(suspects(ticks))
    for tick in sorted(some, key=lambda tick: (tick.time, tick.node, tick.job or "")):
        groups[tick.schedule, tick.tick].append(tick)
    return [
        finding for _, group in sorted(groups.items()) if (finding := _found(group)) is not None
    ]


def _found(ticks: list[Tick]) -> Finding | None:
    """The finding about one tick, from its lines in the order of time; None: it is fine."""
    first, last = ticks[0], ticks[-1]
    added = [tick for tick in ticks if tick.event == TICKED]
    nodes = sorted({tick.node for tick in ticks})
    if not added:
        more = "" if first.until is None else ", nor for those that followed"
        detail = f"{first.schedule}: no job was added for this tick{more}"
        return Finding(SCHEDULE_MISSED, first.reason, None, first.queue, first.tick, nodes, detail)
    jobs = list(dict.fromkeys(tick.job for tick in added if tick.job is not None))
    if len(jobs) < 2:
        return None
    detail = f"{first.schedule}: {len(jobs)} jobs were added for one tick"
    return Finding(SCHEDULE_DOUBLED, None, jobs[-1], last.queue, first.tick, nodes, detail)
