"""A blocking connection, for threads without a loop and for programs without Trio.

Owns a socket and what was received of the next reply. An error reply is a value; whatever else goes
wrong is an OSError, after which the connection is useless.
"""

import socket
from typing import Final, Self, TypeAlias

import hiredis

from disque_trio.notation.addresses import Address
from disque_trio.resp.command import Argument, encode_command
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Encryption

Reply: TypeAlias = "bytes | int | hiredis.ReplyError | list[Reply] | None"

_RECEIVE_BYTES: Final = 1 << 18


class BlockingConnection:
    """A connection over ``sock``, which is connected.

    Attributes:
        sock: has the timeout for each reply.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._reader = hiredis.Reader()

    @classmethod
    def open(cls, address: Address, encryption: Encryption | None, timeout: float) -> Self:
        """Connect to a server within ``timeout`` seconds, with TLS unless it is on a Unix socket.

        Raises:
            OSError: it cannot be reached, or the handshake failed; see ``tls.refusal``.
        """
        if address.path:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.settimeout(timeout)
                sock.connect(address.path)
            except BaseException:
                sock.close()
                raise
            return cls(sock)
        sock = socket.create_connection((address.host, address.port), timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock if encryption is None else encryption.wrap(sock, address.host))

    def log_in(self, login: Login) -> hiredis.ReplyError | None:
        """Log in and name the connection. Returns the error if the server refuses the password."""
        if login.auth is not None:
            reply = self.execute(*login.auth)
            if isinstance(reply, hiredis.ReplyError):
                return reply
        if login.naming is not None:
            self.execute(*login.naming)  # an error does not matter
        return None

    def send(self, *command: Argument) -> None:
        """Send a command without waiting for its reply."""
        self.sock.sendall(encode_command(command))

    def read(self) -> Reply:
        """Wait for the next reply."""
        while (reply := self._gets()) is False:
            data = self.sock.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("the node closed the connection")
            self._reader.feed(data)
        return reply

    def read_all(self) -> list[Reply]:
        """Wait for the next reply, and return it with the others that have arrived."""
        replies = [self.read()]
        while (reply := self._gets()) is not False:
            replies.append(reply)
        return replies

    def execute(self, *command: Argument) -> Reply:
        """Send a command and wait for its reply."""
        self.send(*command)
        return self.read()

    def close(self) -> None:
        """Hang up."""
        self.sock.close()

    def _gets(self) -> "Reply | bool":
        """The next reply; False if it has not arrived yet."""
        try:
            reply: Reply | bool = self._reader.gets()
        except hiredis.ProtocolError as error:
            raise OSError(str(error)) from error
        return reply
