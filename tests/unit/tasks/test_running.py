"""What happens to a job: done, retried, refused."""

import asyncio
import threading
from typing import Any

import pytest
import structlog
import trio

from disque_trio.client import ReplyError
from disque_trio.job_past import Past, split_trace
from disque_trio.tasks import Disque, Reject, Retry, TaskFailed, current_job
from disque_trio.tasks.calling import Backend, InLoop, Quit
from disque_trio.tasks.current import CurrentJob
from disque_trio.tasks.definition import Definition
from disque_trio.tasks.ending import Failed, Held, JobCancelled
from disque_trio.tasks.execution import MORE_CRASHES, UNKNOWN_RETRIES, Execution
from disque_trio.tasks.messages import Result
from disque_trio.tasks.settling import Settling
from tests.support.fake_job import FakeJob
from tests.support.harness import HANG_SECONDS


@pytest.fixture
def app() -> Disque:
    return Disque("disque://nowhere.invalid")


@pytest.fixture
def execution(app: Disque) -> Execution:
    return Execution(app.core, InLoop(None))


async def test_a_finished_job_leaves_its_result(app: Disque, execution: Execution) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(name="none")
    async def none() -> None: ...

    job = FakeJob("add", b'{"args":[1],"kwargs":{"b":2}}')
    outcome = await execution.run(job)
    assert (outcome.kind, outcome.task, outcome.error) == ("done", "add", "")
    assert job.settled == ("ack", Result("application/json", b"3"))
    job = FakeJob("none")
    await execution.run(job)
    assert job.settled == ("ack", Result())
    assert len(Result().encode()) == 1


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (FakeJob("nobody", nacks=UNKNOWN_RETRIES), b"unknown task: 'nobody'"),
        (FakeJob(None), b"unknown task: the job names none"),
        (FakeJob("work", b"{"), b"bad body: JSONDecodeError"),
        (FakeJob("work", b"[1]"), b"bad body: expected"),
        (FakeJob("work", content_type="text/x"), b"unknown content type: 'text/x'"),
        (FakeJob("work", additional_deliveries=6 + MORE_CRASHES), b"16 workers took it"),
    ],
)
async def test_a_job_that_cannot_run_becomes_a_dead_letter_with_a_reason(
    app: Disque, execution: Execution, job: FakeJob, reason: bytes
) -> None:
    @app.task(name="work")
    def work() -> None: ...

    assert (await execution.run(job)).kind == "dead"
    assert job.settled[0] == "dead"
    assert job.settled[1].startswith(reason)


async def test_an_unknown_task_is_retried_for_a_while_and_told_once(app: Disque) -> None:
    @app.task(name="work")
    def work() -> None: ...

    with structlog.testing.capture_logs() as said:
        execution = Execution(app.core, InLoop())
        jobs = [FakeJob("newer", nacks=nacks) for nacks in range(UNKNOWN_RETRIES)]
        outcomes = [await execution.run(job) for job in jobs]
    assert {(outcome.kind, outcome.error) for outcome in outcomes} == {
        ("retried", "unknown task: 'newer'")
    }
    assert 600 <= sum(job.settled[1] for job in jobs) <= 1200
    assert [(line["task"], line["known"]) for line in said] == [("newer", ["work"])]


async def test_what_no_process_could_run_did_not_fail_and_is_retried_as_long(app: Disque) -> None:
    @app.task(name="work", process=True, retries=0)
    def work() -> None: ...

    apart = Apart(Failed("the app cannot be imported", unknown=True))
    job = FakeJob("work")
    delays: list[float] = []
    while await run_apart(app, apart, job) == "retried":
        _, delay, reason = job.settled
        delays.append(delay)
        job = FakeJob("work", nacks=len(delays), last_reason=reason.decode())
    assert len(delays) == UNKNOWN_RETRIES
    assert 600 <= sum(delays) <= 1200


async def test_a_failure_is_retried_with_growing_delays_and_then_refused(
    app: Disque, execution: Execution
) -> None:
    @app.task(name="fail", retries=3, backoff=(2, 5))
    def fail() -> None:
        raise ValueError("no such address")

    delays = []
    for nacks in range(3):
        job = FakeJob("fail", nacks=nacks)
        assert (await execution.run(job)).kind == "retried"
        delays.append(job.settled[1])
        error, trace = split_trace(job.settled[2].decode())
        assert error == "ValueError: no such address"
        assert 'raise ValueError("no such address")' in trace
    assert [1.5 <= delays[0] <= 2.5, 3 <= delays[1] <= 5, 3.75 <= delays[2] <= 5] == [True] * 3
    job = FakeJob("fail", nacks=3)
    outcome = await execution.run(job)
    assert (outcome.kind, outcome.error) == ("dead", "ValueError: no such address")
    assert job.settled[0] == "dead"
    assert split_trace(job.settled[1].decode())[0] == "ValueError: no such address"


async def test_a_traceback_shows_where_a_task_failed(app: Disque, execution: Execution) -> None:
    @app.task(name="fail")
    def fail() -> None:
        raise ValueError("a value")

    @app.task(name="reject")
    def reject() -> None:
        raise Reject("no")

    outcome = await execution.run(FakeJob("fail"))
    assert "in fail" in outcome.trace
    assert outcome.trace.endswith("ValueError: a value\n")
    assert (await execution.run(FakeJob("reject"))).trace == ""


async def test_a_task_may_decide_what_happens_to_its_job(app: Disque, execution: Execution) -> None:
    @app.task(name="later")
    async def later() -> None:
        raise Retry("line is busy", delay=0.5)

    @app.task(name="never")
    async def never() -> None:
        raise Reject("no such number")

    job = FakeJob("later")
    assert (await execution.run(job)).kind == "retried"
    assert job.settled == ("nack", 0.5, b"Retry: line is busy")
    job = FakeJob("never")
    assert (await execution.run(job)).kind == "dead"
    assert job.settled == ("dead", b"Reject: no such number")


async def test_without_dead_letters_the_failure_is_the_result(
    app: Disque, execution: Execution
) -> None:
    @app.task(name="fail", retries=0)
    def fail() -> None:
        raise KeyError("x")

    job = FakeJob("fail", failure=ReplyError("NODEAD", "there is no queue"))
    assert (await execution.run(job)).kind == "dead"
    assert job.settled == ("ack", Result("error", b"KeyError: 'x'"))


@pytest.mark.parametrize("settling", [None, Settling()])
async def test_a_job_that_a_node_refuses_to_settle_is_not_acknowledged(
    app: Disque, settling: Settling | None
) -> None:
    execution = Execution(app.core, InLoop(None), settling)
    job = FakeJob(None, failure=ReplyError("ERR", "no"))
    outcome = await execution.run(job)
    assert (outcome.kind, job.settled) == ("lost", ("release",))
    assert "unknown task" in outcome.error


async def test_an_async_task_is_cancelled_at_its_timeout(app: Disque, execution: Execution) -> None:
    @app.task(name="sleep", timeout=0.01)
    async def sleep() -> None:
        await trio.sleep_forever()

    job = FakeJob("sleep")
    outcome = await execution.run(job)
    assert (outcome.kind, outcome.error) == ("retried", "TimeoutError: after 0.01 s")


async def test_async_tasks_may_run_in_asyncio(app: Disque) -> None:
    execution = Execution(app.core, InLoop(backend="asyncio"))
    ended = threading.Event()
    seen: list[Any] = []

    @app.task(name="meet")
    async def meet() -> None:
        await asyncio.sleep(0)
        seen.append(current_job())

    @app.task(name="sleep", timeout=0.01)
    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    @app.task(name="cancel")
    async def cancel() -> None:
        raise asyncio.CancelledError

    assert (await execution.run(FakeJob("meet"))).kind == "done"
    assert seen[0].task == "meet"
    assert (await execution.run(FakeJob("sleep"))).error == "TimeoutError: after 0.01 s"
    assert await trio.to_thread.run_sync(ended.wait, 60)
    assert (await execution.run(FakeJob("cancel"))).kind == "retried"


class Unusual(BaseException):
    """An exception that ``except Exception`` does not catch."""


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), Unusual("odd")]
)
async def test_a_task_that_raises_a_base_exception_fails_and_others_continue(
    app: Disque, backend: Backend, error: BaseException
) -> None:
    execution = Execution(app.core, InLoop(backend=backend))

    @app.task(name="quit")
    async def quit() -> None:
        raise error

    @app.task(name="quit in a thread")
    def quit_in_thread() -> None:
        raise error

    @app.task(name="generator")
    def generator() -> None:
        raise GeneratorExit

    @app.task(name="meet")
    async def meet() -> None: ...

    for task in ("quit", "quit in a thread"):
        outcome = await execution.run(FakeJob(task))
        assert (outcome.kind, outcome.error.partition(":")[0]) == ("retried", type(error).__name__)
    assert (await execution.run(FakeJob("generator"))).kind == "retried"
    assert (await execution.run(FakeJob("meet"))).kind == "done"


def test_an_asyncio_task_may_raise_a_cancellation_itself(app: Disque) -> None:
    @app.task(name="own")
    async def own() -> None:
        raise asyncio.CancelledError

    @app.task(name="wait")
    async def wait() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        caller = InLoop()
        with pytest.raises(Quit):
            await caller.call(app.core.tasks["own"], (), {})
        waiting = asyncio.create_task(caller.call(app.core.tasks["wait"], (), {}))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


def test_in_a_test_a_task_may_exit_and_ctrl_c_ends_the_test(app: Disque) -> None:
    @app.task(retries=0)
    def exit() -> None:
        raise SystemExit(3)

    @app.task(retries=0)
    async def interrupted() -> None:
        raise KeyboardInterrupt

    with app.testing() as jobs:
        exit.add()
        assert jobs.added[0].error == "SystemExit: 3"
        with pytest.raises(KeyboardInterrupt):
            interrupted.add()


async def test_a_task_that_blocks_the_loop_of_asyncio_runs_away(app: Disque) -> None:
    execution = Execution(app.core, InLoop(backend="asyncio"))
    stop = threading.Event()

    @app.task(name="hang", timeout=1)  # enough for the loop to start it
    async def hang() -> None:
        stop.wait(60)

    outcome = await execution.run(FakeJob("hang"))
    stop.set()
    assert outcome.kind == "runaway"


async def test_a_task_that_ignores_its_cancellation_runs_away(
    app: Disque, execution: Execution
) -> None:
    stop = threading.Event()

    @app.task(name="wait", timeout=0.01)
    async def wait() -> None:
        assert current_job() is not None
        await trio.to_thread.run_sync(stop.wait, 60)

    @app.task(name="quick", timeout=60)
    async def quick() -> str:
        await trio.sleep(0)
        raise Reject("quick")

    outcome = await execution.run(FakeJob("wait"))
    stop.set()
    assert outcome.kind == "runaway"
    assert (await execution.run(FakeJob("quick"))).error == "Reject: quick"


async def test_a_stopped_task_with_a_timeout_ends_before_its_job_is_released(
    app: Disque, execution: Execution
) -> None:
    steps: list[str] = []

    @app.task(name="clean up", timeout=60)
    async def clean_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0)
            steps.append("cleaned up")

    job = FakeJob("clean up")
    with trio.CancelScope() as scope:
        scope.cancel()
        await execution.run(job)
    assert scope.cancelled_caught
    assert steps == ["cleaned up"]
    assert job.settled == ()


async def test_a_timeout_error_of_the_task_itself_is_a_failure_like_any_other(
    app: Disque, execution: Execution
) -> None:
    @app.task(name="fetch", timeout=60)
    async def fetch() -> None:
        with trio.fail_after(0):
            await trio.sleep_forever()

    assert (await execution.run(FakeJob("fetch"))).error.startswith("TooSlowError")


async def test_a_function_in_a_thread_runs_away(app: Disque, execution: Execution) -> None:
    stop = threading.Event()

    @app.task(name="hang", timeout=0.01)
    def hang() -> None:
        stop.wait(60)

    job = FakeJob("hang")
    outcome = await execution.run(job)
    stop.set()
    assert (outcome.kind, job.settled[0]) == ("runaway", "nack")


async def test_a_finished_job_is_settled_even_if_the_worker_stops(app: Disque) -> None:
    execution = Execution(app.core, InLoop(None), Settling())
    with trio.CancelScope() as scope:

        @app.task(name="work")
        async def work() -> int:
            scope.cancel()
            return 1

        job = FakeJob("work")
        await execution.run(job)
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert job.settled == ("ack", Result("application/json", b"1"))


async def test_a_stopped_task_leaves_its_job_alone(app: Disque, execution: Execution) -> None:
    job = FakeJob("work")
    with trio.CancelScope() as scope:

        @app.task(name="work")
        async def work() -> None:
            scope.cancel()
            await trio.sleep_forever()

        await execution.run(job)
    assert scope.cancelled_caught
    assert job.settled == ()


async def test_a_task_knows_its_job(app: Disque, execution: Execution) -> None:
    seen: list[Any] = []

    @app.task(name="look", retries=7)
    def look() -> None:
        job = current_job()
        assert job is not None
        seen.append((job.id, job.queue, job.task, job.attempt, job.retries, job.lost))
        seen.append(job.headers["content-type"])

    await execution.run(FakeJob("look", nacks=2, additional_deliveries=1))
    assert seen == [(FakeJob.id, "q", "look", 4, 7, False), "application/json"]
    assert current_job() is None


@pytest.mark.parametrize("value", [object(), "x" * 1_000_000])
async def test_a_result_that_cannot_be_kept_is_an_error(
    app: Disque, execution: Execution, value: object
) -> None:
    app.task(name="make")(lambda: value)
    job = FakeJob("make")
    assert (await execution.run(job)).kind == "dead"
    assert b"result" in job.settled[1]


async def test_jobs_run_concurrently(app: Disque, execution: Execution) -> None:
    barrier = threading.Barrier(3)

    @app.task(name="meet")
    def meet() -> None:
        barrier.wait(HANG_SECONDS)

    @app.task(name="meet-async")
    async def meet_async() -> None:
        await trio.to_thread.run_sync(barrier.wait, HANG_SECONDS)

    jobs = [FakeJob(name) for name in ("meet", "meet", "meet-async")]
    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(execution.run, job)
    assert [job.settled[0] for job in jobs] == ["ack"] * 3


def test_a_failed_task_raises_its_error(app: Disque) -> None:
    @app.task(retries=2)
    def fail() -> None:
        raise ValueError("no: such address")

    with app.testing() as jobs:
        handle = fail.add()
        with pytest.raises(TaskFailed) as failure:
            handle.get()
    assert (failure.value.type_name, failure.value.text) == ("ValueError", "no: such address")
    assert failure.value.id == handle.id
    assert (jobs.added[0].attempts, len(jobs.added[0].delays)) == (3, 2)


# ---- what a job has been through ----------------------------------------------------------------


class Apart:
    """Says which jobs ran in processes of their own; ``death``: how these end."""

    def __init__(self, death: str | Failed = "") -> None:
        self.calls: list[str] = []
        self.alone: list[bool] = []
        self.death = death

    async def run(
        self, job: Held, current: CurrentJob, definition: Definition, body: bytes, *, alone: bool
    ) -> str:
        self.calls.append(definition.name)
        self.alone.append(alone)
        if self.death == "cancelled":
            raise JobCancelled
        if isinstance(self.death, Failed):
            raise self.death
        if self.death:
            raise Failed(self.death, crashed=True)
        return f"{body.decode()} in another process"


async def run_apart(app: Disque, apart: Apart, job: FakeJob) -> str:
    return (await Execution(app.core, InLoop(None), None, apart).run(job)).kind


async def test_only_a_suspect_runs_in_a_process_of_its_own(app: Disque) -> None:
    @app.task(name="work")
    def work() -> None: ...

    apart = Apart()
    for crashes in range(3):
        last = Past(crashes, crashes, 0, "killed").reason().decode()
        job = FakeJob("work", nacks=crashes, last_reason=last)
        assert await run_apart(app, apart, job) == "done"
        assert len(apart.calls) == (crashes == 2)


async def test_a_task_for_a_process_of_its_own_runs_there_with_what_its_job_brings(
    app: Disque,
) -> None:
    @app.task(name="work", process=True)
    def work() -> None:
        raise AssertionError

    apart = Apart()
    job = FakeJob("work", body=b"args")  # which is not read here
    assert await run_apart(app, apart, job) == "done"
    assert apart.alone == [False]
    _, result = job.settled
    assert result.data == b'"args in another process"'
    suspect = Past(2, 2, 2, "killed").reason().decode()
    assert await run_apart(app, apart, FakeJob("work", nacks=2, last_reason=suspect)) == "done"
    assert apart.alone == [False, True]


async def test_a_task_that_was_ended_since_its_job_was_cancelled_is_cancelled(app: Disque) -> None:
    @app.task(name="work", process=True)
    def work() -> None: ...

    job = FakeJob("work")
    assert await run_apart(app, Apart("cancelled"), job) == "cancelled"
    assert job.settled == ("drop",)


async def test_without_other_processes_such_a_task_runs_here(
    app: Disque, execution: Execution
) -> None:
    ran: list[bool] = []

    @app.task(name="work", process=True)
    def work() -> None:
        ran.append(True)

    assert (await execution.run(FakeJob("work"))).kind == "done"
    assert ran == [True]
    with app.testing():
        await work.add()
    assert ran == [True, True]


async def test_a_job_whose_own_process_dies_comes_back_and_the_third_time_is_refused(
    app: Disque,
) -> None:
    @app.task(name="work", retries=0)
    def work() -> None: ...

    last = Past(2, 2, 0, "killed").reason().decode()
    apart = Apart("its process died: killed by SIGKILL, memory 40 MiB")
    delays: list[float] = []
    for nacks in (2, 3):
        job = FakeJob("work", nacks=nacks, last_reason=last)
        assert await run_apart(app, apart, job) == "retried"
        _, delay, reason = job.settled
        delays.append(delay)
        last = reason.decode()
    assert delays == [2, 4]
    job = FakeJob("work", nacks=4, last_reason=last)
    assert await run_apart(app, apart, job) == "dead"
    assert job.settled == ("dead", b"its process died: killed by SIGKILL, memory 40 MiB")


async def test_a_guilty_job_is_refused_without_another_run(
    app: Disque, execution: Execution
) -> None:
    @app.task(name="work")
    def work() -> None:
        raise AssertionError

    job = FakeJob("work", nacks=3, last_reason=Past(3, 3, 3, "killed").reason().decode())
    assert (await execution.run(job)).kind == "dead"
    assert job.settled == ("dead", b"killed")


async def test_returns_that_were_no_failures_use_up_no_retries(
    app: Disque, execution: Execution
) -> None:
    @app.task(name="fail", retries=1, backoff=(2, 2))
    def fail() -> None:
        raise ValueError("no such address")

    past = Past(50, 1, 0, "its worker stopped")
    job = FakeJob("fail", nacks=50, last_reason=past.reason().decode())
    assert (await execution.run(job)).kind == "retried"
    _, delay, reason = job.settled
    assert delay <= 2.5
    past = Past.read(reason.decode())
    assert (past.returned, past.crashes, past.alone) == (50, 1, 0)
    assert split_trace(past.said)[0] == "ValueError: no such address"
    job = FakeJob("fail", nacks=51, last_reason=reason.decode())
    assert (await execution.run(job)).kind == "dead"
    assert job.settled[0] == "dead"
    assert split_trace(job.settled[1].decode())[0] == "ValueError: no such address"


async def test_a_task_that_blocked_its_process_too_often_is_refused(
    app: Disque, execution: Execution
) -> None:
    @app.task(name="work", retries=1)
    def work() -> None:
        raise AssertionError

    job = FakeJob("work", nacks=2, last_reason="TimeoutError: its process was killed")
    assert (await execution.run(job)).kind == "dead"
    assert job.settled == ("dead", b"TimeoutError: its process was killed")


# ---- cancelled jobs -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize("timeout", [None, 1000])
async def test_the_task_of_a_cancelled_job_is_cancelled(
    backend: Backend, timeout: float | None
) -> None:
    app = Disque("disque://nowhere.invalid", backend=backend)
    began, ended = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    @app.task(name="work", timeout=timeout)
    async def work() -> None:
        token.run_sync_soon(began.set)
        try:
            await (trio.sleep(1000) if backend == "trio" else asyncio.sleep(1000))
        finally:
            ended.set()

    job = FakeJob("work")
    kinds: list[str] = []

    async def run() -> None:
        execution = Execution(app.core, InLoop(backend=backend), Settling())
        kinds.append((await execution.run(job)).kind)

    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await began.wait()
            job.cancel()
    assert ended.is_set()
    assert kinds == ["cancelled"]
    assert job.settled == ("drop",)


async def test_a_function_in_a_thread_ends_although_its_job_was_cancelled(app: Disque) -> None:
    job = FakeJob("work")

    @app.task(name="work")
    def work() -> int:
        assert not hasattr(job, "cancel")
        return 1

    assert (await Execution(app.core, InLoop(None)).run(job)).kind == "done"


def test_a_job_of_a_test_can_be_cancelled_unless_it_has_ended(app: Disque) -> None:
    @app.task
    def work() -> int:
        return 1

    with app.testing(run=False):
        handle = work.add()
        handle.cancel()
        assert handle.get_state() == "cancelled"
    with app.testing():
        handle = work.add()
        app.cancel(handle.id)
        assert handle.get_state() == "done"


def test_the_job_that_a_chain_has_come_to_is_cancelled(app: Disque) -> None:
    @app.task
    def first() -> int:
        return 1

    @app.task
    def second(number: int) -> None: ...

    with app.testing(run=False) as jobs:
        handle = first.then(second.bind()).add()
        assert len(jobs.added) == 1
        handle.cancel()
        assert jobs.added[0].state == "cancelled"
