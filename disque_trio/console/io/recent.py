"""What nodes have said a moment ago, for all who look at the same."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import trio

from disque_trio.console.io.calls import Calls

KEPT: Final = 5.0  # s

_T = TypeVar("_T")


class _Kept:
    """One thing. until: when it is too old."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.until = -1.0
        self.value: Any = None

    def is_old(self, now: float) -> bool:
        """Whether nobody needs it any more."""
        return now >= self.until and not self.lock.locked()


class Recent:
    """Keeps what was found out for some seconds, for each user by itself, since users may not be
    told the same. A page that is open asks every two seconds; nodes are asked less often."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Calls, dict[Hashable, _Kept]] = WeakKeyDictionary()

    async def get(
        self,
        calls: Calls,
        key: Hashable,
        find: Callable[[], Awaitable[_T]],
        seconds: float = KEPT,
    ) -> _T:
        """What ``find`` has found within the last ``seconds``; those who wait for it share it."""
        mine = self._of.setdefault(calls, {})
        now = trio.current_time()
        for old in [name for name, kept in mine.items() if kept.is_old(now) and name != key]:
            del mine[old]
        kept = mine.setdefault(key, _Kept())
        async with kept.lock:
            if trio.current_time() >= kept.until:
                kept.value = await find()
                kept.until = trio.current_time() + seconds
            value: _T = kept.value
            return value

    def clear(self) -> None:
        """Something was done: all may be different."""
        self._of.clear()
