"""Tasks in processes that run nothing else meanwhile."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from disque_trio.process.logs import Log
from disque_trio.tasks.current import CurrentJob
from disque_trio.tasks.ending import Failed, JobCancelled
from disque_trio.worker.apart import Apart
from disque_trio.worker.child import find_app
from disque_trio.worker.options import parse
from tests.support.fake_job import FakeJob
from tests.support.harness import HANG_SECONDS
from tests.support.worker_rig import lives

APP = """
import os, re, signal, subprocess, sys, time
from pathlib import Path
import trio
from disque_trio.tasks import Disque, Reject, Retry, current_job

app = Disque("disque://nowhere.invalid")
HERE = Path(__file__).parent
STARTED = time.time()

def note(name, text):
    (HERE / "new").write_text(str(text))
    (HERE / "new").rename(HERE / name)

@app.hooks.on_shutdown
def shut_down():
    note("shutdown", os.getpid())

@app.task(name="who", timeout=60)
async def who(word, *, end):
    job = current_job()
    return [word + end, job.id, job.headers["x"], job.attempt, os.getpid()]

@app.task(name="fail")
def fail():
    raise ValueError("no such number")

@app.task(name="odd")
def odd():
    return lambda: None

class Value:
    def __reduce__(self):
        return sys.exit, (3,)

@app.task(name="quit")
def quit():
    return Value()

@app.task(name="long")
def long(characters):
    raise ValueError("é" * characters)

@app.task(name="forget", process=True)
def forget():
    os.closerange(3, 1024)

@app.task(name="fork", process=True)
def fork():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return child

@app.task(name="pid", process=True)
def pid():
    return os.getpid()

@app.task(name="large", process=True)
def large(text):
    return text * 2

@app.task(name="die", process=True)
def die():
    os._exit(3)

@app.task(name="sleep", process=True, timeout=0.3, never_for=())
def sleep(seconds):
    child = subprocess.Popen(["sleep", "1000"])
    note("begun", f"{os.getpid()} {child.pid}")
    try:
        time.sleep(seconds)
    finally:
        note("cleaned", "up")

@app.task(name="block", process=True, timeout=0.3)
def block():
    note("begun", os.getpid())
    re.match("(a*)*b", "a" * 40)  # which keeps Python's lock

@app.task(name="hang", timeout=0.3)
async def hang():
    note("begun", os.getpid())
    time.sleep(1000)

@app.task(name="late", timeout=0.3)
async def late():
    await trio.sleep_forever()

@app.task(name="wait", process=True)
def wait():
    note("begun", os.getpid())
    time.sleep(1000)

@app.task(name="watch", process=True)
def watch():
    note("begun", os.getpid())
    while not current_job().lost:
        time.sleep(0.01)
    return "lost"

@app.task(name="stay", process=True)
async def stay():
    note("begun", os.getpid())
    await trio.sleep_forever()
"""


class Said:
    """A log that says nothing."""

    def notice(self, event: str, **fields: Any) -> None: ...

    warning = notice


class Rig:
    """Runs tasks of an app in processes of their own."""

    def __init__(self, directory: Path, words: str, keep: float, answer: float) -> None:
        self.directory = directory
        name = f"apart_{directory.name}".replace("-", "_")
        (directory / f"{name}.py").write_text(APP)
        options = parse([f"{name}:app", "--app-dir", str(directory), *words.split()])
        self.app = find_app(options)
        self.apart = Apart(options, self.app.core, cast(Log, Said()), keep, answer)

    async def run(
        self,
        task: str,
        *args: object,
        alone: bool = False,
        job: FakeJob | None = None,
        **kwargs: object,
    ) -> Any:
        """Run a task."""
        definition = self.app.core.tasks[task]
        body = definition.serializer.dumps({"args": args, "kwargs": kwargs})
        held = job or FakeJob(task)
        current = CurrentJob("D-1", "q", task, 3, 5, {"x": "y"}, held, definition.backoff)
        with trio.fail_after(HANG_SECONDS):
            return await self.apart.run(held, current, definition, body, alone=alone)

    async def noted(self, name: str) -> list[int]:
        """Wait for the numbers that the app has noted."""
        path = self.directory / name
        await until(path.exists)
        return [int(word) for word in path.read_text().split() if word.isdigit()]


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(HANG_SECONDS):
        while not holds():
            await trio.sleep(0.01)


@asynccontextmanager
async def rig(
    directory: Path, words: str = "--cpu-processes 1", keep: float = 60, answer: float = 60
) -> AsyncIterator[Rig]:
    one = Rig(directory, words, keep, answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.apart.tend)
        yield one
        await one.apart.close()
        assert one.apart.count == 0
        nursery.cancel_scope.cancel()


async def test_a_task_gets_its_arguments_and_its_job_and_returns_a_value(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        *words, pid = await one.run("who", "ä", end="!", alone=True)
        assert words == ["ä!", "D-1", "y", 3]
        assert pid != os.getpid()


async def test_a_process_is_used_again_and_a_large_value_crosses(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        pid = await one.run("pid")
        assert (await one.run("pid"), one.apart.count) == (pid, 1)
        assert one.apart.memory() > 10 << 20
        text = "x" * (10 << 20)
        assert await one.run("large", text) == text * 2
        with pytest.raises(Failed, match="no such number"):
            await one.run("fail")
        assert await one.run("pid") == pid
    assert await one.noted("shutdown") == [pid]
    assert not lives(pid)


async def test_a_suspect_gets_a_process_that_nothing_else_has_used(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        pids = [await one.run("pid", alone=alone) for alone in (False, True, True, False)]
        assert len({*pids}) == 3
        assert pids[0] == pids[3]
        await until(lambda: not lives(pids[1]))


@pytest.mark.parametrize("words", ["--max-tasks 2", "--max-memory 1mb"])
async def test_a_process_is_replaced_as_others_are(tmp_path: Path, words: str) -> None:
    async with rig(tmp_path, words) as one:
        pids = [await one.run("pid") for _ in range(4)]
        assert len({*pids}) == (2 if "tasks" in words else 4)
        await until(lambda: not lives(pids[0]))


async def test_a_process_that_is_not_needed_ends(tmp_path: Path) -> None:
    async with rig(tmp_path, keep=0.1) as one:
        pid = await one.run("pid")
        assert await one.noted("shutdown") == [pid]
        await until(lambda: not lives(pid))
        assert one.apart.count == 0
        assert await one.run("pid") != pid


async def test_a_process_that_died_while_it_waited_is_no_failure(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        pid = await one.run("pid")
        os.kill(pid, signal.SIGKILL)
        assert await one.run("pid") != pid


async def test_a_process_that_was_stopped_while_it_waited_is_no_failure(tmp_path: Path) -> None:
    async with rig(tmp_path, answer=0.5) as one:
        pid = await one.run("pid")
        os.kill(pid, signal.SIGSTOP)
        assert await one.run("pid") != pid
        assert not lives(pid)


async def test_there_are_no_more_processes_than_allowed(tmp_path: Path) -> None:
    async with rig(tmp_path, "--cpu-processes 2") as one:
        pids: list[int] = []

        async def run() -> None:
            pids.append(await one.run("pid"))
            assert one.apart.count <= 2

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(run)
        assert len(pids) == 8
        assert len({*pids}) <= 2


@pytest.mark.parametrize("alone", [False, True])
async def test_a_death_is_told_with_its_status_and_memory(tmp_path: Path, alone: bool) -> None:
    async with rig(tmp_path) as one:
        with pytest.raises(Failed, match=r"its process died: exit status 3, memory \d+ MiB") as e:
            await one.run("die", alone=alone)
        assert e.value.crashed


async def test_a_signal_is_told_by_its_name(tmp_path: Path) -> None:
    async with rig(tmp_path) as one, trio.open_nursery() as nursery:

        async def kill() -> None:
            [pid] = await one.noted("begun")
            os.kill(pid, signal.SIGSEGV)

        nursery.start_soon(kill)
        with pytest.raises(Failed, match="killed by SIGSEGV"):
            await one.run("wait")


async def test_a_function_is_interrupted_at_its_time_limit_with_what_it_has_started(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as one:
        with pytest.raises(Failed) as failed:
            await one.run("sleep", 1000)
        assert failed.value.error == "TimeoutError: after 0.3 s: its process was ended"
        assert not failed.value.crashed
        assert not failed.value.final
        pid, child = await one.noted("begun")
        await one.noted("cleaned")
        await until(lambda: not (lives(pid) or lives(child)))


@pytest.mark.parametrize("task", ["block", "hang"])
async def test_a_process_that_does_not_listen_is_killed_at_its_time_limit(
    tmp_path: Path, task: str
) -> None:
    async with rig(tmp_path) as one:
        with pytest.raises(Failed) as failed:
            await one.run(task)
        assert failed.value.error == "TimeoutError: after 0.3 s: its process was ended"
        [pid] = await one.noted("begun")
        assert not lives(pid)


async def test_an_async_function_that_is_late_leaves_its_process(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        pid = await one.run("pid")
        with pytest.raises(Failed, match=r"TimeoutError: after 0.3 s"):
            await one.run("late")
        assert await one.run("pid") == pid


@pytest.mark.parametrize(("task", "alone"), [("wait", False), ("block", False), ("watch", True)])
async def test_a_process_ends_if_whoever_cancels_its_job_wants_that(
    tmp_path: Path, task: str, alone: bool
) -> None:
    async with rig(tmp_path) as one, trio.open_nursery() as nursery:
        job = FakeJob(task)
        job.terminate = not alone

        async def cancel() -> None:
            await one.noted("begun")
            job.lost = True
            job.cancel()

        nursery.start_soon(cancel)
        with pytest.raises(JobCancelled):
            await one.run(task, job=job, alone=alone)
        [pid] = await one.noted("begun")
        assert not lives(pid)


async def test_a_cancelled_job_is_lost_for_its_function(tmp_path: Path) -> None:
    async with rig(tmp_path) as one, trio.open_nursery() as nursery:
        job = FakeJob("watch")

        async def cancel() -> None:
            await one.noted("begun")
            job.cancel()

        nursery.start_soon(cancel)
        assert await one.run("watch", job=job) == "lost"
        (tmp_path / "begun").unlink()

        async def lose() -> None:
            await one.noted("begun")
            other.lost = True  # nobody says so

        other = FakeJob("watch")
        nursery.start_soon(lose)
        assert await one.run("watch", job=other) == "lost"


async def test_an_async_function_is_cancelled_with_its_job_and_leaves_its_process(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as one, trio.open_nursery() as nursery:
        job = FakeJob("stay")

        async def cancel() -> None:
            await one.noted("begun")
            job.cancel()

        nursery.start_soon(cancel)
        with pytest.raises(JobCancelled):
            await one.run("stay", job=job)
        assert await one.run("pid") == (await one.noted("begun"))[0]


async def test_a_job_that_is_cancelled_while_it_waits_for_a_process_never_runs(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as one, trio.open_nursery() as nursery:
        job = FakeJob("wait")
        nursery.start_soon(one.run, "wait")
        await one.noted("begun")

        async def cancel() -> None:
            await until(lambda: hasattr(job, "cancel"))
            job.cancel()

        nursery.start_soon(cancel)
        with pytest.raises(JobCancelled):
            await one.run("wait", job=job)
        nursery.cancel_scope.cancel()


async def test_a_process_ends_when_the_call_is_cancelled(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, "wait")
            [pid] = await one.noted("begun")
            assert lives(pid)
            nursery.cancel_scope.cancel()
        assert not lives(pid)


async def test_a_signal_meant_for_all_processes_does_not_end_a_task(tmp_path: Path) -> None:
    async with rig(tmp_path) as one, trio.open_nursery() as nursery:
        job = FakeJob("watch")

        async def send() -> None:
            [pid] = await one.noted("begun")
            os.kill(pid, signal.SIGTERM)
            job.cancel()

        nursery.start_soon(send)
        assert await one.run("watch", job=job) == "lost"


async def test_a_process_that_hangs_is_killed_if_that_is_wanted(tmp_path: Path) -> None:
    async with rig(tmp_path, "--stuck-after 3") as one, trio.open_nursery() as nursery:

        async def stop() -> None:
            [pid] = await one.noted("begun")
            os.kill(pid, signal.SIGSTOP)

        nursery.start_soon(stop)
        with pytest.raises(Failed, match="its process died: killed by SIGKILL") as failed:
            await one.run("wait")
        assert failed.value.crashed


async def test_a_value_that_cannot_cross_is_final(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        with pytest.raises(Failed) as failed:
            await one.run("odd")
        assert failed.value.final


async def test_a_value_that_ends_whoever_reads_it_is_final(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        with pytest.raises(Failed, match="SystemExit: 3") as failed:
            await one.run("quit")
        assert failed.value.final


async def test_an_error_of_any_length_is_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        with pytest.raises(Failed, match="ValueError: é"):
            await one.run("long", 3_000_000)


async def test_a_task_that_closes_what_it_does_not_know_takes_its_process_along(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as one:
        with pytest.raises(Failed, match="its process died: exit status 1") as failed:
            await one.run("forget")
        assert failed.value.crashed
        await one.run("pid")


async def test_a_child_that_a_task_has_forked_says_nothing_in_its_place(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        children = [await one.run("fork") for _ in range(2)]
        assert all(children)
        assert not any(map(lives, children))


async def test_a_task_that_the_code_does_not_have_any_more_did_not_fail(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        (module,) = tmp_path.glob("*.py")
        module.write_text(APP.replace('name="pid"', 'name="process"'))
        with pytest.raises(Failed, match="unknown task: 'pid'") as failed:
            await one.run("pid")
        assert failed.value.unknown


async def test_an_app_that_cannot_be_imported_fails_the_run(tmp_path: Path) -> None:
    async with rig(tmp_path) as one:
        (module,) = tmp_path.glob("*.py")
        module.write_text("raise ValueError('no')")
        with pytest.raises(Failed, match="cannot be imported") as failed:
            await one.run("pid")
        assert not failed.value.crashed
        assert failed.value.unknown
