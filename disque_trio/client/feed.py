"""Jobs that a node pushes on a connection of their own (CONSUME), for tasks that wait for them.

The node pushes only as many jobs as tasks wait for. The credit given to it is the number of tasks
that wait, plus the number of jobs that tasks hold. A task that asks for its next job acknowledges
the previous one by that, so the credit stays the same and the next job comes with the reply to the
ACKJOB. When the number changes, a CREDIT goes out first, on the same connection.

If a job arrives although nobody waits any more, because its task was cancelled, it is put back with
ENQUEUE.
"""

from collections import deque
from collections.abc import Callable

from disque_trio.client import replies, tracing
from disque_trio.client.jobs import HeldJob, Job
from disque_trio.client.router import Router
from disque_trio.client.session import Session
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import Event, library
from disque_trio.respclient.connection import Batch, Connection, Reply
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.errors import ConnectionLost, DisqueError, LeavingError
from disque_trio.respclient.values import Name


class _Taker:
    """A task that waits for a job. When ``woken`` is set, ``job`` is the job, or None."""

    __slots__ = ("job", "woken")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.woken = library().Event()


class Feed:
    """The jobs that are pushed on ``connection``. Run by ``in_flight``.

    A feed is made for a first task, which then calls ``begin`` and ``take``.

    Args:
        router, session: where commands about the jobs go when the connection is lost.
        in_flight: the jobs that are not settled.
        queues: the queues to consume.

    Attributes:
        over: no more jobs come.
        ended: set when the connection is closed.
        let_go: a job was released, and must not be queued again before its retry time.
    """

    def __init__(
        self,
        connection: Connection,
        router: Router,
        session: Session,
        in_flight: InFlight,
        queues: tuple[Name, ...],
    ) -> None:
        self.session = session
        self.over: bool = False
        self.ended: Event = library().Event()
        self.let_go: bool = False
        self._connection = connection
        self._router = router
        self._in_flight = in_flight
        self._queues = queues
        self._takers: dict[_Taker, None] = {}
        self._coming = 1  # tasks about to wait: those whose ACKJOB also asks for the next job
        self._ready: deque[Job] = deque()  # for the tasks in ``_coming``
        self._jobs: set[HeldJob] = set()
        self._in_hand = 0  # jobs held, or handed to a task, that use up credit
        self._ended_elsewhere = 0  # those among them that the node no longer counts
        self._credit = 1
        self._last = Batch([], 0, library().Event())  # the last command whose reply is not awaited
        self._last.done.set()
        self._retired = library().Event()
        self._unused = library().Event()
        self._failure: Callable[[], DisqueError] | None = None
        connection.on_push = self._pushed

    # ---- tasks that want a job --------------------------------------------------------------

    async def begin(self, withheaders: bool) -> bool:
        """Ask the node to push jobs, with their headers if wanted. Return False if it cannot.

        Raises:
            ConnectionLost, ReplyError: see ``Session.asks``.
        """
        command = ["CONSUME", *self._queues, "CREDIT", self._credit, "WITHCOUNTERS"]
        if withheaders or tracing.tracer is not None:
            command.append("WITHHEADERS")
        try:
            begun = await self.session.asks(self._connection, *command)
        except BaseException:
            self.retire()  # a job may be on its way
            raise
        if not begun:
            self._connection.close()
        return begun

    async def take(self) -> HeldJob | None:
        """Wait for a job and keep hold of it. Return None if the feed was retired.

        There is no checkpoint before this task counts as waiting, nor between the arrival of the
        job and the return.

        Raises:
            ConnectionLost: the connection broke.
            LeavingError: the node is leaving the cluster.
        """
        if self._coming:
            self._coming -= 1
        if self._ready:
            job: Job | None = self._ready.popleft()
            self._in_hand += 1
        else:
            job = None if self.over else await self._wait()
        if job is not None:
            return self._hold(job)
        if self._failure is not None:
            raise self._failure()
        return None

    async def _wait(self) -> Job | None:
        taker = _Taker()
        self._takers[taker] = None
        self._update_credit()
        try:
            await taker.woken.wait()
        except BaseException:
            self._takers.pop(taker, None)
            if taker.job is not None:
                self._in_hand -= 1
                self._update_credit()
                self._offer(taker.job)
            self._update_credit()
            raise
        return taker.job

    def _hold(self, job: Job) -> HeldJob:
        self.session.job_taken()
        held = HeldJob(self._router, self.session, job, self._settled, self)
        self._jobs.add(held)
        self._in_flight.add(held)
        return held

    # ---- jobs that arrive -------------------------------------------------------------------

    def _pushed(self, message: list[Reply]) -> None:
        if message[0] == b"job":
            self._offer(replies.job(message[1:]))
        elif message[0] == b"stopped":
            self._end(lambda: LeavingError("LEAVING", f"{self.session.address} stopped pushing"))

    def _offer(self, job: Job) -> None:
        """Give ``job`` to a task, or put it back if no task wants it."""
        if self._takers:
            taker = next(iter(self._takers))
            del self._takers[taker]
            taker.job = job
            taker.woken.set()
            self._in_hand += 1
        elif len(self._ready) < self._coming and not self.over:
            self._ready.append(job)
        else:
            if self._last.done.is_set():
                # The node knows how many are wanted, so it counts fewer jobs than are in hand
                # here: it may have queued one of them again.
                self._ended_elsewhere += 1
            self._update_credit()
            self._submit("ENQUEUE", job.id)

    def _update_credit(self) -> None:
        """Tell the node how many jobs are wanted here, if that number has changed."""
        self._ended_elsewhere = min(self._ended_elsewhere, self._in_hand)
        credit = len(self._takers) + self._coming + self._in_hand - self._ended_elsewhere
        if credit != self._credit and not self.over:
            self._credit = credit
            self._submit("CREDIT", credit)

    def _submit(self, *command: Argument) -> None:
        self._last = self._connection.submit([command])

    # ---- jobs that end ----------------------------------------------------------------------

    async def settle(self, job: HeldJob, commands: list[list[Argument]]) -> list[Reply]:
        """Send commands, the last of which ends the delivery of ``job``, and return the replies.

        If the job is ``processed`` or ``goes_on``, its task will take the next one.

        Raises:
            ConnectionLost, LeavingError: the reply to one of the commands.
            ReplyError: the reply to the last command.
        """
        next_ones = 1 if (job.processed or job.goes_on) and not self.over else 0
        self._in_hand -= 1
        self._coming += next_ones
        self._ended_elsewhere = max(self._ended_elsewhere - 1, 0)
        self._update_credit()
        try:
            answers = await self._connection.execute_many(commands)
            for answer in answers:
                if isinstance(answer, ConnectionLost | LeavingError):
                    raise answer
            if isinstance(answers[-1], DisqueError):
                raise answers[-1]
            return answers
        except BaseException:
            self._in_hand += 1
            self._coming = max(self._coming - next_ones, 0)
            while len(self._ready) > self._coming:
                self._offer(self._ready.pop())
            self._update_credit()
            raise

    async def execute(self, *command: Argument) -> Reply:
        """Send a command about one of the feed's jobs and return the reply. Raises ReplyError,
        ConnectionLost."""
        return await self._connection.execute(*command)

    def _settled(self, job: HeldJob) -> None:
        self._jobs.discard(job)
        self._in_flight.discard(job)
        self.session.job_settled()
        self._unused.set()

    def released(self) -> None:
        """Note that somebody else takes care of a job, and take no more jobs.

        The node goes on counting that job against the credit, for an unknown time.
        """
        self.let_go = True
        self.retire()

    # ---- the end ----------------------------------------------------------------------------

    def retire(self) -> None:
        """Take no more jobs, and close the connection once those in hand are settled."""
        self._end(None)

    def _end(self, failure: Callable[[], DisqueError] | None) -> None:
        """Take no more jobs. Waiting tasks raise ``failure()``, or get None without ``failure``."""
        if self.over:
            return
        self.over = True
        self._failure = failure
        takers, self._takers = self._takers, {}
        for taker in takers:
            taker.woken.set()
        while self._ready:
            self._offer(self._ready.popleft())
        self._retired.set()

    async def run(self) -> None:
        """Run the feed until it is retired and its jobs are settled, or the connection breaks."""
        connection = self._connection
        try:
            async with library().open_nursery() as nursery:
                nursery.start_soon(self._wind_up)
                await connection.ended.wait()
                nursery.cancel_scope.cancel()
        finally:
            connection.close()
            address = self.session.address
            self._end(lambda: ConnectionLost(f"{address}: connection lost", maybe_executed=True))
            for job in self._jobs:
                # The node queues the job again: send WORKING before another consumer gets it.
                job.hurry()
            self.ended.set()

    async def _wind_up(self) -> None:
        await self._retired.wait()
        stop: list[list[Argument]] = [["CONSUME", "STOP"]]
        await self._connection.execute_many(stop)
        while self._jobs:
            self._unused = library().Event()
            await self._unused.wait()
        if self.let_go:
            # Closing a connection gives its jobs back, unless the client asks for this.
            calm: list[Argument] = ["CONSUME", *self._queues, "CREDIT", 1, "ONLOSS", "retry"]
            await self._connection.execute_many([calm, *stop])
        while not self._last.done.is_set():
            await self._last.done.wait()
        self._connection.close()
