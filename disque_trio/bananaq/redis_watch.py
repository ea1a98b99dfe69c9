"""Hearing of events in Redis: who waits for what, and the subscriptions for it.

Owns the connection that the messages come over. A queue is subscribed to while somebody waits for
its events and a little longer. Messages may be lost with the connection; so all who wait are told
to look when a subscription is there (again), and once a second in any case.
"""

from collections.abc import Awaitable, Callable
from typing import cast

import trio
from coredis.connection import BaseConnection
from coredis.exceptions import ConnectionError as RedisConnectionError
from coredis.exceptions import RedisError

from disque_trio.bananaq.redis_keys import KeyNames
from disque_trio.redis_link import Link, LinkLost

LOOK_SECONDS = 1.0
_PING_SECONDS = 5.0
_LINGER_LOOKS = 5
_REST_SECONDS = 0.2


class Watcher:
    """Tells of queues that may have something for those who wait.

    Attributes:
        tell: called with a queue and a group, or None for all its groups.
    """

    __slots__ = (
        "_asked", "_heard", "_link", "_look_seconds", "_names", "_unused", "_waiters", "_wake",
        "tell",
    )  # fmt: skip

    def __init__(
        self,
        names: KeyNames,
        tell: Callable[[bytes, bytes | None], None],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._look_seconds = look_seconds
        self._names = names
        self.tell = tell
        self._link: Link | None = None
        self._waiters: dict[bytes, dict[bytes, int]] = {}
        self._asked: set[bytes] = set()  # queues that were subscribed to on this connection
        self._heard: set[bytes] = set()  # those of which it is confirmed
        self._unused: dict[bytes, int] = {}  # looks since nobody waits any more
        self._wake = trio.Event()

    def watch(self, queue: bytes, group: bytes) -> None:
        """Somebody waits; once the subscription is there, `tell` is called."""
        groups = self._waiters.setdefault(queue, {})
        groups[group] = groups.get(group, 0) + 1
        self._unused.pop(queue, None)
        self._wake.set()
        if queue in self._heard:
            # What came before this call may have found nobody who waits.
            self.tell(queue, group)

    def unwatch(self, queue: bytes, group: bytes) -> None:
        """One waits no more."""
        groups = self._waiters.get(queue, {})
        if groups.get(group, 0) > 1:
            groups[group] -= 1
            return
        groups.pop(group, None)
        if not groups and self._waiters.pop(queue, None) is not None:
            self._unused[queue] = 0

    async def run(self, connect: Callable[[], Awaitable[tuple[Link, BaseConnection]]]) -> None:
        """Listen until cancelled; `connect` gives a connection, or raises LinkLost."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look)
            while True:
                if not self._waiters:
                    self._wake = trio.Event()
                    await self._wake.wait()
                try:
                    self._link, connection = await connect()
                    await self._listen(connection)
                except (LinkLost, RedisError):
                    pass
                finally:
                    self._asked.clear()
                    self._heard.clear()
                await trio.sleep(_REST_SECONDS)

    async def _listen(self, connection: BaseConnection) -> None:
        async with trio.open_nursery() as nursery:
            failure: list[RedisConnectionError] = []

            async def subscribe() -> None:
                try:
                    await self._subscribe(connection)
                except RedisConnectionError as error:
                    failure.append(error)
                    nursery.cancel_scope.cancel()

            nursery.start_soon(subscribe)
            try:
                async for message in connection.push_messages:
                    self._take(cast("list[object]", message))
            except RedisConnectionError as error:
                failure.append(error)
                nursery.cancel_scope.cancel()
        if failure:
            raise failure[0]

    async def _subscribe(self, connection: BaseConnection) -> None:
        while True:
            self._wake = trio.Event()
            new = [queue for queue in self._waiters if queue not in self._asked]
            for queue in new:
                connection.send_command(b"SUBSCRIBE", self._names.channel(queue))
            self._asked.update(new)
            old = [queue for queue, looks in self._unused.items() if looks >= _LINGER_LOOKS]
            for queue in old:
                del self._unused[queue]
                if queue in self._asked:
                    connection.send_command(b"UNSUBSCRIBE", self._names.channel(queue))
                    self._asked.discard(queue)
                    self._heard.discard(queue)
            await self._wake.wait()

    def _take(self, message: list[object]) -> None:
        if len(message) != 3 or not isinstance(message[1], bytes):
            return
        kind, channel, payload = message
        assert isinstance(channel, bytes)
        queue = self._names.queue_of(channel)
        if queue is None:
            return
        if kind == b"subscribe":
            if queue in self._asked:
                self._heard.add(queue)
            if queue in self._waiters:
                self.tell(queue, None)
        elif kind == b"message" and queue in self._waiters and isinstance(payload, bytes):
            if payload.startswith(b"="):
                group = self._names.decode(payload[1:])
                if group in self._waiters[queue]:
                    self.tell(queue, group)
            else:
                self.tell(queue, None)

    async def _look(self) -> None:
        """Tell all who wait once a second, and find out whether the connection is alive."""
        pinged = trio.current_time()
        while True:
            await trio.sleep(self._look_seconds)
            for queue, groups in list(self._waiters.items()):
                for group in list(groups):
                    self.tell(queue, group)
            for queue in self._unused:
                self._unused[queue] += 1
                self._wake.set()
            if trio.current_time() - pinged >= _PING_SECONDS and self._link is not None:
                pinged = trio.current_time()
                if self._link.usable and self._asked:
                    try:
                        await self._link.command(b"PING", seconds=_PING_SECONDS)
                    except (LinkLost, RedisError):
                        pass
