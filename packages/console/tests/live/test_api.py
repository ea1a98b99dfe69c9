"""The console's HTTP API, against a real node and a real console."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from packages.console.tests.live.conftest import PASSWORD
from packages.console.tests.support.console import Answer, ConsoleProcess, Visitor
from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, LiveNode, wait_until
from tests.support.live_helpers import add_job

pytestmark = pytest.mark.live

API = "/disque/api/v1"


class Program:
    """A program that has a token of a user; without a user, none."""

    def __init__(self, console: ConsoleProcess, user: str = "", base: str = API) -> None:
        self._visitor: Visitor = console.visitor()
        self._base = base
        self.token = ""
        if user:
            found = self.ask("POST", "/token", {"user": user, "password": PASSWORD})
            assert found["role"] == user
            self.token = found["token"]

    def ask(
        self, method: str, path: str, body: object = None, status: int = 200, **headers: str
    ) -> Any:
        """What an address answers, which has this status."""
        answer = self.answer(method, path, body, **headers)
        assert answer.status == status, answer.text
        return json.loads(answer.text) if answer.body else None

    def answer(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        own: Mapping[str, str] = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None:
            headers = {"Content-Type": "application/json", **headers}
        text = None if body is None else body if isinstance(body, str) else json.dumps(body)
        return self._visitor.ask(method, self._base + path, text, **own, **headers)


def test_the_cluster_is_told_as_the_pages_and_the_command_show_it(
    guarded: ConsoleProcess, node: LiveNode
) -> None:
    program = Program(guarded, "viewer")
    wire = node.wire()
    name = "post/a b?ü"
    add_job(wire, name, "x", "HEADERS", 1, "task", "send")
    late = add_job(wire, name, b"\xff", "DELAY", 100)
    address = f"127.0.0.1:{node.port}"
    wait_until(lambda: program.ask("GET", "/queues?search=post*")["total"])
    assert program.ask("GET", "/overview")["nodes_up"] == 1
    [told] = program.ask("GET", "/nodes")["nodes"]
    assert (told["node"], told["state"]) == (address, "up")
    [row] = program.ask("GET", "/queues?search=post*&sort=length&descending=true")["queues"]
    assert (row["queue"], row["queued"], row["nodes"]) == (name, 1, [address])
    queue = program.ask("GET", "/queues/post%2Fa%20b%3F%C3%BC")
    assert (queue["queued"], queue["delayed"]) == (1, 1)

    found = program.ask("GET", "/jobs?queue=post/a%20b%3F%C3%BC")
    assert {job["state"] for job in found["jobs"]} == {"fresh", "delayed"}
    assert found["next"] is None
    [job] = program.ask("GET", "/jobs?state=delayed&queue=post/a%20b%3F%C3%BC")["jobs"]
    assert (job["id"], job["body_base64"]) == (_text(late), "/w==")
    assert program.ask("GET", f"/jobs/{_text(late)}")["id"] == _text(late)

    worker = node.wire()
    worker("CLIENT", "SETNAME", "disque-worker:host:7")
    worker("GETJOB", "FROM", name)

    def taken() -> list[str]:
        rows = program.ask("GET", "/workers")["workers"]
        found = [row for row in rows if row["worker"] == "disque-worker:host:7"]
        return [job["queue"] for row in found for job in row["jobs"]]

    wait_until(lambda: taken() == [name])  # it may tell what it knew some seconds ago
    wire("CRON", "SET", "nightly", "0 3 * * *", "reports", "x")
    rows = program.ask("GET", "/schedules")["schedules"]
    [row] = [row for row in rows if row["name"] == "nightly"]
    assert (row["name"], row["queue"], row["paused"]) == ("nightly", "reports", False)
    wire("CRON", "DEL", "nightly")


def _text(id: object) -> str:
    return id.decode() if isinstance(id, bytes) else str(id)


def test_pages_of_jobs_follow_each_other(guarded: ConsoleProcess, node: LiveNode) -> None:
    program = Program(guarded, "viewer")
    wire = node.wire()
    ids = {_text(add_job(wire, "pages", "x")) for _ in range(30)}
    found: list[str] = []
    cursor = ""
    while True:
        page = program.ask("GET", f"/jobs?queue=pages&limit=10&cursor={cursor}")
        found += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert sorted(found) == sorted(ids)


def test_actions_need_their_role_and_are_audited(
    guarded: ConsoleProcess, node: LiveNode, directory: Any
) -> None:
    viewer, operator = Program(guarded, "viewer"), Program(guarded, "operator")
    fields = {"queue": "acted upon %41", "direction": "in"}
    refused = viewer.ask("POST", "/actions/pause", fields, status=403)
    assert "operator" in refused["error"]
    add_job(node.wire(), "acted upon %41", "x")
    assert operator.ask("POST", "/actions/pause", fields)["result"] == "done"
    fields_of = node.ask("QSTAT", "acted upon %41")
    assert isinstance(fields_of, list)
    assert fields_of[fields_of.index(b"pause") + 1] == b"in"
    added = operator.ask("POST", "/actions/add", {"queue": "acted upon %41", "body": "x"}, 409)
    assert "PAUSED" in added["error"]
    assert operator.ask("POST", "/actions/resume", fields)["result"] == "done"
    assert "no queue" in operator.ask("POST", "/actions/resume", {}, 400)["error"]
    operator.ask("POST", "/actions/nonsense", {}, 404)
    lines = [json.loads(line) for line in (directory / "audit.log").read_text().splitlines()]
    results = [line["result"] for line in lines if line.get("action") == "pause"]
    assert results == ["refused", "asked", "done"]
    names = {each["name"]: each for each in viewer.ask("GET", "/actions")["actions"]}
    assert names["pause"]["role"] == "operator"
    assert names["purge"]["destroys"]


def test_only_tokens_open_the_api(guarded: ConsoleProcess) -> None:
    nobody = Program(guarded)
    answer = nobody.answer("GET", "/queues")
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    wrong = nobody.ask("POST", "/token", {"user": "viewer", "password": "x"}, 403)
    assert wrong == {"error": "Wrong user or password."}
    assert nobody.answer("GET", "/openapi.json").status == 200
    viewer = Program(guarded, "viewer")
    # A cookie does not open it, so that no other site can use that of a browser.
    cookie = f"disque_console={viewer.token}"
    assert nobody.answer("GET", "/queues", Cookie=cookie).status == 401
    answer = viewer.answer("GET", "/queues")
    assert answer.status == 200
    assert "set-cookie" not in answer.headers
    assert viewer.answer("DELETE", "/token").status == 204
    assert viewer.answer("GET", "/queues").status == 401


def test_wrong_requests_are_told_what_is_wrong(guarded: ConsoleProcess) -> None:
    program = Program(guarded, "operator")
    for method, path, body, status, says in [
        ("GET", "/queues?limit=x", None, 400, "limit must be a whole number from 1 to 1000"),
        ("GET", "/queues?limit=1&limit=2", None, 400, "limit is given more than once"),
        ("GET", "/queues?sorted=name", None, 400, "there is no parameter 'sorted'"),
        ("GET", "/queues?descending=1", None, 400, "true or false"),
        ("GET", "/jobs?state=gone", None, 400, "state must be one of"),
        ("GET", "/jobs?cursor=7", None, 400, "cursor"),
        ("GET", "/queues/nothing", None, 404, "no node that answers has this queue"),
        ("GET", "/jobs/D-1", None, 404, "no node has this job"),
        ("GET", "/nothing", None, 404, ""),
        ("PUT", "/queues", None, 405, ""),
        ("POST", "/actions/pause", "{", 400, "the body is not JSON"),
        ("POST", "/actions/pause", "[]", 400, "the body must be an object"),
        ("POST", "/actions/pause", {"queue": 7}, 400, "queue must be a text"),
        ("POST", "/token", {"user": "x"}, 400, "the body must have the texts user, password"),
    ]:
        found = program.ask(method, path, body, status)
        assert says in found["error"]
    answer = program.answer("POST", "/actions/pause", "{}", **{"Content-Type": "text/plain"})
    assert answer.status == 415


def test_a_console_without_accounts_needs_no_token(open_console: ConsoleProcess) -> None:
    program = Program(open_console, base="/api/v1")
    assert program.ask("GET", "/overview")["nodes"] == 1
    program.ask("POST", "/token", {"user": "x", "password": "y"}, 409)
    other = {"Origin": "https://evil.example"}
    assert program.answer("POST", "/actions/resume", {"queue": "q"}, **other).status == 403


def test_the_api_is_as_its_document_says(guarded: ConsoleProcess, node: LiveNode) -> None:
    pytest.importorskip("schemathesis")
    program = Program(guarded, "operator")
    wire = node.wire()
    worker = node.wire()
    for queue in ("one", "two"):
        add_job(wire, queue, '{"args": []}', "HEADERS", 1, "task", "send")
        worker("GETJOB", "FROM", queue)
        add_job(wire, queue, b"\xff", "DELAY", 1_000)
    wait_until(lambda: program.ask("GET", "/queues")["total"] >= 1)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run"),
            f"http://127.0.0.1:{guarded.port}{API}/openapi.json",
            *("--header", f"Authorization: Bearer {program.token}"),
            *("--checks", "all", "--max-examples", "25", "--seed", "1", "--no-color"),
            # Which fields an action has, its form says; the session is not to end meanwhile.
            *("--exclude-checks", "positive_data_acceptance"),
            *("--exclude-operation-id", "delete_token"),
            *("--generation-database", "none", "--phases", "examples,coverage,fuzzing"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_commands_of_the_page_work(open_console: ConsoleProcess, node: LiveNode) -> None:
    page = (ROOT / "packages/console/docs/console-api.md").read_text()
    [typed] = re.findall(r"```console\n(.*?)```", page, re.S)
    add_job(node.wire(), "mail", "x")
    program = Program(open_console, base="/api/v1")
    wait_until(lambda: program.ask("GET", "/queues?search=mail")["total"])
    for command, said in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:[^$].*\n)*)", typed, re.M):
        if "/token" in command:
            continue  # this console has no accounts
        words = command.replace("8711", str(open_console.port)).replace("https:", "http:")
        words = words.replace("console.example.com", "127.0.0.1")
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", words],
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG_SECONDS,
        )
        assert done.stdout.strip() == said.strip()
