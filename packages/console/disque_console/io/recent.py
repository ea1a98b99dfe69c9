"""A short-lived cache of replies, shared by visitors who look at the same page."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import trio

from disque_console.io.calls import Calls

KEPT: Final = 5.0  # s

_T = TypeVar("_T")


class _Kept:
    """A cached value. until: when it expires."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.until = -1.0
        self.value: Any = None

    def is_old(self, now: float) -> bool:
        """Whether it has expired and is unused."""
        return now >= self.until and not self.lock.locked()


class Recent:
    """Caches results for some seconds, separately for each user, because permissions differ. An
    open page updates every two seconds; the nodes are asked less often."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Calls, dict[Hashable, _Kept]] = WeakKeyDictionary()

    async def get(
        self,
        calls: Calls,
        key: Hashable,
        find: Callable[[], Awaitable[_T]],
        seconds: float = KEPT,
    ) -> _T:
        """The result of ``find`` from the last ``seconds``; concurrent callers share one call."""
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
        """Forget everything, after an action."""
        self._of.clear()
