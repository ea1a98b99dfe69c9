"""A request as views see it, and their result."""

from collections.abc import Awaitable, Callable, Container, Hashable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote

import trio
from starlette.requests import Request

from disque_console.io.calls import Answer, Calls
from disque_console.io.recent import KEPT
from disque_console.model.action import Form
from disque_console.model.actions import ACTIONS
from disque_console.model.roles import Role
from disque_console.model.sessions import Session
from disque_console.web.console import Console
from disque_trio import humanize
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.names import quoted
from disque_trio.resp.command import Argument

MAX_FORM: Final = 16 << 20  # bytes
SMALL_FORM: Final = 1 << 20  # bytes of a form without a body of a job
LARGE_FORM: Final = 1 << 16  # bytes from which a form is parsed in a thread
FORM_SECONDS: Final = 60.0  # time limit for receiving a form

_T = TypeVar("_T")


class Missing(Exception):
    """The requested thing does not exist; the text is for the visitor."""


class TooLarge(Exception):
    """A form is larger than allowed; the text is the limit."""


class TooSlow(Exception):
    """A form did not arrive within ``FORM_SECONDS``."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request. session: None if no login is required. address: where from."""

    user: str
    role: Role
    address: str
    session: Session | None = None

    @property
    def form_id(self) -> str:
        """The id from which form tokens are made."""
        return "" if self.session is None else self.session.id


@dataclass(frozen=True, slots=True)
class Shown:
    """A view's result: the values for its template."""

    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


class Visit:
    """A visitor's request.

    Attributes:
        console: the shared objects. visitor: the sender. now: the time (s since the epoch).
    """

    def __init__(self, request: Request, console: Console, visitor: Visitor, now: float) -> None:
        self.request = request
        self.console = console
        self.visitor = visitor
        self.now = now
        self._query = parse_fields(request.scope["query_string"])

    @property
    def path(self) -> str:
        """The path of the page, without the prefix."""
        return str(self.request.scope["path"])[len(self.console.prefix) :]

    @property
    def live(self) -> bool:
        """Whether the browser requests live updates."""
        return "text/event-stream" in self.request.headers.get("accept", "")

    @property
    def cluster(self) -> Cluster:
        """The state of the cluster."""
        return self.console.cluster

    @property
    def calls(self) -> Calls:
        """Sends commands with the visitor's permissions."""
        session = self.visitor.session
        if session is None:
            return self.console.calls
        return self.console.accounts.calls(session)

    async def recently(
        self, key: Hashable, find: Callable[[], Awaitable[_T]], seconds: float = KEPT
    ) -> _T:
        """The result of ``find`` for this visitor, at most ``seconds`` old."""
        return await self.console.recent.get(self.calls, key, find, seconds)

    async def every(self, *command: Argument) -> list[Answer]:
        """All nodes' replies to a command, a few seconds old at most, with the visitor's
        permissions."""
        return await self.recently(command, partial(self.calls.every, *command))

    @property
    def role(self) -> Role:
        """The visitor's role."""
        return self.visitor.role

    def may(self, action: str) -> bool:
        """Whether the visitor may perform this action."""
        return self.role >= ACTIONS[action].role

    def query(self, name: str, default: str = "") -> str:
        """A value from the query; quoted queue names are decoded."""
        values = self._query.get(name)
        return values[0] if values else default

    def query_all(self, name: str) -> list[str]:
        """All values with this name."""
        return list(self._query.get(name, ()))

    def number(self, name: str, default: int, least: int = 0, most: int = 1 << 53) -> int:
        """A number from the query; ``default`` if it is missing or invalid."""
        text = self.query(name)
        if not text.isdecimal() or len(text) > 16:
            return default
        return max(least, min(most, int(text)))

    def sorting(
        self, keys: Container[str], default: str, up_first: Container[str]
    ) -> tuple[str, str]:
        """The key to sort a list by, and ``up`` or ``down``; keys in ``up_first`` sort up unless
        the query says otherwise."""
        key, order = self.query("sort"), self.query("order")
        if key not in keys:
            key = default
        if order not in ("up", "down"):
            order = "up" if key in up_first else "down"
        return key, order

    def url(self, path: str, **query: object) -> str:
        """The address of a page. Empty and None values are left out, except in lists, whose values
        are added one by one."""
        words = [
            f"{quote(name.rstrip('_'))}={quoted(str(value))}"
            for name, values in query.items()
            for value in (values if isinstance(values, list) else [values])
            if isinstance(values, list) or (value is not None and value != "")
        ]
        return self.console.prefix + path + ("?" + "&".join(words) if words else "")

    @property
    def here(self) -> str:
        """The address of this page, with its query."""
        query = self.request.scope["query_string"].decode("latin-1")
        return self.console.prefix + self.path + (f"?{query}" if query else "")

    @property
    def token(self) -> str:
        """The token for this visitor's forms."""
        return self.console.sessions.token(self.visitor.form_id)

    @property
    def query_fields(self) -> Mapping[str, list[str]]:
        """The values of all fields of the query."""
        return self._query

    async def form(self, most: int = MAX_FORM) -> Form:
        """The submitted form, of at most ``most`` bytes. Raises TooLarge, TooSlow."""
        data = await self.body(most)
        if len(data) < LARGE_FORM:
            return Form(parse_fields(data))
        return Form(await trio.to_thread.run_sync(parse_fields, data))

    async def body(self, most: int = MAX_FORM) -> bytes:
        """The body of the request, of at most ``most`` bytes. Raises TooLarge, TooSlow."""
        chunks: list[bytes] = []
        size = 0
        with trio.move_on_after(FORM_SECONDS) as scope:
            async with aclosing(self.request.stream()) as stream:
                async for chunk in stream:
                    size += len(chunk)
                    if size > most:
                        raise TooLarge(humanize.size(most))
                    chunks.append(chunk)
        if scope.cancelled_caught:
            raise TooSlow
        return b"".join(chunks)

    def is_from_here(self, form: Form) -> bool:
        """Whether the form contains this visitor's token."""
        return self.console.sessions.is_token(self.visitor.form_id, form.get("token"))


def parse_fields(data: bytes) -> dict[str, list[str]]:
    """The values of each field of a query or form, in order; none if there are too many."""
    fields: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(
            data.decode("latin-1"),
            keep_blank_values=True,
            encoding="utf-8",
            errors="surrogateescape",
            max_num_fields=10_000,
        )
    except ValueError:
        return {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields
