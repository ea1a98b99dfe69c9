"""The manifest of a version of an audit: its inputs, and the files of its tables by day."""

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from disque_spark.audit.gaps import FOR_EVER, Ends, gaps_of, holes_of, order_of
from disque_spark.audit.lacks import (
    EMPTY,
    GONE,
    NODE,
    UNREAD,
    Lack,
    Still,
    in_period,
    numbered,
    with_ends,
)
from disque_spark.audit.waits import Waits, add_waits

COMPRESSED = -1
DAY = 86_400_000  # ms
JOBS, MINUTES, FINDINGS, DEPTHS, HELD_JOBS, TICKS = (
    "jobs",
    "queue_minutes",
    "findings",
    "depths",
    "held",
    "ticks",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def day_of(time: int) -> str:
    """The name of the day (UTC) of a time in ms, as in paths: ``2026-11-24``."""
    return (_EPOCH + timedelta(days=time // DAY)).strftime("%Y-%m-%d")


def start_of(day: str) -> int:
    """When a day begins, ms."""
    return (datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) - _EPOCH).days * DAY


@dataclass
class Part:
    """A file of the table ``jobs``, and what is derived from it.

    Attributes:
        file: its name.
        rows, size: number of jobs, and bytes.
        first, last: times of the first and the last event of its jobs, ms.
        latest: ``last``, or the time when the last of its jobs was made, if that is later.
        open: whether its jobs may go on, or time alone may change the findings about them.
        wait: the longest delay or time to live of its jobs, s.
        retry: the longest RETRY of its jobs, s.
        copied: least clock differences from copies, ``source, target, ms``.
        heard: least clock differences from everything else that one node hears from another.
        judged: see ``judging.dependence``; "": it was not judged, or depends on the time.
        found: the file of its findings; "": there are none.
        counts: number of findings of each ``kind reason``.
        due: time (ms) from which on time alone may change the findings, if ``judged`` is empty; 0:
            unknown.
        waits: its jobs that are in queues at the end, whether these are findings or not.
    """

    file: str
    rows: int
    size: int
    first: int
    last: int
    latest: int
    open: bool
    wait: int = 0
    retry: int = 0
    copied: list[list[int]] = field(default_factory=list)
    heard: list[list[int]] = field(default_factory=list)
    judged: str = ""
    found: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    due: int = 0
    waits: Waits = field(default_factory=dict)


@dataclass
class Minutes:
    """A file of ``queue_minutes``; ``last`` is its last minute, ms."""

    file: str
    last: int


@dataclass
class Day:
    """The files of one day.

    Attributes:
        jobs, minutes: files of these tables.
        depths: names of files with the depths of queues at the end of the day; None: unknown.
        shown: files of findings as changed by append-only files, instead of those of ``jobs``.
    """

    jobs: list[Part] = field(default_factory=list)
    minutes: list[Minutes] = field(default_factory=list)
    depths: list[str] | None = None
    shown: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, said: dict[str, Any]) -> Self:
        """Read it from the manifest's JSON."""
        return cls(
            [Part(**part) for part in said["jobs"]],
            [Minutes(**minutes) for minutes in said["minutes"]],
            said["depths"],
            said["shown"],
        )


@dataclass
class TickDay:
    """The ticks of schedules of one day: their file, the file of the findings about them ("": there
    are none), and the number of findings of each ``kind reason``."""

    file: str
    found: str = ""
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class Past:
    """What is remembered of the segments of a node that were dropped with their days.

    Attributes:
        order: ``order_of`` the last of them; it and those before it are not read again.
        gap: when the last gap in them ended, ms; 0: there was none.
    """

    order: tuple[int, int]
    gap: int


@dataclass
class Manifest:
    """The inputs and contents of a version.

    Attributes:
        version: number of the version, from 1; 0: there is none yet.
        nodes: ids of nodes; traces have indexes into this list.
        segments: sizes in bytes of the segments that were read, by name; COMPRESSED if compressed.
        growing: bytes that were read of segments that are still being written, by name.
        parts: numbers of the parts of the table ``jobs``, if an older version wrote it, which had
            no days.
        events: number of events in the logs.
        dropped: number of events that were dropped, according to the logs.
        unknown: number of events of kinds that this version does not know.
        damaged: number of lines that are not events.
        first, last: times of the first and the last event, ms; 0: there is none.
        quiet: ms after the last event during which the logs had no further lines.
        jobs: number of rows of the table ``jobs``.
        settings: the thresholds of the findings.
        ends: the fields of ``gaps.Ends`` of each segment, by name.
        peers: ids of nodes that appear in the logs.
        gone: ids of nodes that are known to have been removed for good.
        aofs: number of append-only files that were given.
        days: the files of the tables, by day.
        held: the files of the table ``held``.
        clocks: the file of findings about clocks, in the day of the last event; "": none.
        clock_counts: as ``Part.counts``, for ``clocks``.
        shown_counts: as ``Part.counts``, for all findings as changed by append-only files.
        past: what is remembered of dropped segments, by node.
        copied, heard: as in ``Part``, for dropped days.
        keep_from: the first day (ms) that is kept; 0: all are.
        changed: ``table/day`` of everything that differs from the version before.
        clients: what the busiest clients did, see ``audit.clients``.
        ticks: the files of ticks of schedules, by day.
        empty: names of segments without a line that says whose they are.
        open: when the open segments were last written, ms, by name.
        unread: names of files that look like segments, but cannot be read.
        grown: nodes whose logs had been read before, and have grown in this version.
        addresses: addresses of nodes, by id, as far as files near the logs have them.
    """

    version: int = 0
    nodes: list[str] = field(default_factory=list)
    segments: dict[str, int] = field(default_factory=dict)
    growing: dict[str, int] = field(default_factory=dict)
    parts: list[int] = field(default_factory=list)
    events: int = 0
    dropped: int = 0
    unknown: int = 0
    damaged: int = 0
    first: int = 0
    last: int = 0
    quiet: int = 0
    jobs: int = 0
    settings: dict[str, int] = field(default_factory=dict)
    ends: dict[str, list[Any]] = field(default_factory=dict)
    aofs: int = 0
    peers: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    days: dict[str, Day] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    clocks: str = ""
    clock_counts: dict[str, int] = field(default_factory=dict)
    shown_counts: dict[str, int] = field(default_factory=dict)
    past: dict[str, Past] = field(default_factory=dict)
    copied: list[list[int]] = field(default_factory=list)
    heard: list[list[int]] = field(default_factory=list)
    keep_from: int = 0
    changed: list[str] = field(default_factory=list)
    clients: dict[str, list[int]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    ticks: dict[str, TickDay] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    open: dict[str, int] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The time up to which it is known what happened, except in gaps, ms."""
        return self.last + self.quiet

    @property
    def without_logs(self) -> list[str]:
        """The nodes that appear in the logs, but whose own logs are not here."""
        return [node for node in self.peers if node not in self.nodes]

    @property
    def missing_nodes(self) -> list[str]:
        """Those of ``without_logs`` whose logs should be here."""
        return [node for node in self.without_logs if node not in self.gone]

    @property
    def holders(self) -> list[str]:
        """The nodes that may still have jobs."""
        return [node for node in [*self.nodes, *self.without_logs] if node not in self.gone]

    @property
    def missing_and_gone(self) -> list[str]:
        """Those of ``without_logs`` that are known to have been removed for good."""
        return [node for node in self.without_logs if node in self.gone]

    def lacks(self, now: int) -> list[Lack]:
        """What the logs lack, as seen at ``now`` (ms since the epoch)."""
        ends = self.all_ends()
        holes = in_period(holes_of(ends, self.nodes, self.segments, self.past), self.first)
        named = {hole.segment for hole in holes}
        lasts: dict[str, int] = {}
        closed: dict[str, tuple[int, int]] = {}
        for name, one in ends.items():
            lasts[one.node] = max(lasts.get(one.node, 0), one.last)
            if name not in self.growing:
                closed[one.node] = max(closed.get(one.node, (0, 0)), order_of(name))
        stills = []
        for name, written in self.open.items():
            node = self._named(prefix_of(name))
            is_last = order_of(name) > closed.get(node, (-1, 0))
            stills.append(Still(node, name, written, is_last))
        found = [Lack(NODE, node) for node in self.missing_nodes]
        found += [Lack(GONE, node) for node in self.missing_and_gone]
        found += [
            Lack(EMPTY, self._named(prefix_of(name)), segment=name)
            for name in self.empty
            if name not in named and not self.is_past(prefix_of(name), order_of(name))
        ]
        found += [Lack(UNREAD, self._named(prefix_of(name)), segment=name) for name in self.unread]
        found = with_ends([*found, *holes], stills, lasts, now, self.grown)
        return [*numbered(self.dropped, self.damaged, self.unknown), *found]

    def _named(self, prefix: str) -> str:
        """The id of the node with this ``prefix``, as far as it is known."""
        every = [*self.nodes, *self.peers]
        return next((node for node in every if prefix and node.startswith(prefix)), prefix)

    @property
    def finding_counts(self) -> dict[str, int]:
        """The number of findings of each ``kind reason``, as shown."""
        if self.aofs:
            return self.shown_counts
        counts = dict(self.clock_counts)
        for day in self.days.values():
            for part in day.jobs:
                for key, count in part.counts.items():
                    counts[key] = counts.get(key, 0) + count
        for ticks in self.ticks.values():
            for key, count in ticks.counts.items():
                counts[key] = counts.get(key, 0) + count
        return counts

    @property
    def waits(self) -> Waits:
        """The jobs that are in queues at the end, whether these are findings or not."""
        waits: Waits = {}
        for day in self.days.values():
            for part in day.jobs:
                add_waits(waits, part.waits)
        return waits

    def all_ends(self) -> dict[str, Ends]:
        """``ends`` as objects."""
        return {name: Ends(*said) for name, said in self.ends.items()}

    def is_past(self, prefix: str, order: tuple[int, int]) -> bool:
        """Whether a segment was dropped, by the prefix of its node's id and its ``order_of``."""
        past = self.past.get(prefix)
        return past is not None and order <= tuple(past.order)

    def files(self, table: str) -> dict[str, list[str]]:
        """The names of the files of a table, by day; HELD_JOBS has no days, and the key ""."""
        if table == HELD_JOBS:
            return {"": self.held} if self.held else {}
        if table == TICKS:
            return {day: [ticks.file] for day, ticks in self.ticks.items()}
        if table == FINDINGS and not self.aofs:
            return self.found_files()
        found: dict[str, list[str]] = {}
        for name, day in self.days.items():
            if table == JOBS:
                files = [part.file for part in day.jobs]
            elif table == MINUTES:
                files = [minutes.file for minutes in day.minutes]
            elif table == DEPTHS:
                files = day.depths or []
            else:
                files = day.shown
            if files:
                found[name] = sorted(files)
        return found

    def found_files(self) -> dict[str, list[str]]:
        """The names of the files of findings as they are without append-only files, by day."""
        found: dict[str, list[str]] = {}
        for name, day in self.days.items():
            files = sorted(part.found for part in day.jobs if part.found)
            if files:
                found[name] = files
        if self.clocks:
            found.setdefault(day_of(self.last), []).append(self.clocks)
        for name, ticks in self.ticks.items():
            if ticks.found:
                found.setdefault(name, []).append(ticks.found)
        return found

    def own_files(self) -> dict[str, dict[str, set[str]]]:
        """All files that this version needs, by table and day, including those not shown."""
        found = {
            table: {day: set(files) for day, files in self.files(table).items()}
            for table in (JOBS, MINUTES, DEPTHS, HELD_JOBS, TICKS, FINDINGS)
        }
        for name, files in self.found_files().items():
            found[FINDINGS].setdefault(name, set()).update(files)
        return found

    def drop_days(self, keep: int | None) -> bool:
        """Drop the days that ended more than ``keep`` days before the last event, and segments that
        are entirely in them. None: drop only days dropped before that late segments have brought
        back. Returns whether anything was dropped."""
        start = self.keep_from
        if keep is not None and self.last > 0:
            start = max(start, start_of(day_of(self.last)) - keep * DAY)
        if start <= 0:
            return False
        self.keep_from = start
        old = [day for day in self.days if start_of(day) < start]
        for name in old:
            day = self.days.pop(name)
            self.changed += [f"{table}/{name}" for table in (JOBS, MINUTES, DEPTHS, FINDINGS)]
            for part in day.jobs:
                self.jobs -= part.rows
                self.copied = least_rows([*self.copied, *part.copied])
                self.heard = least_rows([*self.heard, *part.heard])
        ticks = [day for day in self.ticks if start_of(day) < start]
        for name in ticks:
            del self.ticks[name]
            self.changed += [f"{TICKS}/{name}", f"{FINDINGS}/{name}"]
        if self.first:
            self.first = max(self.first, start)
        return bool(self._drop_segments(start) or old or ticks)

    def _drop_segments(self, start: int) -> bool:
        some = False
        for node in self.nodes:
            mine = sorted(
                (order_of(name), name)
                for name, said in self.ends.items()
                if said[0] == node and prefix_of(name) == node[:8]
            )
            old = []
            for order, name in mine:
                if Ends(*self.ends[name]).last >= start:
                    break
                old.append((order, name))
            if len(old) < 2:
                continue
            # Keep the last one: the next segment refers to it, and a gap may begin in it.
            order, boundary = old.pop()
            before = Ends(*self.ends[boundary]).first
            gaps = gaps_of(self.all_ends(), [node], self.segments, self.past)
            gap = max((gap.end for gap in gaps if gap.end < min(FOR_EVER, before + 1)), default=0)
            self.past[node[:8]] = Past(old[-1][0], gap)
            for _, name in old:
                del self.ends[name]
                self.segments.pop(name, None)
            some = True
        return some

    def text(self) -> str:
        """The manifest as JSON."""
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a manifest. Raises ValueError or TypeError if it is not one."""
        said = json.loads(text)
        if not isinstance(said, dict):
            raise TypeError("not a JSON object")
        unknown = sorted(said.keys() - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"written by a newer version: {', '.join(unknown)}")
        days = {name: Day.of(day) for name, day in said.pop("days").items()}
        past = {
            node: Past((old["order"][0], old["order"][1]), old["gap"])
            for node, old in said.pop("past").items()
        }
        ticks = {name: TickDay(**day) for name, day in said.pop("ticks", {}).items()}
        return cls(**said, days=days, past=past, ticks=ticks)


def prefix_of(name: str) -> str:
    """The prefix of the node's id in the name of a segment; "" if it is another kind of name."""
    pieces = name.split("-")
    return pieces[1] if len(pieces) == 4 and pieces[0] == "events" else ""


def least_rows(rows: list[list[int]]) -> list[list[int]]:
    """The least ms of each source and target."""
    least: dict[tuple[int, int], int] = {}
    for source, target, ms in rows:
        least[source, target] = min(least.get((source, target), ms), ms)
    return [[*pair, ms] for pair, ms in sorted(least.items())]
