"""The store that keeps the events in a Redis, or a Redis Cluster, that others use as well.

Owns what is around the lanes: consumers and their signs of life, the status of many queues, start
and end. Any number of daemons work on one Redis and know nothing of each other.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio
from coredis.connection import BaseConnection, TCPLocation
from coredis.exceptions import RedisError

from disque_trio.bananaq.core.ops import STATUS, Op, QueueStatus
from disque_trio.bananaq.redis_keys import SLOTS, KeyNames
from disque_trio.bananaq.redis_lane import Lane, Place, Routes
from disque_trio.bananaq.redis_watch import LOOK_SECONDS, Watcher
from disque_trio.bananaq.redis_wire import ENTER, LEAVE, MOST_IN_RUN, server_side
from disque_trio.redis_link import Link, LinkLost

HEARTBEAT_SECONDS = 10.0
_CLOSE_SECONDS = 2.0


class _Part:
    """The status of one of the queues that `whole` asks for."""

    __slots__ = ("all", "whole")

    def __init__(self, whole: "_Whole", all: list[Op]) -> None:
        self.whole = whole
        self.all = all


class _Whole:
    """A STATUS operation, and how many of its queues are not known yet."""

    __slots__ = ("left", "op")

    def __init__(self, op: Op, left: int) -> None:
        self.op = op
        self.left = left


def _nothing() -> None:
    pass


class RedisStore:
    """A `Store` in a Redis. `run_forever` has to run; operations wait until it does.

    Args:
        server, port: where it is; of a cluster, one of its nodes. db: number of the database.
        prefix: of all keys, without braces. pool_size: connections for operations, 1 or more.
        others: more nodes of the cluster, host and port, to ask when the first is away.
        look_seconds: how often those who wait are told to look, whatever was heard.

    Attributes:
        on_answer, on_available: see `Store`; called by tasks of `run_forever`.
        on_answers_end: called after some calls of ``on_answer``.

    Raises:
        ValueError: the prefix or the size will not do.
    """

    def __init__(
        self,
        server: str = "127.0.0.1",
        port: int = 6379,
        *,
        db: int = 0,
        username: str | None = None,
        password: str | None = None,
        prefix: str = "bananaq",
        pool_size: int = 10,
        cluster: bool = False,
        look_seconds: float = LOOK_SECONDS,
        others: Sequence[tuple[str, int]] = (),
    ) -> None:
        if pool_size < 1:
            raise ValueError("there has to be a connection to Redis at least")
        self.names = KeyNames(prefix)
        self.on_answer: Callable[[Op], None] = lambda op: None
        self.on_answers_end: Callable[[], None] = _nothing
        self.on_available: Callable[[bytes, bytes | None], None] = lambda queue, group: None
        self._routes = Routes(Place(server, port, db, username, password, cluster))
        if cluster:
            self._routes.known += [TCPLocation(host, number) for host, number in others]
        self._watcher = Watcher(
            self.names, lambda queue, group: self.on_available(queue, group), look_seconds
        )
        self._pool_size = pool_size
        self._lanes: list[Lane] = []
        self._early: list[Op] = []
        self._nursery: trio.Nursery | None = None
        self._closed = False
        self._instance = secrets.token_hex(8)
        self._consumers: dict[bytes, set[bytes]] = {}
        self._leaving = 0
        self._left = trio.Event()

    def run(self, op: Op, now: int) -> bool:
        """See `Store`. ``now`` is not looked at: Redis has a clock of its own."""
        if self._closed:
            op.error = server_side("the store is closed")
            return True
        if self._nursery is None:
            self._early.append(op)
        elif op.kind == STATUS:
            self._status(op)
        else:
            self._submit(op)
        return False

    def watch(self, queue: bytes, group: bytes) -> None:
        """See `Store`; ``on_available`` is called once the subscription is there."""
        self._watcher.watch(queue, group)

    def unwatch(self, queue: bytes, group: bytes) -> None:
        """See `Store`."""
        self._watcher.unwatch(queue, group)

    def enter(self, queue: bytes, group: bytes, consumer: int) -> None:
        """See `Store`."""
        member = self._member(group, consumer)
        self._consumers.setdefault(queue, set()).add(member)
        self._tell_of(ENTER, queue, [member])

    def leave(self, queue: bytes, group: bytes, consumer: int) -> None:
        """See `Store`."""
        member = self._member(group, consumer)
        members = self._consumers.get(queue, set())
        members.discard(member)
        if not members:
            self._consumers.pop(queue, None)
        self._tell_of(LEAVE, queue, [member])

    def tick(self, now: int) -> None:
        """Nothing: Redis has the clock, and tasks of the store look at it."""

    def next_due(self) -> int:
        """0: ``tick`` does not have to be called."""
        return 0

    async def run_forever(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Work until cancelled. No Redis has to be there at the start. Can be run once."""
        ended = trio.Event()
        async with trio.open_nursery() as outer:
            # The connections outlive the cancellation, as consumers are signed off over them.
            await outer.start(self._keep_connections, ended)
            task_status.started()
            try:
                while True:
                    await trio.sleep(HEARTBEAT_SECONDS)
                    for queue, members in self._consumers.items():
                        self._tell_of(ENTER, queue, list(members))
            finally:
                with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await self._sign_off()
                self._closed = True
                ended.set()

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[RedisStore]":
        """``async with store.running():`` instead of a task for `run_forever`."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.run_forever)
            yield self
            nursery.cancel_scope.cancel()

    async def _keep_connections(
        self,
        ended: trio.Event,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for _ in range(self._pool_size):
                    lane = Lane(nursery, self._routes, self.names, self._answered)
                    self._lanes.append(lane)
                    nursery.start_soon(lane.serve)
                nursery.start_soon(self._watcher.run, self._connect_to_listen)
                task_status.started()
                early, self._early = self._early, []
                for op in early:
                    self.run(op, 0)
                await ended.wait()
                nursery.cancel_scope.cancel()

    def _submit(self, op: Op) -> None:
        lanes = self._lanes
        if self._routes.place.cluster:
            # Slots that are neighbours mostly are on one node. So when that hangs, only a part of
            # the lanes hangs with it.
            number = self.names.slot(op.queue) * len(lanes) // SLOTS
        else:
            number = hash(op.queue) % len(lanes)
        lanes[number].submit(op)

    def _answered(self, ops: list[Op]) -> None:
        for op in ops:
            if type(op.tag) is _Part:
                self._part(op, op.tag)
            elif op.kind == LEAVE:
                self._leaving -= 1
                if self._leaving == 0:
                    self._left.set()
            elif op.kind != ENTER:
                self.on_answer(op)
        self.on_answers_end()

    # Consumers.

    def _member(self, group: bytes, consumer: int) -> bytes:
        return b"%s:%s:%d" % (self.names.encode(group), self._instance.encode(), consumer)

    def _tell_of(self, kind: int, queue: bytes, members: list[bytes]) -> None:
        for at in range(0, len(members), MOST_IN_RUN):
            op = Op(kind, queue)
            op.groups = members[at : at + MOST_IN_RUN]
            if kind == LEAVE:
                self._leaving += 1
            self.run(op, 0)

    async def _sign_off(self) -> None:
        consumers, self._consumers = self._consumers, {}
        for queue, members in consumers.items():
            self._tell_of(LEAVE, queue, list(members))
        if self._leaving:
            self._left = trio.Event()
            await self._left.wait()

    # The status of queues.

    def _status(self, op: Op) -> None:
        if op.queues:
            self._ask(op, op.queues)
        else:
            assert self._nursery is not None
            self._nursery.start_soon(self._status_of_all, op)

    def _ask(self, op: Op, queues: list[bytes]) -> None:
        whole = _Whole(op, len(queues))
        parts: list[Op] = []
        tag = _Part(whole, parts)
        for queue in queues:
            part = Op(STATUS, queue)
            part.groups = op.groups
            part.tag = tag
            parts.append(part)
        for part in parts:
            self._submit(part)

    def _part(self, op: Op, part: _Part) -> None:
        whole = part.whole
        whole.left -= 1
        if whole.left:
            return
        asked = whole.op
        found: list[QueueStatus] = []
        for one in part.all:
            if one.error:
                asked.error = asked.error or one.error
            found += one.status
        if not asked.queues:
            found = [s for s in found if s.total or any(g.consumers for g in s.groups)]
        asked.status = [] if asked.error else found
        self.on_answer(asked)

    async def _status_of_all(self, op: Op) -> None:
        queues: set[bytes] = set()
        try:
            for location in await self._primaries():
                for suffix in ("m", "c"):
                    queues |= await self._scan(location, self.names.pattern(suffix))
        except (LinkLost, RedisError) as error:
            op.error = server_side(str(error))
            queues.clear()
        if queues:
            self._ask(op, sorted(queues))
        else:
            self.on_answer(op)
            self.on_answers_end()

    async def _primaries(self) -> list[TCPLocation]:
        if not self._routes.place.cluster:
            return [self._routes.place.first]
        for location in list(self._routes.known):
            try:
                await self._lanes[0].connect(location)
                rows = await self._lanes[0].link(location).command(b"CLUSTER", b"SLOTS")
            except LinkLost:
                continue
            assert isinstance(rows, list)
            found = {(bytes(row[2][0] or b"").decode(), int(row[2][1])) for row in rows}
            return [TCPLocation(host or location.host, port) for host, port in sorted(found)]
        raise LinkLost("no node of the cluster can be reached", False)

    async def _scan(self, location: TCPLocation, pattern: bytes) -> set[bytes]:
        await self._lanes[0].connect(location)
        link = self._lanes[0].link(location)
        queues: set[bytes] = set()
        cursor = b"0"
        while True:
            page = await link.command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 1000)
            assert isinstance(page, list)
            cursor = page[0]
            for key in page[1]:
                queue = self.names.queue_of(key)
                if queue is not None:
                    queues.add(queue)
            if cursor == b"0":
                return queues

    # Messages.

    async def _connect_to_listen(self) -> tuple[Link, BaseConnection]:
        """A connection of its own to any node, for messages."""
        assert self._nursery is not None
        failure = LinkLost("no Redis is known", False)
        for location in list(self._routes.known):

            async def open_(_: TCPLocation | None, there: TCPLocation = location) -> BaseConnection:
                return await self._routes.place.open(there)

            link = Link(self._nursery, open_)
            try:
                return link, await link.connected()
            except LinkLost as error:
                failure = error
        raise failure
