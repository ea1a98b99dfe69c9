"""The store that keeps events in a Redis or a Redis Cluster, shared with other daemons.

Owns what surrounds the connections: consumers and their signs of life, the status of many queues,
start and end. Any number of daemons can use one Redis without knowing of each other.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import cast

import trio

from disque_bananaq.core.requests import QueueRequest, Request, Status
from disque_bananaq.core.results import QueueStatus, Result
from disque_bananaq.core.store import Sections, Store
from disque_bananaq.redis_store.health import Fields, Health, Notice
from disque_bananaq.redis_store.keys import SLOTS, KeyNames
from disque_bananaq.redis_store.nodes import Nodes
from disque_bananaq.redis_store.pinned import PinnedConnection
from disque_bananaq.redis_store.probe import PROBE_SECONDS, Probe, primaries
from disque_bananaq.redis_store.watch import POLL_SECONDS, Watcher
from disque_bananaq.redis_store.wire import (
    MOST_IN_RUN,
    Answer,
    Enter,
    Leave,
    StatusOf,
    server_side,
)
from disque_trio.notation.addresses import Address
from disque_trio.redis.connection import RedisConnection
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.redis.servers import Options, Sentinels, Server
from disque_trio.respclient.connection import Connection, OnPush
from disque_trio.respclient.tls import TlsOption

HEARTBEAT_SECONDS = 10.0
_NO_OPTIONS = Options()
_CLOSE_SECONDS = 2.0


class _StatusParts:
    """A ``Status`` request, and what is known about its queues so far.

    Attributes:
        request: the request.
        of_all: whether it is about all queues.
        results: the results for its queues; None: not known yet.
        left: how many are not known yet.
    """

    __slots__ = ("left", "of_all", "request", "results")

    def __init__(self, request: Status, count: int) -> None:
        self.request = request
        self.of_all = not request.queues
        self.results: list[Result | None] = [None] * count
        self.left = count

    def whole(self) -> Result:
        """Return the result of the request, once all queues are known."""
        found: list[QueueStatus] = []
        for result in self.results:
            assert result is not None
            if result.error:
                return Result(error=result.error)
            found += result.queues
        if self.of_all:
            found = [s for s in found if s.total or any(g.consumers for g in s.groups)]
        return Result(queues=found)


class RedisStore(Store):
    """A ``Store`` in a Redis. Requests wait until ``run_forever`` runs.

    Args:
        server, port: where the Redis is; for a cluster, one of its nodes.
        db: the number of the database.
        username, password, tls: how to log in.
        service: the name of the Redis, as sentinels know it; ``server`` and ``others`` are then
            the sentinels.
        sentinels: how to log in to the sentinels.
        prefix: the prefix of all keys, without braces.
        pool_size: the number of connections for requests, 1 or more.
        others: more nodes of the cluster, to ask if the first one is not available.
        poll_seconds: how often to tell waiting clients to look, even if nothing was heard.
        reply_seconds: how long to wait for the reply to a call; None: ten seconds.
        probe_seconds: how often to probe the Redis.
        tell: called with lines for the log about the Redis.
        on_news: called by tasks of ``run_forever`` when there is something in ``answers`` or
            ``available``.

    Attributes:
        health: the health of the Redis.

    Raises:
        ValueError: the prefix or the pool size is invalid.
    """

    def __init__(  # noqa: PLR0913
        self,
        server: str = "127.0.0.1",
        port: int = 6379,
        *,
        db: int = 0,
        username: str | None = None,
        password: str | None = None,
        tls: TlsOption = None,
        service: str = "",
        sentinels: Options = _NO_OPTIONS,
        prefix: str = "bananaq",
        pool_size: int = 10,
        cluster: bool = False,
        poll_seconds: float = POLL_SECONDS,
        others: Sequence[tuple[str, int]] = (),
        reply_seconds: float | None = None,
        probe_seconds: float = PROBE_SECONDS,
        tell: Callable[[list[Notice]], None] = lambda lines: None,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        if pool_size < 1:
            raise ValueError("at least one connection to Redis is needed")
        super().__init__()
        self.names = KeyNames(prefix)
        # Nodes of a cluster have no database but 0.
        options = Options(0 if cluster else db, username, password, tls=tls)
        places = tuple(Address(*place) for place in ((server, port), *others))
        asked = tuple(Server((place,), sentinels) for place in places)
        self._nodes = Nodes(
            Address(service) if service else places[0],
            options,
            cluster=cluster,
            others=places[1:] if cluster else (),
            seconds=reply_seconds,
            sentinels=Sentinels(asked, service, options) if service else None,
        )
        self.health = Health()
        self._probe_seconds = probe_seconds
        self._tell = tell
        self._on_news = on_news
        self._watcher = Watcher(self.names, self._heard, poll_seconds)
        self._pool_size = pool_size
        self._pool: list[PinnedConnection] = []
        self._early: list[Request] = []
        self._parts: dict[QueueRequest, tuple[_StatusParts, int]] = {}
        self._nursery: trio.Nursery | None = None
        self._closed = False
        self._instance = secrets.token_hex(8)
        self._consumers: dict[bytes, set[bytes]] = {}
        self._leaving = 0
        self._left = trio.Event()

    def run(self, request: Request, now: int) -> Result | None:
        """See ``Store``. Ignores ``now``, since Redis has its own clock."""
        if self._closed:
            return Result(error=server_side("the store is closed"))
        if self._nursery is None:
            self._early.append(request)
        elif isinstance(request, Status):
            self._status(request)
        else:
            assert isinstance(request, QueueRequest)
            self._submit(request)
        return None

    def watch(self, queue: bytes, group: bytes) -> None:
        """See ``Store``. The queue gets into ``available`` once the subscription is active."""
        self._watcher.watch(queue, group)

    def unwatch(self, queue: bytes, group: bytes) -> None:
        """See ``Store``."""
        self._watcher.unwatch(queue, group)

    def enter(self, queue: bytes, group: bytes, consumer: int) -> None:
        """See ``Store``."""
        member = self._member(group, consumer)
        self._consumers.setdefault(queue, set()).add(member)
        self._tell_of(Enter, queue, [member])

    def leave(self, queue: bytes, group: bytes, consumer: int) -> None:
        """See ``Store``."""
        member = self._member(group, consumer)
        members = self._consumers.get(queue, set())
        members.discard(member)
        if not members:
            self._consumers.pop(queue, None)
        self._tell_of(Leave, queue, [member])

    def sections(self) -> Sections:
        """See ``Store``. The host fills in the section about the Redis."""
        return {"events": {"store": "redis"}, "redis": {}}

    def info(self) -> Fields:
        """Return the fields of INFO about the Redis, without asking it."""
        return self.health.info(trio.current_time())

    async def run_forever(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run until cancelled. The Redis need not be reachable at the start. Can be run once."""
        ended = trio.Event()
        async with trio.open_nursery() as outer:
            # The connections outlive the cancellation, since consumers are signed off over them.
            await outer.start(self._keep_connections, ended)
            task_status.started()
            try:
                while True:
                    await trio.sleep(HEARTBEAT_SECONDS)
                    for queue, members in self._consumers.items():
                        self._tell_of(Enter, queue, list(members))
            finally:
                with trio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await self._sign_off()
                self._closed = True
                ended.set()

    async def _keep_connections(
        self,
        ended: trio.Event,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                probe = Probe(nursery, self._nodes, self.names, self.health, self._log)
                nursery.start_soon(probe.run, self._probe_seconds)
                for _ in range(self._pool_size):
                    connection = PinnedConnection(
                        nursery, self._nodes, self.names, self._answered, probe.failed, self.health
                    )
                    self._pool.append(connection)
                    nursery.start_soon(connection.serve)
                nursery.start_soon(self._watcher.run, self._connect_to_listen)
                task_status.started()
                early, self._early = self._early, []
                for request in early:
                    self.run(request, 0)
                await ended.wait()
                nursery.cancel_scope.cancel()

    def _submit(self, request: QueueRequest) -> None:
        pool = self._pool
        if self._nodes.cluster:
            # Neighbouring slots are usually on the same node. So if that hangs, only some of the
            # connections hang with it.
            number = self.names.slot(request.queue) * len(pool) // SLOTS
        else:
            number = hash(request.queue) % len(pool)
        pool[number].submit(request)

    def _answered(self, answers: list[Answer]) -> None:
        for request, result in answers:
            if result.error:
                text = result.error.removeprefix(server_side(""))
                self.health.count_error(trio.current_time(), text)
            if isinstance(request, StatusOf):
                self._answered_part(request, result)
            elif isinstance(request, Leave):
                self._leaving -= 1
                if self._leaving == 0:
                    self._left.set()
            elif not isinstance(request, Enter):
                self.answers.append((request, result))
        self._on_news()

    def _heard(self, queue: bytes, group: bytes | None) -> None:
        """Note that there may be an event. Since this may be called within a turn, ``on_news`` is
        called after it."""
        self.available.append((queue, group))
        trio.lowlevel.current_trio_token().run_sync_soon(self._on_news, idempotent=True)

    def _log(self, lines: list[Notice]) -> None:
        if not self._closed:  # closing breaks the connections, which is not a failure of the Redis
            self._tell(lines)

    # Consumers.

    def _member(self, group: bytes, consumer: int) -> bytes:
        return b"%s:%s:%d" % (self.names.encode(group), self._instance.encode(), consumer)

    def _tell_of(self, kind: type[Enter] | type[Leave], queue: bytes, members: list[bytes]) -> None:
        for at in range(0, len(members), MOST_IN_RUN):
            if kind is Leave:
                self._leaving += 1
            self.run(kind(queue, members[at : at + MOST_IN_RUN]), 0)

    async def _sign_off(self) -> None:
        consumers, self._consumers = self._consumers, {}
        for queue, members in consumers.items():
            self._tell_of(Leave, queue, list(members))
        if self._leaving:
            self._left = trio.Event()
            await self._left.wait()

    # The status of queues.

    def _status(self, request: Status) -> None:
        if request.queues:
            self._ask(request, request.queues)
        else:
            assert self._nursery is not None
            self._nursery.start_soon(self._status_of_all, request)

    def _ask(self, request: Status, queues: list[bytes]) -> None:
        parts = _StatusParts(request, len(queues))
        for number, queue in enumerate(queues):
            part = StatusOf(queue, request.groups)
            self._parts[part] = (parts, number)
            self._submit(part)

    def _answered_part(self, part: StatusOf, result: Result) -> None:
        parts, number = self._parts.pop(part)
        parts.results[number] = result
        parts.left -= 1
        if parts.left == 0:
            self.answers.append((parts.request, parts.whole()))

    async def _status_of_all(self, request: Status) -> None:
        queues: set[bytes] = set()
        result = Result()
        try:
            for node in await self._primaries():
                for suffix in ("m", "c"):
                    queues |= await self._scan(node, self.names.pattern(suffix))
        except (RedisUnavailable, RedisError) as error:
            result = Result(error=server_side(str(error)))
            queues.clear()
        if queues:
            self._ask(request, sorted(queues))
        else:
            self.answers.append((request, result))
            self._on_news()

    async def _primaries(self) -> list[Address]:
        if not self._nodes.cluster:
            return [self._nodes.first]
        for node in list(self._nodes.known):
            try:
                await self._pool[0].connect(node)
                rows = await self._pool[0].link(node).command(b"CLUSTER", b"SLOTS")
            except RedisUnavailable:
                continue
            return list(primaries(rows, node))
        raise RedisUnavailable("no node of the cluster can be reached", False)

    async def _scan(self, node: Address, pattern: bytes) -> set[bytes]:
        await self._pool[0].connect(node)
        link = self._pool[0].link(node)
        queues: set[bytes] = set()
        cursor = b"0"
        while True:
            page = await link.command(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", 1000)
            cursor, keys = cast("tuple[bytes, list[bytes]]", page)
            for key in keys:
                queue = self.names.queue_of(key)
                if queue is not None:
                    queues.add(queue)
            if cursor == b"0":
                return queues

    # Messages.

    async def _connect_to_listen(self, on_push: OnPush) -> tuple[RedisConnection, Connection]:
        """Open a separate connection to any node, for messages."""
        assert self._nursery is not None
        failure = RedisUnavailable("no Redis is known", False)
        for node in list(self._nodes.known):
            link = self._nodes.link(self._nursery, node, on_push)
            try:
                return link, await link.connected()
            except RedisUnavailable as error:
                failure = error
        raise failure
