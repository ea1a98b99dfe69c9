"""What a version of an audit consists of: its inputs, and the files of its tables by day."""

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from disque_trio.spark.audit.gaps import (
    FOR_EVER,
    Ends,
    Silence,
    gaps_of,
    missing_between,
    order_of,
    silences,
)

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
    """The day (UTC) of a time in ms, as it is called in paths: ``2026-11-24``."""
    return (_EPOCH + timedelta(days=time // DAY)).strftime("%Y-%m-%d")


def start_of(day: str) -> int:
    """When a day begins, ms."""
    return (datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC) - _EPOCH).days * DAY


@dataclass
class Part:
    """A file of the table of jobs, and what follows from it.

    Attributes:
        file: its name. rows, size: jobs and bytes in it.
        first, last: when the first and the last event of its jobs happened, ms.
        latest: likewise, or when the last of them was made, if that is later.
        open: its jobs may go on, or what is found about them may change with time alone.
        wait, retry: the longest delay or time to live of its jobs, and their longest RETRY, s.
        copied, heard: the least differences of clocks that its jobs show, ``source, target, ms``:
            by copies; by what else one node hears of another.
        judged: what its findings depend on; "": it was not judged, or depends on too much.
        found: the file of its findings; "": there are none. counts: of each ``kind reason``.
        due: ms: when the passing of time alone may change the findings, if ``judged`` does not say
            what they depend on; 0: not known.
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


@dataclass
class Minutes:
    """A file of ``queue_minutes``; ``last``: the last of its minutes, ms."""

    file: str
    last: int


@dataclass
class Day:
    """The files of one day.

    Attributes:
        jobs, minutes: of these tables.
        depths: names of files that say how deep the queues were at its end, if not empty; None:
            nobody knows.
        shown: findings as append-only files change them, instead of those of ``jobs``.
    """

    jobs: list[Part] = field(default_factory=list)
    minutes: list[Minutes] = field(default_factory=list)
    depths: list[str] | None = None
    shown: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, said: dict[str, Any]) -> Self:
        """That of the manifest."""
        return cls(
            [Part(**part) for part in said["jobs"]],
            [Minutes(**minutes) for minutes in said["minutes"]],
            said["depths"],
            said["shown"],
        )


@dataclass
class TickDay:
    """The ticks of schedules of one day: the file, that of its findings (""; there are none), and
    how many there are of each ``kind reason``."""

    file: str
    found: str = ""
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class Past:
    """What is left of the segments of a node that are only in days that were dropped.

    Attributes:
        order: of the last of them; it, and those before it, are not read again.
        gap: when the last gap in them ended, ms; 0: there was none.
    """

    order: tuple[int, int]
    gap: int


@dataclass
class Manifest:
    """The inputs and contents of a version.

    Attributes:
        version: counts from 1; 0: there is none yet.
        nodes: ids; in traces a node is its place in this list.
        segments: name of each file that was read, and its bytes; COMPRESSED if it was that.
        growing: of those that were still written: how many of their bytes were read.
        parts: numbers of the parts of the jobs table, where an older program wrote it; it had no
            days.
        events, dropped: how many are in the logs, and are said to be missing there.
        unknown: events that this program does not know. damaged: lines that are no events.
        first, last: times of the first and the last event, ms; 0: there is none.
        quiet: ms after the last event in which the logs were read and had no more.
        jobs: rows of the jobs table.
        settings: what the findings depend on.
        ends: of each segment what its lines say of it, the fields of ``gaps.Ends``.
        peers: ids of nodes that are named in the logs. gone: ids of nodes that are known to have
            been taken out for good.
        aofs: how many append-only files there were.
        days: the files of the tables, by day. held: those of the table ``held``.
        clocks: the file with findings about clocks, in the day of the last event; "": none.
        clock_counts: as ``Part.counts``; shown_counts: of all findings, with append-only files.
        past: of each node, what is left of segments that were dropped.
        copied, heard: as those of ``Part``, of days that were dropped.
        keep_from: the first day (ms) that is kept; 0: all are.
        changed: ``table/day`` of what is different in this version.
        clients: what the busiest clients did, see ``audit.clients``.
        ticks: the files of the ticks of schedules, by the day of these.
        addresses: of nodes, by their ids, as far as files beside the logs say.
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

    @property
    def end(self) -> int:
        """Up to when it is known what happened, ms, gaps apart."""
        return self.last + self.quiet

    @property
    def without_logs(self) -> list[str]:
        """The nodes that are named, and whose logs are not here."""
        return [node for node in self.peers if node not in self.nodes]

    @property
    def missing_nodes(self) -> list[str]:
        """Those of them whose logs should be here."""
        return [node for node in self.without_logs if node not in self.gone]

    @property
    def holders(self) -> list[str]:
        """The nodes that may still have jobs."""
        return [node for node in [*self.nodes, *self.without_logs] if node not in self.gone]

    @property
    def missing_segments(self) -> dict[str, int]:
        """See ``missing_between``."""
        return missing_between(self.all_ends(), self.segments)

    @property
    def missing_and_gone(self) -> list[str]:
        """Nodes without logs that are known to have been taken out for good."""
        return [node for node in self.without_logs if node in self.gone]

    @property
    def silences(self) -> dict[str, Silence]:
        """What each log that is here does not cover, by node."""
        gaps = gaps_of(self.all_ends(), self.nodes, self.segments, self.past)
        slack = 1000 * self.settings.get("settled", 0)
        return silences(gaps, self.nodes, self.first, self.last, slack)

    @property
    def finding_counts(self) -> dict[str, int]:
        """Of all findings, as they are shown: of each ``kind reason`` how many."""
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

    def all_ends(self) -> dict[str, Ends]:
        """``ends`` as what they are."""
        return {name: Ends(*said) for name, said in self.ends.items()}

    def is_past(self, prefix: str, order: tuple[int, int]) -> bool:
        """Whether a segment is of a time that was dropped, by how its node begins and its place."""
        past = self.past.get(prefix)
        return past is not None and order <= tuple(past.order)

    def files(self, table: str) -> dict[str, list[str]]:
        """The names of the files of a table, by day; HELD_JOBS has none: its day is ""."""
        if table == HELD_JOBS:
            return {"": self.held} if self.held else {}
        if table == TICKS:
            return {day: [ticks.file] for day, ticks in self.ticks.items()}
        found: dict[str, list[str]] = {}
        for name, day in self.days.items():
            if table == JOBS:
                files = [part.file for part in day.jobs]
            elif table == MINUTES:
                files = [minutes.file for minutes in day.minutes]
            elif table == DEPTHS:
                files = day.depths or []
            elif self.aofs:
                files = day.shown
            else:
                files = [part.found for part in day.jobs if part.found]
            if files:
                found[name] = sorted(files)
        if table == FINDINGS and self.clocks and not self.aofs:
            found.setdefault(day_of(self.last), []).append(self.clocks)
        if table == FINDINGS and not self.aofs:
            for name, ticks in self.ticks.items():
                if ticks.found:
                    found.setdefault(name, []).append(ticks.found)
        return found

    def own_files(self) -> dict[str, dict[str, set[str]]]:
        """All files that this version needs, also those that are not shown: by table and day."""
        found = {
            table: {day: set(files) for day, files in self.files(table).items()}
            for table in (JOBS, MINUTES, DEPTHS, HELD_JOBS, TICKS, FINDINGS)
        }
        findings = found[FINDINGS]
        for name, day in self.days.items():
            known = {part.found for part in day.jobs if part.found}
            if known:
                findings.setdefault(name, set()).update(known)
        if self.clocks:
            findings.setdefault(day_of(self.last), set()).add(self.clocks)
        for name, ticks in self.ticks.items():
            if ticks.found:
                findings.setdefault(name, set()).add(ticks.found)
        return found

    def drop_days(self, keep: int | None) -> bool:
        """Forget the days that ended more than ``keep`` days before the last event, and the
        segments that are only in them; None: those that were dropped before, and that segments
        which came late have made anew. Returns whether there were any."""
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
            order, boundary = old.pop()  # what the next one names, and where its gap begins
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
        """As it is written."""
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"

    @classmethod
    def of(cls, text: str) -> Self:
        """What was written. Raises ValueError or TypeError: it is none."""
        said = json.loads(text)
        if not isinstance(said, dict):
            raise TypeError("it is no object")
        unknown = sorted(said.keys() - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"it is of a newer version: {', '.join(unknown)}")
        days = {name: Day.of(day) for name, day in said.pop("days").items()}
        past = {
            node: Past((old["order"][0], old["order"][1]), old["gap"])
            for node, old in said.pop("past").items()
        }
        ticks = {name: TickDay(**day) for name, day in said.pop("ticks", {}).items()}
        return cls(**said, days=days, past=past, ticks=ticks)


def prefix_of(name: str) -> str:
    """How the id of the node begins that gave a segment its name; "": it has another one."""
    pieces = name.split("-")
    return pieces[1] if len(pieces) == 4 and pieces[0] == "events" else ""


def least_rows(rows: list[list[int]]) -> list[list[int]]:
    """Of each source and target the least ms."""
    least: dict[tuple[int, int], int] = {}
    for source, target, ms in rows:
        least[source, target] = min(least.get((source, target), ms), ms)
    return [[*pair, ms] for pair, ms in sorted(least.items())]
