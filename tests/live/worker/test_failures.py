"""What the log of a worker says of tasks that fail."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import wait_until
from tests.support.worker_rig import Rig

APP = """
import time
import trio
from disque_trio.tasks import Disque, Reject, Retry

app = Disque()
options = {"queue": "mail", "retries": 1, "backoff": (0.05, 0.05), "redeliver_after": 30}

def parse(text):
    try:
        return int(text)
    except ValueError as error:
        raise LookupError("no number") from error

@app.task(name="thread", **options)
def thread():
    parse("3 apples")

@app.task(name="loop", **options)
async def loop():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, parse, "3 apples")

@app.task(name="process", process=True, **options)
def process():
    parse("3 apples")

@app.task(name="slow", timeout=0.05, **options)
async def slow():
    await trio.sleep_forever()

@app.task(name="again", **options)
def again():
    raise Retry("line is busy", delay=0.05)

@app.task(name="never", **options)
def never():
    raise Reject("no such number")
"""
AROUND = """
@app.hooks.around_run
def around(run):
    yield
    parse("3 apples")

@app.task(name="around", **options)
def inside():
    pass
"""


def failures(output: Path) -> list[dict[str, Any]]:
    """The lines of a worker's log about tasks that failed."""
    lines = [line for line in output.read_text().splitlines() if line.startswith("{")]
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [line for line in found if str(line["event"]).startswith("task ")]


def run(rig: Rig, task: str, app: str = APP, level: str = "notice") -> list[dict[str, Any]]:
    """What the log says of a task that fails twice."""
    (rig.directory / "fails.py").write_text(app)
    rig.add(task)
    worker = rig.start("--log-level", level, target="fails:app")
    wait_until(lambda: worker.ended("dead") == 1)
    assert worker.stop() == 0
    return failures(worker.output)


@pytest.mark.parametrize("task", ["thread", "loop", "process", "around"])
def test_each_failure_is_one_line_with_the_calls_of_the_program_and_no_others(
    rig: Rig, task: str
) -> None:
    again, last = run(rig, task, APP + AROUND * (task == "around"))
    assert (again["level"], last["level"]) == ("warning", "error")
    assert [line["attempt"] for line in (again, last)] == ["1 of 2", "2 of 2"]
    assert 0 < again["next_in"] < 1
    assert "next_in" not in last
    assert again["job"] == last["job"]
    for line in (again, last):
        assert (line["task"], line["error"]) == (task, "LookupError: no number")
        files = re.findall(r'File "(.*?)", line', line["exception"])
        assert {*files} == {str(rig.directory / "fails.py")}
        assert "ValueError: invalid literal for int()" in line["exception"]
        assert len(line["exception"]) < 1_000


def test_a_timeout_is_a_failure_without_calls(rig: Rig) -> None:
    again, last = run(rig, "slow")
    assert (again["level"], last["level"]) == ("warning", "error")
    assert again["error"] == "TimeoutError: after 0.05 s"
    assert "exception" not in again


def test_a_task_that_asks_to_be_tried_again_is_no_news_until_it_is_given_up(rig: Rig) -> None:
    (last,) = run(rig, "again")
    assert (last["level"], last["attempt"]) == ("error", "2 of 2")


def test_with_a_lower_level_it_is_told_each_time(rig: Rig) -> None:
    again, _ = run(rig, "again", level="verbose")
    assert (again["level"], again["next_in"]) == ("verbose", 0.05)


def test_a_task_that_gives_up_is_an_error_at_once(rig: Rig) -> None:
    (last,) = run(rig, "never")
    assert (last["level"], last["error"]) == ("error", "Reject: no such number")
