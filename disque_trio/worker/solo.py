"""A process that runs one task at a time: ``python -m disque_trio.worker.solo LINK``, started by a
worker process.

It imports the app, calls functions one after the other, and says how each ended. The worker process
settles the jobs. It ends when the worker process tells it to, or is gone.
"""

import ctypes
import os
import pickle
import queue
import signal
import socket
import sys
import threading
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import trio

from disque_trio.client.job import Letter
from disque_trio.client.jobs import checked_progress
from disque_trio.process.logs import Logging
from disque_trio.respclient.log import lines_go_to
from disque_trio.tasks import Disque
from disque_trio.tasks.calling import InLoop, call, outlive
from disque_trio.tasks.current import CurrentJob, running
from disque_trio.tasks.definition import Definition
from disque_trio.tasks.ending import Failed, JobCancelled
from disque_trio.tasks.errors import BucketFailed
from disque_trio.tasks.execution import Execution, arguments_of
from disque_trio.tasks.hooks import Running, around, needs_loop
from disque_trio.tasks.messages import describe
from disque_trio.tasks.retrying import of_job
from disque_trio.worker.child import CannotStart, find_app, leave, start
from disque_trio.worker.link import Message, inherited, line, messages, read_line
from disque_trio.worker.options import Options
from disque_trio.worker.target import AppError

_PR_SET_PDEATHSIG: Final = 1
_OOM_SCORE: Final = 200  # of 1000, so that it ends before processes that run many tasks
_MOST_TEXT: Final = 100_000  # characters of an error; the line with it must not be too long
_SAID: Final = ("error", "trace", "delay", "final", "runaway", "unknown")  # of a ``Failed``


class SoloLink:
    """The link to the worker process, to which all threads may write."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._writing = threading.Lock()

    def send(self, message: bytes) -> bool:
        """Send a message. Returns False if that cannot be: nobody is there any more, or a function
        has closed the link."""
        with self._writing:
            try:
                self._sock.sendall(message)
            except OSError:
                return False
        return True


class _Alone:
    """Stands for the job, which the worker process holds.

    Args:
        id: of the job.
        letter: see ``HeldJob``.
        link: to the worker process.
    """

    def __init__(self, id: str, letter: Letter | None, link: SoloLink) -> None:
        self.id = id
        self.letter = letter
        self.lost = False
        self._link = link

    def progress(self, fraction: float, text: str = "") -> None:
        """Have the worker process say how far the job is."""
        fraction, text = checked_progress(fraction, text)
        self._link.send(line("progress", fraction=fraction, text=text))


class TaskEnded(SystemExit):
    """Raised in a function that has to end now, so that it can clean up."""


class _Here:
    """Calls functions in the main thread, where a signal can interrupt them.

    Attributes:
        calling: whether it does so now.
    """

    def __init__(self) -> None:
        self.calling = False

    async def call(
        self, definition: Definition, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        self.calling = True
        try:
            return outlive(partial(definition.function, *args, **kwargs))
        finally:
            self.calling = False


class _Scope:
    """Around a function in the current loop.

    Args:
        is_async: whether it is async, and not in a thread.
    """

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async
        self.scope = trio.CancelScope()
        self._token = trio.lowlevel.current_trio_token()

    def cancel(self) -> None:
        """Cancel it, from any thread."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.scope.cancel)


class Solo:
    """Runs tasks of ``app``, one at a time, in the main thread. Other methods than ``run`` may be
    called in other threads.

    Args:
        link: to the worker process.
    """

    def __init__(self, app: Disque, link: SoloLink) -> None:
        self._app = app
        self._link = link
        self._here = _Here()
        self._in_loop = InLoop(None, app.core.backend)
        self._job: _Alone | None = None
        self._scope: _Scope | None = None  # around the function, if it is in a loop
        self._ending = False

    def run(self, order: Message) -> bytes:
        """Run a task; return the message that says how it ended."""
        told, letter = order["job"], order["letter"]
        alone = _Alone(told["id"], None if letter is None else Letter(**letter), self._link)
        self._job = alone
        try:
            return self._returned(*self._value(told, alone, order["data"]))
        except JobCancelled:
            return line("cancelled")
        except Failed as failed:
            said = {name: vars(failed)[name] for name in _SAID}
            said |= {name: said[name][:_MOST_TEXT] for name in ("error", "trace")}
            return line("raised", failed=said, data=_pickled(failed.raised))
        finally:
            self._job = self._scope = None

    def _value(
        self, told: dict[str, Any], alone: _Alone, body: bytes
    ) -> tuple[Definition, CurrentJob, Any]:
        """Run the function. Raises Failed, JobCancelled."""
        core = self._app.core
        if told["task"] not in core.tasks:
            raise Failed(f"unknown task: {told['task']!r}", unknown=True)  # of newer code
        definition = of_job(core.tasks[told["task"]], told["headers"])
        job = CurrentJob(**told, _job=alone, _backoff=definition.backoff)
        args, kwargs = arguments_of(core.serializer_of(definition, job.headers), body)
        called = around(core.hooks, definition, Running(job, args, kwargs), self._in_loop.wait)
        in_loop = called.is_async or needs_loop(called)
        # Where it runs here, the worker process sees to its timeout.
        self._link.send(line("begun", limits_itself=in_loop))
        with running(job):
            if in_loop:
                value = trio.run(self._in_scope, alone, called, args, kwargs)
            else:
                value = _driven(call(self._here, called, args, kwargs))
        return definition, job, value

    async def _in_scope(
        self, alone: _Alone, definition: Definition, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        around = self._scope = _Scope(definition.is_async)
        if self._ending or (alone.lost and definition.is_async):
            around.cancel()  # it was so before that
        with around.scope:
            return await call(self._in_loop, definition, args, kwargs)
        raise JobCancelled

    def _returned(self, definition: Definition, job: CurrentJob, value: Any) -> bytes:
        """Return the message with a value. Raises Failed."""
        if value is None:
            return line("returned")
        if data := _pickled(value):
            return line("returned", data=data, pickled=True)
        try:
            data = self._app.core.serializer_of(definition, job.headers).dumps(value)
        except Exception as error:
            final = not isinstance(error, BucketFailed)
            raise Failed(describe(error), raised=error, final=final) from None
        return line("returned", data=data)

    # ---- in the thread that listens ---------------------------------------------------------

    def lost(self, id: str) -> None:
        """Note that somebody else may have a job, or that it was cancelled: its function is, too,
        if it is async."""
        if (job := self._job) is not None and job.id == id:
            job.lost = True
            if (scope := self._scope) is not None and scope.is_async:
                scope.cancel()

    def end(self) -> None:
        """Have the function end: a function in a loop is cancelled, another one is interrupted."""
        self._ending = True
        if (scope := self._scope) is not None:
            scope.cancel()
        else:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    # ---- signals ----------------------------------------------------------------------------

    def on_signal(self, number: int, _: FrameType | None) -> None:
        """Handle SIGTERM. It may also be meant for all processes of the worker, which then decides
        what becomes of its tasks."""
        if self._ending and self._here.calling:
            raise TaskEnded(128 + number)

    # ---- the end ----------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Call the app's hooks for the end of a process."""
        trio.run(Execution(self._app.core, self._in_loop).shutdown)
        self._app.close()


def _driven(calling: Coroutine[Any, Any, Any]) -> Any:
    """Return the value of a coroutine that waits for nothing."""
    try:
        calling.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("a function in the main thread cannot be suspended")


def _pickled(value: object) -> bytes:
    """Return ``value`` for the worker process, which has the same code; empty if that cannot be."""
    try:
        return pickle.dumps(value)
    except Exception:
        return b""


def _listen(
    solo: Solo,
    link: SoloLink,
    sock: socket.socket,
    orders: "queue.SimpleQueue[Message | None]",
) -> None:
    """Take orders, and end when the worker process does."""
    for message in messages(sock):
        match message["kind"]:
            case "run":
                orders.put(message)
            case "lost":
                solo.lost(message["id"])
            case "end":
                solo.end()
            case "ping":
                link.send(line("pong"))
            case "finish":
                orders.put(None)
    os._exit(1)


def main() -> int:
    """Run the process and return its exit status."""
    # A thread that does not run, since a function keeps Python's lock, could not end the process.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(OSError, ValueError):
        score = Path("/proc/self/oom_score_adj")
        score.write_text(str(max(_OOM_SCORE, int(score.read_text()))))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    [ours] = inherited()
    sock = socket.socket(fileno=ours)
    options = Options.from_json(read_line(sock)["options"])
    lines_go_to(Logging(options.log_level, options.log_format).log)
    link = SoloLink(sock)
    try:
        app = find_app(options)
        start(app)
    except (AppError, CannotStart) as failure:
        link.send(line("raised", failed={"error": str(failure), "unknown": True}))
        return 1
    solo = Solo(app, link)
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        signal.signal(signal.SIGTERM, solo.on_signal)
    orders: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(solo, link, sock, orders), daemon=True).start()
    own = os.getpid()
    while (order := orders.get()) is not None:
        said = solo.run(order)
        if os.getpid() != own:
            os._exit(0)  # the function has forked, and returned here, too
        if not link.send(said):
            os._exit(1)
    solo.shutdown()
    leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
