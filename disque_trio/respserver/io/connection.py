"""One client's connection: its socket, its unread requests and its unsent replies.

Owns the bytes; ``engine`` decides when to read and serve them.
"""

import os
import socket
from collections import deque
from typing import Final

from disque_trio.notation.addresses import format_address
from disque_trio.resp.request import ARGUMENT, RequestParser
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import Client
from disque_trio.respserver.io import sockets
from disque_trio.respserver.io.unsent import Unsent

READ_SIZE: Final = 64 * 1024
# Clients that wait for each reply send little at a time; allocating a larger buffer takes half as
# long as the call itself.
_SMALL_READ: Final = 256  # bytes

# Methods of the socket do the same but take half as long again. Assigned to names of this module,
# because the compiled build looks an imported one up at each use.
_read: Final = os.read
_write: Final = os.write
_receive: Final = sockets.receive
_send: Final = sockets.send
_MOST_WRITTEN: Final = 4 << 20  # bytes in a turn, however fast the client reads
_ID_SIZE: Final = 40  # bytes of each id of a command about many


class Connection:
    """The connection of one client.

    Attributes:
        client: the client as the state machine knows it.
        parser: holds what was read and is not a complete request yet.
        backlog: requests that were read and not served yet (the client is blocked or paused, or
            had its share of the turn).
        backlog_size: bytes that they take.
        unsent: replies that the socket did not take.
        fd: the descriptor of ``sock``; -1 after it was closed, since the number may be reused.
        read_size: bytes to read at most.
        address: ``ip:port``, or ``path:0`` for the unix socket.
        created, active: when it connected and last sent something, in ms of the node's clock.
        counted_for: the user among whose waiting replies its own count; None: there is no limit.
        over_soft_since: since when more than the soft limit is unsent, in ms; 0: it is not.
        reading_paused: not read from, because enough of its input waits.
        ended: it will send nothing more, but waits for replies.
        costly: how often it has yet to be served without taking long, until it counts as cheap.
        writing: it waits until the socket takes more.
        closed: the socket is closed.
    """

    __slots__ = (
        "active",
        "address",
        "backlog",
        "backlog_size",
        "client",
        "closed",
        "costly",
        "counted_for",
        "created",
        "ended",
        "fd",
        "over_soft_since",
        "parser",
        "read_size",
        "reading_paused",
        "sock",
        "unix",
        "unsent",
        "writing",
    )

    def __init__(
        self,
        sock: socket.socket,
        client: Client,
        parser: RequestParser,
        address: str,
        unix: bool,
        now: int,
    ) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.client = client
        self.parser = parser
        self.backlog: deque[list[bytes]] = deque()
        self.backlog_size = 0
        self.unsent = Unsent()
        self.address = address
        self.unix = unix
        self.created = now
        self.active = now
        self.counted_for: User | None = None
        self.over_soft_since = 0
        self.read_size = READ_SIZE
        self.reading_paused = False
        self.ended = False
        self.writing = False
        self.closed = False
        self.costly = 1  # not known

    @property
    def tls(self) -> bool:
        """Whether it is encrypted."""
        return False

    @property
    def has_more(self) -> bool:
        """Whether there is work for it other than reading."""
        parser = self.parser
        return (
            len(self.backlog) > 0
            or self.reading_paused
            or parser.held_back
            or parser.error is not None
        )

    @property
    def held(self) -> int:
        """Bytes that it makes the process hold between turns."""
        client = self.client
        for_later = client.in_slices * (_ID_SIZE + ARGUMENT)
        if client.group is not None:
            for_later += client.group.size
        return self.parser.size + self.backlog_size + len(self.unsent) + for_later

    def receive(self, requests: list[list[bytes]]) -> int:
        """Read what the client sent, and append the requests that are now complete to ``requests``.

        Returns:
            how many bytes arrived; 0: the client sends nothing more.

        Raises:
            OSError: like ``os.read``.
        """
        parser = self.parser
        most = self.read_size
        if parser.takes_plain:
            received, rest = _receive(self.fd, most, parser.max_bulk, requests)
        else:
            rest = _read(self.fd, most)
            received = len(rest)
        if rest:
            parser.take(rest, requests)
        if received == most:
            self.read_size = READ_SIZE
        elif received < _SMALL_READ < most:
            self.read_size = max(most >> 1, _SMALL_READ)
        return received

    def read_some(self) -> bytes:
        """Read raw bytes; empty: no more will come. Raises ``OSError`` like ``os.read``."""
        most = self.read_size
        data = _read(self.fd, most)
        received = len(data)
        if received == most:
            self.read_size = READ_SIZE
        elif received < _SMALL_READ < most:
            self.read_size = max(most >> 1, _SMALL_READ)
        return data

    def send(self, data: bytes) -> bool:
        """Send ``data`` after what is unsent. Return False if the connection is lost."""
        if self.unsent:
            self.unsent.append(data)
            return True
        try:
            sent = _send(self.fd, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < len(data):
            self.unsent.append(memoryview(data)[sent:])
        return True

    def send_long(self, replies: list[bytes]) -> bool:
        """Send ``replies`` after what is unsent, some MB of them in this turn. Return False if the
        connection is lost."""
        self.unsent.line_up(replies)
        return self.send_rest()

    def send_rest(self) -> bool:
        """Send as much of what is unsent as the socket takes, up to some MB. Return False if the
        connection is lost."""
        written = 0
        try:
            while self.unsent and written < _MOST_WRITTEN:
                with memoryview(self.unsent.first()) as rest:
                    sent = _write(self.fd, rest)
                self.unsent.drop(sent)
                written += sent
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def say_end(self) -> None:
        """Tell the client that nothing more will come, if the protocol below can. Call it before
        the socket is closed."""

    def describe(self, now: int) -> str:
        """The line of CLIENT LIST."""
        client = self.client
        flags = ("O" if client.monitor else "") + ("b" if client.blocked else "")
        flags += "x" if client.group is not None else ""
        flags += "c" if client.close else ""
        flags += "U" if self.unix else ""
        flags += "e" if client.no_evict else ""
        read = self.parser.pending + self.backlog_size
        waiting = sum(map(len, client.out))
        unsent = len(self.unsent) + waiting
        return (
            f"id={client.id} addr={self.address} laddr={self._local_address()} fd={self.fd} "
            f"name={client.name.decode('latin-1')} age={(now - self.created) // 1000} "
            f"idle={(now - self.active) // 1000} flags={flags or 'N'} qbuf={read} qbuf-free=0 "
            f"obl={unsent} oll=0 omem={unsent} tot-mem={self.held + waiting} "
            f"events={'rw' if self.writing else 'r'} cmd={client.last_command} "
            f"user={client.user.name.decode('latin-1')} resp={client.resp} "
            f"lib-name={client.lib_name.decode('latin-1')} "
            f"lib-ver={client.lib_ver.decode('latin-1')}"
        )

    def _local_address(self) -> str:
        """The address that the client connected to, in the form of ``address``."""
        if self.unix:
            return self.address
        try:
            name = self.sock.getsockname()
        except OSError:
            return "?:0"
        return format_address(name[0], name[1])
