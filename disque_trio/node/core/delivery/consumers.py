"""Pushes jobs to clients that consume queues (CONSUME), as long as they have credit.

A job is in a client's hands from when it was pushed until it is acknowledged, handed back, queued
again or gone, for whatever reason; that returns its credit. But if its time was over, the client
may hang: then the credit only returns when the client says something on this connection. A client
whose connection breaks loses its jobs: they are queued again at once if it asked for that, or
soon, so that somebody who knows why it broke can say before that what becomes of them.

Pushed jobs are sent at the end of the turn, after the replies: so they never come between the parts
of a reply, and what has to be in the append-only file is there. Those of a client that leaves
before that are queued again at once, as if they had not been delivered.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.delivery.interests import Interests
from disque_trio.node.core.federation.federation import Federation
from disque_trio.node.core.jobs.job import ACTIVE, FLAG_IN_HAND, Job
from disque_trio.node.core.lifecycle.dead_letters import DeadLetters
from disque_trio.node.core.lifecycle.requeue import Requeue
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.entries import PUSHED, TAKEN_AT_ONCE, job_entry_with, size_of
from disque_trio.node.core.queues.queue import Queue
from disque_trio.protocol.trailer import BY_ATTEMPTS, CANCELLED, TERMINATE
from disque_trio.respserver.client import Client

MAX_CREDIT: Final = 65_535  # jobs, like the prefetch of AMQP
MAX_IN_HAND: Final = 16 << 20  # bytes of bodies in a client's hands, unless a single one has more
A_TURN: Final = 100  # jobs to push to a client, or to queue again, per turn
ALL_IN_A_TURN: Final = 1_000  # jobs to push per turn, plus one for each client
NEVER: Final = -1  # jobs of a lost connection come again after their retry time
AT_ONCE: Final = 0
SOON: Final = 2_000  # ms
_CANCELLED: Final = b">2\r\n$9\r\ncancelled\r\n$40\r\n%b\r\n"
_TERMINATED: Final = b">3\r\n$9\r\ncancelled\r\n$40\r\n%b\r\n$9\r\nterminate\r\n"
_LARGE_SHIFT: Final = 14  # 16 KB of a body take as long as a job
_FEW: Final = 10  # jobs to take before looking at their size
_LARGE: Final = 1 << 20  # bytes in hand; above it, look at the size after each job


class Consumer:
    """A client to which jobs are pushed.

    Attributes:
        client: the client.
        waiter: takes its place in the queues where it waits.
        names: the queues that it consumes, in order of preference; empty: it stopped.
        patterns: what it wants, if ``names`` are patterns (see ``interests``); else empty.
        credit: number of jobs that it may have in its hands.
        loss: in how many ms its jobs are queued again if its connection breaks; NEVER.
        cancels: whether to tell it which of its jobs were cancelled.
        in_hand: its jobs: size of the body in bytes, by id.
        size: the sum of these.
        withheld: credit of jobs whose time was over, since when the client has said nothing.
        waits: its ``waiter`` is in the queues.
        frames: what to push at the end of the turn.
        unsent: ids of the jobs in ``frames``. once: those with at-most-once jobs, and their ids.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.waiter = Client(client.id)
        self.names: list[bytes] = []
        self.patterns: list[bytes] = []
        self.credit = 0
        self.loss = AT_ONCE
        self.cancels = False
        self.in_hand: dict[bytes, int] = {}
        self.size = 0
        self.withheld = 0
        self.waits = False
        self.frames: list[bytes] = []
        self.unsent: list[bytes] = []
        self.once: list[tuple[bytes, bytes]] = []

    def room(self) -> int:
        """Return how many more jobs it may get."""
        room = self.credit - len(self.in_hand) - self.withheld if self.names else 0
        return room if room > 0 and self.size < MAX_IN_HAND and not self.client.slow else 0


class Consumers:
    """The clients of one node that consume queues.

    Args:
        requeue: queues jobs again.
        dead_letters: takes jobs that had all their attempts.
        federation: gets jobs from other nodes.
        interests: clients that want jobs by pattern.

    Attributes:
        by_client: the clients that consume, or hold pushed jobs.
        open: those that may get more in this turn.
        pushed: those that get something at its end.
        due: when there is something to do, in ms; 0: never.
    """

    def __init__(
        self,
        core: Core,
        requeue: Requeue,
        dead_letters: DeadLetters,
        federation: Federation,
        interests: Interests,
    ) -> None:
        self.by_client: dict[Client, Consumer] = {}
        self.open: dict[Consumer, None] = {}
        self.pushed: dict[Consumer, None] = {}
        self.due = 0
        self._by_waiter: dict[Client, Consumer] = {}
        self._by_job: dict[bytes, Consumer] = {}
        self._later: dict[Consumer, None] = {}  # may get more in the next turn
        self._lost: dict[bytes, bool] = {}  # ids of jobs to be queued again: they were sent
        self._soon = core.store.progress.soon  # ids of jobs that will be lost, and when, in ms
        self._left = ALL_IN_A_TURN  # how many more jobs may be pushed in this turn
        self._machine = core.machine
        self._store = core.store
        self._queues = core.store.queues
        self._requeue = requeue
        self._dead_letters = dead_letters
        self._federation = federation
        self._interests = interests
        self._timer = core.timer

    @property
    def count(self) -> int:
        """The number of clients that consume."""
        return len(self._by_waiter)

    @property
    def in_hand(self) -> int:
        """The number of jobs in their hands."""
        return len(self._by_job)

    # ---- for clients ------------------------------------------------------------------------

    def consume(
        self,
        client: Client,
        names: list[bytes],
        patterns: list[bytes],
        credit: int,
        details: int,
        loss: int,
        cancels: bool,
    ) -> None:
        """Push jobs of the queues ``names`` to ``client``, instead of those that it consumed so
        far. ``patterns``: what is wanted, if the names are patterns; there must be room for them.
        ``details``: as in ``job_entry_with``. ``loss``, ``cancels``: as in ``Consumer``."""
        # Not before anybody consumes, since it is also called for jobs of limited queues.
        self._store.limits.on_taken_back = self._taken_back
        consumer = self.by_client.get(client)
        if consumer is None:
            consumer = self.by_client[client] = Consumer(client)
        self._leave_queues(consumer)
        self._interests.keep(consumer.patterns, -1)
        consumer.names = list(dict.fromkeys(names))
        consumer.patterns = list(dict.fromkeys(patterns))
        self._interests.keep(consumer.patterns, 1)
        consumer.credit = credit
        consumer.loss = loss
        consumer.cancels = cancels
        waiter = consumer.waiter
        waiter.name = client.name
        waiter.label = client.label
        waiter.details = details | PUSHED
        self._by_waiter[waiter] = consumer
        client.consumes = True
        self._open_for(consumer)

    def set_credit(self, client: Client, credit: int) -> bool:
        """Change the credit of ``client``; return False if it does not consume."""
        consumer = self.by_client.get(client)
        if consumer is None or not consumer.names:
            return False
        consumer.credit = credit
        if not consumer.room():
            self._leave_queues(consumer)
        self._open_for(consumer)
        return True

    def stop(self, client: Client) -> int:
        """Stop pushing jobs to ``client``; return how many are in its hands."""
        consumer = self.by_client.get(client)
        if consumer is None:
            return 0
        self._leave_queues(consumer)
        self._interests.keep(consumer.patterns, -1)
        consumer.names = []
        consumer.patterns = []
        self._by_waiter.pop(consumer.waiter, None)
        client.consumes = False
        if not consumer.in_hand:
            del self.by_client[client]
        return len(consumer.in_hand)

    def stop_all(self, reason: bytes) -> None:
        """Stop pushing jobs to all clients, and tell them why."""
        for consumer in list(self._by_waiter.values()):
            self.stop(consumer.client)
            consumer.frames.append(b">2\r\n$7\r\nstopped\r\n$%d\r\n%b\r\n" % (len(reason), reason))
            self.pushed[consumer] = None

    def go_on_pushing(self, client: Client) -> None:
        """Push more jobs to ``client``, which has read everything it was sent."""
        consumer = self.by_client.get(client)
        if consumer is not None:
            self._later[consumer] = None
            self._call()

    def forget_client(self, client: Client) -> None:
        """Take the jobs of ``client``, which has disconnected or no longer speaks RESP3."""
        consumer = self.by_client.get(client)
        if consumer is None:
            return
        self.stop(client)
        self.by_client.pop(client, None)
        self.pushed.pop(consumer, None)
        for id in consumer.in_hand:
            del self._by_job[id]
        if consumer.loss > 0:
            self._lose_soon(list(consumer.in_hand), self._machine.now + consumer.loss)
        elif consumer.loss == AT_ONCE:
            self._lost.update(dict.fromkeys(consumer.in_hand, True))
        self._lost.update({id: False for id in consumer.unsent if id in consumer.in_hand})
        self._call()

    def _lose_soon(self, ids: list[bytes], at: int) -> None:
        """Take the jobs ``ids`` for lost ``at`` that time (ms), also if the node starts before."""
        store = self._store
        for id in ids:
            job = store.jobs.get(id)
            if job is not None and job.retry:
                self._soon[id] = at
                store.progress.note(job)

    # ---- jobs -------------------------------------------------------------------------------

    def give(self, waiter: Client, queue: Queue, job: Job) -> None:
        """Push ``job``, which was taken out of ``queue``, to the client of ``waiter``, which then
        goes to the end of the line there."""
        consumer = self._by_waiter[waiter]
        self._push(consumer, queue, job)
        if consumer.room() and len(consumer.frames) < A_TURN and self._left > 0:
            if not consumer.patterns:
                del queue.waiters[waiter]
                queue.waiters[waiter] = None
            elif not queue.deliverable():
                self._interests.wants_more(queue)
            return
        self._leave_queues(consumer)
        if consumer.room():
            self._later[consumer] = None
            self._call()

    def _push(self, consumer: Consumer, queue: Queue, job: Job) -> None:
        body = job.body or b""
        details = consumer.waiter.details ^ PUSHED
        if details:
            entry = job_entry_with(job, queue, details, self._store.trailers)
            head, _, rest = entry.partition(b"\r\n")
            frame = b">%d\r\n$3\r\njob\r\n%b" % (int(head[1:]) + 1, rest)
        else:
            head = queue.reply_head
            frame = b">4\r\n$3\r\njob\r\n%b%b\r\n$%d\r\n%b\r\n" % (head, job.id, len(body), body)
        consumer.frames.append(frame)
        consumer.unsent.append(job.id)
        self.pushed[consumer] = None
        self._left -= 1 + (len(body) >> _LARGE_SHIFT)
        if job.retry == 0:
            consumer.once.append((frame, job.id))
        job.flags |= FLAG_IN_HAND
        consumer.in_hand[job.id] = len(body)
        consumer.size += len(body)
        self._by_job[job.id] = consumer

    def seen(self, client: Client) -> None:
        """Return the credit that was withheld from ``client``, which has said something."""
        consumer = self.by_client.get(client)
        if consumer is not None and consumer.withheld:
            consumer.withheld = 0
            if consumer.names:
                self._open_for(consumer)

    def _taken_back(self, job: Job, timed_out: bool) -> None:
        """Return the credit for ``job``, which had FLAG_IN_HAND but has left its client's hands;
        later, if it ``timed_out``."""
        consumer = self._by_job.pop(job.id, None)
        if consumer is None:
            self._lost.pop(job.id, None)
            self._soon.pop(job.id, None)
            return
        consumer.size -= consumer.in_hand.pop(job.id)
        ending = self._store.trailers.ending(job) if consumer.cancels else None
        if ending is not None and ending.kind == CANCELLED:
            frame = _TERMINATED if ending.result == TERMINATE else _CANCELLED
            consumer.frames.append(frame % job.id)
            self.pushed[consumer] = None
            timed_out = True  # it still works on the job, and says when it wants another one
        if timed_out and consumer.names:
            consumer.withheld += 1
            consumer.client.silent = True
            if not consumer.room():
                self._leave_queues(consumer)
        elif consumer.names:
            self._open_for(consumer)
        elif not consumer.in_hand:
            self.by_client.pop(consumer.client, None)

    def keep(self, job: Job) -> None:
        """Keep ``job`` from being queued again if its connection breaks: somebody works on it."""
        self._lost.pop(job.id, None)
        self._soon.pop(job.id, None)

    def _open_for(self, consumer: Consumer) -> None:
        """Note that ``consumer`` may get more jobs."""
        if not consumer.waits:
            self.open[consumer] = None
            self._queues.ring()

    def fill(self, take: "Callable[[list[bytes], int], list[Job]]") -> None:
        """Push the available jobs to clients that have credit again, using ``take`` of
        ``Deliveries``. Clients for which there are not enough wait in their queues."""
        machine = self._machine
        queues = self._queues.by_name
        while self.open and not machine.write_problem:
            if self._left <= 0:
                self._call()
                return
            consumer = next(iter(self.open))
            del self.open[consumer]
            machine.client = consumer.waiter
            left = A_TURN
            while not consumer.waits and (room := consumer.room()):
                if left <= 0:
                    self._later[consumer] = None
                    self._call()
                    break
                room = min(room, _FEW if consumer.size < _LARGE else 1)
                if consumer.patterns:
                    jobs = self._interests.take(consumer.patterns, room)
                else:
                    jobs = take(consumer.names, room)
                for job in jobs:
                    self._push(consumer, queues[job.queue], job)
                size = size_of(jobs)
                left -= len(jobs) + (size >> _LARGE_SHIFT)
                if len(jobs) < room and size < TAKEN_AT_ONCE:
                    self._enter_queues(consumer)
            machine.client = None

    def _enter_queues(self, consumer: Consumer) -> None:
        """Make ``consumer`` wait for jobs in its queues."""
        consumer.waits = True
        if consumer.patterns:
            self._machine.wait_ends.begin(consumer.waiter, 0, 0)
            self._interests.enter(consumer.waiter, consumer.patterns)
            return
        for name in consumer.names:
            queue = self._queues.by_name.get(name) or self._queues.create(name)
            queue.waiters[consumer.waiter] = None
            if not queue.deliverable():
                self._federation.need_jobs(queue)

    def _leave_queues(self, consumer: Consumer) -> None:
        """Remove ``consumer`` from the queues where it waits."""
        if consumer.waits:
            consumer.waits = False
            if consumer.patterns:
                self._interests.forget(consumer.waiter)
                return
            for name in consumer.names:
                queue = self._queues.by_name.get(name)
                if queue is not None:
                    queue.waiters.pop(consumer.waiter, None)

    # ---- turns ------------------------------------------------------------------------------

    def send(self) -> None:
        """Send what was pushed in this turn. Call it only while there are ``pushed`` clients."""
        pushed, self.pushed = self.pushed, {}
        self._left = ALL_IN_A_TURN
        for consumer in pushed:
            consumer.client.out += consumer.frames
            self._machine.woken.append(consumer.client)
            consumer.frames = []
            consumer.unsent = []
            consumer.once = []

    def roll_back(self) -> None:
        """Take back at-most-once jobs: the records of this turn could not be written, so a restart
        would bring them back. Their clients get no others before the file can be written again (see
        ``cron``)."""
        for consumer in self.pushed:
            for frame, id in consumer.once:
                consumer.frames.remove(frame)
                if id in consumer.in_hand:
                    del self._by_job[id]
                    consumer.size -= consumer.in_hand.pop(id)
            if consumer.once:
                # Otherwise it would soon have taken all such jobs without seeing one of them.
                self._leave_queues(consumer)
                self.open[consumer] = None

    def _call(self) -> None:
        more = self._lost or self._later or (self.open and self._left <= 0)
        self.due = self._machine.now if more else next(iter(self._soon.values()), 0)
        self._timer.wake_by(self.due)

    def go_on(self, now: int) -> None:
        """Do some of what is due at ``now``."""
        if not self.due or self.due > now:
            return
        for consumer in self._later:
            self._open_for(consumer)
        self._later.clear()
        for id, due in list(islice(self._soon.items(), A_TURN)):
            if due <= now:
                del self._soon[id]
                self._lost[id] = True
        for id, sent in list(islice(self._lost.items(), A_TURN)):
            self._lost.pop(id, None)
            job = self._store.jobs.get(id)
            if job is not None and job.state == ACTIVE and job.retry:
                self._store.limits.taken_back(job)
                if not sent:
                    self._requeue.put_back(job)
                elif self._dead_letters.is_spent(job):
                    self._dead_letters.bury(job, BY_ATTEMPTS)
                else:
                    self._requeue.enqueue(job, False, schema.BY_DISCONNECT)
        self._call()

    def cron(self) -> None:
        """Go on once the append-only file can be written again."""
        if self.open and not self._machine.write_problem:
            self._queues.ring()

    def flush(self) -> None:
        """Start over: all jobs and queues have been forgotten. Clients go on consuming."""
        self._by_job.clear()
        self._lost.clear()
        self._soon.clear()
        self._later.clear()
        for consumer in list(self.by_client.values()):
            consumer.in_hand = {}
            consumer.size = consumer.withheld = 0
            self._leave_queues(consumer)
            if consumer.names:
                self._open_for(consumer)
            else:
                del self.by_client[consumer.client]
        self.due = 0
