"""The worker loop and everything that keeps hold of jobs.

Owns the set of jobs that the client works on (`Workbench`), the `async for` loop (`Jobs`) and the
loop that calls a handler (`work`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType

import structlog
import trio

from disque_trio.client.errors import DisqueError
from disque_trio.client.fetch import fetch
from disque_trio.client.jobs import HeldJob
from disque_trio.client.requests import Name
from disque_trio.client.router import Router

_log = structlog.get_logger("disque.client")

_FINISH_SECONDS = 2.0
"""How long giving back jobs may take when the caller is cancelled or the client closes."""


class Workbench:
    """The jobs being worked on. `nursery` runs their WORKING and outlives the caller's scopes."""

    def __init__(self, router: Router, nursery: trio.Nursery) -> None:
        self._router = router
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self._held: set[HeldJob] = set()

    async def take(self, queues: tuple[Name, ...]) -> HeldJob:
        """Wait for a job and keep hold of it. No checkpoint between its arrival and the return."""
        while True:
            session, jobs = await fetch(self._router, queues, timeout=None)
            if jobs:
                held = HeldJob(self._router, session, jobs[0], self._held.discard)
                self._held.add(held)
                self._nursery.start_soon(held.keep_working)
                return held

    async def finish(self, jobs: Iterable[HeldJob]) -> None:
        """Settle jobs as their loops were left, shielded, within a short time; never raises.

        A job for which this fails comes back after its retry time.
        """
        jobs = list(jobs)
        with trio.move_on_after(_FINISH_SECONDS, shield=True):
            async with trio.open_nursery() as nursery:
                for job in jobs:
                    nursery.start_soon(_finish, job)
        for job in jobs:
            job.release()

    def abandon(self, job: HeldJob) -> None:
        """Settle a job in the background. Safe to call from a finaliser, at any point."""

        def start() -> None:
            if job in self._held:
                self._nursery.start_soon(self.finish, [job])

        try:
            self._token.run_sync_soon(start)
        except trio.RunFinishedError:
            pass

    async def close(self) -> None:
        """Settle all jobs."""
        if self._held:
            await self.finish(self._held)


async def _finish(job: HeldJob) -> None:
    try:
        await job.finish()
    except DisqueError as error:
        _log.warning("job not given back", job=job.id, error=str(error))


class Jobs(AsyncIterator[HeldJob]):
    """The worker loop: `async for job in client.jobs("queue")`.

    - Asking for the next job acknowledges the one before, unless it is settled.
    - Leaving the loop by `break`, an exception or cancellation gives the current job back (NACK):
      at the end of the `async with` block if the loop is in one (`async with client.jobs("q") as
      jobs: async for job in jobs: ...`), else in the background as soon as Python disposes of the
      loop, at the latest when the client closes.
    - To leave after a job that is done: `await job.ack()`, then `break`.

    Fetching raises what `Client.get` raises.
    """

    def __init__(self, workbench: Workbench, queues: tuple[Name, ...]) -> None:
        self._current: HeldJob | None = None
        self._workbench = workbench
        self._queues = queues
        if not queues:
            raise ValueError("at least one queue is needed")

    async def __aenter__(self) -> "Jobs":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> "Jobs":
        return self

    async def __anext__(self) -> HeldJob:
        if self._current is not None:
            self._current.processed = True
            await self._current.ack()
            self._current = None
        # No checkpoint after the job's arrival: a cancellation finds it either with the node or
        # in `_current`.
        self._current = await self._workbench.take(self._queues)
        return self._current

    async def aclose(self) -> None:
        """Give the current job back, if it is not settled; also when cancelled, for a short time.

        Errors are not raised: the node delivers the job again after its retry time.
        """
        current, self._current = self._current, None
        if current is not None and not current.settled:
            await self._workbench.finish([current])

    def __del__(self) -> None:
        # An abandoned loop must not keep its job from everybody else by WORKING for ever.
        if self._current is not None and not self._current.settled:
            self._workbench.abandon(self._current)


async def work(
    workbench: Workbench,
    handler: Callable[[HeldJob], Awaitable[object]],
    queues: tuple[Name, ...],
    concurrency: int,
) -> None:
    """See `Client.work`."""
    failure: DisqueError | None = None

    async def worker() -> None:
        nonlocal failure
        try:
            async with Jobs(workbench, queues) as jobs:
                async for job in jobs:
                    try:
                        await handler(job)
                    except Exception:
                        _log.exception("job failed", job=job.id, queue=job.queue)
                        await job.nack()
        except DisqueError as error:
            # Raised below: out of a nursery it would be a group, and `except ConnectionLost`
            # would not catch it.
            failure = failure or error
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for _ in range(concurrency):
            nursery.start_soon(worker)
    if failure is not None:
        raise failure
