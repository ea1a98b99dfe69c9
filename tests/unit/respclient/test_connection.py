"""One connection: reply order, cancellation, loss."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from disque_trio.client import ConnectionLost, ReplyError
from disque_trio.notation.addresses import Address
from disque_trio.respclient.connection import Connection, open_stream
from tests.support.fake_disque import FakeNode, fake_node

pytestmark = pytest.mark.trio


@asynccontextmanager
async def connected(node: FakeNode) -> AsyncIterator[Connection]:
    address = Address("127.0.0.1", node.port)
    connection = Connection(await open_stream(address), address)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        yield connection
        connection.close()


def echo(command: list[bytes]) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(command[1]), command[1])


async def test_many_tasks_share_a_connection_and_each_gets_its_own_reply() -> None:
    async with fake_node() as node, connected(node) as connection:
        node.answers["ECHO"] = echo
        got: dict[int, object] = {}

        async def ask(n: int) -> None:
            got[n] = await connection.execute("ECHO", n)

        async with trio.open_nursery() as nursery:
            for n in range(200):
                nursery.start_soon(ask, n)
        assert got == {n: b"%d" % n for n in range(200)}
        assert node.connections == 1


async def test_a_pipeline_keeps_errors_in_order() -> None:
    async with fake_node() as node, connected(node) as connection:
        node.answers |= {"A": b":1\r\n", "B": b"-NOPE no\r\n", "C": b"$-1\r\n"}
        one, error, null = await connection.execute_many([["A"], ["B"], ["C"]])
        assert (one, null) == (1, None)
        assert isinstance(error, ReplyError)
        assert error.code == "NOPE"


async def test_the_reply_of_a_cancelled_caller_is_not_given_to_the_next_one() -> None:
    async with fake_node() as node, connected(node) as connection:
        node.answers |= {"SLOW": FakeNode.HANG, "ECHO": echo}
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.execute, "SLOW")
                await node.wait_for(lambda: node.count("SLOW") == 1)
                scope.cancel()
        node.answers["ECHO"] = lambda command: b"+late reply\r\n" + echo(command)
        assert await connection.execute("ECHO", "mine") == b"mine"


async def test_a_cancelled_command_that_was_not_written_is_not_sent() -> None:
    async with fake_node() as node, connected(node) as connection:
        node.answers["ECHO"] = echo
        with trio.CancelScope() as scope:
            scope.cancel()
            await connection.execute("GONE")
        assert await connection.execute("ECHO", "x") == b"x"
        assert node.names() == ["ECHO"]


async def test_a_reply_that_arrives_in_pieces_is_assembled() -> None:
    async with trio.open_nursery() as nursery:
        client, server = trio.testing.lockstep_stream_pair()
        connection = Connection(client, Address("h", 1))
        nursery.start_soon(connection.run)

        async def serve() -> None:
            await server.receive_some()
            for byte in b"*2\r\n$3\r\nabc\r\n:7\r\n":
                await server.send_all(bytes([byte]))

        nursery.start_soon(serve)
        assert await connection.execute("X") == [b"abc", 7]
        connection.close()


async def test_half_a_reply_before_the_end_of_the_stream_is_a_lost_connection() -> None:
    async with fake_node() as node, connected(node) as connection:
        node.answers |= {"HALF": b"$100\r\nabc", "END": FakeNode.DROP}
        half, end = await connection.execute_many([["HALF"], ["END"]])
        for reply in (half, end):
            assert isinstance(reply, ConnectionLost)
            assert reply.maybe_executed
        assert connection.closed


async def test_a_command_on_a_closed_connection_certainly_did_not_run() -> None:
    async with fake_node() as node, connected(node) as connection:
        connection.close()
        with pytest.raises(ConnectionLost) as caught:
            await connection.execute("X")
        assert not caught.value.maybe_executed


async def test_invalid_resp_ends_the_connection() -> None:
    async with fake_node() as node, connected(node) as connection:
        node.answers["X"] = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        with pytest.raises(ConnectionLost, match="not RESP"):
            await connection.execute("X")


async def test_an_unexpected_reply_ends_the_connection_and_is_reported() -> None:
    async with fake_node() as node, connected(node) as connection:
        node.answers["X"] = b"+OK\r\n-ERR max number of clients reached\r\n"
        await connection.execute("X")
        with pytest.raises(ConnectionLost, match="max number of clients"):
            await connection.execute("Y")
