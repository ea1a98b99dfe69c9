"""Runs the task of a job, and settles the job."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import trio

from disque_trio.client.jobs import HeldJob
from disque_trio.tasks.app import Disque

Kind: TypeAlias = Literal["done", "retried", "dead", "postponed", "runaway", "lost"]
"""How a run ended.

- ``done``: the task returned, and the job is acknowledged.
- ``retried``: it failed, and comes again.
- ``dead``: it failed for good, or nobody here can do it.
- ``postponed``: it has to wait for other jobs, and comes again; no task has run.
- ``runaway``: a function that is not async goes on after its timeout, and its thread cannot be
  stopped. The job is settled, as ``retried`` or ``dead``; the process should end.
- ``lost``: the job could not be settled, as no node was reached or it is somebody else's now; it
  comes again where it has not ended.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run of a job ended.

    Attributes:
        kind: see ``Kind``.
        task: name of the task; empty if the job does not say.
        seconds: that it took.
        error: what went wrong, as ``ValueError: no such address``; empty: nothing.
    """

    kind: Kind
    task: str
    seconds: float
    error: str = ""


class Runner:
    """Runs jobs of the tasks of ``app``, within ``app.using(client)``. Any number of jobs may run
    at once.

    Args:
        app: whose tasks they are.
        limiter: of the threads for functions that are not async; None: Trio's own.
    """

    def __init__(self, app: Disque, *, limiter: trio.CapacityLimiter | None = None) -> None:
        self._app = app
        self._limiter = limiter

    async def run(self, job: HeldJob) -> Outcome:
        """Run the task of ``job``, which was fetched with its headers, and settle the job: it is
        acknowledged with the result, given back with a delay, or sent to the dead letters. What
        follows it is added before. Raises nothing but the cancellation of the caller, and then the
        job is not settled.
        """
        raise NotImplementedError
