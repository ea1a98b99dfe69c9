"""The worker loop over push, against a scripted node: how much credit it asks for, and what happens
to jobs that arrive while nobody waits."""

import gc

import pytest
import trio
import trio.testing

from disque_trio.client import ConnectionLost, HeldJob, Job, LeavingError, connect
from tests.support.fake_disque import JOB_ID, FakeNode, fake_node, fake_nodes, job
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.trio


def push(number: int) -> bytes:
    """Return the push message with this job."""
    return job(number).replace(b"*1\r\n*7\r\n", b">8\r\n$3\r\njob\r\n")


def pushing(node: FakeNode, *first: int) -> None:
    """Let the node support CONSUME and push these jobs with the reply."""
    node.answers |= {
        "CONSUME": _consume(b"".join(map(push, first))),
        "CREDIT": b"+OK\r\n",
        "WORKING": b":300\r\n",
        "ACKJOB": b":1\r\n",
        "NACK": b":1\r\n",
        "ENQUEUE": b":1\r\n",
        "GETJOB": FakeNode.HANG,
    }


def _consume(pushed: bytes) -> object:
    return lambda command: b":0\r\n" if command[1] == b"STOP" else b"+OK\r\n" + pushed


def seen(node: FakeNode, *without: str) -> list[str]:
    """Return the commands except WORKING, with their job's number or other argument."""
    words = []
    for command in node.seen:
        name = command[0].decode()
        if name in ("HELLO", "WORKING", *without):
            continue
        about = command[1].decode()
        words.append(f"{name} {int(about[11:35]) if about.startswith('D-') else about}")
    return words


async def test_a_job_costs_one_command_and_the_next_comes_with_its_answer() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        node.answers["ACKJOB"] = [b":1\r\n" + push(n) for n in (1, 2, 3)]
        async with client.jobs("q", "r", withheaders=True) as jobs:
            ids = [(await anext(jobs)).id for _ in range(4)]
        assert ids == [JOB_ID.format(n) for n in range(4)]
        [consume] = [c for c in node.seen if c[0] == b"CONSUME" and c[1] != b"STOP"]
        assert consume[1:] == [b"q", b"r", b"CREDIT", b"1", b"WITHCOUNTERS", b"WITHHEADERS"]
        assert seen(node)[:4] == ["CONSUME q", "ACKJOB 0", "ACKJOB 1", "ACKJOB 2"]
        assert sorted(seen(node)[4:]) == ["CONSUME STOP", "NACK 3"]


async def test_working_uses_the_connection_of_nack_so_that_it_cannot_arrive_after_it() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        async with client.jobs("q") as jobs:
            held = await anext(jobs)
            await node.wait_for(lambda: node.count("WORKING") == 1)
            await held.nack()
        on = {name: number for number, name in node.seen_on}
        assert on["WORKING"] == on["CONSUME"] == on["NACK"]


async def test_working_uses_another_connection_when_that_of_the_pushes_is_lost() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        node.answers["WORKING"] = [FakeNode.DROP, b":300\r\n"]
        async with client.jobs("q") as jobs:
            held = await anext(jobs)
            await node.wait_for(lambda: node.count("WORKING") == 2)
            assert not held.lost
            first, second = [number for number, name in node.seen_on if name == "WORKING"]
            assert first != second


async def test_a_job_that_arrives_before_the_task_waits_goes_to_that_task() -> None:
    """The reply and the job are read at once, before the waiting task can run."""
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        node.answers["ACKJOB"] = [b":1\r\n" + push(1), b":1\r\n"]
        async with client.jobs("q") as jobs:
            await anext(jobs)
            assert (await anext(jobs)).id == JOB_ID.format(1)
        assert "ENQUEUE 1" not in seen(node)


async def test_a_job_that_is_settled_explicitly_returns_its_credit_first() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        async with client.jobs("q") as jobs:
            held = await anext(jobs)
            await held.ack()
            assert seen(node) == ["CONSUME q", "CREDIT 0", "ACKJOB 0"]
            node.answers["CREDIT"] = b"+OK\r\n" + push(1)
            assert (await anext(jobs)).id == JOB_ID.format(1)
            assert seen(node)[3:] == ["CREDIT 1"]


async def test_a_cancelled_task_returns_its_credit_and_a_late_job_is_requeued() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node)
        node.answers["CREDIT"] = push(5) + b"+OK\r\n"
        jobs = client.jobs("q")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(anext, jobs)
            await node.wait_for(lambda: seen(node) == ["CONSUME q"])
            await trio.testing.wait_all_tasks_blocked(0.02)
            nursery.cancel_scope.cancel()
        await node.wait_for(lambda: "ENQUEUE 5" in seen(node))
        assert seen(node) == ["CONSUME q", "CREDIT 0", "ENQUEUE 5"]
        node.answers["CREDIT"] = b"+OK\r\n" + push(6)
        assert (await anext(jobs)).id == JOB_ID.format(6)
        assert seen(node)[3:] == ["CREDIT 1"]


async def test_a_job_that_arrives_with_the_cancellation_is_requeued() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node)
        jobs = client.jobs("q")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(anext, jobs)
            await node.wait_for(lambda: seen(node) == ["CONSUME q"])
            await trio.testing.wait_all_tasks_blocked(0.02)
            [feed] = client._in_flight._sources
            nursery.cancel_scope.cancel()
            feed._pushed([b"job", b"q", JOB_ID.format(7).encode(), b"body"])  # type: ignore[attr-defined]
        await node.wait_for(lambda: "ENQUEUE 7" in seen(node))
        assert seen(node) == ["CONSUME q", "CREDIT 0", "ENQUEUE 7"]


async def test_a_job_that_timed_out_meanwhile_does_not_cause_another_delivery() -> None:
    """The node requeued it when its retry time had passed, so it has credit for another."""
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        node.answers["WORKING"] = b":300\r\n"
        async with client.jobs("q") as jobs:
            await anext(jobs)
            [feed] = client._in_flight._sources
            feed._pushed([b"job", b"q", JOB_ID.format(1).encode(), b"body"])  # type: ignore[attr-defined]
            await node.wait_for(lambda: "ENQUEUE 1" in seen(node))
            assert seen(node) == ["CONSUME q", "CREDIT 0", "ENQUEUE 1"]
            node.answers["ACKJOB"] = b":1\r\n" + push(2)
            assert (await anext(jobs)).id == JOB_ID.format(2)
            assert seen(node)[3:] == ["CREDIT 1", "ACKJOB 0"]


async def test_a_closed_loop_stops_the_pushes_and_disconnects() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        async for held in client.jobs("q"):
            assert node.open_connections == 2
            await held.ack()
            break
        gc.collect()
        await node.wait_for(lambda: node.open_connections == 1)
        assert seen(node)[-1] == "CONSUME STOP"


async def test_a_stopped_loop_keeps_its_connection_until_its_job_is_done() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        async for _ in (jobs := client.jobs("q")):
            await jobs.stop()
            await node.wait_for(lambda: "CONSUME STOP" in seen(node))
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert node.open_connections == 2
        assert seen(node) == ["CONSUME q", "CONSUME STOP", "ACKJOB 0"]
        await node.wait_for(lambda: node.open_connections == 1)


async def test_a_stopped_loop_tells_when_no_job_is_on_its_way_any_more() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        first, other = client.loops("q", count=2)
        held = await anext(first)
        for loop in (first, other):
            await loop.stop()
        assert "CONSUME STOP" not in seen(node)
        await other.quiet()
        assert "CONSUME STOP" in seen(node)
        await held.nack()


async def test_a_loop_that_never_took_a_job_is_quiet() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        [loop] = client.loops("q", count=1)
        await loop.stop()
        await loop.quiet()


async def test_handlers_share_a_connection_with_one_credit_each() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node)
        node.answers["CREDIT"] = [b"+OK\r\n", b"+OK\r\n" + push(0) + push(1) + push(2), b"+OK\r\n"]
        running = trio.Semaphore(0)

        async def handler(held: HeldJob) -> None:
            running.release()
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: client.work(handler, "q", concurrency=3))
            with trio.fail_after(HANG_SECONDS):
                for _ in range(3):
                    await running.acquire()
            nursery.cancel_scope.cancel()
        assert seen(node, "NACK")[:3] == ["CONSUME q", "CREDIT 2", "CREDIT 3"]
        assert {f"NACK {n}" for n in range(3)} <= {*seen(node)}
        assert node.connections == 2


async def test_a_failed_handler_does_not_get_its_job_back_at_once() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)

        async def handler(held: HeldJob) -> None:
            raise ValueError

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.work, handler, "q")
            await node.wait_for(lambda: len(seen(node)) == 4)
            nursery.cancel_scope.cancel()
        assert seen(node)[:4] == ["CONSUME q", "CREDIT 0", "NACK 0", "CREDIT 1"]


@pytest.mark.parametrize("unknown", ["HELLO", "CONSUME"])
async def test_a_node_that_cannot_push_is_asked_once(unknown: str) -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node)
        if unknown == "HELLO":
            node.answers["HELLO"] = b"-ERR wrong number of arguments for 'hello' command\r\n"
        else:
            del node.answers["CONSUME"]
        node.answers["GETJOB"] = [job(0), job(1), job(2), job(3)]
        for _ in range(2):
            async with client.jobs("q") as jobs:
                await anext(jobs)
                await anext(jobs)
        assert node.count("GETJOB") == 4
        assert [c for c in node.seen if c[0] == b"HELLO"][1:] == [[b"HELLO", b"3"]]
        assert node.count("CONSUME") == (unknown == "CONSUME")


@pytest.mark.parametrize("how", ["stopped", "-LEAVING"])
async def test_loops_continue_elsewhere_when_the_node_leaves(how: str) -> None:
    async with fake_nodes(2) as [leaver, other]:
        pushing(leaver)
        leaver.others = [(other.id, "127.0.0.1", other.port, 5)]
        pushing(other, 1)
        if how == "stopped":
            leaver.answers["CONSUME"] = _consume(b">2\r\n$7\r\nstopped\r\n$7\r\nLEAVING\r\n")  # type: ignore[assignment]
        else:
            leaver.answers["CONSUME"] = b"-LEAVING bye\r\n"
        async with connect([leaver.address]) as client, client.jobs("q") as jobs:
            assert (await anext(jobs)).id == JOB_ID.format(1)
            assert client.address == other.address
            await leaver.wait_for(lambda: leaver.open_connections == 0)


async def test_leaving_of_the_only_node_is_reported() -> None:
    async with fake_node() as node, connect([node.address], retry_for=0.1) as client:
        pushing(node)
        node.answers["CONSUME"] = b"-LEAVING bye\r\n"
        with pytest.raises(LeavingError):
            await anext(client.jobs("q"))


async def test_loops_raise_when_the_node_is_gone() -> None:
    async with fake_node() as node, connect([node.address], retry_for=0.1) as client:
        pushing(node)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def stop() -> None:
                await node.wait_for(lambda: "CREDIT 4" in seen(node))
                await node.stop()

            async def handler(held: HeldJob) -> None: ...

            with trio.fail_after(20), pytest.raises(ConnectionLost):
                await client.work(handler, "q", concurrency=4)


async def test_working_is_sent_at_once_when_the_connection_of_a_job_is_lost() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        async with client.jobs("q") as jobs:
            held = await anext(jobs)
            await node.wait_for(lambda: node.count("WORKING") == 1)
            pushing(node)
            [feed] = client._in_flight._sources
            feed.connection.close()  # type: ignore[attr-defined]
            await node.wait_for(lambda: node.count("WORKING") == 2)
            await held.ack()
            assert seen(node)[-1] == "ACKJOB 0"


async def test_a_released_job_is_not_requeued_when_its_connection_ends() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        node.answers["GETJOB"] = [job(1), FakeNode.HANG]
        async for held in client.jobs("q"):
            if held.id == JOB_ID.format(1):
                await held.ack()
                break
            held.release()
        await node.wait_for(lambda: node.count("CONSUME") == 4)
        consumes = [command[1:] for command in node.seen if command[0] == b"CONSUME"]
        assert consumes[1:] == [
            [b"STOP"],
            [b"q", b"CREDIT", b"1", b"ONLOSS", b"retry"],
            [b"STOP"],
        ]
        assert node.count("GETJOB") == 1


async def test_a_node_that_does_not_know_onloss_soon_keeps_jobs_for_their_retry_time() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node)
        known = _consume(push(0))
        assert callable(known)

        def older(command: list[bytes]) -> object:
            return b"-ERR syntax error\r\n" if b"soon" in command else known(command)

        node.answers["CONSUME"] = older
        [loop] = client.loops("q", count=1, calm=True)
        async with loop as jobs:
            assert (await anext(jobs)).id == JOB_ID.format(0)
        words = [command[-2:] for command in node.seen if command[0] == b"CONSUME"]
        assert words[:2] == [[b"ONLOSS", b"soon"], [b"ONLOSS", b"retry"]]
        assert node.count("GETJOB") == 0


async def test_the_reason_of_the_last_nack_is_asked_for_once_and_only_if_there_was_a_nack() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        node.answers["SHOW"] = b"*4\r\n$2\r\nid\r\n$1\r\nD\r\n$11\r\nlast-reason\r\n$3\r\nwhy\r\n"
        async with client.jobs("q") as jobs:
            held = await anext(jobs)
            assert await held.last_reason() == ""
            assert node.count("SHOW") == 0
            again = HeldJob(
                held._router, held._session, Job(held.id, "q", b"", nacks=1), lambda job: None
            )
            assert [await again.last_reason() for _ in range(2)] == ["why", "why"]
            assert node.count("SHOW") == 1
            await held.ack()


# ---- patterns ---------------------------------------------------------------------------------


async def test_jobs_of_queues_that_match_are_pushed_where_the_node_can() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        [loop] = client.loops("mail.*", "sms", count=1, pattern="nodead")
        held = await anext(loop)
        await held.ack()
        await loop.stop()
        [consume] = [c for c in node.seen if c[0] == b"CONSUME" and c[1] != b"STOP"]
        wanted = [b"mail.*", b"sms", b"CREDIT", b"1", b"PATTERN", b"NODEAD", b"WITHCOUNTERS"]
        assert consume[1:] == wanted


async def test_a_node_that_pushes_by_name_only_is_asked_for_jobs_by_pattern() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 1)
        by_name = node.answers["CONSUME"]

        def older(command: list[bytes]) -> object:
            return b"-ERR syntax error\r\n" if b"PATTERN" in command else by_name(command)

        node.answers["CONSUME"] = older
        node.answers["GETJOB"] = [job(0), FakeNode.HANG]
        async with client.jobs("mail.*", pattern=True) as jobs:
            held = await anext(jobs)
            assert held.id == JOB_ID.format(0)
            await held.ack()
        [getjob] = [c for c in node.seen if c[0] == b"GETJOB"]
        assert getjob[-3:] == [b"PATTERN", b"FROM", b"mail.*"]
        async with client.jobs("q") as jobs:
            held = await anext(jobs)
            assert held.id == JOB_ID.format(1)
            await held.ack()


# ---- cancelled jobs -----------------------------------------------------------------------------


def cancelled(number: int) -> bytes:
    """Return the push message that says that a job was cancelled."""
    return b">2\r\n$9\r\ncancelled\r\n$40\r\n%b\r\n" % JOB_ID.format(number).encode()


async def test_a_loop_hears_of_a_cancelled_job_and_takes_no_other_before_it_is_dropped() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        node.answers["WORKING"] = b":300\r\n" + cancelled(0)
        [loop] = client.loops("q", count=1, calm=True)
        async with loop as jobs:
            held = await anext(jobs)
            heard = trio.Event()
            held.when_cancelled(heard.set)
            assert not held.lost
            with trio.fail_after(HANG_SECONDS):
                await heard.wait()
            assert held.lost
            await node.wait_for(lambda: node.count("CREDIT") == 1)
            node.answers["CREDIT"] = b"+OK\r\n" + push(1)
            held.drop()
            assert (await anext(jobs)).id == JOB_ID.format(1)
        assert seen(node)[:3] == ["CONSUME q", "CREDIT 0", "CREDIT 1"]
        assert "ENQUEUE 1" not in seen(node)


@pytest.mark.parametrize(
    ("said", "terminate"),
    [
        (cancelled(0), False),
        (cancelled(0).replace(b">2", b">3") + b"$9\r\nterminate\r\n", True),
        (cancelled(0).replace(b">2", b">3") + b"$5\r\nlater\r\n", False),
        (b"-CANCELLED Job was cancelled, it will not be delivered again.\r\n", False),
    ],
)
async def test_a_loop_hears_whether_the_task_of_a_cancelled_job_has_to_end(
    said: bytes, terminate: bool
) -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        node.answers["WORKING"] = said if said[:1] == b"-" else b":300\r\n" + said
        [loop] = client.loops("q", count=1, calm=True)
        async with loop as jobs:
            held = await anext(jobs)
            heard = trio.Event()
            held.when_cancelled(heard.set)
            with trio.fail_after(HANG_SECONDS):
                await heard.wait()
            assert (held.lost, held.terminate) == (True, terminate)
            held.drop()


async def test_a_loop_hears_of_a_cancelled_job_whose_task_then_ends_as_usual() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        pushing(node, 0)
        node.answers["WORKING"] = b":300\r\n" + cancelled(0)
        node.answers["ACKJOB"] = b":0\r\n"
        [loop] = client.loops("q", count=1, calm=True)
        async with loop as jobs:
            held = await anext(jobs)
            await node.wait_for(lambda: node.count("CREDIT") == 1)
            assert held.lost
            await held.ack()
            with trio.move_on_after(0.05):
                await anext(jobs)
        assert seen(node)[:4] == ["CONSUME q", "CREDIT 0", "ACKJOB 0", "CREDIT 1"]
