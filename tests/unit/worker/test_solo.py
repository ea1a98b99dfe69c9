"""The run of a task in a process of its own."""

import json
import os
import pickle
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
import trio

from disque_trio.tasks import Depends, Disque, Reject, Retry, Running, current_job, injected
from disque_trio.worker.link import Message, messages
from disque_trio.worker.solo import Solo, SoloLink
from tests.support.harness import HANG_SECONDS


@pytest.fixture
def app() -> Disque:
    return Disque("disque://nowhere.invalid")


class Ran:
    """What a process has said of a run.

    Attributes:
        last: the message that says how it ended. before: those before it.
    """

    def __init__(self, solo: Solo, link: SoloLink, order: Message, said: Iterator[Message]) -> None:
        link.send(solo.run(order))
        self.before: list[Message] = []
        for message in said:
            if message["kind"] in ("returned", "raised", "cancelled"):
                self.last = message
                return
            self.before.append(message)
        raise AssertionError

    @property
    def value(self) -> Any:
        """What the function has returned."""
        assert self.last["kind"] == "returned", self.last
        return pickle.loads(self.last["data"]) if "data" in self.last else None

    @property
    def failed(self) -> dict[str, Any]:
        """How it has failed."""
        assert self.last["kind"] == "raised", self.last
        failed: dict[str, Any] = self.last["failed"]
        return failed


class Rig:
    """A process of an app, in this one."""

    def __init__(self, app: Disque) -> None:
        self._ours, theirs = socket.socketpair()
        self._link = SoloLink(theirs)
        self._theirs = theirs
        self._said = messages(self._ours)
        self.solo = Solo(app, self._link)

    def run(self, task: str, *args: Any, **headers: str) -> Ran:
        """Run a task."""
        job = {
            "id": "D-1",
            "queue": "q",
            "task": task,
            "attempt": 1,
            "retries": 5,
            "headers": headers,
        }
        body = json.dumps({"args": args, "kwargs": {}}).encode()
        order = {"job": job, "letter": None, "data": body}
        return Ran(self.solo, self._link, order, self._said)

    def close(self) -> None:
        """Close the link."""
        self._said.close()
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def rig(app: Disque) -> Iterator[Rig]:
    rig = Rig(app)
    yield rig
    rig.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_hooks_and_what_is_injected_are_there_too(app: Disque, rig: Rig, is_async: bool) -> None:
    seen: list[str] = []

    def get_name() -> Iterator[str]:
        yield "db"
        seen.append("closed")

    async def get_async() -> AsyncIterator[str]:
        yield "db"
        seen.append("closed")

    @app.hooks.around_run
    def around(run: Running) -> Iterator[None]:
        run.args[0] += 1
        yield
        seen.append(run.job.id)

    source = get_async if is_async else get_name

    @app.task(name="work")
    def work(n: int, *, name: Annotated[str, Depends(source)] = injected) -> str:
        return f"{n} {name}"

    assert rig.run("work", 1).value == "2 db"
    assert seen == ["closed", "D-1"]


def test_a_function_runs_in_the_main_thread_unless_it_is_async(app: Disque, rig: Rig) -> None:
    @app.task(name="plain")
    def plain() -> bool:
        job = current_job()
        assert job is not None
        job.progress(0.5, "half")
        return threading.current_thread() is threading.main_thread()

    @app.task(name="async")
    async def in_loop() -> str:
        await trio.sleep(0)
        return "trio"

    ran = rig.run("plain")
    assert ran.value is True
    assert [(one["kind"], one.get("text")) for one in ran.before] == [
        ("begun", None),
        ("progress", "half"),
    ]
    assert not ran.before[0]["limits_itself"]  # a signal does
    ran = rig.run("async")
    assert ran.value == "trio"
    assert ran.before[0]["limits_itself"]


def test_values_that_json_does_not_know_are_those_of_the_function(app: Disque, rig: Rig) -> None:
    @app.task(name="work")
    def work(n: int) -> Any:
        return [None, (1, {2}), lambda: None][n]

    assert rig.run("work", 0).value is None
    assert rig.run("work", 1).value == (1, {2})
    assert rig.run("work", 2).failed["final"]


def test_a_task_may_fail_as_elsewhere(app: Disque, rig: Rig) -> None:
    class OddError(Exception):
        pass

    @app.task(name="fail", never_for=(KeyError,))
    def fail(n: int) -> None:
        raise [ValueError("no"), KeyError("x"), Retry("busy", delay=7), Reject("no"), OddError()][n]

    ran = rig.run("fail", 0)
    assert (ran.failed["error"], ran.failed["final"]) == ("ValueError: no", False)
    assert "in fail" in ran.failed["trace"]
    assert str(pickle.loads(ran.last["data"])) == "no"
    assert rig.run("fail", 1).failed["final"]
    assert rig.run("fail", 2).failed["delay"] == 7
    assert rig.run("fail", 3).failed["final"]
    assert "data" not in rig.run("fail", 4).last  # nobody else knows that class


def test_a_job_has_its_own_timeout_in_a_loop(app: Disque, rig: Rig) -> None:
    @app.task(name="sleep", timeout=600)
    async def sleep() -> None:
        await trio.sleep_forever()

    late = rig.run("sleep", **{"task-timeout": "0.001"}).failed
    assert (late["error"], late["final"]) == ("TimeoutError: after 0.001 s", False)


def when_begun(begun: threading.Event, *calls: Any) -> threading.Thread:
    """Make these calls in another thread once the function has begun."""

    def run() -> None:
        assert begun.wait(HANG_SECONDS)
        for call in calls:
            call()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_lost_job_is_lost_for_its_function_and_no_other(app: Disque, rig: Rig) -> None:
    begun = threading.Event()

    @app.task(name="watch")
    def watch() -> str:
        begun.set()
        job = current_job()
        assert job is not None
        while not job.lost:
            threading.Event().wait(0.001)
        return "lost"

    rig.solo.lost("D-1")  # nothing runs
    thread = when_begun(begun, lambda: rig.solo.lost("D-2"), lambda: rig.solo.lost("D-1"))
    assert rig.run("watch").value == "lost"
    thread.join()


@pytest.mark.parametrize("end", ["lost", "end"])
def test_an_async_function_is_cancelled(app: Disque, rig: Rig, end: str) -> None:
    begun = threading.Event()
    seen: list[str] = []

    @app.task(name="wait")
    async def wait() -> None:
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            seen.append("cleaned up")

    call = rig.solo.end if end == "end" else lambda: rig.solo.lost("D-1")
    thread = when_begun(begun, call)
    assert rig.run("wait").last["kind"] == "cancelled"
    thread.join()
    assert seen == ["cleaned up"]


def test_a_function_that_has_to_end_is_interrupted_and_cleans_up(app: Disque, rig: Rig) -> None:
    begun = threading.Event()
    seen: list[str] = []

    @app.task(name="compute")
    def compute() -> None:
        begun.set()
        try:
            threading.Event().wait(HANG_SECONDS)
        finally:
            seen.append("cleaned up")

    before = signal.signal(signal.SIGTERM, rig.solo.on_signal)
    try:
        os.kill(os.getpid(), signal.SIGTERM)  # meant for all, and nothing runs
        thread = when_begun(begun, rig.solo.end)
        assert rig.run("compute").failed["error"].startswith("TaskEnded")
        thread.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == ["cleaned up"]


def test_a_signal_that_nobody_has_announced_interrupts_nothing(app: Disque, rig: Rig) -> None:
    @app.task(name="compute")
    def compute() -> str:
        signal.raise_signal(signal.SIGTERM)
        return "done"

    before = signal.signal(signal.SIGTERM, rig.solo.on_signal)
    try:
        assert rig.run("compute").value == "done"
    finally:
        signal.signal(signal.SIGTERM, before)
