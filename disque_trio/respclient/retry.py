"""Repeated attempts, with pauses between them."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from disque_trio.respclient.concurrency import library
from disque_trio.respclient.errors import ConnectionLost, DisqueError
from disque_trio.respclient.randomness import RANDOM

T = TypeVar("T")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_WORKED_FOR_A_WHILE = 1.0


class Retry:
    """Pauses of growing, jittered length, until ``limit`` seconds after the first pause began."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._deadline: float | None = None
        self._pause = _FIRST_PAUSE

    def reset(self) -> None:
        """Start over, since all is well."""
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
            passing: returns whether an error is temporary, so that another attempt makes sense.
            waits: whether an attempt may wait at the server. If one fails after waiting there for
                a second, that is a new failure, with a time limit of its own.

        Raises:
            DisqueError: the first error that is not temporary, or the last one in the time limit.
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
        """Pause before the next attempt. Returns False, at once, if the time is over."""
        now = library().current_time()
        if self._deadline is None:
            self._deadline = now + self._limit
        if now >= self._deadline:
            return False
        await library().sleep(min(RANDOM.uniform(0.5, 1.0) * self._pause, self._deadline - now))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        return True
