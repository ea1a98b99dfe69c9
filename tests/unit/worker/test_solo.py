"""The run of a task in a process of its own."""

import json
import socket
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import trio

from disque_trio.tasks import Depends, Disque, Running, injected
from disque_trio.worker import solo


@pytest.fixture
def app() -> Disque:
    return Disque("disque://nowhere.invalid")


async def run(app: Disque, task: str, args: list[Any], **headers: str) -> dict[str, Any]:
    """Run a task; return the message that says how that ended."""
    job = {"id": "D-1", "queue": "q", "task": task, "attempt": 1, "retries": 5, "headers": headers}
    body = b64encode(json.dumps([args, {}]).encode()).decode()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        said = await solo.run(app, {"job": job, "letter": None, "args": body}, ours)
    message: dict[str, Any] = json.loads(said)
    return message


async def test_hooks_and_what_is_injected_are_there_too(app: Disque) -> None:
    seen: list[str] = []

    def get_name() -> Iterator[str]:
        yield "db"
        seen.append("closed")

    @app.hooks.around_run
    def around(run: Running) -> Iterator[None]:
        run.args[0] += 1
        yield
        seen.append(run.job.id)

    @app.task(name="work")
    def work(n: int, *, name: Annotated[str, Depends(get_name)] = injected) -> str:
        return f"{n} {name}"

    message = await run(app, "work", [1])
    assert (message["kind"], b64decode(message["value"])) == ("returned", b'"2 db"')
    assert seen == ["closed", "D-1"]


async def test_a_job_has_its_own_timeout_and_its_task_says_what_is_final(app: Disque) -> None:
    @app.task(name="sleep", timeout=600)
    async def sleep() -> None:
        await trio.sleep_forever()

    @app.task(name="fail", never_for=(ValueError,))
    def fail() -> None:
        raise ValueError("no")

    late = (await run(app, "sleep", [], **{"task-timeout": "0.001"}))["failed"]
    assert (late["error"], late["final"]) == ("TimeoutError: after 0.001 s", False)
    failed = (await run(app, "fail", []))["failed"]
    assert (failed["error"], failed["final"]) == ("ValueError: no", True)
