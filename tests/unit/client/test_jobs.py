"""The worker loop against a scripted node: which jobs it acknowledges, requeues, keeps alive."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from disque_trio.client import ConnectionLost, HeldJob, Job, ReplyError, connect
from disque_trio.respclient.delivery import InFlight
from tests.support.fake_disque import JOB_ID, FakeNode, fake_node, fake_nodes, job
from tests.support.harness import HANG_SECONDS

pytestmark = pytest.mark.trio

_log = structlog.get_logger()


def serving(node: FakeNode, jobs: int, retry: int = 300) -> None:
    """Let the node deliver this many jobs, then none."""
    node.answers |= {
        "GETJOB": [*[job(n) for n in range(jobs)], FakeNode.HANG],
        "WORKING": b":%d\r\n" % retry,
        "ACKJOB": b":1\r\n",
        "FASTACK": b":1\r\n",
        "NACK": b":1\r\n",
    }


def settled(node: FakeNode) -> list[tuple[str, int]]:
    """Return which command settled which job."""
    return [
        (command[0].decode(), int(command[1][11:35]))
        for command in node.seen
        if command[0] in (b"ACKJOB", b"NACK", b"FASTACK")
    ]


class Stop(Exception):
    pass


async def test_asking_for_the_next_job_acknowledges_the_previous_one() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 3)
        seen = []
        with trio.fail_after(HANG_SECONDS):
            async with client.jobs("q") as jobs:
                async for held in jobs:
                    seen.append(held.id)
                    assert settled(node) == [("ACKJOB", n) for n in range(len(seen) - 1)]
                    if len(seen) == 3:
                        await held.ack()
                        break
        assert seen == [JOB_ID.format(n) for n in range(3)]
        assert settled(node) == [("ACKJOB", n) for n in range(3)]


async def test_a_body_that_raises_requeues_its_job_at_the_end_of_the_block() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 2)
        with pytest.raises(Stop):  # noqa: PT012
            async with client.jobs("q") as jobs:
                async for held in jobs:
                    if held.id == JOB_ID.format(1):
                        raise Stop
        assert settled(node) == [("ACKJOB", 0), ("NACK", 1)]


async def test_leaving_by_break_requeues_the_current_job() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 1)
        async with client.jobs("q") as jobs:
            async for _ in jobs:
                break
        assert settled(node) == [("NACK", 0)]


async def test_a_plain_loop_that_raises_requeues_its_job_without_a_block() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 1)
        with pytest.raises(Stop):  # noqa: PT012
            async for _ in client.jobs("q"):
                raise Stop
        await node.wait_for(lambda: settled(node) == [("NACK", 0)])


async def test_a_loop_that_is_still_referenced_requeues_its_job_when_the_client_closes() -> None:
    async with fake_node() as node:
        serving(node, 1)
        async with connect([node.address]) as client:
            loop = client.jobs("q")
            async for _ in loop:
                break
            assert settled(node) == []
        assert settled(node) == [("NACK", 0)]


async def test_a_cancelled_body_requeues_its_job() -> None:
    async with fake_node() as node:
        serving(node, 1)
        with trio.CancelScope() as scope:
            async with connect([node.address]) as client:
                async for _ in client.jobs("q"):
                    scope.cancel()
                    await trio.sleep_forever()
        assert scope.cancelled_caught
        assert settled(node) == [("NACK", 0)]


async def test_a_stopped_loop_finishes_its_job_and_takes_no_other() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 2)
        async for _ in (jobs := client.jobs("q")):
            await jobs.stop()
        assert settled(node) == [("ACKJOB", 0)]
        assert node.count("GETJOB") == 1


async def test_a_loop_that_is_cancelled_while_it_waits_takes_no_job() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 1)
        node.answers["ENQUEUE"] = b":1\r\n"
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def consume() -> None:
                async for _ in client.jobs("q"):
                    node.late = job(5)

            await node.wait_for(lambda: node.count("GETJOB") == 2)
            nursery.cancel_scope.cancel()
        assert settled(node) == [("ACKJOB", 0)]
        assert node.seen[-1][0] == b"ENQUEUE"


async def test_a_job_whose_acknowledgement_is_cancelled_is_still_acknowledged() -> None:
    async with fake_node() as node:
        serving(node, 1)
        node.answers["ACKJOB"] = [FakeNode.HANG, b":1\r\n"]
        with trio.CancelScope() as scope:
            async with connect([node.address]) as client, trio.open_nursery() as nursery:

                async def worker() -> None:
                    async for _ in client.jobs("q"):
                        pass

                nursery.start_soon(worker)
                await node.wait_for(lambda: node.count("ACKJOB") == 1)
                node.drop_all()
                scope.cancel()
        assert ("NACK", 0) not in settled(node)
        assert settled(node)[-1] == ("ACKJOB", 0)


@pytest.mark.parametrize("how", ["ack", "fastack", "nack"])
async def test_a_job_that_was_settled_explicitly_is_not_settled_again(how: str) -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 2)
        async with client.jobs("q") as jobs:
            async for held in jobs:
                await getattr(held, how)()
                assert held.settled
                if held.id == JOB_ID.format(1):
                    break
        name = {"ack": "ACKJOB", "fastack": "FASTACK", "nack": "NACK"}[how]
        assert settled(node) == [(name, 0), (name, 1)]


class LaterOn:
    """A source that settles a job when it is told to."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.retired = False
        self.go_on = trio.Event()
        self.job: HeldJob | None = None

    async def run(self) -> None:
        try:
            await self.go_on.wait()
            assert self.job is not None
            await self.job.ack()
        finally:
            self.ended.set()

    def retire(self) -> None:
        self.retired = True
        self.go_on.set()


async def test_a_detached_job_is_settled_by_its_source_alone() -> None:
    source = LaterOn()
    async with fake_node() as node:
        async with connect([node.address]) as client:
            serving(node, 2)
            async with client.jobs("q") as jobs:
                source.job = await anext(jobs)
                source.job.detach(source)
                second = await anext(jobs)
                await second.ack()
            assert settled(node) == [("ACKJOB", 1)]
            assert not source.retired
        assert source.retired
    assert settled(node) == [("ACKJOB", 1), ("ACKJOB", 0)]


async def test_nothing_is_sent_for_a_released_job() -> None:
    async with fake_node() as node:
        serving(node, 2)
        async with connect([node.address]) as client:
            async for held in client.jobs("q"):
                held.release()
                if held.id == JOB_ID.format(1):
                    break
        assert settled(node) == []
        assert "WORKING" not in node.names()


async def test_working_is_sent_at_half_the_retry_time_while_the_body_runs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls: list[float] = []

    async def run_one(role: str, command: list[str], **options: object) -> int:
        calls.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        return 10

    async with trio.open_nursery() as nursery:
        held = _held(run_one)
        start = trio.current_time()
        InFlight(nursery, _log).add(held)
        await trio.sleep(22)
        held.release()
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert [round(call - start, 2) for call in calls] == [0.05, 5.05, 10.05, 15.05, 20.05]


def _held(run_one: Callable[..., Awaitable[int]]) -> HeldJob:
    """Return a job whose commands go to a function, for tests that move the clock."""
    router, session = SimpleNamespace(run_one=run_one), SimpleNamespace()
    session.job_taken = session.job_settled = lambda: None
    return HeldJob(router, session, Job("D-1", "q", b""), lambda _: None)  # type: ignore[arg-type]


async def test_no_working_follows_a_nack_since_it_would_take_the_job_out_of_its_queue(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls: list[str] = []

    async def run_one(role: str, command: list[str], **options: object) -> int:
        calls.append(command[0])
        await trio.sleep(0 if command[0] == "WORKING" else 100)
        return 10

    async with trio.open_nursery() as nursery:
        held = _held(run_one)
        InFlight(nursery, _log).add(held)
        await trio.sleep(6)
        await held.nack()
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert calls == ["WORKING", "WORKING", "NACK"]


async def test_a_job_with_retry_0_needs_no_working(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls: list[str] = []

    async def run_one(role: str, command: list[str], **options: object) -> int:
        calls.append(command[0])
        await trio.lowlevel.checkpoint()
        return 0

    async with trio.open_nursery() as nursery:
        held = _held(run_one)
        InFlight(nursery, _log).add(held)
        await trio.sleep(1000)
        nursery.cancel_scope.cancel()
    assert calls == ["WORKING"]
    assert not held.lost


@pytest.mark.parametrize("retry", [10, 0])
async def test_the_last_progress_is_sent_soon_and_not_too_often(
    autojump_clock: trio.testing.MockClock, retry: int
) -> None:
    calls: list[tuple[float, list[str]]] = []

    async def run_one(role: str, command: list[str], **options: object) -> int:
        calls.append((round(trio.current_time() - start, 2), command[1:]))
        await trio.lowlevel.checkpoint()
        return retry

    async with trio.open_nursery() as nursery:
        held = _held(run_one)
        start = trio.current_time()
        InFlight(nursery, _log).add(held)
        for n in range(9):
            held.progress(n / 10, "a" * 201)
            await trio.sleep(0.03)
        await trio.sleep(1)
        held.progress(1, "x")
        with pytest.raises(ValueError, match="from 0 to 1"):
            held.progress(1.1)
        wrong: Any = None
        with pytest.raises(TypeError):
            held.progress(0.5, wrong)
        await trio.sleep(2)
        held.release()
        held.progress(1, "too late")
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    said = [(at, command[2:]) for at, command in calls if len(command) > 1]
    assert said == [
        (0.0, ["0", "a" * 200]),
        (0.1, ["0.3", "a" * 200]),
        (0.2, ["0.6", "a" * 200]),
        (0.3, ["0.8", "a" * 200]),
        (1.27, ["1", "x"]),
    ]
    assert len(calls) == 5


async def test_a_node_that_knows_no_progress_hears_that_the_job_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls: list[int] = []

    async def run_one(role: str, command: list[str], **options: object) -> int:
        await trio.lowlevel.checkpoint()
        calls.append(len(command))
        if len(command) > 2:
            raise ReplyError("ERR", "wrong number of arguments for 'working' command")
        return 10

    async with trio.open_nursery() as nursery:
        held = _held(run_one)
        InFlight(nursery, _log).add(held)
        held.progress(0.5)
        await trio.sleep(6)
        nursery.cancel_scope.cancel()
    assert calls == [5, 2, 2]
    assert not held.lost


async def test_jobs_that_took_long_leave_nothing_behind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def run_one(role: str, command: list[str], **options: object) -> int:
        await trio.lowlevel.checkpoint()
        return 10_000

    async with trio.open_nursery() as nursery:
        in_flight = InFlight(nursery, _log)
        stays = _held(run_one)
        in_flight.add(stays)
        for _ in range(30):
            jobs = [_held(run_one) for _ in range(100)]
            for held in jobs:
                in_flight.add(held)
            await trio.sleep(1)  # so the next heartbeat is hours away
            for held in jobs:
                held.release()
        assert len(in_flight.heartbeats._turns) < 1100
        assert stays._turn in in_flight.heartbeats._turns
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("code", [b"TOOLATE", b"NOJOB", b"ACKED"])
async def test_a_job_that_cannot_be_postponed_is_marked_lost_and_still_acknowledged(
    code: bytes,
) -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 1)
        node.answers["WORKING"] = b"-" + code + b" text\r\n"
        async with client.jobs("q") as jobs:
            async for held in jobs:
                with trio.fail_after(HANG_SECONDS):
                    while not held.lost:
                        await trio.sleep(0.01)
                await held.ack()
                break
        assert settled(node) == [("ACKJOB", 0)]
        assert node.count("WORKING") == 1


NOJOB = b"-NOJOB Job not known in the context of this node.\r\n"


async def test_a_job_whose_node_is_lost_is_kept_at_whichever_node_has_a_copy() -> None:
    async with fake_nodes(3) as [home, empty, holder]:
        serving(home, 1, retry=1)
        empty.answers["WORKING"] = NOJOB
        holder.answers["WORKING"] = b":1\r\n"
        home.others.pop()  # so the client goes on at the node that has no copy
        async with connect([home.address]) as client, client.jobs("q") as jobs:
            held = await anext(jobs)
            assert held is not None
            await home.wait_for(lambda: home.count("WORKING") == 1)
            await home.stop()
            await holder.wait_for(lambda: holder.count("WORKING") == 3)
            assert empty.count("WORKING") >= 2
            assert not held.lost


async def test_a_job_whose_node_is_away_is_not_lost_since_others_do_not_have_it() -> None:
    async with fake_nodes(2) as [home, other]:
        serving(home, 1, retry=1)
        other.answers["WORKING"] = NOJOB
        async with connect([home.address]) as client, client.jobs("q") as jobs:
            held = await anext(jobs)
            assert held is not None
            await home.wait_for(lambda: home.count("WORKING") == 1)
            await home.stop()
            await other.wait_for(lambda: other.count("WORKING") >= 2)
            assert not held.lost
            async with trio.open_nursery() as nursery:
                await home.start(nursery)
                await home.wait_for(lambda: home.count("WORKING") == 2)
                nursery.cancel_scope.cancel()


async def test_a_job_that_no_node_knows_any_more_is_lost() -> None:
    async with fake_nodes(2) as [home, other]:
        serving(home, 1, retry=1)
        other.answers["WORKING"] = NOJOB
        async with connect([home.address]) as client, client.jobs("q") as jobs:
            held = await anext(jobs)
            assert held is not None
            await home.wait_for(lambda: home.count("WORKING") == 1)
            home.answers["WORKING"] = NOJOB
            home.drop_all()
            with trio.fail_after(HANG_SECONDS):
                while not held.lost:
                    await trio.sleep(0.01)


async def test_working_continues_after_a_lost_connection() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 1)
        node.answers["WORKING"] = [FakeNode.DROP, b":1\r\n"]
        async with client.jobs("q") as jobs:
            async for held in jobs:
                await node.wait_for(lambda: node.count("WORKING") == 3)
                assert not held.lost
                break


async def test_a_job_of_a_node_that_was_left_is_settled_there() -> None:
    async with fake_nodes(2) as [leaver, other]:
        serving(leaver, 1)
        leaver.others = [(other.id, "127.0.0.1", other.port, 5)]
        other.priority = 5
        serving(other, 1)
        async with connect([leaver.address]) as client, client.jobs("q") as jobs:
            held = await anext(jobs)
            leaver.answers["GETJOB"] = b"-LEAVING bye\r\n"
            [taken] = await client.get("q")
            assert client.address == other.address
            await leaver.wait_for(lambda: leaver.count("WORKING") == 1)
            assert held is not None
            await held.ack()
            assert settled(leaver) == [("ACKJOB", 0)]
            assert settled(other) == []
            await leaver.wait_for(lambda: leaver.open_connections == 0)
            assert taken.queue == "q"


@pytest.mark.parametrize("how", ["nack", "requeue", "dead"])
async def test_a_job_is_handed_back_at_its_node_if_that_returns_and_no_other_has_the_job(
    how: str,
) -> None:
    async with fake_nodes(2) as [home, other]:
        serving(home, 1)
        home.others = [(other.id, "127.0.0.1", other.port, 1)]
        home.answers["ENQUEUE"] = b":1\r\n"
        other.answers |= {"NACK": b":0\r\n", "ENQUEUE": b":0\r\n"}
        async with connect([home.address]) as client, client.jobs("q") as jobs:
            held = await anext(jobs)
            assert held is not None
            await home.stop()
            name = "ENQUEUE" if how == "requeue" else "NACK"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(getattr(held, how))
                await other.wait_for(lambda: other.count(name) == 1)
                await home.start(nursery)
                await home.wait_for(lambda: home.count(name) == 1)
                nursery.cancel_scope.cancel()


async def test_work_runs_as_many_concurrent_handlers_as_requested() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 10)
        running = most = 0
        three = trio.Event()

        async def handler(held: HeldJob) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 3:
                three.set()
            await three.wait()
            await trio.sleep(0)
            running -= 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: client.work(handler, "q", concurrency=3))
            await node.wait_for(lambda: len(settled(node)) == 10)
            nursery.cancel_scope.cancel()
        assert most == 3
        assert set(settled(node)) == {("ACKJOB", n) for n in range(10)}


async def test_a_handler_that_raises_requeues_its_job_and_work_continues() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 3)

        async def handler(held: HeldJob) -> None:
            if held.id == JOB_ID.format(1):
                raise Stop

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.work, handler, "q")
            await node.wait_for(lambda: len(settled(node)) == 3)
            nursery.cancel_scope.cancel()
        # The last one twice if the cancellation came before the reply.
        assert settled(node)[:3] == [("ACKJOB", 0), ("NACK", 1), ("ACKJOB", 2)]
        assert set(settled(node)[3:]) <= {("ACKJOB", 2)}


async def test_work_raises_a_plain_exception_when_no_node_is_left() -> None:
    async with fake_node() as node, connect([node.address], retry_for=0.1) as client:
        serving(node, 0)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def stop() -> None:
                await node.wait_for(lambda: node.count("GETJOB") == 4)
                await node.stop()

            async def handler(held: HeldJob) -> None: ...

            with trio.fail_after(20), pytest.raises(ConnectionLost):
                await client.work(handler, "q", concurrency=4)


async def test_cancelling_work_requeues_running_jobs() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        serving(node, 2)

        async def handler(held: HeldJob) -> None:
            await trio.sleep_forever()

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: client.work(handler, "q", concurrency=2))
                await node.wait_for(lambda: node.count("WORKING") == 2)
                scope.cancel()
        assert sorted(settled(node)) == [("NACK", 0), ("NACK", 1)]


async def test_a_loop_needs_a_queue() -> None:
    async with fake_node() as node, connect([node.address]) as client:
        with pytest.raises(ValueError, match="queue"):
            client.jobs()
        with pytest.raises(ValueError, match="queue"):
            await client.get()
