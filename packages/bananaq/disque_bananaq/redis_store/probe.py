"""Checks the health of the Redis once a second.

Owns connections of its own, one to each node, so that it neither waits for operations nor holds
them up. It tests what events need, which is permission to write. Its command adds nothing, and so
reaches neither replicas nor the append-only file.
"""

from collections.abc import Callable
from typing import Any, cast

import trio

from disque_bananaq.redis_store.health import REFUSALS, REFUSING, Health, Notice
from disque_bananaq.redis_store.keys import SLOTS, KeyNames
from disque_bananaq.redis_store.nodes import Nodes
from disque_trio.notation.addresses import Address
from disque_trio.redis.connection import RedisConnection
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Connection, Reply

PROBE_SECONDS = 1.0
HUNG_SECONDS = 3.0
"""Seconds without a reply after which a node is hung."""

Slots = tuple[int, int]


class Probe:
    """Probes the nodes, keeps ``health`` up to date, and passes lines for the log to ``tell``.

    Its connections live in ``nursery``.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        nodes: Nodes,
        names: KeyNames,
        health: Health,
        tell: Callable[[list[Notice]], None],
    ) -> None:
        self._nursery = nursery
        self._nodes = nodes
        self._names = names
        self._health = health
        self._tell = tell
        self._links: dict[Address, RedisConnection] = {}
        self._known: dict[Address, Connection] = {}  # over which a node gave the id of its process

    async def run(self, seconds: float = PROBE_SECONDS) -> None:
        """Probe all nodes, pausing for ``seconds`` in between, until cancelled."""
        while True:
            nodes = await self._found()
            async with trio.open_nursery() as nursery:
                for node, slots in nodes.items():
                    nursery.start_soon(self._ask, node, slots)
            await trio.sleep(seconds)

    async def _found(self) -> dict[Address, Slots]:
        """Return all nodes that serve slots, each with some slots; empty if none could be asked."""
        if not self._nodes.cluster:
            return {self._nodes.first: (0, SLOTS - 1)}
        failures: dict[Address, RedisUnavailable | RedisError] = {}
        for node in list(self._nodes.known):
            try:
                link = self._link(node)
                rows = await self._reply(link, await self._connected(link), b"CLUSTER", b"SLOTS")
            except (RedisUnavailable, RedisError) as error:
                failures[node] = error
                continue
            nodes = primaries(rows, node)
            self._health.only([str(node) for node in nodes])
            for gone in self._links.keys() - nodes.keys() - {node}:
                self._links.pop(gone).drop()
                self._known.pop(gone, None)
            return nodes
        for node, failure in failures.items():
            self.failed(node, failure)
        return {}

    async def _ask(self, node: Address, slots: Slots) -> None:
        """Find out the state of ``node``, which serves ``slots``."""
        link = self._link(node)
        try:
            # Use one connection throughout: another one may lead to another process.
            connection = await self._connected(link)
            # This also reports LOADING. A server that refuses us these numbers may be healthy
            # nevertheless.
            keys = await self._try(link, connection, b"DBSIZE")
            new = self._known.get(node) is not connection
            server = await self._try(link, connection, b"INFO", b"server") if new else None
            key = self._names.of_no_queue(*slots)
            began = trio.current_time()
            try:
                await self._reply(link, connection, b"ZADD", key, b"XX", 0, b"x")
            except RedisError as error:
                if error.code not in ("ASK", "MOVED"):
                    raise
                # The slot has just moved to another node, so this one is fine.
        except (RedisUnavailable, RedisError) as error:
            self.failed(node, error)
            return
        self._known[node] = connection
        now = trio.current_time()
        count = keys if isinstance(keys, int) else -1
        self._tell(self._health.replied(str(node), now, now - began, count, _run_id(server)))

    def failed(self, node: Address, error: RedisUnavailable | RedisError) -> None:
        """Report a failed command to the node, of the probe or of an operation."""
        status = error.kind if isinstance(error, RedisUnavailable) else refusal(error)
        if status:
            now = trio.current_time()
            self._tell(self._health.failed(str(node), now, status, str(error)))

    def _link(self, node: Address) -> RedisConnection:
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = self._nodes.link(self._nursery, node)
        return link

    async def _connected(self, link: RedisConnection) -> Connection:
        return await link.connected_before(trio.current_time() + HUNG_SECONDS)

    async def _reply(
        self, link: RedisConnection, connection: Connection, *words: Argument
    ) -> Reply:
        """Return this node's reply, wherever the key is. Raises as ``RedisConnection.reply``."""
        return await link.reply(link.post(connection, *words, seconds=HUNG_SECONDS))

    async def _try(self, link: RedisConnection, connection: Connection, *words: Argument) -> Reply:
        """Like ``_reply``, but None if the server does not allow or know the command."""
        try:
            return await self._reply(link, connection, *words)
        except RedisError as error:
            if refusal(error) and error.code != "NOPERM":
                raise
            return None


def primaries(rows: Reply, asked: Address) -> dict[Address, Slots]:
    """Return the nodes that serve slots, each with some of them, from the reply of ``asked``."""
    nodes: dict[Address, Slots] = {}
    table = cast("list[tuple[int, int, list[Any]]]", rows)
    for low, high, node, *_ in sorted(table, key=lambda row: row[0]):
        host = (node[0] or b"").decode() or asked.host
        nodes.setdefault(Address(host, node[1]), (low, high))
    return nodes


def refusal(error: RedisError) -> str:
    """Return ``REFUSING`` if the error is about the server, not the command; else an empty text."""
    return REFUSING if REFUSALS.search(error.text) else ""


def _run_id(info: Reply) -> str:
    """Return the id of the process from its reply to INFO."""
    text = info.decode(errors="replace") if isinstance(info, bytes) else str(info or "")
    lines = dict(line.partition(":")[::2] for line in text.splitlines())
    return lines.get("run_id", "")
