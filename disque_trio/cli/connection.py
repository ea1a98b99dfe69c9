"""The command line client's connection: a plain blocking socket.

Owns the socket, AUTH and the protocol version. A person waits for one reply at a time, and Ctrl-C
interrupts a blocking read; nothing asynchronous is needed.
"""

import os
import socket
from collections.abc import Sequence

from disque_trio.cli.options import Options
from disque_trio.cli.resp import Kind, Reply, ReplyFormatError, read_reply
from disque_trio.resp.command import encode_command


class ConnectionFailed(Exception):
    """The node cannot be reached; the text is meant for the user."""


class Disconnected(Exception):
    """The node closed the connection or sent something that is not RESP; the text is meant for the
    user."""


class Connection:
    """A connection that is ready for commands.

    Attributes:
        complaints: what went wrong with AUTH or HELLO, for the user.

    Raises:
        ConnectionFailed: the node cannot be reached.
    """

    def __init__(self, options: Options) -> None:
        try:
            self._socket = _connect(options)
        except OSError as error:
            raise ConnectionFailed(
                f"Could not connect to Disque at {options.where}: {error.strerror or error}"
            ) from error
        self._stream = self._socket.makefile("rb")
        self.complaints: list[str] = []
        try:
            if options.password is not None:
                self._prepare("AUTH", b"AUTH", os.fsencode(options.password))
            if options.resp3:
                self._prepare("HELLO 3", b"HELLO", b"3")
        except Disconnected as error:
            self.close()
            raise ConnectionFailed(
                f"Could not connect to Disque at {options.where}: {error}"
            ) from error

    def send(self, command: Sequence[bytes]) -> None:
        """Send a command.

        Raises:
            Disconnected: the connection is broken.
        """
        try:
            self._socket.sendall(encode_command(command))
        except OSError as error:
            raise Disconnected(f"Error: {error.strerror}") from error

    def read(self) -> Reply:
        """Wait for the next reply.

        Raises:
            Disconnected: the connection ended, or this is not RESP.
        """
        try:
            return read_reply(self._stream)
        except EOFError:
            raise Disconnected("Error: Server closed the connection") from None
        except OSError as error:
            raise Disconnected(f"Error: {error.strerror}") from error
        except ReplyFormatError as error:
            raise Disconnected(f"Error: Protocol error, {error}") from error

    def execute(self, *command: bytes) -> Reply:
        """Send a command and wait for its reply; raises as these do."""
        self.send(command)
        return self.read()

    def is_stale(self) -> bool:
        """The node has hung up since the last reply (or says something that nobody asked for)."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._socket.close()

    def _prepare(self, what: str, *command: bytes) -> None:
        reply = self.execute(*command)
        if reply.kind is Kind.ERROR:
            self.complaints.append(f"{what} failed: {reply.text.decode(errors='replace')}")


def _connect(options: Options) -> socket.socket:
    if options.socket is None:
        connected = socket.create_connection((options.host, options.port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.connect(options.socket)
    except BaseException:
        connected.close()
        raise
    return connected
