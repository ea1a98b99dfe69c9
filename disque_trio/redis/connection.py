"""Connections to Redis that repeat no command, and run scripts.

Owns how a connection is lost and made again. A ``RedisConnection`` has one ``Connection`` at a
time, which all tasks of a handle share; blocking commands have connections of their own.
"""

import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import trio

from disque_trio.notation.addresses import Address
from disque_trio.redis.errors import RedisError, RedisUnavailable, redirection
from disque_trio.redis.script import Script
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import Nursery
from disque_trio.respclient.connection import Batch, Connection, Reply, why
from disque_trio.respclient.errors import ConnectionLost, DisqueError

REPLY_SECONDS = 10.0
GRACE_SECONDS = 1.0
"""Seconds to wait for a reply after its caller was cancelled or has timed out."""
MOST_REDIRECTIONS = 5
MOST_OVERDUE = 2
"""The most connections on which a reply is overdue. While there are that many, none is opened."""

_UNKNOWN = ("unknown command", "unknown subcommand", "sub command not supported")

Open = Callable[[Nursery, Address | None, float], Awaitable[Connection]]
"""Makes a connection; see ``Server.connect``."""
Late = Callable[[Coroutine[Any, Any, Reply]], None]
"""Called with a coroutine that waits for the reply of a command that was given up. It has to await
that coroutine in a task."""


class _NoFunctions(Exception):
    """The server has no functions, or does not let us use them."""


class Command(NamedTuple):
    """A command that was sent over ``connection``. Its reply must arrive within ``seconds``."""

    connection: Connection
    batch: Batch
    seconds: float


class _Attempt:
    """An attempt to connect. It sets ``connection`` when it succeeds, ``failure`` if it fails."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.connection: Connection | None = None
        self.failure = RedisUnavailable("the handle was closed", False)


class RedisConnection:
    """One connection, opened when needed and again after it was lost.

    It lives in ``nursery``; when that is cancelled, the connection is closed. Replies must arrive
    within ``seconds``.

    Attributes:
        silent: whether a command got no reply in time, and none has arrived since.
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
        """Run one command and return its reply.

        Once a command is sent, only its reply tells what happened. So a cancellation waits for it,
        but no longer than ``GRACE_SECONDS``; then nobody knows, and ``silent`` is set.

        Args:
            seconds: how long to wait for the reply, once connected; None: this object's default.
            until: when to stop waiting in any case, on Trio's clock.
            late: called if the command is given up before its ``seconds`` are over.

        Raises:
            RedisUnavailable: there is no connection, or no reply.
            RedisError: the server replied with an error.
        """
        for _ in range(MOST_REDIRECTIONS):
            connection = await self.connected_before(until)
            if trio.current_time() >= until:
                raise RedisUnavailable("there is no time left to ask Redis", False, "hung")
            command = self.post(connection, *words, seconds=seconds)
            try:
                reply = await self._outcome(command, until, late)
            except RedisError as error:
                if error.code != "MOVED":
                    raise
                # The old connection stays open, since others may wait for replies on it.
                if self._connection is connection:
                    self._node = redirection(error, connection.address)
                    self._connection = None
            else:
                self.silent = False
                return reply
        raise RedisUnavailable(
            "the nodes of the cluster do not agree which of them serves the queue", False
        )

    async def connected_before(self, until: float) -> Connection:
        """Like ``connected``, but only until the time ``until``, on Trio's clock."""
        connection = self._connection
        if connection is not None and not connection.closed:
            return connection
        with trio.move_on_at(until):
            while self.silent and len(self._overdue) >= MOST_OVERDUE:
                await self._overdue_changed.wait()
            return await self.connected()
        raise RedisUnavailable("Redis does not answer: no connection in time", False, "hung")

    async def _outcome(self, command: Command, until: float, late: Late | None) -> Reply:
        """Like ``reply``, but give up at ``until``, and some time after a cancellation. Does not
        close the connection at once, since others may wait for replies on it."""
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
        """Like ``_reply``, for a command that was given up."""
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
        """Send nothing more over a connection with an overdue reply, and close it when all others
        have received their replies or given up."""
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
        """Run a script and return its reply, as a function if the server supports functions. The
        rest is as for ``command``. A function is permanent; a script is lost when the server
        restarts."""
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
            # Nothing was executed. After EVAL the server has it, until it is restarted.
            return await self.command(b"EVAL", script.source, *rest, until=until, late=late)

    async def _function(
        self,
        script: Script,
        keys: list[bytes],
        arguments: list[Argument],
        until: float,
        late: Late | None,
    ) -> Reply:
        """Like ``script``. Raises ``_NoFunctions`` if the server has no functions, or does not let
        us load or call them; nothing was executed then."""
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
        """Return the connection; open it if there is none. Raises ``RedisUnavailable``."""
        connection = self._connection
        if connection is None or connection.closed:
            connection = await self._connect()
        return connection

    def post(
        self, connection: Connection, *words: Argument, seconds: float | None = None
    ) -> Command:
        """Send a command, of which many may be in progress."""
        return Command(connection, connection.submit([words]), seconds or self._seconds)

    async def reply(self, command: Command) -> Reply:
        """Return the reply to a posted command. If it does not arrive in time, or this is
        cancelled, the connection is closed.

        Raises:
            RedisUnavailable: there is no reply, or Redis cannot execute the command at the moment.
            RedisError: the server replied with an error.
        """
        try:
            return await self._reply(command)
        finally:
            if not command.batch.done.is_set():
                command.connection.close("a reply did not come in time")

    async def _reply(self, command: Command) -> Reply:
        """Like ``reply``, but the connection stays open."""
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
            # It is no longer a primary; ask for the new one next time.
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
        """Open a connection, or wait for the one that is being opened.

        A task of the nursery opens it, and goes on for other callers if this one is cancelled.
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
        except Exception as error:  # such as an invalid host name
            text = f"Unable to establish a connection to Redis ({why(error)})"
            attempt.failure = RedisUnavailable(text, False)
        finally:
            self._attempt = None
            attempt.ended.set()
