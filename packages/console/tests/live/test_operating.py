"""Schedules, clients, workers, slow commands, settings and bananaq, against real servers."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_console.command import main
from disque_trio.client.sync import connect
from packages.bananaq.tests.support.banana_daemons import launch
from packages.console.tests.live.conftest import PASSWORD, log_in
from packages.console.tests.support.console import HOSTILE, ConsoleProcess, Visitor, console, quoted
from tests.support.harness import LiveNode, free_port, wait_until
from tests.support.live_helpers import add_job, client_lines, pairs, start_node
from tests.support.tls_front import Certificates
from tests.support.worker_rig import worker_rig


@pytest.fixture
def visitor(open_console: ConsoleProcess) -> Visitor:
    """A visitor with all permissions."""
    return open_console.visitor()


def rows(visitor: Visitor, path: str) -> list[str]:
    """The rows of the tables of a page, as text."""
    found = re.findall(r"<tr data-key=.*?</tr>", visitor.get(path).text, re.S)
    return [" ".join(re.sub("<.*?>", " ", row).split()) for row in found]


# ---- schedules -----------------------------------------------------------------------------------


def test_a_schedule_shows_its_last_runs_and_what_became_of_them(
    node: LiveNode, visitor: Visitor
) -> None:
    node.ask("CRON", "SET", "often", "@every 1s", "often", "x")
    page = "/schedule?name=often"
    wait_until(lambda: len(rows(visitor, page)) == 5)
    node.ask("CRON", "PAUSE", "often")

    def acknowledged() -> bool:
        """Acknowledge the latest job; one may have been on its way when the schedule was paused."""
        node.ask("ACKJOB", re.findall(r"D-[\w/+-]{38}", visitor.get(page).says)[0])
        return " done" in rows(visitor, page)[0]

    wait_until(acknowledged)
    assert "not ended yet" in rows(visitor, page)[-1]
    assert "ago" in rows(visitor, "/schedules?search=often")[0]
    node.ask("CRON", "RESUME", "often")
    wait_until(lambda: "After that" in visitor.get(page).says)
    node.ask("CRON", "DEL", "often")


def test_a_schedule_is_set_run_paused_resumed_changed_and_deleted(
    node: LiveNode, visitor: Visitor
) -> None:
    fields = {"name": "tick", "times": "@every 1h", "queue": "ticks", "body": "a\r\nb"}
    said = visitor.do("/schedules", "cron-set", **fields, options='RETRY 5 HEADERS 1 kind "a b"')
    assert "The schedule tick has been saved." in said.says
    found = pairs(node.ask("CRON", "GET", "tick"))
    assert (found["times"], found["queue"], found["job"]) == (b"@every 1h", b"ticks", b"a\nb")
    assert found["options"] == [b"RETRY", b"5", b"HEADERS", b"1", b"kind", b"a b"]
    [row] = rows(visitor, "/schedules?search=tick")
    assert "@every 1h" in row
    assert " on " in row
    assert re.search(r" in \d+ (s|min) ", row)
    page = "/schedule?name=tick"
    assert "tick added D-" in visitor.do(page, "cron-run").says
    assert node.ask("QLEN", "ticks") == 1
    visitor.do(page, "cron-pause")
    assert pairs(node.ask("CRON", "GET", "tick"))["paused"] == 1
    assert "paused" in visitor.get(page).says
    visitor.do(page, "cron-resume")
    assert pairs(node.ask("CRON", "GET", "tick"))["paused"] == 0
    visitor.do(page, "cron-set", **fields | {"times": "@daily", "tz": "UTC"})
    assert pairs(node.ask("CRON", "GET", "tick"))["times"] == b"@daily"
    names = [field for tag, field in visitor.get(page).tags if field.get("name") == "name"]
    assert [(field["value"], "readonly" in field) for field in names] == [("tick", True)]
    renamed = visitor.do(page, "cron-set", **fields | {"name": "tock"})
    assert "Not done: a schedule cannot be renamed" in renamed.says
    assert node.ask("CRON", "GET", "tock") is None
    assert "tick has been deleted." in visitor.do(page, "cron-delete").says
    assert node.ask("CRON", "GET", "tick") is None
    assert "This schedule does not exist" in visitor.get(page).says


def test_what_belongs_to_a_user_says_so_and_why_it_does_nothing(
    node: LiveNode, visitor: Visitor
) -> None:
    node.ask("ACL", "SETUSER", "eve", "on", "nopass", "~eves", "%R~@eves.news", "+cron", "+bind")
    wire = node.wire()
    wire("AUTH", "eve", "any")
    wire("CRON", "SET", "eves", "@daily", "eves", "x")
    wire("BIND", "eves.news", "eves")
    wire.close()
    assert re.search(r"<dt>User</dt><dd>eve</dd>", visitor.get("/schedule?name=eves").text)
    node.ask("ACL", "DELUSER", "eve")
    wait_until(lambda: "user eve does not exist" in visitor.get("/schedule?name=eves").says)
    wait_until(
        lambda: any(
            "eves.news eve problem" in row and "user eve does not exist" in row
            for row in rows(visitor, "/queue?name=eves")
        )
    )
    node.ask("CRON", "DEL", "eves")
    node.ask("UNBIND", "eves.news", "eves")


def test_an_invalid_schedule_is_refused_with_the_nodes_error(
    visitor: Visitor,
) -> None:
    fields = {"name": "bad", "times": "sometimes", "queue": "q"}
    assert "Not done:" in visitor.do("/schedules", "cron-set", **fields).says


def test_a_binary_body_is_not_put_into_a_form(node: LiveNode, visitor: Visitor) -> None:
    assert node.ask("CRON", "SET", "binary", "@daily", "q", b"\xff\x00") == b"OK"
    page = visitor.get("/schedule?name=binary")
    assert "2 B, not text" in page.says
    assert "/do/cron-set" not in page.text


# ---- clients and workers -------------------------------------------------------------------------


def test_clients_are_found_and_disconnected(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    wire("CLIENT", "SETNAME", "to-be-killed")
    other = node.wire()
    other("CLIENT", "SETNAME", "stays")
    wait_until(lambda: len(rows(visitor, "/clients?search=to-be-killed")) == 1)
    [row] = rows(visitor, "/clients?search=to-be-killed")
    assert "client" in row
    said = visitor.do("/clients?search=to-be-killed", "kill").says
    assert f"of 127.0.0.1:{node.port} has been disconnected." in said
    names = [line["name"] for line in client_lines(other)]
    assert "to-be-killed" not in names
    assert "stays" in names
    assert rows(visitor, "/clients?search=to-be-killed") == []


@pytest.mark.parametrize("sort", ["node", "address", "name", "age", "idle", "memory", "nonsense"])
def test_clients_are_sorted(visitor: Visitor, sort: str) -> None:
    for order in ("up", "down", "x"):
        assert rows(visitor, f"/clients?sort={sort}&order={order}&page=99")


def test_workers_and_what_is_in_hand_are_shown(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    wire("CLIENT", "SETNAME", "worker-7")
    job = add_job(wire, "worked", "x", "RETRY", 100)
    wire("GETJOB", "FROM", "worked")

    def process() -> str:
        return " ".join(rows(visitor, "/workers?search=worker-7"))

    wait_until(
        lambda: re.search(r"worker-7 1 connection, .* 1 does not tell x for .* worked ", process())
    )
    [held] = [row for row in rows(visitor, "/workers?queue=worked") if job in row]
    assert re.search(r"\b([3-9]\d|100) s ", held)
    assert f"127.0.0.1:{node.port}" in held
    assert "worker-7" in held
    assert "has 1 of these" in visitor.get("/workers?queue=worked&search=worker-7").says
    assert "client " in visitor.get(f"/job?id={quoted(job)}").says.partition("Worker")[2]
    wire("ACKJOB", job)
    nobody = "No worker has a job of this queue"
    wait_until(lambda: nobody in visitor.get("/workers?queue=worked").says)


def test_workers_and_clients_are_shown_by_their_names(
    node: LiveNode, visitor: Visitor, tmp_path: Path
) -> None:
    assert rows(visitor, "/clients?search=disque-console:") != []  # the console itself
    with worker_rig(tmp_path, node.port) as rig:
        worker = rig.start()
        [pid] = worker.serves()
        wait_until(lambda: rows(visitor, f"/workers?search={pid}") != [])
        assert (
            f"disque-worker:{socket.gethostname()}:{pid}"
            in rows(visitor, f"/workers?search={pid}")[0]
        )
        worker.stop()
    with connect(f"disque://127.0.0.1:{node.port}?client_name=mailer-7") as client:
        client.add("named", "x", retry=10)
        client.get("named", nohang=True)
        wait_until(lambda: rows(visitor, "/clients?search=mailer-7") != [])
        wait_until(lambda: rows(visitor, "/workers?search=mailer-7") != [])


def test_a_job_whose_worker_is_gone_says_so(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    job = add_job(wire, "left alone", "x", "RETRY", 100)
    wire("GETJOB", "FROM", "left alone")
    id = wire("CLIENT", "ID")
    assert isinstance(id, int)
    node.ask("CLIENT", "KILL", "ID", id)

    def told() -> bool:
        return any(
            job in row and "gone" in row for row in rows(visitor, "/workers?queue=left+alone")
        )

    wait_until(told)


# ---- slow commands -------------------------------------------------------------------------------


def test_slow_commands_and_stalls_are_shown_and_cleared(tmp_path: Path) -> None:
    node = start_node(
        tmp_path, "--slowlog-log-slower-than", "0", "--latency-monitor-threshold", "1"
    )
    try:
        with console(tmp_path, [node.port]) as found:
            found.wait_for("/", " up ")
            visitor = found.visitor()
            node.ask("ADDJOB", "slow", HOSTILE[0], 0)
            node.ask("DEBUG", "SLEEP", "0.05")
            wait_until(lambda: any("DEBUG SLEEP" in row.upper() for row in rows(visitor, "/slow")))
            wait_until(lambda: len(rows(visitor, "/slow")) > 50)
            assert "<script>window" not in visitor.get("/slow").text
            node.ask("CONFIG", "SET", "slowlog-log-slower-than", "-1")
            assert "The slow log has been cleared." in visitor.do("/slow", "slowlog-reset").says
            assert node.ask("SLOWLOG", "LEN") == 0
            assert node.ask("LATENCY", "LATEST")
            node.ask("CONFIG", "SET", "latency-monitor-threshold", "0")
            assert (
                "The list of stalls has been cleared." in visitor.do("/slow", "latency-reset").says
            )
            assert node.ask("LATENCY", "LATEST") == []
    finally:
        node.close()


# ---- settings ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[list[LiveNode], ConsoleProcess]]:
    """Two separate nodes with configuration files, and a console for both."""
    nodes = []
    for number in range(2):
        directory = tmp_path_factory.mktemp(f"set-{number}")
        file = directory / "disque.conf"
        file.write_text("maxclients 500\n")
        options = ("--enable-protected-configs", "no")
        nodes.append(start_node(directory, *options, file=str(file)))
    directory = tmp_path_factory.mktemp("console")
    audit = ["--audit-log", str(directory / "audit.log")]
    try:
        with console(directory, [node.port for node in nodes], *audit) as found:
            found.wait_for("/", lambda text: text.count(" up ") == 2)
            yield nodes, found
    finally:
        for node in nodes:
            node.close()


def setting(node: LiveNode, name: str) -> object:
    return pairs(node.ask("CONFIG", "GET", name))[name]


def test_a_setting_is_changed_on_one_node_then_on_all_and_written(
    two: tuple[list[LiveNode], ConsoleProcess],
) -> None:
    (first, second), shown = two
    visitor = shown.visitor()
    page = "/setting?name=maxclients"
    assert "500" in visitor.get(page).says
    visitor.do(page, "setting", value="600", node=f"127.0.0.1:{first.port}")
    assert (setting(first, "maxclients"), setting(second, "maxclients")) == (b"600", b"500")
    assert "Values differ between nodes" in visitor.get(page).says
    different = visitor.get("/settings?only=different").says
    assert "maxclients nodes differ" in different
    said = visitor.do(page, "setting", value="700").says
    assert "maxclients is set on all responding nodes" in said
    assert (setting(first, "maxclients"), setting(second, "maxclients")) == (b"700", b"700")
    assert "maxclients nodes differ" not in visitor.get("/settings").says
    assert "to the configuration file" in visitor.do("/settings", "rewrite").says
    for node in (first, second):
        assert "maxclients 700" in (node.log.parent / "disque.conf").read_text()


def test_the_nodes_error_for_a_protected_or_invalid_setting_is_shown(
    two: tuple[list[LiveNode], ConsoleProcess],
) -> None:
    (first, _), shown = two
    visitor = shown.visitor()
    said = visitor.do("/setting?name=maxclients", "setting", value="many").says
    assert "Not done:" in said
    page = visitor.get("/setting?name=dir")
    assert "enable-protected-configs" in page.says
    before = setting(first, "dir")
    fields = page.fields("setting") | {"value": "/", "node": f"127.0.0.1:{first.port}"}
    answer = visitor.post("/do/setting", fields)
    assert "Not done:" in visitor.get(answer.where).says
    assert setting(first, "dir") == before
    assert "/do/setting" not in visitor.get("/setting?name=tcp-backlog").text


def test_a_secret_is_set_but_never_shown_or_audited(
    two: tuple[list[LiveNode], ConsoleProcess],
) -> None:
    (first, _), shown = two
    visitor = shown.visitor()
    page = "/setting?name=cluster-secret"
    secret = "a-secret-of-the-test-with-32-bytes-or-more"
    fields = {"value": secret, "node": f"127.0.0.1:{first.port}"}
    answer = visitor.do(page, "setting", **fields)
    for path in (page, "/settings", f"/settings?node=127.0.0.1:{first.port}", "/slow"):
        assert secret not in visitor.get(path).text
    assert secret not in answer.text
    lines = [json.loads(line) for line in (shown.log.parent / "audit.log").read_text().splitlines()]
    mine = [line for line in lines if line["fields"].get("setting") == "cluster-secret"]
    assert {line["fields"]["value"] for line in mine} == {"(hidden)"}
    assert secret not in (shown.log.parent / "audit.log").read_text()


# ---- roles ---------------------------------------------------------------------------------------


def test_each_role_is_offered_and_allowed_its_own_actions(
    node: LiveNode, guarded: ConsoleProcess
) -> None:
    node.ask("CRON", "SET", "roles", "@daily", "q", "x")
    wait_until(lambda: "127.0.0.1" in log_in(guarded, "viewer").get("/disque/cluster").text)
    pages = {
        "/disque/schedule?name=roles": ("cron-run", "operator"),
        "/disque/clients": ("kill", "admin"),
        "/disque/cluster": ("leave", "admin"),
        "/disque/setting?name=maxclients": ("setting", "admin"),
        "/disque/settings": ("rewrite", "admin"),
    }
    order = ("viewer", "operator", "admin")
    for role in order:
        visitor = log_in(guarded, role)
        token = visitor.get("/disque/queues").token
        for path, (action, least) in pages.items():
            offered = order.index(role) >= order.index(least)
            answer = visitor.get(path)
            assert answer.status == 200
            assert (f"/do/{action}" in answer.text) is offered
            if not offered:
                form = {"token": token, "confirmed": "yes"}
                assert visitor.post(f"/disque/do/{action}", form).status == 403


# ---- bananaq -------------------------------------------------------------------------------------


def test_the_groups_of_a_bananaq_are_shown_with_lag_and_pending(
    node: LiveNode, tmp_path: Path
) -> None:
    daemon = launch(tmp_path / "bananaq")
    try:
        with console(tmp_path, [node.port], "--bananaq", f"127.0.0.1:{daemon.port}") as found:
            visitor = found.visitor()
            assert 'href="/bananaq"' in visitor.get("/").text
            assert "There are no queues." in visitor.get("/bananaq").says
            for number in range(3):
                daemon.ask("QADD", "signups", 3600, f"event {number}")
            daemon.ask("QADD", HOSTILE[0], 3600, "x")
            daemon.ask("QGET", "signups", "mail")
            wait_until(lambda: any("mail" in row for row in rows(visitor, "/bananaq")))
            [row] = rows(visitor, "/bananaq?search=signups")
            assert row.split()[:8] == ["signups", "mail", "2", "1", "0", "0", "3", "0"]
            assert "<script>window" not in visitor.get("/bananaq").text
            daemon.close()
            wait_until(lambda: "Connection refused" in visitor.get("/bananaq").says)
    finally:
        daemon.close()


def test_a_bananaq_is_reached_with_user_password_and_tls(
    node: LiveNode, tmp_path: Path, certificates: Certificates
) -> None:
    port = free_port()
    options = ["--tls-port", str(port), "--tls-auth-clients", "no"]
    options += ["--tls-cert-file", certificates.cert("good")]
    options += ["--tls-key-file", certificates.key("good"), "--tls-ca-cert-file", certificates.ca]
    daemon = launch(tmp_path / "bananaq", *options)
    try:
        daemon.ask("QADD", "signups", 3600, "x")
        daemon.ask("QGET", "signups", "mail")
        rule = ["on", f">{PASSWORD}", "allkeys", "+@all"]
        assert daemon.ask("ACL", "SETUSER", "looks", *rule) == b"OK"
        url = f"bananaqs://looks:{quoted(PASSWORD)}@127.0.0.1:{port}?ssl_ca_certs={certificates.ca}"
        with console(tmp_path, [node.port], "--bananaq", url) as found:
            assert "signups mail" in found.visitor().get("/bananaq").says
            words = Path(f"/proc/{found.process.pid}/cmdline").read_text()
            assert quoted(PASSWORD) not in words
            assert PASSWORD not in found.visitor().get("/bananaq").text
    finally:
        daemon.close()


@pytest.mark.parametrize(
    "text", ["redis://h:1", "bananaq://se:cret", "bananaq://h:1,h:2", "bananaq://a@h:1"]
)
def test_an_invalid_address_of_a_bananaq_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--bananaq", text])
    said = capsys.readouterr().err
    assert "bananaq://user:password@host:port" in said
    assert "se:cret" not in said


def test_a_console_without_a_bananaq_does_not_offer_one(visitor: Visitor) -> None:
    assert visitor.get("/bananaq").status == 404
    assert 'href="/bananaq"' not in visitor.get("/").text


def test_another_server_instead_of_a_bananaq_is_reported(node: LiveNode, tmp_path: Path) -> None:
    with console(tmp_path, [node.port], "--bananaq", f"127.0.0.1:{node.port}") as found:
        assert "unknown command" in found.visitor().get("/bananaq").says.lower()


def test_hostile_names_are_text(node: LiveNode, visitor: Visitor) -> None:
    wire = node.wire()
    for name in HOSTILE[:8]:
        wire("CRON", "SET", name, "@daily", name, name)
        answer = visitor.get(f"/schedule?name={quoted(name)}")
        assert answer.status == 200
        assert visitor.get(f"/workers?queue={quoted(name)}&search={quoted(name)}").status == 200
    for path in ("/schedules", "/clients", "/workers"):
        text = visitor.get(path).text
        for bad in ("<script>window", "<img src=x", "<svg onload", "<iframe"):
            assert bad not in text
