"""A request as the views see it, and what they answer."""

from collections.abc import Awaitable, Callable, Container, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, quote

from starlette.requests import Request

from disque_trio.console.io.calls import Answer, Calls
from disque_trio.console.io.recent import KEPT
from disque_trio.console.model.action import Form
from disque_trio.console.model.actions import ACTIONS
from disque_trio.console.model.cluster import Cluster
from disque_trio.console.model.names import quoted
from disque_trio.console.model.roles import Role
from disque_trio.console.model.sessions import Session
from disque_trio.console.web.console import Console
from disque_trio.resp.command import Argument

MAX_FORM: Final = 16 << 20  # bytes

_T = TypeVar("_T")


class Missing(Exception):
    """What was asked for is not there; the text says so."""


class TooLarge(Exception):
    """More than ``MAX_FORM`` was sent."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks. session: None: nobody has to log in. address: where from."""

    user: str
    role: Role
    address: str
    session: Session | None = None

    @property
    def form_id(self) -> str:
        """What the tokens of its forms are made of."""
        return "" if self.session is None else self.session.id


@dataclass(frozen=True, slots=True)
class Shown:
    """What a view wants to be shown: the values of its template."""

    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


class Visit:
    """A request of a visitor.

    Attributes:
        console: all that there is. visitor: who asks. now: when (s since the epoch).
    """

    def __init__(self, request: Request, console: Console, visitor: Visitor, now: float) -> None:
        self.request = request
        self.console = console
        self.visitor = visitor
        self.now = now
        self._query = _fields(request.scope["query_string"])

    @property
    def path(self) -> str:
        """Of the page, without the prefix."""
        return str(self.request.scope["path"])[len(self.console.prefix) :]

    @property
    def live(self) -> bool:
        """Whether only what changes is asked for, again and again."""
        return "text/event-stream" in self.request.headers.get("accept", "")

    @property
    def cluster(self) -> Cluster:
        """What is known of the cluster."""
        return self.console.cluster

    @property
    def calls(self) -> Calls:
        """Sends commands, as this visitor may."""
        session = self.visitor.session
        if session is None:
            return self.console.calls
        return self.console.accounts.calls(session)

    async def recently(
        self, key: Hashable, find: Callable[[], Awaitable[_T]], seconds: float = KEPT
    ) -> _T:
        """What ``find`` found for this visitor within the last ``seconds``."""
        return await self.console.recent.get(self.calls, key, find, seconds)

    async def every(self, *command: Argument) -> list[Answer]:
        """What all nodes have said to this within the last seconds, as this visitor may."""
        return await self.recently(command, partial(self.calls.every, *command))

    @property
    def role(self) -> Role:
        """What the visitor may do."""
        return self.visitor.role

    def may(self, action: str) -> bool:
        """Whether the visitor may do this."""
        return self.role >= ACTIONS[action].role

    def query(self, name: str, default: str = "") -> str:
        """A value behind the question mark; names of queues come out as they are."""
        values = self._query.get(name)
        return values[0] if values else default

    def query_all(self, name: str) -> list[str]:
        """All values of this name."""
        return list(self._query.get(name, ()))

    def number(self, name: str, default: int, least: int = 0, most: int = 1 << 53) -> int:
        """A number of the query; ``default`` where there is none that is good."""
        text = self.query(name)
        if not text.isdecimal() or len(text) > 16:
            return default
        return max(least, min(most, int(text)))

    def sorting(
        self, keys: Container[str], default: str, up_first: Container[str]
    ) -> tuple[str, str]:
        """The key that a list is sorted by, and ``up`` or ``down``: those in ``up_first`` go up
        unless the query says otherwise."""
        key = self.query("sort", default)
        if key not in keys:
            key = default
        return key, self.query("order", "up" if key in up_first else "down")

    def url(self, path: str, **query: object) -> str:
        """The address of a page of the console; what is empty or None is left out."""
        words = [
            f"{quote(name.rstrip('_'))}={quoted(str(value))}"
            for name, value in query.items()
            if value is not None and value != ""
        ]
        return self.console.prefix + path + ("?" + "&".join(words) if words else "")

    @property
    def here(self) -> str:
        """The address of this page, with its query."""
        query = self.request.scope["query_string"].decode("latin-1")
        return self.console.prefix + self.path + (f"?{query}" if query else "")

    @property
    def token(self) -> str:
        """What the forms of this visitor carry."""
        return self.console.sessions.token(self.visitor.form_id)

    async def form(self) -> Form:
        """The form that was sent. Raises TooLarge."""
        chunks: list[bytes] = []
        size = 0
        async for chunk in self.request.stream():
            size += len(chunk)
            if size > MAX_FORM:
                raise TooLarge
            chunks.append(chunk)
        return Form(_fields(b"".join(chunks)))

    def is_from_here(self, form: Form) -> bool:
        """Whether the form carries the token of this visitor."""
        return self.console.sessions.is_token(self.visitor.form_id, form.get("token"))


def _fields(data: bytes) -> dict[str, list[str]]:
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
