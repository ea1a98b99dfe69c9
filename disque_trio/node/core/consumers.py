"""Pushes jobs to the clients that consume queues (CONSUME), as long as they have credit.

The jobs that a client got and has not acknowledged are in its hands; a job that is acknowledged,
handed back, queued again or gone is not any more, whoever saw to that, and gives its credit back. A
client whose connection breaks loses them: they are queued again at once if it wants that.

What is pushed leaves at the end of the turn, behind the replies: so it is never between the parts
of one, and what must be in the append-only file is there.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.agenda import Agenda
from disque_trio.node.core.dead_letters import DeadLetters
from disque_trio.node.core.entries import PUSHED, job_entry_with
from disque_trio.node.core.federation import Federation
from disque_trio.node.core.job import ACTIVE, FLAG_IN_HAND, Job
from disque_trio.node.core.queue import Queue
from disque_trio.node.core.requeue import Requeue
from disque_trio.node.core.store import JobStore
from disque_trio.protocol.trailer import BY_ATTEMPTS
from disque_trio.respserver.client import Client
from disque_trio.respserver.machine import Machine

MAX_CREDIT: Final = 65_535  # jobs, as the prefetch of AMQP
MAX_IN_HAND: Final = 16 << 20  # bytes of bodies in the hands of a client, unless one has more
A_TURN: Final = 100  # jobs that are pushed to a client, or queued again, in a turn
ALL_IN_A_TURN: Final = 1_000  # jobs that are pushed in a turn, and one more for each client
_AT_ONCE: Final = 10  # jobs that are taken before their size is looked at
_LARGE: Final = 1 << 20  # bytes in hand from which on it is looked at after each job


class Consumer:
    """A client to which jobs are pushed.

    Attributes:
        client: as named.
        waiter: stands for it in the queues where it waits.
        names: of the queues that it consumes, those that it prefers first; empty: it stopped.
        credit: jobs that it may have in its hands.
        requeues: what it has is queued again at once if its connection breaks.
        in_hand: what it has: bytes of the bodies, by id. size: how many these are together.
        waits: its ``waiter`` is in the queues.
        frames: what is pushed at the end of the turn. once: of these those with jobs that are
            delivered at most once, and their ids.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.waiter = Client(client.id)
        self.names: list[bytes] = []
        self.credit = 0
        self.requeues = True
        self.in_hand: dict[bytes, int] = {}
        self.size = 0
        self.waits = False
        self.frames: list[bytes] = []
        self.once: list[tuple[bytes, bytes]] = []

    def room(self) -> int:
        """How many further jobs it may have."""
        room = self.credit - len(self.in_hand) if self.names else 0
        return room if room > 0 and self.size < MAX_IN_HAND and not self.client.slow else 0


class Consumers:
    """The clients of one node that consume queues.

    Args:
        machine: whose clients they are.
        store: the jobs.
        requeue: queues them again.
        dead_letters: take those that had their attempts.
        federation: gets jobs from other nodes.
        agenda: when there is something to do.

    Attributes:
        by_client: those that consume, or have jobs that were pushed.
        open: those that may get more in this turn.
        pushed: those that get something at the end of it.
        due: when there is something to do, ms; 0: never.
    """

    def __init__(
        self,
        machine: Machine,
        store: JobStore,
        requeue: Requeue,
        dead_letters: DeadLetters,
        federation: Federation,
        agenda: Agenda,
    ) -> None:
        self.by_client: dict[Client, Consumer] = {}
        self.open: dict[Consumer, None] = {}
        self.pushed: dict[Consumer, None] = {}
        self.due = 0
        self._by_waiter: dict[Client, Consumer] = {}
        self._by_job: dict[bytes, Consumer] = {}
        self._later: dict[Consumer, None] = {}  # may get more in the next turn
        self._lost: dict[bytes, None] = {}  # ids of jobs to be queued again
        self._left = ALL_IN_A_TURN  # jobs that may be pushed in this turn
        self._machine = machine
        self._store = store
        self._queues = store.queues
        self._requeue = requeue
        self._dead_letters = dead_letters
        self._federation = federation
        self._agenda = agenda

    @property
    def count(self) -> int:
        """The number of clients that consume."""
        return len(self._by_waiter)

    @property
    def in_hand(self) -> int:
        """The number of jobs in their hands."""
        return len(self._by_job)

    # ---- what clients ask -------------------------------------------------------------------

    def consume(
        self, client: Client, names: list[bytes], credit: int, details: int, requeues: bool
    ) -> None:
        """Push jobs of the queues ``names`` to ``client``, instead of those that it consumed.
        ``details`` as of ``job_entry_with``."""
        # Not before anybody consumes: it is called for jobs of queues with limits, too.
        self._store.limits.on_taken_back = self._taken_back
        consumer = self.by_client.get(client)
        if consumer is None:
            consumer = self.by_client[client] = Consumer(client)
        self._leave_queues(consumer)
        consumer.names = list(dict.fromkeys(names))
        consumer.credit = credit
        consumer.requeues = requeues
        waiter = consumer.waiter
        waiter.name = client.name
        waiter.label = client.label
        waiter.details = details | PUSHED
        self._by_waiter[waiter] = consumer
        client.consumes = True
        self._open_for(consumer)

    def set_credit(self, client: Client, credit: int) -> bool:
        """Change the credit of ``client``; returns whether it consumes."""
        consumer = self.by_client.get(client)
        if consumer is None or not consumer.names:
            return False
        consumer.credit = credit
        if not consumer.room():
            self._leave_queues(consumer)
        self._open_for(consumer)
        return True

    def stop(self, client: Client) -> int:
        """Push no more jobs to ``client``; returns how many are in its hands."""
        consumer = self.by_client.get(client)
        if consumer is None:
            return 0
        self._leave_queues(consumer)
        consumer.names = []
        self._by_waiter.pop(consumer.waiter, None)
        client.consumes = False
        if not consumer.in_hand:
            del self.by_client[client]
        return len(consumer.in_hand)

    def stop_all(self, reason: bytes) -> None:
        """Push no more jobs to anybody, and tell the clients why."""
        for consumer in list(self._by_waiter.values()):
            self.stop(consumer.client)
            consumer.frames.append(b">2\r\n$7\r\nstopped\r\n$%d\r\n%b\r\n" % (len(reason), reason))
            self.pushed[consumer] = None

    def go_on_pushing(self, client: Client) -> None:
        """``client`` has read what it was sent."""
        consumer = self.by_client.get(client)
        if consumer is not None:
            self._later[consumer] = None
            self._call()

    def forget_client(self, client: Client) -> None:
        """``client`` has disconnected, or does not speak RESP3 any more."""
        consumer = self.by_client.get(client)
        if consumer is None:
            return
        self.stop(client)
        self.by_client.pop(client, None)
        self.pushed.pop(consumer, None)
        for id in consumer.in_hand:
            del self._by_job[id]
        if consumer.requeues:
            self._lost.update(dict.fromkeys(consumer.in_hand))
            self._call()

    # ---- jobs -------------------------------------------------------------------------------

    def give(self, waiter: Client, queue: Queue, job: Job) -> None:
        """Push ``job``, which was taken out of ``queue``, to the client of ``waiter``, which waited
        there; others that wait come before its next one."""
        consumer = self._by_waiter[waiter]
        self._push(consumer, queue, job)
        if consumer.room() and len(consumer.frames) < A_TURN and self._left > 0:
            del queue.waiters[waiter]
            queue.waiters[waiter] = None
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
        self.pushed[consumer] = None
        self._left -= 1
        if job.retry == 0:
            consumer.once.append((frame, job.id))
        job.flags |= FLAG_IN_HAND
        consumer.in_hand[job.id] = len(body)
        consumer.size += len(body)
        self._by_job[job.id] = consumer

    def _taken_back(self, job: Job) -> None:
        """``job``, which had FLAG_IN_HAND, is not in the hands of a client any more."""
        consumer = self._by_job.pop(job.id, None)
        if consumer is None:
            self._lost.pop(job.id, None)
            return
        consumer.size -= consumer.in_hand.pop(job.id)
        if consumer.names:
            self._open_for(consumer)
        elif not consumer.in_hand:
            self.by_client.pop(consumer.client, None)

    def keep(self, job: Job) -> None:
        """Somebody works on ``job``: it is not lost if the connection that it came on broke."""
        self._lost.pop(job.id, None)

    def _open_for(self, consumer: Consumer) -> None:
        """``consumer`` may get more jobs."""
        if not consumer.waits:
            self.open[consumer] = None
            self._queues.ring()

    def fill(self, take: "Callable[[list[bytes], int], list[Job]]") -> None:
        """Push what is there to the clients that have credit again; ``take`` is that of
        ``Deliveries``. Those for whom there is not enough wait in their queues."""
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
                room = min(room, _AT_ONCE if consumer.size < _LARGE else 1)
                jobs = take(consumer.names, room)
                for job in jobs:
                    self._push(consumer, queues[job.queue], job)
                left -= len(jobs)
                if len(jobs) < room:
                    self._enter_queues(consumer)
            machine.client = None

    def _enter_queues(self, consumer: Consumer) -> None:
        """Let ``consumer`` wait for jobs in its queues."""
        consumer.waits = True
        for name in consumer.names:
            queue = self._queues.by_name.get(name) or self._queues.create(name)
            queue.waiters[consumer.waiter] = None
            if not queue.deliverable():
                self._federation.need_jobs(queue)

    def _leave_queues(self, consumer: Consumer) -> None:
        """Strike ``consumer`` off the queues where it waits."""
        if consumer.waits:
            consumer.waits = False
            for name in consumer.names:
                queue = self._queues.by_name.get(name)
                if queue is not None:
                    queue.waiters.pop(consumer.waiter, None)

    # ---- turns ------------------------------------------------------------------------------

    def send(self) -> None:
        """Hand out what was pushed in this turn; to be called while ``pushed``."""
        pushed, self.pushed = self.pushed, {}
        self._left = ALL_IN_A_TURN
        for consumer in pushed:
            consumer.client.out += consumer.frames
            self._machine.woken.append(consumer.client)
            consumer.frames = []
            consumer.once = []

    def roll_back(self) -> None:
        """What this turn noted is not in the append-only file: jobs that are delivered at most once
        would be known again after a restart, so they are not delivered. Who would have got them
        gets no others before the file can be written again (see ``cron``)."""
        for consumer in self.pushed:
            for frame, id in consumer.once:
                consumer.frames.remove(frame)
                if id in consumer.in_hand:
                    del self._by_job[id]
                    consumer.size -= consumer.in_hand.pop(id)
            if consumer.once:
                # Else it would soon have had all jobs of this kind, and have seen none.
                self._leave_queues(consumer)
                self.open[consumer] = None

    def _call(self) -> None:
        more = self._lost or self._later or (self.open and self._left <= 0)
        self.due = self._machine.now if more else 0
        self._agenda.call(self.due)

    def go_on(self, now: int) -> None:
        """Do some of what is due at ``now``."""
        if not self.due or self.due > now:
            return
        for consumer in self._later:
            self._open_for(consumer)
        self._later.clear()
        for id in list(islice(self._lost, A_TURN)):
            self._lost.pop(id, None)
            job = self._store.jobs.get(id)
            if job is not None and job.state == ACTIVE and job.retry:
                self._store.limits.taken_back(job)
                if self._dead_letters.is_spent(job):
                    self._dead_letters.bury(job, BY_ATTEMPTS)
                else:
                    self._requeue.enqueue(job, False, schema.BY_DISCONNECT)
        self._call()

    def cron(self) -> None:
        """Go on where the append-only file could not be written, if it can be now."""
        if self.open and not self._machine.write_problem:
            self._queues.ring()

    def flush(self) -> None:
        """All jobs and queues are forgotten; who consumed goes on."""
        self._by_job.clear()
        self._lost.clear()
        self._later.clear()
        for consumer in list(self.by_client.values()):
            consumer.in_hand = {}
            consumer.size = 0
            consumer.waits = False
            if consumer.names:
                self._open_for(consumer)
            else:
                del self.by_client[consumer.client]
        self.due = 0
