"""The way of operations to Redis: a lane for each part of the queues.

Owns the order of operations, what is under way, and what becomes of it when something goes wrong.
All operations of one queue go through one lane, and at most one call for a queue is under way, so
they are done in the order in which they came. What comes in while calls are under way makes up the
next ones. Nothing is repeated that may have been executed.
"""

import re
from collections.abc import Callable
from functools import partial

import trio
from coredis.connection import BaseConnection, TCPConnection, TCPLocation
from coredis.connection._request import Request
from coredis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterCrossSlotError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    RedisError,
    TryAgainError,
    WrongTypeError,
)

from disque_trio.bananaq.core.ops import Op
from disque_trio.bananaq.lua import OPERATIONS
from disque_trio.bananaq.redis_keys import KeyNames
from disque_trio.bananaq.redis_wire import MOST_IN_RUN, Argument, Batch, server_side
from disque_trio.redis_link import CONNECT_SECONDS, MOST_REDIRECTIONS, Link, LinkLost

MOST_BYTES = 1_000_000  # of bodies in one call
REST_SECONDS = 0.2  # after an attempt to connect that failed nothing is tried for so long
_TRY_AGAIN = 100
_TRY_AGAIN_SECONDS = 0.05

# Errors of Redis after which nothing of a call was executed.
_NOT_EXECUTED = re.compile(
    r"\b(WRONGTYPE|OOM|NOAUTH|WRONGPASS|NOPERM|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|MISCONF|BUSY"
    r"|NOREPLICAS|CROSSSLOT|MOVED|ASK|TRYAGAIN|NOSCRIPT)\b"
)
_PLAIN = (
    NoScriptError, ClusterDownError, AuthorizationError, AuthenticationError, TryAgainError,
    ClusterCrossSlotError, WrongTypeError,
)  # fmt: skip
_KEYS = (b":m", b":ids", b":exp", b":body")
_MORE_KEYS = (b":own", b":names", b":c")
_GROUP_KEYS = (b":p", b":r", b":n", b":f")


class Place:
    """Where and how to connect.

    Attributes:
        first: the node that is asked first. db: number of the database. username, password: or
            None. cluster: whether it is a cluster.
    """

    __slots__ = ("cluster", "db", "first", "password", "username")

    def __init__(
        self,
        server: str,
        port: int,
        db: int,
        username: str | None,
        password: str | None,
        cluster: bool,
    ) -> None:
        self.first = TCPLocation(server, port)
        self.db = db
        self.username = username
        self.password = password
        self.cluster = cluster

    async def open(self, location: TCPLocation, _: TCPLocation | None = None) -> BaseConnection:
        """A connection that does not run yet."""
        return TCPConnection(
            location,
            db=None if self.cluster else self.db,
            username=self.username,
            password=self.password,
            connect_timeout=CONNECT_SECONDS,
        )


class Routes:
    """Which node of a cluster has what, as far as it was learned; shared by all lanes."""

    __slots__ = ("known", "place", "slots")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.known = [place.first]
        self.slots: dict[int, TCPLocation] = {}

    def learn(self, slot: int, location: TCPLocation) -> None:
        """The node at `location` serves `slot`."""
        self.slots[slot] = location
        if location not in self.known:
            self.known.append(location)

    def forget(self, location: TCPLocation) -> None:
        """The node cannot be reached: others are asked about its slots."""
        for slot in [slot for slot, there in self.slots.items() if there == location]:
            del self.slots[slot]
        if location in self.known:
            self.known.remove(location)
            self.known.append(location)


class Lane:
    """One connection (to each node), and the operations that wait for it or are under way.

    Attributes:
        waiting: operations that are not under way yet, by queue.
    """

    __slots__ = (
        "_answer", "_links", "_names", "_nursery", "_rests", "_routes", "_wake", "waiting"
    )  # fmt: skip

    def __init__(
        self,
        nursery: trio.Nursery,
        routes: Routes,
        names: KeyNames,
        answer: Callable[[list[Op]], None],
    ) -> None:
        self._nursery = nursery
        self._routes = routes
        self._names = names
        self._answer = answer
        self._links: dict[TCPLocation, Link] = {}
        self._rests: dict[TCPLocation, tuple[float, str]] = {}
        self._wake = trio.Event()
        self.waiting: dict[bytes, list[Op]] = {}

    def submit(self, op: Op) -> None:
        """Send the operation soon."""
        ops = self.waiting.get(op.queue)
        if ops is None:
            self.waiting[op.queue] = [op]
            self._wake.set()
        else:
            ops.append(op)

    async def serve(self) -> None:
        """Send operations and hand out their answers, until cancelled."""
        answered: list[Op] = []
        while True:
            if answered and not (self.waiting and self._is_connected()):
                self._answer(answered)
                answered = []
            if not self.waiting:
                self._wake = trio.Event()
                await self._wake.wait()
            flight = self._take()
            calls = [await self._send(batch) for batch in flight]
            # Redis works on these while those before are dealt with.
            if answered:
                self._answer(answered)
            answered = []
            for batch, call in zip(flight, calls, strict=True):
                again = await self._finish(batch, call)
                if again:
                    self.waiting[batch.queue] = again + self.waiting.get(batch.queue, [])
                    left = {id(op) for op in again}
                    answered += [op for op in batch.ops if id(op) not in left]
                else:
                    answered += batch.ops

    def _is_connected(self) -> bool:
        return bool(self._links) and all(link.usable for link in self._links.values())

    def _take(self) -> list[Batch]:
        """A call for each queue that has operations."""
        waiting, self.waiting = self.waiting, {}
        flight = []
        for queue, ops in waiting.items():
            end = room = 0
            for op in ops:
                room += len(op.body)
                if end == MOST_IN_RUN or (end and room > MOST_BYTES):
                    self.waiting[queue] = ops[end:]
                    break
                end += 1
            flight.append(Batch(queue, ops[:end], self._names))
        return flight

    def link(self, location: TCPLocation) -> Link:
        """The link to a node."""
        link = self._links.get(location)
        if link is None:
            link = Link(self._nursery, partial(self._routes.place.open, location))
            self._links[location] = link
        return link

    def locate(self, queue: bytes) -> TCPLocation:
        """The node that has the queue, or one that knows which it is."""
        routes = self._routes
        if not routes.place.cluster:
            return routes.place.first
        return routes.slots.get(self._names.slot(queue)) or routes.known[0]

    async def connect(self, location: TCPLocation) -> BaseConnection:
        """The connection to a node; a node that could not be reached just now is not tried.

        Raises:
            LinkLost: it cannot be reached.
        """
        link = self.link(location)
        if not link.usable:
            until, reason = self._rests.get(location, (0.0, ""))
            if trio.current_time() < until:
                raise LinkLost(reason, False)
        try:
            return await link.connected()
        except LinkLost as error:
            self._rests[location] = (trio.current_time() + REST_SECONDS, str(error))
            self._routes.forget(location)
            raise

    async def _send(self, batch: Batch) -> "Request | LinkLost":
        try:
            location = self.locate(batch.queue)
            return self.link(location).post(
                await self.connect(location), *self._words(batch, b"EVALSHA", OPERATIONS.sha)
            )
        except LinkLost as error:
            return error

    def _words(self, batch: Batch, command: bytes, script: bytes) -> list[Argument]:
        base = self._names.base(batch.queue)
        keys = [base + suffix for suffix in _KEYS]
        if self._routes.place.cluster:
            # All that the script may make, also if it is not there: while a slot moves to another
            # node, Redis lets nothing happen then that would leave a queue on both.
            keys += [base + suffix for suffix in _MORE_KEYS]
            for group in batch.groups:
                keys += [base + b":g:" + group + suffix for suffix in _GROUP_KEYS]
        return [command, script, len(keys), *keys, *batch.arguments]

    async def _finish(self, batch: Batch, call: "Request | LinkLost") -> list[Op]:
        """Wait for the answer and take it; operations that have to be asked for again."""
        try:
            if isinstance(call, LinkLost):
                raise call
            answers = await self._reply(batch, call)
            return batch.decode(answers, self._names)
        except LinkLost as error:
            _fail(batch, str(error), error.maybe_executed)
        except RedisError as error:
            text = str(error)
            if isinstance(error, WrongTypeError) and "WRONGTYPE" not in text:
                text = f"WRONGTYPE {text}"
            executed = not isinstance(error, _PLAIN) and not _NOT_EXECUTED.search(text)
            _fail(batch, text, executed)
        except ValueError as error:
            _fail(batch, str(error), True)
        return []

    async def _reply(self, batch: Batch, call: Request) -> object:
        """The answer of the script, from wherever the queue is now."""
        location = self.locate(batch.queue)
        moves = tries = 0
        words: list[Argument] = []
        asking = False
        while True:
            try:
                with trio.CancelScope(shield=True):
                    return await self.link(location).reply(call)
            except NoScriptError:
                # Nothing was executed. The server has it from now on, until it is restarted.
                words = self._words(batch, b"EVAL", OPERATIONS.source)
            except MovedError as error:
                moves += 1
                location = TCPLocation(error.host or location.host, error.port)
                self._routes.learn(self._names.slot(batch.queue), location)
                asking = False
            except AskError as error:
                moves += 1
                location = TCPLocation(error.host or location.host, error.port)
                asking = True
            except TryAgainError:
                tries += 1
                if tries > _TRY_AGAIN:
                    raise
                await trio.sleep(_TRY_AGAIN_SECONDS)
            if moves > MOST_REDIRECTIONS:
                raise LinkLost("the nodes of the cluster do not agree who serves the queue", False)
            words = words or self._words(batch, b"EVALSHA", OPERATIONS.sha)
            connection = await self.connect(location)
            if asking:
                self.link(location).post(connection, b"ASKING")
            call = self.link(location).post(connection, *words)


def _fail(batch: Batch, text: str, executed: bool) -> None:
    for op in batch.ops:
        op.error = server_side(text)
        op.unsure = executed
