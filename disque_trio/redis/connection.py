"""Connections to Redis that repeat no command, and run scripts.

Owns how a connection is lost and made again. A ``RedisConnection`` has one ``Connection`` at a
time, that all tasks of a handle share; commands that block have one of their own.
"""

import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import trio

from disque_trio.redis.errors import RedisError, RedisUnavailable, redirection
from disque_trio.redis.script import Script
from disque_trio.resp.command import Argument
from disque_trio.respclient.addresses import Address
from disque_trio.respclient.concurrency import Nursery
from disque_trio.respclient.connection import Batch, Connection, Reply, why
from disque_trio.respclient.errors import ConnectionLost, DisqueError

REPLY_SECONDS = 10.0
GRACE_SECONDS = 1.0
"""How long a reply is still waited for once its caller was cancelled, or its time is over."""
MOST_REDIRECTIONS = 5
MOST_OVERDUE = 2
"""Connections on which a reply is overdue; while there are so many no other one is opened."""

_UNKNOWN = ("unknown command", "unknown subcommand", "sub command not supported")

Open = Callable[[Nursery, Address | None, float], Awaitable[Connection]]
"""Makes a connection, see ``Server.connect``."""
Late = Callable[[Coroutine[Any, Any, Reply]], None]
"""Gets what waits for the reply of a command that was given up, to await it in a task."""


class _NoFunctions(Exception):
    """The server has no functions for us."""


class Command(NamedTuple):
    """A command that was sent over ``connection``; its reply has to come within ``seconds``."""

    connection: Connection
    batch: Batch
    seconds: float


class _Attempt:
    """An attempt to connect. connection: once it has succeeded. failure: why it has not."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.connection: Connection | None = None
        self.failure = RedisUnavailable("the handle was closed", False)


class RedisConnection:
    """One connection, opened when it is needed and again after it was lost.

    It lives in ``nursery``; when that is cancelled, the connection is closed. A reply has to come
    within ``seconds``.

    Attributes:
        silent: a command was not replied to in time, and none was since.
    """

    def __init__(self, nursery: Nursery, open_: Open, seconds: float | None = None) -> None:
        self._seconds = REPLY_SECONDS if seconds is None else seconds
        self._nursery = nursery
        self._open = open_
        self._functions = True  # as far as is known
        self._connection: Connection | None = None
        self._node: Address | None = None
        self._attempt: _Attempt | None = None
        self._overdue: set[Connection] = set()
        self._overdue_changed = trio.Event()
        self.silent = False

    @property
    def host(self) -> str:
        """The name or address of the server it is connected to; empty if there is none."""
        return "" if self._connection is None else self._connection.address.host

    async def command(
        self,
        *words: Argument,
        seconds: float | None = None,
        until: float = math.inf,
        late: Late | None = None,
    ) -> Reply:
        """The reply to one command; it has to come within ``seconds`` after the connection is there
        (None: those of this object), and before ``until`` (Trio's time).

        Once a command is sent its reply says what has happened. So a cancellation waits for it, but
        no longer than ``GRACE_SECONDS``; then nobody knows, and ``silent`` is true. ``late`` is
        called if the command was given up before its ``seconds`` were over.

        Raises:
            RedisUnavailable: no connection, or no reply.
            RedisError: the server answered with an error.
        """
        for _ in range(MOST_REDIRECTIONS):
            connection = await self.connected_before(until)
            if trio.current_time() >= until:
                raise RedisUnavailable("no time is left to ask Redis", False, "hung")
            command = self.post(connection, *words, seconds=seconds)
            try:
                reply = await self._outcome(command, until, late)
            except RedisError as error:
                if error.code != "MOVED":
                    raise
                # The old connection stays open, as others may wait for replies on it.
                if self._connection is connection:
                    self._node = redirection(error, connection.address)
                    self._connection = None
            else:
                self.silent = False
                return reply
        raise RedisUnavailable("the nodes of the cluster do not agree who serves the queue", False)

    async def connected_before(self, until: float) -> Connection:
        """As ``connected``, before ``until`` (Trio's time)."""
        connection = self._connection
        if connection is not None and not connection.closed:
            return connection
        with trio.move_on_at(until):
            while self.silent and len(self._overdue) >= MOST_OVERDUE:
                await self._overdue_changed.wait()
            return await self.connected()
        raise RedisUnavailable("Redis does not answer: no connection in time", False, "hung")

    async def _outcome(self, command: Command, until: float, late: Late | None) -> Reply:
        """As ``reply``, but gives up at ``until``, and some time after a cancellation. The
        connection is not closed at once then, as others may wait for replies on it."""
        try:
            try:
                with trio.move_on_at(until):
                    return await self._reply(command)
            except trio.Cancelled:
                grace = min(until, trio.current_time() + GRACE_SECONDS)
                with trio.CancelScope(deadline=grace, shield=True):
                    return await self._reply(command)
                self._give_up(command, late)
                raise
            self._give_up(command, late)
            raise RedisUnavailable("Redis does not answer: no reply in time", True, "hung")
        except RedisUnavailable as error:
            if error.kind == "hung":
                self._retire(command.connection)
            raise

    def _give_up(self, command: Command, late: Late | None) -> None:
        self._retire(command.connection)
        if late is not None:
            late(self._late_reply(command))

    async def _late_reply(self, command: Command) -> Reply:
        """As ``_reply``, of a command that was given up."""
        reply: Reply | RedisError
        try:
            reply = await self._reply(command)
        except RedisError as error:
            reply = error
        self.silent = False
        self._stir()
        if isinstance(reply, RedisError):
            raise reply
        return reply

    def _retire(self, connection: Connection) -> None:
        """Let nothing more be sent over a connection on which a reply is overdue, and close it when
        those who still wait for theirs have got them, or have given up."""
        self.silent = True
        if self._connection is connection:
            self._connection = None
            try:
                self._nursery.start_soon(self._close_later, connection)
            except RuntimeError:  # the nursery is closed, and has closed the connection
                return
            self._overdue.add(connection)

    async def _close_later(self, connection: Connection) -> None:
        with trio.move_on_after(self._seconds):
            await connection.ended.wait()
        connection.close("a reply is overdue")
        self._overdue.discard(connection)
        self._stir()

    def _stir(self) -> None:
        self._overdue_changed.set()
        self._overdue_changed = trio.Event()

    async def script(
        self,
        script: Script,
        keys: list[bytes],
        arguments: list[Argument],
        until: float = math.inf,
        late: Late | None = None,
    ) -> Reply:
        """The reply of a script, by its function where the server has functions; the rest is as
        with ``command``. A function is there for good, a script until the server is restarted."""
        if self._functions:
            try:
                return await self._function(script, keys, arguments, until, late)
            except _NoFunctions:
                self._functions = False
        rest = (len(keys), *keys, *arguments)
        try:
            return await self.command(b"EVALSHA", script.sha, *rest, until=until, late=late)
        except RedisError as error:
            if error.code != "NOSCRIPT":
                raise
            # Nothing was executed. The server has it from now on, until it is restarted.
            return await self.command(b"EVAL", script.source, *rest, until=until, late=late)

    async def _function(
        self,
        script: Script,
        keys: list[bytes],
        arguments: list[Argument],
        until: float,
        late: Late | None,
    ) -> Reply:
        """As ``script``. Raises ``_NoFunctions``: the server has none, or we may not load or call
        them; nothing was executed."""
        call: tuple[Argument, ...] = (b"FCALL", script.function, len(keys), *keys, *arguments)
        for _ in range(2):
            try:
                return await self.command(*call, until=until, late=late)
            except RedisError as error:
                text = error.message.lower()
                if error.code == "NOPERM" or (error.code == "ERR" and text.startswith(_UNKNOWN)):
                    raise _NoFunctions from error
                if "function not found" not in text:
                    raise
            try:
                load = (b"FUNCTION", b"LOAD", b"REPLACE", script.library)
                await self.command(*load, until=until)
            except RedisError as error:
                raise _NoFunctions from error
        raise _NoFunctions

    @property
    def usable(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None and not self._connection.closed

    async def connected(self) -> Connection:
        """The connection, opened if there is none. Raises ``RedisUnavailable``."""
        connection = self._connection
        if connection is None or connection.closed:
            connection = await self._connect()
        return connection

    def post(
        self, connection: Connection, *words: Argument, seconds: float | None = None
    ) -> Command:
        """Send a command, of many that are under way at once."""
        return Command(connection, connection.submit([words]), seconds or self._seconds)

    async def reply(self, command: Command) -> Reply:
        """The reply to what was posted. If it does not come in time, or this is cancelled, the
        connection is closed.

        Raises:
            RedisUnavailable: no reply, or one that Redis cannot serve now.
            RedisError: the server answered with an error.
        """
        try:
            return await self._reply(command)
        finally:
            if not command.batch.done.is_set():
                command.connection.close("a reply did not come in time")

    async def _reply(self, command: Command) -> Reply:
        """As ``reply``, and the connection stays open."""
        done = command.batch.done
        if not done.is_set():
            with trio.move_on_after(command.seconds):
                await done.wait()
            if not done.is_set():
                raise RedisUnavailable("Redis does not answer: no reply in time", True, "hung")
        [reply] = command.batch.replies
        if isinstance(reply, ConnectionLost):
            text = f"the connection to Redis broke: {reply}"
            raise RedisUnavailable(text, reply.maybe_executed) from reply
        if not isinstance(reply, DisqueError):
            return reply
        assert isinstance(reply, RedisError)
        if reply.code == "LOADING":
            text = f"Redis is still loading its data: {reply}"
            raise RedisUnavailable(text, False, "refusing") from reply
        if reply.code == "READONLY":
            # A primary that is one no more; ask for the new one next time.
            self.drop()
            raise RedisUnavailable(
                f"Redis takes no writes here: {reply}", False, "refusing"
            ) from reply
        if str(reply).startswith("Protocol error"):
            self.drop()  # Redis closes the connection after that
        raise reply

    def drop(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connect(self) -> Connection:
        """A new connection, or the one that is just being made.

        It is made by a task of the nursery, which goes on for the others if the caller is
        cancelled.
        """
        attempt = self._attempt
        if attempt is None:
            attempt = _Attempt()
            try:
                self._nursery.start_soon(self._establish, attempt)
            except RuntimeError as error:
                raise RedisUnavailable("the handle was closed", False) from error
            self._attempt = attempt
        await attempt.ended.wait()
        if attempt.connection is None:
            failure = attempt.failure
            raise RedisUnavailable(str(failure), False, failure.kind) from failure
        return attempt.connection

    async def _establish(self, attempt: _Attempt) -> None:
        node, self._node = self._node, None
        try:
            connection = await self._open(self._nursery, node, self._seconds)
            self._node = node
            self._connection = attempt.connection = connection
        except RedisUnavailable as error:
            attempt.failure = error
        except Exception as error:  # such as a name that cannot be one of a host
            text = f"Unable to establish a connection to Redis ({why(error)})"
            attempt.failure = RedisUnavailable(text, False)
        finally:
            self._attempt = None
            attempt.ended.set()
