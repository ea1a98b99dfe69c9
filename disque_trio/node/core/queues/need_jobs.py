"""Decides when a node asks others for the jobs of a queue, and how many it asks for.

Paces NEEDJOBS, and measures the import rate of a queue. Now and then all nodes are asked for one
job, to find out which have some; those that gave jobs lately are asked often, and for more. Both
kinds of requests slow down while nothing comes. If jobs stream in fast, their sources are asked
before the last one is taken, so that consumers need not wait for the next: when the jobs that are
left will be gone in 25 ms. They are asked for no more than are taken in a second, or in 50 ms if
that is more than a hundred, so that few are left over if consumers go away. Sources that give as
many as they were asked for, as these come, are only asked again once half of them are here (see
``exports``).
"""

from typing import Final

from disque_trio.protocol.bus import MAX_YOURJOBS

# ms for which a node that gave jobs counts as a source, and an import rate is valid
WINDOW: Final = 5_000
ALL_MIN, ALL_MAX = 2_000, 30_000  # ms between requests to all nodes
POLL_MIN: Final = 100  # ms between them if clients poll
FIRST_MIN: Final = 25  # ms between them if a client begins to wait
SOURCES_MIN, SOURCES_MAX = 25, 2_000  # ms between requests to sources
COUNT_MIN = 5  # jobs to ask a source for
COUNT_MAX: Final = 100  # jobs to ask a C node for, which would crash if asked for more
AHEAD: Final = 25  # ms before the last job is taken
FRESH: Final = 100  # ms for which a request may be answered with more than one job
# ms for which a request of a client that does not wait is recent. For that time, imported jobs are
# kept for it, and nodes with jobs take its own node to want some. With two limits, jobs would be
# passed on in vain between nodes whose clients polled together.
RECENT: Final = 150


class Imports:
    """The import statistics of one queue: which nodes gave jobs, how fast, and when to ask again.

    Attributes:
        sources: nodes that gave jobs, and when they last did, in ms.
        due: when to look at the queue again because clients wait, in ms; 0: not planned.
        low: number of queued jobs at which to ask sources for more; 0 while they have been
            asked and have not answered.
        told_waits: the last request said that a client waits.
        passes_on: jobs went to another node, and since then no client here wanted or took one: to
            ask for more would have jobs go back and forth.
    """

    __slots__ = (
        "_active",
        "_all_asked",
        "_all_tries",
        "_count",
        "_credit",
        "_gap",
        "_granted",
        "_last_count",
        "_last_start",
        "_left",
        "_next_low",
        "_seen",
        "_soon",
        "_sources_asked",
        "_sources_tries",
        "_start",
        "_taken",
        "_unanswered",
        "_wanted",
        "due",
        "low",
        "passes_on",
        "sources",
        "told_waits",
    )

    def __init__(self) -> None:
        self.sources: dict[bytes, int] = {}
        self.due = 0
        self.low = 0
        self.told_waits = False
        self._unanswered = False  # sources were asked, and none has given anything since
        self._next_low = 0  # ``low`` once they have answered
        self._granted = 0  # jobs for which all sources together were last asked
        self._credit = 0  # how many of these have yet to come
        self._all_asked = 0
        self._all_tries = 0
        self._soon = 0  # the next gap, if all have yet to be asked for a client that began to wait
        self._sources_asked = 0
        self._sources_tries = 0
        self._start = 0  # of the current window of the rate; ``_count``: jobs in it
        self._count = 0
        self._last_start = 0  # of the previous window
        self._last_count = 0
        self._left = 0  # imported jobs that had not been taken when ``_taken`` jobs had been
        self._taken = 0
        self._wanted = 0  # when a client here last wanted a job in vain
        self._gap = 0  # the longest time from one such client to the next, lately
        self._active = 0  # when it was noticed that jobs left the queue, as ``_seen`` had by then
        self._seen = 0
        self.passes_on = False

    def want(self, now: int) -> None:
        """Note that a client of this node wants a job, and there is none."""
        gap = now - self._wanted
        self._wanted = now
        self.passes_on = False
        if 0 <= gap <= 2 * WINDOW:
            self._gap = max(gap, self._gap - gap)
        else:  # it is no poller if it comes more rarely than jobs are kept; or the clock jumped
            self._gap = self._active = 0

    def want_as(self, other: "Imports") -> None:
        """Note that clients want jobs as often, and as lately, as ``other`` says."""
        self._wanted = max(self._wanted, other._wanted)
        self._gap = max(self._gap, other._gap)

    def is_wanted(self, now: int, taken: int) -> bool:
        """Whether clients here may be expected to take imported jobs soon: they wanted or took some
        not much longer ago than is usual. ``taken``: see ``left``."""
        if taken != self._seen:
            self._seen = taken
            self._active = now
            self.passes_on = False
        return now - max(self._wanted, self._active) <= max(2 * self._gap, RECENT)

    def gave(self, taken: int) -> None:
        """Note that jobs left the queue for another node. ``taken``: see ``left``."""
        self._seen = taken
        self.passes_on = True

    def rate(self, now: int) -> int:
        """Jobs per second that come from other nodes; 0 if none came for 5 s."""
        if self._start == 0 or now - self._start > WINDOW:
            return 0
        elapsed = max(now - self._last_start, 50)
        return -(-(self._last_count + self._count) * 1000 // elapsed)

    def streams(self, now: int) -> bool:
        """Whether jobs arrive in quick succession, so that it pays to ask for more in advance."""
        return self._last_count + self._count >= COUNT_MIN and self.rate(now) > 0

    def left(self, now: int, taken: int) -> int:
        """Return how many imported jobs may still be in the queue.

        After 5 s they count as this node's own. ``taken`` is the number of jobs that ever left the
        queue.
        """
        return max(self._left - (taken - self._taken), 0) if self.rate(now) else 0

    def received(self, sender: bytes, now: int, taken: int, count: int = 1) -> None:
        """Note that ``count`` jobs came from ``sender``."""
        self._unanswered = False
        self._credit -= count
        self.low = self._next_low
        self._left = self.left(now, taken) + count
        self._taken = taken
        if now - self._start > 1000:
            # Without a previous window, the rate begins with this one.
            self._last_start = self._start or now
            self._last_count = self._count
            self._start = now
            self._count = 0
        self._count += count
        if sender not in self.sources:
            self._all_tries = 0
        self.sources[sender] = now
        self._sources_tries = 0

    def ask_all(self, now: int, soon: int) -> bool:
        """Whether to ask all nodes now; if so, it counts as done. ``soon``: the shortest time in ms
        since they were last asked, if a client has just begun to wait, or polls: what earlier
        clients asked for may have gone elsewhere; otherwise 0."""
        if soon:
            self._soon = min(self._soon or soon, soon)
        if self._all_asked and now - self._all_asked < self._all_gap():
            return False
        if self._soon:
            self._soon = 0
            self._all_tries = 0
        self._all_asked = now
        self._all_tries += 1
        return True

    def asks_ahead(self, now: int) -> bool:
        """Whether to ask sources while some jobs are left."""
        return not self._unanswered and self.streams(now)

    def ask_sources(self, now: int, at_once: bool, credit: bool = False) -> int:
        """Return how many jobs to ask each source for now (it then counts as done); 0: do not ask.

        Ask a C node for at most COUNT_MAX. ``at_once``: the queue has just become empty, or low,
        while jobs stream in. ``credit``: all sources give what they were asked for as it comes.
        """
        if (
            credit
            and at_once
            and 2 * self._credit > self._granted
            and now - self._sources_asked < FRESH // 2
            and self.streams(now)
        ):
            self.low = 0
            return 0
        for source in [s for s, time in self.sources.items() if now - time > WINDOW]:
            del self.sources[source]
        if not self.sources:
            return 0
        gap = self._sources_gap()
        if at_once:
            gap = SOURCES_MIN if self._unanswered else 0
        if now - self._sources_asked < gap:
            return 0
        self._sources_asked = now
        self._sources_tries += 1
        self._unanswered = True
        rate = self.rate(now)
        share = rate // len(self.sources)
        count = min(max(share, COUNT_MIN), COUNT_MAX)
        count = min(max(share * 2 * AHEAD // 1000, count), MAX_YOURJOBS)
        self._next_low = min(rate * AHEAD // 1000, count // 2)
        self._granted = self._credit = count * len(self.sources)
        self.low = 0
        return count

    def next_question(self) -> int:
        """Return when to look again while clients wait, in ms."""
        next_all = self._all_asked + self._all_gap()
        if self.sources:
            return min(next_all, self._sources_asked + self._sources_gap())
        return next_all

    def _all_gap(self) -> int:
        """The time between two requests to all nodes, in ms."""
        if self._soon:
            return self._soon
        return min(ALL_MIN << min(self._all_tries, 4), ALL_MAX)

    def _sources_gap(self) -> int:
        """The time between two requests to sources, in ms."""
        return min(SOURCES_MIN << min(self._sources_tries, 7), SOURCES_MAX)
