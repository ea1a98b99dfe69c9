"""The page of workers: what processes report of themselves, and what they are asked to do."""

import json
from pathlib import Path

from packages.console.tests.live.conftest import log_in
from packages.console.tests.live.test_operating import rows
from packages.console.tests.support.console import ConsoleProcess
from tests.support.harness import LiveNode, wait_until
from tests.support.live_helpers import add_job

REPORT = (
    *("worker", "host:41", "version", "0.2.0", "slots", 4, "running", 1, "memory", 64 << 20),
    *("state", "serving", "queues", 2, "queue", "reported", "queue", "other queue"),
)
NAME = "disque-worker:host:42"


def test_a_worker_tells_of_slots_memory_and_queues_and_is_stopped(
    open_console: ConsoleProcess, guarded: ConsoleProcess, node: LiveNode, directory: Path
) -> None:
    worker, old = node.wire(), node.wire()
    worker("CLIENT", "SETNAME", NAME)
    worker("WORKER", "REPORT", *REPORT)
    old("CLIENT", "SETNAME", "old-worker")
    for queue, wire in (("reported", worker), ("unreported", old)):
        add_job(node.wire(), queue, "x")
        wire("GETJOB", "FROM", queue)
    operator = open_console.visitor()
    page = f"/workers?search={NAME}"

    def row(says: str = "") -> str:
        return next((row for row in rows(operator, page) if says in row), "")

    wait_until(lambda: row("1 of 4"))
    for text in ("part of host:41", "64 MiB", "reported", "other queue"):
        assert text in row()
    wait_until(lambda: "does not tell" in rows(operator, "/workers?search=old-worker")[0])
    assert "do/worker-stop" not in operator.get("/workers?search=old-worker").text
    viewer = log_in(guarded, "viewer")
    assert "do/worker-stop" not in viewer.get(f"/disque{page}").text
    question = operator.post("/do/worker-stop", operator.get(page).fields("worker-stop"))
    assert "Stop the worker host:41" in question.says
    assert "1 job)" in question.says
    assert worker("WORKER", "REPORT", *REPORT) == b"OK"  # not before it is confirmed
    said = operator.do(page, "worker-stop").says
    assert "host:41 is asked to stop" in said
    assert worker("WORKER", "REPORT", *REPORT) == b"STOP"
    wait_until(lambda: row("is to stop"))
    assert "asked to hand back" in operator.do(page, "worker-hand-back").says
    assert worker("WORKER", "REPORT", *REPORT) == b"HANDBACK"
    lines = [json.loads(line) for line in (directory / "open-audit.log").read_text().splitlines()]
    stopped = [line for line in lines if line.get("action") == "worker-stop"]
    assert [line["result"] for line in stopped] == ["asked", "done"]
