"""Sends commands over a socket in the calling thread.

The client's loop is in another thread: going there and back takes longer than everything else that
a short command needs. So commands that are safe to send twice are sent this way first. If that
fails, the client gets the same command: it handles other nodes, pauses and errors.
"""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, Unpack

import hiredis

from disque_trio.client import tracing
from disque_trio.client.nodes import parse_address
from disque_trio.client.requests import addjob, kept_for, new_key
from disque_trio.client.sync import Client
from disque_trio.job_options import JobOptions
from disque_trio.resp.command import Argument
from disque_trio.respclient.blocking import BlockingConnection
from disque_trio.respclient.login import Login
from disque_trio.respclient.values import Name

ADD_TIMEOUT: Final = 5.0
"""Seconds that nodes have to copy a job."""

_MARGIN: Final = 1.0
"""Seconds added to the timeout of a command."""


class Express:
    """A connection to the node that a client uses, for one thread at a time.

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
        self._connection: BlockingConnection | None = None
        self._address: str | None = None

    def ask(self, command: Sequence[Argument]) -> object:
        """Return the reply; None: ask the client, although the command may have been executed."""
        if os.getpid() != self._pid:
            self._forked()
        if not self._busy.acquire(blocking=False):
            return None
        try:
            connection = self._connected()
            if connection is None:
                return None
            reply = connection.execute(*command)
        except OSError:
            self._close()
            return None
        except BaseException:
            self._close()  # the reply is still on its way
            raise
        finally:
            self._busy.release()
        return None if isinstance(reply, hiredis.ReplyError) else reply

    def _connected(self) -> BlockingConnection | None:
        address = self._find().address
        if self._connection is None or address != self._address:
            self._close()
            if address is None:
                return None
            encryption = self._login.encryption()
            self._connection = BlockingConnection.open(
                parse_address(address), encryption, self._timeout
            )
            self._address = address
            if self._connection.log_in(self._login) is not None:
                self._close()
        return self._connection

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
        if self._connection is not None:
            self._connection.close()
            self._connection = None


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
        reply = express.ask(addjob(queue, body, ADD_TIMEOUT, key=key, kept=kept, **options))
        if isinstance(reply, bytes):
            return reply.decode()
    return client.add(queue, body, timeout=ADD_TIMEOUT, unique=key, unique_for=kept, **options)
