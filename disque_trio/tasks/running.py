"""Runs the tasks of jobs and settles the jobs: the core of a worker."""

import trio

from disque_trio.client.jobs import HeldJob
from disque_trio.tasks.app import Disque
from disque_trio.tasks.calling import InLoop
from disque_trio.tasks.execution import Execution, Kind, Outcome

__all__ = ["Kind", "Outcome", "Runner"]


class Runner:
    """Runs jobs of the tasks of ``app``, within ``app.using(client)``. Any number of jobs may run
    at once.

    Args:
        app: the app with the tasks.
        limiter: limits the threads for functions that are not async; None: Trio's default.
    """

    def __init__(self, app: Disque, *, limiter: trio.CapacityLimiter | None = None) -> None:
        self._execution = Execution(app.core, InLoop(limiter, app.core.backend))

    async def run(self, job: HeldJob) -> Outcome:
        """Run the task of ``job`` and settle the job.

        The job must have been fetched with its headers. It is acknowledged with the result, given
        back with a delay, or sent to the dead letters. Jobs that follow it are added first.

        Raises nothing but the cancellation of the caller. If cancelled before the task has ended,
        the job is not settled; if later, there are five seconds to settle it.
        """
        return await self._execution.run(job)
