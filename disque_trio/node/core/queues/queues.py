"""Creates, pauses and removes the queues of a node."""

from collections.abc import Callable
from typing import Final

from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.jobs.moments import Moments
from disque_trio.node.core.jobs.registry import Registry
from disque_trio.node.core.pages.pages import Pages
from disque_trio.node.core.queues.adders import Adders, QueueAdders
from disque_trio.node.core.queues.deaths import Deaths
from disque_trio.node.core.queues.queue import QUEUE_OVERHEAD, Queue
from disque_trio.node.core.queues.traffic import Traffic
from disque_trio.protocol.serialjob import paused_queue
from disque_trio.respserver.client import Client
from disque_trio.respserver.machine import LONGEST_REST, Machine

_MANY_NAMES: Final = 1_000
_MANY_LEFT: Final = 5_000  # queues to remove at a time; a few milliseconds
_MANY_ABSENT: Final = 10_000  # names whose counts are kept although there is no queue


def taken_by(name: bytes) -> int:
    """The bytes that a queue with this name takes besides its jobs."""
    return QUEUE_OVERHEAD + len(name)


class QueueInterests:
    """Interface to the clients that want jobs of queues by pattern (see ``interests``)."""

    def note(self, queue: Queue) -> None:
        """Let the clients that want jobs of ``queue`` wait there: it has one, or may be delivered
        from again."""
        raise NotImplementedError

    def received(self, sender: bytes, queue: Queue, count: int) -> None:
        """Note that the node ``sender`` gave ``count`` jobs of ``queue``."""
        raise NotImplementedError

    def ask_again(self) -> None:
        """Ask other nodes for jobs, which only became possible now."""
        raise NotImplementedError

    def linked_to(self, nodes: list[bytes]) -> None:
        """Tell ``nodes``, to which connections are new, what clients wait for."""
        raise NotImplementedError


class Queues:
    """All queues of one node.

    Args:
        machine: provides the time, memory account and journal.

    Attributes:
        by_name: the queues.
        index: the same queues, for scans.
        ready: queues that may have both jobs and waiting clients.
        interests: the clients that want jobs by pattern; None: there are none.
        on_create: called with each new queue.
        pages: their jobs that lie on disk.
        absent: what clients did with jobs of queues that do not exist: these have a delay, or were
            in hand for very long.
        adders: who added jobs, of all queues.
        queued_again: when jobs that had been delivered were queued again.
        max_idle: how long an unused empty queue is kept, in ms.
    """

    def __init__(self, machine: Machine) -> None:
        self.by_name: dict[bytes, Queue] = {}
        self.index: Registry[Queue] = Registry()
        self.ready: list[Queue] = []
        self.interests: QueueInterests | None = None
        self.max_idle = 300_000
        self.on_create: Callable[[Queue], None] | None = None
        self.pages = Pages(machine.memory)
        self._machine = machine
        self._bell = Queue(b"", 0)
        self._idle_cursor = 0
        self._left: dict[Queue, None] = {}  # that never had a job, and that nobody waits for now
        self._names: dict[bytes, bytes] = {}
        self.adders = Adders(machine)
        self.queued_again = Moments()
        self.absent: dict[bytes, Traffic] = {}

    def one_name(self, name: bytes) -> bytes:
        """Intern the name of a queue, so that all jobs of the queue share one object."""
        queue = self.by_name.get(name)
        if queue is not None:
            return queue.name
        known = self._names.get(name)
        if known is None:
            if len(self._names) >= _MANY_NAMES:
                self._names.clear()
            known = self._names[name] = name
        return known

    def create(self, name: bytes) -> Queue:
        """Create the queue ``name``, which must not exist."""
        queue = self.by_name[name] = Queue(name, self._machine.now)
        queue.traffic = self.absent.pop(name) if name in self.absent else Traffic()
        self.index.put(name, queue)
        self._machine.memory.used += taken_by(name)
        if self.on_create is not None:
            self.on_create(queue)
        return queue

    def known_traffic(self, name: bytes) -> Traffic | None:
        """What was counted of the queue ``name``; None: nothing."""
        queue = self.by_name.get(name)
        return self.absent.get(name) if queue is None else queue.traffic

    def traffic(self, name: bytes) -> Traffic:
        """Where to count what clients do with jobs of the queue ``name``, which may not exist."""
        queue = self.by_name.get(name)
        if queue is not None:
            return queue.traffic
        absent = self.absent
        traffic = absent.get(name)
        if traffic is None:
            if len(absent) >= _MANY_ABSENT:
                self.adders.forget(absent.pop(next(iter(absent))).adders)
            traffic = absent[name] = Traffic()
        return traffic

    def added(self, traffic: Traffic, job: Job) -> None:
        """Count that the current client added ``job`` where ``traffic`` is counted."""
        traffic.added += 1
        client = self._machine.client
        if client is None:
            return
        adder = traffic.adder
        if adder is None or adder.token is not client.origin:
            adders = traffic.adders
            if adders is None:
                adders = traffic.adders = QueueAdders()
            adder = traffic.adder = self.adders.of(adders, client)
            if adder is None:
                return
        adder.added += 1
        job.adder = adder

    def destroy(self, queue: Queue) -> None:
        """Remove ``queue``, which must be empty and have no client waiting."""
        del self.by_name[queue.name]
        self.adders.forget(queue.traffic.adders)
        self._left.pop(queue, None)
        self.index.drop(queue.name)
        self._machine.memory.used -= taken_by(queue.name)

    def stop_waiting(self, client: Client) -> None:
        """Remove ``client`` from the queues that it waits for."""
        for name in client.waits_for:
            queue = self.by_name[name]
            queue.waiters.pop(client, None)
            if queue.jobs_in == 0 and not queue.waiters:
                self._left[queue] = None

    def make_room(self, wanted: int) -> None:
        """Remove queues that clients only waited for, and do no more, until at most ``wanted``
        bytes are used, or many have gone: whoever asks for jobs must not keep others from adding
        some."""
        memory = self._machine.memory
        for _ in range(_MANY_LEFT):
            if memory.used <= wanted or not self._left:
                break
            queue = self._left.popitem()[0]
            if self._is_idle(queue, 0):
                self.destroy(queue)

    def ring(self) -> None:
        """Make this turn look at deliveries, although no queue has become ready."""
        self.ready.append(self._bell)

    def look_at(self, queue: Queue) -> None:
        """Look at the clients that wait for ``queue``: one of its jobs may have become
        deliverable."""
        if queue.length:
            self.ready.append(queue)

    def pause(self, name: bytes, paused: int) -> None:
        """Set the pause bits of the queue ``name``, which is created if it does not exist."""
        queue = self.by_name.get(name)
        if queue is None:
            queue = self.create(name)
        machine = self._machine
        if machine.journaling and paused != queue.paused:
            machine.journal.append(paused_queue(name, paused))
        self.set_paused(queue, paused)
        queue.atime = machine.now
        if self.interests is not None:
            self.interests.note(queue)
        if queue.waiters:
            self.ready.append(queue)

    def died(self, name: bytes) -> None:
        """Note that a job of the queue ``name`` has become a dead letter."""
        queue = self.by_name.get(name)
        if queue is None:
            queue = self.create(name)  # so that it is told
        if queue.deaths is None:
            queue.deaths = Deaths()
        queue.deaths.note(self._machine.now)

    def set_paused(self, queue: Queue, paused: int) -> None:
        """Set the pause bits of ``queue``. While it is paused it stays, even if it is empty, so it
        counts for users."""
        shares = self._machine.memory.shares
        if shares is not None and (paused == 0) != (queue.paused == 0):
            size = taken_by(queue.name)
            shares.queue_grew(queue.name, size if paused else -size)
        queue.paused = paused

    def evict_idle(self, steps: int = 200) -> int:
        """Remove queues that are empty, unpaused, unwatched and idle; visits about ``steps`` of
        them.

        Idle means unused for ``max_idle``, or 10 s above 75% of the memory and 2 s above 95%, if
        that is less. Goes on as long as at least one queue in ten is removed. Return how many
        were.
        """
        gone = 0
        while True:
            idle = self._idle_time()
            self._idle_cursor, queues = self.index.scan(self._idle_cursor, steps)
            here = 0
            for queue in queues:
                if self._is_idle(queue, idle):
                    self.destroy(queue)
                    here += 1
            gone += here
            if here * 10 < steps:
                return gone

    def _idle_time(self) -> int:
        """The time after which a queue is idle, in ms."""
        level = self._machine.memory.level()
        most = self.max_idle
        return most if level == 0 else min(most, 10_000 if level == 1 else 2_000)

    def rest(self, steps: int = 200) -> int:
        """Return how long ``evict_idle`` may wait while nothing happens, in ms; 0: not at all."""
        count = self.index.count
        # Each queue is visited 20 times in the time after which it is idle.
        return self._idle_time() * steps // (20 * max(count, steps)) if count else LONGEST_REST

    def _is_idle(self, queue: Queue, idle: int) -> bool:
        return (
            queue.length == 0
            and not queue.waiters
            and not queue.paused
            and (queue.groups is None or queue.groups.number_held() == 0)
            and self._machine.now - queue.atime >= idle
            and (
                queue.deaths is None
                or idle < self.max_idle  # memory is short
                or not queue.deaths.lately(self._machine.now)
            )
        )

    def hand_over(self) -> list[dict[bytes, Queue]]:
        """Forget all queues, on which no client may be blocked, and return them."""
        queues = [self.by_name, *self.index.hand_over()]
        self.by_name = {}
        self._left = {}
        self.absent = {}
        self.adders.count = 0
        self.queued_again = Moments()
        return queues
