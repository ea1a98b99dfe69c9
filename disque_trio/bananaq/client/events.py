"""Events that are being worked on, and the loop over them.

Owns the set of events that a client holds (`Desk`), one of them with its heartbeat (`HeldEvent`)
and the `async for` loop (`Events`).

The rule that the loop serves: an event is acknowledged only after its loop body ended normally, and
an event whose body did not is given back, at once if possible. In doubt nothing is sent, and the
server gives the event to another consumer when its time is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType

import structlog
import trio

from disque_trio.bananaq.client import requests
from disque_trio.bananaq.client.link import Link
from disque_trio.bananaq.client.requests import Event, Name, as_text, passing, seconds
from disque_trio.client.connection import Reply
from disque_trio.client.errors import ConnectionLost, DisqueError, ReplyError

_log = structlog.get_logger("bananaq.client")

_FINISH_SECONDS = 2.0
"""How long giving back events may take when the caller is cancelled or the client closes."""

_WAIT_SECONDS = 30.0
"""How long one QGET or QNOTIFY waits."""

_WORKED_FOR_A_WHILE = 1.0

HEARTBEATS = 3
"""How many QWORKING go out within the time for which an event is held."""


class HeldEvent:
    """An event that this client works on.

    Until it is settled by `ack`, `give_back` or `release`, QWORKING goes out in the background, so
    that no other consumer of the group gets it.

    Attributes:
        processed: its loop body has ended normally.
    """

    def __init__(
        self,
        link: Link,
        event: Event,
        group: Name,
        hold: float,
        on_settled: Callable[[HeldEvent], object],
    ) -> None:
        self._link = link
        self._event = event
        self._group = group
        self._hold = hold
        self._on_settled = on_settled
        self._scope = trio.CancelScope()
        self._settling = trio.Lock()
        self._settled = False
        self._lost = False
        self.processed = False

    def __repr__(self) -> str:
        return f"<HeldEvent {self.id} of queue {self.queue!r}>"

    @property
    def id(self) -> str:
        """Its id, with the number of this delivery."""
        return self._event.id

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self._event.queue

    @property
    def group(self) -> str:
        """The name of the consumer group."""
        return as_text(self._group)

    @property
    def body(self) -> bytes:
        """What was added."""
        return self._event.body

    @property
    def delivery(self) -> int:
        """1 when the group gets it for the first time, then 2 and so on."""
        return self._event.delivery

    @property
    def settled(self) -> bool:
        """It was acknowledged, given back or released: nothing more will be sent for it."""
        return self._settled

    @property
    def lost(self) -> bool:
        """The server says that it is not ours any more: its time was over, it was flushed, or it
        has ended to exist. Another consumer may have it."""
        return self._lost

    async def ack(self) -> bool:
        """Acknowledge it. False: it was not ours any more. Does nothing if it is settled.

        Over a lost connection the acknowledgement is repeated; should the first have arrived, the
        second is answered with False.

        Raises:
            ConnectionLost: the server could not be reached within `retry_for`.
        """
        async with self._settling:
            if not self._settled:
                command = ("QACK", self.queue, self._group, self.id)
                done = requests.yes(await self._link.run(*command, repeat=True))
                self._lost = not done
                self.release()
        return not self._lost

    async def give_back(self, after: float = 0.0) -> None:
        """Let the group have it again at once (QACK REDO), or after so many seconds (QWORKING).

        Does nothing if it is settled.

        Raises:
            ConnectionLost: as for `ack`.
        """
        async with self._settling:
            if not self._settled:
                # A QWORKING behind it would take it back.
                self._scope.cancel()
                if after > 0:
                    await self._working(after)
                else:
                    command = ("QACK", self.queue, self._group, self.id, "REDO")
                    await self._link.run(*command, repeat=True)
                self.release()

    def release(self) -> None:
        """Send nothing more for it.

        The caller takes care of it by its id, or another consumer gets it when its time is over.
        """
        if not self._settled:
            self._settled = True
            self._scope.cancel()
            self._on_settled(self)

    async def finish(self) -> None:
        """Settle it as its loop was left: acknowledged if the body had ended, else given back."""
        if self.processed:
            await self.ack()
        else:
            await self.give_back()

    async def keep(self) -> None:
        """Send QWORKING until the event is settled or lost. Runs as a task of the client."""
        with self._scope:
            while True:
                await trio.sleep(self._hold / HEARTBEATS)
                try:
                    if not await self._working(self._hold):
                        # Unless an acknowledgement was faster.
                        self._lost = self._lost or not self._settled
                        return
                except ConnectionLost:
                    continue  # it has tried for `retry_for` seconds, with pauses
                except DisqueError as error:
                    if isinstance(error, ReplyError) and passing(error):
                        continue
                    _log.warning("event not kept", id=self.id, error=str(error))
                    return

    async def _working(self, hold: float) -> bool:
        command = ("QWORKING", self.queue, self._group, self.id, "EX", seconds(hold))
        return requests.yes(await self._link.run(*command, repeat=True))


class Desk:
    """The events being worked on. `nursery` runs their heartbeats and outlives the caller's scopes.

    `token` is for finalisers, which may run anywhere.
    """

    def __init__(self, link: Link, nursery: trio.Nursery) -> None:
        self._link = link
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self._held: set[HeldEvent] = set()

    async def get(self, queue: Name, group: Name, hold: float, wait: float) -> Event | None:
        """One QGET. No checkpoint between the event's arrival and the return."""
        command = ["QGET", queue, group, "EX", seconds(hold)]
        if wait > 0:
            command += ["BLOCK", seconds(wait)]

        async def give_back(reply: Reply) -> None:
            event = requests.event(reply, as_text(queue))
            if event is not None and hold > 0:
                await HeldEvent(self._link, event, group, hold, _ignore).give_back()

        reply = await self._link.wait(command, wait, give_back)
        return requests.event(reply, as_text(queue))

    async def take(self, queues: tuple[Name, ...], group: Name, hold: float) -> HeldEvent:
        """Wait for an event and keep hold of it. No checkpoint between arrival and return."""
        retry = self._link.retry()
        while True:
            started = trio.current_time()
            try:
                event = await self._next(queues, group, hold)
                if event is not None:
                    return self._hold(event, group, hold)
                retry = self._link.retry()
                continue
            except ConnectionLost as error:
                failure: DisqueError = error
            except ReplyError as error:
                if not passing(error):
                    raise
                failure = error
            if trio.current_time() - started > _WORKED_FOR_A_WHILE:
                retry = self._link.retry()  # it had worked: this is a new trouble
            if not await retry.again():
                raise failure

    async def finish(self, events: Iterable[HeldEvent]) -> None:
        """Settle events as their loops were left, shielded, within a short time; never raises.

        Where this fails another consumer gets the event when its time is over.
        """
        events = list(events)
        with trio.move_on_after(_FINISH_SECONDS, shield=True):
            async with trio.open_nursery() as nursery:
                for event in events:
                    nursery.start_soon(_finish, event)
        for event in events:
            event.release()

    def abandon(self, events: Iterable[HeldEvent]) -> None:
        """Settle events in the background. Safe to call from a finaliser, at any point."""

        def start() -> None:
            left = [event for event in events if event in self._held]
            if left:
                self._nursery.start_soon(self.finish, left)

        try:
            self._token.run_sync_soon(start)
        except trio.RunFinishedError:
            pass

    async def close(self) -> None:
        """Settle all events."""
        if self._held:
            await self.finish(self._held)

    async def _next(self, queues: tuple[Name, ...], group: Name, hold: float) -> Event | None:
        if len(queues) == 1:
            return await self.get(queues[0], group, hold, _WAIT_SECONDS)
        command = ["QNOTIFY", group, seconds(_WAIT_SECONDS), *queues]
        name = await self._link.wait(command, _WAIT_SECONDS, _ignore_later)
        return None if name is None else await self.get(requests.text(name), group, hold, 0)

    def _hold(self, event: Event, group: Name, hold: float) -> HeldEvent:
        held = HeldEvent(self._link, event, group, hold, self._held.discard)
        if hold > 0:
            self._held.add(held)
            self._nursery.start_soon(held.keep)
        else:
            held.release()  # acknowledged as it was given
        return held


def _ignore(event: HeldEvent) -> None:
    """Nobody keeps it."""


async def _ignore_later(reply: Reply) -> None:
    """Nothing was taken."""


async def _finish(event: HeldEvent) -> None:
    try:
        await event.finish()
    except DisqueError as error:
        _log.warning("event not settled", id=event.id, error=str(error))


class Events(AsyncIterator[HeldEvent]):
    """The loop over events: `async for event in client.events("queue", group="mail")`.

    - Asking for the next event acknowledges the one before, unless it is settled. With `ack=False`
      events are acknowledged by hand, at any time; until then they are held.
    - Leaving the loop by `break`, an exception or cancellation gives back what is held: at the end
      of the `async with` block if the loop is in one (`async with client.events("q", group="g") as
      events: async for event in events: ...`), else in the background as soon as Python disposes
      of the loop, at the latest when the client closes.
    - To leave after an event that is done: `await event.ack()`, then `break`; or `stop()`.

    Raises what `BananaClient.get` raises.
    """

    def __init__(
        self, desk: Desk, queues: tuple[Name, ...], group: Name, hold: float, ack: bool
    ) -> None:
        if not queues:
            raise ValueError("at least one queue is needed")
        if not hold >= 0:
            raise ValueError("the time to hold an event cannot be negative")
        self._given: list[HeldEvent] = []
        self._desk = desk
        self._queues = queues
        self._group = group
        self._seconds = hold
        self._ack = ack
        self._stopped = False
        self._waiting: trio.CancelScope | None = None

    async def __aenter__(self) -> Events:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> HeldEvent:
        if self._ack and self._given:
            current = self._given[-1]
            current.processed = True
            if not current.settled and not await current.ack():
                _log.warning("event was acknowledged too late", id=current.id)
        self._given = [event for event in self._given if not event.settled]
        if self._stopped:
            raise StopAsyncIteration
        event: HeldEvent | None = None
        with trio.CancelScope() as self._waiting:
            event = await self._desk.take(self._queues, self._group, self._seconds)
        if event is None:
            raise StopAsyncIteration
        # No checkpoint since it arrived: a cancellation finds it with the server or here.
        self._given.append(event)
        if self._stopped:
            await self.aclose()
            raise StopAsyncIteration
        return event

    async def stop(self) -> None:
        """Take no new event: the loop ends when it asks for the next one, or at once if it waits.

        The event in hand can be finished, and is acknowledged as always.
        """
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Give back what is not settled; also when cancelled, for a short time.

        Errors are not raised: another consumer gets the event when its time is over.
        """
        given, self._given = self._given, []
        left = [event for event in given if not event.settled]
        if left:
            await self._desk.finish(left)

    def __del__(self) -> None:
        # An abandoned loop must not keep its events from everybody else by QWORKING for ever.
        left = [event for event in getattr(self, "_given", []) if not event.settled]
        if left:
            self._desk.abandon(left)
