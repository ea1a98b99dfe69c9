"""A client goes to the node that is best for a queue, against scripted nodes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from disque_trio.client import (
    Client,
    ConnectionLost,
    GetOptions,
    NoReplError,
    OOMError,
    connect,
)
from disque_trio.client.batch import NewJob, add_each
from disque_trio.client.hints import IDLE
from disque_trio.client.nodes import AVOID_SECONDS
from disque_trio.client.owners import ASK_AGAIN
from tests.support.fake_disque import (
    JOB_ID,
    FakeNode,
    array,
    bulk,
    fake_node,
    fake_nodes,
    hello,
    job,
)
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.trio

ID = b"$40\r\nD-%b-%b\r\n"
REST = b"x" * 24 + b"-05a1"


def place(node: FakeNode) -> bytes:
    """A node as QOWNER tells it."""
    return bulk(node.id.encode(), b"127.0.0.1", b"%d" % node.port)


def best(owner: FakeNode, *asked: FakeNode) -> None:
    """Let the nodes ``asked`` say that ``owner`` is best for all queues."""
    for node in asked:
        node.answers["QOWNER"] = lambda command: array(*[place(owner)] * (len(command) - 1))


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[FakeNode, FakeNode, Client]]:
    """A client, the node that it uses, and another that is best for all queues."""
    async with fake_nodes(2) as (home, owner):
        best(owner, home)
        for node in (home, owner):
            node.answers["ADDJOB"] = b"$40\r\nD-%b-%b\r\n" % (node.id[:8].encode(), REST)
            node.answers |= {"ACKJOB": b":1\r\n", "SHOW": b"*-1\r\n", "WORKING": b":300\r\n"}
        async with connect([home.address], connect_timeout=2) as client:
            yield home, owner, client


async def reach(owner: FakeNode, client: Client, count: int = 1) -> None:
    """Add jobs until one has reached the best node."""
    with trio.fail_after(HANG_SECONDS):
        while owner.count("ADDJOB") < count:
            await client.add("q", "b")
            await trio.sleep(0.001)


async def test_the_first_command_brings_the_question_and_later_ones_go_to_the_owner() -> None:
    async with pair() as (home, owner, client):
        await client.add("q", "b")
        assert sorted(home.names()) == ["ADDJOB", "QOWNER"]
        await reach(owner, client)
        assert home.count("QOWNER") == 1
        before = home.count("ADDJOB")
        await client.add_many("q", ["b", "c"])
        assert owner.count("ADDJOB") == 3
        assert home.count("ADDJOB") == before
        assert home.count("QOWNER") == 1
        assert owner.count("QOWNER") == 0


async def test_a_client_that_shall_not_go_to_other_nodes_does_not_ask() -> None:
    async with fake_nodes(2) as (home, _):
        home.answers["ADDJOB"] = b"+id\r\n"
        async with connect([home.address], hints=False) as client:
            await client.add("q", "b")
        async with connect(f"disque://{home.address}?hints=no") as client:
            await client.add("q", "b")
        assert home.names() == ["ADDJOB", "ADDJOB"]


async def test_a_node_alone_is_not_asked() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = b"+id\r\n"
        await client.add("q", "b")
        assert node.names() == ["ADDJOB"]


@pytest.mark.parametrize("answer", [b"-ERR unknown command\r\n", b"-NOPERM no\r\n", b"+what\r\n"])
async def test_a_node_that_does_not_know_is_asked_once(answer: bytes) -> None:
    async with pair() as (home, owner, client):
        home.answers["QOWNER"] = answer
        await client.add("q", "b")
        await home.wait_for(lambda: home.count("QOWNER") == 1)
        await trio.testing.wait_all_tasks_blocked(0.05)
        await client.add("r", "b")
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert home.count("QOWNER") == 1
        assert owner.names() == []


async def test_a_node_that_hears_of_the_owner_in_time_is_asked_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as (home, owner, client):
        await reach(owner, client)
        best(home, home)
        await trio.sleep(ASK_AGAIN)
        await client.add("q", "b")  # with the question
        await trio.sleep(0.1)
        assert home.count("QOWNER") == 2
        before = owner.count("ADDJOB")
        await client.add("q", "b")
        assert owner.count("ADDJOB") == before


async def test_topics_stay_where_they_are() -> None:
    async with pair() as (home, owner, client):
        home.answers["ADDJOB"] = b"*0\r\n"
        await client.publish("t", "b")
        assert home.names() == ["ADDJOB"]
        assert owner.names() == []


@pytest.mark.parametrize(
    "refusal", [b"-OOM no\r\n", b"-MISCONF no\r\n", b"-LEAVING no\r\n", b"-LOADING no\r\n"]
)
async def test_an_owner_that_refuses_is_avoided_and_the_job_goes_elsewhere(refusal: bytes) -> None:
    async with pair() as (home, owner, client):
        await reach(owner, client)
        owner.answers["ADDJOB"] = refusal
        before = home.count("ADDJOB")
        assert (await client.add("q", "b"))[2:10] == home.id[:8]
        assert (await client.add("q", "b"))[2:10] == home.id[:8]
        assert home.count("ADDJOB") == before + 2
        assert owner.count("ADDJOB") == 2


async def test_an_error_that_says_nothing_about_the_owner_is_raised() -> None:
    async with pair() as (_, owner, client):
        await reach(owner, client)
        owner.answers["ADDJOB"] = b"-MAXLEN no\r\n"
        with pytest.raises(Exception, match="MAXLEN"):
            await client.add("q", "b")
        assert owner.count("ADDJOB") == 2


async def test_a_job_that_may_have_been_added_before_memory_was_short_is_added_again_if_asked() -> (
    None
):
    async with pair() as (home, owner, client):
        await reach(owner, client)
        owner.answers["ADDJOB"] = b"-NOREPL Memory is short on 1 of 2 nodes\r\n"
        with pytest.raises(NoReplError):
            await client.add("q", "b")
        assert (await client.add("q", "b", retry_lost=True))[2:10] == home.id[:8]


async def test_an_owner_that_is_lost_is_avoided_for_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as (home, owner, client):
        await reach(owner, client)
        owner.answers["ADDJOB"] = FakeNode.DROP
        with pytest.raises(ConnectionLost) as lost:  # it may have run
            await client.add("q", "b")
        assert lost.value.maybe_executed
        assert (await client.add("q", "b"))[2:10] == home.id[:8]
        assert owner.count("ADDJOB") == 2
        owner.answers["ADDJOB"] = b"+back\r\n"
        await trio.sleep(AVOID_SECONDS)
        await reach(owner, client, 3)


async def test_a_command_that_may_be_repeated_goes_elsewhere_at_once() -> None:
    async with pair() as (home, owner, client):
        await reach(owner, client)
        owner.answers["ADDJOB"] = FakeNode.DROP
        assert (await client.add("q", "b", retry_lost=True))[2:10] == home.id[:8]
        await owner.stop()
        assert (await client.add("q", "b"))[2:10] == home.id[:8]


async def test_an_owner_that_cannot_be_reached_holds_up_nobody() -> None:
    async with pair() as (home, owner, client):
        await owner.stop()
        for _ in range(3):
            await client.add("q", "b")
            await trio.testing.wait_all_tasks_blocked(0.02)
        assert home.count("ADDJOB") == 3


async def test_a_consumer_waits_at_the_node_in_use_if_the_owner_cannot_be_reached() -> None:
    async with pair() as (home, owner, client):
        await owner.stop()
        waits: list[int] = []

        def wait(command: list[bytes]) -> bytes:
            waits.append(int(command[2]))
            return FakeNode.HANG if waits[-1] > 5_000 else b"*-1\r\n"

        home.answers["GETJOB"] = wait
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.get, "q")
            await home.wait_for(lambda: max(waits, default=0) > 5_000)
            nursery.cancel_scope.cancel()


async def test_a_connection_that_hangs_holds_up_nobody() -> None:
    async with pair() as (home, owner, client):
        owner.answers["HELLO"] = FakeNode.HANG
        for _ in range(3):
            await client.add("q", "b")
            await trio.testing.wait_all_tasks_blocked(0.02)
        assert home.count("ADDJOB") == 3
        assert owner.names() == []


async def test_behind_a_port_mapping_another_node_may_answer_and_is_not_used() -> None:
    async with pair() as (home, owner, client):
        owner.answers["HELLO"] = hello("f" * 40, ("f" * 40, "", owner.port, 1))
        for _ in range(3):
            await client.add("q", "b")
            await trio.testing.wait_all_tasks_blocked(0.02)
        assert home.count("ADDJOB") == 3
        assert owner.names() == []
        assert owner.connections == 1


async def test_a_job_is_settled_where_it_was_taken() -> None:
    async with pair() as (home, owner, client):
        await reach(owner, client)
        other = job(0).replace(b"D-aaaaaaaa", b"D-cccccccc")
        owner.answers["GETJOB"] = other
        [taken] = await client.get("q")
        assert await client.ack(taken.id) == 1
        assert (home.count("ACKJOB"), owner.count("ACKJOB")) == (0, 1)
        id = await client.add("q", "b")
        await client.show(id)
        assert (home.count("SHOW"), owner.count("SHOW")) == (0, 1)
        await client.ack(taken.id, id, "D-aaaaaaaa-" + REST.decode())
        assert (home.count("ACKJOB"), owner.count("ACKJOB")) == (1, 2)


async def test_a_consumer_that_waits_moves_to_the_owner() -> None:
    async with pair() as (home, owner, client):
        home.answers["GETJOB"] = lambda command: b"*-1\r\n"
        owner.answers["GETJOB"] = job(1)
        with trio.fail_after(HANG_SECONDS):
            [taken] = await client.get("q")
        assert b"TIMEOUT" in next(c for c in home.seen if c[0] == b"GETJOB")
        assert owner.count("GETJOB") == 1
        assert taken.body == b"body"


@pytest.mark.parametrize("options", [{"nohang": True}, {"timeout": 0}])
async def test_a_consumer_that_does_not_wait_asks_the_owner_then_the_node_in_use(
    options: GetOptions,
) -> None:
    async with pair() as (home, owner, client):
        await reach(owner, client)
        owner.answers["GETJOB"] = [job(1), b"*-1\r\n"]
        home.answers["GETJOB"] = [job(2), b"*-1\r\n"]
        ids = [job.id for _ in range(3) for job in await client.get("q", **options)]
        assert ids == [JOB_ID.format(1), JOB_ID.format(2)]
        assert (owner.count("GETJOB"), home.count("GETJOB")) == (3, 2)


def pushing(node: FakeNode, pushed: bytes = b"") -> None:
    node.answers["CONSUME"] = lambda command: (
        b":0\r\n" if command[1] == b"STOP" else b"+OK\r\n" + pushed
    )
    node.answers |= {"CREDIT": b"+OK\r\n", "NACK": b":1\r\n", "ENQUEUE": b":1\r\n"}
    hello_of = node.answers.get("HELLO")
    assert hello_of is None


def pushed(number: int) -> bytes:
    return job(number).replace(b"*1\r\n*7\r\n", b">8\r\n$3\r\njob\r\n")


async def test_a_worker_that_waits_moves_to_the_owner_and_back() -> None:
    async with pair() as (home, owner, client):
        pushing(home)
        pushing(owner, pushed(1))
        with trio.fail_after(HANG_SECONDS):
            async for held in client.jobs("q"):
                assert held.body == b"body"
                break
        assert [c[1] for c in home.seen if c[0] == b"CONSUME"] == [b"q", b"STOP"]
        assert owner.count("CONSUME") >= 1
        assert home.count("GETJOB") == 0


async def test_a_worker_at_work_follows_when_another_node_becomes_best(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as (home, owner, client):
        pushing(home)
        pushing(owner, pushed(1))
        async with client.jobs("q") as jobs:
            held = await anext(jobs)
            best(home, home)
            pushing(home, pushed(2))
            await trio.sleep(ASK_AGAIN + 1)
            assert not held.lost
            await held.ack()
            assert owner.count("ACKJOB") == 1  # where it came from
            held = await anext(jobs)
            await held.ack()
            assert home.count("ACKJOB") == 1


async def test_a_job_that_is_given_back_is_changed_where_it_came_from() -> None:
    async with pair() as (home, owner, client):
        home.answers["UPDATEJOB"] = b"-NOJOB Job not known in the context of this node.\r\n"
        owner.answers |= {"NACK": b":1\r\n", "UPDATEJOB": b"+OK\r\n"}
        pushing(home)
        pushing(owner, pushed(1))
        with trio.fail_after(HANG_SECONDS):
            async with client.jobs("q") as jobs:
                held = await anext(jobs)
                await held.nack(delay=1)
                await held.update(body="new")
        assert owner.seen[-1] == [b"UPDATEJOB", held.id.encode(), b"BODY", b"new"]
        assert home.count("UPDATEJOB") == 0


async def test_an_owner_that_is_not_used_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with pair() as (_, owner, client):
        await reach(owner, client)
        assert owner.open_connections == 2
        await trio.sleep(IDLE / 2)
        await client.add("q", "b")
        await trio.sleep(IDLE / 2 + 5)
        assert owner.open_connections == 2
        await trio.sleep(IDLE)
        await owner.wait_for(lambda: owner.open_connections == 0)
        await reach(owner, client, owner.count("ADDJOB") + 1)
    await owner.wait_for(lambda: owner.open_connections == 0)


async def test_a_client_whose_node_is_lost_goes_on_at_the_owner() -> None:
    async with pair() as (home, owner, client):
        best(owner, owner)
        await reach(owner, client)
        connections = owner.connections
        await home.stop()
        await client.show("D-x")
        assert client.address == owner.address
        await client.add("q", "b")
        assert owner.open_connections <= connections


async def test_all_refuse_and_the_error_is_raised() -> None:
    async with pair() as (home, owner, client):
        await reach(owner, client)
        for node in (home, owner):
            node.answers["ADDJOB"] = b"-OOM no\r\n"
        with pytest.raises(OOMError):
            await client.add("q", "b")


async def test_a_batch_for_several_queues_goes_to_the_node_of_each() -> None:
    async with pair() as (home, owner, client):
        home.answers["QOWNER"] = lambda command: array(
            *[place(owner if name == b"q" else home) for name in command[1:]]
        )
        await reach(owner, client)
        await client.add("r", "b")
        await home.wait_for(lambda: [b"QOWNER", b"r"] in home.seen)
        await trio.testing.wait_all_tasks_blocked(0.02)
        before = home.count("ADDJOB"), owner.count("ADDJOB")
        jobs = [NewJob(queue=name, body="b", unique="u") for name in ("q", "r", "@t", "q")]
        added = await add_each(client, jobs, timeout=1, unique_for=1)
        assert [str(id)[2:10] for id in added] == [
            node.id[:8] for node in (owner, home, home, owner)
        ]
        assert (home.count("ADDJOB"), owner.count("ADDJOB")) == (before[0] + 2, before[1] + 2)
        bad = NewJob(queue="q", body=None, unique="u")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await add_each(client, [bad, *jobs], timeout=1, unique_for=1)


async def test_what_concerns_a_queue_is_asked_at_its_node() -> None:
    async with pair() as (home, owner, client):
        await reach(owner, client)
        for node, length in ((home, 1), (owner, 2)):
            node.answers |= {"QLEN": b":%d\r\n" % length, "PAUSE": b"+in\r\n"}
        assert await client.qlen("q") == 2
        await client.pause("q", "in")
        assert (home.count("PAUSE"), owner.count("PAUSE")) == (0, 1)
