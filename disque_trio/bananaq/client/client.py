"""The client: bananaq's commands as methods with types.

Owns the life of a client (`connect`): its connections and background tasks live in a nursery of
its own that is shielded from the caller's cancellation, so that events can still be given back
while the caller is being cancelled; it ends with the `async with` block.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from disque_trio.bananaq.client import requests
from disque_trio.bananaq.client.events import Desk, Events
from disque_trio.bananaq.client.link import Link
from disque_trio.bananaq.client.requests import (
    DEFAULT_PORT,
    HOLD,
    Event,
    Name,
    Status,
    as_text,
    seconds,
)
from disque_trio.client.connection import Argument, Reply
from disque_trio.client.nodes import Address


class BananaClient:
    """A client of one bananaq, made by `connect`. Any number of tasks may share it.

    Names and bodies may be `str` (sent as UTF-8) or bytes. Times are in seconds. Unless a method
    says otherwise it repeats its command after a lost connection, for up to `retry_for` seconds.
    All methods raise

    - `ReplyError` or the subclass of the code, when the server answers with an error,
    - `ConnectionLost`, when it could not be reached in time, or the fate of a command that is not
      safe to repeat is unknown.
    """

    def __init__(self, link: Link, desk: Desk) -> None:
        self._link = link
        self._desk = desk

    async def add(self, queue: Name, body: Name, *, expire: float, retry_lost: bool = False) -> str:
        """Add an event (QADD) and return its id.

        Args:
            expire: seconds from now after which it exists no more.
            retry_lost: what to do when the connection is lost and the event may or may not have
                been added: True adds it again, perhaps a second time; False raises.
        """
        command = ("QADD", queue, seconds(expire), body)
        return requests.text(await self._link.run(*command, repeat=retry_lost))

    async def add_noblock(self, queue: Name, body: Name, *, expire: float) -> None:
        """Add an event without waiting until it is stored (QADD NOBLOCK): it may get lost.

        Raises ReplyError when the server has too many such events to store.
        """
        await self._link.run("QADD", queue, seconds(expire), body, "NOBLOCK", repeat=False)

    async def get(
        self, queue: Name, group: Name, *, hold: float = HOLD, wait: float = 0.0
    ) -> Event | None:
        """Get the next event of the queue for the group (QGET), None if there is none.

        When the call is cancelled while an event is on its way, the event is given back.

        Args:
            hold: seconds within which it has to be acknowledged, else another consumer of the
                group gets it; 0: it is acknowledged already.
            wait: seconds to wait for an event.
        """
        return await self._desk.get(queue, group, hold, wait)

    async def ack(self, queue: Name, group: Name, id: str) -> bool:
        """Acknowledge an event (QACK). False: it was too late, or is acknowledged already."""
        return requests.yes(await self._link.run("QACK", queue, group, id, repeat=True))

    async def give_back(self, queue: Name, group: Name, id: str) -> bool:
        """Let the group have an event again at once (QACK REDO). False: it is not held."""
        return requests.yes(await self._link.run("QACK", queue, group, id, "REDO", repeat=True))

    async def working(self, queue: Name, group: Name, id: str, *, hold: float = HOLD) -> bool:
        """Keep an event for another `hold` seconds from now (QWORKING). False: it is too late."""
        command = ("QWORKING", queue, group, id, "EX", seconds(hold))
        return requests.yes(await self._link.run(*command, repeat=True))

    async def notify(self, group: Name, *queues: Name, wait: float = 0.0) -> str | None:
        """Wait until one of the queues has an event for the group (QNOTIFY), and give its name;
        None if there was none in time. Somebody else may be faster to get it."""
        command = ["QNOTIFY", group, seconds(wait), *queues]
        reply = await self._link.wait(command, wait, _nothing)
        return None if reply is None else as_text(requests.text(reply))

    async def flush(self, queue: Name) -> None:
        """Remove all events of a queue (QFLUSH)."""
        await self._link.run("QFLUSH", queue, repeat=True)

    async def status(self, *queues: Name, groups: Sequence[Name] = ()) -> Status:
        """The counts of the queues, of all without names (QSTATUS): `["queue"]["group"]["total"]`,
        and `inprogress`, `redo`, `done`, `available`, `consumers`."""
        return requests.status(await self._about("QSTATUS", queues, groups))

    async def info(self, *queues: Name, groups: Sequence[Name] = ()) -> list[str]:
        """The same for people, a line each (QINFO)."""
        return requests.lines(await self._about("QINFO", queues, groups))

    async def execute(self, *command: Argument) -> Reply:
        """Run any other command that does not wait. It is not repeated if it may have been
        executed."""
        return await self._link.run(*command, repeat=False)

    def events(self, *queues: Name, group: Name, hold: float = HOLD, ack: bool = True) -> Events:
        """The loop over the events of the queues: see `Events`."""
        return Events(self._desk, queues, group, hold, ack)

    async def _about(self, name: str, queues: Sequence[Name], groups: Sequence[Name]) -> Reply:
        command: list[Argument] = [name, *queues]
        if groups:
            command += ["GROUPS", *groups]
        return await self._link.run(*command, repeat=True)


async def _nothing(reply: Reply) -> None:
    """Nobody has to hear that there are events."""


@asynccontextmanager
async def connect(
    server: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    *,
    password: str | None = None,
    retry_for: float = 30.0,
    connect_timeout: float = 5.0,
) -> AsyncIterator[BananaClient]:
    """Connect to a bananaq: `async with connect("10.0.0.1") as client`.

    At the end of the block events that are still held are given back.

    Args:
        server: host name or address, or `unix:/path`.
        port: its port.
        password: for AUTH.
        retry_for: seconds to go on trying to reach it, at the start as well as later.
        connect_timeout: seconds for one attempt to connect.

    Raises:
        ConnectionLost: it could not be reached.
        AuthError: the password was refused.
    """
    path = server.removeprefix("unix:") if server.startswith("unix:") else ""
    address = Address(path=path) if path else Address(server, port)
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as outer:
            service: trio.Nursery = await outer.start(_serve)
            try:
                link = Link(
                    service,
                    address,
                    password=password,
                    retry_for=retry_for,
                    connect_timeout=connect_timeout,
                )
                desk = Desk(link, service)
                try:
                    await link.ready()
                    yield BananaClient(link, desk)
                finally:
                    await desk.close()
                    link.close()
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                # Kept out of the nursery, which would wrap it in a group.
                failure = error
            finally:
                service.cancel_scope.cancel()
    finally:
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None


async def _serve(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    # Shielded, so that when the caller is cancelled there still are connections on which to give
    # events back.
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            task_status.started(nursery)
            await trio.sleep_forever()
