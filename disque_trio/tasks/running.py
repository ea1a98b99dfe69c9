"""Runs the task of a job, and settles the job: what a worker is made of."""

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
        app: whose tasks they are.
        limiter: of the threads for functions that are not async; None: Trio's own.
    """

    def __init__(self, app: Disque, *, limiter: trio.CapacityLimiter | None = None) -> None:
        self._execution = Execution(app.core, InLoop(limiter, app.core.backend))

    async def run(self, job: HeldJob) -> Outcome:
        """Run the task of ``job``, which was fetched with its headers, and settle the job: it is
        acknowledged with the result, given back with a delay, or sent to the dead letters. What
        follows it is added before.

        Raises nothing but the cancellation of the caller. If that comes before the task has ended
        the job is not settled; behind it, there are five seconds to settle it.
        """
        return await self._execution.run(job)
