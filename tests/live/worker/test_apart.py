"""Tasks in processes of their own."""

import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from disque_trio.process.logs import Log
from disque_trio.tasks.current import CurrentJob, running
from disque_trio.tasks.ending import Failed
from disque_trio.worker.apart import Apart
from disque_trio.worker.child import find_app
from disque_trio.worker.options import parse
from tests.support.harness import HANG_SECONDS
from tests.support.worker_rig import lives

APP = """
import os, time
from disque_trio.tasks import Disque, Reject, Retry, current_job

app = Disque("disque://nowhere.invalid")

@app.task(name="who", timeout=60)
async def who(word, *, end):
    job = current_job()
    return [word + end, job.id, job.headers["x"], job.attempt, os.getpid()]

@app.task(name="fail")
def fail():
    raise ValueError("no such number")

@app.task(name="later")
def later():
    raise Retry("busy", delay=7)

@app.task(name="never")
def never():
    raise Reject("no")

@app.task(name="odd")
def odd():
    return object()

@app.task(name="die")
def die():
    os._exit(3)

@app.task(name="hang", timeout=0.2)
async def hang():
    time.sleep(100)

@app.task(name="wait")
def wait(directory):
    with open(directory + "/pid", "w") as file:
        file.write(str(os.getpid()))
    os.rename(directory + "/pid", directory + "/begun")
    time.sleep(100)
"""


class Said:
    """A log that says nothing."""

    def notice(self, event: str, **fields: Any) -> None: ...


class Alone:
    lost = False
    letter = None

    def progress(self, fraction: float, text: str = "") -> None: ...


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    name = f"apart_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(APP)
    return tmp_path


async def call(directory: Path, task: str, *args: object, **kwargs: object) -> Any:
    (module,) = directory.glob("*.py")
    options = parse([f"{module.stem}:app", "--app-dir", str(directory)])
    definition = find_app(options).core.tasks[task]
    job = CurrentJob("D-1", "q", task, 3, 5, {"x": "y"}, Alone(), definition.backoff)
    with trio.fail_after(HANG_SECONDS), running(job):
        return await Apart(options, cast(Log, Said())).call(definition, args, kwargs)


async def test_a_task_gets_its_arguments_and_its_job_and_returns_a_value(directory: Path) -> None:
    *words, pid = await call(directory, "who", "ä", end="!")
    assert words == ["ä!", "D-1", "y", 3]
    assert pid != os.getpid()
    assert not lives(pid)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("fail", {"error": "ValueError: no such number"}),
        ("later", {"error": "Retry: busy", "delay": 7}),
        ("never", {"error": "Reject: no", "final": True}),
        ("odd", {"final": True}),
        ("hang", {"error": "TimeoutError: after 0.2 s", "crashed": False}),
    ],
)
async def test_a_task_may_fail_as_elsewhere(
    directory: Path, task: str, expected: dict[str, object]
) -> None:
    with pytest.raises(Failed) as failed:
        await call(directory, task)
    assert vars(failed.value).items() >= expected.items()
    assert not failed.value.runaway
    assert ("in fail" in failed.value.trace) == (task == "fail")


async def test_the_death_of_the_process_is_told_with_its_status_and_memory(directory: Path) -> None:
    with pytest.raises(Failed, match=r"its process died: exit status 3, memory \d+ MiB") as failed:
        await call(directory, "die")
    assert failed.value.crashed


async def test_the_process_ends_when_the_call_is_cancelled(directory: Path) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, directory, "wait", str(directory))
        with trio.fail_after(HANG_SECONDS):
            while not (directory / "begun").exists():
                await trio.sleep(0.01)
        pid = int((directory / "begun").read_text())
        assert lives(pid)
        nursery.cancel_scope.cancel()
    assert not lives(pid)


async def test_a_signal_is_told_by_its_name(directory: Path) -> None:
    async def kill() -> None:
        with trio.fail_after(HANG_SECONDS):
            while not (directory / "begun").exists():
                await trio.sleep(0.01)
        os.kill(int((directory / "begun").read_text()), signal.SIGSEGV)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(kill)
        with pytest.raises(Failed, match="killed by SIGSEGV"):
            await call(directory, "wait", str(directory))
