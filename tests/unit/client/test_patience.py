"""How long a client tries to reach a node, and what it says meanwhile."""

import socket
import traceback
from collections.abc import Iterator

import pytest
import structlog
import trio
from trio.testing import MockClock

from disque_trio.client import ConnectionLost, DisqueError, connect
from disque_trio.client.connecting import connect_to
from disque_trio.client.patience import Outage, current, patience
from disque_trio.client.urls import Cluster
from disque_trio.tasks import Disque
from tests.support.fake_disque import FakeNode, fake_node
from tests.support.harness import free_port


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a node that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


async def test_an_outage_is_told_once_with_its_reason_and_its_end(
    autojump_clock: MockClock,
) -> None:
    with structlog.testing.capture_logs() as said:
        async with fake_node() as node, trio.open_nursery() as nursery:
            node.answers["QLEN"] = b":0\r\n"
            async with connect([node.address], retry_for=30) as client:
                await node.stop()
                with pytest.raises(ConnectionLost):
                    await client.qlen("q")
                await node.start(nursery)
                await client.qlen("q")
            nursery.cancel_scope.cancel()
    assert len(said) == 2
    assert node.address in said[0]["error"]
    assert "refused" in said[0]["error"]
    assert said[1]["after"] >= 30


async def test_a_failure_of_less_than_a_second_is_not_told(autojump_clock: MockClock) -> None:
    with structlog.testing.capture_logs() as said, pytest.raises(ConnectionLost):
        async with connect([f"127.0.0.1:{free_port()}"], retry_for=0.5):
            pass
    assert said == []


async def test_a_node_that_does_not_answer_is_told_while_the_client_waits_for_it(
    silent: str,
) -> None:
    with structlog.testing.capture_logs() as said, trio.move_on_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connecting, silent)
            while not said:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert said[0]["error"] == f"{silent}: no answer yet"


async def connecting(address: str) -> None:
    async with connect([address], retry_for=60):
        pass


async def test_patience_limits_requests_in_its_block(autojump_clock: MockClock) -> None:
    async with fake_node() as node, connect([node.address], retry_for=300) as client:
        await node.stop()
        began = trio.current_time()
        with pytest.raises(ConnectionLost, match=node.address), patience(5):
            await client.add("q", "x")
        assert 4 <= trio.current_time() - began <= 6


async def test_patience_also_limits_waiting_for_nodes_that_do_not_answer(silent: str) -> None:
    cluster = Cluster.of([silent], None, None, None, None, True)
    with pytest.raises(ConnectionLost, match=f"within 0.1 s: {silent}"):
        async with connect_to(cluster, 300, 60, first=0.1):
            pass


async def test_tasks_that_were_started_in_the_block_may_live_longer() -> None:
    seen = []

    async def later(begun: trio.Event) -> None:
        await begun.wait()
        seen.append(current())

    async with trio.open_nursery() as nursery:
        begun = trio.Event()
        with patience(1):
            assert current() is not None
            nursery.start_soon(later, begun)
        begun.set()
    assert seen == [None]


def test_adding_without_a_node_fails_soon_with_one_line() -> None:
    address = f"127.0.0.1:{free_port()}"
    app = Disque(f"disque://{address}", add_timeout=0.1)

    @app.task
    def work() -> None: ...

    with pytest.raises(ConnectionLost) as caught:
        work.add()
    assert str(caught.value).startswith(f"no Disque node can be reached: {address}: ")
    assert "\n" not in str(caught.value)
    trace = traceback.format_exception(caught.value)
    assert len("".join(trace).splitlines()) < 20
    assert sum("Traceback" in part for part in trace) == 1
    with pytest.raises(ValueError, match="add_timeout"):
        Disque(add_timeout=0)


async def test_adding_to_a_node_that_was_lost_fails_soon_too(autojump_clock: MockClock) -> None:
    async with fake_node() as node:
        app = Disque(f"disque://{node.address}", node_timeout=300)

        @app.task
        def work() -> None: ...

        node.answers["ADDJOB"] = FakeNode.DROP
        async with app.connect():
            await node.stop()
            for add in (work.add, lambda: work.bind().add(), lambda: work.map([()])):
                began = trio.current_time()
                with pytest.raises(DisqueError):
                    await add()  # type: ignore[operator]
                assert trio.current_time() - began <= 6


async def test_other_errors_of_an_attempt_are_raised_as_they_are() -> None:
    async def attempt() -> None:
        raise ValueError("a certificate")

    with pytest.raises(ValueError, match="a certificate"):
        await Outage(lambda: "").during(attempt)
