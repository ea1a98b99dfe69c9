"""The command `pressure`: queues for shell pipelines.

Owns the commands, one function each, and the exit status. What they say goes to standard output;
what is wrong is one line on standard error.
"""

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

import coredis
import trio
from coredis.exceptions import RedisError

from disque_trio.pressure import doctor
from disque_trio.pressure.arguments import parse
from disque_trio.pressure.console import (
    FAILED,
    OK,
    SIGNALLED,
    USAGE,
    Failed,
    Progress,
    Signals,
    say,
    stopped_by_signals,
)
from disque_trio.pressure.elements import (
    Framing,
    Splitter,
    chunks,
    joined,
    reader_gone,
    whole,
    write,
    write_some,
)
from disque_trio.pressure.errors import (
    PressureError,
    QueueAlreadyExistsError,
    QueueClosedError,
    QueueEmptyError,
)
from disque_trio.pressure.following import Follower
from disque_trio.pressure.listing import queues
from disque_trio.pressure.queue import PressureQueue
from disque_trio.pressure.reading import Reader, reading
from disque_trio.pressure.roles import Producer
from disque_trio.pressure.settings import Settings, resolve
from disque_trio.pressure.tasks import aside
from disque_trio.redis_link import LinkLost

if TYPE_CHECKING:
    from disque_trio.client import Client

BATCH = 100
"""Elements of one put or get."""
POLL = 0.2
"""Seconds between two looks of `tail --follow`."""
STDIN, STDOUT = 0, 1


class Run(NamedTuple):
    """What a command works with."""

    options: argparse.Namespace
    settings: Settings
    progress: Progress

    def queue(self, name: str | None = None) -> PressureQueue:
        """The queue that the command line names."""
        return PressureQueue(
            self.options.name if name is None else name,
            server=self.settings.server,
            port=self.settings.port,
            db=self.settings.db,
            prefix=self.settings.prefix,
            client=self.client(),
        )

    def client(self) -> "coredis.Redis[bytes] | None":
        """What connections have to be like if there is a password, else None."""
        password = os.environ.get("REDISCLI_AUTH")
        if not password:
            return None
        where = self.settings
        return coredis.Redis(host=where.server, port=where.port, db=where.db, password=password)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit status, see `arguments`."""
    options = parse(arguments)
    try:
        settings = resolve(options.server, options.port, options.db, options.prefix)
    except ValueError as wrong:
        say(str(wrong))
        return USAGE
    try:
        return trio.run(_run, options, settings)
    except KeyboardInterrupt:  # before there was anything to give back
        return SIGNALLED + signal.SIGINT


async def _run(options: argparse.Namespace, settings: Settings) -> int:
    # Where elements are typed or shown, a line that is written over and over is in the way.
    beside = {"put": sys.stdin, "get": sys.stdout}.get(options.command)
    progress = Progress(quiet=options.quiet or (beside is not None and beside.isatty()))
    signals = Signals()
    status = FAILED
    try:
        async with stopped_by_signals() as signals:
            run = Run(options, settings, progress)
            await _COMMANDS[options.command](run)
            print(end="", flush=True)
            status = OK
    except BrokenPipeError:
        _forget_output()
        status = SIGNALLED + signal.SIGPIPE
    except (PressureError, Failed, LinkLost, RedisError, OSError, ValueError) as failure:
        progress.end()
        say(_told(failure, options))
        if isinstance(failure, OSError):
            _forget_output()  # perhaps it is the output that failed
    progress.end()
    return status if signals.caught is None else SIGNALLED + signals.caught


def _told(failure: Exception, options: argparse.Namespace) -> str:
    text = " ".join(str(failure).split()) or type(failure).__name__
    name = getattr(failure, "queue", None) or getattr(options, "name", None)
    if name is not None and repr(name) not in text:
        text = f"queue {name!r}: {text}"
    return text


def _forget_output() -> None:
    # Nobody reads it: without this Python would complain once more at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


async def _create(run: Run) -> None:
    async with run.queue() as queue:
        await queue.create(run.options.bound, force=run.options.force)


async def _put(run: Run) -> None:
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
        elif await queue.closed():  # now, and not when the first element is there
            raise QueueClosedError(queue.name)
        if options.hold:
            async with queue.producer(options.timeout) as producer:
                await _put_input(run, splitter, producer)
                if options.close:
                    await producer.close()
        else:
            await _put_input(run, splitter, queue)
            if options.close:
                await queue.close(options.timeout)


async def _put_input(run: Run, splitter: Splitter, target: PressureQueue | Producer) -> None:
    async def put(elements: list[bytes]) -> None:
        for at in range(0, len(elements), BATCH):
            batch = elements[at : at + BATCH]
            await target.put_many(batch, run.options.timeout)
            run.progress.add(len(batch))

    async with aside(run.progress.run), aclosing(chunks(STDIN)) as stream:
        async for data in stream:
            await put(splitter.feed(data))
        await put(splitter.end())


async def _get(run: Run) -> None:
    options = run.options
    framing = Framing.BLOCK if options.block else Framing.NUL if options.null else Framing.LINE
    left: int | None = options.count
    async with (
        run.queue() as queue,
        reading(queue, options.timeout) as reader,
        aside(run.progress.run, _until_unread),
    ):
        while left is None or left > 0:
            try:
                elements = await reader.look(
                    BATCH if left is None else min(BATCH, left),
                    0 if options.no_wait else options.timeout,
                )
            except QueueClosedError:
                return
            except QueueEmptyError:
                if options.no_wait:
                    return
                raise
            await _hand_over(run, reader, elements, framing)
            if left is not None:
                left -= len(elements)


async def _hand_over(run: Run, reader: Reader, elements: list[bytes], framing: Framing) -> None:
    """Write elements, then take them; those that were not written stay in the queue."""
    data = joined(elements, framing)
    safe = written = 0
    try:
        while written < len(data):
            written += await write_some(STDOUT, data, written)
        safe = len(elements)
    except trio.Cancelled:
        # A signal in the middle: what was written whole is to be taken, or it would come twice.
        safe = whole(elements, framing, written)
        raise
    finally:
        if safe:
            with trio.CancelScope(shield=True):
                strays = await reader.remove(elements[:safe])
                run.progress.add(safe + len(strays))
                await write(STDOUT, joined(strays, framing))


async def _until_unread() -> None:
    await reader_gone(STDOUT)
    raise BrokenPipeError


async def _tail(run: Run) -> None:
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


async def _length(run: Run) -> None:
    async with run.queue() as queue:
        print(await queue.length())


async def _stats(run: Run) -> None:
    async with run.queue() as queue:
        fields = dataclasses.asdict(await queue.stats())
    if run.options.json:
        print(json.dumps({"name": queue.name, **fields}))
        return
    for name, value in fields.items():
        print(f"{name}: {_shown(value)}")


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


async def _close(run: Run) -> None:
    async with run.queue() as queue:
        await queue.close(run.options.timeout)


async def _delete(run: Run) -> None:
    async with run.queue() as queue:
        await queue.delete(run.options.timeout)


async def _list(run: Run) -> None:
    found = await queues(run.settings, run.client())
    if run.options.json:
        for entry in found:
            print(json.dumps(entry._asdict()))
        return
    for entry in found:
        bound = "-" if entry.bound is None else entry.bound
        print(f"{entry.name}\t{entry.length}\t{bound}\t{'closed' if entry.closed else 'open'}")


async def _doctor(run: Run) -> None:
    options = run.options
    async with run.queue() as queue:
        if options.free is not None:
            blamed = await queue.repair(options.free, options.user)
            if blamed is None:
                print(f"the role of {options.free} was free already")
            else:
                who = blamed or "a client that had not given its id"
                print(f"freed the role of {options.free}; it was held by {who}")
        diagnosis = await doctor.examine(queue)
    for line in diagnosis.lines:
        print(line)
    for finding in diagnosis.findings:
        print(f"! {finding.text}")
    if not diagnosis.findings:
        print("in order")


async def _pipe(run: Run) -> None:
    # Here, because all other commands can do without it and start sooner.
    from disque_trio.client import DisqueError, connect

    options = run.options
    nodes = options.node or ["127.0.0.1:7711"]
    password = os.environ.get("DISQUECLI_AUTH")
    try:
        async with (
            connect(nodes, password=password, retry_for=10.0) as client,
            run.queue(options.from_pressure or options.to_pressure) as queue,
            aside(run.progress.run),
        ):
            if options.to_pressure is not None:
                await _from_disque(run, client, queue)
            else:
                await _to_disque(run, client, queue)
    except DisqueError as failure:
        raise Failed(f"Disque: {failure}") from failure


async def _from_disque(run: Run, client: "Client", queue: PressureQueue) -> None:
    from disque_trio.pressure.pipe import to_pressure

    options = run.options
    if await queue.closed():  # before a job is taken
        raise QueueClosedError(queue.name)
    await to_pressure(
        client,
        options.from_disque,
        queue,
        count=options.count,
        wait=not options.no_wait,
        timeout=options.timeout,
        moved=run.progress.add,
    )
    if options.close:
        await queue.close(options.timeout)


async def _to_disque(run: Run, client: "Client", queue: PressureQueue) -> None:
    from disque_trio.pressure.pipe import JobOptions, to_disque

    options = run.options
    await to_disque(
        queue,
        client,
        options.to_disque,
        count=options.count,
        wait=not options.no_wait,
        timeout=options.timeout,
        options=JobOptions(options.replicate, options.ttl, options.retry),
        moved=run.progress.add,
    )


_COMMANDS: dict[str, Callable[[Run], Awaitable[None]]] = {
    "create": _create,
    "put": _put,
    "get": _get,
    "tail": _tail,
    "length": _length,
    "stats": _stats,
    "close": _close,
    "delete": _delete,
    "list": _list,
    "doctor": _doctor,
    "pipe": _pipe,
}


if __name__ == "__main__":
    sys.exit(main())
