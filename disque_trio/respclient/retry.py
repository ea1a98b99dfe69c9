"""Repeated attempts, with pauses between them."""

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from disque_trio.respclient.concurrency import library
from disque_trio.respclient.errors import ConnectionLost, DisqueError

T = TypeVar("T")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_WORKED_FOR_A_WHILE = 1.0


class Retry:
    """Pauses of growing, jittered length, until ``limit`` seconds after the first of them."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._deadline: float | None = None
        self._pause = _FIRST_PAUSE

    def reset(self) -> None:
        """Begin again: all is well."""
        self._deadline = None
        self._pause = _FIRST_PAUSE

    async def run(
        self,
        attempt: Callable[[], Awaitable[T]],
        passing: Callable[[DisqueError], bool],
        *,
        waits: bool = False,
    ) -> T:
        """Await ``attempt()`` until it succeeds, and return its result.

        Args:
            passing: whether an error is of a kind that passes, so that another attempt makes sense.
            waits: whether an attempt may wait at the server. What ends one that has waited there
                for a second is a new failure, with a time limit of its own.

        Raises:
            DisqueError: the first error that does not pass, or the last one within the time limit.
        """
        while True:
            began = library().current_time()
            try:
                return await attempt()
            except DisqueError as error:
                if not passing(error):
                    raise
                failure = error
            sent = not isinstance(failure, ConnectionLost) or failure.maybe_executed
            if waits and sent and library().current_time() - began > _WORKED_FOR_A_WHILE:
                self.reset()
            if not await self.again():
                raise failure

    async def again(self) -> bool:
        """Pause before the next attempt; False, at once, if the time is over."""
        now = library().current_time()
        if self._deadline is None:
            self._deadline = now + self._limit
        if now >= self._deadline:
            return False
        await library().sleep(min(random.uniform(0.5, 1.0) * self._pause, self._deadline - now))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        return True
