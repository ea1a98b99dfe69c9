"""From segments to partial jobs: what the events of a stretch of time, of all nodes, say of jobs.

A task reads the pieces of all nodes of about the same time. So most jobs have all their events in
one task, and a ninth of the rows goes on from there. This runs in Spark's workers, but for the
cutting, and knows no session.
"""

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_trio.spark import audit_trace as tr
from disque_trio.spark.audit_jobs import FACTS, fold
from disque_trio.spark.segments import PACKED, Piece, blocks, events_of

PIECE_BYTES = 4 << 20
SLICE_BYTES = 64 << 20  # of lines; a task holds about as much
PACKING = 10  # times that a compressed segment is smaller than its lines, about

# Events that are of no job; only ``dropped`` has a count.
_ABOUT_LOG = ("dropped", "started", "stopped")
_COUNTERS = {"additional": "deliveries"}  # called otherwise in a line
_LINES = pa.schema(
    [
        ("time", pa.int64()),
        *((name, pa.string()) for name in ("node", "event", "id", "queue", "reason")),
        *((name, pa.int32()) for name in ("nacks", "deliveries", "repl", "copies")),
        *((name, pa.int64()) for name in ("size", "retry", "ttl", "delay", "ctime", "count")),
    ]
)


class Seen(NamedTuple):
    """What was in some lines.

    Attributes:
        events: lines that are events. first, last: their times, ms; 0 if there are none.
        dropped: events that the log says are missing. unknown: kinds that this program does not
            know. strange: events of nodes that are not known. damaged: lines that are no events;
            they do not count with ``events``.
    """

    events: int = 0
    first: int = 0
    last: int = 0
    dropped: int = 0
    unknown: int = 0
    strange: int = 0
    damaged: int = 0

    def plus(self, other: Self) -> "Seen":
        """Of both."""
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


# ---- cutting ------------------------------------------------------------------------------------


def weight(path: Path) -> int:
    """About how many bytes the lines of a segment are."""
    return path.stat().st_size * (PACKING if path.name.endswith(PACKED) else 1)


def cut(files: Iterable[Path], size: int = SLICE_BYTES) -> list[list[Piece]]:
    """Slices of about ``size`` bytes of lines; what is in one is of about the same time."""
    found: list[tuple[int, int, Piece]] = []
    for path in files:
        length = path.stat().st_size
        packed = path.name.endswith(PACKED)
        time = 0
        with gzip.open(path) if packed else path.open("rb") as file:
            for start in range(0, length, length if packed else PIECE_BYTES):
                end = length if packed else min(start + PIECE_BYTES, length)
                if start:
                    file.seek(start)
                    file.readline()  # the rest of one
                said = _event(file.readline()).get("time")
                time = said if isinstance(said, int) else time
                cost = (end - start) * (PACKING if packed else 1)
                found.append((time, cost, Piece(str(path), start, end)))
    found.sort()
    slices: list[list[Piece]] = []
    room = 0
    for _, cost, piece in found:
        if cost > room or not slices:
            slices.append([])
            room = size
        slices[-1].append(piece)
        room -= cost
    return slices


def _event(line: bytes) -> dict[str, object]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


# ---- reading ------------------------------------------------------------------------------------


def read(pieces: Iterable[Piece], nodes: Sequence[str]) -> tuple[pa.Table, Seen]:
    """The partial jobs in the lines of some pieces.

    Args:
        nodes: ids; the place of one is its number in traces.
    """
    seen = Seen()
    tables = []
    for piece in pieces:
        for block in blocks(piece):
            lines, bad = events_of(block, _LINES)
            time = lines.column("time")
            good = pc.and_(pc.greater_equal(time, 0), pc.less_equal(time, tr.MAX_TIME))
            good = pc.and_(pc.fill_null(good, False), pc.is_valid(lines.column("node")))
            wrong = len(lines) - (pc.sum(good).as_py() or 0)  # JSON, but no events
            if wrong:
                lines = lines.filter(good)
            seen = seen.plus(Seen(damaged=len(bad) + wrong))
            if len(lines):
                rows, here = _rows(lines, nodes)
                seen = seen.plus(here)
                tables.append(rows)
    if not tables:
        return fold(_ROWS.empty_table()), seen
    return fold(pa.concat_tables(tables)), seen


_ROWS = pa.schema(
    [
        ("id", pa.string()),
        ("queue", pa.string()),
        *((name, pa.int64()) for name in FACTS),
        ("event", pa.int64()),
    ]
)


def _rows(lines: pa.Table, nodes: Sequence[str]) -> tuple[pa.Table, Seen]:
    """Lines as what jobs are made of."""
    times = lines.column("time").to_numpy()
    places, strange = _numbers(lines.column("node"), {name: i for i, name in enumerate(nodes)})
    events = lines.column("event").combine_chunks().dictionary_encode()
    reasons = lines.column("reason").combine_chunks().dictionary_encode()
    codes = _codes(events, reasons)
    about_log = np.zeros(len(lines), bool)
    for kind in _ABOUT_LOG:
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
    columns = [lines.column("id"), lines.column("queue")]
    columns += [lines.column(_COUNTERS.get(name, name)).cast(pa.int64()) for name in FACTS]
    rows = pa.table([*columns, pa.array(packed)], schema=_ROWS)
    good = (codes >= 0) & (places >= 0)
    if lines.column("id").null_count or not good.all():
        rows = rows.filter(pc.and_(pa.array(good), pc.is_valid(rows.column("id"))))
    return rows, seen


def _numbers(names: pa.ChunkedArray, numbers: dict[str, int]) -> tuple[tr.Numbers, int]:
    """The number of each name, and how many have none (they get -1)."""
    encoded = names.combine_chunks().dictionary_encode()
    known = [numbers.get(name, -1) for name in encoded.dictionary.to_pylist()]
    table = np.array([*known, -1], np.int64)  # the last one is for null
    result = table[pc.fill_null(encoded.indices, len(known)).to_numpy()]
    return result, int(np.count_nonzero(result < 0))


def _codes(events: pa.DictionaryArray, reasons: pa.DictionaryArray) -> tr.Numbers:
    """The code of each event; -1: it has none."""
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
