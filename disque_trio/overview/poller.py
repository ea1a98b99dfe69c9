"""Polls the nodes for their state and that of their queues."""

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import trio

from disque_trio.client import replies
from disque_trio.client.nodes import parse_hello, parse_told
from disque_trio.notation.addresses import Address
from disque_trio.overview.census import take
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.looks import Looks
from disque_trio.overview.names import to_bytes
from disque_trio.overview.policies import Policies
from disque_trio.overview.progress_walk import follow
from disque_trio.overview.scheduler import HOT, PollScheduler
from disque_trio.process.logs import Log
from disque_trio.respclient.connection import Connection, Connector, Reply
from disque_trio.respclient.errors import (
    ConnectionLost,
    DisqueError,
    NoPermError,
    ProtocolError,
    first_of,
)
from disque_trio.respclient.login import Login
from disque_trio.respclient.values import as_text, text

EACH: Final = 2.0  # s between two polls of a node, by default
FULL_EACH: Final = 5.0  # s between two QSTAT FULL, which visit all jobs, of the queues in view
FULL_SHARE: Final = 20.0  # they take at most one part in this many of a node's time
NAMES_EACH: Final = 10.0  # s between two reads of the list of queues, if there are many
MANY: Final = 2_000  # queues
PATIENCE: Final = 5.0  # s to wait for a reply; visiting all jobs of a node may take longer
FULL_PATIENCE: Final = 30.0
AGAIN: Final = (0.5, 1.0, 2.0, 5.0)  # s between attempts to reach a node
SLICE: Final = 200  # commands sent at once
SHORTEST_TIMEOUT: Final = 1.0  # s of silence before a node closes a connection (``timeout``)


class Poller:
    """Keeps the state of the cluster up to date.

    Args:
        cluster: the state to keep up to date.
        seeds: nodes to begin with; HELLO reports the others.
        login: for all nodes.
        looks: the queues that somebody is looking at.
        log: for nodes that become reachable or unreachable, or None.
        each: s between two polls of a node.

    Attributes:
        news: set, and replaced, after each poll of a node.
    """

    def __init__(
        self,
        cluster: Cluster,
        seeds: Iterable[Address],
        login: Login,
        looks: Looks,
        log: Log | None = None,
        each: float = EACH,
    ) -> None:
        self.cluster = cluster
        self.looks = looks
        self.each = each
        self.news = trio.Event()
        self._seeds = {str(seed) for seed in seeds}
        self._login = login
        self._log = log
        self._tasks: dict[str, trio.CancelScope] = {}
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Poll forever."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            connector = Connector(nursery, self._login, PATIENCE)
            for seed in sorted(self._seeds):
                self._begin(connector, seed)
            while True:
                await trio.sleep(self.each)
                self.cluster.sample(time.time())

    def _begin(self, connector: Connector, address: str) -> None:
        self.cluster.nodes.meet(address, time.time())
        if address not in self._tasks:
            scope = self._tasks[address] = trio.CancelScope()
            self._nursery.start_soon(self._follow, connector, address, scope)

    async def _follow(self, connector: Connector, address: str, scope: trio.CancelScope) -> None:
        """Poll one node for as long as it belongs to the cluster."""
        failures = 0
        try:
            with scope:
                while True:
                    visit = _Visit(self, connector, address)
                    try:
                        await visit.stay()
                    except DisqueError as error:
                        failures = 0 if visit.answered else failures + 1
                        if self._log is not None and (visit.answered or failures == 1):
                            self._log.warning("node unreachable", node=address, why=str(error))
                        if self.cluster.nodes.get(address) is not None:  # it was not forgotten
                            self.cluster.lost(address, str(error), time.time())
                        self.tell()
                    await trio.sleep(AGAIN[min(failures, len(AGAIN) - 1)])
        finally:
            self._tasks.pop(address, None)
            if scope.cancel_called:
                self.cluster.forget(address)

    def tell(self) -> None:
        """Wake up whoever waits for news."""
        self.news.set()
        self.news = trio.Event()

    def responded(self, connection: Connection, hello: Reply) -> None:
        """Take a node's reply to HELLO on a new connection.

        Raises:
            ProtocolError: it is not a Disque node.
            ConnectionLost: it is not the one that is meant.
        """
        told = parse_hello(hello, connection.address)
        if _is_sibling(hello, connection.address):
            raise ConnectionLost("another process of its server answers there")
        address, now = str(connection.address), time.time()
        twin = self.cluster.nodes.by_id(told.node_id)
        if twin is not None and twin.here and twin.address != address:
            # The same node at two addresses: keep the one given on the command line.
            leaves = (
                address
                if address not in self._seeds or twin.address in self._seeds
                else twin.address
            )
            self._leave(leaves)
            if leaves == address:
                return
        known = self.cluster.nodes.get(address)
        if self._log is not None and not (known and known.here):
            self._log.verbose("node reachable", node=address, id=told.node_id)
        self.cluster.nodes.responded(address, told.node_id, now)

    def take_members(self, connector: Connector, connection: Connection, hello: Reply) -> None:
        """Take the nodes listed in a reply to HELLO."""
        told = parse_hello(hello, connection.address)
        for node in told.nodes:
            known = self.cluster.nodes.by_id(node.id)
            if known is None or not known.here:
                address = str(node.address)
                if known is None or known.address != address:
                    self._begin(connector, address)
        self.cluster.knows(str(connection.address), {node.id for node in told.nodes})
        for address in self.cluster.strangers(()):
            if address in self._seeds:
                self.cluster.forget(address)  # but keep trying: it may return
            else:
                self._leave(address)

    def _leave(self, address: str) -> None:
        # Its task forgets it when it ends: until then, replies may arrive.
        if scope := self._tasks.get(address):
            scope.cancel()


class _Visit:
    """Polls one node for as long as it answers.

    Attributes:
        answered: whether it has answered.
    """

    def __init__(self, poller: Poller, connector: Connector, address: str) -> None:
        self.answered = False
        self._poller = poller
        self._cluster = poller.cluster
        self._looks = poller.looks
        self._connector = connector
        self._address = address
        self._each = poller.each
        self._scheduler = PollScheduler(min(HOT, self._each))
        self._refused = ""
        self._connection: Connection
        self._names_at = self._policies_at = -1e9

    async def stay(self) -> None:
        """Poll until the node does not answer. Raises DisqueError."""
        try:
            while True:
                async with self._open() as self._connection:
                    await self._poll()
        except* DisqueError as group:
            failure = first_of(group)
        # Not in the block above: Python 3.11.2, which Debian 12 has, wraps it in a group there.
        raise failure

    async def _poll(self) -> None:
        """Poll on one connection until the node closes it. Raises DisqueError."""
        [hello] = await self._ask([("HELLO",)])
        self._poller.responded(self._connection, _good(hello))
        self.answered = True
        silent_since = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_closely)
            nursery.start_soon(take, self._open, self._address, self._looks, self._cluster.queues)
            running = self._cluster.running
            nursery.start_soon(follow, self._open, self._address, self._looks, running)
            while not self._connection.closed:
                await self._look()
                silent_since = trio.current_time()
                with trio.move_on_after(self._each):
                    await self._connection.ended.wait()
            nursery.cancel_scope.cancel()
        if trio.current_time() - silent_since < SHORTEST_TIMEOUT:
            raise ConnectionLost("the node closed the connection")

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Connection]:
        """A new connection, closed after the block. Raises DisqueError.

        What takes long, such as visiting all jobs, gets one each time: the rest must not wait for
        it, and a node with ``timeout`` closes connections that are silent.
        """
        connection = await self._connector.open(parse_told(self._address))
        try:
            yield connection
        finally:
            connection.close()

    async def _look(self) -> None:
        self._refused = ""
        hello, info, lines = await self._ask([("HELLO",), ("INFO",), ("CLUSTER", "NODES")])
        self._poller.take_members(self._connector, self._connection, _good(hello))
        now = time.time()
        told = replies.info(info) if not isinstance(info, DisqueError) else {}
        self._cluster.take(
            self._address, told, "" if isinstance(lines, DisqueError) else text(lines), now
        )
        started = trio.current_time()
        if started - self._policies_at >= self._each:
            self._policies_at = started
            [policies] = await self._ask([("QGET",)])
            if isinstance(policies, list) and self._address not in self._cluster.nodes.apart:
                self._cluster.policies = Policies.read(policies)
        if started - self._names_at >= (NAMES_EACH if len(self._scheduler) > MANY else self._each):
            self._names_at = started
            await self._read_names()
        chosen = self._scheduler.next(trio.current_time(), self._looks.names(time.time()))
        for begin in range(0, len(chosen), SLICE):
            await self._ask_of(chosen[begin : begin + SLICE])
        self._cluster.nodes.looked(
            self._address, self._scheduler.complete, self._refused, time.time()
        )
        self._poller.tell()

    async def _read_names(self) -> None:
        names: set[str] = set()
        cursor: Reply = b"0"
        while True:
            [reply] = await self._ask([("QSCAN", _bytes(cursor), "COUNT", 1_000)])
            if isinstance(reply, DisqueError):
                return
            cursor, page = replies.page(reply)
            names.update(as_text(name) for name in page if isinstance(name, bytes))
            if cursor == b"0":
                break
        self._scheduler.known(names)
        self._cluster.queues.listed(self._address, names, time.time())

    async def _ask_of(self, names: Sequence[str]) -> None:
        asked = time.time()
        answers = await self._ask([("QSTAT", to_bytes(name)) for name in names])
        self._take(names, answers, asked)

    def _take(self, names: Sequence[str], answers: Sequence[Reply], asked: float) -> None:
        now = time.time()
        for name, reply in zip(names, answers, strict=True):
            if isinstance(reply, list):
                fields: dict[bytes, Any] = dict(zip(reply[::2], reply[1::2], strict=False))  # type: ignore[arg-type]
                changed = self._cluster.queues.take(self._address, name, fields, now, asked)
                self._scheduler.answered(name, changed, trio.current_time())
            elif reply is None:
                self._scheduler.forget(name)
                self._cluster.queues.gone(self._address, name)
            else:
                # Refused: count it as asked.
                self._scheduler.answered(name, False, trio.current_time())

    async def _look_closely(self) -> None:
        """Send QSTAT FULL for the queues that somebody is looking at. Whether the node is
        reachable is for ``_look`` to find out."""
        looks = self._looks
        while True:
            asked = time.time()
            names = looks.names(asked)
            round = looks.round
            if not names:
                await looks.wait(round)
                continue
            begun = trio.current_time()
            with suppress(DisqueError), trio.move_on_after(FULL_PATIENCE):
                async with self._open() as connection:
                    commands = [("QSTAT", to_bytes(name), "FULL") for name in names]
                    self._take(names, _alive(await connection.execute_many(commands)), asked)
                looks.reported(self._address, round)
            took = trio.current_time() - begun
            with trio.move_on_after(max(FULL_EACH, FULL_SHARE * took)):
                await looks.wait(round)

    async def _ask(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        """Raises ConnectionLost."""
        with trio.move_on_after(PATIENCE):
            answers = _alive(await self._connection.execute_many(commands))
            refused = (str(answer) for answer in answers if isinstance(answer, NoPermError))
            self._refused = self._refused or next(refused, "")
            return answers
        raise ConnectionLost(f"no reply within {PATIENCE:g} s")


def _is_sibling(hello: Any, used: Address) -> bool:
    """Whether not the process that has the address ``used`` for its own has replied, but another
    one, since it serves the port of the first as well."""
    _, id, *entries = hello
    own = [(ip, int(port)) for node, ip, port, _ in entries if node == id]
    others = [(ip, int(port)) for node, ip, port, _ in entries if node != id]
    return any((ip, used.port) in others and port != used.port for ip, port in own)


def _alive(answers: list[Reply]) -> list[Reply]:
    """The replies, if the connection is still open. Raises ConnectionLost."""
    for answer in answers:
        if isinstance(answer, ConnectionLost):
            raise answer
    return answers


def _good(reply: Reply) -> Reply:
    """A reply that is not an error. Raises DisqueError."""
    if isinstance(reply, DisqueError):
        raise reply
    return reply


def _bytes(reply: Reply) -> bytes:
    if not isinstance(reply, bytes):
        raise ProtocolError(f"unexpected cursor: {reply!r:.100}")
    return reply
