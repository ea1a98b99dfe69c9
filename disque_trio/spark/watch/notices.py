"""What is new in an audit since it was told last: findings, logs that are missing, and figures of
queues. It knows tables, no files and no receivers.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from disque_trio.spark.audit.rules import LOG_MISSING

Row = dict[str, Any]  # of a table; times in ms

MINUTE = 60_000  # ms
MOST_ROWS = 1000  # of a kind in a notice
MOST_TOLD = 100_000  # findings that are remembered; others count only
NODE, SEGMENT = "node", "segment"  # why a finding is LOG_MISSING
_SHORT = ("kind", "reason", "job", "queue")


class Findings:
    """The findings in a table, which may be many: rows are made when they are asked for.

    Args:
        table: with the columns of ``findings``, time in ms.

    Attributes:
        keys: of the rows, see ``key_of``. kinds, times: of these; a time that is not known is 0.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table.combine_chunks()
        names = ("kind", "reason", "job", "nodes")
        columns = [table.column(name).to_pylist() for name in names]
        self.keys = [key_of(*row) for row in zip(*columns, strict=True)]
        self.kinds: list[str] = columns[0]
        self.times: list[int] = pc.fill_null(table.column("time"), 0).to_pylist()

    def row(self, place: int) -> Row:
        """The finding at this place."""
        rows: list[Row] = self._table.slice(place, 1).to_pylist()
        return rows[0]


def key_of(
    kind: str, reason: str | None, job: str | None, nodes: Collection[str] | None = ()
) -> str:
    """What makes a finding the same in the next audit: not its time, nor the words about it."""
    what = [kind, reason, job, [] if job is not None else sorted(nodes or ())]
    return hashlib.blake2b(json.dumps(what).encode(), digest_size=10).hexdigest()


def missing_logs(nodes: Iterable[str], segments: Mapping[str, int]) -> list[Row]:
    """Logs that are named in others and are not here, as findings: of nodes, and segments with how
    many of their lines are missing (-1: nobody says)."""
    text = "node {} is named in the logs and has no log here"
    rows = [_missing(NODE, [node], text.format(node)) for node in nodes]
    for name, lines in sorted(segments.items()):
        what = f"{lines} lines of segment {name} are" if lines >= 0 else f"segment {name} is"
        rows.append(_missing(SEGMENT, [name], f"{what} missing"))
    return rows


def _missing(reason: str, names: list[str], detail: str) -> Row:
    row: Row = {"kind": LOG_MISSING, "reason": reason, "job": None, "queue": None, "time": None}
    return row | {"nodes": names, "detail": detail, "would_decide": names}


class Standing:
    """All findings that are to be told and stand now.

    Args:
        tables: of findings. missing: see ``missing_logs``.
        kinds: that are told, LOG_MISSING apart.

    Attributes:
        kinds: likewise. counts: how many findings there are of each.
    """

    def __init__(
        self, tables: Iterable[Findings], kinds: Collection[str], missing: Sequence[Row] = ()
    ) -> None:
        self.kinds = {*kinds, LOG_MISSING}
        self.counts: Counter[str] = Counter()
        self._places: dict[str, tuple[Findings, int]] = {}
        self._missing = {
            key_of(row["kind"], row["reason"], None, row["nodes"]): row for row in missing
        }
        if missing:
            self.counts[LOG_MISSING] = len(missing)
        for table in tables:
            self.counts.update(table.kinds)
            for place, key in enumerate(table.keys):
                self._places[key] = table, place

    def __contains__(self, key: object) -> bool:
        return key in self._places or key in self._missing

    def row(self, key: str) -> Row:
        """A finding."""
        if key in self._missing:
            return self._missing[key]
        table, place = self._places[key]
        return table.row(place)

    def besides(self, known: Collection[str]) -> list[str]:
        """The keys of those that are not known: missing logs, and then the oldest first."""
        new = [key for key in self._places if key not in known]
        times = {key: table.times[place] for key in new for table, place in [self._places[key]]}
        new.sort(key=times.__getitem__)
        return [*(key for key in self._missing if key not in known), *new]


@dataclass
class Told:
    """What a receiver knows.

    Attributes:
        findings: those that stand, by their keys, in short.
        until: the figures of all minutes before this one were told, ms.
        notices: that it got.
    """

    findings: dict[str, Row] = field(default_factory=dict)
    until: int = 0
    notices: int = 0

    def as_json(self) -> list[object]:
        """As it is kept between two runs."""
        return [self.findings, self.until, self.notices]

    @classmethod
    def of(cls, kept: object) -> Self:
        """What was kept. Raises ValueError: it is not that."""
        match kept:
            case [dict(findings), int(until), int(notices)]:
                return cls(findings, until, notices)
        raise ValueError("not what a watch keeps")


@dataclass(frozen=True)
class Notice:
    """What a receiver is told at once.

    Attributes:
        number: of the notices of this receiver, from 1 on.
        time: of the last event that was looked at, ms.
        found: findings that are new. gone: findings that were told and do not stand any more, in
            short: their time was too early, or a log said later what had happened.
        queues: rows of ``queue_minutes``, of minutes that are over.
        more: of each of these how many rows the next notices will have.
        standing: how many findings there are now, by kind.
        missing_nodes, missing_segments: as in the result of an audit.
    """

    number: int
    time: int
    found: Sequence[Row]
    gone: Sequence[Row]
    queues: Sequence[Row]
    more: Mapping[str, int]
    standing: Mapping[str, int]
    missing_nodes: Sequence[str] = ()
    missing_segments: Sequence[str] = ()

    def document(self) -> Row:
        """As JSON has it. ``id`` is that of its contents: who gets it twice can tell."""
        contents: Row = {
            "number": self.number,
            "time": self.time,
            "found": list(self.found),
            "gone": list(self.gone),
            "queues": list(self.queues),
            "more": dict(self.more),
            "standing": dict(self.standing),
            "missing_nodes": list(self.missing_nodes),
            "missing_segments": list(self.missing_segments),
        }
        packed = json.dumps(contents, sort_keys=True).encode()
        return {"id": hashlib.sha256(packed).hexdigest()[:32], **contents}


class View(NamedTuple):
    """What a look has seen.

    Attributes:
        time: of the last event, ms.
        over: the minutes before this one are over, ms.
        standing: the findings. minutes: rows of ``queue_minutes``.
        missing_nodes, missing_segments: as in the result of an audit.
    """

    time: int
    over: int
    standing: Standing
    minutes: Sequence[Row] = ()
    missing_nodes: Sequence[str] = ()
    missing_segments: Sequence[str] = ()


class News:
    """What is new to one receiver, in notices of at most MOST_ROWS of each list.

    Args:
        told: what it knows; is kept up to date.
    """

    def __init__(self, told: Told, view: View) -> None:
        standing, known = view.standing, told.findings
        self._told = told
        self._view = view
        # What it was told when other kinds were told stays until these are again.
        self._gone = [
            key
            for key, short in known.items()
            if key not in standing and short["kind"] in standing.kinds
        ]
        room = MOST_TOLD - (len(known) - len(self._gone))
        self._found = standing.besides(known)[: max(room, 0)]
        self._over = max(view.over - view.over % MINUTE, told.until)
        self._figures = [row for row in view.minutes if told.until <= row["minute"] < self._over]
        self._figures.sort(key=lambda row: (row["minute"], -_busy(row)))

    @property
    def left(self) -> int:
        """How many rows are still to be told."""
        return len(self._found) + len(self._gone) + len(self._figures)

    def notice(self) -> Notice | None:
        """The next one; None: there is nothing to tell."""
        view, told = self._view, self._told
        if not self.left:
            told.until = self._over
            return None
        lists: dict[str, Sized] = {
            "found": self._found,
            "gone": self._gone,
            "queues": self._figures,
        }
        return Notice(
            number=told.notices + 1,
            time=view.time,
            found=[view.standing.row(key) for key in self._found[:MOST_ROWS]],
            gone=[told.findings[key] for key in self._gone[:MOST_ROWS]],
            queues=self._figures[:MOST_ROWS],
            more={name: max(len(rows) - MOST_ROWS, 0) for name, rows in lists.items()},
            standing=view.standing.counts,
            missing_nodes=view.missing_nodes,
            missing_segments=view.missing_segments,
        )

    def was_told(self, notice: Notice) -> None:
        """The receiver has got the last notice."""
        told = self._told
        for key, row in zip(self._found, notice.found, strict=False):
            told.findings[key] = _short(row)
        for key in self._gone[: len(notice.gone)]:
            del told.findings[key]
        del self._found[: len(notice.found)]
        del self._gone[: len(notice.gone)]
        del self._figures[: len(notice.queues)]
        # Of a minute that is cut all is told again if the next notice does not arrive.
        told.until = self._figures[0]["minute"] if self._figures else self._over
        told.notices += 1


def _short(row: Row) -> Row:
    """What is kept of a finding; where there is no job, also the nodes or logs that it is about."""
    names = _SHORT if row["job"] is not None else (*_SHORT, "nodes")
    return {name: row[name] for name in names}


def _busy(row: Row) -> int:
    return sum(row[name] or 0 for name in ("added", "delivered", "depth"))
