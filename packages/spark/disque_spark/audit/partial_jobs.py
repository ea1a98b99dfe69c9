"""Reads segments into partial jobs: the events of all nodes within some period, by job.

A task reads the pieces of all nodes from about the same time. So most jobs have all their events in
one task, which passes on only a ninth of the rows. Runs in Spark's workers, except for ``cut``, and
without a session.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit import trace as tr
from disque_spark.audit.clients import Clients, add_clients, busiest, clients_of
from disque_spark.audit.gaps import Stretch, event_of, joined, nodes_in, stretch_of
from disque_spark.audit.jobs import FACTS, NAMES, fold
from disque_spark.audit.lacks import NO_TIME
from disque_spark.audit.ticks import ticks_of
from disque_spark.files import Location
from disque_spark.segments import (
    LOOK,
    Piece,
    blocks,
    each,
    events_of,
    grouped,
    opened,
    pieces_of,
)
from disque_trio.eventlog.schema import (
    DROPPED,
    LOG_KINDS,
    POLICY,
    SEGMENT,
    STARTED,
    STOPPED,
    TICK_REASONS,
)

PIECE_BYTES = 4 << 20
SLICE_BYTES = 64 << 20  # size of the lines for a task, which holds about as much in memory
_COUNTERS = {"additional": "deliveries"}  # columns that have other names in lines
_LINES = pa.schema(
    [
        ("time", pa.int64()),
        *(
            (name, pa.string())
            for name in ("node", "event", "id", "queue", "reason", "client", "peer")
        ),
        *((name, pa.int32()) for name in ("nacks", "deliveries", "repl", "copies", "priority")),
        *(
            (name, pa.int64())
            for name in ("size", "retry", "ttl", "delay", "until", "ctime", "count", "tick")
        ),
        ("group", pa.string()),
        ("schedule", pa.string()),
    ]
)


class Seen(NamedTuple):
    """Counts of the events in some lines.

    Attributes:
        events: events.
        first, last: times of the first and last event, ms; 0 if there are none.
        dropped: events that were dropped, according to the log.
        unknown: events of kinds that this version does not know.
        strange: events of unknown nodes.
        damaged: lines that are not events; not included in ``events``.
    """

    events: int = 0
    first: int = 0
    last: int = 0
    dropped: int = 0
    unknown: int = 0
    strange: int = 0
    damaged: int = 0

    def plus(self, other: Self) -> "Seen":
        """The counts of both."""
        if not self.events or not other.events:
            some = self if self.events else other
            return some._replace(damaged=self.damaged + other.damaged)
        return Seen(
            self.events + other.events,
            min(self.first, other.first),
            max(self.last, other.last),
            self.dropped + other.dropped,
            self.unknown + other.unknown,
            self.strange + other.strange,
            self.damaged + other.damaged,
        )


@dataclass
class Notes:
    """What the lines of some pieces say about their segments, and about the cluster.

    Attributes:
        peers: ids of nodes that appear in events.
        clients: what clients did, see ``audit.clients``.
        stretches: path, start and summary of each piece.
        ticks: ticks of schedules, as rows of their table; not in ``text``.
    """

    peers: set[str] = field(default_factory=set)
    clients: Clients = field(default_factory=dict)
    stretches: list[tuple[str, int, Stretch]] = field(default_factory=list)
    ticks: list[pa.Table] = field(default_factory=list)

    def text(self) -> str:
        """One line of JSON, which tasks return."""
        clients = busiest(self.clients)
        return json.dumps([sorted(self.peers), self.stretches, clients])

    def add(self, texts: str) -> None:
        """Add the lines of other tasks."""
        for text in texts.splitlines():
            peers, stretches, clients = json.loads(text)
            add_clients(self.clients, clients)
            self.peers.update(peers)
            self.stretches += [(path, start, Stretch(*said)) for path, start, said in stretches]

    def segments(self) -> dict[str, list[Stretch]]:
        """The stretches of each segment in order, by path."""
        found: dict[str, list[Stretch]] = {}
        for path, _, stretch in sorted(self.stretches, key=lambda said: said[:2]):
            found.setdefault(path, []).append(stretch)
        return found


# ---- cutting ------------------------------------------------------------------------------------


def cut(files: Sequence[Location], size: int = SLICE_BYTES) -> list[list[Piece]]:
    """Cut segments into slices of about ``size`` bytes of lines, each of about the same time."""
    found = [piece for pieces in each(_pieces_with_times, files) for piece in pieces]
    found.sort()
    return grouped(((piece, cost) for _, cost, piece in found), size)


def _pieces_with_times(place: Location) -> list[tuple[int, int, Piece]]:
    """The pieces of a segment, each with the time of its first line and its size in bytes."""
    found: list[tuple[int, int, Piece]] = []
    time = 0
    with opened(place, LOOK) as file:
        for piece, cost in pieces_of(place, PIECE_BYTES):
            if piece.start:
                file.seek(piece.start)
                file.readline()  # the rest of a line
            said = event_of(file.readline()).get("time")
            time = said if isinstance(said, int) else time
            found.append((time, cost, piece))
    return found


# ---- reading ------------------------------------------------------------------------------------


def read(pieces: Iterable[Piece], nodes: Sequence[str]) -> tuple[pa.Table, Seen, Notes]:
    """The partial jobs in the lines of some pieces.

    Args:
        nodes: ids of nodes; traces have indexes into this list.
    """
    seen = Seen()
    notes = Notes()
    tables = []
    for piece in pieces:
        said = Stretch()
        for block in blocks(piece):
            lines, bad = events_of(block, _LINES)
            time = lines.column("time")
            good = pc.and_(pc.greater_equal(time, 0), pc.less_equal(time, tr.MAX_TIME))
            good = pc.and_(pc.fill_null(good, False), pc.is_valid(lines.column("node")))
            wrong = len(lines) - (pc.sum(good).as_py() or 0)  # JSON, but not events
            if wrong:
                lines = lines.filter(good)
            damaged = len(bad) + wrong
            seen = seen.plus(Seen(damaged=damaged))
            here = stretch_of(block.splitlines()) if damaged else Stretch()
            if len(lines):
                encoded = lines.column("event").combine_chunks().dictionary_encode()
                rows, counts = _rows(lines, encoded, nodes)
                seen = seen.plus(counts)
                tables.append(rows)
                notes.peers.update(pc.unique(lines.column("peer")).drop_null().to_pylist())
                notes.peers.update(nodes_in(block))
                add_clients(notes.clients, clients_of(lines))
                ticks = ticks_of(lines, encoded)
                notes.ticks += [] if ticks is None else [ticks]
                if not damaged:
                    here = _stretch(lines.column("time").to_numpy(), encoded, lines)
            said = joined(said, here._replace(lines=block.count(b"\n")))
        notes.stretches.append((piece.path, piece.start, said))
    if not tables:
        return fold(_ROWS.empty_table()), seen, notes
    return fold(pa.concat_tables(tables)), seen, notes


def _stretch(times: tr.Numbers, events: pa.DictionaryArray, lines: pa.Table) -> Stretch:
    """The summary of ``lines`` that are all events, whose times and kinds are these."""
    kinds = events.dictionary.to_pylist()
    codes = pc.fill_null(events.indices, -1).to_numpy()
    end = len(codes) - 1
    if SEGMENT in kinds:
        counts = codes != kinds.index(SEGMENT)
        end = int(np.flatnonzero(counts)[-1]) if counts.any() else -1
        times, codes = times[counts], codes[counts]
    if not len(times):
        return Stretch()
    dropped = kinds.index(DROPPED) if DROPPED in kinds else len(kinds)
    missing = [
        (int(times[at - 1]) if at else NO_TIME, int(times[at]))
        for at in np.flatnonzero(codes == dropped).tolist()
    ]
    started = kinds.index(STARTED) if STARTED in kinds else len(kinds)
    off = [
        (int(times[at - 1]), int(times[at]))
        for at in np.flatnonzero(codes == started).tolist()
        if at
    ]
    first, last = kinds[codes[0]] == STARTED, kinds[codes[-1]] == STOPPED
    reason = lines.column("reason")[end].as_py() or "" if last else ""
    return Stretch(int(times[0]), int(times[-1]), first, last, missing, 0, off, reason)


_ROWS = pa.schema(
    [
        *((name, pa.string()) for name in ("id", *NAMES)),
        *((name, pa.int64()) for name in FACTS),
        ("event", pa.int64()),
    ]
)


def _rows(
    lines: pa.Table, events: pa.DictionaryArray, nodes: Sequence[str]
) -> tuple[pa.Table, Seen]:
    """The rows for ``fold`` from some lines, and their counts."""
    times = lines.column("time").to_numpy()
    places, strange = _numbers(lines.column("node"), {name: i for i, name in enumerate(nodes)})
    reasons = lines.column("reason").combine_chunks().dictionary_encode()
    codes = _codes(events, reasons)
    by_nobody = (codes == tr.ACKED) & lines.column("client").is_null().to_numpy()
    codes[by_nobody] = tr.ACKED_BY_NOBODY
    about_log = np.zeros(len(lines), bool)
    for kind in (*LOG_KINDS, *TICK_REASONS, POLICY):  # only DROPPED has a count
        place = pc.index(events.dictionary, kind).as_py()
        if place >= 0:
            about_log |= pc.fill_null(events.indices, -1).to_numpy() == place
    missing = lines.column("count").filter(pa.array(about_log)) if about_log.any() else None
    seen = Seen(
        events=len(lines),
        first=int(times.min()),
        last=int(times.max()),
        dropped=0 if missing is None else pc.sum(missing).as_py() or 0,
        unknown=int(np.count_nonzero((codes < 0) & ~about_log)),
        strange=strange,
    )
    packed = (times << tr.TIME_SHIFT) | (places << tr.CODE_BITS) | codes
    columns = [lines.column(name) for name in ("id", *NAMES)]
    columns += [lines.column(_COUNTERS.get(name, name)).cast(pa.int64()) for name in FACTS]
    updated = pa.array(codes - codes % 10 == tr.UPDATED)
    if pc.any(updated).as_py():  # a line leaves out a priority of 0
        place = _ROWS.get_field_index("priority")
        columns[place] = pc.if_else(updated, pc.fill_null(columns[place], 0), columns[place])
    rows = pa.table([*columns, pa.array(packed)], schema=_ROWS)
    good = (codes >= 0) & (places >= 0)
    if lines.column("id").null_count or not good.all():
        rows = rows.filter(pc.and_(pa.array(good), pc.is_valid(rows.column("id"))))
    return rows, seen


def _numbers(names: pa.ChunkedArray, numbers: dict[str, int]) -> tuple[tr.Numbers, int]:
    """The number of each name (-1 if it has none), and how many have none."""
    encoded = names.combine_chunks().dictionary_encode()
    known = [numbers.get(name, -1) for name in encoded.dictionary.to_pylist()]
    table = np.array([*known, -1], np.int64)  # the last element is for null
    result = table[pc.fill_null(encoded.indices, len(known)).to_numpy()]
    return result, int(np.count_nonzero(result < 0))


def _codes(events: pa.DictionaryArray, reasons: pa.DictionaryArray) -> tr.Numbers:
    """The code of each event; -1 if it has none."""
    kinds = [*events.dictionary.to_pylist(), None]
    whys = [*reasons.dictionary.to_pylist(), ""]
    table = np.array(
        [[tr.CODES.get(f"{kind}:{why}", -1) for why in whys] for kind in kinds], np.int64
    )
    codes: tr.Numbers = table[
        pc.fill_null(events.indices, len(kinds) - 1).to_numpy(),
        pc.fill_null(reasons.indices, len(whys) - 1).to_numpy(),
    ]
    return codes
