"""Events in progress, and the loop over them.

Owns held events with their heartbeats (``HeldEvent``), the ways to get one (``get``, ``take``) and
the loop (``Events``).
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
import trio

from disque_bananaq.client import requests
from disque_bananaq.client.requests import Event, passing, seconds
from disque_bananaq.client.runner import CommandRunner
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.consumer import DeliveryLoop
from disque_trio.respclient.delivery import Delivery, InFlight
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.log import library_log
from disque_trio.respclient.values import Name, as_text, text

log: structlog.typing.FilteringBoundLogger = library_log("bananaq.client")

_WAIT_SECONDS = 30.0
"""Seconds that one QGET or QNOTIFY waits."""

HEARTBEATS = 3
"""How many QWORKING commands are sent during the hold time of an event."""


class HeldEvent(Delivery):
    """An event that this client is working on.

    Until the event is settled by ``ack``, ``give_back`` or ``release``, QWORKING is sent in the
    background, so that no other consumer of the group gets it. The event is ``lost`` if the server
    says that it is no longer ours: its hold time was over, it was flushed, or it expired.

    Attributes:
        processed: whether the body of the loop ended normally.
    """

    def __init__(
        self,
        runner: CommandRunner,
        event: Event,
        group: Name,
        hold: float,
        on_settled: Callable[[HeldEvent], object],
    ) -> None:
        super().__init__(event, hold / HEARTBEATS, on_settled)
        self._runner = runner
        self._event = event
        self._group = group
        self._hold = hold

    @property
    def group(self) -> str:
        """The name of the consumer group."""
        return as_text(self._group)

    @property
    def delivery(self) -> int:
        """1 at the first delivery to the group, then 2 and so on."""
        return self._event.delivery

    async def ack(self) -> bool:
        """Acknowledge the event. Returns False if it was no longer ours. Does nothing if it is
        already settled.

        If the connection is lost, the acknowledgement is repeated. If the first one had arrived
        after all, the second one returns False.

        Raises:
            ConnectionLost: the server could not be reached within ``retry_for``.
        """

        async def send() -> None:
            self._lost = not await self._run("QACK")

        await self._settle(send)
        return not self._lost

    async def give_back(self, after: float = 0.0) -> None:
        """Give the event back to the group, for delivery at once (QACK REDO) or after ``after``
        seconds (QWORKING).

        Does nothing if the event is already settled.

        Raises:
            ConnectionLost: as for ``ack``.
        """
        words = ("QWORKING", "EX", seconds(after)) if after > 0 else ("QACK", "REDO")
        await self._settle(lambda: self._run(*words), back=True)

    async def finish(self) -> None:
        """Settle the event when its loop is left: acknowledge it if the body ended normally, else
        give it back."""
        if not self.processed:
            await self.give_back()
        elif not self.settled and not await self.ack():
            log.warning("event was acknowledged too late", id=self.id)

    async def _heartbeat(self) -> float | None:
        pause = self._hold / HEARTBEATS
        try:
            if await self._run("QWORKING", "EX", seconds(self._hold)):
                return pause
            # It is not lost if an acknowledgement was faster.
            self._lost = self._lost or not self._settled
        except DisqueError as error:
            if passing(error):
                return pause  # it was tried for ``retry_for`` seconds, with pauses
            log.warning("event not kept", id=self.id, error=str(error))
        except trio.ClosedResourceError:
            pass  # the client was closed after the heartbeat had begun
        return None

    async def _run(self, name: str, *options: str) -> bool:
        command = (name, self.queue, self._group, self.id, *options)
        return requests.yes(await self._runner.run(*command, repeat=True))


async def get(
    runner: CommandRunner, queue: Name, group: Name, hold: float, wait: float
) -> Event | None:
    """Run one QGET. There is no checkpoint between the event's arrival and the return."""
    command = ["QGET", queue, group, "EX", seconds(hold)]
    if wait > 0:
        command += ["BLOCK", seconds(wait)]

    async def give_back(reply: Reply) -> None:
        event = requests.event(reply, as_text(queue))
        if event is not None and hold > 0:
            await runner.run("QACK", queue, group, event.id, "REDO", repeat=True)

    reply = await runner.wait(command, wait, give_back)
    return requests.event(reply, as_text(queue))


async def notify(
    runner: CommandRunner, group: Name, queues: tuple[Name, ...], wait: float
) -> str | None:
    """Run one QNOTIFY."""

    async def nothing(reply: Reply) -> None:
        """Do nothing, since QNOTIFY takes nothing."""

    reply = await runner.wait(["QNOTIFY", group, seconds(wait), *queues], wait, nothing)
    return None if reply is None else text(reply)


async def take(
    runner: CommandRunner, in_flight: InFlight, queues: tuple[Name, ...], group: Name, hold: float
) -> HeldEvent:
    """Wait for an event and hold it. There is no checkpoint between its arrival and the return."""
    retry = runner.retry()

    async def attempt() -> Event:
        while (event := await _next(runner, queues, group, hold)) is None:
            retry.reset()
        return event

    event = await retry.run(attempt, passing, waits=True)
    held = HeldEvent(runner, event, group, hold, in_flight.discard)
    if hold > 0:
        in_flight.add(held)
    else:
        held.release()  # it was acknowledged as it was delivered
    return held


async def _next(
    runner: CommandRunner, queues: tuple[Name, ...], group: Name, hold: float
) -> Event | None:
    if len(queues) == 1:
        return await get(runner, queues[0], group, hold, _WAIT_SECONDS)
    name = await notify(runner, group, queues, _WAIT_SECONDS)
    return None if name is None else await get(runner, name, group, hold, 0)


class Events(DeliveryLoop[HeldEvent]):
    """The worker loop: ``async for event in client.events("queue", group="mail")``.

    - Asking for the next event acknowledges the previous one, unless it is already settled. With
      ``ack=False``, events are acknowledged by hand, at any time; they are held until then.
    - Leaving the loop by ``break``, an exception or cancellation gives held events back. If the
      loop is in a block (``async with client.events("q", group="g") as events: async for event in
      events: ...``), this happens at the end of the block. Otherwise it happens in the background
      as soon as Python disposes of the loop, or at the latest when the client is closed.
    - To leave after finishing an event, call ``await event.ack()`` and then ``break``, or call
      ``stop``.

    Raises the same exceptions as ``BananaClient.get``.
    """
