"""The slots of a worker process: each takes a job when it is free, and runs its task."""

import math
import time
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

import trio

from disque_trio.client import Client, DisqueError, HeldJob, Jobs, NoPermError
from disque_trio.client.requests import Pattern
from disque_trio.job_past import Past
from disque_trio.process.logs import Log
from disque_trio.tasks.definition import Definition
from disque_trio.tasks.messages import describe
from disque_trio.tasks.running import Outcome, Runner
from disque_trio.worker.ledger import APART, RUNNING, TAKEN
from disque_trio.worker.link import MappedPage
from disque_trio.worker.round_robin import QueueWeight, RoundRobin
from disque_trio.worker.tally import Tally, Waits

_PAUSE = 1.0  # s until a slot that cannot take a job tries again


class Lane(NamedTuple):
    """What a slot takes jobs from: a loop for each order of ``round_robin``, which decides which
    one is next."""

    loops: Sequence[Jobs]
    round_robin: RoundRobin


def orders_of(
    queues: Sequence[QueueWeight], count: int, apart: Set[str], places: int, *, strict: bool
) -> list[tuple[int, RoundRobin]]:
    """Return how many of ``count`` slots serve queues in which order.

    Args:
        queues: those that all of them together serve.
        apart: those that have nothing but tasks which run in other processes. places: how many of
            these run at a time; a slot with one more would only wait.
        strict: see ``RoundRobin``.
    """
    elsewhere = [queue for queue in queues if queue.name in apart]
    here = [queue for queue in queues if queue.name not in apart]
    if not elsewhere or count <= places:
        return [(count, RoundRobin(queues, strict=strict))]
    found = [(places, RoundRobin(elsewhere, strict=strict, then=here))]
    if here:
        found.append((count - places, RoundRobin(here, strict=strict)))
    return found


def lanes_of(
    client: Client, orders: Sequence[tuple[int, RoundRobin]], *, by_pattern: bool = False
) -> list[Lane]:
    """Return the lanes of slots; see ``orders_of``. ``by_pattern``: names of queues may be
    patterns."""
    pattern: Pattern = "nodead" if by_pattern else False
    lanes = []
    for count, round_robin in orders:
        loops = [
            client.loops(*order, count=count, withheaders=True, pattern=pattern, calm=True)
            for order in round_robin.orders
        ]
        lanes += [Lane(own, round_robin) for own in zip(*loops, strict=True)]
    return lanes


class Slots:
    """Slots that take jobs round robin until they are told to stop.

    A slot gives credit for one job at a time, when it is free. So no job waits in this process.

    Args:
        lanes: provide the jobs of each slot.
        runner: runs them.
        tally: counts what becomes of the jobs.
        waits: counts how long slots wait for jobs.
        page: gets the jobs, and the deadline of the first task that has one.
        definition: returns the task of a job; None: it is not known.
        on_outcome: called after each job; returns whether to take more.

    Attributes:
        in_hand: the jobs whose tasks are running, with the scopes that cancel them.
        apart: how many of these run in other processes, or wait for one (``process=True``).
        refusal: why no more jobs are taken, if the user may not take any; else None.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        runner: Runner,
        *,
        tally: Tally,
        waits: Waits,
        page: MappedPage,
        definition: Callable[[HeldJob], Definition | None],
        on_outcome: Callable[[Outcome], bool],
        log: Log,
    ) -> None:
        self.in_hand: dict[HeldJob, trio.CancelScope] = {}
        self.apart: int = 0
        self.refusal: NoPermError | None = None
        self._runner = runner
        self._tally = tally
        self._waits = waits
        self._page = page
        self._definition = definition
        self._on_outcome = on_outcome
        self._log = log
        self._deadlines: dict[HeldJob, float] = {}
        self._returning: set[trio.CancelScope] = set()
        self._last = math.inf  # when jobs must have been handed back
        self._stopped = False
        self._told = ""  # the last error with which no job could be taken
        self._lanes = lanes

    async def run(self) -> None:
        """Run jobs until ``stop`` is called or jobs are refused, and all running tasks have
        ended."""
        async with trio.open_nursery() as nursery:
            for lane in self._lanes:
                nursery.start_soon(self._serve, lane)

    async def stop(self) -> None:
        """Take no more jobs."""
        self._stopped = True
        # All at once: a slot whose connection another one has given up would open a new one.
        async with trio.open_nursery() as nursery:
            for lane in self._lanes:
                for loop in lane.loops:
                    nursery.start_soon(loop.stop)

    async def quiet(self) -> None:
        """Wait, after ``stop``, until no job is on its way: one that is handed back would come to
        another connection of this process, and once more to the queue when that is closed."""
        for lane in self._lanes:
            for loop in lane.loops:
                await loop.quiet()

    def hand_back(self, within: float) -> None:
        """Cancel the tasks. Their jobs are queued again, which does not count as a failure.

        Args:
            within: how long the client may try that, in seconds. Without a node, jobs come back
                after their retry time.
        """
        self._last = trio.current_time() + within
        for scope in self._returning:
            scope.deadline = self._last
        for scope in self.in_hand.values():
            scope.cancel()

    async def _serve(self, lane: Lane) -> None:
        loops, round_robin = lane
        order = round_robin.next()
        while not self._stopped:
            self._waits.begin(time.monotonic())
            try:
                job = await anext(loops[order])
            except StopAsyncIteration:
                return
            except NoPermError as error:
                self.refusal = error  # until somebody changes the user's rules
                await self.stop()
                return
            except DisqueError as error:
                self._tally.errors += 1
                if str(error) != self._told:  # once, not once for each slot
                    self._told = str(error)
                    self._log.warning("no job can be taken", error=self._told)
                await trio.sleep(_PAUSE)
                continue
            finally:
                self._waits.end(time.monotonic())
            self._told = ""
            self._tally.last_job = time.time()
            following = round_robin.next()
            job.goes_on = following == order
            await self._work(job)
            order = following

    async def _work(self, job: HeldJob) -> None:
        """Run the task of ``job``, which is then settled, or will be, or was handed back."""
        outcome: Outcome | None = None
        broken = ""
        ledger = self._page.ledger
        with trio.CancelScope() as scope:
            self.in_hand[job] = scope
            definition = self._definition(job)
            apart = definition is not None and definition.process
            self.apart += apart
            limit = math.inf
            if definition is not None and not apart:  # those are limited one by one
                limit = self._limit(job, definition.timeout)
            runs = APART if apart else RUNNING
            place = ledger.take(job.id, job.address, TAKEN if job.nacks else runs, limit)
            try:
                if job.nacks:
                    past = Past.read(await job.last_reason())
                    ledger.begin(place, APART if past.is_suspect else runs, limit, past)
                outcome = await self._runner.run(job)
            except Exception as error:
                broken = describe(error)
                self._log.warning("a job broke its worker", job=job.id, exc_info=True)
        self._let_go(job)
        self.apart -= apart
        if outcome is not None:
            self._tally.add(outcome.task, job.queue, outcome.kind, outcome.seconds)
            self._report(job, outcome)
        if not (job.settled or job.detached):
            await self._return(job, broken)
        if job.settled:
            ledger.drop(place)
        else:
            ledger.end(place, lambda: job.settled)
        if outcome is not None and not self._on_outcome(outcome):
            self._stopped = True  # now: this slot would take another job before ``stop`` is called

    async def _return(self, job: HeldJob, broken: str) -> None:
        """Hand a job back. ``broken``: why it failed here; empty: it did not."""
        problem = "no node answers"
        with trio.CancelScope(deadline=self._last) as scope:
            self._returning.add(scope)
            try:
                reason = await job.last_reason()
                if broken:  # with a reason, since that is a failure that counts
                    await job.nack(reason=Past.read(reason).reason(broken))
                elif reason or not job.nacks:
                    await job.requeue(reason=Past.read(reason).stopped().reason())
                else:
                    await (
                        job.requeue()
                    )  # what it has been through is not known, and must not be lost
                return
            except DisqueError as error:
                problem = str(error)
            finally:
                self._returning.discard(scope)
        # The job comes again after its retry time.
        self._log.warning("a job was not handed back", job=job.id, error=problem)
        job.release()

    def _limit(self, job: HeldJob, limit: float | None) -> float:
        """Note that the task of ``job`` begins, which may take ``limit`` seconds; return when it
        must have ended."""
        if limit is None:
            return math.inf
        deadline = self._deadlines[job] = time.monotonic() + limit
        self._page.deadline = min(self._deadlines.values())
        return deadline

    def _let_go(self, job: HeldJob) -> None:
        del self.in_hand[job]
        if self._deadlines.pop(job, None) is not None:
            self._page.deadline = min(self._deadlines.values(), default=math.inf)

    def _report(self, job: HeldJob, outcome: Outcome) -> None:
        failed = outcome.failed
        tell = self._log.warning
        if outcome.kind != "lost" and (failed is None or failed.is_expected):
            tell = self._log.verbose
        elif failed is not None and failed.next_in is None:
            tell = self._log.error
        fields: dict[str, object] = {"task": outcome.task, "queue": job.queue, "job": job.id}
        if failed is not None:
            most = "" if failed.most is None else f" of {failed.most}"
            fields["attempt"] = f"{failed.attempt}{most}"
        if outcome.error:
            fields["error"] = outcome.error
        if failed is not None and failed.next_in is not None:
            fields["next_in"] = round(failed.next_in, 3)
        fields["seconds"] = round(outcome.seconds, 3)
        if outcome.trace:
            fields["exception"] = outcome.trace
        tell("task " + outcome.kind, **fields)
