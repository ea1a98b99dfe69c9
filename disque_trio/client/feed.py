"""Jobs that a node pushes on a connection of their own (CONSUME), for tasks that wait for them.

The node pushes only as many jobs as tasks wait for. The credit given to it is the number of tasks
that wait, plus the number of jobs that tasks hold. A task that asks for its next job acknowledges
the previous one by that, so the credit stays the same and the next job comes with the reply to the
ACKJOB. When the number changes, a CREDIT goes out first, on the same connection.

If a job arrives although nobody waits any more, because its task was cancelled, it is put back with
ENQUEUE.
"""

from collections import deque

from disque_trio.client import tracing
from disque_trio.client.job import Job
from disque_trio.client.jobs import HeldJob
from disque_trio.client.pushes import STOP, Own, Pushes
from disque_trio.client.requests import Pattern
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.connection import Batch, Reply
from disque_trio.respclient.values import Name


class _Taker:
    """A task that waits for a job. When ``woken`` is set, ``job`` is the job, or None."""

    __slots__ = ("job", "woken")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.woken = library().Event()


class Feed(Pushes):
    """The jobs that are pushed on ``connection``, for tasks that ask for one.

    A feed is made for a first task, which then calls ``take``.

    Args:
        own: see ``Pushes``.
        names: the queues to consume.
        withheaders: whether to get jobs with their headers.
        pattern: whether the names are patterns; see ``Supply``.
        calm: see ``Client.loops``.

    Attributes:
        queues: the queues, if they are known by name.
        let_go: a job was released, and must not be queued again before its retry time.
        moved: it was retired since another node is better.
    """

    def __init__(
        self,
        *own: *Own,
        names: tuple[Name, ...],
        withheaders: bool,
        pattern: Pattern,
        calm: bool = False,
    ) -> None:
        super().__init__(*own)
        self.queues: tuple[Name, ...] = () if pattern else names
        self.by_pattern: bool = bool(pattern)
        self._names = names
        self._pattern = pattern
        self.let_go: bool = False
        self.moved: bool = False
        self._withheaders = withheaders
        self._calm = calm
        self._takers: dict[_Taker, None] = {}
        self._coming = 1  # tasks about to wait: those whose ACKJOB also asks for the next job
        self._ready: deque[Job] = deque()  # for the tasks in ``_coming``
        self._in_hand = 0  # jobs held, or handed to a task, that use up credit
        self._ended_elsewhere = 0  # those among them that the node no longer counts
        self._credit = 1
        self._last = Batch([], 0, library().Event())  # the last command whose reply is not awaited
        self._last.done.set()

    # ---- tasks that want a job --------------------------------------------------------------

    def consume(self) -> list[Argument]:
        command = self._consume(self._credit)
        command.append("WITHCOUNTERS")
        if self._withheaders or tracing.tracer is not None:
            command.append("WITHHEADERS")
        if self._calm:
            known = ["WITHCANCELS", "ONLOSS", "soon"]
            command += known if self.session.knows_soon else ["ONLOSS", "retry"]
        return command

    def _consume(self, credit: int) -> list[Argument]:
        command: list[Argument] = ["CONSUME", *self._names, "CREDIT", credit]
        if self._pattern:
            command.append("PATTERN")
        if self._pattern == "nodead":
            command.append("NODEAD")
        return command

    def ask_less(self) -> bool:
        if not (self._calm and self.session.knows_soon):
            return False
        self.session.knows_soon = False
        return True

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
            return self.hold(job)
        if self.failure is not None:
            raise self.failure()
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
                self.arrived(taker.job)
            self._update_credit()
            raise
        return taker.job

    # ---- jobs that arrive -------------------------------------------------------------------

    def arrived(self, job: Job) -> None:
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
        self._last = self.connection.submit([command])

    # ---- jobs that end ----------------------------------------------------------------------

    async def settle(self, job: HeldJob, commands: list[list[Argument]]) -> list[Reply]:
        """See ``Pushes.settle``. If the job is ``processed`` or ``goes_on``, its task will take the
        next one."""
        next_ones = 1 if (job.processed or job.goes_on) and not self.over else 0
        self._in_hand -= 1
        self._coming += next_ones
        self._ended_elsewhere = max(self._ended_elsewhere - 1, 0)
        self._update_credit()
        try:
            return await super().settle(job, commands)
        except BaseException:
            self._in_hand += 1
            self._coming = max(self._coming - next_ones, 0)
            while len(self._ready) > self._coming:
                self.arrived(self._ready.pop())
            self._update_credit()
            raise

    def cancelled(self, job: HeldJob | None, *, terminate: bool) -> None:
        """Note that a job was cancelled, which the node no longer counts. Tell it how many jobs are
        wanted while the task goes on: it waits for that."""
        super().cancelled(job, terminate=terminate)
        self._ended_elsewhere += 1
        self._update_credit()

    def dropped(self) -> None:
        """Note that the task of a cancelled job has ended."""
        self._in_hand -= 1
        self._ended_elsewhere = max(self._ended_elsewhere - 1, 0)
        self._update_credit()

    def released(self) -> None:
        """Note that somebody else takes care of a job, and take no more jobs.

        The node goes on counting that job against the credit, for an unknown time.
        """
        self.let_go = True
        self.retire()

    # ---- the end ----------------------------------------------------------------------------

    def move(self) -> None:
        """Take no more jobs here, since another node is better now."""
        self.moved = True
        self.retire()

    def finished(self) -> None:
        """Waiting tasks raise ``failure()``, or get None without it."""
        takers, self._takers = self._takers, {}
        for taker in takers:
            taker.woken.set()
        while self._ready:
            self.arrived(self._ready.popleft())

    async def last_words(self) -> None:
        if self.let_go:
            # Closing a connection gives its jobs back, unless the client asks for this.
            calm = [*self._consume(1), "ONLOSS", "retry"]
            await self.connection.execute_many([calm, STOP])
        while not self._last.done.is_set():
            await self._last.done.wait()
