"""Deliveries that a client is working on, and the set of those in flight.

A message is acknowledged only after its consumer has finished with it. If the consumer failed, it
is given back, at once if possible. In doubt nothing is sent, and the server delivers the message
again after its time.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Protocol, TypeVar

import structlog
import trio

from disque_trio.respclient.concurrency import CancelScope, Event, Nursery, library
from disque_trio.respclient.errors import DisqueError

_SETTLE_SECONDS = 2.0
"""Seconds that settling may take when the caller is cancelled or the client closes."""

_DROPPED = 1000
"""Heartbeats that are not needed any more, but still kept."""


class Message(Protocol):
    """A delivered message: a job or an event."""

    @property
    def id(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def body(self) -> bytes: ...


class Source(Protocol):
    """A source of deliveries that has work to do before it can be closed."""

    async def run(self) -> None:
        """Run the source until it is retired and its deliveries are settled."""

    def retire(self) -> None:
        """Take nothing more from the source."""

    @property
    def ended(self) -> Event:
        """Set when ``run`` has ended."""


class Delivery(ABC):
    """A message that this client is working on, until it is settled.

    Until then, heartbeats are sent in the background, so that no other consumer gets it.

    Args:
        message: the message as delivered.
        grace: seconds until the first heartbeat.
        on_settled: called with the delivery when it is settled.

    Attributes:
        processed: whether the consumer has finished with it, so that ``finish`` acknowledges it.
        detached: whether a source of the client settles it, so that its loop must not; see
            ``detach``.
    """

    def __init__(self, message: Message, grace: float, on_settled: Callable[[Any], object]) -> None:
        self._message = message
        self._grace = grace
        self._on_settled = on_settled
        self._turn: _Turn | None = None  # while the next heartbeat is not due
        self._beating: CancelScope | None = None  # since the first heartbeat
        self._quiet = False
        self._settling = library().Lock()
        self._settled = False
        self._lost = False
        self.processed: bool = False
        self.detached: bool = False
        self.in_flight: InFlight | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of queue {self.queue!r}>"

    @property
    def id(self) -> str:
        """The id, as the server gave it."""
        return self._message.id

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._message.queue

    @property
    def body(self) -> bytes:
        """The body of the message."""
        return self._message.body

    @property
    def settled(self) -> bool:
        """Whether it was acknowledged, given back or released: nothing more is sent for it."""
        return self._settled

    @property
    def lost(self) -> bool:
        """Whether the server no longer reserves it for this client: another consumer may get it."""
        return self._lost

    def release(self) -> None:
        """Send nothing more for this delivery.

        The caller takes care of it by its id, or the server delivers it again after its time.
        """
        self.end()

    def detach(self, source: Source) -> None:
        """Have ``source``, which the client runs from now on, settle it, in place of its loop.

        Its heartbeats go on until it is settled.
        """
        assert self.in_flight is not None
        self.detached = True
        self.in_flight.serve(source)

    def hurry(self, within: float = 0) -> None:
        """Send the next heartbeat in ``within`` seconds, unless one is in progress."""
        if self._turn is not None:
            self._drop_turn()
            self._beat_after(within)

    def end(self) -> None:
        """Send nothing more for this delivery: it was settled, or could not be."""
        if not self._settled:
            self._settled = True
            self._hush()
            self._on_settled(self)

    def left(self) -> None:  # noqa: B027 - most have nothing to do
        """Note that the task that processed it has left its loop; it is settled after that."""

    @abstractmethod
    async def finish(self) -> None:
        """Settle it when its loop is left: acknowledge it if ``processed``, else give it back."""

    @abstractmethod
    async def _heartbeat(self) -> float | None:
        """Tell the server that this client is still working on it.

        Returns:
            Seconds until the next heartbeat; None: send no more.
        """

    def keep(self, in_flight: "InFlight") -> None:
        """Send heartbeats until it is settled or lost, as tasks of ``in_flight``."""
        self.in_flight = in_flight
        self._beat_after(self._grace)

    def _beat_after(self, seconds: float) -> None:
        assert self.in_flight is not None
        self._turn = self.in_flight.heartbeats.plan(self, seconds)

    def _drop_turn(self) -> None:
        if self._turn is not None and self.in_flight is not None:
            self.in_flight.heartbeats.drop(self._turn)
            self._turn = None

    async def beat(self) -> None:
        """Send the heartbeat that is due, and plan the next one."""
        self._turn = None
        pause: float | None = None
        with library().CancelScope() as self._beating:
            if not self._quiet:
                pause = await self._heartbeat()
        if pause is not None and not self._quiet:
            self._beat_after(pause)

    def _hush(self) -> None:
        """Send no more heartbeats."""
        self._quiet = True
        self._drop_turn()
        if self._beating is not None:
            self._beating.cancel()

    async def _settle(self, send: Callable[[], Awaitable[object]], *, back: bool = False) -> None:
        """Call ``send`` to settle it, unless it is settled. ``back``: this gives it back."""
        # One at a time: a loop that is left and a client that closes may both try to settle it.
        async with self._settling:
            if not self._settled:
                if back:
                    # A heartbeat sent after it would reserve the delivery again.
                    self._hush()
                await send()
                self.end()


D = TypeVar("D", bound=Delivery)


class _Turn:
    """When to send the heartbeat of a delivery; None: it is not needed any more."""

    __slots__ = ("delivery", "due")

    def __init__(self, due: float, delivery: Delivery) -> None:
        self.due: float = due
        self.delivery: Delivery | None = delivery

    def __lt__(self, other: "_Turn") -> bool:
        return self.due < other.due


class Heartbeats:
    """Starts the heartbeats of deliveries when they are due.

    One task waits for all: most deliveries are settled before their first heartbeat, and a task for
    each would be most of what they cost.
    """

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._turns: list[_Turn] = []  # a heap
        self._dropped = 0  # of these
        self._until = 0.0
        self._news = library().Event()
        nursery.start_soon(self._run)

    def plan(self, delivery: Delivery, seconds: float) -> _Turn:
        """Start the next heartbeat in this time."""
        turn = _Turn(library().current_time() + seconds, delivery)
        heappush(self._turns, turn)
        if turn.due < self._until:
            self._news.set()
        return turn

    def drop(self, turn: _Turn) -> None:
        """Do not start it."""
        turn.delivery = None
        self._dropped += 1
        if self._dropped > max(len(self._turns) // 2, _DROPPED):
            self._turns[:] = [turn for turn in self._turns if turn.delivery is not None]
            heapify(self._turns)
            self._dropped = 0

    async def _run(self) -> None:
        turns = self._turns
        while True:
            self._news = library().Event()
            now = library().current_time()
            while turns and (turns[0].delivery is None or turns[0].due <= now):
                delivery = heappop(turns).delivery
                if delivery is None:
                    self._dropped -= 1
                else:
                    self._nursery.start_soon(delivery.beat)
            self._until = turns[0].due if turns else inf
            with library().move_on_after(self._until - now):
                await self._news.wait()


class InFlight:
    """The deliveries that are not settled yet.

    Args:
        nursery: runs their heartbeats, and outlives the caller's scopes.
        log: where to report deliveries that could not be settled.
    """

    def __init__(self, nursery: Nursery, log: structlog.typing.FilteringBoundLogger) -> None:
        self.heartbeats: Heartbeats = Heartbeats(nursery)
        self._nursery = nursery
        self._log = log
        # For finalisers, which may run anywhere.
        self._token = library().lowlevel.current_trio_token()
        self._deliveries: set[Delivery] = set()
        self._sources: set[Source] = set()

    def add(self, delivery: Delivery) -> None:
        """Keep a delivery until it is settled."""
        self._deliveries.add(delivery)
        delivery.keep(self)

    def discard(self, delivery: Delivery) -> None:
        """Forget a delivery that is settled."""
        self._deliveries.discard(delivery)

    def serve(self, source: Source) -> None:
        """Run a source of deliveries in the background, unless it runs already."""
        if source not in self._sources:
            self._sources.add(source)
            self._nursery.start_soon(self._serve, source)

    async def finish(self, deliveries: Iterable[Delivery]) -> None:
        """Settle deliveries whose loops were left, waiting for a short time, shielded.

        Never raises. If settling fails, the server delivers the message again after its time.
        """
        finished = library().Event()
        # Not in this task: cancellation in asyncio ignores shields, and can come a second time.
        self._nursery.start_soon(self._finish_all, list(deliveries), finished)
        with library().CancelScope(shield=True):
            await finished.wait()

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function in the client's loop, unless that has ended. Safe to call anywhere."""
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            pass

    def abandon(
        self, deliveries: Iterable[Delivery], leave: Callable[[], object] | None = None
    ) -> None:
        """Settle deliveries in the background, after calling ``leave`` to leave their loop. Safe to
        call from a finaliser, at any point."""

        def start() -> None:
            if leave is not None:
                leave()
            left = [delivery for delivery in deliveries if delivery in self._deliveries]
            if left:
                self._nursery.start_soon(self.finish, left)

        self.soon(start)

    async def close(self) -> None:
        """Settle all deliveries and close all sources."""
        sources = list(self._sources)
        for source in sources:
            source.retire()
        left = [delivery for delivery in self._deliveries if not delivery.detached]
        if left:
            await self.finish(left)
        with library().move_on_after(_SETTLE_SECONDS, shield=True):
            for source in sources:
                await source.ended.wait()

    async def _serve(self, source: Source) -> None:
        try:
            await source.run()
        finally:
            self._sources.discard(source)

    async def _finish_all(self, deliveries: list[Delivery], finished: Event) -> None:
        try:
            with library().move_on_after(_SETTLE_SECONDS):
                async with library().open_nursery() as nursery:
                    for delivery in deliveries:
                        nursery.start_soon(self._finish, delivery)
        finally:
            for delivery in deliveries:
                delivery.end()
            finished.set()

    async def _finish(self, delivery: Delivery) -> None:
        try:
            await delivery.finish()
        except DisqueError as error:
            self._log.warning("delivery not settled", id=delivery.id, error=str(error))
