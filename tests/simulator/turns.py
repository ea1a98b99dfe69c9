"""Checks that jobs leave their queue in the order of their group while some of them lie on disk."""

from inspect import isfunction
from typing import TYPE_CHECKING

from disque_trio.node.core.jobs.job import FLAGS_PRIORITY, QUEUED, Job
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.store import JobStore

if TYPE_CHECKING:
    from tests.simulator.machine import Machine


def watch(machine: "Machine") -> None:
    """Check each job that ``machine`` takes out of a queue; not if it is compiled, as its methods
    cannot be replaced then."""
    if not isfunction(JobStore.hand_out):
        return
    store = machine.node.store
    hand_out = store.hand_out

    def checked(queue: Queue, job: Job | None = None) -> Job:
        found = hand_out(queue, job)
        if job is None and not machine.node.lagging:
            _check(machine, queue, found)
        return found

    store.hand_out = checked  # type: ignore[method-assign]


def _check(machine: "Machine", queue: Queue, job: Job) -> None:
    """Check that no job of its group was before ``job``, which was taken out of ``queue``."""
    if machine.node.paging.pages.jobs == 0:
        return
    for other in machine.jobs.values():
        if (
            other.state == QUEUED
            and other.queue == queue.name
            and _place(other) < _place(job)
            and (not queue.grouped or _group(machine, other) == _group(machine, job))
        ):
            machine.world.oracle.problem("left its queue before this one", job.id, other.id)
            return


def _place(job: Job) -> tuple[int, int, bytes]:
    return -(job.flags & FLAGS_PRIORITY), job.ctime, job.id


def _group(machine: "Machine", job: Job) -> bytes:
    return machine.node.store.trailers.group(job)
