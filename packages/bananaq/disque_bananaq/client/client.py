"""The client: bananaq's commands as typed methods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypedDict

from disque_bananaq.client import events, requests
from disque_bananaq.client.events import Events, log
from disque_bananaq.client.requests import DEFAULT_PORT, HOLD, Event, Status, seconds
from disque_bananaq.client.runner import CommandRunner
from disque_trio.notation.addresses import Address
from disque_trio.resp.command import Argument
from disque_trio.respclient.background import background
from disque_trio.respclient.connection import Connector, Reply
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import TlsOption
from disque_trio.respclient.values import Name, text


class BananaClient:
    """A client of one bananaq, made by ``connect``. Any number of tasks may share it.

    Names and bodies are ``str`` (sent as UTF-8) or bytes. Times are in seconds. Unless a method
    says otherwise, it repeats its command after a lost connection, for up to ``retry_for`` seconds.
    All methods raise:

    - ``ReplyError``, or the subclass for the error code, if the server replies with an error;
    - ``ConnectionLost``, if the server could not be reached in time, or if a command that is not
      safe to repeat may or may not have been executed.
    """

    def __init__(self, runner: CommandRunner, in_flight: InFlight) -> None:
        self._runner = runner
        self._in_flight = in_flight

    async def add(self, queue: Name, body: Name, *, expire: float, retry_lost: bool = False) -> str:
        """Add an event (QADD) and return its id.

        Args:
            expire: seconds from now until the event expires.
            retry_lost: what to do if the connection is lost and the event may or may not have been
                added: True adds it again, perhaps a second time; False raises.
        """
        command = ("QADD", queue, seconds(expire), body)
        return text(await self._runner.run(*command, repeat=retry_lost))

    async def add_noblock(self, queue: Name, body: Name, *, expire: float) -> None:
        """Add an event without waiting until it is stored (QADD NOBLOCK). It may be lost.

        Raises:
            ReplyError: the server has too many such events waiting to be stored.
        """
        await self._runner.run("QADD", queue, seconds(expire), body, "NOBLOCK", repeat=False)

    async def get(
        self, queue: Name, group: Name, *, hold: float = HOLD, wait: float = 0.0
    ) -> Event | None:
        """Get the next event of the queue for the group (QGET).

        If the call is cancelled while an event is on its way, the event is given back.

        Args:
            hold: seconds within which the event must be acknowledged; after that, another consumer
                of the group gets it. With 0 the event is acknowledged as it is delivered.
            wait: seconds to wait for an event.

        Returns:
            The event, or None if none arrived in time.
        """
        return await events.get(self._runner, queue, group, hold, wait)

    async def ack(self, queue: Name, group: Name, id: str) -> bool:
        """Acknowledge an event (QACK).

        Returns:
            False if it was too late, or if the event had already been acknowledged.
        """
        return requests.yes(await self._runner.run("QACK", queue, group, id, repeat=True))

    async def give_back(self, queue: Name, group: Name, id: str) -> bool:
        """Give an event back to the group, to be delivered again at once (QACK REDO).

        Returns:
            False if the event is not in flight.
        """
        return requests.yes(await self._runner.run("QACK", queue, group, id, "REDO", repeat=True))

    async def working(self, queue: Name, group: Name, id: str, *, hold: float = HOLD) -> bool:
        """Hold an event for ``hold`` seconds from now (QWORKING).

        Returns:
            False if it is too late.
        """
        command = ("QWORKING", queue, group, id, "EX", seconds(hold))
        return requests.yes(await self._runner.run(*command, repeat=True))

    async def notify(self, group: Name, *queues: Name, wait: float = 0.0) -> str | None:
        """Wait until one of the queues has an event for the group (QNOTIFY).

        Another consumer may get that event first.

        Returns:
            The name of the queue, or None if there was no event in time.
        """
        return await events.notify(self._runner, group, queues, wait)

    async def flush(self, queue: Name) -> None:
        """Remove all events of a queue (QFLUSH)."""
        await self._runner.run("QFLUSH", queue, repeat=True)

    async def status(self, *queues: Name, groups: Sequence[Name] = ()) -> Status:
        """Return the counts of the queues, or of all queues if none is named (QSTATUS).

        A count is ``["queue"]["group"]["total"]``; the others are ``inprogress``, ``redo``,
        ``done``, ``available`` and ``consumers``.
        """
        return requests.status(await self._about("QSTATUS", queues, groups))

    async def info(self, *queues: Name, groups: Sequence[Name] = ()) -> list[str]:
        """Return the counts as readable text, one line for each group of a queue (QINFO)."""
        return requests.lines(await self._about("QINFO", queues, groups))

    async def execute(self, *command: Argument) -> Reply:
        """Run any other command that does not wait, and return its raw reply.

        The command is not repeated if it may have been executed.
        """
        return await self._runner.run(*command, repeat=False)

    def events(self, *queues: Name, group: Name, hold: float = HOLD, ack: bool = True) -> Events:
        """Return the worker loop over the events of the queues; see ``Events``."""
        if not queues:
            raise ValueError("at least one queue is needed")
        if not hold >= 0:
            raise ValueError("the time to hold an event cannot be negative")
        take = partial(events.take, self._runner, self._in_flight, queues, group, hold)
        return Events(self._in_flight, take, ack=ack)

    async def _about(self, name: str, queues: Sequence[Name], groups: Sequence[Name]) -> Reply:
        command: list[Argument] = [name, *queues]
        if groups:
            command += ["GROUPS", *groups]
        return await self._runner.run(*command, repeat=True)


class ConnectOptions(TypedDict, total=False):
    """The arguments of ``connect``.

    Keys:
        server: a host name or address, or ``unix:/path``; by default 127.0.0.1.
        port: the server's port.
        username, password: for AUTH. Without a username, the default user.
        tls: how to encrypt connections: a ``Tls``, an ``ssl.SSLContext``, or True to trust the
            system's certificate authorities.
        retry_for: seconds to keep trying to reach the server, both at the start and later; by
            default 30.
        connect_timeout: seconds for each attempt to connect; by default 5.
    """

    server: str
    port: int
    username: str | None
    password: str | None
    tls: TlsOption
    retry_for: float
    connect_timeout: float


@asynccontextmanager
async def connect(
    server: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    *,
    username: str | None = None,
    password: str | None = None,
    tls: TlsOption = None,
    retry_for: float = 30.0,
    connect_timeout: float = 5.0,
) -> AsyncIterator[BananaClient]:
    """Connect to a bananaq: ``async with connect("10.0.0.1") as client``.

    At the end of the block, events that are still held are given back. ``ConnectOptions``
    describes the arguments.

    Raises:
        ConnectionLost: the server could not be reached.
        TlsError: TLS failed; raised at once.
        AuthError: the user or the password was refused.
        ValueError: a certificate file cannot be used.
    """
    path = server.removeprefix("unix:") if server.startswith("unix:") else ""
    address = Address(path=path) if path else Address(server, port)
    async with background() as nursery:
        connector = Connector(nursery, Login(username, password, tls), connect_timeout)
        runner = CommandRunner(connector, address, retry_for=retry_for)
        in_flight = InFlight(nursery, log)
        try:
            await runner.ready()
            yield BananaClient(runner, in_flight)
        finally:
            await in_flight.close()
            runner.close()
