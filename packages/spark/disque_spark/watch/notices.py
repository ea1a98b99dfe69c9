"""What is new in an audit since the last notice: findings, missing logs, and figures of queues.

Works on tables; knows neither files nor receivers.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit.rules import KINDS, LOG_MISSING

Row = dict[str, Any]  # row of a table; times in ms
MINUTE = 60_000  # ms
MOST_ROWS = 1000  # rows of a kind in a notice
MOST_TOLD = 100_000  # findings reported and remembered; further ones are only counted
NODE, SEGMENT = "node", "segment"  # reasons of LOG_MISSING
_SHORT = ("kind", "reason", "job", "queue")


class Findings:
    """The findings in a table. There may be many, so rows are made on demand.

    Args:
        table: has the columns of ``findings``, time in ms.

    Attributes:
        keys: keys of the rows, see ``key_of``.
        kinds: kinds of the rows.
        times: times of the rows; 0 if unknown.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table.combine_chunks()
        names = ("kind", "reason", "job", "nodes")
        columns = [table.column(name).to_pylist() for name in names]
        self.keys = [key_of(*row) for row in zip(*columns, strict=True)]
        self.kinds: list[str] = columns[0]
        self.times: list[int] = pc.fill_null(table.column("time"), 0).to_pylist()

    def row(self, place: int) -> Row:
        """The finding at an index."""
        rows: list[Row] = self._table.slice(place, 1).to_pylist()
        return rows[0]


def key_of(
    kind: str, reason: str | None, job: str | None, nodes: Collection[str] | None = ()
) -> str:
    """The identity of a finding across audits, which does not depend on its time or detail."""
    what = [kind, reason, job, [] if job is not None else sorted(nodes or ())]
    return hashlib.blake2b(json.dumps(what).encode(), digest_size=10).hexdigest()


def missing_logs(nodes: Iterable[str], segments: Mapping[str, int]) -> list[Row]:
    """Missing logs as findings: of nodes, and of segments with the number of missing lines (-1:
    unknown)."""
    text = "node {} appears in the logs, but its own log is missing"
    rows = [_missing(NODE, [node], text.format(node)) for node in nodes]
    for name, lines in sorted(segments.items()):
        what = f"{lines} lines of segment {name} are" if lines >= 0 else f"segment {name} is"
        rows.append(_missing(SEGMENT, [name], f"{what} missing"))
    return rows


def _missing(reason: str, names: list[str], detail: str) -> Row:
    row: Row = {"kind": LOG_MISSING, "reason": reason, "job": None, "queue": None, "time": None}
    return row | {"nodes": names, "detail": detail, "would_decide": names}


class Standing:
    """All current findings that are to be reported.

    Args:
        tables: tables of findings.
        kinds: kinds to report, besides LOG_MISSING.
        missing: see ``missing_logs``.

    Attributes:
        kinds: kinds to report.
        counts: number of findings of each kind.
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
        """The finding with this key."""
        if key in self._missing:
            return self._missing[key]
        table, place = self._places[key]
        return table.row(place)

    def besides(self, known: Collection[str]) -> list[str]:
        """The keys of findings that are not in ``known``: missing logs, then the worst kinds first,
        and of each kind the oldest."""
        new = [key for key in self._places if key not in known]
        harm = {kind: place for place, kind in enumerate(KINDS)}
        order = {
            key: (harm.get(table.kinds[place], len(harm)), table.times[place])
            for key in new
            for table, place in [self._places[key]]
        }
        new.sort(key=order.__getitem__)
        return [*(key for key in self._missing if key not in known), *new]


@dataclass
class Told:
    """What a receiver knows.

    Attributes:
        findings: current findings it was told about, by key, abridged.
        until: it has the figures of all minutes before this time, ms.
        notices: number of notices it got.
    """

    findings: dict[str, Row] = field(default_factory=dict)
    until: int = 0
    notices: int = 0

    def as_json(self) -> list[object]:
        """The form in which it is stored between runs."""
        return [self.findings, self.until, self.notices]

    @classmethod
    def of(cls, kept: object) -> Self:
        """Parse what ``as_json`` returned. Raises ValueError if it is something else."""
        match kept:
            case [dict(findings), int(until), int(notices)]:
                return cls(findings, until, notices)
        raise ValueError("not the state of a watch")


@dataclass(frozen=True)
class Notice:
    """A message to a receiver.

    Attributes:
        number: counts the notices of this receiver, from 1.
        time: time of the last event seen, ms.
        found: new findings.
        gone: findings reported before that are no longer true, abridged: they were premature, or a
            log has since shown what happened.
        queues: rows of ``queue_minutes``, for completed minutes.
        more: number of rows of each of these lists that the next notices will have.
        standing: number of current findings, by kind.
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
        """The notice for JSON. ``id`` is a digest of its contents, so that a receiver can recognize
        a repeat."""
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
        time: time of the last event, ms.
        over: minutes before this time are complete, ms.
        standing: the current findings.
        minutes: rows of ``queue_minutes``.
        missing_nodes, missing_segments: as in the result of an audit.
    """

    time: int
    over: int
    standing: Standing
    minutes: Sequence[Row] = ()
    missing_nodes: Sequence[str] = ()
    missing_segments: Sequence[str] = ()


class News:
    """What is new to one receiver, in notices with at most MOST_ROWS of each list.

    Args:
        told: what the receiver knows; updated by ``was_told``.
        view: what the last look has seen.
    """

    def __init__(self, told: Told, view: View) -> None:
        standing, known = view.standing, told.findings
        self._told = told
        self._view = view
        # Findings of kinds that are not reported any more stay until they are again.
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
        """How many rows are still to be reported."""
        return len(self._found) + len(self._gone) + len(self._figures)

    def notice(self) -> Notice | None:
        """The next notice; None: there is nothing to report."""
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
        """The receiver has got ``notice``, the last one from ``notice()``."""
        told = self._told
        for key, row in zip(self._found, notice.found, strict=False):
            told.findings[key] = _short(row)
        for key in self._gone[: len(notice.gone)]:
            del told.findings[key]
        del self._found[: len(notice.found)]
        del self._gone[: len(notice.gone)]
        del self._figures[: len(notice.queues)]
        # If the next notice is lost, a minute that was split is reported again as a whole.
        told.until = self._figures[0]["minute"] if self._figures else self._over
        told.notices += 1


def _short(row: Row) -> Row:
    """The parts of a finding to remember; without a job, also the nodes or logs it is about."""
    names = _SHORT if row["job"] is not None else (*_SHORT, "nodes")
    return {name: row[name] for name in names}


def _busy(row: Row) -> int:
    return sum(row[name] or 0 for name in ("added", "delivered", "depth"))
