"""The client: bananaq's commands as methods with types."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from disque_trio.bananaq.client import events, requests
from disque_trio.bananaq.client.events import Events, log
from disque_trio.bananaq.client.requests import DEFAULT_PORT, HOLD, Event, Status, seconds
from disque_trio.bananaq.client.runner import CommandRunner
from disque_trio.resp.command import Argument
from disque_trio.respclient.addresses import Address
from disque_trio.respclient.background import background
from disque_trio.respclient.connection import Connector, Reply
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import TlsOption
from disque_trio.respclient.values import Name, text


class BananaClient:
    """A client of one bananaq, made by ``connect``. Any number of tasks may share it.

    Names and bodies may be ``str`` (sent as UTF-8) or bytes. Times are in seconds. Unless a method
    says otherwise it repeats its command after a lost connection, for up to ``retry_for`` seconds.
    All methods raise

    - ``ReplyError`` or the subclass of the code, when the server answers with an error,
    - ``ConnectionLost``, when it could not be reached in time, or the fate of a command that is not
      safe to repeat is unknown.
    """

    def __init__(self, runner: CommandRunner, in_flight: InFlight) -> None:
        self._runner = runner
        self._in_flight = in_flight

    async def add(self, queue: Name, body: Name, *, expire: float, retry_lost: bool = False) -> str:
        """Add an event (QADD) and return its id.

        Args:
            expire: seconds from now until the event expires.
            retry_lost: what to do when the connection is lost and the event may or may not have
                been added: True adds it again, perhaps a second time; False raises.
        """
        command = ("QADD", queue, seconds(expire), body)
        return text(await self._runner.run(*command, repeat=retry_lost))

    async def add_noblock(self, queue: Name, body: Name, *, expire: float) -> None:
        """Add an event without waiting until it is stored (QADD NOBLOCK): it may get lost.

        Raises:
            ReplyError: the server has too many such events to store.
        """
        await self._runner.run("QADD", queue, seconds(expire), body, "NOBLOCK", repeat=False)

    async def get(
        self, queue: Name, group: Name, *, hold: float = HOLD, wait: float = 0.0
    ) -> Event | None:
        """Get the next event of the queue for the group (QGET).

        When the call is cancelled while an event is on its way, the event is given back.

        Args:
            hold: seconds within which the event has to be acknowledged; after that another
                consumer of the group gets it. With 0 it is acknowledged as it is delivered.
            wait: seconds to wait for an event.

        Returns:
            The event, or None if there was none in time.
        """
        return await events.get(self._runner, queue, group, hold, wait)

    async def ack(self, queue: Name, group: Name, id: str) -> bool:
        """Acknowledge an event (QACK).

        Returns:
            False if it was too late, or the event was acknowledged before.
        """
        return requests.yes(await self._runner.run("QACK", queue, group, id, repeat=True))

    async def give_back(self, queue: Name, group: Name, id: str) -> bool:
        """Return an event to the group for redelivery at once (QACK REDO).

        Returns:
            False if the event is not in flight.
        """
        return requests.yes(await self._runner.run("QACK", queue, group, id, "REDO", repeat=True))

    async def working(self, queue: Name, group: Name, id: str, *, hold: float = HOLD) -> bool:
        """Keep an event for ``hold`` seconds from now (QWORKING).

        Returns:
            False if it is too late for that.
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

        They are ``["queue"]["group"]["total"]``, and ``inprogress``, ``redo``, ``done``,
        ``available``, ``consumers``.
        """
        return requests.status(await self._about("QSTATUS", queues, groups))

    async def info(self, *queues: Name, groups: Sequence[Name] = ()) -> list[str]:
        """Return the same as text for people, one line for each group of a queue (QINFO)."""
        return requests.lines(await self._about("QINFO", queues, groups))

    async def execute(self, *command: Argument) -> Reply:
        """Run any other command that does not wait, and return its reply.

        It is not repeated if it may have been executed.
        """
        return await self._runner.run(*command, repeat=False)

    def events(self, *queues: Name, group: Name, hold: float = HOLD, ack: bool = True) -> Events:
        """Return the loop over the events of the queues: see ``Events``."""
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

    At the end of the block events that are still held are given back.

    Args:
        server: host name or address, or ``unix:/path``.
        port: its port.
        username, password: for AUTH. Without a name it is the default user.
        tls: encrypt what goes over the network: a ``Tls``, an ``ssl.SSLContext``, or True for the
            authorities of the system.
        retry_for: seconds to go on trying to reach it, at the start as well as later.
        connect_timeout: seconds for one attempt to connect.

    Raises:
        ConnectionLost: it could not be reached. TlsError, at once: TLS failed.
        AuthError: the user or the password was refused.
        ValueError: a file of certificates cannot be used.
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
