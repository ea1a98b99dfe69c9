"""Jobs that a thread works on, and the loop over them."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Self, TypeVar

from disque_trio.client import jobs, tracing
from disque_trio.client.client import Client
from disque_trio.client.job import JobFields
from disque_trio.client.sync.portal import Portal
from disque_trio.respclient.errors import ConnectionLost
from disque_trio.respclient.thread_loop import Blocking, Loop, blocking

R = TypeVar("R")


class HeldJob(JobFields, Blocking[jobs.HeldJob]):
    """A job that a thread is working on; see ``disque_trio.client.HeldJob``.

    Another thread sends WORKING, even while this one computes or waits.
    """

    def __init__(self, portal: Portal, loop: Loop[Client], job: jobs.HeldJob) -> None:
        self._portal = portal
        self._loop = loop
        self._job: jobs.HeldJob = job

    def __repr__(self) -> str:
        return repr(self._job)

    @property
    def id(self) -> str:
        """The job's id, as the server gave it."""
        return self._job.id

    @property
    def queue(self) -> str:
        """The name of the job's queue."""
        return self._job.queue

    @property
    def body(self) -> bytes:
        """The body of the job."""
        return self._job.body

    @property
    def settled(self) -> bool:
        """Whether the job was acknowledged, given back or released: nothing more is sent for it."""
        return self._job.settled

    @property
    def lost(self) -> bool:
        """Whether the server no longer reserves the job for this client: another consumer may get
        it."""
        return self._job.lost

    @property
    def goes_on(self) -> bool:
        """Whether this thread will take the next job from the same loop. If so, the node may push
        that job with the reply to the command that settles this one, which saves a round trip."""
        return self._job.goes_on

    @goes_on.setter
    def goes_on(self, goes_on: bool) -> None:
        self._job.goes_on = goes_on

    ack: Final = blocking(jobs.HeldJob.ack)
    fastack: Final = blocking(jobs.HeldJob.fastack)
    nack: Final = blocking(jobs.HeldJob.nack)
    dead: Final = blocking(jobs.HeldJob.dead)
    requeue: Final = blocking(jobs.HeldJob.requeue)
    update: Final = blocking(jobs.HeldJob.update)

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the job is; see ``disque_trio.client.HeldJob``."""
        self._job.progress(fraction, text)

    def release(self) -> None:
        """Send nothing more for the job.

        The caller takes care of the job by its id, or the server delivers it again after its retry
        time.
        """

        async def release(job: jobs.HeldJob) -> None:
            job.release()

        self._run(release)

    def _run(self, call: Callable[[jobs.HeldJob], Awaitable[R]]) -> R:
        return self._portal.run(lambda _: call(self._job), loop=self._loop)


class Jobs(Iterator[HeldJob]):
    """The worker loop: ``for job in client.jobs("queue")``. It is for one thread; others may call
    ``stop`` and ``close``.

    - Asking for the next job acknowledges the previous one, unless it is already settled.
    - Leaving the loop by ``break`` or an exception gives the current job back (NACK). If the loop
      is in a block (``with client.jobs("q") as jobs: for job in jobs: ...``), this happens at the
      end of the block. Otherwise it happens in the background as soon as Python disposes of the
      loop, or at the latest when the client is closed.
    - To leave after finishing a job, call ``job.ack()`` and then ``break``, or call ``stop``.

    Fetching a job raises the same exceptions as ``Client.get``.
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
            # ``activate`` was called in the loop's thread, which has no effect on this one.
            job.processing.activate()
            self._processing = job.processing
        return HeldJob(self._portal, self._loop, job)

    def _leave(self) -> None:
        if self._processing is not None:
            self._processing.leave()
            self._processing = None

    def __del__(self) -> None:
        if hasattr(self, "_processing"):  # the constructor has finished
            self._leave()

    def stop(self) -> None:
        """Take no more jobs: the loop ends when it asks for the next job, or at once if it waits.

        The current job can be finished, and is acknowledged as usual.
        """
        self._run(jobs.Jobs.stop)

    def close(self) -> None:
        """Give back the current job if it is not settled.

        Does not raise if that fails: the server delivers the job again after its retry time.
        """
        self._leave()
        try:
            self._run(jobs.Jobs.aclose)
        except ConnectionLost:
            pass  # the client is closed, and has given the job back

    def _run(self, call: Callable[[jobs.Jobs], Awaitable[R]]) -> R:
        return self._portal.run(lambda _: call(self._jobs), loop=self._loop)
