"""The page of dead letters, against a real node."""

import re
from urllib.parse import urlencode

import pytest

from packages.console.tests.support.console import ConsoleProcess, Visitor
from tests.support.harness import LiveNode, wait_until
from tests.support.live_helpers import add_job


@pytest.fixture
def visitor(open_console: ConsoleProcess) -> Visitor:
    """A visitor with all permissions."""
    return open_console.visitor()


def bury(node: LiveNode, queue: str, *reasons: str) -> None:
    """Make a dead letter from ``queue`` for each reason."""
    wire = node.wire()
    assert wire("QSET", queue, "ATTEMPTS", 1, "DEAD", f"{queue}.dead") == b"OK"
    for reason in reasons:
        add_job(wire, queue)
        [[_, id, _]] = wire("GETJOB", "FROM", queue)  # type: ignore[misc]
        wire("NACK", id, "REASON", reason, "DEAD")
    wait_until(lambda: wire("QLEN", f"{queue}.dead") == len(reasons))


def act(visitor: Visitor, path: str, reason: str, action: str) -> str:
    """Run an action on the group with a reason; returns the question and the result."""
    text = visitor.get(path).text
    group = next(part for part in text.split("<section") if f"<h3>{reason}</h3>" in part)
    fields = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', group)
    form = [(name, value.replace("&amp;", "&")) for name, value in fields]
    question = visitor.ask("POST", f"/do/{action}", urlencode(form))
    answer = visitor.ask("POST", f"/do/{action}", urlencode([*form, ("confirmed", "yes")]))
    return question.says + " " + visitor.get(answer.where).says


def test_letters_are_grouped_and_a_group_is_redriven_and_one_deleted(
    node: LiveNode, visitor: Visitor
) -> None:
    bury(node, "reasons", "timeout", "bad input", "timeout", "timeout")
    path = "/dead?queue=reasons.dead"
    wait_until(lambda: "4 of 4 jobs" in visitor.get(path).says)
    says = visitor.get(path).says
    assert says.index("timeout 3 letters, given up by a worker, from reasons") < says.index(
        "bad input 1 letter,"
    )
    said = act(visitor, path, "timeout", "job-redrive")
    assert "Send 3 jobs back" in said
    assert "3 jobs sent back" in said
    assert (node.ask("QLEN", "reasons"), node.ask("QLEN", "reasons.dead")) == (3, 1)
    said = act(visitor, path, "bad input", "job-delete")
    assert "Delete 1 job " in said
    assert "1 job deleted." in said
    assert "The queue is empty." in visitor.get(path).says


def test_all_letters_of_a_queue_are_redriven(node: LiveNode, visitor: Visitor) -> None:
    bury(node, "whole", "a", "b")
    answer = visitor.do("/dead?queue=whole.dead", "redrive")
    assert "Sent 2 jobs back from whole.dead." in answer.says
    assert node.ask("QLEN", "whole") == 2


def test_queues_are_found_by_their_policies(node: LiveNode, visitor: Visitor) -> None:
    bury(node, "named", "why")
    wait_until(lambda: "named.dead 1 " in visitor.get("/dead").says)
    answer = visitor.get("/dead?queue=named.dead")
    [job] = re.findall(r'class="id" href="([^"]*)"', answer.text)
    assert "Dead letter" in visitor.get(job).says


def test_large_letters_are_all_read(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    for _ in range(15):
        wire("ADDJOB", "heavy.dead", b"x" * 40_000, 0)
    wait_until(lambda: "15 of 15 jobs" in visitor.get("/dead?queue=heavy.dead").says)
    assert "added to this queue as ordinary jobs" in visitor.get("/dead?queue=heavy.dead").says
