"""Helper processes of a measurement, which communicate through pipes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from tools.bench.load import LoadError

PATIENCE = 60.0  # s to wait for a message from a process

_CONTEXT = get_context("fork")


class Worker:
    """A process that runs a function; see ``worker``."""

    def __init__(self, name: str, pipe: Connection) -> None:
        self._name = name
        self._pipe = pipe

    def tell(self, what: object = None) -> None:
        """Send an object to the function."""
        self._pipe.send(what)

    def hear(self, seconds: float = 0.0) -> Any:
        """Receive an object from the process, within ``seconds`` plus the normal limit.

        Raises:
            LoadError: the process failed, ended, or sent nothing.
        """
        try:
            said = self._pipe.recv() if self._pipe.poll(seconds + PATIENCE) else None
        except (EOFError, OSError):
            said = LoadError("it has ended")
        if said is None:
            said = LoadError("it does not respond")
        if isinstance(said, Exception):
            raise LoadError(f"{self._name} failed: {said}")
        return said

    def ask(self, what: object = None, seconds: float = 0.0) -> Any:
        """Send an object and return the answer; raises like ``hear``."""
        self.tell(what)
        return self.hear(seconds)


@contextmanager
def worker(name: str, function: Callable[..., object], *arguments: object) -> Iterator[Worker]:
    """Calls ``function`` in a new process, with its end of the pipe and ``arguments``. The process
    ends with the block. ``hear`` raises the function's exceptions as LoadError."""
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_run, args=(ours, theirs, function, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Worker(name, ours)
    finally:
        ours.close()
        process.kill()
        process.join()


def _run(
    ours: Connection, pipe: Connection, function: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    ours.close()  # so that the end of the other process is noticed
    try:
        function(pipe, *arguments)
    except (EOFError, KeyboardInterrupt):
        pass  # the parent has ended, or is about to
    except Exception as failure:
        pipe.send(LoadError(str(failure)))
