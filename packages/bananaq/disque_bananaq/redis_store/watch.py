"""Subscribes to the messages about new events in Redis.

Owns the connection for these messages. A queue is subscribed to while clients wait for its events,
and a little longer. Messages may be lost with the connection, so all waiting clients are told to
look when a subscription is active (again), and once a second in any case.
"""

from collections.abc import Awaitable, Callable

import trio

from disque_bananaq.redis_store.keys import KeyNames
from disque_trio.redis.connection import RedisConnection
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.respclient.connection import Connection, OnPush, Reply

POLL_SECONDS = 1.0
_PING_SECONDS = 5.0
_LINGER_POLLS = 5
_BACKOFF_SECONDS = 0.2


class Watcher:
    """Reports queues that may have an event for a waiting client.

    Attributes:
        tell: called with a queue and a group, or None for all its groups.
    """

    def __init__(
        self,
        names: KeyNames,
        tell: Callable[[bytes, bytes | None], None],
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._poll_seconds = poll_seconds
        self._names = names
        self.tell = tell
        self._link: RedisConnection | None = None
        self._waiters: dict[bytes, dict[bytes, int]] = {}
        self._subscribed: set[bytes] = set()  # queues subscribed to on this connection
        self._confirmed: set[bytes] = set()  # those whose subscription is confirmed
        self._unused: dict[bytes, int] = {}  # polls since the last client stopped waiting
        self._wake = trio.Event()

    def watch(self, queue: bytes, group: bytes) -> None:
        """Note a waiting client. ``tell`` is called once the subscription is active."""
        groups = self._waiters.setdefault(queue, {})
        groups[group] = groups.get(group, 0) + 1
        self._unused.pop(queue, None)
        self._wake.set()
        if queue in self._confirmed:
            # A message before this call may have found nobody waiting.
            self.tell(queue, group)

    def unwatch(self, queue: bytes, group: bytes) -> None:
        """Note that one client no longer waits."""
        groups = self._waiters.get(queue, {})
        if groups.get(group, 0) > 1:
            groups[group] -= 1
            return
        groups.pop(group, None)
        if not groups and self._waiters.pop(queue, None) is not None:
            self._unused[queue] = 0

    async def run(
        self, connect: Callable[[OnPush], Awaitable[tuple[RedisConnection, Connection]]]
    ) -> None:
        """Listen until cancelled. ``connect`` opens a connection, or raises RedisUnavailable."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._poll)
            while True:
                if not self._waiters:
                    self._wake = trio.Event()
                    await self._wake.wait()
                try:
                    self._link, connection = await connect(self._take)
                    await self._listen(connection)
                except RedisUnavailable:
                    pass
                finally:
                    self._subscribed.clear()
                    self._confirmed.clear()
                await trio.sleep(_BACKOFF_SECONDS)

    async def _listen(self, connection: Connection) -> None:
        """Keep the subscriptions up to date until the connection ends."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._subscribe, connection)
            await connection.ended.wait()
            nursery.cancel_scope.cancel()

    async def _subscribe(self, connection: Connection) -> None:
        """Subscribe to the queues that clients wait for, until cancelled."""
        while True:
            self._wake = trio.Event()
            new = [queue for queue in self._waiters if queue not in self._subscribed]
            for queue in new:
                connection.send(b"SUBSCRIBE", self._names.channel(queue))
            self._subscribed.update(new)
            old = [queue for queue, polls in self._unused.items() if polls >= _LINGER_POLLS]
            for queue in old:
                del self._unused[queue]
                if queue in self._subscribed:
                    connection.send(b"UNSUBSCRIBE", self._names.channel(queue))
                    self._subscribed.discard(queue)
                    self._confirmed.discard(queue)
            await self._wake.wait()

    def _take(self, message: list[Reply]) -> None:
        """Handle a message from Redis."""
        if len(message) != 3 or not isinstance(message[1], bytes):
            return
        kind, channel, payload = message
        assert isinstance(channel, bytes)
        queue = self._names.queue_of(channel)
        if queue is None:
            return
        if kind == b"subscribe":
            if queue in self._subscribed:
                self._confirmed.add(queue)
            if queue in self._waiters:
                self.tell(queue, None)
        elif kind == b"message" and queue in self._waiters and isinstance(payload, bytes):
            if payload.startswith(b"="):
                group = self._names.decode(payload[1:])
                if group in self._waiters[queue]:
                    self.tell(queue, group)
            else:
                self.tell(queue, None)

    async def _poll(self) -> None:
        """Tell all waiting clients once a second, and check that the connection is alive."""
        pinged = trio.current_time()
        while True:
            await trio.sleep(self._poll_seconds)
            for queue, groups in list(self._waiters.items()):
                for group in list(groups):
                    self.tell(queue, group)
            for queue in self._unused:
                self._unused[queue] += 1
                self._wake.set()
            if trio.current_time() - pinged >= _PING_SECONDS and self._link is not None:
                pinged = trio.current_time()
                if self._link.usable and self._subscribed:
                    try:
                        await self._link.command(b"PING", seconds=_PING_SECONDS)
                    except (RedisUnavailable, RedisError):
                        pass
