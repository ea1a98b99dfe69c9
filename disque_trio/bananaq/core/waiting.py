"""Who waits for events: the lines in front of the queues.

A `Line` is what the consumers of one group wait in for events of one queue: those that take the
next event (QGET with BLOCK) in the order in which they came, and those that only want to know that
there is one (QNOTIFY).
"""

from disque_trio.core.client import Client


class Waiter:
    """A client that waits.

    Attributes:
        client: the client.
        group: its group. queues: the queues, any of which will do.
        takes: it takes the event; else it is told the name of the queue.
        hold: how long it has the event then, if it takes it, in µs.
        hold_until: the same as a time since the epoch, 0: see ``hold``.
        first: how many queues it has to be looked at for the first time.
        once: it does not wait when that was in vain.
        taking: an operation that takes an event for it is under way.
        over: its time was over meanwhile.
        gone: it waits no more.
    """

    __slots__ = (
        "client",
        "first",
        "gone",
        "group",
        "hold",
        "hold_until",
        "once",
        "over",
        "queues",
        "takes",
        "taking",
    )

    def __init__(self, client: Client, group: bytes, queues: list[bytes], takes: bool) -> None:
        self.client = client
        self.group = group
        self.queues = queues
        self.takes = takes
        self.hold = 0
        self.hold_until = 0
        self.first = len(queues)
        self.once = False
        self.taking = False
        self.over = False
        self.gone = False


class Line:
    """Those of ``group`` that wait for events of ``queue``.

    Attributes:
        takers, listeners: waiters in the order in which they came.
        fresh: those of them that the line was not looked at for yet.
        ready: it is on the list of those to be looked at.
        busy: an operation for it is under way. again: it has to be looked at again after it.
        look_at: when it is looked at again in any case, ms; 0: no time is set.
    """

    __slots__ = (
        "again",
        "busy",
        "fresh",
        "group",
        "listeners",
        "look_at",
        "queue",
        "ready",
        "takers",
    )

    def __init__(self, queue: bytes, group: bytes) -> None:
        self.queue = queue
        self.group = group
        self.takers: dict[Waiter, None] = {}
        self.listeners: dict[Waiter, None] = {}
        self.fresh: list[Waiter] = []
        self.ready = False
        self.busy = False
        self.again = False
        self.look_at = 0

    def drop(self, waiter: Waiter) -> None:
        """``waiter`` waits no more."""
        self.takers.pop(waiter, None)
        self.listeners.pop(waiter, None)


class Lines:
    """All lines, by queue and group."""

    def __init__(self) -> None:
        self._queues: dict[bytes, dict[bytes, Line]] = {}

    def get(self, queue: bytes, group: bytes) -> Line | None:
        """The line of ``group`` for ``queue``, if anybody waits there."""
        lines = self._queues.get(queue)
        return None if lines is None else lines.get(group)

    def of(self, queue: bytes) -> list[Line]:
        """All lines for ``queue``."""
        lines = self._queues.get(queue)
        return [] if lines is None else list(lines.values())

    def make(self, queue: bytes, group: bytes) -> Line:
        """The line of ``group`` for ``queue``, made if need be."""
        lines = self._queues.get(queue)
        if lines is None:
            lines = self._queues[queue] = {}
        line = lines.get(group)
        if line is None:
            line = lines[group] = Line(queue, group)
        return line

    def forget(self, line: Line) -> None:
        """Forget ``line`` if nobody is in it and nothing goes on."""
        if line.takers or line.listeners or line.busy or line.ready:
            return
        lines = self._queues.get(line.queue)
        if lines is not None and lines.get(line.group) is line:
            line.look_at = 0
            del lines[line.group]
            if not lines:
                del self._queues[line.queue]
