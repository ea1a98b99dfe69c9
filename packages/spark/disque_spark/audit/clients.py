"""Counts what clients did: who got jobs, who acknowledged them, who handed them back.

The schedules of a cluster count as clients, too: they add jobs as ``cron:name``.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from disque_trio.eventlog.schema import ACKED, ADDED, DELIVERED, NACKED, WORKING

DID = (ADDED, DELIVERED, ACKED, NACKED, WORKING)
_NACKED = DID.index(NACKED)
MOST = 500  # clients to remember
SCHEDULE = "cron:"

# For each client, how often it did each of DID, and the times (ms) of the first and last of these.
Clients: TypeAlias = dict[str, list[int]]


def clients_of(lines: pa.Table) -> Clients:
    """What clients did, according to some lines of a log."""
    known = pc.and_(pc.is_valid(lines.column("client")), pc.is_in(lines.column("event"), _DID))
    mine = lines.select(["client", "event", "time"]).filter(pc.fill_null(known, False))
    groups = mine.group_by(["client", "event"], use_threads=False).aggregate(
        [("time", "count"), ("time", "min"), ("time", "max")]
    )
    found: Clients = {}
    for row in groups.to_pylist():
        counts = [0] * len(DID)
        counts[DID.index(row["event"])] = row["time_count"]
        add_clients(found, {row["client"]: [*counts, row["time_min"], row["time_max"]]})
    return found


_DID = pa.array(DID)


def add_clients(clients: Clients, more: Mapping[str, Sequence[int]]) -> None:
    """Add ``more`` to ``clients``."""
    for name, (*counts, first, last) in more.items():
        if name not in clients:
            clients[name] = [*counts, first, last]
            continue
        *before, since, until = clients[name]
        total = [one + other for one, other in zip(before, counts, strict=True)]
        clients[name] = [*total, min(since, first), max(until, last)]


def busiest(clients: Clients) -> Clients:
    """The clients to remember, if there are too many: those that handed back or did the most."""
    if len(clients) <= MOST:
        return clients

    def weight(name: str) -> tuple[bool, int, int]:
        counts = clients[name][: len(DID)]
        return name.startswith(SCHEDULE), counts[_NACKED], sum(counts)

    return {name: clients[name] for name in sorted(clients, key=weight, reverse=True)[:MOST]}
