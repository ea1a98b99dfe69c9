"""The pages about jobs, against real nodes."""

import json
import re

import pytest

from disque_trio.overview.names import unquoted
from packages.console.tests.support.console import HOSTILE, ConsoleProcess, Visitor, quoted
from tests.support.harness import LiveNode, wait_until
from tests.support.live_helpers import add_job, pairs

GONE = "D-00000000-" + "0" * 24 + "-05a1"


@pytest.fixture
def visitor(open_console: ConsoleProcess) -> Visitor:
    """A visitor with all permissions."""
    return open_console.visitor()


def listed(visitor: Visitor, path: str) -> list[str]:
    """The ids on a page of jobs."""
    found = re.findall(r'name="shown" value="([^"]*)"', visitor.get(path).text)
    return [unquoted(value).partition("@")[0] for value in found]


def add(node: LiveNode, queue: str, body: str | bytes = "x", *more: str | int) -> str:
    id = node.ask("ADDJOB", queue, body, 0, *more)
    assert isinstance(id, bytes), id
    return id.decode()


def page_of(id: str) -> str:
    return f"/job?id={quoted(id)}"


def shown(node: LiveNode, id: str) -> dict[str, object]:
    return pairs(node.ask("SHOW", id))


def test_jobs_are_found_by_queue_state_age_header_and_returns(
    node: LiveNode, visitor: Visitor
) -> None:
    plain = add(node, "found")
    late = add(node, "found", "x", "DELAY", 1000, "HEADERS", 1, "kind", "late one")
    add(node, "other")
    assert set(listed(visitor, "/jobs?queue=found")) == {plain, late}
    assert listed(visitor, "/jobs?queue=found&state=queued") == [plain]
    assert listed(visitor, "/jobs?queue=found&state=active") == [late]
    assert listed(visitor, "/jobs?queue=found&state=with+a+worker") == []
    assert listed(visitor, "/jobs?queue=found&header=kind&value=late%20one") == [late]
    assert listed(visitor, "/jobs?queue=found&header=kind&value=x") == []
    assert listed(visitor, "/jobs?queue=found&youngest=1000") == []
    assert len(listed(visitor, "/jobs?queue=found&oldest=1000")) == 2
    assert listed(visitor, "/jobs?queue=found&returns=1") == []
    says = visitor.get("/jobs?queue=found").says
    assert "delayed" in says
    assert "2 jobs, out of about" in says


def test_jobs_are_found_by_group_several_headers_and_start_of_the_id(
    node: LiveNode, visitor: Visitor
) -> None:
    one = add(node, "filtered", "x", "GROUP", "g 1", "HEADERS", 2, "a", "1", "b", "2")
    two = add(node, "filtered", "x", "GROUP", "g 1", "HEADERS", 2, "a", "1", "b", "3")
    page = "/jobs?queue=filtered"
    assert set(listed(visitor, f"{page}&group=g+1")) == {one, two}
    assert listed(visitor, f"{page}&group=g") == []
    assert listed(visitor, f"{page}&header=a&value=1&header=b&value=3") == [two]
    assert listed(visitor, f"{page}&id={quoted(one[:20])}") == [one]
    answer = visitor.get(f"{page}&header=a&value=1&header=b&value=3&state=queued&oldest=900")
    fields = [attributes for tag, attributes in answer.tags if tag == "input"]
    names = [field.get("value") for field in fields if field.get("name") == "header"]
    assert names == ["a", "b", ""]


@pytest.mark.parametrize(
    "query", ["state=x", "id=x", "oldest=x", "from=x", "from=" + "f" * 40 + "-9"]
)
def test_an_invalid_query_is_not_an_error(visitor: Visitor, query: str) -> None:
    assert visitor.get(f"/jobs?{query}").status == 200


def test_pages_follow_the_cursors_and_miss_none(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    added = {add_job(wire, "paged") for _ in range(300)}
    path, seen = "/jobs?queue=paged", set[str]()
    for _ in range(100):
        answer = visitor.get(path)
        ids = re.findall(r'name="shown" value="([^"]*)"', answer.text)
        assert len(ids) <= 150
        seen |= {unquoted(value).partition("@")[0] for value in ids}
        following = re.search(r'rel="next" href="([^"]*)"', answer.text)
        if not following:
            break
        path = following[1].replace("&amp;", "&")
    assert seen == {id.decode() if isinstance(id, bytes) else id for id in added}


def test_a_job_is_shown_with_all_details(node: LiveNode, visitor: Visitor) -> None:
    id = add(
        node,
        "whole",
        '{"a":[1]}',
        "RETRY",
        77,
        "PRIORITY",
        5,
        "GROUP",
        "g1",
        "HEADERS",
        1,
        "h",
        "v",
    )
    answer = visitor.get(page_of(id))
    assert answer.status == 200
    for word in (id, "queued", "77 s", "g1", "[ 1 ]", "7b 22 61", f"127.0.0.1:{node.port}"):
        assert word in answer.says, word


def test_jobs_are_found_that_a_worker_has(node: LiveNode, visitor: Visitor) -> None:
    taken = add(node, "with", "x", "DELAY", 1000)
    add(node, "with", "x", "DELAY", 1000)
    node.ask("PROMOTE", taken)
    node.ask("GETJOB", "FROM", "with")
    assert listed(visitor, "/jobs?queue=with&state=with+a+worker") == [taken]
    assert "with a worker on 127.0.0.1" in " ".join(visitor.get(page_of(taken)).says.split())


def test_the_page_of_a_missing_job_says_so(node: LiveNode, visitor: Visitor) -> None:
    id = add(node, "goes")
    answer = visitor.get(page_of(id))
    form = answer.fields("job-promote")
    node.ask("ACKJOB", id)
    answer = visitor.get(page_of(id))
    assert answer.status == 200
    assert "The job has ended: a worker acknowledged it" in answer.says
    question = visitor.post("/do/job-promote", form)
    answer = visitor.post("/do/job-promote", question.fields("job-promote"))
    assert "0 of 1 job queued" in visitor.get(answer.where).says
    for path in (page_of(GONE), "/job?id=x", "/job"):
        assert visitor.get(path).status == 200
    assert visitor.get(f"/job/body?id={quoted(id)}").status == 404


def test_a_body_is_cut_on_the_page_and_complete_as_a_file(node: LiveNode, visitor: Visitor) -> None:
    body = b"<script>window.ran=1</script>" + bytes(range(256)) * 1000
    id = add(node, "large", body)
    answer = visitor.get(page_of(id))
    assert len(answer.body) < 200_000
    assert "The first 64 KiB of 250 KiB" in answer.says
    answer = visitor.get(f"/job/body?id={quoted(id)}")
    assert answer.body == body
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_hostile_bodies_and_headers_are_shown_unchanged(node: LiveNode, visitor: Visitor) -> None:
    for name in HOSTILE:
        headers = ("HEADERS", 1, name, name) if len(name) < 1000 else ()
        id = add(node, name, name, *headers)
        for path in (page_of(id), f"/jobs?queue={quoted(name)}&header={quoted(name)}"):
            answer = visitor.get(path)
            assert answer.status == 200
            for bad in ("<script>window", "<img src=x", "<svg onload", "<iframe", "\x07"):
                assert bad not in answer.text


def test_a_delayed_job_is_queued_now_and_a_delivered_one_again(
    node: LiveNode, visitor: Visitor
) -> None:
    id = add(node, "now", "x", "DELAY", 1000)
    assert "1 job queued" in visitor.do(page_of(id), "job-promote").says
    assert node.ask("QLEN", "now") == 1
    node.ask("GETJOB", "FROM", "now")
    assert "1 job queued." in visitor.do(page_of(id), "job-enqueue").says
    assert node.ask("QLEN", "now") == 1


def test_a_job_is_cancelled_and_one_is_deleted(node: LiveNode, visitor: Visitor) -> None:
    for action, word in (("job-cancel", "cancelled"), ("job-delete", "deleted")):
        id = add(node, "ended")
        answer = visitor.do(page_of(id), action)
        assert f"1 job {word}." in answer.says
        assert {"cancelled": "it was cancelled"}.get(word, "No responding node") in answer.says
        assert node.ask("SHOW", id) is None


def test_a_job_is_edited_and_moved_but_not_while_a_worker_has_it(
    node: LiveNode, visitor: Visitor
) -> None:
    id = add(node, "edited", "old\r\nlines")
    answer = visitor.do(page_of(id), "job-edit", body="new\r\nlines", ttl="500", retry="9")
    assert "The job has been changed." in answer.says
    job = shown(node, id)
    assert (job["body"], job["retry"]) == (b"new\r\nlines", 9)
    assert "1 job moved to new place." in visitor.do(page_of(id), "job-move", to="new place").says
    assert shown(node, id)["queue"] == b"new place"
    node.ask("GETJOB", "FROM", "new place")
    assert "DELIVERED" in visitor.do(page_of(id), "job-edit", body="newer").says
    assert "nothing to change" in visitor.do(page_of(id), "job-edit").says
    assert shown(node, id)["body"] == b"new\r\nlines"


def test_a_job_is_nacked_for_its_worker(node: LiveNode, visitor: Visitor) -> None:
    id = add(node, "handed")
    node.ask("GETJOB", "FROM", "handed")
    answer = visitor.do(page_of(id), "job-nack", reason="stuck")
    assert "1 job returned (NACK)." in answer.says
    assert shown(node, id)["nacks"] == 1
    assert shown(node, id)["last-reason"] == b"stuck"


def letter(node: LiveNode, queue: str, body: str = "bad", reason: str = "broken") -> str:
    """Make a dead letter from ``queue``; returns its id."""
    assert node.ask("QSET", queue, "ATTEMPTS", 1, "DEAD", f"{queue}.dead") == b"OK"
    id = add(node, queue, body)
    node.ask("GETJOB", "FROM", queue)
    node.ask("NACK", id, "REASON", reason, "DEAD")
    found: list[str] = []

    def there() -> bool:
        jobs = node.ask("QPEEK", f"{queue}.dead", -1)
        assert isinstance(jobs, list)
        found[:] = [job[1].decode() for job in jobs]
        return bool(found)

    wait_until(there)
    return found[0]


def test_a_dead_letter_is_edited_and_sent_back(node: LiveNode, visitor: Visitor) -> None:
    id = letter(node, "repair")
    page = visitor.get(page_of(id)).says
    for word in ("Dead letter", "given up by a worker", "broken", "repair"):
        assert word in page
    answer = visitor.do(page_of(id), "job-edit", body="good", then="redrive")
    assert "The dead letter was sent back" in answer.says
    jobs = node.ask("GETJOB", "FROM", "repair")
    assert isinstance(jobs, list)
    assert jobs[0][2] == b"good"
    assert node.ask("QLEN", "repair.dead") == 0


def test_a_letter_that_cannot_be_changed_is_not_sent_back(node: LiveNode, visitor: Visitor) -> None:
    id = letter(node, "taken")
    form = visitor.get(page_of(id)).fields("job-edit")
    node.ask("GETJOB", "FROM", "taken.dead")
    answer = visitor.post("/do/job-edit", form | {"body": "good", "then": "redrive"})
    assert "Not done: " in visitor.get(answer.where).says
    assert node.ask("QLEN", "taken") == 0


def test_a_letter_is_redriven(node: LiveNode, visitor: Visitor) -> None:
    id = letter(node, "again")
    assert "1 job sent back" in visitor.do(page_of(id), "job-redrive").says
    assert node.ask("QLEN", "again") == 1


def bulk(visitor: Visitor, path: str, action: str, **fields: str) -> str:
    """Run an action on all jobs on a page; returns the question and the result."""
    text = visitor.get(path).text
    pairs = re.findall(r'name="(shown|token|back)" value="([^"]*)"', text)
    form: dict[str, list[str]] = {"which": ["shown"], **{key: [v] for key, v in fields.items()}}
    for name, value in pairs:
        form.setdefault(name, []).append(value.replace("&amp;", "&"))
    for name in ("token", "back"):
        form[name] = form[name][:1]
    from urllib.parse import urlencode

    question = visitor.ask("POST", f"/do/{action}", urlencode(form, doseq=True))
    form["confirmed"] = ["yes"]
    answer = visitor.ask("POST", f"/do/{action}", urlencode(form, doseq=True))
    return question.says + " " + visitor.get(answer.where).says


def test_an_action_on_all_shown_jobs_runs_after_confirmation(
    node: LiveNode, visitor: Visitor
) -> None:
    for _ in range(5):
        add(node, "bulk", "x", "DELAY", 1000)
    path = "/jobs?queue=bulk"
    assert "Queue 5 jobs now" in (said := bulk(visitor, path, "job-promote"))
    assert "5 jobs queued." in said
    assert node.ask("QLEN", "bulk") == 5
    assert "5 jobs moved to bulk 2." in bulk(visitor, path, "job-move", to="bulk 2")
    assert node.ask("QLEN", "bulk 2") == 5
    assert "5 jobs cancelled." in bulk(visitor, "/jobs?queue=bulk%202", "job-cancel")
    assert listed(visitor, "/jobs?queue=bulk%202") == []


def test_nothing_is_done_without_selected_jobs(visitor: Visitor, node: LiveNode) -> None:
    add(node, "unticked")
    form = visitor.get("/jobs?queue=unticked").fields("job-promote")
    answer = visitor.post("/do/job-cancel", {"token": form["token"], "back": "/jobs"})
    assert "select some jobs first" in visitor.get(answer.where).says


def test_a_form_cannot_name_an_unknown_node(node: LiveNode, visitor: Visitor) -> None:
    id = add(node, "elsewhere")
    form = visitor.get(page_of(id)).fields("job-cancel") | {"job": f"{quoted(id)}%4010.9.9.9%3A1"}
    answer = visitor.post("/do/job-cancel", form | {"confirmed": "yes"})
    assert "not a node of the cluster" in visitor.get(answer.where).says
    assert node.ask("QLEN", "elsewhere") == 1


def test_actions_on_jobs_are_in_the_audit(
    node: LiveNode, visitor: Visitor, open_console: ConsoleProcess
) -> None:
    id = add(node, "noted")
    visitor.do(page_of(id), "job-cancel")
    path = open_console.log.parent / "open-audit.log"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    mine = [line for line in lines if quoted(id) in str(line["fields"].get("job"))]
    assert [(line["action"], line["result"]) for line in mine] == [
        ("job-cancel", "asked"), ("job-cancel", "done"),
    ]  # fmt: skip
