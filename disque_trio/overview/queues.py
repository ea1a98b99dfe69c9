"""The queues of a cluster: what each node reports, and the sums over the nodes."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from typing import Any, Final, NamedTuple, TypeAlias

from disque_trio.health.queues import QueueSeen, QueueTimes, last_death, read_times, unserved_for
from disque_trio.health.table import DEAD_WITHIN, NO_WORKER_AFTER, WAITS_TOO_LONG
from disque_trio.log_times import MOST as MOST_LENGTHS
from disque_trio.log_times import grown as grown_times
from disque_trio.log_times import merge
from disque_trio.overview.histories import Histories
from disque_trio.overview.history import TIMES, of_length
from disque_trio.overview.names import matching
from disque_trio.overview.rates import Counters

COUNTED: Final = {
    "added": b"jobs-added",
    "delivered": b"jobs-delivered",
    "acked": b"jobs-acked",
    "expired": b"jobs-expired",
    "imported": b"jobs-imported",
    "exported": b"jobs-exported",
}
"""The counters of a queue, and the fields of QSTAT."""

OLDER: Final = {
    "added": b"jobs-in",
    "delivered": b"jobs-out",
    "acked": b"jobs-acked",
    "expired": b"jobs-expired",
}
"""The same of nodes of older releases: *added* and *delivered* also count jobs that move."""
FULL_FOR: Final = 15.0  # s for which to show a reply to QSTAT FULL

Counts: TypeAlias = tuple[int, int, int]
"""The delayed, in-hand and dead jobs of a queue."""

NOTHING: Final[Counts] = (0, 0, 0)


@dataclass(slots=True)
class Share:
    """One node's figures for one queue.

    Attributes:
        length: queued jobs.
        blocked: blocked clients.
        taken: whether any job has been delivered since the node knows the queue.
        older: whether it is of a release that does not tell what clients did apart from moves,
            nor how long jobs take.
        recent, totals: how many jobs waited, and were processed, for how long (see ``log_times``),
            by ``TIMES``: in the last minutes, and since the node knows the queue.
        pause: ``none``, ``in``, ``out`` or ``all``.
        oldest: ms since the oldest queued job was added, or 0.
        held_by: what holds back jobs: ``rate``, ``active``, ``asking``, ``file``, or empty.
        groups: groups with queued jobs.
        waiting: jobs waiting for their groups.
        delayed, in_hand, dead, paged: None if unknown now.
        times: what the node tells of when it had and gave out jobs, as of ``now`` of its reply.
        told: when that came (s).
        full_asked: when they were read, or when the walk that counted them began (s).
        full_until: when they become too old to show (s).
    """

    counters: Counters
    length: int = 0
    blocked: int = 0
    taken: bool = False
    older: bool = False
    recent: dict[str, list[int]] = field(default_factory=dict)
    totals: dict[str, list[int]] = field(default_factory=dict)
    pause: str = "none"
    oldest: int = 0
    held_by: str = ""
    groups: int = 0
    waiting: int = 0
    delayed: int | None = None
    in_hand: int | None = None
    dead: int | None = None
    paged: int | None = None
    times: QueueTimes | None = None
    told: float = 0.0
    full_asked: float = 0.0
    full_until: float = 0.0

    def take_times(self, fields: Mapping[bytes, Any]) -> dict[str, int]:
        """Take how long jobs took. Returns how many by length since the last time."""
        found: dict[str, int] = {}
        for name in TIMES:
            total = _counts(fields, b"%b-total" % name.encode())
            found |= of_length(name, grown_times(total, self.totals.get(name, ())))
            self.totals[name] = total
            self.recent[name] = _counts(fields, b"%b-recent" % name.encode())
        return found

    def has_more(self, now: float) -> bool:
        """Whether there are jobs that are not queued, as far as known at ``now`` (s)."""
        counted = self.full_asked <= now <= self.full_until
        return counted and bool(self.delayed or self.in_hand or self.dead)

    def unlisted(self) -> None:
        """Note that no job is queued."""
        self.length = self.blocked = self.oldest = self.groups = self.waiting = 0
        self.pause, self.held_by = "none", ""


class QueueRow(NamedTuple):
    """A queue, summed over the nodes that respond. Rates are per second; None if unknown.
    ``delayed``, ``in_hand``, ``dead`` and ``paged`` are None unless somebody is looking.

    Attributes:
        oldest: seconds since the oldest queued job was added, or 0.
        paused: ``in``, ``out``, ``all`` or empty; ``partly`` if the nodes differ.
        paged: those of the queued jobs that lie on disk.
        unasked: whether jobs wait, and no client waits for one or was ever given one.
        nodes: addresses of the nodes that know it.
        moved: how many jobs nodes got from others.
        older: addresses of those nodes whose figures also count jobs that move, since their release
            tells no others. They count a delayed or dead job once on each node that holds it.
        wait, processing: how many jobs took how long in the last minutes, see ``log_times``.
    """

    name: str
    length: int
    added: float | None
    delivered: float | None
    acked: float | None
    expired: float | None
    oldest: float
    blocked: int
    paused: str
    held_by: str
    groups: int
    waiting: int
    delayed: int | None
    in_hand: int | None
    dead: int | None
    paged: int | None
    unasked: bool
    nodes: tuple[str, ...]
    moved: float | None
    older: tuple[str, ...]
    wait: tuple[int, ...]
    processing: tuple[int, ...]


_UNKNOWN: Final = -1  # less than any known value


def _known(value: float | None) -> float:
    return _UNKNOWN if value is None else value


KEYS: Final[Mapping[str, Callable[[QueueRow], Any]]] = {
    "name": lambda row: row.name,
    "length": lambda row: row.length,
    "added": lambda row: _known(row.added),
    "delivered": lambda row: _known(row.delivered),
    "acked": lambda row: _known(row.acked),
    "oldest": lambda row: row.oldest,
    "delayed": lambda row: _known(row.delayed),
    "in_hand": lambda row: _known(row.in_hand),
    "dead": lambda row: _known(row.dead),
    "blocked": lambda row: row.blocked,
    "paused": lambda row: row.paused,
}
"""The keys to sort by."""


class QueueTable:
    """All queues. Each node reports its share; the shares of unreachable nodes are left out.

    Args:
        histories: where to keep what happens in them, or None.
    """

    def __init__(self, histories: Histories | None = None) -> None:
        self._shares: dict[str, dict[str, Share]] = {}  # by queue, then by node
        self._rows: dict[str, QueueRow] = {}
        self._stale: set[str] = set()
        self._order: dict[tuple[str, bool], list[str]] = {}  # until something changes
        self._histories = histories
        self._counted: dict[str, float] = {}  # by node: when the count of all its jobs began
        self._letters: dict[str, dict[str, int]] = {}  # by node: its dead letters then, by queue
        self._listed: dict[str, Set[str]] = {}  # by node: the queues that it has
        # Since when the jobs of a queue wait, and none was given out, by queue.
        self._unserved: dict[str, float] = {}
        # When jobs of a queue last became dead letters, and how many, by queue.
        self._died: dict[str, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._shares)

    def __contains__(self, queue: str) -> bool:
        return queue in self._shares

    @property
    def length(self) -> int:
        """The number of queued jobs in all queues."""
        return sum(share.length for shares in self._shares.values() for share in shares.values())

    def take(
        self,
        node: str,
        queue: str,
        fields: Mapping[bytes, Any],
        now: float,
        asked: float | None = None,
    ) -> bool:
        """Take a node's reply, at ``now`` (s), to a QSTAT sent at ``asked``. If another reply has
        come since then, only the counts that QSTAT FULL adds are taken: the other figures may be
        older than those. Returns whether anything has changed."""
        share = self._share(node, queue)
        last = share.counters.moment
        if asked is not None and last is not None and asked <= last <= now:
            self._take_full(share, fields, now)
            self._touch(queue)
            return False
        before = (share.length, share.blocked, share.pause)
        share.length = _number(fields, b"len")
        share.blocked = _number(fields, b"blocked")
        share.older = b"jobs-added" not in fields
        names = OLDER if share.older else COUNTED
        share.taken = _number(fields, names["delivered"]) > 0
        share.pause = _text(fields, b"pause") or "none"
        share.oldest = _number(fields, b"oldest-job-age")
        share.held_by = _text(fields, b"held-back-by")
        share.groups = _number(fields, b"groups")
        share.waiting = _number(fields, b"groups-waiting")
        share.times, share.told = read_times(fields), now
        counts = {name: _number(fields, field) for name, field in names.items()}
        since = share.counters.moment
        grown = share.counters.read(counts, now)
        times = share.take_times(fields)
        changed = any(grown.values()) or before != (share.length, share.blocked, share.pause)
        self._take_full(share, fields, now)
        self._note(queue, grown | times if grown else {}, now, since)
        self._touch(queue)
        return changed

    def _share(self, node: str, queue: str) -> Share:
        shares = self._shares.setdefault(queue, {})
        if node not in shares:
            shares[node] = Share(Counters())
        return shares[node]

    def _take_full(self, share: Share, fields: Mapping[bytes, Any], now: float) -> None:
        """Take the counts that only QSTAT FULL has, or drop those that are too old."""
        if b"jobs-delayed" in fields:
            share.delayed = _number(fields, b"jobs-delayed")
            share.in_hand = _number(fields, b"jobs-in-hand")
            share.dead = _number(fields, b"jobs-dead")
            share.paged = _number(fields, b"jobs-paged")
            share.full_asked, share.full_until = now, now + FULL_FOR
        elif not share.full_asked <= now <= share.full_until:
            share.delayed = share.in_hand = share.dead = share.paged = None

    def counted(
        self, node: str, counts: Mapping[str, Counts], begun: float, now: float, keep: float
    ) -> None:
        """Take a node's counts of all its jobs, made from ``begun`` to ``now`` and to be shown for
        ``keep`` seconds. Queues not in ``counts`` have no such jobs; those in it need not have
        queued ones."""
        self._note_deaths(node, counts, begun, now)
        self._counted[node] = begun
        # Of those that the node lists, QSTAT tells how many jobs are queued.
        for queue in counts.keys() - self._listed.get(node, counts.keys()):
            self._share(node, queue)
        for queue, shares in self._shares.items():
            share = shares.get(node)
            if share is None or begun < share.full_asked <= now:
                continue
            found = counts.get(queue, NOTHING)
            share.full_asked, share.full_until = begun, now + keep
            if found != (share.delayed, share.in_hand, share.dead) or share.paged is not None:
                share.paged = None  # nobody has said
                share.delayed, share.in_hand, share.dead = found
                self._touch(queue)

    def _note_deaths(
        self, node: str, counts: Mapping[str, Counts], begun: float, now: float
    ) -> None:
        """Note which queues have more dead letters there than at the last count, unless that was
        too long ago to say that they are new, or the node tells itself what died."""
        found = {queue: count[2] for queue, count in counts.items() if count[2]}
        last = self._counted.get(node)
        if last is not None and begun - last < DEAD_WITHIN:
            before = self._letters.get(node, {})
            for queue, dead in found.items():
                share = self._shares.get(queue, {}).get(node)
                tells = share is not None and share.times is not None
                if dead > before.get(queue, 0) and not tells:
                    self._died[queue] = now, dead - before.get(queue, 0)
        self._letters[node] = found

    def counted_since(self, nodes: Iterable[str]) -> float | None:
        """When the oldest of the counts of ``nodes`` began; None if one is missing."""
        begun = [self._counted.get(node) for node in nodes]
        known = [moment for moment in begun if moment is not None]
        return min(known) if known and len(known) == len(begun) else None

    def gone(self, node: str, queue: str) -> None:
        """Note that a node does not have the queue, or no longer."""
        shares = self._shares.get(queue)
        if shares is not None and shares.pop(node, None) is not None:
            self._touch(queue)
            if not shares:
                self._drop(queue)

    def listed(self, node: str, queues: Set[str], now: float) -> None:
        """Take the names of the queues that a node has, at ``now`` (s). It may have jobs of others
        as well, none of which is queued."""
        self._listed[node] = queues
        for queue, shares in list(self._shares.items()):
            share = shares.get(node)
            if share is None:
                row = self._rows.get(queue)
                if row is not None and row.paused:
                    self._touch(queue)  # it is not paused here
            elif queue not in queues:
                if share.has_more(now):
                    share.unlisted()
                    self._touch(queue)
                else:
                    self.gone(node, queue)

    def node_lost(self, node: str) -> None:
        """Drop the shares of a node that has become unreachable."""
        self._counted.pop(node, None)
        self._letters.pop(node, None)
        self._listed.pop(node, None)
        for queue in [queue for queue, shares in self._shares.items() if node in shares]:
            self.gone(node, queue)

    def shares(self, queue: str) -> Mapping[str, Share]:
        """The shares of ``queue``, by node address."""
        return self._shares.get(queue, {})

    def with_letters(self) -> set[str]:
        """The queues known to have dead letters."""
        return {
            queue
            for queue, shares in self._shares.items()
            if any(share.dead for share in shares.values())
        }

    def row(self, queue: str) -> QueueRow | None:
        """A queue; None if no responding node has it."""
        shares = self._shares.get(queue)
        if shares is None:
            return None
        if queue in self._stale or queue not in self._rows:
            self._rows[queue] = _sum(queue, shares, self._lacks(queue, shares))
            self._stale.discard(queue)
        return self._rows[queue]

    def _lacks(self, queue: str, shares: Mapping[str, Share]) -> bool:
        """Whether ``queue`` is paused on some nodes, and others do not have it."""
        return any(share.pause != "none" for share in shares.values()) and any(
            node not in shares and queue not in names for node, names in self._listed.items()
        )

    def waiting(self, now: float, letters: Set[str], most: int) -> list[QueueSeen]:
        """The queues whose jobs may have waited for too long at ``now`` (s), and those that have
        got dead letters; at most ``most`` of either. The jobs of ``letters`` wait for people."""
        late = [name for name, at in self._unserved.items() if now - at >= NO_WORKER_AFTER]
        names = nsmallest(most, late, key=self._unserved.__getitem__)
        names += [row.name for row in self.top("oldest", most) if row.oldest >= WAITS_TOO_LONG]
        names += nlargest(most, self._died, key=self._died.__getitem__)
        found = []
        for name in dict.fromkeys(names):
            row = self.row(name)
            if row is None:
                continue
            unserved, died = self._unserved.get(name), self._died.get(name)
            found.append(
                QueueSeen(
                    name,
                    row.length,
                    row.oldest,
                    row.paused in ("out", "all"),
                    row.blocked,
                    None if unserved is None else now - unserved,
                    name in letters or (row.dead is not None and row.dead >= row.length > 0),
                    None if died is None else now - died[0],
                    0 if died is None else died[1],
                )
            )
        return found

    def find(self, search: str, key: str, descending: bool) -> list[QueueRow]:
        """The queues whose names contain ``search``, or match it if it is a pattern, sorted by one
        of ``KEYS``, then by name. Those whose values are unknown come last."""
        names: Iterable[str] = self._sorted(key, descending)
        if search:
            names = filter(matching(search), names)
        return [row for row in map(self.row, names) if row is not None]

    def top(self, key: str, count: int) -> list[QueueRow]:
        """The ``count`` queues with the highest values of one of ``KEYS``."""
        rows = (row for row in map(self.row, list(self._shares)) if row is not None)
        return nlargest(count, rows, key=KEYS[key])

    def _sorted(self, key: str, descending: bool) -> list[str]:
        order = self._order.get((key, descending))
        if order is None:
            rows = [row for row in map(self.row, list(self._shares)) if row is not None]
            rows.sort(key=lambda row: row.name)
            value = KEYS[key]
            rows.sort(key=value, reverse=descending)
            rows.sort(key=lambda row: value(row) == _UNKNOWN)
            order = self._order[key, descending] = [row.name for row in rows]
        return order

    def _note(self, queue: str, grown: Mapping[str, int], now: float, since: float | None) -> None:
        length = sum(share.length for share in self._shares[queue].values())
        if not length:
            self._unserved.pop(queue, None)
        elif grown.get("delivered") or now < self._unserved.setdefault(queue, now):
            self._unserved[queue] = now
        self._note_times(queue, now)
        if self._histories is not None:
            self._histories.note(queue, now, grown, {"length": length}, since)

    def _note_times(self, queue: str, now: float) -> None:
        """Take what the nodes themselves tell, which have looked for longer."""
        times = []
        for share in self._shares[queue].values():
            if share.times is None:
                if share.length:
                    return
            else:
                times.append(_grown(share.times, now - share.told))
        unserved = unserved_for(times)
        if unserved is not None:
            self._unserved[queue] = now - unserved
        died, deaths = last_death(times)
        if died is not None:
            self._died[queue] = now - died, deaths

    def _touch(self, queue: str) -> None:
        self._stale.add(queue)
        self._order.clear()

    def _drop(self, queue: str) -> None:
        del self._shares[queue]
        self._rows.pop(queue, None)
        self._unserved.pop(queue, None)
        self._died.pop(queue, None)
        self._stale.discard(queue)


def _grown(times: QueueTimes, seconds: float) -> QueueTimes:
    """``times`` that many seconds later."""
    return QueueTimes(
        None if times.filled is None else times.filled + seconds,
        None if times.wanted is None else times.wanted + seconds,
        None if times.died is None else times.died + seconds,
        times.deaths,
    )


def _sum(queue: str, shares: Mapping[str, Share], lacking: bool) -> QueueRow:
    """``lacking``: it is not paused on some node that does not have it."""
    # A single hand-written pass: with ten thousand queues this dominates the cost of a page.
    length = blocked = groups = waiting = oldest = 0
    rates: dict[str, float] = {}
    delayed: int | None = None
    in_hand: int | None = None
    dead: int | None = None
    paged: int | None = None
    pauses = {"none"} if lacking else set()
    held: set[str] = set()
    taken = False
    recent: dict[str, list[list[int]]] = {}
    for share in shares.values():
        length += share.length
        blocked += share.blocked
        taken = taken or share.taken
        groups += share.groups
        waiting += share.waiting
        oldest = max(oldest, share.oldest)
        pauses.add(share.pause)
        if share.held_by:
            held.add(share.held_by)
        for name, counts in share.recent.items():
            if counts:
                recent.setdefault(name, []).append(counts)
        for name, rate in share.counters.rates.items():
            rates[name] = rates.get(name, 0.0) + rate
        if share.delayed is not None:
            delayed = (delayed or 0) + share.delayed
            in_hand = (in_hand or 0) + (share.in_hand or 0)
            dead = (dead or 0) + (share.dead or 0)
        if share.paged is not None:
            paged = (paged or 0) + share.paged
    paused = "partly" if len(pauses) > 1 else pauses.pop()
    return QueueRow(
        queue,
        length,
        rates.get("added"),
        rates.get("delivered"),
        rates.get("acked"),
        rates.get("expired"),
        oldest / 1000,
        blocked,
        "" if paused == "none" else paused,
        " ".join(sorted(held)),
        groups,
        waiting,
        delayed,
        in_hand,
        dead,
        paged,
        length > 0 and not (blocked or taken),
        tuple(sorted(shares)),
        rates.get("imported"),
        tuple(sorted(node for node, share in shares.items() if share.older)),
        *(tuple(merge(*recent.get(name, ()))) for name in TIMES),
    )


def _number(fields: Mapping[bytes, Any], name: bytes) -> int:
    value = fields.get(name, 0)
    return value if isinstance(value, int) else 0


def _counts(fields: Mapping[bytes, Any], name: bytes) -> list[int]:
    value = fields.get(name)
    if not isinstance(value, list) or len(value) > MOST_LENGTHS:
        return []
    return [count if isinstance(count, int) else 0 for count in value]


def _text(fields: Mapping[bytes, Any], name: bytes) -> str:
    value = fields.get(name, b"")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
