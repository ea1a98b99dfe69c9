"""Addresses of a Redis, and how to connect to it.

Owns TCP, TLS and Unix sockets, the login, and asking sentinels where the primary is.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import cast

import trio

from disque_trio.notation.addresses import Address
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import Nursery
from disque_trio.respclient.connection import Connection, OnPush, Reply, why
from disque_trio.respclient.errors import ConnectionLost, DisqueError, TlsError
from disque_trio.respclient.streams import open_stream
from disque_trio.respclient.tls import Encryption, TlsOption, refusal

CONNECT_SECONDS = 5.0

Credentials = Callable[[], Awaitable[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Options:
    """How to connect to a server.

    Attributes:
        db: the number of the database.
        username, password: for the login. Without a username, the default user; without both, no
            login.
        credentials: called for each connection to get username and password instead.
        tls: how to encrypt connections; the files of a ``Tls`` are read when it is first used.
        connect_seconds: the time in which the server must accept the connection.
        commands: commands to send first, after the login. They must succeed.
    """

    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    credentials: Credentials | None = None
    tls: TlsOption = None
    connect_seconds: float = CONNECT_SECONDS
    commands: tuple[tuple[Argument, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Server:
    """A Redis, or a cluster. ``addresses`` are those of the server, or of some nodes of the
    cluster; the first one that can be reached is used."""

    addresses: tuple[Address, ...]
    options: Options

    async def connect(
        self,
        nursery: Nursery,
        node: Address | None,
        seconds: float,
        on_push: OnPush | None = None,
    ) -> Connection:
        """Open a connection, whose tasks run in ``nursery``.

        Args:
            node: a node of the cluster to connect to instead.
            seconds: the time for the login, once connected.
            on_push: see ``Connection``.

        Raises:
            RedisUnavailable: there is no connection.
        """
        if node is not None:
            # Nodes of a cluster have no database but 0.
            options = replace(self.options, db=0)
            return (await _connect(nursery, node, options, seconds, on_push))[0]
        failure: RedisUnavailable | None = None
        for address in self.addresses:
            try:
                return (await _connect(nursery, address, self.options, seconds, on_push))[0]
            except RedisUnavailable as error:
                failure = failure or error
        raise failure or RedisUnavailable("no address of a Redis is known", False)


@dataclass(frozen=True, slots=True)
class Sentinels:
    """The Redis that sentinels report as the primary of a service.

    Attributes:
        sentinels: the sentinels to ask, in order.
        service: the name of the service, as the sentinels know it.
        options: options for connections to the Redis.
    """

    sentinels: tuple[Server, ...]
    service: str
    options: Options

    async def connect(
        self,
        nursery: Nursery,
        _: Address | None,
        seconds: float,
        on_push: OnPush | None = None,
    ) -> Connection:
        """Like ``Server.connect``. Raises ``RedisUnavailable`` also if it is not a primary now."""
        primary = await self._primary()
        options = replace(self.options, commands=(*self.options.commands, (b"ROLE",)))
        connection, replies = await _connect(nursery, primary, options, seconds, on_push)
        kind = cast("list[bytes]", replies[-1])[0].decode()
        if kind != "master":
            connection.close()
            text = f"Primary {self.service} at {primary} reports a role of {kind!r}"
            raise RedisUnavailable(text, False, "refusing")
        return connection

    async def _primary(self) -> Address:
        failure: Exception | None = None
        for sentinel in self.sentinels:
            try:
                reply = await self._ask(sentinel)
            except RedisUnavailable as error:
                failure = failure or error
                continue
            if reply:
                host, port = cast("list[bytes]", reply)
                return Address(host.decode(), int(port))
        what = f"no sentinel knows {self.service!r}"
        raise RedisUnavailable(f"{what}: {failure}" if failure else what, False) from failure

    async def _ask(self, sentinel: Server) -> Reply:
        """Ask one sentinel, over a connection only for that. Raises ``RedisUnavailable``."""
        failure = RedisUnavailable("no connection in time", False)
        replies: list[Reply] = []
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(CONNECT_SECONDS):
                try:
                    connection = await sentinel.connect(nursery, None, CONNECT_SECONDS)
                    command = (b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", self.service)
                    replies = await _replies(connection, [command])
                except RedisUnavailable as error:
                    failure = error  # kept out of the nursery, which would wrap it in a group
            nursery.cancel_scope.cancel()
        if not replies:
            raise failure
        return replies[0]


async def _connect(
    nursery: Nursery,
    address: Address,
    options: Options,
    seconds: float,
    on_push: OnPush | None = None,
) -> tuple[Connection, list[Reply]]:
    """Open a connection and log in. Returns it, and the replies to its first commands."""
    try:
        with trio.fail_after(options.connect_seconds):
            stream = await open_stream(address, Encryption.of(options.tls))
    except (OSError, ValueError, trio.TooSlowError) as error:
        text = f"Unable to establish a connection to {address} ({why(error)})"
        raise RedisUnavailable(text, False, "refusing" if refusal(error) else "down") from error
    connection = Connection(stream, address, RedisError, on_push)
    nursery.start_soon(connection.run)
    try:
        with trio.fail_after(seconds):
            return connection, await _replies(connection, await _log_in(options))
    except BaseException as error:
        connection.close()
        if isinstance(error, trio.TooSlowError):
            raise RedisUnavailable(f"{address} does not answer", False, "hung") from error
        raise


async def _log_in(options: Options) -> list[tuple[Argument, ...]]:
    username, password = options.username, options.password
    if options.credentials is not None:
        username, password = await options.credentials()
    hello: tuple[Argument, ...] = (b"HELLO", 3)
    if username or password:
        hello += (b"AUTH", username or "default", password or b"")
    select = [(b"SELECT", options.db)] if options.db else []
    return [hello, *select, *options.commands]


async def _replies(connection: Connection, commands: list[tuple[Argument, ...]]) -> list[Reply]:
    """Return the replies to the first commands of a connection.

    Raises:
        RedisUnavailable: the connection broke, or one of the replies is an error.
    """
    replies = await connection.execute_many(commands)
    for reply in replies:
        if isinstance(reply, ConnectionLost):
            text = f"Unable to establish a connection to {reply}"
            kind = "refusing" if isinstance(reply, TlsError) else "down"
            raise RedisUnavailable(text, False, kind) from reply
        if isinstance(reply, DisqueError):
            # With too many clients, the server is as good as down; other errors are refusals.
            full = "max number of clients" in str(reply)
            raise RedisUnavailable(f"{reply}", False, "down" if full else "refusing") from reply
    return replies
