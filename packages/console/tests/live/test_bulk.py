"""Bulk actions on all jobs that match a filter, with forms only."""

import html
import json
import re
from collections.abc import Iterator

import pytest

from packages.console.tests.live.conftest import log_in
from packages.console.tests.support.console import Answer, ConsoleProcess, Visitor, console, quoted
from tests.support.harness import LiveNode, wait_until
from tests.support.live_cluster import LiveCluster, live_cluster
from tests.support.live_helpers import add_job


@pytest.fixture
def visitor(open_console: ConsoleProcess) -> Visitor:
    """A visitor with all permissions."""
    return open_console.visitor()


def begin(visitor: Visitor, filter: str, action: str, prefix: str = "", **fields: str) -> Answer:
    """Press the button of a bulk action, and follow the redirect."""
    page = visitor.get(f"{prefix}/jobs?{filter}").text.partition('id="all"')[2]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', page)
    form = {html.unescape(name): html.unescape(value) for name, value in found}
    answer = visitor.post(f"{prefix}/bulk", form | fields | {"action": action})
    assert answer.status == 303, answer.says
    return visitor.get(answer.where)


def press(visitor: Visitor, page: Answer, what: str) -> Answer:
    """Press a button on the page of a run."""
    key = re.search(rf'data-key="{what}".*?</form>', page.text, re.S)
    assert key, page.says
    form = dict(re.findall(r'name="([^"]*)" value="([^"]*)"', key[0]))
    answer = visitor.post("/bulk/go", form)
    assert answer.status == 303, answer.says
    return visitor.get(answer.where)


def through(visitor: Visitor, page: Answer) -> Answer:
    """Continue the run until there is nothing left to do."""
    for _ in range(100):
        if 'data-key="go"' not in page.text:
            return page
        page = press(visitor, page, "go")
    raise AssertionError(page.says)


def test_matching_jobs_on_many_pages_are_counted_confirmed_and_done(
    node: LiveNode, visitor: Visitor, open_console: ConsoleProcess
) -> None:
    wire = node.wire()
    for _ in range(230):
        add_job(wire, "many pages")
    stays = node.ask("ADDJOB", "other", "x", 0)
    page = through(visitor, begin(visitor, "queue=many+pages&state=queued", "job-cancel"))
    assert "Cancel 230 jobs?" in page.says
    assert node.ask("QLEN", "many pages") == 230
    late = node.ask("ADDJOB", "many pages", "x", 0)
    page = through(visitor, press(visitor, page, "confirm"))
    assert "Counted 230 Done 230 Untouched 0" in page.says
    assert node.ask("QLEN", "many pages") == 1
    assert isinstance(late, bytes)
    assert isinstance(stays, bytes)
    assert node.ask("SHOW", late) is not None
    assert node.ask("SHOW", stays) is not None
    lines = (open_console.log.parent / "open-audit.log").read_text().splitlines()
    ours = {"queue": "many pages", "state": "queued"}
    mine = [line for line in map(json.loads, lines) if line.get("filter") == ours]
    assert [(line["action"], line["result"], line["jobs"], line["done"]) for line in mine] == [
        ("job-cancel", "asked", 230, 0), ("job-cancel", "done", 230, 230),
    ]  # fmt: skip


def test_jobs_with_a_worker_are_reported_and_the_others_moved_and_changed(
    node: LiveNode, visitor: Visitor
) -> None:
    wire = node.wire()
    for _ in range(4):
        add_job(wire, "half")
    wire("GETJOB", "FROM", "half")
    page = through(visitor, begin(visitor, "queue=half", "job-change", retry="77"))
    page = through(visitor, press(visitor, page, "confirm"))
    assert "Counted 4 Done 3 Not done 1: DELIVERED" in page.says
    page = through(visitor, begin(visitor, "queue=half&state=queued", "job-move", to="half 2"))
    page = through(visitor, press(visitor, page, "confirm"))
    assert "Done 3" in page.says
    assert node.ask("QLEN", "half 2") == 3


def test_matching_dead_letters_are_redriven(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    assert wire("QSET", "origin", "DEAD", "letters") == b"OK"
    for header in ("eu", "eu", "us"):
        id = add_job(wire, "origin", "x", "HEADERS", 1, "region", header)
        wire("GETJOB", "FROM", "origin")
        assert wire("NACK", id, "DEAD") == 1
    add_job(wire, "letters", "x", "HEADERS", 1, "region", "eu")  # not a dead letter
    search = "queue=letters&header=region&value=eu"
    page = through(visitor, begin(visitor, search, "job-redrive"))
    assert "Send 3 jobs back as new jobs?" in page.says
    page = through(visitor, press(visitor, page, "confirm"))
    assert "Counted 3 Done 2 Not done 1: gone, or the action does not apply" in page.says
    assert (node.ask("QLEN", "origin"), node.ask("QLEN", "letters")) == (2, 2)
    page = through(visitor, begin(visitor, f"{search[:-2]}us", "job-redrive", to="elsewhere"))
    page = through(visitor, press(visitor, page, "confirm"))
    assert (node.ask("QLEN", "elsewhere"), node.ask("QLEN", "letters")) == (1, 1)
    assert "search in one queue" in begin(visitor, "state=queued", "job-redrive").says


def test_two_operators_at_once_cancel_each_job_once(
    node: LiveNode, open_console: ConsoleProcess
) -> None:
    wire = node.wire()
    for _ in range(10):
        add_job(wire, "both")
    one, two = open_console.visitor(), open_console.visitor()
    pages = [through(who, begin(who, "queue=both", "job-cancel")) for who in (one, two)]
    assert "Done 10" in through(one, press(one, pages[0], "confirm")).says
    says = through(two, press(two, pages[1], "confirm")).says
    assert "Counted 10 Done 0 Untouched 10: gone" in says


def test_a_run_is_stopped_before_anything_is_done(node: LiveNode, visitor: Visitor) -> None:
    node.ask("ADDJOB", "kept", "x", 0)
    page = begin(visitor, "queue=kept", "job-delete")
    form = dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', page.text))
    visitor.post("/bulk/go", form | {"do": "stop"})
    answer = visitor.post("/bulk/go", form | {"do": "confirm"})
    assert "stopped" in visitor.get(answer.where).says
    assert node.ask("QLEN", "kept") == 1


def test_invalid_fields_lead_back_to_the_list(node: LiveNode, visitor: Visitor) -> None:
    node.ask("ADDJOB", "sense", "x", 0)
    assert "enter the queue" in begin(visitor, "queue=sense", "job-move").says
    assert "enter a new delay" in begin(visitor, "queue=sense", "job-change").says
    assert visitor.get("/bulk?run=x").status == 404
    token = visitor.get("/jobs?queue=sense").token
    assert visitor.post("/bulk", {"token": token, "action": "purge"}).status == 404
    assert visitor.post("/bulk", {"token": "x", "action": "job-cancel"}).status == 403
    assert visitor.post("/bulk/go", {"token": token, "run": "x", "do": "go"}).status == 404


def test_viewers_may_not_start_a_run_and_nobody_may_continue_anothers(
    node: LiveNode, guarded: ConsoleProcess
) -> None:
    wire = node.wire()
    id = add_job(wire, "others")
    operator, viewer = log_in(guarded, "operator"), log_in(guarded, "viewer")
    wait_until(lambda: " up " in viewer.get("/disque/").says)
    page = begin(operator, "queue=others", "job-cancel", prefix="/disque")
    form = dict(re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', page.text))
    assert 'id="all"' not in viewer.get("/disque/jobs?queue=others").text
    assert viewer.get(f"/disque/bulk?run={form['run']}").status == 404
    token = {"token": viewer.get("/disque/").token}
    assert viewer.post("/disque/bulk/go", form | token | {"do": "confirm"}).status == 404
    assert viewer.post("/disque/bulk", token | {"action": "job-cancel"}).status == 403
    assert node.ask("SHOW", id) is not None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Two nodes."""
    with live_cluster(tmp_path_factory.mktemp("cluster"), 2) as cluster:
        yield cluster


def test_a_node_that_dies_after_the_count_is_reported_and_the_others_jobs_are_done(
    cluster: LiveCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with console(tmp_path_factory.mktemp("console"), [cluster[0].port]) as shown:
        shown.wait_for("/", lambda text: text.count(" up ") == 2)
        for node in cluster:
            wire = node.wire()
            for _ in range(30):
                wire("ADDJOB", "dies", "x", 0, "REPLICATE", 1)
        visitor = shown.visitor()
        page = through(visitor, begin(visitor, f"queue={quoted('dies')}", "job-cancel"))
        assert "Cancel 60 jobs?" in page.says
        cluster[1].kill()
        try:
            page = through(visitor, press(visitor, page, "confirm"))
            says = page.says
            assert "Counted 60 Done 30 Untouched 30: gone" in says
            assert f"127.0.0.1:{cluster[1].port}: " in says.partition("Untouched")[2]
            assert cluster[0].ask("QLEN", "dies") == 0
        finally:
            cluster[1].start()


def test_jobs_are_moved_although_a_node_with_copies_hangs(
    cluster: LiveCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    wire = cluster[0].wire()
    with console(tmp_path_factory.mktemp("console"), [cluster[0].port]) as shown:
        shown.wait_for("/", lambda text: text.count(" up ") == 2)
        for _ in range(20):
            wire("ADDJOB", "hangs", "x", 5_000, "REPLICATE", 2)
        visitor = shown.visitor()
        page = through(visitor, begin(visitor, "queue=hangs", "job-move", to="hangs 2"))
        assert "Move 20 jobs to hangs 2?" in page.says
        cluster[1].pause()
        try:
            page = through(visitor, press(visitor, page, "confirm"))
        finally:
            cluster[1].resume()
    assert "Counted 20 Done 20" in page.says
    assert "Not done" not in page.says
    assert (wire("QLEN", "hangs"), wire("QLEN", "hangs 2")) == (0, 20)
