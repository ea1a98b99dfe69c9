"""Asks each node again and again how it is, and how its queues are."""

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import trio

from disque_trio.client import replies
from disque_trio.client.nodes import parse_address, parse_hello
from disque_trio.console.io.looks import Looks
from disque_trio.console.model.cluster import Cluster
from disque_trio.console.model.names import to_bytes
from disque_trio.console.model.policies import Policies
from disque_trio.console.model.rota import Rota
from disque_trio.process.logs import Log
from disque_trio.respclient.addresses import Address
from disque_trio.respclient.connection import Connection, Connector, Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError, ProtocolError
from disque_trio.respclient.login import Login
from disque_trio.respclient.values import as_text, text

EACH: Final = 2.0  # s between two looks at a node
FULL_EACH: Final = 5.0  # s between two looks at all jobs, for queues that somebody looks at
FULL_SHARE: Final = 10.0  # it takes no more than one part in so many of a node's time
NAMES_EACH: Final = 10.0  # s between two looks at which queues there are, if there are many
MANY: Final = 2_000  # queues
PATIENCE: Final = 5.0  # s for an answer; looking at all jobs of a node may take longer
FULL_PATIENCE: Final = 30.0
AGAIN: Final = (0.5, 1.0, 2.0, 5.0)  # s between attempts to reach a node that is away
SLICE: Final = 200  # questions that are sent at once


class Poller:
    """Knows how the cluster is.

    Args:
        cluster: what is known of it, which this keeps up to date.
        seeds: nodes to begin with; HELLO tells the others.
        login: how to get in.
        looks: queues of which all is wanted.
    """

    def __init__(
        self, cluster: Cluster, seeds: Iterable[Address], login: Login, looks: Looks, log: Log
    ) -> None:
        self.cluster = cluster
        self.looks = looks
        self._seeds = {str(seed) for seed in seeds}
        self._login = login
        self._log = log
        self._tasks: dict[str, trio.CancelScope] = {}
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Ask for ever."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            connector = Connector(nursery, self._login, PATIENCE)
            for seed in sorted(self._seeds):
                self._begin(connector, seed)
            while True:
                await trio.sleep(EACH)
                self.cluster.sample(time.time())

    def _begin(self, connector: Connector, address: str) -> None:
        if address not in self._tasks:
            scope = self._tasks[address] = trio.CancelScope()
            self.cluster.nodes.meet(address, time.time())
            self._nursery.start_soon(self._follow, connector, address, scope)

    async def _follow(self, connector: Connector, address: str, scope: trio.CancelScope) -> None:
        """One node, until it is no node of the cluster any more."""
        failures = 0
        try:
            with scope:
                while True:
                    visit = _Visit(self, connector, address)
                    try:
                        await visit.stay()
                    except DisqueError as error:
                        failures = 0 if visit.came else failures + 1
                        if visit.came or failures == 1:
                            self._log.warning("away", node=address, why=str(error))
                        self.cluster.went(address, str(error), time.time())
                    await trio.sleep(AGAIN[min(failures, len(AGAIN) - 1)])
        finally:
            self._tasks.pop(address, None)

    def came(self, connector: Connector, connection: Connection, hello: Reply) -> str:
        """A node has told who it is and whom it knows. Returns its id.

        Raises:
            ProtocolError: it is no node of Disque.
        """
        told = parse_hello(hello, connection.address)
        address, now = str(connection.address), time.time()
        twin = self.cluster.nodes.by_id(told.node_id)
        if twin is not None and twin.here and twin.address != address:
            # One node by two addresses: the one that was given on the command line stays.
            leaves = (
                address
                if address not in self._seeds or twin.address in self._seeds
                else twin.address
            )
            self._leave(leaves)
            if leaves == address:
                return told.node_id
        self.cluster.nodes.came(address, told.node_id, now)
        self._log.verbose("here", node=address, id=told.node_id)
        return told.node_id

    def met(self, connector: Connector, connection: Connection, hello: Reply) -> None:
        """A node has told whom it knows."""
        told = parse_hello(hello, connection.address)
        for node in told.nodes:
            known = self.cluster.nodes.by_id(node.id)
            if known is None or not known.here:
                address = str(node.address)
                if known is None or known.address != address:
                    self._begin(connector, address)
        self.cluster.knows(str(connection.address), {node.id for node in told.nodes})
        for address in self.cluster.strangers(self._seeds):
            self._leave(address)

    def _leave(self, address: str) -> None:
        if scope := self._tasks.get(address):
            scope.cancel()
        self.cluster.forget(address)


class _Visit:
    """One connection to a node, for as long as it holds.

    Attributes:
        came: whether it got in.
    """

    def __init__(self, poller: Poller, connector: Connector, address: str) -> None:
        self.came = False
        self._poller = poller
        self._cluster = poller.cluster
        self._looks = poller.looks
        self._connector = connector
        self._address = address
        self._rota = Rota()
        self._connection: Connection
        self._names_at = self._full_at = self._policies_at = -1e9

    async def stay(self) -> None:
        """Raises DisqueError, in the end."""
        self._connection = await self._connector.open(parse_address(self._address))
        try:
            [hello] = await self._ask([("HELLO",)])
            self._poller.came(self._connector, self._connection, _good(hello))
            self.came = True
            # Looking at all jobs takes long, and must not keep the rest waiting.
            full = await self._connector.open(parse_address(self._address))
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._look_closely, full)
                    while not full.closed:
                        await self._look()
                        await self._pause()
                    nursery.cancel_scope.cancel()
                raise ConnectionLost("the node closed the connection")
            except* DisqueError as group:
                raise _first(group) from None
            finally:
                full.close()
        finally:
            self._connection.close()

    async def _pause(self) -> None:
        with trio.move_on_after(EACH):
            await self._connection.ended.wait()

    async def _look(self) -> None:
        hello, info, lines = await self._ask([("HELLO",), ("INFO",), ("CLUSTER", "NODES")])
        self._poller.met(self._connector, self._connection, _good(hello))
        now = time.time()
        told = replies.info(info) if not isinstance(info, DisqueError) else {}
        self._cluster.told(
            self._address, told, "" if isinstance(lines, DisqueError) else text(lines), now
        )
        started = trio.current_time()
        if started - self._policies_at >= EACH:
            self._policies_at = started
            [policies] = await self._ask([("QGET",)])
            if isinstance(policies, list):
                found = [replies.policy(entry) for entry in policies]
                self._cluster.policies = Policies(policy for policy in found if policy is not None)
        if started - self._names_at >= (NAMES_EACH if len(self._rota) > MANY else EACH):
            self._names_at = started
            await self._read_names()
        chosen = self._rota.next(trio.current_time(), self._looks.names(time.time()))
        for begin in range(0, len(chosen), SLICE):
            await self._ask_of(chosen[begin : begin + SLICE])

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
        for name in self._rota.known(names):
            self._cluster.queues.gone(self._address, name)

    async def _ask_of(self, names: Sequence[str]) -> None:
        answers = await self._ask([("QSTAT", to_bytes(name)) for name in names])
        self._take(names, answers)

    def _take(self, names: Sequence[str], answers: Sequence[Reply]) -> None:
        now = time.time()
        for name, reply in zip(names, answers, strict=True):
            if isinstance(reply, list):
                fields: dict[bytes, Any] = dict(zip(reply[::2], reply[1::2], strict=False))  # type: ignore[arg-type]
                changed = self._cluster.queues.told(self._address, name, fields, now)
                self._rota.answered(name, changed, trio.current_time())
            elif reply is None:
                self._rota.forget(name)
                self._cluster.queues.gone(self._address, name)

    async def _look_closely(self, connection: Connection) -> None:
        """Look at all jobs of the queues that visitors look at, while there are such."""
        looks = self._looks
        while True:
            names = looks.names(time.time())
            if not names:
                await looks.wait()
                continue
            begun = trio.current_time()
            with trio.move_on_after(FULL_PATIENCE) as scope:
                commands = [("QSTAT", to_bytes(name), "FULL") for name in names]
                self._take(names, _alive(await connection.execute_many(commands)))
                looks.told()
            if scope.cancelled_caught:
                raise ConnectionLost(f"no answer within {FULL_PATIENCE:g} s")
            took = trio.current_time() - begun
            with trio.move_on_after(max(FULL_EACH, FULL_SHARE * took)):
                await looks.wait()

    async def _ask(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        """Raises ConnectionLost."""
        with trio.move_on_after(PATIENCE):
            return _alive(await self._connection.execute_many(commands))
        raise ConnectionLost(f"no answer within {PATIENCE:g} s")


def _alive(answers: list[Reply]) -> list[Reply]:
    """Answers of a connection that holds. Raises ConnectionLost."""
    for answer in answers:
        if isinstance(answer, ConnectionLost):
            raise answer
    return answers


def _good(reply: Reply) -> Reply:
    """An answer that is no error. Raises DisqueError."""
    if isinstance(reply, DisqueError):
        raise reply
    return reply


def _bytes(reply: Reply) -> bytes:
    if not isinstance(reply, bytes):
        raise ProtocolError(f"unexpected cursor: {reply!r:.100}")
    return reply


def _first(group: BaseExceptionGroup[DisqueError]) -> DisqueError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, DisqueError)
    return found
