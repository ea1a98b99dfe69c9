"""Limits how many wrong passwords may be tried from one place.

A place is an IPv4 address, or the first half of an IPv6 address, since its owner usually has all
addresses that begin with it. A place has as many tries as the limit says, and gets them back over a
minute. A client without tries has to wait before its password is even checked, so that guessing is
hopeless.

A wrong password that was tried before costs nothing: a program that keeps trying an old one does
not lock out others at its address.
"""

import hashlib
import ipaddress
from collections import OrderedDict, deque
from typing import Final

MOST_PLACES: Final = 10_000
_REMEMBERED: Final = 16  # passwords per place that are known to be wrong
_MINUTE: Final = 60_000  # ms


class _Place:
    """The tries of a place: how many are ``left`` as of ``since`` (ms), and what was ``wrong``."""

    __slots__ = ("left", "since", "wrong")

    def __init__(self, left: float, since: int) -> None:
        self.left = left
        self.since = since
        self.wrong: deque[bytes] = deque(maxlen=_REMEMBERED)


class Logins:
    """The tries of all places.

    Attributes:
        limit: wrong passwords per minute from one place; 0: no limit.
    """

    def __init__(self) -> None:
        self.limit = 0
        self._places: OrderedDict[str, _Place] = OrderedDict()

    def wait(self, ip: str, user: bytes, password: bytes, now: int) -> int:
        """Return how long a client at ``ip`` has to wait before it may try this password, in ms.

        0: it may try at ``now`` (ms). An empty ``ip`` is not limited.
        """
        place = self._places.get(place_of(ip)) if self.limit and ip else None
        if place is None:
            return 0
        self._refill(place, now)
        if place.left >= 1 or _digest(user, password) in place.wrong:
            return 0
        return max(int((1 - place.left) * _MINUTE / self.limit), 1)

    def failed(self, ip: str, user: bytes, password: bytes, now: int) -> None:
        """Count a wrong password."""
        if not (self.limit and ip):
            return
        name = place_of(ip)
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = _Place(self.limit, now)
            if len(self._places) > MOST_PLACES:
                self._places.popitem(last=False)
        self._places.move_to_end(name)
        self._refill(place, now)
        digest = _digest(user, password)
        if digest not in place.wrong:
            place.wrong.append(digest)
            place.left = max(place.left - 1, 0)

    def _refill(self, place: _Place, now: int) -> None:
        passed = max(now - place.since, 0)
        place.left = min(place.left + passed * self.limit / _MINUTE, self.limit)
        place.since = now


def place_of(ip: str) -> str:
    """The place that the address ``ip`` belongs to."""
    try:
        address = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return ip
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


def _digest(user: bytes, password: bytes) -> bytes:
    return hashlib.sha256(b"%d %b %b" % (len(user), user, password)).digest()
