"""Events in progress, and the loop over them.

Owns one of them with its heartbeat (``HeldEvent``), the ways to get one (``get``, ``take``) and the
loop (``Events``).
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from disque_trio.bananaq.client import requests
from disque_trio.bananaq.client.requests import Event, passing, seconds
from disque_trio.bananaq.client.runner import CommandRunner
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.consumer import DeliveryLoop
from disque_trio.respclient.delivery import Delivery, InFlight
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import Name, as_text, text

log: structlog.typing.FilteringBoundLogger = structlog.get_logger("bananaq.client")

_WAIT_SECONDS = 30.0
"""How long one QGET or QNOTIFY waits."""

HEARTBEATS = 3
"""How many QWORKING go out within the time for which an event is held."""


class HeldEvent(Delivery):
    """An event that this client works on.

    Until it is settled by ``ack``, ``give_back`` or ``release``, QWORKING goes out in the
    background, so that no other consumer of the group gets it. It is ``lost`` when the server says
    that it is not ours any more: its time was over, it was flushed, or it has expired.

    Attributes:
        processed: its loop body has ended normally.
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
        """1 when the group gets it for the first time, then 2 and so on."""
        return self._event.delivery

    async def ack(self) -> bool:
        """Acknowledge it. False: it was not ours any more. Does nothing if it is settled.

        Over a lost connection the acknowledgement is repeated; should the first have arrived, the
        second is answered with False.

        Raises:
            ConnectionLost: the server could not be reached within ``retry_for``.
        """

        async def send() -> None:
            self._lost = not await self._run("QACK")

        await self._settle(send)
        return not self._lost

    async def give_back(self, after: float = 0.0) -> None:
        """Let the group have it again at once (QACK REDO), or after so many seconds (QWORKING).

        Does nothing if it is settled.

        Raises:
            ConnectionLost: as for ``ack``.
        """
        words = ("QWORKING", "EX", seconds(after)) if after > 0 else ("QACK", "REDO")
        await self._settle(lambda: self._run(*words), back=True)

    async def finish(self) -> None:
        """Settle it as its loop was left: acknowledged if the body had ended, else given back."""
        if not self.processed:
            await self.give_back()
        elif not self.settled and not await self.ack():
            log.warning("event was acknowledged too late", id=self.id)

    async def _heartbeat(self) -> float | None:
        pause = self._hold / HEARTBEATS
        try:
            if await self._run("QWORKING", "EX", seconds(self._hold)):
                return pause
            # Unless an acknowledgement was faster.
            self._lost = self._lost or not self._settled
        except DisqueError as error:
            if passing(error):
                return pause  # it has tried for ``retry_for`` seconds, with pauses
            log.warning("event not kept", id=self.id, error=str(error))
        return None

    async def _run(self, name: str, *options: str) -> bool:
        command = (name, self.queue, self._group, self.id, *options)
        return requests.yes(await self._runner.run(*command, repeat=True))


async def get(
    runner: CommandRunner, queue: Name, group: Name, hold: float, wait: float
) -> Event | None:
    """One QGET. No checkpoint between the event's arrival and the return."""
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
    """One QNOTIFY."""

    async def nothing(reply: Reply) -> None:
        """Nothing was taken."""

    reply = await runner.wait(["QNOTIFY", group, seconds(wait), *queues], wait, nothing)
    return None if reply is None else text(reply)


async def take(
    runner: CommandRunner, in_flight: InFlight, queues: tuple[Name, ...], group: Name, hold: float
) -> HeldEvent:
    """Wait for an event and keep hold of it. No checkpoint between arrival and return."""
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
        held.release()  # acknowledged as it was given
    return held


async def _next(
    runner: CommandRunner, queues: tuple[Name, ...], group: Name, hold: float
) -> Event | None:
    if len(queues) == 1:
        return await get(runner, queues[0], group, hold, _WAIT_SECONDS)
    name = await notify(runner, group, queues, _WAIT_SECONDS)
    return None if name is None else await get(runner, name, group, hold, 0)


class Events(DeliveryLoop[HeldEvent]):
    """The loop over events: ``async for event in client.events("queue", group="mail")``.

    - Asking for the next event acknowledges the one before, unless it is settled. With
      ``ack=False`` events are acknowledged by hand, at any time; until then they are held.
    - Leaving the loop by ``break``, an exception or cancellation gives back what is held: at the
      end of the ``async with`` block if the loop is in one (``async with client.events("q",
      group="g") as events: async for event in events: ...``), else in the background as soon as
      Python disposes of the loop, at the latest when the client closes.
    - To leave after an event that is done: ``await event.ack()``, then ``break``; or ``stop()``.

    Raises what ``BananaClient.get`` raises.
    """
