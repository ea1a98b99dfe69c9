"""What tasks get from functions."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
import trio

from disque_trio.tasks import Depends, Disque, TaskFailed, injected
from disque_trio.tasks.calling import Backend, InLoop
from disque_trio.tasks.execution import Execution
from tests.support.fake_job import FakeJob

events: list[str] = []


class Session:
    """Something with an end."""

    def __init__(self, name: str) -> None:
        self.name = name


def get_settings() -> str:
    events.append("settings")
    return "memory"


def get_session(settings: Annotated[str, Depends(get_settings)]) -> Iterator[Session]:
    events.append("open")
    try:
        yield Session(settings)
        events.append("commit")
    except ValueError:
        events.append("rollback")
        raise
    finally:
        events.append("close")


async def get_http(settings: Annotated[str, Depends(get_settings)]) -> AsyncIterator[str]:
    events.append("http")
    yield f"http {settings}"
    events.append("http closed")


InSession = Annotated[Session, Depends(get_session)]
Http = Annotated[str, Depends(get_http)]


@pytest.fixture
def app() -> Disque:
    events.clear()
    return Disque("disque://nowhere.invalid")


def test_a_task_gets_what_it_needs_once_and_it_is_cleaned_up(app: Disque) -> None:
    @app.task(unique=True)
    def save(n: int, *, session: InSession = injected, http: Http = injected) -> str:
        events.append("run")
        return f"{n} {session.name} {http}"

    @app.task
    async def same(n: int, *, http: Http = injected, session: InSession = injected) -> str:
        events.append("run")
        return f"{n} {session.name} {http}"

    for task, opened in ((save, ["open", "http"]), (same, ["http", "open"])):
        events.clear()
        with app.testing() as jobs:
            assert task.add(3).get() == "3 memory http memory"
        ends = {"open": ["commit", "close"], "http": ["http closed"]}
        closed = [end for one in reversed(opened) for end in ends[one]]
        assert events == ["settings", *opened, "run", *closed]
        assert (jobs.added[0].args, jobs.added[0].kwargs) == ([3], {})


def test_a_failure_reaches_what_has_to_be_cleaned_up(app: Disque) -> None:
    @app.task(retries=0)
    def fail(session: InSession) -> None:
        raise ValueError("no")

    add: Any = fail.add
    with app.testing(), pytest.raises(TaskFailed, match="no"):
        add().get()
    assert events == ["settings", "open", "rollback", "close"]


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
async def test_workers_of_both_loops_inject(app: Disque, backend: Backend) -> None:
    @app.task(name="plain")
    def plain(*, http: Http = injected) -> str:
        return http

    @app.task(name="async")
    async def asynchronous(*, http: Http = injected) -> str:
        await (trio.sleep(0) if backend == "trio" else asyncio.sleep(0))
        return http

    for name in ("plain", "async"):
        job = FakeJob(name)
        outcome = await Execution(app.core, InLoop(backend=backend)).run(job)
        assert outcome.kind == "done"
        assert job.settled[1].data == b'"http memory"'
    assert events[-1] == "http closed"


def test_tests_may_inject_something_else(app: Disque) -> None:
    @app.task
    def name(*, session: InSession = injected) -> str:
        return session.name

    with app.testing():
        with app.overriding({get_session: lambda: Session("fake")}):
            assert name.add().get() == "fake"
        with app.overriding({get_settings: lambda: "other"}):
            assert name.add().get() == "other"
        assert name.add().get() == "memory"


def test_a_direct_call_has_to_pass_it(app: Disque) -> None:
    @app.task
    def name(*, session: InSession = injected) -> str:
        return session.name

    assert name(session=Session("mine")) == "mine"
    with pytest.raises(TypeError, match="pass it in a direct call"):
        name()


def test_callers_cannot_pass_what_is_injected(app: Disque) -> None:
    @app.task
    def name(n: int, *, session: InSession = injected) -> str:
        return session.name

    add: Any = name.add
    with app.testing(run=False), pytest.raises(TypeError, match="session"):
        add(1, session="evil")


async def test_a_job_cannot_pass_it_either(app: Disque) -> None:
    @app.task(name="name")
    async def name(*, session: InSession = injected) -> str:
        return session.name

    job = FakeJob("name", b'{"kwargs":{"session":"evil"}}')
    assert (await Execution(app.core, InLoop()).run(job)).kind == "done"
    assert job.settled[1].data == b'"memory"'


def test_annotations_may_be_texts(app: Disque) -> None:
    def written(n: int, session: "InSession") -> str:
        return f"{n} {session.name}"

    task = app.task(written)
    add: Any = task.add
    with app.testing():
        assert add(1).get() == "1 memory"

    def unknown(session: "Annotated[Nothing, Depends(get_session)]") -> None:  # type: ignore[name-defined]  # noqa: F821
        ...

    with app.testing(), pytest.raises(TypeError, match="annotations"):
        app.task(unknown).add()
