"""Connections to Redis that repeat nothing, and the running of scripts over them.

Owns how a connection is opened, lost and opened again. A `Link` has one connection, that all tasks
of a handle share; commands that block have a link of their own.

coredis' clients and pools are not used for commands: a pool loses a place for each command that
was cancelled or lost while it had a connection for itself, and a client takes twice the time. What
a client passed in says about where and how to connect is.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import trio
from coredis.client import Client
from coredis.connection import (
    BaseConnection,
    ClusterConnection,
    SentinelManagedConnection,
    TCPConnection,
    TCPLocation,
)
from coredis.connection._request import Request
from coredis.exceptions import (
    AuthorizationError,
    BusyLoadingError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    UnknownCommandError,
)
from coredis.exceptions import ConnectionError as RedisConnectionError
from coredis.pool import ClusterConnectionPool, ConnectionPool, SentinelConnectionPool
from coredis.typing import ResponseType

# What goes wrong is raised here; without a handler Python would print coredis' records as well.
logging.getLogger("coredis").addHandler(logging.NullHandler())

CONNECT_SECONDS = 5.0
REPLY_SECONDS = 10.0
MOST_REDIRECTIONS = 5

# Whatever a client has been told, these are ours to decide.
_OURS = {"noreply": False, "stream_timeout": None, "decode_responses": False}

Argument = bytes | str | int
Open = Callable[[TCPLocation | None], Awaitable[BaseConnection]]


class Place(Protocol):
    """Where a Redis is. server: host name or address. port: TCP. db: number of the database."""

    @property
    def server(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def db(self) -> int: ...


class Script:
    """A script, and the same as a function for servers that have those.

    Args:
        source: Lua; takes KEYS and ARGV.
        name: what it is called in FUNCTION LIST.
        allow_oom: run it also where the memory is full. As a script it is refused then at its first
            command that takes memory, if nothing was written before; as a function at once.

    Attributes:
        source: Lua. sha: its SHA-1 in hexadecimal, under which Redis caches the script.
        function: name of the function; another source has another one. library: defines it.
    """

    __slots__ = ("function", "library", "sha", "source")

    def __init__(self, source: str, name: str = "script", allow_oom: bool = True) -> None:
        self.source = source.encode()
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()
        function = f"disque_trio_{name}_{self.sha[:12].decode()}"
        flags = "'allow-oom'" if allow_oom else ""
        self.function = function.encode()
        self.library = (
            f"#!lua name={function}\n"
            f"redis.register_function{{function_name='{function}', flags={{{flags}}}, "
            f"callback=function(KEYS, ARGV)\n{source}\nend}}\n"
        ).encode()


class _NoFunctions(Exception):
    """The server has no functions for us."""


class LinkLost(Exception):
    """There is no connection, or it broke. `maybe_executed`: after the command had been sent."""

    def __init__(self, message: str, maybe_executed: bool) -> None:
        super().__init__(message)
        self.maybe_executed = maybe_executed


def opener(place: Place, client: "Client[Any] | None") -> Open:
    """How to make a connection (not yet running): to the server at `place`, or as `client`
    does, which may be a `Redis`, one from a `Sentinel`, or a `RedisCluster`; none has to be entered
    as a context. The function gets the node of a cluster it has to be, or None."""

    async def plain(location: TCPLocation | None) -> BaseConnection:
        return TCPConnection(
            location or TCPLocation(place.server, place.port),
            # The nodes of a cluster know no databases.
            db=None if location else place.db,
            connect_timeout=CONNECT_SECONDS,
        )

    return plain if client is None else _like(client)


def _like(client: "Client[Any]") -> Open:
    pool = client.connection_pool
    options: Any = {**pool.connection_kwargs, **_OURS}
    if options.get("connect_timeout") is None:
        options["connect_timeout"] = CONNECT_SECONDS

    async def like_client(location: TCPLocation | None) -> BaseConnection:
        if isinstance(pool, ClusterConnectionPool):
            return ClusterConnection(location or await _any_node(pool.startup_nodes), **options)
        if isinstance(pool, SentinelConnectionPool):
            primary = await _primary(pool)
            return SentinelManagedConnection(primary, pool.service_name, True, **options)
        assert isinstance(pool, ConnectionPool)
        there = location or pool.location
        assert there is not None
        kind: type[BaseConnection] = pool.connection_class
        return kind(there, **options)

    return like_client


async def _any_node(nodes: list[TCPLocation]) -> TCPLocation:
    """The first of the nodes that can be reached."""
    for node in nodes:
        with trio.move_on_after(CONNECT_SECONDS):
            if await node.check():
                return node
    return nodes[0]


async def _primary(pool: SentinelConnectionPool) -> TCPLocation:
    """Where the sentinels say the primary is.

    They are asked over connections of ours: coredis' pools forget to close those that fail.

    Raises:
        LinkLost: none of them knows.
    """
    failure: Exception | None = None
    words = (b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", pool.service_name)
    for sentinel in pool.sentinel_manager.sentinels:
        try:
            reply = await _ask(_like(sentinel), words)
        except (LinkLost, RedisError) as error:
            failure = failure or error
            continue
        if reply:
            host, port = cast("list[bytes]", reply)
            return TCPLocation(host.decode(), int(port))
    why = f"no sentinel knows {pool.service_name!r}"
    raise LinkLost(f"{why}: {failure}" if failure else why, False) from failure


async def _ask(open_: Open, words: tuple[Argument, ...]) -> ResponseType:
    """The reply to one command, over a connection for it alone. Raises as `Link.command`."""
    failure: Exception = LinkLost("no connection in time", False)
    reply: ResponseType = None
    answered = False
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(CONNECT_SECONDS):
            try:
                reply = await Link(nursery, open_).command(*words, seconds=CONNECT_SECONDS)
                answered = True
            except (LinkLost, RedisError) as error:
                failure = error  # kept out of the nursery, which would wrap it in a group
        nursery.cancel_scope.cancel()
    if answered:
        return reply
    raise failure


class Link:
    """One connection, opened when it is needed and again after it was lost.

    It lives in `nursery`; when that is cancelled, the connection is closed.
    """

    __slots__ = ("_attempt", "_connection", "_functions", "_node", "_nursery", "_open")

    def __init__(self, nursery: trio.Nursery, open_: Open) -> None:
        self._nursery = nursery
        self._open = open_
        self._functions = True  # as far as is known
        self._connection: BaseConnection | None = None
        self._node: TCPLocation | None = None
        self._attempt: _Attempt | None = None

    @property
    def host(self) -> bytes:
        """The name or address of the server it is connected to; empty if there is none."""
        return str(getattr(self._connection, "host", "")).encode()

    async def command(self, *words: Argument, seconds: float = REPLY_SECONDS) -> ResponseType:
        """The reply to one command; it has to come within `seconds`.

        May be cancelled only while there is no connection yet: once a command is sent its reply is
        waited for, since it says what has happened.

        Raises:
            LinkLost: no connection, or no reply.
            RedisError: the server answered with an error.
        """
        for _ in range(MOST_REDIRECTIONS):
            connection = await self.connected()
            with trio.CancelScope(shield=True):
                try:
                    return await self.reply(self.post(connection, *words, seconds=seconds))
                except MovedError as error:
                    host = error.host or getattr(connection, "host", "")
                    # The old connection stays open, as others may wait for replies on it.
                    if self._connection is connection:
                        self._node = TCPLocation(host, error.port)
                        self._connection = None
        raise LinkLost("the nodes of the cluster do not agree who serves the queue", False)

    async def script(
        self, script: Script, keys: list[bytes], arguments: list[Argument]
    ) -> ResponseType:
        """The reply of a script, by its function where the server has functions; raises as
        `command`. A function is there for good, a script until the server is restarted."""
        if self._functions:
            try:
                return await self._function(script, keys, arguments)
            except _NoFunctions:
                self._functions = False
        try:
            return await self.command(b"EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            # Nothing was executed. The server has it from now on, until it is restarted.
            return await self.command(b"EVAL", script.source, len(keys), *keys, *arguments)

    async def _function(
        self, script: Script, keys: list[bytes], arguments: list[Argument]
    ) -> ResponseType:
        """As `script`. Raises `_NoFunctions`: the server has none, or we may not load or call
        them; nothing was executed."""
        call: tuple[Argument, ...] = (b"FCALL", script.function, len(keys), *keys, *arguments)
        for _ in range(2):
            try:
                return await self.command(*call)
            except (UnknownCommandError, AuthorizationError) as error:
                raise _NoFunctions from error
            except RedisError as error:
                if "function not found" not in str(error).lower():
                    raise
            try:
                await self.command(b"FUNCTION", b"LOAD", b"REPLACE", script.library)
            except RedisError as error:
                raise _NoFunctions from error
        raise _NoFunctions

    @property
    def usable(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None and self._connection.usable

    async def connected(self) -> BaseConnection:
        """The connection, opened if there is none. Raises `LinkLost`."""
        connection = self._connection
        if connection is None or not connection.usable:
            connection = await self._connect()
        return connection

    def post(
        self, connection: BaseConnection, *words: Argument, seconds: float = REPLY_SECONDS
    ) -> Request:
        """Send a command, of many that are under way at once. Whoever waits for its `reply` is
        shielded from cancellation, or the connection is lost.

        Raises:
            LinkLost: there is no connection any more.
        """
        try:
            return connection.create_request(
                bytes(words[0]) if isinstance(words[0], bytes) else str(words[0]).encode(),
                *words[1:],
                decode=False,
                timeout=seconds,
                # After a timeout the connection is of no use any more.
                disconnect_on_cancellation=True,
            )
        except Exception as error:
            raise LinkLost(f"the connection to Redis is lost: {error}", False) from error

    async def reply(self, request: Request) -> ResponseType:
        """The reply to what was posted; raises as `command`, and `MovedError`."""
        try:
            return await request
        except BusyLoadingError as error:
            raise LinkLost(f"Redis is still loading its data: {error}", False) from error
        except ReadOnlyError as error:
            # A primary that is one no more; ask for the new one next time.
            self._drop()
            raise LinkLost(f"Redis takes no writes here: {error}", False) from error
        except RedisConnectionError as error:
            raise LinkLost(f"the connection to Redis broke: {error}", True) from error
        except RedisError as error:
            if str(error).startswith("Protocol error"):
                self._drop()  # Redis closes the connection after that
            raise
        except Exception as error:
            raise LinkLost(f"the connection to Redis broke: {error!r}", True) from error

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection = None

    async def _connect(self) -> BaseConnection:
        """A new connection, or the one that is just being made.

        It is made by a task of the nursery, which goes on if the caller is cancelled: coredis
        takes a cancellation in the middle of its handshake for a failure of the connection.
        """
        attempt = self._attempt
        if attempt is None:
            attempt = _Attempt()
            try:
                self._nursery.start_soon(self._establish, attempt)
            except RuntimeError as error:
                raise LinkLost("the handle was closed", False) from error
            self._attempt = attempt
        await attempt.ended.wait()
        if attempt.connection is None:
            raise LinkLost(attempt.error, False) from attempt.cause
        return attempt.connection

    async def _establish(self, attempt: "_Attempt") -> None:
        node, self._node = self._node, None
        connection: BaseConnection | None = None
        limit = trio.CancelScope()
        try:
            connection = await self._open(node)
            # coredis limits the time to connect, but not that of its first commands.
            limit.deadline = trio.current_time() + REPLY_SECONDS
            with limit:
                await self._nursery.start(_run, connection)
                self._node = node
                self._connection = attempt.connection = connection
        except LinkLost as error:
            attempt.cause = error
            attempt.error = str(error)
        except Exception as error:
            attempt.cause = error
            attempt.error = f"{error} ({error.__cause__ or type(error).__name__})"
        finally:
            if attempt.connection is None and connection is not None:
                _discard(connection)
                if limit.cancel_called:  # coredis makes another error of it
                    attempt.error = f"{connection.location} does not answer"
            self._attempt = None
            attempt.ended.set()


class _Attempt:
    """An attempt to connect. connection: once it has succeeded. error, cause: why it has not."""

    __slots__ = ("cause", "connection", "ended", "error")

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.connection: BaseConnection | None = None
        self.error = "the handle was closed"
        self.cause: Exception | None = None


def _discard(connection: BaseConnection) -> None:
    """Close what a connection that never came about leaves open; coredis 6 forgets to."""
    for purpose in ("push_message", "streamed_message", "write"):
        for end in ("in", "out"):
            stream = getattr(connection, f"_{purpose}_buffer_{end}", None)
            if stream is not None:
                stream.close()


async def _run(
    connection: BaseConnection, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run the connection until it ends. That it does is seen by its next command."""
    started = False

    class Status:
        def started(self, value: None = None) -> None:
            nonlocal started
            started = True
            task_status.started(value)

    try:
        await connection.run(task_status=Status())
    except Exception:
        if not started:
            raise
