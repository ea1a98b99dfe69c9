"""The lists of jobs by stage, against real nodes."""

import json
import re
from pathlib import Path

import pytest

from disque_trio.job_past import NOTHING, with_trace
from packages.console.tests.live.test_jobs import add, listed, page_of
from packages.console.tests.support.console import ConsoleProcess, Visitor, console
from tests.support.harness import LiveNode

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def visitor(open_console: ConsoleProcess) -> Visitor:
    """A visitor with all permissions."""
    return open_console.visitor()


def take(node: LiveNode, queue: str) -> str:
    reply = node.ask("GETJOB", "NOHANG", "FROM", queue)
    assert isinstance(reply, list)
    return reply[0][1].decode()  # type: ignore[no-any-return, index]


def tabs(visitor: Visitor, path: str) -> dict[str, str]:
    text = visitor.get(path).text
    part = text.partition('class="tabs"')[2].partition("</nav>")[0]
    return dict(re.findall(r">(\w+) <b>([\d,]+)</b>", part))


def test_each_list_has_its_jobs_in_order_and_the_numbers_of_all(
    node: LiveNode, open_console: ConsoleProcess, visitor: Visitor
) -> None:
    node.ask("QSET", "listed", "ATTEMPTS", 5, "DEAD", "listed.dead")
    worker = node.wire()
    worker("CLIENT", "SETNAME", "mailer-1")
    body = json.dumps({"args": [17], "kwargs": {"to": "ann"}})
    ids = [
        add(node, "listed", body, "HEADERS", 1, "task", "shop.send_mail", "GROUP", "acme")
        for _ in range(4)
    ]
    running, again, dead, fresh = ids
    assert worker("GETJOB", "FROM", "listed")[0][1].decode() == running
    assert take(node, "listed") == again
    assert take(node, "listed") == dead
    node.ask("NACK", again, "DELAY", 500, "REASON", "OSError: no route")
    node.ask("NACK", dead, "DEAD", "REASON", "ValueError: bad address")
    late, soon = (add(node, "listed", "x", "DELAY", delay) for delay in (900, 100))
    found = "/jobs?group=acme&state="
    counts = {"Queued": "1", "Running": "1", "Scheduled": "0", "Retrying": "1", "Dead": "1"}
    assert tabs(visitor, f"{found}running") == counts
    assert tabs(visitor, "/jobs?group=acme") == counts
    assert listed(visitor, f"{found}fresh") == [fresh]
    assert listed(visitor, f"{found}running") == [running]
    assert listed(visitor, f"{found}retrying") == [again]
    assert listed(visitor, "/jobs?queue=listed&state=delayed") == [soon, late]
    open_console.wait_for(f"{found}running", "1 of 5")  # it knows the policy
    says = visitor.get(f"{found}running").says
    for words in ("shop.send_mail", '17, to="ann"', "group acme", "mailer-1"):
        assert words in says
    says = visitor.get(f"{found}retrying").says
    assert "OSError: no route" in says
    assert "1 of 5" in says
    says = visitor.get(f"{found}dead").says
    assert "ValueError: bad address" in says
    assert "from listed" in says


def test_long_lists_have_pages(node: LiveNode, visitor: Visitor) -> None:
    order = [add(node, "paged", "x", "DELAY", 1_000 + number) for number in range(120)]
    first = visitor.get("/jobs?queue=paged&state=delayed")
    assert "50 of 120" in first.says
    assert listed(visitor, "/jobs?queue=paged&state=delayed") == order[:50]
    assert listed(visitor, "/jobs?queue=paged&state=delayed&page=3") == order[100:]
    assert 'rel="next"' not in visitor.get("/jobs?queue=paged&state=delayed&page=3").text
    assert "No such jobs." in visitor.get("/jobs?queue=paged&state=delayed&page=4").says


def test_bodies_are_searched(node: LiveNode, visitor: Visitor) -> None:
    one = add(node, "searched", "an amount of 5 euros")
    two = add(node, "searched", "an amount of 7 euros")
    assert set(listed(visitor, "/jobs?queue=searched&text=amount+of")) == {one, two}
    assert listed(visitor, "/jobs?queue=searched&text=7+euros") == [two]
    assert listed(visitor, "/jobs?queue=searched&state=fresh&text=5+euros") == [one]
    assert listed(visitor, "/jobs?queue=searched&text=Amount") == []


def test_actions_on_all_of_a_list_spare_the_others(node: LiveNode, visitor: Visitor) -> None:
    add(node, "spared", "x", "DELAY", 1_000)
    kept = add(node, "spared")
    page = visitor.get("/jobs?queue=spared&state=delayed").text
    (query,) = re.findall(r'name="filter" value="([^"]*)"', page.partition('id="all"')[2])
    assert "state=delayed" in query
    assert listed(visitor, "/jobs?queue=spared&state=fresh") == [kept]


def test_the_page_of_a_job_has_its_failure_with_the_traceback_and_its_progress(
    node: LiveNode, visitor: Visitor
) -> None:
    id = add(node, "failing", "x", "HEADERS", 1, "traceparent", f"00-{TRACE}-b7ad6b7169203331-01")
    take(node, "failing")
    reason = with_trace(
        "OSError: no route", 'x\n  File "/app/shop.py", line 2, in send\n    go()\n'
    )
    node.ask("NACK", id, "REASON", NOTHING.stopped().reason(reason))
    take(node, "failing")
    node.ask("WORKING", id, "PROGRESS", "0.25", "page 1 of 4")
    page = visitor.get(page_of(id))
    for words in ("OSError: no route", 'File "/app/shop.py", line 2, in send', "page 1 of 4"):
        assert words in page.says
    assert 'value="0.25"' in page.text
    assert "[1 returned" not in page.says
    assert TRACE in page.says
    assert "OSError: no route" in visitor.get("/jobs?queue=failing&state=running").says
    assert "shop.py" not in visitor.get("/jobs?queue=failing&state=running").says


def test_the_page_of_a_job_that_has_ended_says_how_and_with_what_result(
    node: LiveNode, visitor: Visitor
) -> None:
    id, gone = add(node, "ending"), add(node, "ending")
    take(node, "ending")
    node.ask("ACKJOB", id, "RESULT", '{"sum": 12}')
    says = visitor.get(page_of(id)).says
    assert "The job has ended: a worker acknowledged it." in says
    assert '"sum": 12' in says
    node.ask("CANCEL", gone)
    assert "it was cancelled" in visitor.get(page_of(gone)).says


def test_a_traced_job_links_to_its_trace(node: LiveNode, directory: Path) -> None:
    id = add(node, "traced", "x", "HEADERS", 1, "traceparent", f"00-{TRACE}-b7ad6b7169203331-01")
    with console(directory, [node.port], "--trace-url", "http://t.example/trace/{trace}") as found:
        found.wait_for("/", " up ")
        assert f'href="http://t.example/trace/{TRACE}"' in found.visitor().get(page_of(id)).text
