"""Messages between the parent and a worker process."""

import math
import os
import socket

import trio

from disque_trio.worker.link import MappedPage, SocketEnd


async def test_messages_arrive_as_they_were_sent() -> None:
    one, other = map(SocketEnd, socket.socketpair())
    await one.send("beat", text="ä\n" * 1000)
    await one.send("finish", within=None)
    assert await other.receive() == {"kind": "beat", "text": "ä\n" * 1000}
    assert await other.receive() == {"kind": "finish", "within": None}
    await one.aclose()
    assert await other.receive() is None
    await other.aclose()


async def test_sending_to_a_process_that_has_ended_is_no_error() -> None:
    one, other = map(SocketEnd, socket.socketpair())
    await other.aclose()
    await one.send("beat")
    await one.send("beat")
    await one.aclose()
    await one.send("finish")


async def test_several_tasks_may_send_at_once() -> None:
    one, other = map(SocketEnd, socket.socketpair())
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(lambda: one.send("beat", text="x" * 500_000))
        for _ in range(3):
            message = await other.receive()
            assert message is not None
            assert len(message["text"]) == 500_000
    await one.aclose()
    await other.aclose()


def test_both_see_the_content_of_the_page() -> None:
    ours = MappedPage.make()
    theirs = MappedPage(os.dup(ours.descriptor))
    assert theirs.deadline == math.inf
    theirs.deadline = 12.5
    assert ours.deadline == 12.5
    ours.close()
    theirs.close()
