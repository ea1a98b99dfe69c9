"""A small blocking client for Spark's workers: one connection, to the first node that answers.

There is no Trio here, because a Spark worker runs synchronous code.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self, TypeAlias

import hiredis

from disque_trio.notation.addresses import Address, format_address, read_address
from disque_trio.resp.command import Argument, encode_command
from disque_trio.respclient.blocking import BlockingConnection, Reply
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import refusal

Arg: TypeAlias = bytes | str | int

DEFAULT_PORT = 7711
CONNECT_SECONDS = 5.0
REPLY_SECONDS = 60.0
IDS = 500  # job ids in one command


class WireError(OSError):
    """No node can be reached, or the connection broke; the text says which node and why.

    Attributes:
        replies: those to the first requests of a pipeline, from before the connection broke.
    """

    def __init__(self, text: str, replies: "Sequence[Reply]" = ()) -> None:
        super().__init__(text)
        self.replies = list(replies)


class RefusedError(Exception):
    """The node replied with an error.

    Attributes:
        code: the first word of the error, such as ``NOREPL``.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.split(" ", 1)[0]


class Entry(NamedTuple):
    """A node in a HELLO reply; ``address`` is ``host:port``, ``priority`` 1 is the best."""

    id: str
    address: str
    priority: int


class BlockingClient:
    """A connection to the first of ``nodes`` that answers.

    The first call opens the connection, and so does the first call after it broke, which begins
    with the node after the one that was lost. A call is never sent twice: only the caller knows
    whether that is harmless.

    Args:
        nodes: addresses ``host:port``, in the order to try them.
        login: how to log in, if the nodes need a password or TLS.
        timeout: seconds to wait for each reply.

    Raises:
        ValueError: ``nodes`` is empty, or a certificate file cannot be used.

    Attributes:
        address: address of the connected node; "" while there is no connection.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        login: Login | None = None,
        timeout: float = REPLY_SECONDS,
    ) -> None:
        if not nodes:
            raise ValueError("no node to connect to")
        self.address = ""
        self._nodes = list(nodes)
        self._next = 0  # index of the node that the next attempt begins with
        self._login = login or Login()
        self._encryption = self._login.encryption()
        self._timeout = timeout
        self._connection: BlockingConnection | None = None

    def call(self, *args: Arg) -> Reply:
        """Send a request and return its reply.

        Raises:
            RefusedError: the reply is an error.
            WireError: no node can be reached, or the connection broke; the request may or may not
                have been executed.
        """
        return accepted(self.pipeline([args])[0])

    def pipeline(self, requests: Sequence[Sequence[Argument]]) -> list[Reply]:
        """Send requests in one go and return their replies, which may include errors.

        Raises:
            WireError: as ``call``.
        """
        connection = self._connection or self._connect()
        replies: list[Reply] = []
        try:
            connection.sock.sendall(b"".join([encode_command(request) for request in requests]))
            while len(replies) < len(requests):
                replies.append(connection.read())
        except OSError as problem:
            address = self.address
            self.close()
            raise WireError(f"{address}: {refusal(problem) or problem}", replies) from problem
        return replies

    def hello(self) -> tuple[str, list[Entry]]:
        """The id of the connected node, and all nodes that it knows, including itself."""
        reply = self.call("HELLO")
        if not isinstance(reply, list) or len(reply) < 2:
            raise WireError(f"{self.address}: not a Disque node; it replied to HELLO: {reply!r}")
        entries: list[Entry] = []
        for item in reply[2:]:
            if not isinstance(item, list):
                raise WireError(f"{self.address}: unexpected item in HELLO: {item!r}")
            id, host, port, priority = [text_of(field) for field in item]
            if not host:  # a single node does not know its own address
                host = read_address(self.address, DEFAULT_PORT).host
            entries.append(Entry(id, format_address(host, int(port)), int(priority)))
        return text_of(reply[1]), entries

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.address = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _connect(self) -> BlockingConnection:
        problems: list[str] = []
        for _ in self._nodes:
            address = self._nodes[self._next]
            self._next = (self._next + 1) % len(self._nodes)
            try:
                self._connection = self._open(read_address(address, DEFAULT_PORT))
            except OSError as problem:
                reason = refusal(problem) or problem.strerror or problem
                problems.append(f"{address}: {reason}")
                continue
            except ValueError as problem:  # an address that another node has told
                problems.append(str(problem))
                continue
            self.address = address
            return self._connection
        raise WireError("no node can be reached: " + "; ".join(problems))

    def _open(self, address: Address) -> BlockingConnection:
        """Connect to a node and log in. Raises OSError, RefusedError."""
        connection = BlockingConnection.open(address, self._encryption, CONNECT_SECONDS)
        try:
            connection.sock.settimeout(self._timeout)
            accepted(connection.log_in(self._login))
        except BaseException:
            connection.close()
            raise
        return connection


def accepted(reply: Reply) -> Reply:
    """Return the reply, unless it is an error.

    Raises:
        RefusedError: it is an error.
    """
    if isinstance(reply, hiredis.ReplyError):
        raise RefusedError(str(reply))
    return reply


def by_ids(command: str, ids: Sequence[bytes | str]) -> list[tuple[Arg, ...]]:
    """The requests that send ``command`` for all ``ids``."""
    return [(command, *ids[at : at + IDS]) for at in range(0, len(ids), IDS)]


def text_of(field: Reply) -> str:
    """A field of a reply as text."""
    return field.decode() if isinstance(field, bytes) else str(field)
