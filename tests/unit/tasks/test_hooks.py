"""What a program has called around its tasks."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest
import structlog
import trio

from disque_trio.tasks import (
    Adding,
    CurrentJob,
    Disque,
    Failure,
    Reject,
    Running,
    TaskFailed,
    current_job,
)
from disque_trio.tasks.calling import Backend, InLoop
from disque_trio.tasks.execution import Execution
from tests.support.fake_job import FakeJob


@pytest.fixture
def app() -> Disque:
    return Disque("disque://nowhere.invalid")


def test_runs_are_told_from_start_to_death(app: Disque) -> None:
    told: list[tuple[Any, ...]] = []

    @app.hooks.on_start
    def start(job: CurrentJob) -> None:
        assert current_job() is job
        told.append(("start", job.attempt))

    @app.hooks.on_success
    async def success(job: CurrentJob, result: object) -> None:
        told.append(("success", job.task.rpartition(".")[2], result))

    @app.hooks.on_failure
    def failure(job: CurrentJob, failure: Failure) -> None:
        told.append(("failure", failure.error, type(failure.raised), failure.retry_in))

    @app.hooks.on_death
    async def death(job: CurrentJob, failure: Failure) -> None:
        told.append(("death", job.attempt))

    @app.task(retries=1, backoff=lambda *_: 3)
    def divide(a: int, b: int) -> float:
        return a / b

    with app.testing():
        divide.add(4, 2)
        divide.add(1, 0)
    error = ("failure", "ZeroDivisionError: division by zero", ZeroDivisionError)
    assert told[:2] == [("start", 1), ("success", "divide", 2.0)]
    assert told[2:] == [("start", 1), (*error, 3.0), ("start", 2), (*error, None), ("death", 2)]


async def test_jobs_that_cannot_run_die_too(app: Disque) -> None:
    died: list[str] = []

    @app.hooks.on_death
    async def death(job: CurrentJob, failure: Failure) -> None:
        died.append(failure.error)

    await Execution(app.core, InLoop()).run(FakeJob(None))
    assert died == ["unknown task: the job names none"]


async def test_a_hook_that_fails_is_told_and_changes_nothing(app: Disque) -> None:
    @app.hooks.on_start
    def broken(job: CurrentJob) -> None:
        raise SystemExit(3)

    @app.task(name="work")
    async def work() -> int:
        return 1

    with structlog.testing.capture_logs() as said:
        outcome = await Execution(app.core, InLoop()).run(FakeJob("work"))
    assert outcome.kind == "done"
    [line] = said
    assert (line["event_name"], line["error"]) == ("start", "SystemExit: 3")
    assert "broken" in line["hook"]


tenant: ContextVar[str] = ContextVar("tenant", default="")


def test_a_hook_around_runs_is_where_the_task_is(app: Disque) -> None:
    seen: list[object] = []

    @app.hooks.around_run
    def outer(run: Running) -> Iterator[None]:
        token = tenant.set(run.job.headers["tenant"])
        run.args[0] *= 10
        seen.append(threading.get_ident())
        try:
            yield
        except KeyError as error:
            raise Reject(f"hidden {error}") from None
        finally:
            seen.append("left")
            tenant.reset(token)

    @app.hooks.around_run
    async def inner(run: Running) -> AsyncIterator[None]:
        seen.append("async")
        yield
        seen.append("async ended")

    @app.task
    def work(n: int) -> str:
        seen.append(threading.get_ident())
        if n == 20:
            raise KeyError(n)
        return f"{tenant.get()} {n}"

    @app.task
    async def other(n: int) -> str:
        return f"{tenant.get()} {n}"

    for task in (work, other):
        with app.testing():
            assert task.options(headers={"tenant": "acme"}).add(1).get() == "acme 10"
    thread, *between, left = seen[:5]
    assert between == ["async", thread, "async ended"]
    assert left == "left"
    with app.testing(), pytest.raises(TaskFailed, match="hidden 20"):
        work.options(headers={"tenant": "acme"}).add(2).get()
    assert seen[-1] == "left"


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
async def test_hooks_run_in_workers_of_both_loops(app: Disque, backend: Backend) -> None:
    seen: list[str] = []

    @app.hooks.around_run
    async def asynchronous(run: Running) -> AsyncIterator[None]:
        await (trio.sleep(0) if backend == "trio" else asyncio.sleep(0))
        seen.append("in")
        yield
        seen.append("out")

    @app.hooks.on_start
    async def start(job: CurrentJob) -> None:
        await (trio.sleep(0) if backend == "trio" else asyncio.sleep(0))
        seen.append("start")

    @app.task(name="plain")
    def plain() -> None:
        seen.append("plain")

    @app.task(name="async", timeout=60)
    async def asynchronously() -> None:
        seen.append("async")

    execution = Execution(app.core, InLoop(backend=backend))
    for name in ("plain", "async"):
        assert (await execution.run(FakeJob(name))).kind == "done"
    assert seen == ["start", "in", "plain", "out", "start", "in", "async", "out"]


def test_the_timeout_holds_for_hooks_too(app: Disque) -> None:
    @app.hooks.around_run
    async def slow(run: Running) -> AsyncIterator[None]:
        await trio.sleep_forever()
        yield

    @app.task(name="work", timeout=0.001, retries=0)
    async def work() -> None: ...

    outcome = trio.run(Execution(app.core, InLoop()).run, FakeJob("work"))
    assert outcome.error == "TimeoutError: after 0.001 s"


def test_hooks_around_adding_see_and_change_every_job(app: Disque) -> None:
    seen: list[tuple[str, object]] = []

    @app.hooks.around_add
    def around(adding: Adding) -> Iterator[None]:
        adding.headers["tenant"] = "acme"
        adding.options["priority"] = 5
        adding.queue = "fast"
        yield
        seen.append((adding.task, adding.id))

    @app.task(name="work")
    def work(n: int) -> int:
        return n

    async def in_a_loop() -> None:
        assert (await work.add(1)).id == seen[-1][1]

    with app.testing() as jobs:
        first = work.add(1)
        work.map([2, 3])
        bound = work.bind(4)
        trio.run(in_a_loop)
        asyncio.run(in_a_loop())
        bound.add()
        app.group([work.bind(5)], work.bind())
    assert seen[:4] == [("work", first.id), ("work", None), ("work", None), ("work", None)]
    of_work = jobs.of("work")
    assert len(of_work) == 8
    for job in of_work:
        assert (job.queue, job.options["priority"], job.headers["tenant"]) == ("fast", 5, "acme")


def test_a_hook_around_adding_gets_the_error(app: Disque) -> None:
    seen: list[str] = []

    @app.hooks.around_add
    def around(adding: Adding) -> Iterator[None]:
        try:
            yield
        except TypeError:
            seen.append("TypeError")
            raise

    @app.task
    def work(n: int) -> None: ...

    add: Any = work.add
    with app.testing(run=False) as jobs:
        for call in (add, partial(add, object()), partial(work.bind, object())):
            with pytest.raises(TypeError):
                call()
    assert seen == ["TypeError"] * 3
    assert jobs.added == []


def test_processes_start_with_hooks(app: Disque) -> None:
    started: list[str] = []

    @app.hooks.on_worker_start
    def worker() -> None:
        started.append("worker")

    with pytest.warns(DeprecationWarning, match="hooks.on_process_start"):

        @app.worker_start
        def process() -> None:
            started.append("process")

    app.hooks.start("worker_start")
    app.hooks.start("process_start")
    assert started == ["worker", "process"]


def test_hooks_of_the_wrong_kind_are_refused(app: Disque) -> None:
    async def asynchronous(*_: object) -> None: ...

    for refused in (
        app.hooks.around_add,
        app.hooks.around_run,
        app.hooks.on_process_start,
        app.hooks.on_worker_start,
    ):
        with pytest.raises(TypeError):
            refused(asynchronous)
