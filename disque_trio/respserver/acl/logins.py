"""Limits how many wrong passwords may be tried from one place.

A place is an IPv4 address, or the first half of an IPv6 address, since its owner usually has all
addresses that begin with it. A place has as many tries as the limit says, and gets them back over a
minute. A client without tries has to wait before its password is even checked, so that guessing is
hopeless.

A user who has logged in from a place has tries of its own there, so that somebody who guesses other
names does not lock it out. A wrong password that was tried before costs nothing: a program that
keeps trying an old one does not lock out others at its address.
"""

import hashlib
from collections import OrderedDict, deque
from typing import Final, TypeAlias

from disque_trio.process.addresses import place_of

MOST_PLACES: Final = 10_000
"""How many places are remembered, and how many users of places."""
_REMEMBERED: Final = 16  # passwords per place that are known to be wrong
_MINUTE: Final = 60_000  # ms


class _Tries:
    """The tries of a place: how many are ``left`` as of ``since`` (ms), and what was ``wrong``."""

    __slots__ = ("left", "since", "wrong")

    def __init__(self, left: float, since: int) -> None:
        self.left = left
        self.since = since
        self.wrong: deque[bytes] = deque(maxlen=_REMEMBERED)


_Key: TypeAlias = "tuple[str, bytes]"


class Logins:
    """The tries of all places.

    Attributes:
        limit: wrong passwords per minute from one place; 0: no limit.
    """

    def __init__(self) -> None:
        self.limit = 0
        self._places: OrderedDict[_Key, _Tries] = OrderedDict()  # with an empty user
        self._known: OrderedDict[_Key, _Tries] = OrderedDict()  # of users who have logged in

    def wait(self, ip: str, user: bytes, password: bytes, now: int) -> int:
        """Return how long a client at ``ip`` has to wait before it may try this password, in ms.

        0: it may try at ``now`` (ms). An empty ``ip`` is not limited.
        """
        if not (self.limit and ip):
            return 0
        place = place_of(ip)
        tries = self._known.get((place, user)) or self._places.get((place, b""))
        if tries is None:
            return 0
        self._refill(tries, now)
        if tries.left >= 1 or _digest(user, password) in tries.wrong:
            return 0
        return max(int((1 - tries.left) * _MINUTE / self.limit), 1)

    def failed(self, ip: str, user: bytes, password: bytes, now: int) -> None:
        """Count a wrong password."""
        if not (self.limit and ip):
            return
        place = place_of(ip)
        if (place, user) in self._known:
            tries = self._remember(self._known, (place, user), now)
        else:
            tries = self._remember(self._places, (place, b""), now)
        self._refill(tries, now)
        digest = _digest(user, password)
        if digest not in tries.wrong:
            tries.wrong.append(digest)
            tries.left = max(tries.left - 1, 0)

    def succeeded(self, ip: str, user: bytes, now: int) -> None:
        """Note that ``user`` has logged in from ``ip`` at ``now`` (ms)."""
        if self.limit and ip:
            self._remember(self._known, (place_of(ip), user), now)

    def _remember(self, all: "OrderedDict[_Key, _Tries]", key: _Key, now: int) -> _Tries:
        """The tries of ``key``, the last that will be forgotten."""
        tries = all.get(key)
        if tries is None:
            tries = all[key] = _Tries(self.limit, now)
            if len(all) > MOST_PLACES:
                all.popitem(last=False)
        all.move_to_end(key)
        return tries

    def _refill(self, tries: _Tries, now: int) -> None:
        passed = max(now - tries.since, 0)
        tries.left = min(tries.left + passed * self.limit / _MINUTE, self.limit)
        tries.since = now


def _digest(user: bytes, password: bytes) -> bytes:
    return hashlib.sha256(b"%d %b %b" % (len(user), user, password)).digest()
