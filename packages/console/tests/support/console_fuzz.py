"""A console on a real node without sockets, and requests that a browser would not send."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final, cast
from urllib.parse import quote

import hiredis
import pytest
import trio

from disque_console.io.calls import LIMIT, Calls
from disque_console.model.action import WAS, Order
from disque_console.model.actions import ACTIONS
from disque_console.model.policy_actions import FIELDS as POLICY_FIELDS
from disque_console.model.roles import Role
from disque_console.web import bulking, visit
from disque_console.web.pages import PAGES
from disque_console.web.visit import parse_fields
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ConnectionLost, reply_error
from disque_trio.respserver.slices import do_slice
from packages.console.tests.support.console_app import PASSWORD, NotedCalls, World, world
from packages.console.tests.support.console_app import Reply as Answer
from tests.support.node_bench import Bench

ADDRESS: Final = "127.0.0.1:7711"
MARK: Final = "<fuzz'\""
"""Must not appear in a page as it is."""

FIELDS: Final = (
    "action", "back", "body", "by", "catchup", "confirmed", "count", "cursor", "dead", "delay",
    "direction", "do", "edits", "ends", "filter", "from", "group", "groups", "header", "headers",
    "host", "id", "job", "mark", "maxlen", "name", "next", "node", "note", "oldest", "only",
    "options", "order", "page", "password", "policy", "port", "priority", "queue", "range", "rate",
    "reason", "replicate", "retry", "returns", "round", "run", "schedule", "search", "setting",
    "shown", "size", "sort", "state", "text", "then", "times", "to", "token", "ttl", "tz", "user",
    "value", "which", "youngest", "active", "attempts", "backoff-max", "backoff-min", "burst",
    "deadttl", "groupactive", "groupburst", "grouprate", "look", "maxbytes", "running", "who",
    *(f"{name}{WAS}" for name in ("body", "queue", "times", "name", "options")),
    *(f"{name}{WAS}" for name, _, _ in POLICY_FIELDS),
)  # fmt: skip
_VALUES: Final = (
    "", "q", "mail.a", "yes", "no", "0", "1", "-1", "5", "1e9", "9" * 30, "nan", "٣", "queued",
    "name", "up", "down", "*", "mail.*", "[", "@every 1d", "UTC", "in", "all", ADDRESS, "x:1",
    "maxmemory", "requirepass", "admin", PASSWORD, MARK, f"{MARK} onload=x", "{{7*7}}", "a b",
    "//evil", "/queues", "\\\\evil", "\0", "\n", "\r\nX-Y: z", "é", "\udcff", "%", "%zz", "%00",
    "D-x@127.0.0.1:7711", "x" * 300, "24h", "group",
)  # fmt: skip
_PATHS: Final = (
    *(page.path for page in PAGES),
    *(f"/do/{name}" for name in ACTIONS),
    *("/job/body", "/bulk/go", "/login", "/logout", "/theme", "/health", "/static/console.css"),
    *("/static/../app.py", "/do/nothing", "//queues", "/%2e%2e/", "/queue/", "/QUEUES", "/\udcff"),
)
_HEADERS: Final = {
    "host": ("console.example", "evil", "", "[::1]", "[", "a:b:c"),
    "origin": ("http://console.example", "http://evil", "null", "http://["),
    "sec-fetch-site": ("same-origin", "cross-site", "none", "?"),
    "accept": ("text/html", "*/*", ""),
    "cookie": ("theme=dark", "a", "=", "disque_console=x", "a=b; disque_console=", '"', "\xff"),
    "x-forwarded-for": ("1.2.3.4", ",", "\xff", "x" * 200),
    "x-forwarded-proto": ("https", "ftp"),
    "content-type": ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain"),
    "range": ("bytes=0-1", "bytes=-1", "x"),
    "if-none-match": ("*", '"x"'),
}


class Noted(dict[str, list[str]]):
    """The fields of a query or a form.

    Attributes:
        asked: names of all fields that the console has looked for.
    """

    asked: ClassVar[set[str]] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> list[str]:
        self.asked.add(name)
        return super().__getitem__(name)


class CoreCalls(NotedCalls):
    """Sends the commands to a node in this process.

    Attributes:
        sent: the commands.
    """

    def __init__(self, nursery: trio.Nursery, bench: Bench, here: World) -> None:
        super().__init__(nursery)
        self.sent: list[Sequence[Argument]] = []
        self._nodes = here.console.cluster.nodes
        self._bench = bench

    async def many(self, address: str, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        return [self._answer(command) for command in commands]

    def _answer(self, command: Sequence[Argument]) -> Reply:
        """The node's reply to ``command`` within ``LIMIT``."""
        self.sent.append(command)
        bench = self._bench
        client = bench.client()
        words = [
            word.encode("utf-8", "surrogateescape") if isinstance(word, str) else word
            for word in command
        ]
        bench.send(client, *words)  # type: ignore[arg-type]
        reader = hiredis.Reader()
        reader.feed(bench.raw(client))
        end = bench.now + LIMIT * 1000
        while (reply := reader.gets()) is False and bench.now < end:
            while bench.node.batches.waiting:
                do_slice(bench.node, bench.now)
            bench.advance(0.1)
            reader.feed(bench.raw(client))  # a long reply comes in pieces
        bench.disconnect(client)
        if client in bench.host.closed:
            bench.host.closed.remove(client)
        if reply is False:
            return ConnectionLost("no answer", maybe_executed=True)
        is_error = isinstance(reply, hiredis.ReplyError)
        return reply_error(str(reply)) if is_error else cast("Reply", reply)

    async def run(self, orders: Sequence[Order]) -> list[tuple[Order, str, Reply]]:
        return await Calls.run(self, orders)


@asynccontextmanager
async def fuzzed(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> AsyncIterator[World]:
    """A console on ``bench``, whose world it is."""
    for module in (visit, bulking):
        monkeypatch.setattr(module, "parse_fields", lambda data: Noted(parse_fields(data)))
    async with world(monkeypatch, trusted=frozenset({"proxy"})) as here, trio.open_nursery() as all:
        calls = CoreCalls(all, bench, here)
        here.calls = here.console.calls = here.users._calls = calls
        look(here, bench)
        yield here
        all.cancel_scope.cancel()


def look(here: World, bench: Bench) -> None:
    """Let the console see the node as it is now."""
    lines = bench.text("INFO").splitlines()
    info = dict(line.split(":", 1) for line in lines if ":" in line)
    cluster = here.console.cluster
    cluster.nodes.responded(ADDRESS, bench.node.id.decode(), here.clock.now)
    cluster.take(ADDRESS, info, "", here.clock.now)


class Browser:
    """Makes requests.

    Args:
        here: the console. rng: random numbers.

    Attributes:
        ids: of jobs. user, host: of the last request.
        size: bytes of all requests.
    """

    def __init__(self, here: World, rng: random.Random) -> None:
        self._here = here
        self._rng = rng
        self._cookies = {"": "", **{str(role): here.session(str(role)) for role in Role}}
        self.ids: list[str] = []
        self.user = self.host = ""
        self.size = 0

    async def ask(self) -> tuple[str, Answer]:
        """Send the next request; returns its method and the reply."""
        rng = self._rng
        self.user = rng.choice((*self._cookies, "operator", "admin"))
        cookie = self._cookies[self.user]
        if cookie and self._here.console.sessions.read(cookie, self._here.clock.now) is None:
            cookie = self._cookies[self.user] = self._here.session(self.user)  # it logged out
        path = rng.choice(_PATHS)
        posts = path.startswith(("/do/", "/bulk", "/log")) and rng.random() < 0.9
        method = "POST" if posts else rng.choice(("GET", "GET", "GET", "HEAD", "PUT", "OPTIONS"))
        fields = [(rng.choice(FIELDS), self._value()) for _ in range(rng.randrange(9))]
        often = 0.9 if posts else 0.5
        named = [name for name in ("queue", "name", "job", "id") if rng.random() < often]
        fields += [(name, self._value(name)) for name in named]
        if cookie and rng.random() < 0.8:
            fields += [("token", self._here.token(cookie)), ("confirmed", "yes")]
        rng.shuffle(fields)
        text = "&".join(f"{name}={_quoted(value, rng)}" for name, value in fields)
        pieces = [text.encode("latin-1", "replace")] if posts else []
        headers: dict[str, str] = {}
        for name, values in _HEADERS.items():
            if rng.random() < 0.1:
                headers[name] = rng.choice(values)
        self.host = headers.get("host", "console.example")
        cookie = "; ".join(filter(None, (cookie, headers.pop("cookie", ""))))
        target = path if posts and rng.random() < 0.8 else f"{path}?{text}"
        target = target.encode("utf-8", "surrogateescape").decode("latin-1")
        self.size += len(target) + len(text) * posts + sum(map(len, headers.values()))
        address = rng.choice(("10.0.0.1", "proxy", f"10.1.{rng.randrange(9)}.1"))
        return method, await self._here.ask(method, target, pieces, cookie, address, **headers)

    def _value(self, name: str = "") -> str:
        rng = self._rng
        if name in ("queue", "name") and rng.random() < 0.8:
            return rng.choice(("q", "mail.a", MARK, "s"))
        if name in ("job", "id") and self.ids and rng.random() < 0.8:
            id = rng.choice(self.ids)
            return f"{id}@{ADDRESS}" if name == "job" else id
        return rng.choice(_VALUES)


def _quoted(value: str, rng: random.Random) -> str:
    """``value`` as a browser would send it; sometimes as it is."""
    if rng.random() < 0.05:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return quote(value, safe="", errors="surrogateescape")
