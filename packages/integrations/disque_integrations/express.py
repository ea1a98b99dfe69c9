"""Sends commands over a socket in the calling thread.

The client's loop is in another thread: going there and back takes longer than everything else that
a short command needs. So commands that are safe to send twice are sent this way first. If that
fails, the client gets the same command: it handles other nodes, pauses and errors.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Unpack

import hiredis

from disque_trio.client import Client as AsyncClient
from disque_trio.client import tracing
from disque_trio.client.nodes import parse_address
from disque_trio.client.requests import addjob, kept_for, new_key
from disque_trio.client.sync import Client
from disque_trio.job_options import JobOptions
from disque_trio.resp.command import Argument
from disque_trio.respclient.blocking import BlockingConnection
from disque_trio.respclient.errors import ConnectionLost
from disque_trio.respclient.login import Login
from disque_trio.respclient.values import Name, as_text

ADD_TIMEOUT: Final = 5.0
"""Seconds that nodes have to copy a job."""

_MARGIN: Final = 1.0
"""Seconds added to the timeout of a command."""

_STAYS: Final = 1.0  # s between questions where a queue is best off
_MOST_PLACES: Final = 1_000  # queues to keep in mind


class Express:
    """Connections to the nodes that a client uses, for one thread at a time.

    Args:
        find: returns the client.
        login: the client's login.
        timeout: seconds that a command may take.
    """

    def __init__(self, find: Callable[[], Client], login: Login, timeout: float) -> None:
        self._find = find
        self._login = login
        self._timeout = timeout + _MARGIN
        self._busy = threading.Lock()
        self._pid = os.getpid()
        self._connections: dict[str, BlockingConnection] = {}  # by address
        self._places: dict[str, tuple[str, float]] = {}  # addresses for queues, and until when

    def ask(self, queue: str, command: Sequence[Argument]) -> object:
        """Return the reply of the node to which jobs of ``queue`` go; None: ask the client,
        although the command may have been executed."""
        if os.getpid() != self._pid:
            self._forked()
        if not self._busy.acquire(blocking=False):
            return None
        address = None
        try:
            address = self._place(queue)
            connection = None if address is None else self._connected(address)
            if connection is None:
                return None
            reply = connection.execute(*command)
        except (OSError, ConnectionLost):
            self._drop(address)
            return None
        except BaseException:
            self._drop(address)  # the reply is still on its way
            raise
        finally:
            self._busy.release()
        if isinstance(reply, hiredis.ReplyError):
            self._places.clear()  # another node may be better by now
            return None
        return reply

    def _place(self, queue: str) -> str | None:
        """The address of the node to which jobs of this queue go. Raises ConnectionLost."""
        address, until = self._places.get(queue, ("", 0.0))
        now = time.monotonic()
        if now < until:
            return address

        async def find(client: AsyncClient) -> str:
            return str(client._router.address_for((queue,)) or "")

        address = self._find().run(find)
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        if address:
            self._places[queue] = address, now + _STAYS
        return address or None

    def _connected(self, address: str) -> BlockingConnection | None:
        """A connection to the node; None: it does not let us in. Raises OSError."""
        connection = self._connections.get(address)
        if connection is None:
            encryption = self._login.encryption()
            connection = BlockingConnection.open(parse_address(address), encryption, self._timeout)
            if connection.log_in(self._login) is not None:
                connection.close()
                return None
            self._connections[address] = connection
        return connection

    def _drop(self, address: str | None) -> None:
        """Close the connection to a node, and ask again where queues are best off."""
        self._places.clear()
        connection = None if address is None else self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def _forked(self) -> None:
        """Start over in a forked child; the connection belongs to the parent."""
        self._pid = os.getpid()
        self._busy = threading.Lock()
        self._close()

    def close(self) -> None:
        """Close the connection. The next command opens another one."""
        with self._busy:
            self._close()

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        self._places.clear()
        while self._connections:
            self._connections.popitem()[1].close()


def add_once(
    express: Express,
    client: Client,
    retry_for: float,
    queue: Name,
    body: Name,
    **options: Unpack[JobOptions],
) -> str:
    """Add a job like ``client.add(..., unique=True)``, for a client with the given ``retry_for``,
    and return its id. ``express`` must have a timeout of ``ADD_TIMEOUT``.

    Raises:
        DisqueError, ValueError: as for ``Client.add``.
    """
    key, kept = new_key(), kept_for(retry_for + 2 * ADD_TIMEOUT)
    if tracing.tracer is None:
        reply = express.ask(
            as_text(queue), addjob(queue, body, ADD_TIMEOUT, key=key, kept=kept, **options)
        )
        if isinstance(reply, bytes):
            return reply.decode()
    return client.add(queue, body, timeout=ADD_TIMEOUT, unique=key, unique_for=kept, **options)
