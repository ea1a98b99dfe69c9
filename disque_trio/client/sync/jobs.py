"""Jobs that a thread works on, and the loop over them."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Self, TypeVar

from disque_trio.client import jobs, tracing
from disque_trio.client.client import Client
from disque_trio.client.sync.portal import Portal
from disque_trio.respclient.errors import ConnectionLost
from disque_trio.respclient.thread_loop import Blocking, Loop, blocking

R = TypeVar("R")


class HeldJob(jobs.JobFields, Blocking[jobs.HeldJob]):
    """A job that a thread works on; see ``disque_trio.client.HeldJob``.

    WORKING is sent by another thread, also while this one computes or waits.
    """

    def __init__(self, portal: Portal, loop: Loop[Client], job: jobs.HeldJob) -> None:
        self._portal = portal
        self._loop = loop
        self._job: jobs.HeldJob = job

    def __repr__(self) -> str:
        return repr(self._job)

    @property
    def id(self) -> str:
        """Its id, as the server gave it."""
        return self._job.id

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self._job.queue

    @property
    def body(self) -> bytes:
        """What was added."""
        return self._job.body

    @property
    def settled(self) -> bool:
        """It was acknowledged, given back or released: nothing more will be sent for it."""
        return self._job.settled

    @property
    def lost(self) -> bool:
        """The server no longer keeps it for this client: another consumer may get it."""
        return self._job.lost

    @property
    def goes_on(self) -> bool:
        """This thread will take the next job from the same loop, and so may have it pushed with the
        answer to what settles this one, a round trip earlier."""
        return self._job.goes_on

    @goes_on.setter
    def goes_on(self, goes_on: bool) -> None:
        self._job.goes_on = goes_on

    ack: Final = blocking(jobs.HeldJob.ack)
    fastack: Final = blocking(jobs.HeldJob.fastack)
    nack: Final = blocking(jobs.HeldJob.nack)
    dead: Final = blocking(jobs.HeldJob.dead)
    requeue: Final = blocking(jobs.HeldJob.requeue)

    def release(self) -> None:
        """Send nothing more for it. The caller takes care of it by its id, or the server delivers
        it again when its time is over."""

        async def release(job: jobs.HeldJob) -> None:
            job.release()

        self._run(release)

    def _run(self, call: Callable[[jobs.HeldJob], Awaitable[R]]) -> R:
        return self._portal.run(lambda _: call(self._job), loop=self._loop)


class Jobs(Iterator[HeldJob]):
    """The worker loop: ``for job in client.jobs("queue")``. It is for one thread; ``stop`` and
    ``close`` may be called by others.

    - Asking for the next job acknowledges the one before, unless it is settled.
    - Leaving the loop by ``break`` or an exception gives the current job back (NACK): at the end of
      the ``with`` block if the loop is in one (``with client.jobs("q") as jobs: for job in jobs:
      ...``), else in the background as soon as Python disposes of the loop, at the latest when
      the client closes.
    - To leave after a job that is done: ``job.ack()``, then ``break``; or ``stop()``.

    Fetching raises what ``Client.get`` raises.
    """

    def __init__(self, portal: Portal, start: Callable[[Client], jobs.Jobs]) -> None:
        self._portal = portal
        self._loop = portal.loop()
        self._jobs = start(self._loop.value)
        self._processing: tracing.Processing | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> HeldJob:
        self._leave()
        try:
            job = self._run(jobs.Jobs.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        if job.processing is not None:
            # What it did in the loop's thread is not seen in this one.
            job.processing.activate()
            self._processing = job.processing
        return HeldJob(self._portal, self._loop, job)

    def _leave(self) -> None:
        if self._processing is not None:
            self._processing.leave()
            self._processing = None

    def __del__(self) -> None:
        if hasattr(self, "_processing"):  # it began
            self._leave()

    def stop(self) -> None:
        """Take nothing new: the loop ends when it asks for the next one, or at once if it waits.

        What is in hand can be finished, and is acknowledged as always.
        """
        self._run(jobs.Jobs.stop)

    def close(self) -> None:
        """Give back what is not settled. Errors are not raised: the server delivers it again when
        its time is over."""
        self._leave()
        try:
            self._run(jobs.Jobs.aclose)
        except ConnectionLost:
            pass  # the client is closed, which gave it back

    def _run(self, call: Callable[[jobs.Jobs], Awaitable[R]]) -> R:
        return self._portal.run(lambda _: call(self._jobs), loop=self._loop)
