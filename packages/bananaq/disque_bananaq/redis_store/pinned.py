"""The connections that carry the requests; each serves a share of the queues.

Owns the order of requests, the requests in progress, and what happens to them when something fails.
A queue is pinned to one of the connections, and at most one call for a queue is in progress, so the
requests about it are executed in the order of their arrival. Requests that arrive during a call go
into the next one. Nothing is repeated that may have been executed.
"""

import re
from collections.abc import Callable

import trio

from disque_bananaq.core.requests import Add, QueueRequest
from disque_bananaq.core.results import Result
from disque_bananaq.redis_store.health import REFUSAL_CODES, Health
from disque_bananaq.redis_store.keys import KeyNames
from disque_bananaq.redis_store.lua import OPERATIONS
from disque_bananaq.redis_store.nodes import Nodes
from disque_bananaq.redis_store.wire import MOST_IN_RUN, Answer, Argument, Call, server_side
from disque_trio.histogram import NS
from disque_trio.notation.addresses import Address
from disque_trio.redis.connection import MOST_REDIRECTIONS, Command, RedisConnection
from disque_trio.redis.errors import RedisError, RedisUnavailable, redirection
from disque_trio.respclient.connection import Connection

MOST_BYTES = 1_000_000  # of bodies in one call
BACKOFF_SECONDS = 0.2  # after a failed attempt to connect, until the next one
_TRY_AGAIN = 100
_TRY_AGAIN_SECONDS = 0.05

# Errors of Redis that mean that nothing of a call was executed.
_NOT_EXECUTED = re.compile(
    rf"\b({REFUSAL_CODES}|WRONGTYPE|CROSSSLOT|MOVED|ASK|TRYAGAIN|NOSCRIPT)\b"
)
_KEYS = (b":m", b":ids", b":exp", b":body")
_MORE_KEYS = (b":own", b":names", b":c")
_GROUP_KEYS = (b":p", b":r", b":n", b":f")


class PinnedConnection:
    """A connection (one to each node of a cluster) for a share of the queues, with the requests
    about them that are waiting or in progress.

    Args:
        answer: called with requests and their results.
        failed: called with the node and the error of a call that failed.
        health: counts how long calls take, and connections that are made again.

    Attributes:
        waiting: the requests that are not in progress yet, by queue.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        nodes: Nodes,
        names: KeyNames,
        answer: Callable[[list[Answer]], None],
        failed: Callable[[Address, RedisUnavailable | RedisError], None],
        health: Health,
    ) -> None:
        self._nursery = nursery
        self._nodes = nodes
        self._names = names
        self._answer = answer
        self._failed = failed
        self._health = health
        self._links: dict[Address, RedisConnection] = {}
        self._reached: set[Address] = set()
        self._backoffs: dict[Address, tuple[float, RedisUnavailable]] = {}
        self._wake = trio.Event()
        self.waiting: dict[bytes, list[QueueRequest]] = {}

    def submit(self, request: QueueRequest) -> None:
        """Send the request soon."""
        requests = self.waiting.get(request.queue)
        if requests is None:
            self.waiting[request.queue] = [request]
            self._wake.set()
        else:
            requests.append(request)

    async def serve(self) -> None:
        """Send requests and pass on their results, until cancelled."""
        answered: list[Answer] = []
        while True:
            if answered and not (self.waiting and self._is_connected()):
                self._answer(answered)
                answered = []
            if not self.waiting:
                self._wake = trio.Event()
                await self._wake.wait()
            calls = self._take()
            began = trio.current_time()
            commands = [await self._send(call) for call in calls]
            # Redis works on these while the results of the previous ones are passed on.
            if answered:
                self._answer(answered)
            answered = []
            for call, sent in zip(calls, commands, strict=True):
                done, again = await self._finish(call, sent)
                self._health.calls.observe(round((trio.current_time() - began) * NS))
                if again:
                    self.waiting[call.queue] = again + self.waiting.get(call.queue, [])
                answered += done

    def _is_connected(self) -> bool:
        return bool(self._links) and all(link.usable for link in self._links.values())

    def _take(self) -> list[Call]:
        """Make a call for each queue that has requests."""
        waiting, self.waiting = self.waiting, {}
        calls = []
        for queue, requests in waiting.items():
            end = room = 0
            for request in requests:
                if isinstance(request, Add):
                    room += len(request.body)
                if end == MOST_IN_RUN or (end and room > MOST_BYTES):
                    self.waiting[queue] = requests[end:]
                    break
                end += 1
            calls.append(Call(queue, requests[:end], self._names, self.locate(queue)))
        return calls

    def link(self, node: Address) -> RedisConnection:
        """Return the link to a node."""
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = self._nodes.link(self._nursery, node)
        return link

    def locate(self, queue: bytes) -> Address:
        """Return the node that has the queue, or one that knows which node has it."""
        nodes = self._nodes
        if not nodes.cluster:
            return nodes.first
        return nodes.slots.get(self._names.slot(queue)) or nodes.known[0]

    async def connect(self, node: Address) -> Connection:
        """Return the connection to a node. Does not try a node that could not be reached just now.

        Raises:
            RedisUnavailable: the node cannot be reached.
        """
        link = self.link(node)
        again = not link.usable and node in self._reached
        if not link.usable:
            backoff = self._backoffs.get(node)
            if backoff is not None and trio.current_time() < backoff[0]:
                raise RedisUnavailable(str(backoff[1]), False, backoff[1].kind)
        try:
            connection = await link.connected()
            self._health.reconnects += again
            self._reached.add(node)
            return connection
        except RedisUnavailable as error:
            self._backoffs[node] = (trio.current_time() + BACKOFF_SECONDS, error)
            self._nodes.forget(node)
            raise

    async def _send(self, call: Call) -> Command | RedisUnavailable:
        """Send ``call``. Return a command whose reply can be awaited, or why it was not sent."""
        try:
            return self.link(call.node).post(
                await self.connect(call.node), *self._words(call, b"EVALSHA", OPERATIONS.sha)
            )
        except RedisUnavailable as error:
            return error

    def _words(self, call: Call, command: bytes, script: bytes) -> list[Argument]:
        """Return the command that runs the script for ``call``."""
        base = self._names.base(call.queue)
        keys = [base + suffix for suffix in _KEYS]
        if self._nodes.cluster:
            # Name all keys that the script may create, even if they do not exist: while a slot
            # moves to another node, Redis then refuses what would leave a queue on both nodes.
            keys += [base + suffix for suffix in _MORE_KEYS]
            for group in call.groups:
                keys += [base + b":g:" + group + suffix for suffix in _GROUP_KEYS]
        return [command, script, len(keys), *keys, *call.arguments]

    async def _finish(
        self, call: Call, sent: Command | RedisUnavailable
    ) -> tuple[list[Answer], list[QueueRequest]]:
        """Wait for the reply; see ``Call.decode``."""
        try:
            if isinstance(sent, RedisUnavailable):
                raise sent
            answers = await self._reply(call, sent)
            done, again = call.decode(answers, self._names)
            refused = next((result.error for _, result in done if result.error), "")
            if refused:  # by the script, which may have done part of its work
                self._failed(call.node, RedisError(refused.removeprefix(server_side(""))))
            return done, again
        except RedisUnavailable as error:
            self._failed(call.node, error)
            return _fail(call, str(error), error.maybe_executed), []
        except RedisError as error:
            self._failed(call.node, error)
            text = error.text if error.code == "WRONGTYPE" else str(error)
            return _fail(call, text, not _NOT_EXECUTED.search(error.text)), []
        except ValueError as error:
            return _fail(call, str(error), True), []

    async def _reply(self, call: Call, sent: Command) -> object:
        """Return the reply of the script, from whichever node has the queue now."""
        moves = tries = 0
        words: list[Argument] = []
        asking = False
        while True:
            try:
                with trio.CancelScope(shield=True):
                    return await self.link(call.node).reply(sent)
            except RedisError as error:
                if error.code == "NOSCRIPT":
                    # Nothing was executed. After EVAL the server has it, until it is restarted.
                    words = self._words(call, b"EVAL", OPERATIONS.source)
                elif error.code in ("MOVED", "ASK"):
                    moves += 1
                    asking = error.code == "ASK"
                    call.node = redirection(error, call.node)
                    if not asking:
                        self._nodes.learn(self._names.slot(call.queue), call.node)
                elif error.code == "TRYAGAIN" and tries < _TRY_AGAIN:
                    tries += 1
                    await trio.sleep(_TRY_AGAIN_SECONDS)
                else:
                    raise
            if moves > MOST_REDIRECTIONS:
                raise RedisUnavailable(
                    "the nodes of the cluster do not agree which of them serves the queue", False
                )
            words = words or self._words(call, b"EVALSHA", OPERATIONS.sha)
            connection = await self.connect(call.node)
            if asking:
                self.link(call.node).post(connection, b"ASKING")
            sent = self.link(call.node).post(connection, *words)


def _fail(call: Call, text: str, executed: bool) -> list[Answer]:
    failure = Result(error=server_side(text), unsure=executed)
    return [(request, failure) for request in call.requests]
