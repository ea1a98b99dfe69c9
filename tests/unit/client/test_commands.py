"""The client against scripted nodes: choosing a node, losing it, leaving it, repeating commands."""

import random

import pytest
import trio
import trio.testing

from disque_trio.client import (
    AddManyError,
    AuthError,
    Client,
    ConnectionLost,
    Job,
    LeavingError,
    NoJobError,
    NoReplError,
    ProtocolError,
    connect,
)
from tests.support.fake_disque import FakeNode, array, bulk, fake_node, fake_nodes, job
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.trio

LEAVING = b"-LEAVING This node is leaving the cluster, please connect to a different one\r\n"
NO_COPY_HERE = b"-NOREPL Not enough reachable nodes, since I'm leaving the cluster\r\n"


async def test_commands_become_typed_values() -> None:
    async with fake_node() as node:
        node.answers |= {
            "ADDJOB": b"+D-id\r\n",
            "ACKJOB": b":2\r\n",
            "WORKING": b":300\r\n",
            "QLEN": b":7\r\n",
            "PAUSE": b"+in\r\n",
            "QPEEK": array(bulk(b"q", b"D-1", b"\x00\xff")),
            "SHOW": bulk(
                *(b"id", b"D-1", b"ttl", 9, b"body", b"\x00\xff"),
                *(b"nodes-delivered", [b"n1", b"n2"], b"next-awake-within", None),
            ),
            "QSTAT": b"*-1\r\n",
            "INFO": b"$39\r\n# Server\r\nversion:1\r\n\r\n# Jobs\r\njobs:a:b\r\n",
        }
        async with connect([node.address]) as client:
            assert client.address == node.address
            assert await client.add("q", "body", ttl=60) == "D-id"
            assert await client.ack("D-1", "D-2") == 2
            assert await client.working("D-1") == 300
            assert await client.qlen("q") == 7
            assert await client.pause("q", "in") == "in"
            assert await client.qpeek("q", 1) == [Job("D-1", "q", b"\x00\xff")]
            shown = await client.show("D-1")
            assert shown is not None
            assert shown["ttl"] == 9
            assert shown["body"] == b"\x00\xff"
            assert shown["nodes-delivered"] == ["n1", "n2"]
            assert shown["next-awake-within"] is None
            assert await client.qstat("q") is None
            assert await client.qstat("q", full=True) is None
            assert await client.info() == {"version": "1", "jobs": "a:b"}
            assert (await client.hello()).node_id == node.id
        assert [b"ADDJOB", b"q", b"body", b"5000", b"TTL", b"60"] in node.seen
        assert [b"QSTAT", b"q", b"FULL"] in node.seen


async def test_an_error_reply_raises_the_exception_for_its_code() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["WORKING"] = b"-NOJOB Job not known in the context of this node.\r\n"
        with pytest.raises(NoJobError):
            await client.working("D-1")


async def test_an_exception_in_the_block_is_raised_unchanged() -> None:
    async with fake_node() as node:
        with pytest.raises(KeyError, match="mine"):
            async with connect([node.address]):
                raise KeyError("mine")


async def test_the_node_with_the_lowest_priority_is_chosen_even_if_it_was_not_given() -> None:
    async with fake_nodes(2) as [near, far]:
        near.priority = 5
        async with connect(near.address) as client:
            assert client.address == far.address


async def test_a_better_node_that_cannot_be_reached_does_no_harm() -> None:
    async with fake_nodes(2) as [near, far]:
        await far.stop()
        near.priority = 5
        async with connect([near.address]) as client:
            assert client.address == near.address


async def test_dead_seeds_are_skipped() -> None:
    async with fake_nodes(2) as [dead, node]:
        await dead.stop()
        async with connect([dead.address, dead.address, node.address]) as client:
            assert client.address == node.address


async def test_without_a_reachable_node_the_error_has_addresses_and_reasons() -> None:
    async with fake_node() as node:
        await node.stop()
        with pytest.raises(ConnectionLost, match=f"{node.address}: Connection refused"):
            async with connect([node.address], retry_for=0):
                pass


async def test_a_node_that_comes_up_in_time_is_waited_for() -> None:
    async with fake_node() as node, trio.open_nursery() as nursery:
        await node.stop()
        with trio.fail_after(HANG_SECONDS):
            nursery.start_soon(node.start, nursery)
            async with connect([node.address], retry_for=10) as client:
                assert client.address == node.address
        nursery.cancel_scope.cancel()


async def test_a_server_that_is_not_a_disque_node_is_reported() -> None:
    async with fake_node() as node:
        node.answers["HELLO"] = bulk(b"server", b"redis", b"version", b"7.0.15")
        with pytest.raises(ConnectionLost, match="does not answer HELLO like a Disque node"):
            async with connect([node.address], retry_for=0):
                pass


async def test_the_client_gives_up_on_a_node_that_accepts_but_never_answers() -> None:
    async with fake_nodes(2) as [mute, node]:
        mute.answers["HELLO"] = FakeNode.HANG
        node.others = []
        for _ in range(3):
            async with connect([mute.address, node.address], connect_timeout=0.05) as client:
                assert client.address == node.address


async def test_the_password_is_sent_first_on_every_connection() -> None:
    async with fake_node() as node:
        node.answers |= {"AUTH": b"+OK\r\n", "ADDJOB": b"+D-1\r\n"}
        async with connect([node.address], password="secret") as client:
            await client.add("q", "b")
        assert node.connections == 2
        assert node.seen.count([b"AUTH", b"secret"]) == 2
        assert node.seen[0] == [b"AUTH", b"secret"]


async def test_a_refused_password_is_raised_at_once() -> None:
    async with fake_node() as node:
        node.answers["AUTH"] = b"-ERR invalid password\r\n"
        with trio.fail_after(HANG_SECONDS), pytest.raises(AuthError, match="invalid password"):
            async with connect([node.address], password="wrong"):
                pass


async def test_an_idempotent_command_is_repeated_after_a_lost_connection() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ACKJOB"] = [FakeNode.DROP, FakeNode.DROP, b":1\r\n"]
        before = random.getstate()
        assert await client.ack("D-1") == 1
        assert node.count("ACKJOB") == 3
        assert random.getstate() == before  # the program's random numbers are its own


async def test_an_idempotent_command_is_repeated_at_another_node_when_its_own_is_gone() -> None:
    async with fake_nodes(2) as nodes:
        for node in nodes:
            node.answers["QLEN"] = b":3\r\n"
        async with connect([nodes[0].address]) as client:
            at = next(node for node in nodes if node.address == client.address)
            await at.stop()
            assert await client.qlen("q") == 3
            assert client.address != at.address


async def test_addjob_with_an_unknown_result_is_not_repeated() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = [FakeNode.DROP, b"+D-1\r\n"]
        with pytest.raises(ConnectionLost) as caught:
            await client.add("q", "b")
        assert caught.value.maybe_executed
        assert node.count("ADDJOB") == 1
        assert await client.add("q", "b") == "D-1"


async def test_addjob_is_repeated_when_the_caller_accepts_a_duplicate() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = [FakeNode.DROP, b"+D-1\r\n"]
        assert await client.add("q", "b", retry_lost=True) == "D-1"
        assert node.count("ADDJOB") == 2


async def test_addjob_is_sent_on_another_connection_if_it_was_never_sent() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = b"+D-1\r\n"
        await client.add("q", "b")
        node.drop_all()
        with trio.fail_after(HANG_SECONDS):
            while node.open_connections:
                await trio.testing.wait_all_tasks_blocked()
        assert await client.add("q", "b") == "D-1"


async def test_a_waiting_addjob_does_not_block_other_commands() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers |= {"ADDJOB": FakeNode.HANG, "WORKING": b":1\r\n"}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.add, "q", "b")
            await node.wait_for(lambda: node.count("ADDJOB") == 1)
            with trio.fail_after(HANG_SECONDS):
                assert await client.working("D-1") == 1
            nursery.cancel_scope.cancel()


async def test_an_error_that_lasts_is_raised_at_the_deadline() -> None:
    async with fake_node() as node, connect([node.address], retry_for=0.2) as client:
        node.answers["QLEN"] = FakeNode.DROP
        with trio.fail_after(20), pytest.raises(ConnectionLost):
            await client.qlen("q")
        assert node.count("QLEN") > 1


async def test_many_callers_share_one_failed_attempt_to_reconnect() -> None:
    async with fake_node() as node, connect([node.address], retry_for=0.3) as client:
        await node.stop()
        failures = 0

        async def ask() -> None:
            nonlocal failures
            try:
                await client.qlen("q")
            except ConnectionLost:
                failures += 1

        with trio.fail_after(HANG_SECONDS):
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(ask)
        assert failures == 100


async def test_add_many_returns_the_ids_in_order() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = lambda command: b"+D-" + command[2] + b"\r\n"
        bodies = [str(n) for n in range(500)]
        assert await client.add_many("q", bodies) == [f"D-{body}" for body in bodies]
        assert await client.add_many("q", []) == []


async def test_add_many_reports_which_jobs_failed() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["ADDJOB"] = [b"+D-1\r\n", b"-NOREPL no\r\n", b"+D-3\r\n"]
        with pytest.raises(AddManyError, match="1 of 3") as caught:
            await client.add_many("q", ["a", "b", "c"])
        first, second, third = caught.value.results
        assert (first, third) == ("D-1", "D-3")
        assert isinstance(second, NoReplError)


async def test_get_returns_jobs_and_uses_its_own_connection() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers |= {"GETJOB": FakeNode.HANG, "QLEN": b":0\r\n"}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.get, "q")
            await node.wait_for(lambda: node.count("GETJOB") == 1)
            with trio.fail_after(HANG_SECONDS):
                assert await client.qlen("q") == 0
            nursery.cancel_scope.cancel()
        node.answers["GETJOB"] = job(1, b"x")
        [got] = await client.get("q", timeout=1.5, count=3)
        assert (got.queue, got.body, got.nacks, got.additional_deliveries) == ("q", b"x", 0, 0)
        name, option, limit, *rest = node.seen[-1]
        assert (name, option) == (b"GETJOB", b"TIMEOUT")
        assert 1000 < int(limit) <= 1500
        assert rest == [b"COUNT", b"3", b"WITHCOUNTERS", b"FROM", b"q"]


async def test_get_reuses_its_connection() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["GETJOB"] = b"*-1\r\n"
        for _ in range(5):
            assert await client.get("q", timeout=0) == []
        assert node.connections == 2
        assert node.seen[-1][1] == b"NOHANG"


async def test_get_is_repeated_after_a_lost_connection() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["GETJOB"] = [FakeNode.DROP, job(1)]
        assert len(await client.get("q")) == 1


async def test_a_client_opened_by_a_cancelled_caller_ends_at_once() -> None:
    async with fake_node() as node:
        with trio.fail_after(HANG_SECONDS), trio.CancelScope() as scope:
            scope.cancel()
            async with connect([node.address]):
                pytest.fail("nobody waits for it")
        assert scope.cancelled_caught


async def cancelled_get(client: Client, node: FakeNode) -> None:
    """Get a job; cancel the call once the node has received the request."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.get, "q")
        with trio.fail_after(HANG_SECONDS):
            await node.wait_for(lambda: "GETJOB" in node.names())
        nursery.cancel_scope.cancel()


async def test_a_cancelled_get_frees_its_place_at_the_node() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["GETJOB"] = FakeNode.HANG
        await cancelled_get(client, node)
        with trio.fail_after(HANG_SECONDS):
            await node.wait_for(lambda: node.open_connections == 1)
        assert "ENQUEUE" not in node.names()


async def test_a_job_that_was_already_sent_when_get_was_cancelled_is_requeued() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers |= {"GETJOB": FakeNode.HANG, "ENQUEUE": b":1\r\n"}
        node.late = job(7)
        await cancelled_get(client, node)
        assert node.seen[-1] == [b"ENQUEUE", b"D-aaaaaaaa-000000000000000000000007-05a1"]


async def test_leaving_moves_get_to_another_node_and_does_not_come_back() -> None:
    async with fake_nodes(2) as [leaver, other]:
        leaver.answers |= {"GETJOB": LEAVING, "QLEN": b":1\r\n"}
        other.answers |= {"GETJOB": job(1), "QLEN": b":2\r\n"}
        other.others = []
        other.priority = 5
        async with connect([leaver.address]) as client:
            assert client.address == leaver.address
            # The other node has not heard of it yet and still prefers the leaving node.
            other.others = [(leaver.id, "127.0.0.1", leaver.port, 1)]
            assert len(await client.get("q")) == 1
            assert client.address == other.address
            other.drop_all()
            assert await client.qlen("q") == 2
        assert leaver.count("GETJOB") == 1


@pytest.mark.parametrize("answer", [LEAVING, NO_COPY_HERE])
async def test_leaving_moves_addjob_to_another_node(answer: bytes) -> None:
    async with fake_nodes(2) as [leaver, other]:
        leaver.answers["ADDJOB"] = answer
        other.answers["ADDJOB"] = b"+D-2\r\n"
        other.priority = 5
        leaver.others = [(other.id, "127.0.0.1", other.port, 5)]
        async with connect([leaver.address]) as client:
            assert await client.add("q", "b") == "D-2"


async def test_leaving_of_the_only_node_is_raised_at_the_deadline() -> None:
    async with fake_node() as node, connect([node.address], retry_for=0.2) as client:
        node.answers["GETJOB"] = LEAVING
        with trio.fail_after(20), pytest.raises(LeavingError):
            await client.get("q")


async def test_a_scan_reads_all_pages() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["QSCAN"] = [
            array(b"$1\r\n5\r\n", bulk(b"a", b"b")),
            array(b"$1\r\n9\r\n", bulk()),
            array(b"$1\r\n0\r\n", bulk(b"c")),
        ]
        assert [name async for name in client.qscan(count=2, minlen=1)] == ["a", "b", "c"]
        cursors = [command[1] for command in node.seen if command[0] == b"QSCAN"]
        assert cursors == [b"0", b"5", b"9"]
        assert node.seen[-1][2:] == [b"COUNT", b"2", b"MINLEN", b"1"]


async def test_a_scan_restarts_after_a_lost_connection() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers["JSCAN"] = [
            array(b"$1\r\n5\r\n", bulk(b"D-1")),
            FakeNode.DROP,
            array(b"$1\r\n5\r\n", bulk(b"D-1")),
            array(b"$1\r\n0\r\n", bulk(b"D-2")),
        ]
        assert [id async for id in client.jscan(queue="q")] == ["D-1", "D-1", "D-2"]
        cursors = [command[1] for command in node.seen if command[0] == b"JSCAN"]
        assert cursors == [b"0", b"5", b"0", b"5"]


async def test_an_answer_of_the_wrong_shape_is_a_protocol_error() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        node.answers |= {"QLEN": b"+five\r\n", "GETJOB": b":5\r\n", "QSCAN": b"*0\r\n"}
        with pytest.raises(ProtocolError):
            await client.qlen("q")
        with pytest.raises(ProtocolError):
            await client.get("q")
        with pytest.raises(ProtocolError):
            [name async for name in client.qscan()]


async def test_a_closed_client_refuses_requests() -> None:
    async with fake_node() as node:
        async with connect([node.address]) as client:
            pass
        with pytest.raises(ConnectionLost, match="closed"):
            await client.qlen("q")
        await node.wait_for(lambda: node.open_connections == 0)
