"""The poller of the nodes, with scripted connections."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from disque_trio.overview import poller
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.looks import Looks
from disque_trio.respclient.addresses import Address
from disque_trio.respclient.errors import ConnectionLost
from disque_trio.respclient.login import Login

ID = b"a" * 40


class Connection:
    """Answers HELLO."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.closed = False

    async def execute_many(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        return [[1, ID, [ID, b"127.0.0.1", b"7711", b"1"]] for _ in commands]

    def close(self) -> None:
        self.closed = True


class Full:
    """Opens connections to a node that accepts two."""

    def __init__(self, *more: object) -> None:
        self.opened: list[Connection] = []

    async def open(self, address: Address) -> Connection:
        await trio.lowlevel.checkpoint()
        if sum(not connection.closed for connection in self.opened) == 2:
            raise ConnectionLost("max number of clients reached")
        self.opened.append(Connection(address))
        return self.opened[-1]


async def test_no_connection_stays_where_a_node_does_not_take_all_that_are_wanted(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    node = Full()
    monkeypatch.setattr(poller, "Connector", lambda *more: node)
    asks = poller.Poller(Cluster(), [Address("127.0.0.1", 7711)], Login(), Looks())
    with trio.move_on_after(60):
        await asks.run()
    assert len(node.opened) > 2
    assert all(connection.closed for connection in node.opened)
