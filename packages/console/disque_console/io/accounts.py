"""Who may log in: anybody without a login, the users in a file, or the users of the cluster."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import trio

from disque_console.io.calls import Calls
from disque_console.model.passwords import NOBODY, User, is_password, read_users
from disque_console.model.roles import Role
from disque_console.model.sessions import Session
from disque_trio.overview.nodes import Nodes
from disque_trio.process.logs import Log
from disque_trio.respclient.errors import (
    AuthError,
    ConnectionLost,
    DisqueError,
    NoPermError,
    ReplyError,
)
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Tls

ANYBODY: Final = "anybody"
DEFAULT: Final = "default"
"""The user of connections that do not log in. At first it needs no password and may do anything."""
_HASHING: Final = 2  # passwords hashed at once: each takes 16 MiB and 50 ms of CPU time
_WAITING: Final = 100  # passwords waiting to be hashed
LOOK_AGAIN: Final = 5.0  # s between checks of the cluster's users
SESSIONS: Final = 20  # of one user of the cluster; another login ends the oldest


class AccountsAway(Exception):
    """Nobody can log in now; the text says why."""


class TooManyWrong(Exception):
    """The nodes have had too many wrong passwords from where this one comes; the text says more."""


class Accounts(Protocol):
    """The users who may log in.

    Attributes:
        wanted: whether visitors have to log in.
    """

    wanted: bool

    async def role(self, user: str, password: str, origin: str) -> Role | None:
        """The role of a user; None if the user or password is wrong. origin: where the password
        comes from, an address or other text. Raises AccountsAway, TooManyWrong."""

    def mark(self, user: str) -> str:
        """The mark of the user's password, for ``Session``; empty if there is none."""

    def begun(self, session: Session, password: str) -> None:
        """Note that the user's session has begun."""

    def still(self, session: Session) -> Role | None:
        """The current role of a session's user; None if the user may no longer do anything."""

    def calls(self, session: Session) -> Calls:
        """Sends the commands of a session."""

    def ended(self, session: Session) -> None:
        """Note that the session has ended."""


class Everybody:
    """Visitors do not log in, and may do everything."""

    wanted = False

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def role(self, user: str, password: str, origin: str) -> Role | None:
        return Role.ADMIN

    def mark(self, user: str) -> str:
        return ""

    def begun(self, session: Session, password: str) -> None:
        pass

    def still(self, session: Session) -> Role | None:
        return Role.ADMIN

    def calls(self, session: Session) -> Calls:
        return self._calls

    def ended(self, session: Session) -> None:
        pass


class FileAccounts:
    """The users in a file, which is read again when it changes.

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

    async def role(self, user: str, password: str, origin: str) -> Role | None:
        if self._hashing.statistics().tasks_waiting >= _WAITING:
            raise AccountsAway("too many logins at once")
        found = self._read().get(user)
        hash = found.hash if found else NOBODY
        right = await trio.to_thread.run_sync(is_password, password, hash, limiter=self._hashing)
        return found.role if found and right else None

    def mark(self, user: str) -> str:
        found = self._read().get(user)
        return found.mark if found else ""

    def begun(self, session: Session, password: str) -> None:
        pass

    def still(self, session: Session) -> Role | None:
        found = self._read().get(session.user)
        return found.role if found and found.mark == session.mark else None

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
                # It may be half written, so keep the users from before.
                self._log.warning("cannot read the users file", why=str(error))
        return self._users

    def _now(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0, 0
        return found.st_mtime_ns, found.st_ino, found.st_size


_UNKNOWN_JOB: Final = "D-00000000-" + "0" * 24 + "-05a1"
_PROBES: Final[Sequence[tuple[Role, tuple[str, ...]]]] = (
    (Role.ADMIN, ("CONFIG", "GET", "maxmemory")),
    (Role.OPERATOR, ("NACK", _UNKNOWN_JOB)),
    (Role.VIEWER, ("QGET",)),
)
"""Harmless commands, by the permission that they prove."""


@dataclass(slots=True)
class _Guest:
    """A logged-in user of the cluster. until: when the session ends (s since the epoch). origin:
    names the session to the nodes, which count its password there if it is no longer right."""

    login: Login
    origin: str
    calls: Calls
    role: Role
    until: float


class AclAccounts:
    """The users of the cluster (ACL). The commands of a session run as its user, so the nodes
    decide what is allowed; the role only decides what the console offers. It is checked again every
    ``LOOK_AGAIN`` s; the session ends if the user can no longer log in.

    Wrong passwords count for the visitor who typed them: the console's own user asks the nodes
    (ACL CHECK). If it may not, or the nodes are older, they count for the address of the console.

    Passwords are kept in memory while the session lasts, so everybody has to log in again after a
    restart of the console.

    Args:
        nursery: where connections are served.
        nodes: the known nodes.
        own: sends commands as the console's own user.
        tls: how to connect; None: without TLS.
    """

    wanted = True

    def __init__(
        self, nursery: trio.Nursery, nodes: Nodes, own: Calls, tls: Tls | None, log: Log
    ) -> None:
        self._nursery = nursery
        self._nodes = nodes
        self._own = own
        self._tls = tls
        self._log = log
        self._unchecked = ""  # why the nodes did not check a password
        self._guests: dict[str, _Guest] = {}  # by the id of the session
        nursery.start_soon(self._look_again)

    async def role(self, user: str, password: str, origin: str) -> Role | None:
        role = await self._role(Login(user, password, self._tls), origin)
        if role is None or user != DEFAULT:
            return role
        if await self._role_of(Login(tls=self._tls)) is not None:
            raise AccountsAway(f"the nodes ask no password of the user {DEFAULT}: give it one")
        return role

    def mark(self, user: str) -> str:
        return ""

    def begun(self, session: Session, password: str) -> None:
        mine = [id for id, guest in self._guests.items() if guest.login.username == session.user]
        for id in mine[: 1 - SESSIONS]:
            self._end(id)
        login = Login(session.user, password, self._tls)
        calls = Calls(self._nursery, self._nodes, login)
        origin = f"session/{secrets.token_urlsafe(12)}"
        self._guests[session.id] = _Guest(login, origin, calls, session.role, session.expires)

    def still(self, session: Session) -> Role | None:
        guest = self._guests.get(session.id)
        if guest is None:
            return None
        guest.until = max(guest.until, session.expires)
        return guest.role

    def calls(self, session: Session) -> Calls:
        guest = self._guests.get(session.id)
        # If the session has just ended, its commands reach no node.
        return guest.calls if guest else Calls(self._nursery, Nodes(), Login())

    def ended(self, session: Session) -> None:
        self._end(session.id)

    def _end(self, id: str) -> None:
        guest = self._guests.pop(id, None)
        if guest is not None:
            guest.calls.close()

    async def _look_again(self) -> None:
        while True:
            await trio.sleep(LOOK_AGAIN)
            for id, guest in list(self._guests.items()):
                role: Role | None = None
                if guest.until > time.time():
                    try:
                        role = await self._role(guest.login, guest.origin)
                    except (AccountsAway, TooManyWrong):
                        continue  # no node can be asked, so the user can do nothing anyway
                if role is None:
                    self._end(id)
                else:
                    guest.role = role

    async def _role(self, login: Login, origin: str) -> Role | None:
        """Raises AccountsAway, TooManyWrong."""
        if not await self._may_log_in(login.username or "", login.password or "", origin):
            return None
        return await self._role_of(login)

    async def _may_log_in(self, user: str, password: str, origin: str) -> bool:
        """Whether the nodes say that the password is not wrong. Raises AccountsAway,
        TooManyWrong."""
        _, reply = await self._own.any("ACL", "CHECK", origin, user, password)
        if isinstance(reply, ConnectionLost):
            raise AccountsAway(str(reply))
        if isinstance(reply, ReplyError) and reply.code == "TRYAGAIN":
            raise TooManyWrong(reply.message)
        if not isinstance(reply, DisqueError):
            return reply != 0
        # The user's login will show it.
        if self._unchecked != str(reply):
            self._unchecked = str(reply)
            self._log.warning(
                "wrong passwords count for the address of the console: "
                "its own user cannot use ACL CHECK",
                why=str(reply),
            )
        return True

    async def _role_of(self, login: Login) -> Role | None:
        """Raises AccountsAway."""
        # Open new connections: existing ones survive a change of the password.
        calls = Calls(self._nursery, self._nodes, login)
        try:
            return await self._probe(calls)
        finally:
            calls.close()

    async def _probe(self, calls: Calls) -> Role | None:
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
