"""Calls against a scripted node: what a call sends, and what happens to the answer."""

import time
from collections.abc import Callable

import pytest
import trio
import trio.testing

from disque_trio.client import (
    CallError,
    Client,
    ConnectionLost,
    HeldJob,
    NoExtError,
    PausedError,
    connect,
)
from tests.support.fake_disque import JOB_ID, FakeNode, bulk, fake_node, fake_nodes
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.trio

REQUEST = JOB_ID.format(7).encode()


def push(number: int, body: bytes, *headers: bytes) -> bytes:
    """Return the push message for a job with headers."""
    job = bulk(b"job", b"q", JOB_ID.format(number).encode(), body, b"headers", [*headers])
    return b">" + job[1:]


def fields(command: list[bytes]) -> dict[bytes, bytes]:
    """Return the headers of an ADDJOB."""
    start = command.index(b"HEADERS") + 2
    return dict(zip(command[start::2], command[start + 1 :: 2], strict=True))


def answering(node: FakeNode, answer: Callable[[bytes], bytes] = lambda id: b"") -> None:
    """Let the node accept requests, then push ``answer`` with their correlation ids."""
    node.answers |= {
        "CONSUME": lambda command: b":0\r\n" if command[1] == b"STOP" else b"+OK\r\n",
        "CREDIT": b"+OK\r\n",
        "ADDJOB": lambda command: (
            b"$40\r\n%b\r\n" % REQUEST + answer(fields(command)[b"correlation-id"])
        ),
        "ACKJOB": b":1\r\n",
        "CANCEL": b":1\r\n",
        "NACK": b":1\r\n",
        "WORKING": b":300\r\n",
        "GETJOB": FakeNode.HANG,
    }


def ok(id: bytes) -> bytes:
    return push(1, b"answer", b"correlation-id", id, b"status", b"ok")


def adds(node: FakeNode) -> list[list[bytes]]:
    return [command for command in node.seen if command[0] == b"ADDJOB"]


# ---- the caller ---------------------------------------------------------------------------------


async def test_a_call_adds_a_request_and_returns_the_answer() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        answering(node, ok)
        before = time.time()
        assert await client.call("q", "body", timeout=8, headers={"x": "y"}) == b"answer"
        [add] = adds(node)
        assert add[1:3] == [b"q", b"body"]
        left = int(add[3]) / 1000  # when the connection was open
        assert 0 < left <= 8
        words = dict(zip(add[4::2], add[5::2], strict=False))
        assert words[b"REPLICATE"] == b"1"
        assert left / 4 <= int(words[b"RETRY"]) <= 2
        assert 2 * left <= int(words[b"TTL"]) <= 17
        [consume] = [command for command in node.seen if command[0] == b"CONSUME"]
        headers = fields(add)
        assert headers[b"x"] == b"y"
        assert headers[b"reply-to"] == consume[1]
        deadline = int(headers[b"deadline"]) / 1000
        assert before + 7.99 <= deadline <= time.time() + 8.01
        await node.wait_for(lambda: node.count("ACKJOB") == 1)
        assert node.count("CANCEL") == 0


async def test_concurrent_calls_share_one_connection() -> None:
    waiting: list[bytes] = []

    def answer(id: bytes) -> bytes:
        """Answer all calls, the last one first, once all have arrived."""
        waiting.append(id)
        if len(waiting) < 20:
            return b""
        return b"".join(push(1, id, b"correlation-id", id) for id in reversed(waiting))

    async with fake_node() as node, connect([node.address]) as client:
        answering(node, answer)
        got: set[bytes] = set()

        async def call() -> None:
            got.add(await client.call("q", "body"))

        with trio.fail_after(HANG_SECONDS):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(call)
        assert got == {*waiting}
        assert node.connections == 2


async def test_an_error_of_the_handler_is_raised() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        answering(
            node, lambda id: push(1, b"KeyError: 7", b"correlation-id", id, b"status", b"error")
        )
        with pytest.raises(CallError, match=r"^KeyError: 7$"):
            await client.call("q", "body")


async def too_slow(client: Client, node: FakeNode) -> None:
    """Call without an answer, long enough to add the request."""
    seconds = 0.05
    while node.count("ADDJOB") == 0:
        with pytest.raises(trio.TooSlowError):
            await client.call("q", "body", timeout=seconds)
        seconds *= 2


async def test_a_call_that_takes_too_long_cancels_its_request() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        answering(node)
        await too_slow(client, node)
        await node.wait_for(lambda: [b"CANCEL", REQUEST] in node.seen)


async def test_a_cancelled_call_cancels_its_request() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        answering(node)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call, "q", "body")
            await node.wait_for(lambda: node.count("ADDJOB") == 1)
            await trio.testing.wait_all_tasks_blocked(0.02)
            nursery.cancel_scope.cancel()
        await node.wait_for(lambda: [b"CANCEL", REQUEST] in node.seen)


async def test_a_cancelled_call_cancels_its_request_even_if_the_client_closes_at_once() -> None:
    async with fake_node() as node:
        answering(node)
        async with connect([node.address]) as client:
            await too_slow(client, node)
        assert [b"CANCEL", REQUEST] in node.seen


async def test_an_answer_that_nobody_waits_for_is_acknowledged_and_dropped() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        answering(node, lambda id: push(1, b"late", b"correlation-id", b"?") + ok(id) + ok(id))
        assert await client.call("q", "body") == b"answer"
        await node.wait_for(lambda: node.count("ACKJOB") == 3)


async def test_a_lost_connection_is_reopened_for_the_answer() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        answering(node)
        with trio.fail_after(HANG_SECONDS):
            async with trio.open_nursery() as nursery:

                @nursery.start_soon
                async def call() -> None:
                    assert await client.call("q", "body") == b"answer"

                await node.wait_for(lambda: node.count("ADDJOB") == 1)
                await trio.testing.wait_all_tasks_blocked(0.02)
                id = fields(adds(node)[0])[b"correlation-id"]
                node.answers["CONSUME"] = b"+OK\r\n" + ok(id)
                [line] = client._in_flight._sources
                line.connection.close()  # type: ignore[attr-defined]
        assert node.count("ADDJOB") == 1
        consumes = {command[1] for command in node.seen if command[0] == b"CONSUME"}
        assert len(consumes) == 1


@pytest.mark.parametrize("how", ["dies", "leaves", "refuses"])
async def test_a_request_is_added_at_another_node_when_its_node_is_lost(how: str) -> None:
    async with fake_nodes(2) as [first, second]:
        first.others = [(second.id, "127.0.0.1", second.port, 5)]
        answering(first)
        answering(second, ok)
        if how == "leaves":
            first.answers["ADDJOB"] = b"$40\r\n%b\r\n>2\r\n$7\r\nstopped\r\n$1\r\n?\r\n" % REQUEST
        elif how == "refuses":
            first.answers["ADDJOB"] = b"-LEAVING bye\r\n"
        async with connect([first.address]) as client:
            with trio.fail_after(HANG_SECONDS):
                async with trio.open_nursery() as nursery:

                    @nursery.start_soon
                    async def call() -> None:
                        assert await client.call("q", "body") == b"answer"

                    await first.wait_for(lambda: first.count("ADDJOB") == 1)
                    if how == "leaves":
                        first.answers["CONSUME"] = b"-LEAVING bye\r\n"
                    elif how == "dies":
                        await trio.testing.wait_all_tasks_blocked(0.02)
                        await first.stop()
            [once], [again] = adds(first), adds(second)
            assert fields(once)[b"correlation-id"] == fields(again)[b"correlation-id"]


async def test_errors_are_raised() -> None:
    async with fake_node() as node, connect([node.address], retry_for=0.1) as client:
        with pytest.raises(NoExtError, match="push"):
            await client.call("q", "body")
    async with fake_node() as node, connect([node.address], retry_for=0.1) as client:
        answering(node)
        node.answers["ADDJOB"] = b"-PAUSED no\r\n"
        with pytest.raises(PausedError):
            await client.call("q", "body")
        node.answers["ADDJOB"] = FakeNode.DROP
        with pytest.raises(ConnectionLost):
            await client.call("q", "body")
        with pytest.raises(ValueError, match="timeout"):
            await client.call("q", "body", timeout=0)


# ---- the server ---------------------------------------------------------------------------------


async def serving(
    client: Client,
    node: FakeNode,
    handler: Callable[[HeldJob], object],
    *headers: bytes,
    until: Callable[[], bool],
) -> None:
    """Serve a request with these headers until a condition is met."""
    answering(node)
    request = push(0, b"body", *headers)
    node.answers["CONSUME"] = lambda command: (
        b":0\r\n" if command[1] == b"STOP" else b"+OK\r\n" + request
    )

    async def handle(job: HeldJob) -> object:
        return handler(job)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.serve, "q", handle)
        await node.wait_for(until)
        nursery.cancel_scope.cancel()


HEADERS = (b"reply-to", b"r", b"correlation-id", b"c")


async def test_an_answer_is_sent_with_the_acknowledgement() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        deadline = b"%d" % ((time.time() + 9) * 1000)
        await serving(
            *(client, node, lambda job: job.body.upper(), *HEADERS, b"deadline", deadline),
            until=lambda: node.count("ACKJOB") == 1,
        )
        [add] = adds(node)
        assert add[1:3] == [b"r", b"BODY"]
        assert fields(add) == {b"correlation-id": b"c", b"status": b"ok"}
        words = dict(zip(add[4::2], add[5::2], strict=False))
        assert words[b"REPLICATE"] == b"1"
        assert int(words[b"TTL"]) <= 10
        assert node.names()[:3] == ["CONSUME", "ADDJOB", "ACKJOB"]
        assert node.connections == 2


@pytest.mark.parametrize(
    ("result", "answer", "status"),
    [
        (None, b"", b"ok"),
        ("é", "é".encode(), b"ok"),
        (ValueError("no"), b"ValueError: no", b"error"),
        (KeyError(), b"KeyError", b"error"),
        (7, b"TypeError: a handler returns bytes, str or None, not int", b"error"),
    ],
)
async def test_any_result_is_answered(result: object, answer: bytes, status: bytes) -> None:
    def handler(job: HeldJob) -> object:
        if isinstance(result, Exception):
            raise result
        return result

    async with fake_node() as node, connect([node.address]) as client:
        await serving(client, node, handler, *HEADERS, until=lambda: node.count("ACKJOB") == 1)
        [add] = adds(node)
        assert (add[2], fields(add)[b"status"]) == (answer, status)


async def test_a_request_that_nobody_waits_for_is_dropped() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        await serving(
            *(client, node, lambda job: pytest.fail("called"), *HEADERS, b"deadline", b"1000"),
            until=lambda: node.count("ACKJOB") == 1,
        )
        assert adds(node) == []


async def test_a_request_that_wants_no_answer_gets_none() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        await serving(client, node, lambda job: b"x", until=lambda: node.count("ACKJOB") == 1)
        assert adds(node) == []


async def test_a_handler_may_pass_a_request_to_another_server() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        answering(node)
        node.answers["CONSUME"] = b"+OK\r\n" + push(0, b"body", *HEADERS)

        async def handler(job: HeldJob) -> None:
            await job.nack(delay=1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.serve, "q", handler)
            await node.wait_for(lambda: node.count("NACK") == 1)
            await trio.testing.wait_all_tasks_blocked(0.02)
            nursery.cancel_scope.cancel()
        assert adds(node) == []


async def test_an_answer_that_a_leaving_node_refuses_is_added_elsewhere() -> None:
    async with fake_nodes(2) as [leaver, other]:
        leaver.others = [(other.id, "127.0.0.1", other.port, 5)]
        answering(other)
        async with connect([leaver.address]) as client:

            def handler(job: HeldJob) -> bytes:
                leaver.answers["ADDJOB"] = b"-LEAVING bye\r\n"
                return b"answer"

            await serving(client, leaver, handler, *HEADERS, until=lambda: bool(adds(other)))
            assert adds(other)[0][1:3] == [b"r", b"answer"]


async def test_an_answer_that_cannot_be_added_does_not_end_the_server() -> None:
    async with fake_node() as node, connect([node.address]) as client:

        def handler(job: HeldJob) -> bytes:
            node.answers["ADDJOB"] = b"-OOM no\r\n"
            node.answers["ACKJOB"] = [b":1\r\n" + push(1, b"next"), b":1\r\n"]
            return b"answer"

        await serving(client, node, handler, *HEADERS, until=lambda: node.count("ACKJOB") == 2)


async def test_a_server_that_ends_before_sending_its_answer_requeues_the_request() -> None:
    async with fake_node() as node, connect([node.address]) as client:

        def handler(job: HeldJob) -> bytes:
            node.answers["ADDJOB"] = node.answers["ACKJOB"] = FakeNode.HANG
            return b"answer"

        await serving(client, node, handler, *HEADERS, until=lambda: node.count("ACKJOB") == 1)
        assert "NACK" in node.names()
        assert node.count("ACKJOB") == 1
