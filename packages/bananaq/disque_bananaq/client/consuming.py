"""``consumer``: a connection and the loop over its events in one object.

Owns the two ways to use it. In an ``async with`` block, the connection lives in a nursery of the
caller. A bare ``async for`` has no block for it to live in, so a Trio system task holds the
connection until the loop ends or Python disposes of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Unpack

import trio

from disque_bananaq.client.client import BananaClient, ConnectOptions, connect
from disque_bananaq.client.events import Events, HeldEvent
from disque_bananaq.client.requests import HOLD
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.values import Name


def consumer(
    *queues: Name,
    group: Name,
    hold: float = HOLD,
    ack: bool = True,
    **connection: Unpack[ConnectOptions],
) -> Consumer:
    """Consume the events of one or more queues as a member of a consumer group.

        async with consumer("signups", group="mail") as events:
            async for event in events:
                send_mail(event.body)

    or, shorter, ``async for event in consumer("signups", group="mail")``. ``Events`` describes what
    happens to events and how to stop; ``ConnectOptions`` describes the other arguments.

    Args:
        queues: the names of the queues, at least one.
        group: the name of the consumer group.
        hold: seconds after which another consumer gets an event if this one dies. The hold is
            renewed for as long as the event is being processed. With 0, events are acknowledged as
            they are delivered, so that each is processed at most once.
        ack: acknowledge an event when the body of the loop has finished.
    """
    if not queues:
        raise ValueError("at least one queue is needed")
    return Consumer(
        connect(**connection),
        lambda client: client.events(*queues, group=group, hold=hold, ack=ack),
    )


class Consumer(AsyncIterator[HeldEvent]):
    """Iterates over events with a connection of its own. Made by ``consumer``. Use it once, in an
    ``async with`` block or in a loop."""

    def __init__(
        self,
        connection: AbstractAsyncContextManager[BananaClient],
        loop: Callable[[BananaClient], Events],
    ) -> None:
        self._connection = connection
        self._loop = loop
        self._stack = AsyncExitStack()
        self._host: _Host | None = None
        self._events: Events | None = None
        self._stopped = False

    async def __aenter__(self) -> Events:
        client = await self._stack.enter_async_context(self._connection)
        return await self._stack.enter_async_context(self._loop(client))

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._stack.__aexit__(*error)

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> HeldEvent:
        if self._stopped and self._events is None:
            raise StopAsyncIteration
        try:
            if self._events is None:
                if self._host is None:
                    self._host = _Host(self._connection)
                    library().lowlevel.spawn_system_task(self._host.run)
                self._events = self._loop(await self._host.client())
            return await self._events.__anext__()
        except BaseException:
            await self.aclose()
            raise

    async def stop(self) -> None:
        """Like ``Events.stop``, for a loop without a block."""
        self._stopped = True
        if self._events is not None:
            await self._events.stop()

    async def aclose(self) -> None:
        """Give back held events and close the connection, for a loop without a block."""
        if self._events is not None:
            await self._events.aclose()
        if self._host is not None:
            await self._host.close()

    def __del__(self) -> None:
        host = getattr(self, "_host", None)
        if host is not None:
            host.abandon()


class _Host:
    """The task that owns the connection. Holds no reference to the consumer."""

    def __init__(self, connection: AbstractAsyncContextManager[BananaClient]) -> None:
        self._connection = connection
        self._token = library().lowlevel.current_trio_token()
        self._scope = library().CancelScope()
        self._opened = library().Event()
        self._closed = library().Event()
        self._client: BananaClient | None = None
        self._failure: Exception | None = None

    async def run(self) -> None:
        """Hold the connection open until ``close``. Must not raise: that would end the Trio run."""
        try:
            with self._scope:
                async with self._connection as client:
                    self._client = client
                    self._opened.set()
                    await library().sleep_forever()
        except Exception as error:
            self._failure = error
        finally:
            self._opened.set()
            self._closed.set()

    async def client(self) -> BananaClient:
        """Return the client once it is connected. Raises what connecting raised."""
        await self._opened.wait()
        if self._client is None:
            raise self._failure or trio.ClosedResourceError("the consumer is closed")
        return self._client

    async def close(self) -> None:
        """Close the connection and wait until it is closed, even if cancelled: that takes only a
        moment."""
        self._scope.cancel()
        with library().CancelScope(shield=True):
            await self._closed.wait()

    def abandon(self) -> None:
        """Close the connection in the background. Safe to call from a finaliser, at any point."""
        try:
            self._token.run_sync_soon(self._scope.cancel)
        except trio.RunFinishedError:
            pass
