"""One RESP connection that any number of tasks may use at once.

Owns a socket, the commands waiting to be written, and those waiting for their replies. Two tasks
serve it (``Connection.run``): a writer that sends all queued commands at once, and a reader that
hands out replies in order. A caller only ever waits for an event of its own. So cancelling it can
neither cut a request in half nor give a reply to the wrong caller: if a caller is gone, its reply
is read and dropped.
"""

import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

import hiredis
import trio

from disque_trio.notation.addresses import Address
from disque_trio.resp.command import Argument, encode_command
from disque_trio.respclient.concurrency import Event, Nursery, fail_after, library
from disque_trio.respclient.errors import (
    ConnectionLost,
    DisqueError,
    ProtocolError,
    ReplyError,
    TlsError,
    TooSlowError,
    reply_error,
)
from disque_trio.respclient.login import Login
from disque_trio.respclient.streams import open_stream
from disque_trio.respclient.tls import is_alert, refusal

Reply: TypeAlias = "int | bytes | list[Reply] | DisqueError | None"
OnPush: TypeAlias = Callable[[list[Reply]], None]

_RECEIVE_BYTES = 65536
_NOT_YET = object()


class Batch:
    """Commands sent together, and their replies so far. ``done`` is set when all ``count`` replies
    have arrived."""

    __slots__ = ("count", "data", "done", "replies", "sent")

    def __init__(self, commands: Sequence[Sequence[Argument]], count: int, done: Event) -> None:
        self.data: bytes = b"".join([encode_command(command) for command in commands])
        self.count: int = count
        self.replies: list[Reply] = []
        self.done: Event = done
        self.sent: bool = False


class Connection:
    """A connection over ``stream`` to the server at ``address``. Requires ``run`` to be running.

    Args:
        error: makes the exception from the text of an error reply.
        on_push: see the attribute.

    Attributes:
        on_push: called with each RESP3 push message, by a task of ``run``. Without it, a push
            message ends the connection, as does any reply that nobody asked for.
        ended: set when the connection can no longer be used.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        address: Address,
        error: Callable[[str], ReplyError] = reply_error,
        on_push: OnPush | None = None,
    ) -> None:
        self.address = address
        self._library = library()
        self.ended: Event = self._library.Event()
        self._stream = stream
        self.on_push = on_push
        self._reader = hiredis.Reader(
            protocolError=ProtocolError, replyError=error, notEnoughData=_NOT_YET
        )
        self._outbox: list[Batch] = []
        self._awaiting: deque[Batch] = deque()
        self._wake = self._library.Event()
        self._scope = self._library.CancelScope()
        self._hanging_up = False
        self._lost: str | None = None
        self._refused = False  # because of TLS, permanently

    @property
    def closed(self) -> bool:
        """Whether the connection can no longer be used."""
        return self._lost is not None

    async def run(self) -> None:
        """Serve the connection until it breaks or is closed, neither of which raises an error."""
        try:
            with self._scope:
                async with self._library.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._read)
        finally:
            self.close()
            await self._library.aclose_forcefully(self._stream)

    def close(self, reason: str = "the connection was closed") -> str:
        """Close the connection. Whoever still waits for a reply gets ``ConnectionLost``.

        Returns:
            Why it is closed: ``reason``, unless it was already closed.
        """
        if self._lost is None:
            self._lost = reason
            self.ended.set()
        self._scope.cancel()
        for batch in (*self._awaiting, *self._outbox):
            missing = batch.count - len(batch.replies)
            batch.replies += [self._loss(batch.sent) for _ in range(missing)]
            batch.done.set()
        self._awaiting.clear()
        self._outbox.clear()
        return self._lost

    def submit(self, commands: Sequence[Sequence[Argument]]) -> Batch:
        """Queue commands for sending, without waiting.

        Raises:
            TypeError, ValueError: a command cannot be encoded.
        """
        batch = Batch(commands, len(commands), self._library.Event())
        if self._lost is not None:
            batch.replies = [self._loss(False) for _ in commands]
            batch.done.set()
        elif not commands:
            batch.done.set()
        else:
            self._outbox.append(batch)
            self._wake.set()
        return batch

    def send(self, *command: Argument) -> None:
        """Queue a command that is answered by push messages, not by a reply, such as SUBSCRIBE."""
        if self._lost is None:
            self._outbox.append(Batch([command], 0, self._library.Event()))
            self._wake.set()

    async def execute_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        """Send commands as one pipeline and return their replies in order.

        Errors, including a lost connection, are in the list in place of replies. If the caller is
        cancelled, commands that were not written yet are not sent.
        """
        batch = self.submit(commands)
        try:
            await batch.done.wait()
        except BaseException:
            self.withdraw(batch)
            raise
        return batch.replies

    async def execute(self, *command: Argument) -> Reply:
        """Send one command and return its reply.

        Raises:
            ReplyError: the node replied with an error.
            ConnectionLost: the connection broke before the reply arrived.
        """
        [reply] = await self.execute_many([command])
        if isinstance(reply, DisqueError):
            raise reply
        return reply

    def withdraw(self, batch: Batch) -> bool:
        """Take back a batch that was not written yet. Returns False if it is too late."""
        if batch.sent:
            return False
        if batch in self._outbox:
            self._outbox.remove(batch)
        return True

    def hang_up(self) -> None:
        """Tell the node that no more commands follow, but go on listening for replies. Only for
        TCP and Unix sockets."""
        self._hanging_up = True
        self._wake.set()

    def _loss(self, sent: bool) -> ConnectionLost:
        kind = TlsError if self._refused else ConnectionLost
        return kind(f"{self.address}: {self._lost}", maybe_executed=sent)

    async def _write(self) -> None:
        try:
            while True:
                while not self._outbox:
                    if self._hanging_up:
                        assert isinstance(self._stream, trio.abc.HalfCloseableStream)
                        await self._stream.send_eof()
                        return
                    self._wake = self._library.Event()
                    await self._wake.wait()
                batches, self._outbox = self._outbox, []
                self._awaiting.extend([batch for batch in batches if batch.count])
                data = b"".join([batch.data for batch in batches])
                for batch in batches:
                    batch.sent = True
                    batch.data = b""
                await self._stream.send_all(data)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            # The reader finds the reason, after reading what the node sent before.
            return

    async def _read(self) -> None:
        reason = "the node closed the connection"
        data: bytes | bytearray = b""
        try:
            while data := await self._stream.receive_some(_RECEIVE_BYTES):
                self._reader.feed(bytes(data))
                while (reply := self._reader.gets()) is not _NOT_YET:
                    if self.on_push is not None and isinstance(reply, hiredis.PushNotification):
                        self.on_push(reply)
                    elif self._awaiting:
                        self._deliver(reply)
                    elif self.on_push is None:
                        reason = f"a reply that nobody asked for: {reply}"
                        return
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            # With TLS 1.3, servers check our certificate after the handshake, as we see it.
            self._refused = refusal(error) is not None
            reason = why(error)
        except ProtocolError as error:
            self._refused = is_alert(data)
            reason = "the server requires TLS" if self._refused else f"not RESP: {error}"
        finally:
            self.close(reason)

    def _deliver(self, reply: Reply) -> None:
        batch = self._awaiting[0]
        batch.replies.append(reply)
        if len(batch.replies) == batch.count:
            self._awaiting.popleft()
            batch.done.set()


class Connector:
    """Opens connections that are ready for commands.

    Args:
        nursery: runs the connections; it outlives all commands.
        login: how to log in; None: without a password and without TLS.
        timeout: seconds for a connection to become ready.

    Raises:
        ValueError: a certificate file cannot be used.
    """

    def __init__(self, nursery: Nursery, login: Login | None, timeout: float) -> None:
        login = login or Login()
        self.timeout = timeout
        self._nursery = nursery
        self._auth = login.auth
        self._naming = login.naming
        self._encryption = login.encryption()

    async def open(self, address: Address) -> Connection:
        """Open a connection.

        Raises:
            ConnectionLost: the server cannot be reached in time, or hung up; the text is only the
                reason.
            TlsError: TLS failed.
            ReplyError: the server refused the password or the connection.
        """
        connection: Connection | None = None
        try:
            with fail_after(self.timeout):
                connection = Connection(await open_stream(address, self._encryption), address)
                self._nursery.start_soon(connection.run)
                await self._log_in(connection)
        except BaseException as error:
            reason = why(error)
            if connection is not None:
                reason = connection.close(reason)
            elif isinstance(error, TooSlowError) and self._encryption is not None:
                reason = "timed out; perhaps it does not speak TLS"
            if isinstance(error, TlsError) or refusal(error):
                raise TlsError(reason) from error
            if isinstance(error, OSError | TooSlowError | ConnectionLost):
                # A lost AUTH says nothing about the command that the connection is for.
                raise ConnectionLost(reason) from error
            raise
        return connection

    async def _log_in(self, connection: Connection) -> None:
        if self._auth is not None:
            await connection.execute(*self._auth)
        elif self._encryption is not None:
            # A server that refuses our certificate only says so now.
            try:
                await connection.execute("PING")
            except ReplyError as error:
                if error.code == "ERR":
                    raise
        if self._naming is not None:
            with suppress(ReplyError):
                await connection.execute(*self._naming)


def why(error: BaseException) -> str:
    """Describe why a connection failed, in the operating system's words if there are any."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, trio.TooSlowError):
        return "timed out"
    if text := refusal(error):
        return text
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    if isinstance(error, BaseExceptionGroup):
        return why(error.exceptions[0])
    if error.__cause__ is not None:
        return why(error.__cause__)
    return str(error) or type(error).__name__
