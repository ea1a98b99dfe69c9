"""Who may come in: nobody has to log in, a file of users, or the users of the cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import trio

from disque_trio.console.io.calls import Calls
from disque_trio.console.model.nodes import Nodes
from disque_trio.console.model.passwords import NOBODY, User, is_password, read_users
from disque_trio.console.model.roles import Role
from disque_trio.console.model.sessions import Session
from disque_trio.process.logs import Log
from disque_trio.respclient.errors import AuthError, DisqueError, NoPermError
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Tls

ANYBODY: Final = "anybody"
_HASHING: Final = 2  # passwords at once: each takes 16 MiB and a CPU for 50 ms


class AccountsAway(Exception):
    """Nobody can be let in now; the text says why."""


class Accounts(Protocol):
    """Those who may come in.

    Attributes:
        wanted: whether visitors have to log in.
    """

    wanted: bool

    async def role(self, user: str, password: str) -> Role | None:
        """The role of a user; None: user or password are wrong. Raises AccountsAway."""

    def begun(self, session: Session, password: str) -> None:
        """The user has a session now."""

    def still(self, session: Session) -> Role | None:
        """What the user of a session may do now; None: nothing, any more."""

    def calls(self, session: Session) -> Calls:
        """What sends the commands of a session."""

    def ended(self, session: Session) -> None:
        """The session is over."""


class Everybody:
    """Visitors do not log in, and may do everything."""

    wanted = False

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def role(self, user: str, password: str) -> Role | None:
        return Role.ADMIN

    def begun(self, session: Session, password: str) -> None:
        pass

    def still(self, session: Session) -> Role | None:
        return Role.ADMIN

    def calls(self, session: Session) -> Calls:
        return self._calls

    def ended(self, session: Session) -> None:
        pass


class FileAccounts:
    """The users of a file, which is read again when it has changed.

    Raises:
        OSError, ValueError: the file cannot be read.
    """

    wanted = True

    def __init__(self, path: str, calls: Calls, log: Log) -> None:
        self._path = Path(path)
        self._calls = calls
        self._log = log
        self._stamp = self._now()
        self._users = read_users(self._path.read_text(encoding="utf-8"))
        self._hashing = trio.CapacityLimiter(_HASHING)

    async def role(self, user: str, password: str) -> Role | None:
        found = self._read().get(user)
        hash = found.hash if found else NOBODY
        right = await trio.to_thread.run_sync(is_password, password, hash, limiter=self._hashing)
        return found.role if found and right else None

    def begun(self, session: Session, password: str) -> None:
        pass

    def still(self, session: Session) -> Role | None:
        found = self._read().get(session.user)
        return found.role if found else None

    def calls(self, session: Session) -> Calls:
        return self._calls

    def ended(self, session: Session) -> None:
        pass

    def _read(self) -> dict[str, User]:
        stamp = self._now()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._users = read_users(self._path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                # It may be half written; those who were there before stay.
                self._log.warning("the file of users cannot be read", why=str(error))
        return self._users

    def _now(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_ino


_UNKNOWN_JOB: Final = "D-00000000-" + "0" * 24 + "-05a1"
_PROBES: Final[Sequence[tuple[Role, tuple[str, ...]]]] = (
    (Role.ADMIN, ("CONFIG", "GET", "maxmemory")),
    (Role.OPERATOR, ("NACK", _UNKNOWN_JOB)),
    (Role.VIEWER, ("QGET",)),
)
"""Commands that change nothing, by what they show that a user may."""


class AclAccounts:
    """The users of the cluster (ACL). The commands of a session run as its user, so the nodes
    decide what is let; the role is what the console offers.

    Passwords are kept in memory for as long as the session lasts: whoever is logged in has to log
    in again when the console was restarted.
    """

    wanted = True

    def __init__(self, nursery: trio.Nursery, nodes: Nodes, tls: Tls | None) -> None:
        self._nursery = nursery
        self._nodes = nodes
        self._tls = tls
        self._open: dict[str, Calls] = {}  # by the id of the session

    async def role(self, user: str, password: str) -> Role | None:
        calls = self._calls_of(user, password)
        try:
            return await self._role(calls)
        finally:
            calls.close()

    def begun(self, session: Session, password: str) -> None:
        self._open[session.id] = self._calls_of(session.user, password)

    def still(self, session: Session) -> Role | None:
        return session.role if session.id in self._open else None

    def calls(self, session: Session) -> Calls:
        return self._open[session.id]

    def ended(self, session: Session) -> None:
        calls = self._open.pop(session.id, None)
        if calls is not None:
            calls.close()

    def _calls_of(self, user: str, password: str) -> Calls:
        return Calls(self._nursery, self._nodes, Login(user, password, self._tls))

    async def _role(self, calls: Calls) -> Role | None:
        for role, command in _PROBES:
            address, reply = await calls.any(*command)
            if isinstance(reply, AuthError):
                return None
            if not isinstance(reply, NoPermError):
                if isinstance(reply, DisqueError) and not address:
                    raise AccountsAway(str(reply))
                if isinstance(reply, DisqueError) and role is not Role.OPERATOR:
                    raise AccountsAway(str(reply))
                return role
        return None
