"""Gives jobs to clients: at once if there are some, otherwise as soon as one arrives."""

from disque_trio.node.core.delivery.consumers import Consumers
from disque_trio.node.core.delivery.interests import Interests
from disque_trio.node.core.delivery.patterns import STANDS_IN
from disque_trio.node.core.federation.federation import Federation
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.jobs.timers import sooner
from disque_trio.node.core.lifecycle.dead_letters import DeadLetters
from disque_trio.node.core.lifecycle.requeue import Requeue
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.entries import (
    ONE,
    PUSHED,
    TAKEN_AT_ONCE,
    job_entry,
    job_entry_with,
)
from disque_trio.node.core.queues.queue import PAUSED_OUT
from disque_trio.respserver.client import Client


class Deliveries:
    """Delivers the jobs of one node to its clients.

    Args:
        federation: gets more where jobs run low.
        requeue, dead_letters: get the jobs that a client lost.

    Attributes:
        consumers: clients that jobs are pushed to.
        interests: clients that want jobs by pattern.
    """

    def __init__(
        self, core: Core, federation: Federation, requeue: Requeue, dead_letters: DeadLetters
    ) -> None:
        machine = core.machine
        store = core.store
        self.interests = Interests(core, federation)
        self.consumers = Consumers(core, requeue, dead_letters, federation, self.interests)
        self._machine = machine
        self._store = store
        self._queues = store.queues
        self._limits = store.limits
        self._federation = federation

    def take(self, names: list[bytes], count: int) -> list[Job]:
        """Deliver up to ``count`` jobs: one per queue, left to right, repeatedly until enough, or
        until they have ``TAKEN_AT_ONCE`` bytes, or the next one lies on disk."""
        queues = self._queues
        store = self._store
        found: list[Job] = []
        size = 0
        while True:
            before = len(found)
            for name in names:
                queue = queues.by_name.get(name)
                if queue is not None and queue.length and not queue.paused & PAUSED_OUT:
                    if self._limits.needed and self._limits.holds_back(queue, False):
                        if queue.next_on_disk() is not None:
                            return found
                        continue
                    found.append(store.take_job(queue))
                    imports = queue.imports
                    if imports is not None and queue.length <= imports.low:
                        self._federation.runs_low(queue, imports)
                    if len(found) == count:
                        return found
                    size += len(found[-1].body or b"")
                    if size >= TAKEN_AT_ONCE:
                        return found
            if len(found) == before:
                return found

    def wait(self, client: Client, names: list[bytes], timeout: int, details: int) -> None:
        """Block ``client`` until one of the queues ``names`` has a job, for at most ``timeout`` ms
        (0: forever). ``details``: as in ``job_entry_with``."""
        self._machine.begin_wait(client, names, timeout)
        client.details = details
        queues = self._queues
        for name in names:
            queue = queues.by_name.get(name)
            if queue is None:
                queue = queues.create(name)
            queue.waiters[client] = None

    def stop_waiting(self, client: Client) -> None:
        """Remove ``client`` from the queues that it waits for."""
        if client in self.interests.by_client:
            self.interests.forget(client)
            return
        self._queues.stop_waiting(client)

    def waiting(self) -> list[Client]:
        """Return all waiting clients; one that waits for several queues appears several times."""
        waiting = [client for queue in self._queues.index.values() for client in queue.waiters]
        return [*waiting, *self.interests.by_client]

    def serve_waiting(self) -> None:
        """Give jobs of the queues that got some to the clients that wait for them."""
        machine = self._machine
        store = self._store
        ready = self._queues.ready
        while ready:
            queue = ready.pop(0)
            while queue.length and queue.waiters and not queue.paused & PAUSED_OUT:
                if self._limits.needed and self._limits.holds_back(queue, True):
                    break
                client = next(iter(queue.waiters))
                if client.details & STANDS_IN:
                    first = self.interests.first(client, queue)
                    if first is None:
                        continue
                    client = first
                machine.client = client
                job = store.take_job(queue)
                machine.client = None
                if client.details:
                    if client.details & PUSHED:
                        self.consumers.give(client, queue, job)
                        continue
                    reply = ONE + job_entry_with(job, queue, client.details, store.trailers)
                else:
                    reply = job_entry(job, queue, ONE)
                machine.unblock(client, reply)
                if machine.journaling and job.retry == 0 and client.out:
                    last = len(client.out)
                    machine.uncommitted.append((client, last - 1, last))
            if self._queues.interests is not None:
                self.interests.served(queue)
            if queue.length:
                self._federation.offer(queue)  # who waited may have got a job of another queue
            imports = queue.imports
            if imports is not None and queue.deliverable() <= imports.low:
                self._federation.runs_low(queue, imports)
        if self.consumers.open:
            self.consumers.fill(self.take)

    @property
    def due(self) -> int:
        """Return when ``go_on`` next has something to do, in ms; 0: never."""
        return sooner(self.consumers.due, self.interests.due)

    def go_on(self, now: int) -> None:
        """Do some of what is due at ``now``."""
        self.consumers.go_on(now)
        self.interests.go_on(now)

    def flush(self) -> None:
        """Start over: all jobs and queues have been forgotten."""
        self.consumers.flush()
        self.interests.flush()
