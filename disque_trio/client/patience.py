"""How long to try to reach a node, and who is told that none is reached."""

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from disque_trio.respclient.concurrency import library
from disque_trio.respclient.log import library_log

_log = library_log("disque.client")

_SILENT: Final = 1.0
"""Seconds for which nobody is told that no node is reached."""


class Patience:
    """A limit for reaching a node, from the moment that there is none.

    Attributes:
        seconds: the limit.
        over: whether the requests have ended. Tasks that they started may live on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.over = False
        self._until: float | None = None

    @property
    def left(self) -> float:
        """The seconds that are left."""
        now = library().current_time()
        if self._until is None:
            self._until = now + self.seconds
        return max(0.0, self._until - now)


_current: ContextVar[Patience | None] = ContextVar("disque_patience", default=None)


def current() -> Patience | None:
    """Return the limit of the requests in this context; None: that of their client."""
    limit = _current.get()
    return None if limit is None or limit.over else limit


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Have requests within the block try for ``seconds`` to reach a node, in place of the client's
    ``retry_for``."""
    limit = Patience(seconds)
    token = _current.set(limit)
    try:
        yield
    finally:
        limit.over = True
        _current.reset(token)


class Outage:
    """A time in which a client reaches no node. Says so once, after a second, and when it is over.

    Args:
        where: describes where the client looks for one.
    """

    def __init__(self, where: Callable[[], str]) -> None:
        self._where = where
        self._since = math.inf
        self._told = False
        self._reason = ""

    async def during(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Await ``attempt()``, which looks for a node. Raises what it raises."""
        self._since = min(self._since, library().current_time())
        failure: BaseException | None = None
        async with library().open_nursery() as nursery:
            if not self._told:
                nursery.start_soon(self._tell_late)
            try:
                await attempt()
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                failure = error  # not in a group
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _tell_late(self) -> None:
        await library().sleep(max(0.0, self._since + _SILENT - library().current_time()))
        self._tell(self._reason or f"{self._where()}: no answer yet")

    def _tell(self, error: str) -> None:
        self._told = True
        _log.warning("no node is reached, and the client keeps trying", error=error)

    def failed(self, error: str) -> None:
        """No node was reached, because of ``error``."""
        self._reason = error
        if not self._told and library().current_time() >= self._since + _SILENT:
            self._tell(error)

    def over(self) -> None:
        """A node was reached."""
        if self._told:
            seconds = round(library().current_time() - self._since, 1)
            _log.warning("a node is reached again", node=self._where(), after=seconds)
        self._since, self._told, self._reason = math.inf, False, ""
