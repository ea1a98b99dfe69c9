"""Security: sessions, tokens, roles, other sites, other host names."""

import http.client
import json
import socket
import ssl
import time
from pathlib import Path

import pytest

from disque_console.model.passwords import read_users
from disque_console.model.roles import Role
from disque_console.model.sessions import Session, Sessions
from disque_console.web.security import COOKIE
from packages.console.tests.live.conftest import PASSWORD, log_in
from packages.console.tests.support.console import PAGES, ConsoleProcess, console, quoted
from tests.support.harness import HANG_SECONDS, LiveNode, wait_until
from tests.support.live_helpers import add_job
from tests.support.tls_front import Certificates

ADD = {"queue": "guarded", "body": "x"}


@pytest.mark.parametrize("page", PAGES.values(), ids=list(PAGES))
def test_without_a_session_each_page_leads_to_the_login(guarded: ConsoleProcess, page: str) -> None:
    path = "/disque" + page.format(queue="q", job="D-x")
    answer = guarded.visitor().ask("GET", path)
    assert answer.status == 303
    assert answer.where.startswith("/disque/login?next=")
    events = guarded.visitor().ask("GET", path, Accept="text/event-stream")
    assert (events.status, events.body) == (204, b"")


def test_a_login_leads_to_the_requested_page_and_never_elsewhere(
    guarded: ConsoleProcess,
) -> None:
    for wanted in (
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/other/",
        "javascript:1",
    ):
        visitor = guarded.visitor(**{"X-Forwarded-For": "10.1.0.1"})
        form = {"user": "viewer", "password": PASSWORD, "next": wanted}
        assert visitor.post("/disque/login", form).where == "/disque/"


def test_the_cookie_is_for_this_path_and_no_script_sees_it(guarded: ConsoleProcess) -> None:
    form = {"user": "viewer", "password": PASSWORD, "next": ""}
    for scheme, secure in (("http", False), ("https", True)):
        headers = {"X-Forwarded-For": "10.1.0.2", "X-Forwarded-Proto": scheme}
        line = guarded.visitor(**headers).post("/disque/login", form).headers["set-cookie"]
        assert "HttpOnly" in line
        assert "SameSite=Lax" in line
        assert "Path=/disque/" in line
        assert ("Secure" in line) is secure


def test_a_viewer_sees_no_buttons_and_cannot_post(guarded: ConsoleProcess, node: LiveNode) -> None:
    visitor = log_in(guarded, "viewer")
    page = visitor.get("/disque/queue?name=guarded")
    assert "/do/" not in page.text
    id = node.ask("ADDJOB", "looked-at", "x", 0)
    assert isinstance(id, bytes)
    for path in ("/jobs?queue=looked-at", f"/job?id={quoted(id)}", "/dead?queue=looked-at"):
        wait_until(lambda path=path: id.decode()[:19] in visitor.get(f"/disque{path}").says)
        assert "/do/" not in visitor.get(f"/disque{path}").text
    cancel = {"job": f"{quoted(id)}%40127.0.0.1%3A{node.port}", "confirmed": "yes"}
    assert visitor.post("/disque/do/job-cancel", cancel | {"token": page.token}).status == 403
    assert node.ask("QLEN", "looked-at") == 1
    answer = visitor.post("/disque/do/add", ADD | {"token": page.token})
    assert answer.status == 403
    assert "needs the role operator; yours is viewer" in answer.says
    assert node.ask("QLEN", "guarded") == 0


def test_an_operator_acts_and_does_not_set_policies(
    guarded: ConsoleProcess, node: LiveNode
) -> None:
    visitor = log_in(guarded, "operator")
    token = visitor.get("/disque/queue?name=operated").token
    form = {"queue": "operated", "body": "x", "token": token}
    assert visitor.post("/disque/do/add", form).status == 303
    assert node.ask("QLEN", "operated") == 1
    answer = visitor.post("/disque/do/policy", {"policy": "operated", "ttl": "9", "token": token})
    assert answer.status == 403
    assert node.ask("QGET", "operated") is None


def test_a_form_needs_the_token_of_its_own_session(guarded: ConsoleProcess, node: LiveNode) -> None:
    visitor, other = log_in(guarded, "admin"), log_in(guarded, "operator")
    token = other.get("/disque/queue?name=guarded").token
    for wrong in ("", "0" * 64, token, "ü"):
        answer = visitor.post("/disque/do/add", ADD | {"token": wrong})
        assert answer.status == 403
    assert visitor.post("/disque/do/add", ADD).status == 403
    assert node.ask("QLEN", "guarded") == 0


def test_forms_from_other_sites_are_refused(guarded: ConsoleProcess, node: LiveNode) -> None:
    visitor = log_in(guarded, "admin")
    form = {"queue": "crossed", "body": "x", "token": visitor.get("/disque/queue?name=q").token}
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert visitor.post("/disque/do/add", form, **headers).status == 403
    assert node.ask("QLEN", "crossed") == 0
    assert visitor.post("/disque/do/add", form, Origin=guarded.base).status == 303


def test_forged_and_expired_sessions_are_invalid(
    guarded: ConsoleProcess, users: Path, directory: Path
) -> None:
    secret = (directory / "secret").read_bytes().strip()
    good, forged = Sessions(secret), Sessions(b"x" * 32)
    now = time.time()
    mark = read_users(users.read_text())["admin"].mark
    cookies = {
        good.begin("admin", Role.ADMIN, now, mark)[1]: 200,
        good.begin("admin", Role.ADMIN, now)[1]: 303,
        good.begin("admin", Role.ADMIN, now - 13 * 3600, mark)[1]: 303,
        good.begin("nobody", Role.ADMIN, now, mark)[1]: 303,
        forged.begin("admin", Role.ADMIN, now, mark)[1]: 303,
        good._cookie(Session("x", "admin", Role.ADMIN, float("nan"), mark)): 303,
        "x" * 4000: 303,
    }
    for cookie, status in cookies.items():
        visitor = guarded.visitor()
        visitor.cookies[COOKIE] = cookie
        assert visitor.ask("GET", "/disque/queues").status == status
    assert (directory / "secret").stat().st_mode & 0o777 == 0o600


def test_the_role_comes_from_the_file_not_from_the_cookie(
    guarded: ConsoleProcess, users: Path, directory: Path
) -> None:
    secret = (directory / "secret").read_bytes().strip()
    visitor = guarded.visitor()
    mark = read_users(users.read_text())["viewer"].mark
    visitor.cookies[COOKIE] = Sessions(secret).begin("viewer", Role.ADMIN, time.time(), mark)[1]
    assert "/do/" not in visitor.get("/disque/queue?name=q").text
    before = users.read_text()
    users.write_text(before.replace("viewer:viewer", "viewer:admin"))
    assert "/do/" in visitor.get("/disque/queue?name=q").text
    users.write_text("".join(line for line in before.splitlines(True) if "viewer" not in line))
    assert visitor.ask("GET", "/disque/").status == 303
    users.write_text(before)


def test_after_a_logout_the_cookie_is_invalid(guarded: ConsoleProcess) -> None:
    visitor = log_in(guarded, "viewer")
    cookie = visitor.cookies[COOKIE]
    token = visitor.get("/disque/").token
    assert visitor.post("/disque/logout", {}).where == "/disque/login"
    assert visitor.ask("GET", "/disque/").status == 200
    visitor.post("/disque/logout", {"token": token})
    assert COOKIE not in visitor.cookies
    visitor.cookies[COOKIE] = cookie
    assert visitor.ask("GET", "/disque/").status == 303


def test_logins_and_refusals_are_in_the_audit(guarded: ConsoleProcess, directory: Path) -> None:
    visitor = log_in(guarded, "viewer", "10.7.0.7")
    visitor.post("/disque/do/add", ADD | {"token": visitor.get("/disque/").token})
    bad = {"user": "viewer", "password": "s3cret-that-was-wrong"}
    guarded.visitor(**{"X-Forwarded-For": "10.7.0.7"}).post("/disque/login", bad)
    text = (directory / "audit.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    mine = [(line["event"], line["result"]) for line in lines if line.get("address") == "10.7.0.7"]
    assert mine == [("login", "done"), ("action", "refused"), ("login", "refused")]
    assert "s3cret" not in text
    assert PASSWORD not in text


def test_an_endless_form_is_cut_off(guarded: ConsoleProcess) -> None:
    visitor = log_in(guarded, "operator")
    answer = visitor.ask("POST", "/disque/do/add", "body=" + "x" * (17 << 20))
    assert answer.status == 413


def test_endless_and_slow_headers_delay_nobody_else(guarded: ConsoleProcess) -> None:
    slow = [socket.create_connection(("127.0.0.1", guarded.port), 30) for _ in range(50)]
    for connection in slow:
        connection.sendall(b"GET /disque/queues HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    with socket.create_connection(("127.0.0.1", guarded.port), 30) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Large: " + b"x" * 200_000)
            connection.sendall(b"\r\n\r\n")
            assert connection.recv(100)[:12] in (b"", b"HTTP/1.1 431", b"HTTP/1.1 400")
        except ConnectionError:
            pass
    assert guarded.visitor().get("/disque/login").status == 200
    for connection in slow:
        # A request that does not arrive is abandoned.
        assert b" 200 " not in connection.recv(1000)
        connection.close()


def test_nothing_is_served_outside_the_prefix(guarded: ConsoleProcess) -> None:
    assert guarded.visitor().ask("GET", "/").where == "/disque/"
    assert guarded.visitor().ask("GET", "/queues").status == 404
    assert guarded.visitor().ask("GET", "/disquex/queues").status == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("", 403),
        ("a]b", 403),
    ],
)
def test_without_a_login_only_known_host_names_are_served(
    open_console: ConsoleProcess, host: str, status: int
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", open_console.port, timeout=HANG_SECONDS)
    connection.putrequest("GET", "/queues", skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    assert connection.getresponse().status in (status, 400 if not host else status)
    connection.close()


def test_the_users_of_the_cluster_can_log_in_and_act_as_themselves(
    node: LiveNode, directory: Path
) -> None:
    rules = {
        "acl-viewer": "allkeys -@all +@read +@connection +info",
        "acl-operator": "allkeys +@all -@admin",
        "acl-admin": "allkeys +@all",
        "acl-mail": "resetkeys ~mail.* +@all -@admin",
    }
    for user, rule in rules.items():
        assert node.ask("ACL", "SETUSER", user, "on", f">{PASSWORD}", *rule.split()) == b"OK"
    with console(directory, [node.port], "--acl", "--trusted-proxy", "127.0.0.1") as found:

        def enter(user: str, password: str = PASSWORD) -> object:
            visitor = found.visitor(**{"X-Forwarded-For": f"10.2.0.{len(user)}"})
            form = {"user": user, "password": password, "next": "/queues"}
            status = visitor.post("/login", form).status
            return visitor if status == 303 else status

        wait_until(lambda: enter("acl-admin") != 503)
        assert enter("acl-admin", "wrong") == 403
        assert enter("ghost") == 403
        for role in ("viewer", "operator", "admin"):
            visitor = enter(f"acl-{role}")
            assert f"acl-{role} {role}" in visitor.get("/queues").says  # type: ignore[attr-defined]
        visitor = enter("acl-mail")
        done = visitor.do("/queue?name=mail.x", "add", body="x")  # type: ignore[attr-defined]
        assert "Added D-" in done.says
        done = visitor.do("/queue?name=other", "add", body="x")  # type: ignore[attr-defined]
        assert "NOPERM" in done.says
        cookie = visitor.cookies[COOKIE]  # type: ignore[attr-defined]
    assert node.ask("QLEN", "mail.x") == 1
    assert cookie


def test_users_changed_or_removed_in_the_cluster_change_in_the_console(
    node: LiveNode, directory: Path
) -> None:
    def set_user(user: str, *rules: str) -> None:
        rules = ("reset", "on", f">{PASSWORD}", "allkeys", *rules)
        assert node.ask("ACL", "SETUSER", user, *rules) == b"OK"

    users = ("shrinks", "removed", "renamed", "turned-off")
    for user in users:
        set_user(user, "+@all")
    add_job(node.wire(), "shown")
    with console(directory, [node.port], "--acl") as found:
        visitors = {user: found.visitor() for user in users}
        form = {"password": PASSWORD, "next": "/"}
        first = form | {"user": users[0]}
        wait_until(lambda: found.visitor().post("/login", first).status != 503)  # node not reached
        for user, visitor in visitors.items():
            assert visitor.post("/login", form | {"user": user}).status == 303
            token = visitor.get("/queue?name=shown").token
            assert "/do/policy" in visitor.get("/queue?name=shown").text
        visitor = visitors["shrinks"]
        token = visitor.get("/queue?name=shown").token
        set_user("shrinks", "-@all", "+@read", "+@connection", "+info")
        # The node refuses at once, the console a little later.
        said = visitor.do("/queue?name=shown", "pause", direction="in")
        assert "NOPERM" in said.says
        assert node.ask("ACL", "DELUSER", "removed") == 1
        set_user("renamed", "resetpass", ">another", "+@all")
        set_user("turned-off", "off", "+@all")
        wait_until(lambda: "shrinks viewer" in visitor.get("/queues").says)
        assert "/do/" not in visitor.get("/queue?name=shown").text
        answer = visitor.post("/do/pause", {"queue": "shown", "direction": "in", "token": token})
        assert answer.status == 403
        assert "NOPERM" in visitor.get("/settings").says
        for user in users[1:]:
            wait_until(lambda user=user: visitors[user].ask("GET", "/").status == 303)
        assert node.ask("PAUSE", "shown", "state") == b"none"


def test_with_tls_it_is_https(node: LiveNode, directory: Path, certificates: Certificates) -> None:
    options = ["--certificate", certificates.cert("good")]
    options += ["--certificate-key", certificates.key("good")]
    context = ssl.create_default_context(cafile=certificates.ca)
    with console(directory, [node.port], *options, tls=context) as found:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", found.port, timeout=HANG_SECONDS, context=context
        )
        connection.request("GET", "/queues")
        assert connection.getresponse().status == 200
        connection.close()
        assert found.stop() == 0
