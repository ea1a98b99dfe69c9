"""Runs tasks each in a process of its own, which may die alone."""

import socket
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import trio

from disque_trio.job_past import death
from disque_trio.process.fleet import OVERRUN, how_ended
from disque_trio.process.logs import Log
from disque_trio.tasks.current import CurrentJob, current_job
from disque_trio.tasks.definition import Definition
from disque_trio.tasks.ending import Failed
from disque_trio.tasks.messages import describe
from disque_trio.tasks.retrying import is_final
from disque_trio.worker.link import SocketEnd, start_program
from disque_trio.worker.options import Options
from disque_trio.worker.reaping import reap

MOST: Final = 8
"""How many such processes there are at once; other tasks wait for one of these to end."""

_LOOK: Final = 0.25  # s; a process that a task has forked may keep the link open


class Apart:
    """Calls functions, each in a process of its own. See ``Caller``.

    Args:
        options: the command line of the worker.
        log: where to say which process runs a task.
    """

    def __init__(self, options: Options, log: Log) -> None:
        self._options = options.to_json()
        self._log = log
        self._limiter = trio.CapacityLimiter(MOST)

    async def call(
        self, definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return what the function returns. Raises Failed."""
        async with self._limiter:
            return await self._call(definition, args, kwargs)

    async def _call(
        self, definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        job = current_job()
        assert job is not None
        ours, theirs = socket.socketpair()
        with theirs:
            process = start_program("solo", theirs.fileno())
        self._log.notice("a task runs in a process of its own", job=job.id, pid=process.pid)
        link = SocketEnd(ours)
        try:
            await link.send(
                "start",
                options=self._options,
                job={
                    "id": job.id,
                    "queue": job.queue,
                    "task": job.task,
                    "attempt": job.attempt,
                    "retries": job.retries,
                    "headers": dict(job.headers),
                },
                letter=None if job.letter is None else asdict(job.letter),
                args=b64encode(definition.serializer.dumps([list(args), dict(kwargs)])).decode(),
            )
            return await self._outcome(definition, link, process, job)
        finally:
            process.kill()
            reap(process, 0)
            with trio.CancelScope(shield=True):
                await link.aclose()

    async def _outcome(
        self,
        definition: Definition,
        link: SocketEnd,
        process: "subprocess.Popen[bytes]",
        job: CurrentJob,
    ) -> Any:
        begun = False
        memory: int | None = None
        deadline = trio.current_time() + float("inf")
        ended = False  # what it said before that has yet to be read
        while True:
            with trio.move_on_after(_LOOK) as look:
                message = await link.receive()
                if message is None:
                    break
                if message["kind"] == "begun":
                    begun = True
                    if definition.timeout is not None:
                        deadline = trio.current_time() + definition.timeout + OVERRUN
                elif message["kind"] == "progress":
                    job.progress(message["fraction"], message["text"])
                elif message["kind"] == "returned":
                    return definition.serializer.loads(b64decode(message["value"]))
                else:
                    raise Failed(**message["failed"])
            if trio.current_time() >= deadline:
                late = TimeoutError(f"after {definition.timeout} s")
                raise Failed(describe(late), raised=late, final=is_final(definition, late))
            if ended and look.cancelled_caught:
                break
            memory = memory or reap(process)
            ended = process.returncode is not None
        memory = memory or reap(process, 0)
        how = death(how_ended(process.wait()), memory)
        raise Failed(how, crashed=begun)
