"""One RESP connection that any number of tasks may use at once.

Owns a socket, the commands waiting to be written and those waiting for their reply. Two tasks
serve it (`Connection.run`): a writer that sends all that has piled up in one go, and a reader that
hands the replies out in order. A caller only ever waits on an event of its own, so cancelling it
can neither cut a request in half nor shift a reply to somebody else: the reply of a caller that
is gone is read and dropped.
"""

import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

import hiredis
import trio

from disque_trio.client.errors import ConnectionLost, DisqueError, ProtocolError, reply_error
from disque_trio.client.nodes import Address

Argument: TypeAlias = "bytes | bytearray | memoryview | str | int"
Reply: TypeAlias = "int | bytes | list[Reply] | DisqueError | None"

_RECEIVE_BYTES = 65536
_NOT_YET = object()


def encode_command(arguments: Sequence[Argument]) -> bytes:
    """A command as a RESP array of bulk strings; `str` goes out as UTF-8.

    Raises:
        TypeError: an argument is neither bytes nor str nor int.
        ValueError: there is no argument.
    """
    if not arguments:
        raise ValueError("a command needs a name")
    parts: list[bytes | bytearray | memoryview] = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        if isinstance(argument, str):
            data: bytes | bytearray | memoryview = argument.encode("utf-8", "surrogateescape")
        elif isinstance(argument, (bytes, bytearray, memoryview)):
            data = argument
        elif isinstance(argument, int) and not isinstance(argument, bool):
            data = b"%d" % argument
        else:
            raise TypeError(f"bytes, str or int expected, got {argument!r}")
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        parts += [b"$%d\r\n" % size, data, b"\r\n"]
    return b"".join(parts)


class Batch:
    """Commands sent as one, and the replies that came so far."""

    __slots__ = ("count", "data", "done", "replies", "sent")

    def __init__(self, commands: Sequence[Sequence[Argument]]) -> None:
        self.data = b"".join([encode_command(command) for command in commands])
        self.count = len(commands)
        self.replies: list[Reply] = []
        self.done = trio.Event()
        self.sent = False


class Connection:
    """A connection over `stream` to the node at `address`; `run` must be running to use it."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, address: Address) -> None:
        self.address = address
        self._stream = stream
        self._reader = hiredis.Reader(
            protocolError=ProtocolError, replyError=reply_error, notEnoughData=_NOT_YET
        )
        self._outbox: list[Batch] = []
        self._awaiting: deque[Batch] = deque()
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        self._hanging_up = False
        self._lost: str | None = None

    @property
    def closed(self) -> bool:
        """True when the connection is of no more use."""
        return self._lost is not None

    async def run(self) -> None:
        """Serve the connection until it breaks or is closed. Never raises on account of it."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._read)
        finally:
            self.close()
            await trio.aclose_forcefully(self._stream)

    def close(self, reason: str = "the connection was closed") -> None:
        """Close the connection; who still waits for a reply gets `ConnectionLost`."""
        if self._lost is None:
            self._lost = reason
        self._scope.cancel()
        for batch in (*self._awaiting, *self._outbox):
            missing = batch.count - len(batch.replies)
            batch.replies += [self._loss(batch.sent) for _ in range(missing)]
            batch.done.set()
        self._awaiting.clear()
        self._outbox.clear()

    def submit(self, commands: Sequence[Sequence[Argument]]) -> Batch:
        """Queue commands for sending at once, without waiting.

        Raises:
            TypeError, ValueError: a command cannot be encoded.
        """
        batch = Batch(commands)
        if self._lost is not None:
            batch.replies = [self._loss(False) for _ in commands]
            batch.done.set()
        elif not commands:
            batch.done.set()
        else:
            self._outbox.append(batch)
            self._wake.set()
        return batch

    async def execute_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        """Send commands as one pipeline and return their replies in order.

        Errors, a lost connection included, stand in the list in place of the reply. When the
        caller is cancelled, commands that were not yet written are not sent any more.
        """
        batch = self.submit(commands)
        try:
            await batch.done.wait()
        except trio.Cancelled:
            self.withdraw(batch)
            raise
        return batch.replies

    async def execute(self, *command: Argument) -> Reply:
        """Send one command and return its reply.

        Raises:
            ReplyError: the node answered with an error.
            ConnectionLost: the connection broke before the reply came.
        """
        [reply] = await self.execute_many([command])
        if isinstance(reply, DisqueError):
            raise reply
        return reply

    def withdraw(self, batch: Batch) -> bool:
        """Take back a batch that has not been written. False if it is too late."""
        if batch.sent:
            return False
        if batch in self._outbox:
            self._outbox.remove(batch)
        return True

    def hang_up(self) -> None:
        """Tell the node that no more commands follow, and still listen for replies."""
        self._hanging_up = True
        self._wake.set()

    def _loss(self, sent: bool) -> ConnectionLost:
        return ConnectionLost(f"{self.address}: {self._lost}", maybe_executed=sent)

    async def _write(self) -> None:
        try:
            while True:
                while not self._outbox:
                    if self._hanging_up:
                        await self._stream.send_eof()
                        return
                    self._wake = trio.Event()
                    await self._wake.wait()
                batches, self._outbox = self._outbox, []
                self._awaiting.extend(batches)
                data = b"".join([batch.data for batch in batches])
                for batch in batches:
                    batch.sent = True
                    batch.data = b""
                await self._stream.send_all(data)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            # The reader finds the reason, after it has read what the node said before.
            return

    async def _read(self) -> None:
        reason = "the node closed the connection"
        try:
            while data := await self._stream.receive_some(_RECEIVE_BYTES):
                self._reader.feed(bytes(data))
                while (reply := self._reader.gets()) is not _NOT_YET:
                    if not self._awaiting:
                        reason = f"a reply that nobody asked for: {reply}"
                        return
                    self._deliver(reply)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            reason = why(error)
        except ProtocolError as error:
            reason = f"not RESP: {error}"
        finally:
            self.close(reason)

    def _deliver(self, reply: Reply) -> None:
        batch = self._awaiting[0]
        batch.replies.append(reply)
        if len(batch.replies) == batch.count:
            self._awaiting.popleft()
            batch.done.set()


def why(error: BaseException) -> str:
    """The reason of a failed connection in a few words: the operating system's, if it gave one."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, BaseExceptionGroup):
        return why(error.exceptions[0])
    if error.__cause__ is not None:
        return why(error.__cause__)
    return str(error) or type(error).__name__


async def open_stream(address: Address) -> trio.abc.HalfCloseableStream:
    """Connect to a node's TCP port or unix socket.

    Raises:
        OSError: it cannot be reached.
    """
    if address.path:
        return await trio.open_unix_socket(address.path)
    return await trio.open_tcp_stream(address.host, address.port)
