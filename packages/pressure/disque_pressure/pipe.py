"""The bridge between Disque and pressure, both ways, at least once.

Owns the order of the steps: an element is removed from one side only when the other side has it. A
bridge that dies in between moves some elements twice, but loses none.

- From Disque: a job is acknowledged once its element is in the list. While the queue is full,
  WORKING keeps its jobs from being delivered again.
- To Disque: an element is removed from the list once the job is added, which means that as many
  nodes as requested have it. See ``reading``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from disque_pressure.errors import (
    PressureError,
    QueueFullError,
    QueueInUseError,
)
from disque_pressure.hold import Hold
from disque_pressure.keys import PRODUCER
from disque_pressure.queue import PressureQueue
from disque_pressure.reading import BATCH, Reader, reading
from disque_pressure.tasks import aside, reprieve
from disque_trio.client import AddManyError, Client, DisqueError, Job

SLICE = 0.5
"""Seconds for one attempt to put elements. A cancellation waits for the end of the attempt (for
SETTLE at most), so that it is certain how many elements are in the queue."""
GRACE = 0.05
"""Seconds before the first WORKING."""
SETTLE = 5.0
"""Seconds to settle jobs at the end, even when cancelled."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of the jobs that are added; None: the node's default.

    Attributes:
        replicate: how many nodes must have the job.
        ttl, retry: seconds.
    """

    replicate: int | None = None
    ttl: int | None = None
    retry: int | None = None


def _ignore(_: int) -> None:
    pass


async def to_pressure(
    client: Client,
    source: str,
    queue: PressureQueue,
    *,
    count: int | None = None,
    wait: bool = True,
    timeout: float | None = None,
    moved: Callable[[int], None] = _ignore,
) -> None:
    """Move jobs of the Disque queue ``source`` into a pressure queue, until cancelled.

    Args:
        count: end after this many jobs.
        wait: False ends when the source is empty.
        timeout: seconds without room or without the role after which it fails.
        moved: called with the number of further jobs that are in the queue and acknowledged.

    Raises:
        PressureError: a put failed. Jobs that are not in the list are given back to Disque.
        DisqueError: no node can be reached any more.
    """
    left = count
    while left is None or left > 0:
        most = BATCH if left is None else min(BATCH, left)
        jobs = await client.get(source, count=most, nohang=not wait, withcounters=False)
        if not jobs:
            return
        await _put(client, jobs, queue, timeout, moved)
        if left is not None:
            left -= len(jobs)


async def _put(
    client: Client,
    jobs: list[Job],
    queue: PressureQueue,
    seconds: float | None,
    moved: Callable[[int], None],
) -> None:
    done = 0
    try:
        async with aside(partial(_keep_working, client, jobs)):
            patience = trio.current_time() + (float("inf") if seconds is None else seconds)
            while done < len(jobs):
                bodies = [job.body for job in jobs[done:]]
                some, problem = 0, None
                async with reprieve(SETTLE):
                    some, problem = await _put_some(queue, bodies, patience)
                    done += some
                now = trio.current_time()
                if some and seconds is not None:
                    patience = now + seconds
                if problem is not None and now >= patience:
                    raise problem
                await trio.lowlevel.checkpoint()
    except PressureError as error:
        if not isinstance(error, QueueFullError | QueueInUseError):  # those were counted
            done += error.done
        raise
    finally:
        with trio.move_on_after(SETTLE, shield=True):
            await _settle(client, jobs[:done], jobs[done:])
            moved(done)


async def _put_some(
    queue: PressureQueue, elements: list[bytes], reply_by: float
) -> tuple[int, QueueFullError | QueueInUseError | None]:
    """Put elements for a limited time. Return how many are in, and what kept the others out.

    Waits for a stalled Redis until ``reply_by``; otherwise nobody would know which elements are in
    the queue, and some would come twice.
    """
    hold = Hold(PRODUCER, queue.uid)
    try:
        return await queue.engine.put(hold, elements, SLICE, reply_by=reply_by), None
    except QueueFullError as full:
        return full.done, full
    except QueueInUseError as used:
        return 0, used


async def _settle(client: Client, done: Sequence[Job], others: Sequence[Job]) -> None:
    if done:
        await client.ack(*(job.id for job in done))
    if others:
        await client.nack(*(job.id for job in others))


async def _keep_working(client: Client, jobs: Sequence[Job]) -> None:
    """Keep the node from delivering the jobs to other clients, until cancelled."""
    await trio.sleep(GRACE)
    while True:
        shortest = float("inf")
        for job in jobs:
            try:
                retry = await client.working(job.id)
            except DisqueError:
                continue  # too late: the job is delivered again, and comes twice
            if retry > 0:
                shortest = min(shortest, retry)
        await trio.sleep(shortest / 2)


async def to_disque(
    queue: PressureQueue,
    client: Client,
    target: str,
    *,
    count: int | None = None,
    wait: bool = True,
    timeout: float | None = None,
    options: JobOptions = JobOptions(),
    moved: Callable[[int], None] = _ignore,
) -> None:
    """Move elements of a pressure queue into the Disque queue ``target``, until the pressure queue
    is closed and empty.

    Meanwhile, the bridge is the only consumer of the pressure queue.

    Args:
        count: end after this many elements.
        wait: False ends when the queue is empty.
        timeout: seconds without the role or an element after which it fails.
        options: options of the jobs.
        moved: called with the number of further elements that are jobs and removed from the list.

    Raises:
        PressureError: an operation of the pressure queue failed.
        DisqueError: jobs were not added. Their elements stay in the queue.
    """
    async with reading(queue, timeout) as reader:

        async def hand_over(elements: list[bytes]) -> None:
            # If possible, do not let a cancellation interrupt this: elements would be on both
            # sides.
            async with reprieve(SETTLE):
                moved(await _add(reader, elements, client, target, options))
            await trio.lowlevel.checkpoint()

        await reader.drain(hand_over, count=count, wait=wait, timeout=timeout)


async def _add(
    reader: Reader, elements: list[bytes], client: Client, target: str, options: JobOptions
) -> int:
    try:
        await _add_jobs(client, target, elements, options)
    except AddManyError as error:
        # Remove what was added before the first failure; jobs added after it will come twice.
        added = 0
        while not isinstance(error.results[added], DisqueError):
            added += 1
        if added:
            await _remove(reader, elements[:added], client, target, options)
        failed = error.results[added]
        assert isinstance(failed, DisqueError)
        raise failed from error
    await _remove(reader, elements, client, target, options)
    return len(elements)


async def _remove(
    reader: Reader, elements: list[bytes], client: Client, target: str, options: JobOptions
) -> None:
    strays = await reader.remove(elements)
    if strays:
        await _add_jobs(client, target, strays, options)


async def _add_jobs(
    client: Client, target: str, elements: list[bytes], options: JobOptions
) -> list[str]:
    return await client.add_many(
        target,
        elements,
        replicate=options.replicate,
        ttl=options.ttl,
        retry=options.retry,
    )
