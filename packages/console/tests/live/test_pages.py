"""The pages and their actions, against a real node, without JavaScript."""

import http.client
import json
import re
from pathlib import Path

import pytest

from disque_trio.overview.names import unquoted
from packages.console.tests.support.console import HOSTILE, PAGES, ConsoleProcess, Visitor, quoted
from tests.support.harness import HANG_SECONDS, LiveNode, wait_until
from tests.support.live_helpers import add_job, pairs


@pytest.fixture
def visitor(open_console: ConsoleProcess) -> Visitor:
    """A visitor with all permissions."""
    return open_console.visitor()


def seen(visitor: Visitor, queue: str) -> None:
    """Wait until the console knows of a queue."""
    wait_until(lambda: "On the nodes" in visitor.get(f"/queue?name={quoted(queue)}").says)


def in_list(visitor: Visitor, queue: str) -> dict[str, str]:
    """The figures of a queue in the list, by their titles; empty if it is not there yet."""
    page = visitor.get(f"/queues?search={queue}").text
    cells = re.findall(r'data-label="([^"]*)">(.*?)</td>', page, re.S)
    return {name: re.sub("<.*?>", "", value).strip() for name, value in cells}


def test_a_queue_is_in_the_list_with_its_figures(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    for _ in range(3):
        add_job(wire, "listed")
    add_job(wire, "listed", "late", "DELAY", 1000)
    wire("GETJOB", "FROM", "listed")
    figures = {("Queued", "2"), ("Delayed", "1"), ("In hand", "1"), ("Dead", "0")}
    wait_until(lambda: figures <= in_list(visitor, "listed").items())
    assert "Oldest" in in_list(visitor, "listed")


def test_an_empty_queue_has_no_oldest_job(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    add_job(wire, "emptied")
    wire("GETJOB", "FROM", "emptied")
    wait_until(lambda: in_list(visitor, "emptied").get("Queued") == "0")
    assert in_list(visitor, "emptied")["Oldest"] == "\N{EN DASH}"


def test_the_list_is_sorted_searched_and_in_pages(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    for number in range(60):
        add_job(wire, f"many.{number:02}")
    wait_until(lambda: "1\N{EN DASH}50 of 60" in visitor.get("/queues?search=many.").says)

    def names(query: str) -> list[str]:
        return re.findall(r"<bdi>(many\.\d\d)</bdi>", visitor.get(f"/queues?{query}").text)

    assert names("search=many.&sort=name") == [f"many.{number:02}" for number in range(50)]
    assert names("search=many.&sort=name&page=2") == [f"many.{number}" for number in range(50, 60)]
    assert names("search=many.&sort=name&order=down&page=99")[-1] == "many.00"
    assert len(names("search=many.&size=100")) == 60
    assert names("search=*.0%3F&sort=name") == [f"many.{number:02}" for number in range(10)]


@pytest.mark.parametrize("query", ["sort=nonsense", "page=-1", "page=x", "size=9999999", "order=x"])
def test_an_invalid_query_is_not_an_error(visitor: Visitor, query: str) -> None:
    assert visitor.get(f"/queues?{query}").status == 200


def test_a_queue_can_be_paused_and_resumed(node: LiveNode, visitor: Visitor) -> None:
    add_job(node.wire(), "held")
    seen(visitor, "held")
    answer = visitor.do("/queue?name=held", "pause", direction="in")
    assert "held is paused." in answer.says
    assert node.ask("PAUSE", "held", "state") == b"in"
    wait_until(lambda: "in paused" in visitor.get("/queue?name=held").says)
    visitor.do("/queue?name=held", "pause", direction="out")
    assert node.ask("PAUSE", "held", "state") == b"out"
    wait_until(lambda: "out paused" in visitor.get("/queue?name=held").says)
    assert "held is no longer paused." in visitor.do("/queue?name=held", "resume").says
    assert node.ask("PAUSE", "held", "state") == b"none"


def test_a_purge_asks_first(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    add_job(wire, "purged")
    add_job(wire, "purged")
    seen(visitor, "purged")
    form = visitor.get("/queue?name=purged").fields("purge")
    question = visitor.post("/do/purge", form)
    assert question.status == 200
    assert "Cancel all jobs queued in purged, on all reachable nodes?" in question.says
    assert "It has 2 jobs now." in question.says
    assert wire("QLEN", "purged") == 2
    answer = visitor.do("/queue?name=purged", "purge")
    assert "Cancelled 2 jobs in purged." in answer.says
    assert wire("QLEN", "purged") == 0
    assert "cancelled" not in visitor.get("/queue?name=purged").says


def test_dead_letters_are_redriven_and_jobs_moved(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    assert wire("QSET", "failing", "ATTEMPTS", 1, "DEAD", "failing.dead") == b"OK"
    add_job(wire, "failing")
    [[_, id, _]] = wire("GETJOB", "FROM", "failing")  # type: ignore[misc]
    wire("NACK", id)
    wait_until(lambda: wire("QLEN", "failing.dead") == 1)
    seen(visitor, "failing.dead")
    form = visitor.get("/queue?name=failing.dead").fields("redrive")
    assert "failing.dead has 1 job now." in visitor.post("/do/redrive", form).says
    answer = visitor.do("/queue?name=failing.dead", "redrive")
    assert "Sent 1 job back from failing.dead." in answer.says
    assert wire("QLEN", "failing") == 1
    answer = visitor.do("/queue?name=failing", "move", to="elsewhere")
    assert "Moved 1 job from failing." in answer.says
    assert wire("QLEN", "elsewhere") == 1


def test_a_job_is_added_by_hand(node: LiveNode, visitor: Visitor) -> None:
    fields = {"body": "first\r\nsecond ü", "headers": "kind: test", "priority": "7", "ttl": "60"}
    answer = visitor.do("/queue?name=by-hand", "add", **fields)
    assert "Added D-" in answer.says
    job = node.ask("GETJOB", "WITHCOUNTERS", "WITHHEADERS", "FROM", "by-hand")
    assert isinstance(job, list)
    assert job[0][2] == "first\nsecond ü".encode()
    more = pairs(job[0][3:])
    assert more["priority"] == 7
    assert more["headers"] == [b"kind", b"test"]


def test_the_nodes_refusal_is_shown(visitor: Visitor) -> None:
    answer = visitor.do("/queue?name=refused", "add", body="x", replicate="3")
    assert "Not done:" in answer.says
    assert "NOREPL" in answer.says
    answer = visitor.do("/queue?name=refused", "add", body="x", ttl="soon")
    assert "Not done: ttl: 'soon' is not a number." in answer.says


def test_a_policy_is_set_changed_and_deleted(node: LiveNode, visitor: Visitor) -> None:
    page = "/queue?name=with%2Apolicy"
    own = "with\\*policy"
    answer = visitor.do(
        page, "policy", attempts="3", dead="d", **{"backoff-min": "1", "backoff-max": "60"}
    )
    assert "has been saved" in answer.says
    policy = pairs(node.ask("QGET", "with*policy"))
    expected = {"name": own.encode(), "attempts": 3, "dead": b"d", "backoff": [b"1", b"60"]}
    assert policy == expected
    assert node.ask("QGET", "withXpolicy") is None
    wait_until(lambda: "This queue has its own policy." in visitor.get(page).says)
    visitor.do(page, "policy", ttl="60", dead="")
    assert set(pairs(node.ask("QGET", "with*policy"))) == {"name", "ttl"}
    wait_until(lambda: 'name="ttl" inputmode="numeric" value="60"' in visitor.get(page).text)
    visitor.do(page, "unpolicy")
    assert node.ask("QGET", "with*policy") is None


def test_two_admins_who_change_a_policy_at_once_keep_both_changes(
    node: LiveNode, visitor: Visitor
) -> None:
    page = "/queue?name=two+admins"
    node.ask("QSET", "two admins", "ATTEMPTS", "3", "TTL", "60", "BACKOFF", "1", "8", "DEAD", "d")
    wait_until(lambda: "This queue has its own policy." in visitor.get(page).says)

    def form() -> dict[str, str]:
        hidden = visitor.get(page).fields("policy")
        shown = [name for name in hidden if name.endswith("-was")]
        return hidden | {name.removesuffix("-was"): unquoted(hidden[name]) for name in shown}

    def save(form: dict[str, str]) -> str:
        return visitor.get(visitor.post("/do/policy", form).where).says

    one, two = form(), form()
    assert "has been saved" in save(one | {"attempts": "5"})
    assert "has been saved" in save(two | {"ttl": "90", "dead": ""})
    policy = pairs(node.ask("QGET", "two admins"))
    assert policy == {"name": b"two admins", "attempts": 5, "ttl": 90, "backoff": [b"1", b"8"]}
    wait_until(lambda: 'name="ttl" inputmode="numeric" value="90"' in visitor.get(page).text)
    assert "Not done: nothing to change." in save(form())


def test_actions_are_in_the_audit(
    directory: Path, open_console: ConsoleProcess, visitor: Visitor
) -> None:
    visitor.do("/queue?name=audited", "add", body="x")
    lines = [json.loads(line) for line in (directory / "open-audit.log").read_text().splitlines()]
    mine = [line for line in lines if line["fields"].get("queue") == "audited"]
    assert [line["result"] for line in mine] == ["asked", "done"]
    assert {(line["user"], line["action"], line["address"]) for line in mine} == {
        ("anybody", "add", "127.0.0.1")
    }
    assert "token" not in mine[0]["fields"]


def test_hostile_names_are_shown_and_usable(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    for name in (*HOSTILE, b"\xff\xfe"):
        raw = name if isinstance(name, bytes) else name.encode()
        assert wire("ADDJOB", raw, b"x", 0)
        page = f"/queue?name={quoted(raw)}"
        wait_until(lambda page=page: "On the nodes" in visitor.get(page).says)
        visitor.do(page, "pause", direction="in")
        assert wire("PAUSE", raw, "state") == b"in"
        wait_until(lambda page=page: "/do/resume" in visitor.get(page).text)
        visitor.do(page, "resume")
        for path in (page, "/queues?size=100", f"/queues?search={quoted(raw)}", "/"):
            answer = visitor.get(path)
            assert answer.status == 200
            for bad in ("<script>window", "<img src=x", "<svg onload", "<iframe", "\x07"):
                assert bad not in answer.text
            assert "\u202e" not in answer.text.partition('id="live"')[2]
            assert answer.headers["X-Injected"] is None


def test_the_page_of_a_vanished_queue_says_so(node: LiveNode, visitor: Visitor) -> None:
    add_job(node.wire(), "vanishing")
    seen(visitor, "vanishing")
    node.ask("DEBUG", "FLUSHALL")
    wait_until(lambda: "No responding node knows" in visitor.get("/queue?name=vanishing").says)
    assert "Added D-" in visitor.do("/queue?name=vanishing", "add", body="x").says


@pytest.mark.parametrize("page", PAGES.values(), ids=list(PAGES))
def test_each_page_has_a_strict_content_policy(visitor: Visitor, page: str) -> None:
    answer = visitor.get(page.format(queue="q", job="D-x"))
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    for tag, attributes in answer.tags:
        assert tag not in ("style", "iframe", "object", "base")
        assert tag != "script" or attributes.get("src", "").startswith("/static/")
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
        for name in ("src", "href", "action"):
            assert attributes.get(name, "/").startswith(("/", "#")), attributes


def test_missing_pages_say_so(visitor: Visitor) -> None:
    for path in ("/nothing", "/queue", "/static/nothing.js", "/static/../app.py"):
        assert visitor.get(path).status == 404
    assert visitor.post("/do/nothing", {"token": "x"}).status == 404
    assert visitor.post("/queues", {}).status == 405


def test_events_contain_the_changes(node: LiveNode, open_console: ConsoleProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", open_console.port, timeout=HANG_SECONDS)
    connection.request("GET", "/queue?name=live", headers={"Accept": "text/event-stream"})
    reply = connection.getresponse()
    assert reply.headers["content-type"].startswith("text/event-stream")
    add_job(node.wire(), "live")
    for line in reply:
        if line.startswith(b"data: ") and "On the nodes" in json.loads(line[6:])["html"]:
            break
    connection.close()
