"""Programs that trace with nodes that have no headers: C Disque, or without extensions."""

from collections.abc import Callable

import pytest

from disque_trio.client import NoExtError, ReplyError, connect
from packages.integrations.tests.support.spans import attributes_of, traced
from tests.support.fake_disque import JOB_ID, FakeNode, bulk, fake_node, job

ID = JOB_ID.format(1).encode()
ADDED = b"$%d\r\n%s\r\n" % (len(ID), ID)


def refuses(word: bytes, error: bytes, answer: bytes) -> Callable[[list[bytes]], bytes]:
    return lambda command: error if word in command else answer


@pytest.mark.parametrize("error", [b"-NOEXT not now\r\n", b"-ERR syntax error\r\n"])
async def test_jobs_are_added_without_headers(error: bytes) -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = refuses(b"HEADERS", error, ADDED)
        with traced() as traces:
            assert await client.add("q", "a") == ID.decode()
            assert await client.add_many("q", ["a", "b"]) == [ID.decode()] * 2
            assert node.count("ADDJOB") == 2 + 4
            assert all("error.type" not in attributes_of(span) for span in traces.all())
            with pytest.raises((NoExtError, ReplyError)):
                await client.add("q", "a", headers={"tenant": "acme"})  # wanted by the program


async def test_any_other_error_is_raised() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = b"-ERR no\r\n"
        with traced(), pytest.raises(ReplyError):
            await client.add("q", "a")
        assert node.count("ADDJOB") == 1


def fetched(node: FakeNode) -> list[bool]:
    """Return for each GETJOB whether it asks for headers."""
    return [b"WITHHEADERS" in command for command in node.seen if command[0] == b"GETJOB"]


async def test_jobs_are_taken_without_headers() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["GETJOB"] = refuses(b"WITHHEADERS", b"-ERR syntax error\r\n", job(1))
        node.answers["ACKJOB"] = b":1\r\n"
        with traced() as traces:
            [one] = await client.get("q")
            assert one.body == b"body"
            async with client.jobs("q") as jobs:
                async for held in jobs:
                    await held.ack()
                    break
            assert fetched(node) == [True, False, False]
            with pytest.raises(ReplyError):
                await client.get("q", withheaders=True)
            assert len(traces.named("process q")) == 1


async def test_headers_are_requested_from_nodes_that_have_them() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["GETJOB"] = bulk()
        await client.get("q", nohang=True)
        with traced():
            await client.get("q", nohang=True)
        assert fetched(node) == [False, True]
