"""The command ``pressure``: queues for shell pipelines.

Owns the commands, one function each, and the exit status. Results go to standard output; errors are
one line on standard error.
"""

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import trio

from disque_pressure import doctor
from disque_pressure.arguments import parse
from disque_pressure.command import Run
from disque_pressure.connecting import client_for, where
from disque_pressure.console import (
    FAILED,
    OK,
    SIGNALLED,
    USAGE,
    Failed,
    Signals,
    TerminalCounter,
    fill_streams,
    say,
    stopped_by_signals,
)
from disque_pressure.errors import PressureError, QueueClosedError
from disque_pressure.listing import queues
from disque_pressure.queue import PressureQueue
from disque_pressure.settings import Settings
from disque_pressure.streams import STDOUT, get, put, tail
from disque_pressure.tasks import aside
from disque_trio.process.one_line import show_traceback
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.redis.servers import Sentinels, Server

if TYPE_CHECKING:
    from disque_trio.client import Client as DisqueClient


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; see ``arguments``."""
    return run(parse(arguments))


def run(options: argparse.Namespace) -> int:
    """Run the command with these options and return its exit status."""
    fill_streams()
    try:
        settings = where(options)
    except ValueError as wrong:
        say(str(wrong))
        return USAGE
    try:
        client = client_for(options, settings)
    except ValueError as wrong:
        say(str(wrong))
        return FAILED
    try:
        return trio.run(_run, options, settings, client)
    except KeyboardInterrupt:  # before any role was taken
        return SIGNALLED + signal.SIGINT


async def _run(options: argparse.Namespace, settings: Settings, client: Server | Sentinels) -> int:
    # Where elements are typed or shown, a progress line would be in the way.
    beside = {"put": sys.stdin, "get": sys.stdout}.get(options.command)
    progress = TerminalCounter(quiet=options.quiet or (beside is not None and beside.isatty()))
    signals = Signals()
    status = FAILED
    try:
        async with stopped_by_signals() as signals:
            run = Run(options, settings, client, progress)
            await _COMMANDS[options.command](run)
            print(end="", flush=True)
            status = OK
    except BrokenPipeError:
        _forget_output()
        status = SIGNALLED + signal.SIGPIPE
    except (PressureError, Failed, RedisUnavailable, RedisError, OSError, ValueError) as failure:
        progress.end()
        show_traceback(options.debug)
        say(_told(failure, options))
        if isinstance(failure, OSError):
            _forget_output()  # the failure may be that of the output
    progress.end()
    return status if signals.caught is None else SIGNALLED + signals.caught


def _told(failure: Exception, options: argparse.Namespace) -> str:
    text = " ".join(str(failure).split()) or type(failure).__name__
    name = getattr(failure, "queue", None) or getattr(options, "name", None)
    if name is not None and repr(name) not in text:
        text = f"queue {name!r}: {text}"
    return text


def _forget_output() -> None:
    # Nobody reads it. Without this, Python would complain again at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


async def _create(run: Run) -> None:
    async with run.queue() as queue:
        await queue.create(run.options.bound, force=run.options.force)


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
    found = await queues(run.settings, run.client, cluster=run.options.cluster)
    if run.options.json:
        for entry in found:
            print(json.dumps(entry._asdict()))
        return
    for entry in found:
        bound = "-" if entry.bound is None else entry.bound
        length = "-" if entry.length is None else entry.length
        print(f"{entry.name}\t{length}\t{bound}\t{'closed' if entry.closed else 'open'}")


async def _doctor(run: Run) -> None:
    options = run.options
    async with run.queue() as queue:
        if options.free is not None:
            blamed = await queue.repair(options.free, options.held_by)
            if blamed is None:
                print(f"the role of {options.free} was already free")
            else:
                who = blamed or "a client that did not give its id"
                print(f"freed the role of {options.free}; it was held by {who}")
        diagnosis = await doctor.examine(queue)
    for line in diagnosis.lines:
        print(line)
    for finding in diagnosis.findings:
        print(f"! {finding.text}")
    if not diagnosis.findings:
        print("in order")


async def _pipe(run: Run) -> None:
    # Imported here, since the other commands do not need it and start sooner without it.
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


async def _from_disque(run: Run, client: "DisqueClient", queue: PressureQueue) -> None:
    from disque_pressure.pipe import to_pressure

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


async def _to_disque(run: Run, client: "DisqueClient", queue: PressureQueue) -> None:
    from disque_pressure.pipe import JobOptions, to_disque

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
    "put": put,
    "get": get,
    "tail": tail,
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
