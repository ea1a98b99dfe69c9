"""Runs jobs each in a process of its own, which may die alone."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from typing import Any, Final

import trio

from disque_trio.job_past import death
from disque_trio.process.fleet import how_ended
from disque_trio.worker.link import (
    Message,
    SocketEnd,
    inherited,
    line,
    read_line,
    start_program,
)
from disque_trio.worker.reaping import reap

MOST: Final = 8
"""How many such processes a worker has at once; other jobs wait for one of these to end."""

_LOOK: Final = 0.25  # s; a process that a job has forked may keep the link open
_GRACE: Final = 1.0  # s
_LEAVE: Final = 5.0
"""Seconds that a process has to leave when its job has ended."""
_MAIN: Final = ("sys_path", "sys_argv", "dir", "init_main_from_name", "init_main_from_path")


class ProcessDied(Exception):
    """A job has killed the process that ran it, three times."""


class NotAloneError(Exception):
    """The program cannot run the job in a process of its own. The text says why."""


@dataclass(frozen=True, slots=True)
class Died:
    """How a process has died.

    Attributes:
        how: for the reason of a NACK; see ``death``.
    """

    how: str


class Alone:
    """Runs jobs in processes of their own.

    Args:
        module: the name of the module that is such a process; its ``__main__`` calls ``serve``.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._limiter = trio.CapacityLimiter(MOST)

    async def run(self, **order: Any) -> Message | Died:
        """Run a job. Cancelling this kills its process.

        Args:
            order: what the process has to know, beside what program this is.

        Returns:
            What the process says in the end, or how it has died.

        Raises:
            NotAloneError: this program cannot be started again, or does not know the job there.
        """
        async with self._limiter:
            return await self._run(_program(), order)

    async def _run(self, program: dict[str, Any], order: dict[str, Any]) -> Message | Died:
        ours, theirs = socket.socketpair()
        with theirs:
            process = start_program(self._module, theirs.fileno())
        link = SocketEnd(ours)
        try:
            await link.send("start", program=program, order=order)
            return await self._outcome(link, process)
        finally:
            process.kill()
            reap(process, 0)
            with trio.CancelScope(shield=True):
                await link.aclose()

    async def _outcome(self, link: SocketEnd, process: "subprocess.Popen[bytes]") -> Message | Died:
        memory: int | None = None
        ended = False  # what it said before that has yet to be read
        while True:
            message: Message | None = None
            with trio.move_on_after(_LOOK) as look:
                message = await link.receive()
            if message is not None:
                if message["kind"] == "cannot":
                    raise NotAloneError(message["why"])
                with trio.move_on_after(_LEAVE):
                    await link.receive()  # until it has left
                said: Message = json.loads(message["data"])
                return said
            if ended or not look.cancelled_caught:
                break
            memory = memory or reap(process)
            ended = process.returncode is not None
        if not ended:
            memory = await self._left(process)
        return Died(death(how_ended(process.wait()), memory))

    async def _left(self, process: "subprocess.Popen[bytes]") -> int | None:
        """Wait for the end of a process whose link is closed, and return its memory. Kill it if it
        goes on: its job has closed what it does not know."""
        for _ in range(100):
            memory = reap(process)
            if process.returncode is not None:
                return memory
            await trio.sleep(_GRACE / 100)
        process.kill()
        return reap(process, 0)


def _program() -> dict[str, Any]:
    """Return what is needed to import this program again. Raises NotAloneError."""
    try:
        found = spawn.get_preparation_data("alone")
    except RuntimeError as error:  # this program is still being imported
        raise NotAloneError(str(error)) from None
    main = getattr(sys.modules["__main__"], "__file__", None)
    if main is not None and b"__main__" not in Path(main).read_bytes():
        raise NotAloneError(f"{main} would run again, since it does not ask for its __name__")
    return {name: found[name] for name in _MAIN if name in found}


def serve(run: Callable[[dict[str, Any]], Message]) -> int:
    """Be such a process: run a job, say what came of it, and return the exit status.

    Args:
        run: gets the order; returns what to say; raises NotAloneError.
    """
    [ours] = inherited()
    sock = socket.socket(fileno=ours)
    given = read_line(sock)
    threading.Thread(target=_end_with, args=(sock,), daemon=True).start()
    try:
        try:
            spawn.prepare(given["program"])
        except Exception as error:
            raise NotAloneError(f"the program cannot be imported again: {error}") from error
        own = os.getpid()
        said = run(given["order"])
        if os.getpid() != own:
            os._exit(0)  # the job has forked, and returned here, too
    except NotAloneError as error:
        sock.sendall(line("cannot", why=str(error)))
        return 1
    sock.sendall(line("ended", data=json.dumps(said).encode()))
    return 0


def _end_with(sock: socket.socket) -> None:
    """End when the worker does."""
    sock.recv(1)
    os._exit(1)
