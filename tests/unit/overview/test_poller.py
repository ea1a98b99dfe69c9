"""The poller of the nodes, with scripted connections."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import MockClock

from disque_trio.notation.addresses import Address
from disque_trio.overview import census, poller, progress_walk
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.looks import Looks
from disque_trio.respclient.errors import ConnectionLost
from disque_trio.respclient.login import Login

ID = b"a" * 40
A, B = Address("127.0.0.1", 7711), Address("127.0.0.2", 7711)


class Connection:
    """A connection to a node with one queue. Replies are there at once."""

    hello: ClassVar[Any] = [1, ID, [ID, b"127.0.0.1", b"7711", b"1"]]

    def __init__(self, address: Address) -> None:
        self.address = address
        self.ended = trio.Event()
        self.used_at = trio.current_time()
        self.commands: list[Any] = []

    @property
    def closed(self) -> bool:
        return self.ended.is_set()

    async def execute_many(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        self.used_at = trio.current_time()
        self.commands += commands
        if self.closed:
            return [ConnectionLost("closed") for _ in commands]
        return [self._reply(*command) for command in commands]

    def _reply(self, command: str, *words: Any) -> Any:
        if command == "JSCAN":
            return [b"0", [[b"q", 1, 2, 3]]]
        return {
            "HELLO": self.hello,
            "INFO": b"registered_jobs:7\r\n",
            "CLUSTER": b"",
            "QGET": [],
            "QSCAN": [b"0", [b"q"]],
            "QSTAT": [b"len", 7],
        }[command]

    def close(self) -> None:
        self.ended.set()


class Node:
    """Accepts connections.

    Args:
        most: connections at once.
        timeout: seconds of silence after which it closes a connection.

    Attributes:
        opened: all connections so far. up: whether it accepts any.
    """

    def __init__(self, most: int = 1_000, timeout: float = 1e9) -> None:
        self.opened: list[Connection] = []
        self.up = True
        self._most = most
        self._timeout = timeout

    async def open(self, address: Address) -> Connection:
        await trio.lowlevel.checkpoint()
        if not self.up or sum(not connection.closed for connection in self.opened) == self._most:
            raise ConnectionLost("refused")
        self.opened.append(Connection(address))
        return self.opened[-1]

    async def close_silent_connections(self) -> None:
        """Close them forever."""
        while True:
            await trio.sleep(0.05)
            for connection in self.opened:
                if trio.current_time() >= connection.used_at + self._timeout:
                    connection.close()

    def asked(self, command: str) -> int:
        """How many commands with this name arrived."""
        return sum(words[0] == command for each in self.opened for words in each.commands)


class World:
    """A poller of a node, for 60 s.

    Attributes:
        changes: the status of the node each time that it changed, from its first answer on.
    """

    def __init__(self, node: Node, each: float = 2.0, *seeds: Address) -> None:
        self.node = node
        self.cluster = Cluster()
        self.looks = Looks()
        self.changes: list[str] = []
        self._poller = poller.Poller(self.cluster, seeds or [A], Login(), self.looks, each=each)

    async def run(self, looking: bool = False) -> None:
        with trio.move_on_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._poller.run)
                nursery.start_soon(self.node.close_silent_connections)
                while True:
                    self._note()
                    if looking:
                        now = trio.current_time()
                        self.looks.at(["q"], now)
                        self.looks.counts.at(now)
                        self.looks.running.at(now)
                    await trio.sleep(0.25)

    def _note(self) -> None:
        state = self.cluster.nodes.get(str(A))
        if state and state.status not in ("connecting", *self.changes[-1:]):
            self.changes.append(state.status)


class Time:
    """Trio's clock, as if it were the time of day."""

    time = staticmethod(trio.current_time)


def polling(monkeypatch: pytest.MonkeyPatch, world: World) -> World:
    for module in (poller, census, progress_walk):
        monkeypatch.setattr(module, "time", Time)
    monkeypatch.setattr(poller, "Connector", lambda *more: world.node)
    return world


@pytest.mark.parametrize("looking", [False, True])
@pytest.mark.parametrize("timeout", [1.0, 3.0])
@pytest.mark.parametrize("each", [0.5, 2.0, 10.0])
async def test_a_node_that_closes_silent_connections_stays_reachable(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
    timeout: float,
    each: float,
    looking: bool,
) -> None:
    world = polling(monkeypatch, World(Node(timeout=timeout), each))
    await world.run(looking)
    assert world.changes == ["here"]
    assert world.node.asked("INFO") >= 60 / each - 1
    row = world.cluster.queues.row("q")
    assert row is not None
    assert (row.delayed, row.in_hand, row.dead) == ((1, 2, 3) if looking else (None, None, None))


async def test_a_node_that_closes_connections_at_once_is_unreachable(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    world = polling(monkeypatch, World(Node(timeout=0.5)))
    await world.run()
    assert world.changes[:2] == ["here", "away"]
    assert len(world.node.opened) < 150


async def test_a_node_that_closes_connections_after_the_first_reply_is_unreachable(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def execute_many(self: Connection, commands: Sequence[Sequence[Any]]) -> list[Any]:
        answers = await real(self, commands)
        self.close()
        return answers

    real = Connection.execute_many
    monkeypatch.setattr(Connection, "execute_many", execute_many)
    world = polling(monkeypatch, World(Node()))
    await world.run()
    assert "away" in world.changes
    assert len(world.node.opened) < 150


async def test_a_node_that_stops_is_unreachable_and_returns(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    world = polling(monkeypatch, World(Node()))

    async def restart() -> None:
        await trio.sleep(20)
        world.node.up = False
        for connection in world.node.opened:
            connection.close()
        await trio.sleep(20)
        world.node.up = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(restart)
        await world.run(looking=True)
    assert world.changes == ["here", "away", "here"]


async def test_a_node_that_accepts_one_connection_is_reachable(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    world = polling(monkeypatch, World(Node(most=1)))
    await world.run(looking=True)
    assert world.changes == ["here"]
    assert len(world.node.opened) == 1
    assert all(connection.closed for connection in world.node.opened)


@pytest.mark.parametrize("command", ["QSTAT", "JSCAN"])
async def test_a_node_that_takes_long_to_visit_its_jobs_is_polled_meanwhile(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, command: str
) -> None:
    async def execute_many(self: Connection, commands: Sequence[Sequence[Any]]) -> list[Any]:
        if commands[0][0] == command and commands[0][-1] in ("FULL", "counts"):
            await trio.sleep_forever()
        return await real(self, commands)

    real = Connection.execute_many
    monkeypatch.setattr(Connection, "execute_many", execute_many)
    world = polling(monkeypatch, World(Node()))
    await world.run(looking=True)
    assert world.changes == ["here"]
    assert world.node.asked("INFO") >= 29
    assert all(connection.closed for connection in world.node.opened)


async def test_a_node_with_two_addresses_is_followed_at_one(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    world = polling(monkeypatch, World(Node(), 2.0, A, B))
    await world.run()
    assert [state.status for state in world.cluster.nodes.all()] == ["here"]
    assert len(world.node.opened) == 2


async def test_a_seed_that_was_forgotten_is_shown_again_when_it_returns(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    ids = {A: ID, B: b"b" * 40}
    members = dict(ids)
    shown: list[list[str]] = []

    def reply(self: Connection, command: str, *words: Any) -> Any:
        if command == "HELLO":
            lines = [[id, at.host.encode(), b"%d" % at.port, b"1"] for at, id in members.items()]
            return [1, ids[self.address], *lines]
        return real(self, command, *words)

    async def open(self: Node, address: Address) -> Connection:
        if address not in members:
            raise ConnectionLost("refused")
        return await real_open(self, address)

    real, real_open = Connection._reply, Node.open
    monkeypatch.setattr(Connection, "_reply", reply)
    monkeypatch.setattr(Node, "open", open)
    world = polling(monkeypatch, World(Node(), 2.0, A, B))

    async def forget() -> None:
        for _ in range(2):
            await trio.sleep(15)
            shown.append([state.address for state in world.cluster.nodes.all()])
            if members.pop(B, None) is None:
                members[B] = ids[B]
            for connection in world.node.opened:
                if connection.address == B:
                    connection.close()
        await trio.sleep(15)
        shown.append([state.address for state in world.cluster.nodes.here()])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(forget)
        await world.run()
    assert shown == [[str(A), str(B)], [str(A)], [str(A), str(B)]]


async def test_a_process_whose_port_another_one_serves_meanwhile_is_unreachable(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    first = [b"b" * 40, b"127.0.0.1", b"7711", b"1"]
    second = [ID, b"127.0.0.1", b"7712", b"1"]
    monkeypatch.setattr(Connection, "hello", [1, ID, first, second])
    world = polling(monkeypatch, World(Node()))
    await world.run()
    state = world.cluster.nodes.get(str(A))
    assert state is not None
    assert (state.id, state.status) == ("", "away")
    assert "another process" in state.problem
