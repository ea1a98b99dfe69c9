"""Settles the jobs of tasks that have ended, for as long as that takes.

A slot waits only a moment for that, and may then run other tasks. While no node is reached, the
outcomes are kept here, and the jobs' heartbeats go on, so that a node that comes back does not
deliver a job elsewhere before it has taken the outcome. If it gives the job to this worker again,
while its task runs or later, the task does not run again: the job is settled as that run ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from disque_trio.client import AuthError, ConnectionLost, DisqueError, NoUniqueError
from disque_trio.respclient.concurrency import CancelScope, Event, Nursery, library
from disque_trio.respclient.errors import LeavingError
from disque_trio.respclient.log import library_log
from disque_trio.respclient.retry import Retry
from disque_trio.tasks.ending import Ended, Ending, Held
from disque_trio.tasks.messages import describe

PATIENCE: Final = 1.0
"""Seconds that a slot waits for a node to take the outcome of its task."""

MOST: Final = 1000
"""How many outcomes are kept. With more, slots wait: they take no jobs until a node has taken
outcomes."""

MOST_BYTES: Final = 64 << 20
"""How many bytes the kept outcomes and their jobs may take, likewise."""

PASSING: Final = (ConnectionLost, LeavingError, AuthError, NoUniqueError)
"""Errors after which a node may still take the outcome, later on. A node that was killed while it
added what follows a job may leave a copy elsewhere; until that one has ended, nobody can tell
whether it was added, which may take longer than all attempts of the job."""


class Log(Protocol):
    """Where to say what could not be settled."""

    def warning(self, event: str, **fields: Any) -> object: ...


class _Open:
    """A job whose task has ended and which is not settled.

    Attributes:
        job: the job as it was delivered last.
        settled: set when nothing more is done for it.
        ended: how it ended in fact, once it is settled.
        attempt: cancels the current attempt; None: there was none.
        dropped: nobody settles it any more.
        size: the memory it takes, in bytes, roughly.
    """

    def __init__(self, job: Held, ending: Ending) -> None:
        self.job = job
        self.ending = ending
        self.settled: Event = library().Event()
        self.ended: Ended | None = None
        self.attempt: CancelScope | None = None
        self.dropped = False
        self.size = len(job.body) + ending.size


class _Run:
    """A task that runs. ``again``: its job as it was delivered last, if it came again."""

    def __init__(self) -> None:
        self.again: Held | None = None


class Settling:
    """The jobs of a worker that are not settled although their tasks have ended. A client runs
    this as a source of deliveries; when it closes, it waits for two seconds.

    Args:
        log: None: structlog's.

    Attributes:
        ended: see ``Source``.
    """

    def __init__(self, log: Log | None = None) -> None:
        self._log = library_log("disque.tasks") if log is None else log
        self._open: dict[str, _Open] = {}
        self._running: dict[str, _Run] = {}
        self._served = False
        self._bytes = 0
        self._nursery: Nursery | None = None
        self._told_full = False
        self._hearing = 0  # who wait for a job to be settled

    @contextmanager
    def running(self, job: Held) -> Iterator[None]:
        """Note that the task of ``job`` runs in this block, which also settles the job."""
        run = self._running[job.id] = _Run()
        try:
            yield
        finally:
            # Once it is settled, the job may have come again, and its next attempt may run.
            if self._running.get(job.id) is run:
                del self._running[job.id]
                if run.again is not None:  # it was stopped, so that its slot gives the job back
                    run.again.end()

    async def settle(self, job: Held, ending: Ending) -> Ended:
        """Settle a job, in the background if that takes longer than a moment. Wait until there is
        room for more.

        Returns:
            How the job ended, as far as is known.
        """
        run = self._running.pop(job.id, None)
        if run is not None and run.again is not None:
            job.end()
            job = run.again
        else:
            self._detach(job)
        entry = self._open[job.id] = _Open(job, ending)
        self._bytes += entry.size
        patience = PATIENCE
        if self._nursery is not None:
            # A NACK that is repeated would count twice, so what is given back is not begun here.
            if ending.ended.kind == "done":
                begun = library().current_time()
                with library().move_on_after(PATIENCE, shield=True) as entry.attempt:
                    await self._try(entry)
                if entry.ended is not None and not entry.dropped:
                    self._close(entry)
                    return entry.ended
                job.goes_on = False  # its slot goes on
                patience = max(0.0, begun + PATIENCE - library().current_time())
            if not entry.dropped:
                self._nursery.start_soon(self._settle, entry)
        return await self._wait(entry, patience)

    async def again(self, job: Held) -> bool:
        """If the task of ``job`` runs here or has ended here, settle the job as that run ends.

        Returns:
            Whether it does; False: the job is to be run.
        """
        entry = self._open.get(job.id)
        if entry is None:
            run = self._running.get(job.id)
            if run is None:
                return False
            earlier, run.again = run.again, job
            self._detach(job)
            if earlier is not None:
                earlier.end()
            return True
        if entry.ending.ended.kind in ("retried", "runaway") and job.nacks > entry.job.nacks:
            # A node has taken the NACK although its reply was lost: this is the next attempt.
            self._drop(entry)
            return False
        self._detach(job)
        job.goes_on = False  # its slot may be gone before the job is settled
        before, entry.job = entry.job, job
        before.end()
        if entry.attempt is not None:
            entry.attempt.cancel()
        await self._wait(entry, PATIENCE)
        return True

    @property
    def left(self) -> list[str]:
        """The ids of the jobs that are not settled."""
        return list(self._open)

    async def settled(self) -> None:
        """Wait until all jobs are settled."""
        while self._open:
            await self._hear()

    def give_up(self) -> list[str]:
        """Settle nothing more. Returns the ids of the jobs that were left: they come again."""
        left = self.left
        for entry in list(self._open.values()):
            self._drop(entry)
        return left

    # ---- as a source of the client ----------------------------------------------------------

    def _detach(self, job: Held) -> None:
        if not self._served:
            self._served = True
            self.ended: Event = library().Event()
            self._news: Event = library().Event()
            self._retired: Event = library().Event()
        job.detach(self)

    async def run(self) -> None:
        """Settle jobs until the client closes."""
        try:
            async with library().open_nursery() as self._nursery:
                for entry in self._open.values():
                    self._nursery.start_soon(self._settle, entry)
                await self._retired.wait()
                await self.settled()
        finally:
            self._nursery = None
            self._served = False
            if left := self.give_up():
                self._log.warning("jobs not settled", count=len(left), ids=left[:100])
            self.ended.set()

    def retire(self) -> None:
        """End once all jobs are settled."""
        self._retired.set()

    # ---- one job ----------------------------------------------------------------------------

    async def _settle(self, entry: _Open) -> None:
        retry = Retry(float("inf"))
        while not entry.dropped and entry.ended is None:
            with library().CancelScope() as entry.attempt:
                if not await self._try(entry):
                    entry.job.goes_on = False  # its slot has gone on
                    await retry.again()
        if not entry.dropped:
            self._close(entry)

    async def _try(self, entry: _Open) -> bool:
        """Try to settle a job. Return False if that is to be tried again."""
        job = entry.job
        try:
            entry.ended = await entry.ending.send(job)
        except PASSING:
            return False
        except Exception as error:
            entry.ended = Ended("lost", entry.ending.ended.error or describe(error))
            expected = isinstance(error, DisqueError)
            self._log.warning(
                "job not settled", id=job.id, error=describe(error), exc_info=not expected
            )
            job.release()  # it comes again after its retry time
        return True

    async def _wait(self, entry: _Open, seconds: float) -> Ended:
        with library().move_on_after(seconds, shield=True):
            await entry.settled.wait()
        while not entry.settled.is_set() and self._full:
            if not self._told_full:
                self._told_full = True
                self._log.warning("no more jobs until a node takes outcomes", count=len(self._open))
            await self._hear()
        self._told_full = self._told_full and self._full
        return entry.ended or entry.ending.ended

    @property
    def _full(self) -> bool:
        return len(self._open) >= MOST or self._bytes >= MOST_BYTES

    def _drop(self, entry: _Open) -> None:
        entry.dropped = True
        if entry.attempt is not None:
            entry.attempt.cancel()
        self._close(entry)
        entry.job.end()

    def _close(self, entry: _Open) -> None:
        """Forget a job: it is settled, or nobody does that any more."""
        del self._open[entry.job.id]
        self._bytes -= entry.size
        entry.settled.set()
        if self._hearing:
            self._news.set()
            self._news = library().Event()

    async def _hear(self) -> None:
        """Wait until a job is settled, or nobody does that any more."""
        self._hearing += 1
        try:
            await self._news.wait()
        finally:
            self._hearing -= 1
