"""Push messages of RESP3 on a connection."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from disque_trio.notation.addresses import Address
from disque_trio.redis.errors import RedisError
from disque_trio.respclient.connection import Connection, OnPush, Reply
from tests.support.harness import HANG_SECONDS

PUSH = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n1\r\n"
Peer = trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]


@asynccontextmanager
async def connected(on_push: OnPush | None) -> AsyncIterator[tuple[Connection, Peer]]:
    ours, theirs = trio.testing.memory_stream_pair()
    connection = Connection(ours, Address("h", 1), RedisError, on_push)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        yield connection, theirs
        connection.close()


async def test_push_messages_between_replies_are_not_taken_for_replies() -> None:
    pushed: list[list[Reply]] = []
    async with connected(pushed.append) as (connection, peer):
        connection.send(b"SUBSCRIBE", b"c")
        batch = connection.submit([(b"GET", b"a"), (b"GET", b"b")])
        await trio.testing.wait_all_tasks_blocked()
        sent = bytes(await peer.receive_some())
        assert sent.startswith(b"*2\r\n$9\r\nSUBSCRIBE\r\n")
        await peer.send_all(PUSH + b"$1\r\n1\r\n" + PUSH + b"$1\r\n2\r\n" + PUSH)
        await batch.done.wait()
        assert batch.replies == [b"1", b"2"]
        await trio.testing.wait_all_tasks_blocked()
    assert pushed == [[b"message", b"c", b"1"]] * 3


async def test_a_refused_subscription_does_not_close_the_connection() -> None:
    async with connected(lambda message: None) as (connection, peer):
        connection.send(b"SUBSCRIBE", b"c")
        await peer.send_all(b"-NOPERM\r\n")
        await trio.testing.wait_all_tasks_blocked()
        assert not connection.closed


async def test_a_connection_that_expects_no_push_messages_is_closed_by_one() -> None:
    async with connected(None) as (connection, peer):
        await peer.send_all(PUSH)
        with trio.fail_after(HANG_SECONDS):
            await connection.ended.wait()
        assert connection.closed


async def test_messages_for_a_closed_connection_are_dropped() -> None:
    async with connected(None) as (connection, _):
        connection.close()
        connection.send(b"SUBSCRIBE", b"c")
        assert connection.ended.is_set()
