"""Limits how many wrong passwords visitors may try, so that nobody can lock others out by guessing.

A visitor is known for a user if its browser has a cookie that says that this user has logged in
with it (``Browsers``), or if the user has logged in from its address before. It has tries of its
own, which nobody else can use up.

All others share the tries of their address, and those of the user that they name. If those of the
user are used up, somebody is guessing its password, maybe from many addresses. Then each address
still has one try a minute for this user: the user gets in from a new address with its first try,
and whoever guesses needs an address for each guess a minute.
"""

import hashlib
import secrets
from collections import OrderedDict
from typing import Any, Final, TypeAlias

from itsdangerous import BadData, URLSafeSerializer

from disque_trio.process.addresses import place_of

TRIES: Final = 10  # wrong passwords of a known visitor, from an address, or for a user
TRIES_FOR: Final = 60.0  # s until all tries have come back
REMEMBERED: Final = 10_000  # places and users with fewer tries; addresses that users logged in from
BROWSER_LIFETIME: Final = 180 * 86_400.0  # s
_BROWSER_USERS: Final = 5  # of one browser
_LONGEST: Final = 64  # characters of an address

Keys: TypeAlias = "tuple[str, ...]"
"""The tries that a wrong password uses up: those of a known visitor; or those of the address, of
the user, and of both together."""


class Attempts:
    """The tries of all visitors. Times are in seconds since the epoch.

    Args:
        tries: how many wrong passwords at once. seconds: until all of them may be tried again.
    """

    def __init__(self, tries: int = TRIES, seconds: float = TRIES_FOR) -> None:
        self._tries = tries
        self._seconds = seconds
        self._used: dict[str, tuple[float, float]] = {}  # tries left, and at what time
        self._known: OrderedDict[str, None] = OrderedDict()

    def keys(self, address: str, user: str, browser: str = "") -> Keys:
        """Whose tries somebody at ``address`` uses who wants to be ``user``. browser: the id for
        this user in its cookie."""
        if browser:
            return (f"browser {browser}",)
        both = _both(address, user)
        return (both,) if both in self._known else (_place(address), f"user {user}", f"new {both}")

    def wait(self, keys: Keys, now: float) -> float:
        """Seconds to wait before the next try, or 0."""
        first, *others = (self._wait(key, now) for key in keys)
        return max(first, min(others, default=0.0))

    def failed(self, keys: Keys, now: float) -> None:
        """Count a wrong password."""
        for key in keys:
            self._set(key, self._left(key, now) - 1.0, now)
        if len(self._used) > REMEMBERED:
            full = [key for key in self._used if self._left(key, now) >= self._most(key)]
            for key in full or list(self._used)[: REMEMBERED // 10]:
                del self._used[key]

    def forgive(self, keys: Keys, now: float) -> None:
        """Undo a ``failed``."""
        for key in keys:
            self._set(key, self._left(key, now) + 1.0, now)

    def succeeded(self, address: str, user: str) -> None:
        """Note that the user has logged in from this address."""
        both = _both(address, user)
        self._known[both] = None
        self._known.move_to_end(both)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def _most(self, key: str) -> float:
        return 1.0 if key.startswith("new ") else float(self._tries)

    def _wait(self, key: str, now: float) -> float:
        left = self._left(key, now)
        return 0.0 if left >= 1.0 else (1.0 - left) * self._seconds / self._most(key)

    def _left(self, key: str, now: float) -> float:
        most = self._most(key)
        left, moment = self._used.get(key, (most, now))
        passed = max(0.0, now - moment)  # the clock may have gone back
        return min(most, left + passed * most / self._seconds)

    def _set(self, key: str, left: float, now: float) -> None:
        self._used.pop(key, None)  # the last changed is the last forgotten
        self._used[key] = max(0.0, min(self._most(key), left)), now


class Browsers:
    """Makes and reads the cookies of browsers with which users have logged in. They give nobody a
    right: only tries of its own.

    Args:
        secret: signs them.
    """

    def __init__(self, secret: bytes) -> None:
        self._signer = URLSafeSerializer(secret, salt="browser")

    def id(self, cookie: str, user: str) -> str:
        """The id for ``user`` in a browser's cookie; empty if there is none, or it is forged."""
        return self._read(cookie).get(_digest(user), "")

    def with_user(self, cookie: str, user: str) -> str:
        """The browser's next cookie, after ``user`` has logged in."""
        ids = self._read(cookie)
        name = _digest(user)
        ids[name] = ids.pop(name, "") or secrets.token_urlsafe(12)
        kept = list(ids.items())[-_BROWSER_USERS:]
        return str(self._signer.dumps(dict(kept)))

    def _read(self, cookie: str) -> dict[str, str]:
        try:
            values: Any = self._signer.loads(cookie)
        except BadData:
            return {}
        return {str(name): str(id) for name, id in values.items()}


def _place(address: str) -> str:
    return f"address {place_of(address[:_LONGEST])}"


def _both(address: str, user: str) -> str:
    return f"{_place(address)} user {user}"


def _digest(user: str) -> str:
    return hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()[:16]
