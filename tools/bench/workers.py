"""Processes that take part in a measurement: what they are told and say goes through a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from tools.bench.load import LoadError

PATIENCE = 60.0  # s, until a process is given up that has something to say

_CONTEXT = get_context("fork")


class Worker:
    """A process that runs a function; see ``worker``."""

    def __init__(self, name: str, pipe: Connection) -> None:
        self._name = name
        self._pipe = pipe

    def tell(self, what: object = None) -> None:
        """Send something, which the function receives."""
        self._pipe.send(what)

    def hear(self, seconds: float = 0.0) -> Any:
        """What the process says, in ``seconds`` and the time that anybody may take.

        Raises:
            LoadError: it failed, has ended, or says nothing.
        """
        try:
            said = self._pipe.recv() if self._pipe.poll(seconds + PATIENCE) else None
        except (EOFError, OSError):
            said = LoadError("it has ended")
        if said is None:
            said = LoadError("it does not answer")
        if isinstance(said, Exception):
            raise LoadError(f"{self._name} failed: {said}")
        return said

    def ask(self, what: object = None, seconds: float = 0.0) -> Any:
        """Send something, return the answer; raises as ``hear`` does."""
        self.tell(what)
        return self.hear(seconds)


@contextmanager
def worker(name: str, function: Callable[..., object], *arguments: object) -> Iterator[Worker]:
    """Calls ``function`` in a process of its own, with its end of the pipe and ``arguments``. The
    process ends with the block. What the function raises, ``hear`` raises as a LoadError."""
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
    ours.close()  # so that the end of the other process is seen
    try:
        function(pipe, *arguments)
    except (EOFError, KeyboardInterrupt):
        pass  # who started this has ended, or is about to
    except Exception as failure:
        pipe.send(LoadError(str(failure)))
