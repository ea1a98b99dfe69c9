"""The console's application in this process, with a clock and users controlled by the test."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlencode

import pytest
import trio
from starlette.types import Message

from disque_console.io.accounts import Accounts, TooManyWrong
from disque_console.io.audit import Audit
from disque_console.io.calls import Calls
from disque_console.io.history_file import HistoryFile
from disque_console.model.action import Order
from disque_console.model.attempts import Attempts, Browsers
from disque_console.model.roles import Role
from disque_console.model.sessions import Session, Sessions
from disque_console.web import app, security
from disque_console.web.app import application
from disque_console.web.console import Console
from disque_console.web.security import BROWSER_COOKIE, COOKIE
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.looks import Looks
from disque_trio.overview.nodes import Nodes
from disque_trio.process.logs import Log, Logging
from disque_trio.respclient import connection
from disque_trio.respclient.login import Login

PASSWORD: Final = "right"
LEFT: Final = b"\0left"
"""The last piece of a body whose sender disconnects."""
CONFIRMED: Final = {"confirmed": "yes", "queue": "q", "job": "D-x@127.0.0.1:7711"}
"""A form for any action, without the token."""


class NotedCalls(Calls):
    """Records what would be sent to nodes."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery, Nodes(), Login())
        self.orders: list[Order] = []

    async def run(self, orders: Sequence[Order]) -> list[tuple[Order, str, connection.Reply]]:
        self.orders += orders
        return [(order, "127.0.0.1:7711", b"OK") for order in orders]


class Users:
    """Accounts of users with ``PASSWORD``.

    Attributes:
        roles: of the users; tests may change them.
        origins: where passwords came from.
        refused: origins of too many wrong passwords; tests may change them.
    """

    wanted = True

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.roles = {str(role): role for role in Role}
        self.origins: list[str] = []
        self.refused: set[str] = set()

    async def role(self, user: str, password: str, origin: str) -> Role | None:
        self.origins.append(origin)
        if origin in self.refused:
            raise TooManyWrong("too many wrong passwords")
        return self.roles.get(user) if password == PASSWORD else None

    def mark(self, user: str) -> str:
        return ""

    def begun(self, session: Session, password: str) -> None:
        pass

    def still(self, session: Session) -> Role | None:
        return self.roles.get(session.user)

    def calls(self, session: Session) -> Calls:
        return self._calls

    def ended(self, session: Session) -> None:
        pass


@dataclass
class Reply:
    """A response of the application. cookies: what it sets, with attributes, by name."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def cookie(self) -> str:
        """The session cookie that it sets."""
        return self.cookies.get(COOKIE, "").partition(";")[0]


class Clock:
    """The application's clock. now: s since the epoch."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def time(self) -> float:
        return self.now


class World:
    """A console without nodes, and its visitors."""

    def __init__(self, console: Console, users: Users, calls: NotedCalls, clock: Clock) -> None:
        self.console = console
        self.users = users
        self.calls = calls
        self.clock = clock
        self.app = application(console)

    def session(self, user: str) -> str:
        """The cookie of a new session of a user."""
        _, cookie = self.console.sessions.begin(user, self.users.roles[user], self.clock.now)
        return cookie

    def token(self, cookie: str) -> str:
        """The token for the forms of a session."""
        session = self.console.sessions.read(cookie, self.clock.now)
        assert session is not None
        return self.console.sessions.token(session.id)

    async def ask(
        self,
        method: str,
        path: str,
        form: Mapping[str, str] | Sequence[bytes | None] = (),
        cookie: str = "",
        address: str = "10.0.0.1",
        browser: str = "",
        **headers: str | Sequence[str],
    ) -> Reply:
        """One request. form: fields, or pieces of the body, where None means that no more
        arrives, and LEFT that the sender has gone. browser: the cookie of a known one. headers: the
        value of each, or those of several lines with its name."""
        reply = Reply()
        if browser:
            cookie = f"{cookie}; {BROWSER_COOKIE}={browser}"
        async for _ in self.follow(method, path, form, cookie, address, reply, **headers):
            pass
        return reply

    async def follow(
        self,
        method: str,
        path: str,
        form: Mapping[str, str] | Sequence[bytes | None] = (),
        cookie: str = "",
        address: str = "10.0.0.1",
        reply: Reply | None = None,
        **headers: str | Sequence[str],
    ) -> AsyncIterator[bytes]:
        """One request; yields the pieces of the response."""
        reply = reply or Reply()
        pieces = [urlencode(form).encode()] if isinstance(form, Mapping) else list(form)
        headers.setdefault("host", "console.example")
        if cookie:
            headers["cookie"] = f"{COOKIE}={cookie}"
        sent = [
            (name.replace("_", "-").lower().encode(), value.encode())
            for name, values in headers.items()
            for value in ([values] if isinstance(values, str) else values)
        ]
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": sent,
            "client": (address, 1),
            "scheme": "http",
        }
        send, told = trio.open_memory_channel[Message](1000)

        async def receive() -> Message:
            if not pieces:
                if method == "GET":
                    await trio.sleep_forever()
                return {"type": "http.request", "body": b"", "more_body": False}
            piece = pieces.pop(0)
            if piece is None:
                await trio.sleep_forever()
            if piece == LEFT:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def run() -> None:
            async with send:
                await self.app(scope, receive, send.send)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            async for message in told:
                if message["type"] == "http.response.start":
                    reply.status = message["status"]
                    for name, value in message["headers"]:
                        reply.headers[name.decode().lower()] = value.decode()
                        if name.lower() == b"set-cookie":
                            cookie, _, rest = value.decode().partition("=")
                            reply.cookies[cookie] = rest
                else:
                    reply.body += message.get("body", b"")
                    yield message.get("body", b"")


@asynccontextmanager
async def world(
    monkeypatch: pytest.MonkeyPatch,
    audit: Path | None = None,
    prefix: str = "",
    trusted: frozenset[str] = frozenset(),
) -> AsyncIterator[World]:
    """A console for the duration of the block."""
    clock = Clock()
    for module in (app, security):
        monkeypatch.setattr(module, "time", clock)
    log = cast("Log", Logging("warning", "json").log)
    async with trio.open_nursery() as nursery:
        calls = NotedCalls(nursery)
        users = Users(calls)
        accounts: Accounts = users
        history = HistoryFile("", log)
        console = Console(
            Cluster(history.histories),
            Looks(),
            calls,
            accounts,
            Sessions(b"s" * 32),
            Attempts(),
            Browsers(b"s" * 32),
            Audit(str(audit) if audit else "", log),
            history,
            log,
            prefix=prefix,
            trusted=trusted,
        )
        with closing(console.audit):
            yield World(console, users, calls, clock)
        nursery.cancel_scope.cancel()


async def log_in(world: World, user: str, password: str = PASSWORD, address: str = "1") -> int:
    """Try to log in; returns the status of the response."""
    form = {"user": user, "password": password}
    return (await world.ask("POST", "/login", form, address=address)).status


def lines(audit: Path) -> list[dict[str, Any]]:
    """The lines of an audit."""
    return [json.loads(line) for line in audit.read_text().splitlines()]
