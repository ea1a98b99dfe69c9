"""Runs tasks in processes that run nothing else meanwhile: those that ask for it
(``process=True``), and those that may have killed their process.

Such a process starts when it is first needed, and runs one task after the other. It ends when it
has waited for a while, when its task takes too long, or when whoever cancels the job wants that.
"""

import os
import pickle
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any, Final

import trio

from disque_trio.job_past import death
from disque_trio.process.fleet import BEAT, OVERRUN, how_ended
from disque_trio.process.logs import Log
from disque_trio.tasks.core import Core
from disque_trio.tasks.current import CurrentJob
from disque_trio.tasks.definition import Definition
from disque_trio.tasks.ending import Failed, Held, JobCancelled
from disque_trio.tasks.messages import describe
from disque_trio.tasks.retrying import is_final
from disque_trio.tasks.serializers import Serializer
from disque_trio.worker.link import Message, SocketEnd, start_program
from disque_trio.worker.options import Options
from disque_trio.worker.reaping import memory_of, reap
from disque_trio.worker.warm import Warm

SUSPECTS: Final = 8
"""How many suspects run at once, each in a process of its own; others wait for one of these."""

KEEP: Final = 60.0
"""Seconds that a process waits for another task."""

GRACE: Final = 1.0
"""Seconds that a function which has to end has, to clean up, before its process is killed."""

ANSWER: Final = 10.0
"""Seconds within which a process that has run a task begins the next one; one that somebody has
stopped does not."""

_LOOK: Final = 0.25  # s; a process that a task has forked may keep the link open
_TEND: Final = 1.0  # s
_MODULE: Final = "disque_trio.worker.solo"


class Solo:
    """A process for tasks, as the worker process sees it.

    Attributes:
        runs: how many tasks it was given.
        fit: whether it may be given another one.
    """

    def __init__(self, popen: "subprocess.Popen[bytes]", link: SocketEnd) -> None:
        self.popen = popen
        self.link = link
        self.runs = 0
        self.fit = True
        self.used: int | None = None  # memory, once it has ended

    @classmethod
    async def start(cls, options: dict[str, Any]) -> "Solo":
        """Start one. Raises OSError."""
        ours, theirs = socket.socketpair()
        link = SocketEnd(ours)
        try:
            with theirs:
                solo = cls(start_program(_MODULE, theirs.fileno()), link)
        except BaseException:
            await link.aclose()
            raise
        try:
            await link.send("start", options=options)
        except BaseException:
            await solo.close()
            raise
        return solo

    async def receive(self) -> Message | None:
        """Return its next message; None: it is gone."""
        try:
            return await self.link.receive()
        except ValueError:  # it was interrupted while it wrote
            return None

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        self.used = self.used or reap(self.popen)
        return self.popen.returncode is not None

    @property
    def memory(self) -> int:
        """The memory that it uses, in bytes."""
        return 0 if self.gone else memory_of(self.popen.pid)

    def kill(self) -> None:
        """Kill it, and the programs that its task has started."""
        self.fit = False
        if not self.gone:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.popen.pid, signal.SIGKILL)

    def how(self) -> str:
        """Wait for its end, and describe that."""
        self.used = self.used or reap(self.popen, 0)
        return death(how_ended(self.popen.wait()), self.used)

    async def close(self) -> None:
        """Kill it, and close the link."""
        self.kill()
        self.how()
        with trio.CancelScope(shield=True):
            await self.link.aclose()

    async def finish(self) -> None:
        """Let it end by itself, with the app's hooks for that; kill it if that takes too long."""
        try:
            with trio.move_on_after(GRACE):
                await self.link.send("finish")
                while await self.receive() is not None:
                    pass
        finally:
            await self.close()


class _Run:
    """A run of a task in a process.

    Args:
        job: the job; ``current``: what its task sees of it.
        definition, serializer: the task, and the serializer for its result.
        alone: whether the process is ended whenever the job is cancelled.
        stuck_after: seconds without a sign of life after which it is killed; None: never.
        answer: seconds within which it has to call the function; None: any time.

    Attributes:
        begun: whether the function was called.
    """

    def __init__(
        self,
        solo: Solo,
        job: Held,
        current: CurrentJob,
        definition: Definition,
        serializer: Serializer,
        log: Log,
        *,
        alone: bool,
        stuck_after: float | None,
        answer: float | None,
    ) -> None:
        self.begun = False
        self._solo = solo
        self._job = job
        self._current = current
        self._definition = definition
        self._serializer = serializer
        self._alone = alone
        self._stuck_after = stuck_after
        self._answer = answer
        self._heard = trio.current_time()
        self._log = log
        self._late = False
        self._terminated = False
        self._told_lost = False

    async def run(self, body: bytes) -> Any:
        """Return what the function returns. Raises Failed, JobCancelled."""
        solo, job, current = self._solo, self._job, self._current
        message: Message | None = None
        cancelled = trio.Event()
        job.when_cancelled(cancelled.set)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, cancelled)
            if self._answer is not None:
                nursery.start_soon(self._see_to_beginning, self._answer)
            await solo.link.send(
                "run",
                job={
                    "id": current.id,
                    "queue": current.queue,
                    "task": current.task,
                    "attempt": current.attempt,
                    "retries": current.retries,
                    "headers": dict(current.headers),
                },
                letter=None if job.letter is None else asdict(job.letter),
                data=body,
            )
            message = await self._last_message(nursery)
            nursery.cancel_scope.cancel()
        return self._value(message)

    async def _watch(self, cancelled: trio.Event) -> None:
        """Tell the process when the job is cancelled."""
        await cancelled.wait()
        self._terminated = self._alone or self._job.terminate
        if self._terminated:
            await self._end("its job was cancelled")
        else:
            await self._tell_lost()

    async def _tell_lost(self) -> None:
        if not self._told_lost:
            self._told_lost = True
            with trio.CancelScope(shield=True):  # so that all of it is sent
                await self._solo.link.send("lost", id=self._current.id)

    async def _see_to_beginning(self, within: float) -> None:
        """Kill the process if it does not begin: another one will."""
        await trio.sleep(within)
        if not self.begun:
            self._tell_silent()
            self._solo.kill()

    def _tell_silent(self) -> None:
        self._log.warning(
            "the process of a task does not answer: it is killed",
            job=self._job.id,
            pid=self._solo.popen.pid,
        )

    async def _look_after(self, silence: float) -> None:
        """Kill the process once it has not answered for ``silence`` seconds."""
        while trio.current_time() - self._heard <= silence:
            with trio.move_on_after(silence):
                await self._solo.link.send("ping")
            await trio.sleep(min(silence / 3, BEAT))
        self._tell_silent()
        self._solo.kill()

    async def _limit(self, seconds: float) -> None:
        """End the function when its time is over."""
        await trio.sleep(seconds)
        self._late = True
        await self._end(f"it was to end within {self._definition.timeout} s")

    async def _end(self, why: str) -> None:
        self._log.notice(
            "the process of a task is ended",
            job=self._job.id,
            pid=self._solo.popen.pid,
            why=why,
        )
        with trio.move_on_after(GRACE):
            await self._solo.link.send("end")
            await trio.sleep_forever()
        self._solo.kill()

    async def _last_message(self, nursery: trio.Nursery) -> Message | None:
        """Return what the process says of the end; None: it has died."""
        solo, job, timeout = self._solo, self._job, self._definition.timeout
        while True:
            gone = solo.gone  # what it said before that has yet to be read
            with trio.move_on_after(_LOOK) as look:
                message = await solo.receive()
                self._heard = trio.current_time()
                if message is None:
                    await self._died()
                    return None
                if message["kind"] in ("returned", "raised", "cancelled"):
                    return message
                if message["kind"] == "begun":
                    self.begun = True
                    if self._stuck_after is not None:
                        nursery.start_soon(self._look_after, self._stuck_after)
                    if timeout is not None:
                        nursery.start_soon(
                            self._limit, timeout + OVERRUN * message["limits_itself"]
                        )
                elif message["kind"] == "progress":
                    job.progress(message["fraction"], message["text"])
            if gone and look.cancelled_caught:
                return None
            if job.lost:
                await self._tell_lost()

    async def _died(self) -> None:
        """Wait for the end of the process, whose link is closed: it ends, or its task has closed
        what it does not know, and nobody could hear of the task any more."""
        for _ in range(100):
            if self._solo.gone:
                return
            await trio.sleep(GRACE / 100)
        self._solo.kill()

    def _value(self, message: Message | None) -> Any:
        solo = self._solo
        runaway = message is not None and message.get("failed", {}).pop("runaway", False)
        ended = self._late or self._terminated
        solo.fit = self.begun and message is not None and not (ended or runaway)
        if self._terminated:
            raise JobCancelled
        if message is not None and message["kind"] == "returned":
            return self._loaded(message)
        if self._late:
            late = TimeoutError(f"after {self._definition.timeout} s: its process was ended")
            raise Failed(describe(late), raised=late, final=is_final(self._definition, late))
        if message is None:
            raise Failed(solo.how(), crashed=self.begun, unknown=not self.begun)
        if message["kind"] == "cancelled":
            raise JobCancelled
        raise Failed(**message["failed"], raised=_unpickled(message.get("data", b"")))

    def _loaded(self, message: Message) -> Any:
        """Return the value that the function has returned. Raises Failed."""
        if "data" not in message:
            return None
        try:
            if message.get("pickled"):
                return pickle.loads(message["data"])
            return self._serializer.loads(message["data"])
        except BaseException as error:  # it may run any code, and nothing here waits
            raise Failed(describe(error), raised=error, final=True) from None


class Apart:
    """See ``CallerApart``.

    Args:
        options: the command line of the worker.
        core: the core of the app.
        log: where to say which process runs a suspect, and which one is ended.
        keep: seconds that a process waits for another task.
        answer: seconds within which one that has run a task begins the next one.
    """

    def __init__(
        self,
        options: Options,
        core: Core,
        log: Log,
        keep: float = KEEP,
        answer: float = ANSWER,
    ) -> None:
        self._options = options
        self._core = core
        self._log = log
        self._answer = answer
        self._limiter = trio.CapacityLimiter(options.cpu_processes)
        self._suspects = trio.CapacityLimiter(SUSPECTS)
        self._warm: Warm[Solo] = Warm(keep)
        self._busy: set[Solo] = set()
        self._done: list[Solo] = []  # to be ended

    async def run(
        self, job: Held, current: CurrentJob, definition: Definition, body: bytes, *, alone: bool
    ) -> Any:
        """See ``CallerApart``."""
        limiter = self._suspects if alone else self._limiter
        with trio.CancelScope() as waiting:
            job.when_cancelled(waiting.cancel)
            await limiter.acquire()
        if waiting.cancelled_caught:
            raise JobCancelled
        try:
            if waiting.cancel_called:
                raise JobCancelled
            serializer = self._core.serializer_of(definition, current.headers)
            while True:
                solo = await self._process(fresh=alone)
                if alone:
                    self._log.notice(
                        "a task runs in a process of its own", job=job.id, pid=solo.popen.pid
                    )
                run = _Run(
                    solo,
                    job,
                    current,
                    definition,
                    serializer,
                    self._log,
                    alone=alone,
                    stuck_after=self._options.stuck_after,
                    answer=self._answer if solo.runs else None,
                )
                try:
                    async with self._using(solo, alone=alone):
                        return await run.run(body)
                except Failed:
                    if run.begun or solo.runs == 1:
                        raise
                    # It died while it waited for a task.
        finally:
            limiter.release()

    async def _process(self, *, fresh: bool) -> Solo:
        """Return a process that waits for a task. Raises Failed."""
        while not fresh and (solo := self._warm.take()) is not None:
            if not solo.gone:
                return solo
            await solo.close()
        try:
            return await Solo.start(self._options.to_json())
        except OSError as error:
            raise Failed(describe(error), raised=error, unknown=True) from None

    @asynccontextmanager
    async def _using(self, solo: Solo, *, alone: bool) -> AsyncIterator[None]:
        solo.runs += 1
        solo.fit = False
        self._busy.add(solo)
        try:
            yield
        finally:
            self._busy.discard(solo)
            if not solo.fit:
                await solo.close()
            elif alone or self._is_worn(solo):
                self._done.append(solo)
            else:
                self._warm.put(solo, trio.current_time())

    def _is_worn(self, solo: Solo) -> bool:
        """Whether to replace a process that has run a task."""
        tasks, memory = self._options.max_tasks, self._options.max_memory
        return (tasks is not None and solo.runs >= tasks) or (
            memory is not None and solo.memory > memory
        )

    # ---- the processes ----------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many processes there are."""
        return len(self._busy) + len(self._warm) + len(self._done)

    def memory(self) -> int:
        """Return the memory of the processes, in bytes."""
        return sum(one.memory for one in (*self._busy, *self._warm, *self._done))

    async def tend(self) -> None:
        """End processes that are no longer needed, forever."""
        while True:
            await trio.sleep(_TEND)
            await self._finish(self._warm.expired(trio.current_time()))

    async def close(self) -> None:
        """End all processes that run no task."""
        await self._finish(self._warm.clear())

    async def _finish(self, unused: list[Solo]) -> None:
        done, self._done = [*self._done, *unused], []
        async with trio.open_nursery() as nursery:
            for solo in done:
                nursery.start_soon(solo.finish)


def _unpickled(data: bytes) -> BaseException | None:
    """Return the exception that the function has raised; None: it is not known."""
    try:
        found = pickle.loads(data)
    except BaseException:  # it may run any code, and nothing here waits
        return None
    return found if isinstance(found, BaseException) else None
