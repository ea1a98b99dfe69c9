"""Jobs whose tasks have ended while no node could be reached."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from disque_trio.client import ConnectionLost, NoReplError, NoUniqueError
from disque_trio.tasks import Disque, settling
from disque_trio.tasks.calling import InLoop
from disque_trio.tasks.execution import UNKNOWN_RETRIES, Execution
from disque_trio.tasks.messages import Result, Step
from disque_trio.tasks.settling import PATIENCE, Settling
from tests.support.fake_job import FakeJob, FakeNode

pytestmark = pytest.mark.trio


class Said:
    """A log."""

    def __init__(self) -> None:
        self.fields: list[dict[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.fields.append(fields)


class Program:
    """An app with a task that succeeds and one that fails, and the runs of both."""

    def __init__(self) -> None:
        self.app = Disque("disque://nowhere.invalid")
        self.said = Said()
        self.settling = Settling(self.said)
        self.execution = Execution(self.app.core, InLoop(None), self.settling)
        self.node = FakeNode()
        self.runs: list[str] = []

        @self.app.task(name="work")
        async def work() -> int:
            self.runs.append("work")
            return 1

        @self.app.task(name="fail", retries=3, backoff=(2, 2))
        async def fail() -> None:
            self.runs.append("fail")
            raise ValueError

    def job(self, task: str, number: int = 0, **options: Any) -> FakeJob:
        job = FakeJob(task, node=self.node, **options)
        job.id = f"D-{number}"
        return job

    async def run(self, job: FakeJob) -> str:
        return (await self.execution.run(job)).kind


@pytest.fixture
def program() -> Program:
    return Program()


ACKED = ("ack", Result("application/json", b"1"))


async def test_a_slot_is_free_although_no_node_takes_the_outcome(
    program: Program, autojump_clock: MockClock
) -> None:
    program.node.away = True
    jobs = [
        program.job("work", 0),
        program.job("fail", 1),
        program.job("nobody", 2, nacks=UNKNOWN_RETRIES),
    ]
    began = trio.current_time()
    kinds = [await program.run(job) for job in jobs]
    assert trio.current_time() - began == pytest.approx(len(jobs) * PATIENCE)
    assert kinds == ["done", "retried", "dead"]
    await trio.sleep(600)
    assert [job.settled for job in jobs] == [()] * 3
    assert program.settling.left == ["D-0", "D-1", "D-2"]
    program.node.away = False
    with trio.fail_after(5):
        await program.settling.settled()
    assert [job.settled[0] for job in jobs] == ["ack", "nack", "dead"]
    assert jobs[0].settled == ACKED
    assert program.settling.left == []


async def test_a_job_that_comes_again_is_settled_and_does_not_run_again(
    program: Program, autojump_clock: MockClock
) -> None:
    for number, (task, how) in enumerate({"work": "ack", "fail": "nack"}.items()):
        program.node.away = True
        first = program.job(task, number)
        await program.run(first)
        program.node.away = False
        again = program.job(task, number, additional_deliveries=1)
        again.node = FakeNode()
        first.node.away = True  # the second comes from another node
        assert await program.run(again) == "repeated"
        await program.settling.settled()
        assert (first.settled, again.settled[0]) == ((), how)
        assert first.ended  # no heartbeat is sent for it any more
        assert not again.goes_on
    assert program.runs == ["work", "fail"]


async def test_the_next_attempt_runs_although_the_answer_to_the_nack_was_lost(
    program: Program, autojump_clock: MockClock
) -> None:
    program.node.away = True
    first = program.job("fail")
    await program.run(first)
    again = program.job("fail", nacks=1)
    assert await program.run(again) == "retried"
    program.node.away = False
    await program.settling.settled()
    assert program.runs == ["fail", "fail"]
    assert (first.settled, again.settled[0]) == ((), "nack")


@pytest.mark.parametrize("with_reply", [False, True])
async def test_the_next_attempt_runs_although_the_slot_of_the_last_one_has_not_gone_on(
    program: Program, autojump_clock: MockClock, with_reply: bool
) -> None:
    """It comes before the reply to the NACK, or in any order with what follows on that."""
    for number in range(20):
        first, again = program.job("fail", number), program.job("fail", number, nacks=1)
        async with trio.open_nursery() as nursery:

            async def attempt(job: FakeJob, nursery: trio.Nursery = nursery) -> None:
                assert await program.run(job) == "retried"

            class Quick(FakeNode):
                async def answer(self) -> None:
                    await super().answer()
                    nursery.start_soon(attempt, again)  # noqa: B023
                    if not with_reply:
                        await trio.sleep(1)

            first.node = Quick()
            nursery.start_soon(attempt, first)
        await program.settling.settled()
        assert again.settled[0] == "nack"
    assert program.runs == ["fail"] * 40
    assert not program.settling.left


async def test_a_job_that_comes_again_while_its_task_runs_is_settled_as_that_run_ends(
    program: Program, autojump_clock: MockClock
) -> None:
    gate = trio.Event()

    @program.app.task(name="slow", retries=3)
    async def slow() -> int:
        program.runs.append("slow")
        await gate.wait()
        return 1

    first, second, third = (program.job("slow") for _ in range(3))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(program.run, first)
        await wait_all_tasks_blocked()
        assert [await program.run(second), await program.run(third)] == ["repeated"] * 2
        assert not first.ended
        gate.set()
    assert program.runs == ["slow"]
    assert [job.settled for job in (first, second, third)] == [(), (), ACKED]
    assert first.ended
    assert second.ended


async def test_a_stopped_task_lets_go_of_the_job_that_came_again(program: Program) -> None:
    @program.app.task(name="slow", retries=3)
    async def slow() -> None:
        await trio.sleep_forever()

    first, again = program.job("slow"), program.job("slow")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(program.run, first)
            await wait_all_tasks_blocked()
            assert await program.run(again) == "repeated"
            scope.cancel()
    assert again.ended
    assert not first.ended  # its slot gives it back
    assert (first.settled, again.settled) == ((), ())


NEXT = Step("work", "q", "application/json", b'{"args":[],"kwargs":{}}')


class Link:
    """A way to the cluster on which adding fails with ``errors`` first."""

    def __init__(self, errors: list[Exception]) -> None:
        self.errors = errors
        self.keys: list[object] = []

    async def run(self, function: Callable[[Any], Awaitable[Any]]) -> Any:
        return await function(self)

    def run_sync(self, function: Callable[[Any], Awaitable[Any]]) -> Any:
        raise NotImplementedError

    async def add(self, queue: str, body: bytes, *, unique: object = None, **options: Any) -> str:
        self.keys.append(unique)
        if self.errors:
            raise self.errors.pop(0)
        return "D-next"


async def test_the_next_step_is_added_once_a_node_is_back(
    program: Program, autojump_clock: MockClock
) -> None:
    link = Link([ConnectionLost("no node"), ConnectionLost("no node")])
    job = program.job("work")
    job.header_pairs += (("then", NEXT.encode()),)
    with program.app.core.using(link):
        assert await program.run(job) == "done"
        await program.settling.settled()
    assert link.keys == [f"then {job.id}"] * 3
    assert job.settled == ("ack", Result(next="D-next"))


async def test_a_next_step_that_a_node_refuses_is_a_failure(
    program: Program, autojump_clock: MockClock
) -> None:
    link = Link([NoReplError("NOREPL", "not enough nodes")])
    job = program.job("work")
    job.header_pairs += (("then", NEXT.encode()),)
    with program.app.core.using(link):
        outcome = await program.execution.run(job)
    assert outcome.kind == "retried"
    assert "NOREPL" in outcome.error
    assert job.settled[0] == "nack"


async def test_nodes_that_cannot_tell_who_has_the_key_of_what_follows_are_asked_again(
    program: Program, autojump_clock: MockClock
) -> None:
    link = Link([NoUniqueError("NOUNIQ", "too few nodes") for _ in range(100)])
    job = program.job("work")
    job.header_pairs += (("then", NEXT.encode()),)
    with program.app.core.using(link):
        assert await program.run(job) == "done"
        assert job.settled == ()  # neither a failure nor a dead letter
        with trio.fail_after(3600):
            await program.settling.settled()
    assert job.settled == ("ack", Result(next="D-next"))
    assert program.runs == ["work"]


@pytest.mark.parametrize(("task", "how"), [("work", "ack"), ("fail", "dead")])
async def test_a_part_of_a_group_is_added_once_more_if_nodes_cannot_tell_whether_it_was(
    program: Program, autojump_clock: MockClock, task: str, how: str
) -> None:
    link = Link([NoUniqueError("NOUNIQ", "too few nodes")])
    job = program.job(task, nacks=3)
    job.header_pairs += (("part", b"group.D-g 0 30 0"),)
    with program.app.core.using(link):
        await program.run(job)  # its group would wait for it, and the part for its group
    assert job.settled[0] == how
    first, again = link.keys
    assert first is not None
    assert again is None


@pytest.mark.parametrize("limit", ["MOST", "MOST_BYTES"])
async def test_slots_wait_when_too_many_outcomes_are_kept(
    program: Program, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    size = len(program.job("work").body) + 1
    monkeypatch.setattr(settling, limit, 2 if limit == "MOST" else 2 * size)
    program.node.away = True
    assert await program.run(program.job("work", 0)) == "done"
    last = program.job("work", 1)
    with trio.move_on_after(600) as scope:
        await program.run(last)
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        waiting = program.job("work", 2)
        nursery.start_soon(program.run, waiting)
        await trio.sleep(10)
        program.node.away = False
    await program.settling.settled()
    assert (last.settled, waiting.settled) == (ACKED, ACKED)
    assert [fields["count"] for fields in program.said.fields] == [2]


async def test_what_cannot_be_settled_until_the_client_closes_is_said(
    program: Program, autojump_clock: MockClock
) -> None:
    program.node.away = True
    jobs = [program.job("work", number) for number in range(3)]
    async with trio.open_nursery() as nursery:
        for job in jobs:
            job.detach = lambda source: None  # type: ignore[method-assign]
            nursery.start_soon(program.run, job)
        await wait_all_tasks_blocked()
        with trio.move_on_after(2):
            await program.settling.run()
    [said] = program.said.fields
    assert (said["count"], sorted(said["ids"])) == (3, ["D-0", "D-1", "D-2"])
    assert all(job.ended for job in jobs)
    assert program.settling.left == []
