"""``pressure put``, ``get`` and ``tail``: queues in shell pipelines.

Owns the transfer of bytes between the standard streams and a queue, and that no element is removed
from a queue before it is written.
"""

from contextlib import aclosing
from functools import partial

import trio

from disque_pressure.command import Run
from disque_pressure.console import say
from disque_pressure.elements import (
    Framing,
    Splitter,
    chunks,
    joined,
    reader_gone,
    whole,
    write,
    write_some,
)
from disque_pressure.errors import (
    PressureError,
    QueueAlreadyExistsError,
    QueueClosedError,
)
from disque_pressure.following import Follower
from disque_pressure.queue import PressureQueue
from disque_pressure.reading import BATCH, Reader, reading
from disque_pressure.roles import Producer
from disque_pressure.tasks import aside, reprieve
from disque_trio.redis.connection import GRACE_SECONDS

POLL = 0.2
"""Seconds between two looks of ``tail --follow``."""
STDIN, STDOUT = 0, 1


async def put(run: Run) -> None:
    """Run ``pressure put``: lines of standard input become elements."""
    options = run.options
    if options.block:
        splitter = Splitter(Framing.BLOCK, options.block)
    else:
        splitter = Splitter(Framing.NUL if options.null else Framing.LINE)
    async with run.queue() as queue:
        if options.create:
            try:
                await queue.create(options.bound)
            except QueueAlreadyExistsError:
                pass
        elif await queue.closed():  # fail now, not at the first element
            raise QueueClosedError(queue.name)
        if options.hold:
            async with queue.producer(options.timeout) as producer:
                await _put_input(run, splitter, queue, producer)
                if options.close:
                    await producer.close()
        else:
            await _put_input(run, splitter, queue, queue)
            if options.close:
                await queue.close(options.timeout)


async def _put_input(
    run: Run, splitter: Splitter, queue: PressureQueue, target: PressureQueue | Producer
) -> None:
    progress = run.progress
    waits = partial(waited_for, queue, queue.uid)

    async def put_all(elements: list[bytes]) -> None:
        for at in range(0, len(elements), BATCH):
            before = progress.elements

            def count(done: int, before: int = before) -> None:
                progress.elements = before + done

            progress.waits = waits
            batch = elements[at : at + BATCH]
            await target.put_many(batch, run.options.timeout, progress=count)
            progress.waits = None

    async with aside(progress.run), aclosing(chunks(STDIN)) as stream:
        async for data in stream:
            await put_all(splitter.feed(data))
        await put_all(splitter.end())


async def waited_for(queue: PressureQueue, me: str) -> str:
    """Describe what a put of the client ``me`` waits for; empty if nothing can be seen."""
    try:
        stats = await queue.stats()
    except PressureError:
        return ""  # the put will report it
    if stats.bound is not None and stats.length >= stats.bound:
        return f"waiting for room ({stats.length:,} of {stats.bound:,})"
    if not stats.producer_free and stats.producer != me:
        return f"waiting for the producer {stats.producer!r}"
    return ""


async def get(run: Run) -> None:
    """Run ``pressure get``: write elements to standard output, then remove them."""
    options = run.options
    framing = Framing.BLOCK if options.block else Framing.NUL if options.null else Framing.LINE
    async with (
        run.queue() as queue,
        reading(queue, options.timeout) as reader,
        aside(run.progress.run, _until_unread),
    ):
        await reader.drain(
            partial(_hand_over, run, reader, framing),
            count=options.count,
            wait=not options.no_wait,
            timeout=options.timeout,
        )


async def _hand_over(run: Run, reader: Reader, framing: Framing, elements: list[bytes]) -> None:
    """Write elements, then remove them; those that were not written stay in the queue."""
    data = joined(elements, framing)
    safe = written = 0
    try:
        while written < len(data):
            written += await write_some(STDOUT, data, written)
        safe = len(elements)
    except trio.Cancelled:
        # Interrupted by a signal: remove what was written completely, or it would come twice.
        safe = whole(elements, framing, written)
        raise
    except BrokenPipeError:
        raise  # nobody knows how much of the output was read
    except OSError:
        safe = whole(elements, framing, written)  # a full disk, for example
        raise
    finally:
        if safe:
            async with reprieve(GRACE_SECONDS):
                strays = await reader.remove(elements[:safe])
                run.progress.add(safe + len(strays))
                await write(STDOUT, joined(strays, framing))


async def _until_unread() -> None:
    await reader_gone(STDOUT)
    raise BrokenPipeError


async def tail(run: Run) -> None:
    """Run ``pressure tail``: show the newest elements, and those that follow."""
    options = run.options
    framing = Framing.NUL if options.null else Framing.LINE
    async with run.queue() as queue, aside(_until_unread):
        follower = Follower(queue)
        elements, _ = await follower.look(options.count)
        await write(STDOUT, joined(elements, framing))
        while options.follow and not follower.over:
            await trio.sleep(POLL)
            elements, missed = await follower.look()
            if missed:
                say(f"queue {queue.name!r}: {missed} elements were taken before they were shown")
            await write(STDOUT, joined(elements, framing))
