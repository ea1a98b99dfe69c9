"""Runs the tasks of jobs and settles the jobs: the core of a worker."""

import trio

from disque_trio.client.jobs import HeldJob
from disque_trio.tasks.app import Disque
from disque_trio.tasks.calling import CallerApart, InLoop
from disque_trio.tasks.ending import Kind
from disque_trio.tasks.execution import Execution, Outcome
from disque_trio.tasks.settling import Log, Settling

__all__ = ["Kind", "Outcome", "Runner"]


class Runner:
    """Runs jobs of the tasks of ``app``, within ``app.using(client)``. Any number of jobs may run
    at once.

    Args:
        app: the app with the tasks.
        limiter: limits the threads for functions that are not async; None: Trio's default.
        log: where to say what could not be settled, or is unknown; None: structlog's.
        apart: runs tasks with ``process=True``, and those whose processes have died, each in a
            process of its own; None: they run here, like others.
    """

    def __init__(
        self,
        app: Disque,
        *,
        limiter: trio.CapacityLimiter | None = None,
        log: Log | None = None,
        apart: CallerApart | None = None,
    ) -> None:
        self._settling = Settling(log)
        caller = InLoop(limiter, app.core.backend)
        self._execution = Execution(app.core, caller, self._settling, apart, log)

    async def run(self, job: HeldJob) -> Outcome:
        """Run the task of ``job`` and settle the job.

        The job must have been fetched with its headers. It is acknowledged with the result, given
        back with a delay, or sent to the dead letters. Jobs that follow it are added first.

        If no node takes the outcome within a second, this returns all the same, and the client
        of the job goes on with it in the background. If the same job is delivered again meanwhile,
        it is settled in the same way, and its task does not run again.

        Raises nothing but the cancellation of the caller. If cancelled before the task has ended,
        the job is not settled; if later, it is.
        """
        return await self._execution.run(job)

    async def shutdown(self) -> None:
        """Call the app's hooks for the end of a process."""
        await self._execution.shutdown()

    async def settled(self) -> None:
        """Wait until the jobs of all tasks that have ended are settled."""
        await self._settling.settled()

    def give_up(self) -> list[str]:
        """Settle nothing more. Returns the ids of jobs that were not settled: they come again."""
        return self._settling.give_up()
