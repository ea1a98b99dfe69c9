"""The worker loop, and calling handlers from several such loops."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Generic, Self

from disque_trio.respclient.concurrency import CancelScope, library
from disque_trio.respclient.delivery import D, InFlight
from disque_trio.respclient.errors import DisqueError


class DeliveryLoop(AsyncIterator[D], Generic[D]):
    """The loop over deliveries, for ``async for``.

    Args:
        in_flight: settles deliveries of a loop that was left.
        take: waits for the next delivery. There must be no checkpoint between its arrival and the
            return.
        ack: whether asking for the next delivery acknowledges the previous one.
        leave: called when nothing more is wanted from ``take``, at least for now.
        on_its_way: waits until, after ``leave``, no delivery is on its way any more.
    """

    def __init__(
        self,
        in_flight: InFlight,
        take: Callable[[], Awaitable[D]],
        *,
        ack: bool = True,
        leave: Callable[[], object] | None = None,
        on_its_way: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._in_flight = in_flight
        self._take = take
        self._ack = ack
        self._leave = leave
        self._on_its_way = on_its_way
        self._given: list[D] = []
        self._stopped = False
        self._waiting: CancelScope | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> D:
        self._given = _open(self._given)
        if self._ack and self._given:
            self._given[-1].processed = True
            await self._given[-1].finish()
            self._given = _open(self._given)
        if self._stopped:
            raise StopAsyncIteration
        delivery: D | None = None
        with library().CancelScope() as self._waiting:
            delivery = await self._take()
        if delivery is None:
            raise StopAsyncIteration
        # No checkpoint since it arrived: when cancelled, it is either with the server or here.
        self._given.append(delivery)
        if self._stopped:
            await self.aclose()
            raise StopAsyncIteration
        return delivery

    async def stop(self) -> None:
        """Take nothing more: the loop ends when it asks for the next delivery, or at once if it
        waits.

        The current delivery can be finished, and is acknowledged as usual.
        """
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()
        if self._leave is not None:
            self._leave()
        await library().lowlevel.checkpoint()

    async def quiet(self) -> None:
        """Wait, after ``stop``, until the server has heard of it and no delivery is on its way.

        What is given back from then on, also over another connection, does not come here again.
        """
        if self._on_its_way is not None:
            await self._on_its_way()

    async def aclose(self) -> None:
        """Give back deliveries that are not settled; even when cancelled, for a short time.

        Does not raise if that fails: the server delivers them again after their time.
        """
        if self._leave is not None:
            self._leave()
        given, self._given = self._given, []
        for delivery in given:
            delivery.left()
        left = _open(given)
        if left:
            await self._in_flight.finish(left)

    def __del__(self) -> None:
        # An abandoned loop must not keep its deliveries from other consumers forever.
        for delivery in self._given:
            delivery.left()
        left = _open(self._given)
        if left or self._leave is not None:
            self._in_flight.abandon(left, self._leave)


def _open(deliveries: Iterable[D]) -> list[D]:
    """Return those that their loop still has to settle."""
    return [each for each in deliveries if not (each.settled or each.detached)]


async def run_handlers(
    loops: Iterable[DeliveryLoop[D]],
    handler: Callable[[D], Awaitable[object]],
    on_failure: Callable[[D], Awaitable[object]],
) -> DisqueError | None:
    """Call a handler for each delivery of the loops, one at a time for each loop.

    Args:
        on_failure: called if the handler raised an ``Exception``.

    Returns:
        The error that ended the loops, or None if they were stopped. It is not raised, since a
        nursery would wrap it in a group, which ``except ConnectionLost`` does not catch.
    """
    failure: DisqueError | None = None

    async def run(loop: DeliveryLoop[D]) -> None:
        nonlocal failure
        try:
            async with loop:
                async for delivery in loop:
                    try:
                        await handler(delivery)
                    except Exception:
                        await on_failure(delivery)
        except DisqueError as error:
            failure = failure or error
            nursery.cancel_scope.cancel()

    async with library().open_nursery() as nursery:
        for loop in loops:
            nursery.start_soon(run, loop)
    return failure
