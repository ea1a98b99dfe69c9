"""Users: what each may do, from the rules to the wire."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.harness import LiveNode, NodeFactory, Wire, free_port, wait_until
from tests.support.live_helpers import receive_all, run_server, start_node

PERM = "NOPERM this user has no permissions to "


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    node = start_node(tmp_path_factory.mktemp("users"))
    yield node
    node.close()


@pytest.fixture
def admin(shared: LiveNode) -> Iterator[Wire]:
    """An operator on a node with only the default user."""
    wire = shared.wire()
    yield wire
    names = wire("ACL", "USERS")
    for name in names:
        if name != b"default":
            wire("ACL", "DELUSER", name)
    wire("ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "&*", "+@all")
    wire("ACL", "LOG", "RESET")
    wire("DEBUG", "FLUSHALL")


def login(node: LiveNode, name: str, password: str = "p") -> Wire:
    wire = node.wire()
    assert wire("AUTH", name, password) == b"OK"
    return wire


def rights(admin: Wire, name: str, *rules: str) -> None:
    assert admin("ACL", "SETUSER", name, "reset", "on", ">p", *rules) == b"OK"


def test_a_user_may_do_what_its_rules_say(shared: LiveNode, admin: Wire) -> None:
    rights(admin, "shop", "+@read", "-@dangerous", "+addjob", "%W~mail.*", "%R~log")
    shop = login(shared, "shop")
    id = shop("ADDJOB", "mail.in", "body", 0)
    assert isinstance(id, bytes)
    keys = PERM + "access one of the keys used as arguments"
    assert shop.error("ADDJOB", "log", "body", 0) == keys
    assert shop.error("GETJOB", "FROM", "mail.in") == PERM + "run the 'getjob' command"
    assert shop.error("CONFIG", "GET", "*") == PERM + "run the 'config|get' command"
    assert shop.error("PING") == PERM + "run the 'ping' command"
    assert shop.error("NOSUCH").startswith("ERR unknown command")
    assert shop.error("ADDJOB").startswith("ERR wrong number of arguments")
    assert shop("QLEN", "log") == 0
    assert shop.error("SHOW", id) == keys


def test_a_job_is_acknowledged_by_those_who_may_take_from_its_queue(
    shared: LiveNode, admin: Wire
) -> None:
    id = admin("ADDJOB", "mail", "body", 0)
    rights(admin, "other", "+@all", "~other", "%W~mail")
    rights(admin, "mailer", "+@all", "%R~mail")
    other, mailer = login(shared, "other"), login(shared, "mailer")
    for command in ("ACKJOB", "FASTACK", "WORKING", "NACK", "DELJOB", "DEQUEUE", "ENQUEUE", "SHOW"):
        assert other.error(command, id).startswith("NOPERM")
    assert admin("SHOW", id) is not None
    assert mailer("ACKJOB", id) == 1


def test_a_group_is_looked_at_when_it_comes_and_when_it_is_run(
    shared: LiveNode, admin: Wire
) -> None:
    rights(admin, "a", "+addjob", "+multi", "+exec", "~*")
    wire = login(shared, "a")
    assert wire("MULTI") == b"OK"
    assert wire.error("QLEN", "q") == PERM + "run the 'qlen' command"
    assert wire.error("EXEC").startswith("EXECABORT")
    assert wire("MULTI") == b"OK"
    assert wire("ADDJOB", "q", "b", 0) == b"QUEUED"
    admin("ACL", "SETUSER", "a", "-addjob")
    assert "NOPERM" in wire.error("EXEC")
    assert admin("QLEN", "q") == 0
    entries = admin("ACL", "LOG")
    found = {(dict(zip(e[::2], e[1::2], strict=True))[b"object"], e[5]) for e in entries}
    assert found == {(b"qlen", b"multi"), (b"addjob", b"multi")}


def test_waiting_and_consuming_clients_lose_rights_with_their_user(
    shared: LiveNode, admin: Wire
) -> None:
    rights(admin, "w", "+@all", "%R~a", "%R~b")
    waits, gets, watches, pushed = (login(shared, "w") for _ in range(4))
    waits.send("GETJOB", "FROM", "a")
    gets.send("GETJOB", "FROM", "b")
    watches("MONITOR")
    pushed("HELLO", 3)
    assert pushed("CONSUME", "a", "CREDIT", 1) is not None

    def blocked() -> bool:
        info = admin("INFO", "clients")
        assert isinstance(info, bytes)
        return b"blocked_clients:2" in info

    wait_until(blocked)
    admin("ACL", "SETUSER", "w", "resetkeys", "%R~b", "-monitor")
    for wire in (waits, watches, pushed):
        assert receive_all(wire.sock).count(b"GETJOB") == 0
    admin("ADDJOB", "b", "body", 0)
    assert gets.read()[0][2] == b"body"
    admin("ADDJOB", "a", "body", 0)
    assert admin("QLEN", "a") == 1


def test_rights_are_lost_for_commands_that_are_renamed(disque_server: NodeFactory) -> None:
    node = disque_server("--rename-command", "MONITOR", "spy")
    admin = node.wire()
    rights(admin, "w", "+@all", "~*")
    watches = login(node, "w")
    assert watches("SPY") == b"OK"
    admin("ACL", "SETUSER", "w", "-monitor")
    receive_all(watches.sock)  # up to the end


def test_clients_of_a_user_that_is_removed_are_disconnected(shared: LiveNode, admin: Wire) -> None:
    rights(admin, "a", "+@all", "~*")
    wire, own = login(shared, "a"), login(shared, "a")
    assert own("ACL", "DELUSER", "a", "nobody") == 1
    for gone in (wire, own):
        with pytest.raises((ConnectionError, EOFError)):
            gone("PING")
    assert admin.error("ACL", "DELUSER", "default") == "ERR The 'default' user cannot be removed"
    assert admin.error("AUTH", "a", "p").startswith("WRONGPASS")
    assert admin("PING") == b"PONG"  # still logged in as before


def test_a_user_that_is_off_cannot_log_in_and_stays_logged_in(
    shared: LiveNode, admin: Wire
) -> None:
    rights(admin, "a", "+ping", "~*")
    wire = login(shared, "a")
    admin("ACL", "SETUSER", "a", "off")
    assert wire("PING") == b"PONG"
    assert wire.error("AUTH", "a", "p").startswith("WRONGPASS")


def test_a_client_that_has_not_logged_in_is_the_default_user(shared: LiveNode, admin: Wire) -> None:
    rights(admin, "boss", "+@all", "~*")
    boss = login(shared, "boss")
    boss("ACL", "SETUSER", "default", "-@all", "+ping")
    plain = shared.wire()
    assert plain("PING") == b"PONG"
    assert plain.error("QLEN", "q").startswith("NOPERM")
    assert admin.error("QLEN", "q").startswith("NOPERM")  # at once
    boss("ACL", "SETUSER", "default", "off")
    late = shared.wire()
    assert late.error("PING").startswith("NOAUTH")
    boss("ACL", "SETUSER", "default", "on", "nopass", "+@all")
    assert late("PING") == b"PONG"
    assert boss("RESET") == b"RESET"
    assert boss("ACL", "WHOAMI") == b"default"


def test_clients_are_listed_found_and_killed_by_their_users(shared: LiveNode, admin: Wire) -> None:
    rights(admin, "a", "+@all", "~*")
    wire = login(shared, "a")
    assert b" user=a " in wire("CLIENT", "INFO")
    lines = admin("CLIENT", "LIST", "USER", "a")
    assert lines.count(b"\n") == 1
    assert b" user=default " in admin("CLIENT", "LIST")
    assert admin.error("CLIENT", "KILL", "USER", "nobody") == "ERR No such user 'nobody'"
    assert admin("CLIENT", "KILL", "USER", "a") == 1
    with pytest.raises((ConnectionError, EOFError)):
        wire("PING")


def test_passwords_are_not_in_monitor_and_slowlog(shared: LiveNode, admin: Wire) -> None:
    watcher = shared.wire()
    watcher("MONITOR")
    admin("CONFIG", "SET", "slowlog-log-slower-than", 0)
    admin("ACL", "SETUSER", "a", "on", ">hush-hush", "+ping")
    admin("CONFIG", "SET", "slowlog-log-slower-than", 10_000)
    log = repr(admin("SLOWLOG", "GET", 10)).lower()
    assert "setuser" in log
    assert "hush" not in log
    while "setuser" not in (line := repr(watcher.read()).lower()):
        assert "hush" not in line
    assert "hush" not in line
    assert "+ping" in line


# ---- wrong passwords ----------------------------------------------------------------------------


def test_after_too_many_wrong_passwords_logins_are_refused(disque_server: NodeFactory) -> None:
    node = disque_server("--requirepass", "right", "--auth-failures-per-minute", "3")
    wire = node.wire()
    for i in range(3):
        assert wire.error("AUTH", f"wrong {i}") == "ERR invalid password"
    assert wire.error("AUTH", "wrong 0") == "ERR invalid password"  # already known to be wrong
    assert wire.error("AUTH", "right").startswith("TRYAGAIN too many wrong passwords")
    assert node.wire().error("HELLO", 3, "AUTH", "default", "right").startswith("TRYAGAIN")
    assert wire.error("PING").startswith("NOAUTH")


def test_the_limit_for_wrong_passwords_can_be_changed(disque_server: NodeFactory) -> None:
    node = disque_server()
    admin, wire = node.wire(), node.wire()
    admin("ACL", "SETUSER", "a", "on", ">p")
    admin("CONFIG", "SET", "auth-failures-per-minute", 1)
    assert wire.error("AUTH", "a", "x").startswith("WRONGPASS")
    assert wire.error("AUTH", "a", "p").startswith("TRYAGAIN")
    admin("CONFIG", "SET", "auth-failures-per-minute", 0)
    assert wire("AUTH", "a", "p") == b"OK"
    reasons = [entry[3] for entry in admin("ACL", "LOG")]
    assert reasons == [b"auth-limit", b"auth"]
    admin("CONFIG", "SET", "acllog-max-len", 1)
    assert len(admin("ACL", "LOG")) == 1


# ---- files --------------------------------------------------------------------------------------

LINES = "user a on >p ~a* +@all\n\n# a comment\nuser b off\n"


def test_users_are_in_a_file(disque_server: NodeFactory, tmp_path: Path) -> None:
    file = tmp_path / "users.acl"
    file.write_text(LINES)
    node = disque_server("--aclfile", str(file), "--requirepass", "boss")
    wire = node.wire()
    assert wire.error("PING").startswith("NOAUTH")  # the file says nothing about the default user
    wire("AUTH", "boss")
    assert wire("ACL", "USERS") == [b"a", b"b", b"default"]
    wire("ACL", "SETUSER", "c", "on", ">x", "%maxkeys=5", "(+addjob %W~c)")
    assert wire("ACL", "SAVE") == b"OK"
    saved = file.read_text()
    assert "user c on #" in saved
    assert ">p" not in saved
    assert " %maxkeys=5 (" in saved
    listed = wire("ACL", "LIST")
    wire("ACL", "DELUSER", "c")
    other = node.wire()
    other("AUTH", "a", "p")
    file.write_text(saved + "user broken +nope\nuse x\n")
    problem = wire.error("ACL", "LOAD")
    number = saved.count("\n") + 1
    assert problem.startswith(f"ERR {file}:{number}: Error loading ACL rule '+nope'")
    assert f"{file}:{number + 1}: line should start with user keyword" in problem
    assert "no change to the previously active ACL rules was performed" in problem
    assert wire("ACL", "USERS") == [b"a", b"b", b"default"]
    file.write_text(saved)
    assert wire("ACL", "LOAD") == b"OK"
    assert wire("ACL", "LIST") == listed
    assert other("PING") == b"PONG"
    file.write_text("user default on nopass ~* +@all\n")
    assert wire("ACL", "LOAD") == b"OK"
    with pytest.raises((ConnectionError, EOFError)):
        other("PING")
    assert "can't set immutable config" in wire.error("CONFIG", "SET", "aclfile", "/x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("user a on\nuser b +nope\n", ":2: Error loading ACL rule '+nope' for the user named 'b'"),
        ("user a on\nuser a off\n", ":2: Duplicate user 'a' found"),
        ("user a on\nuser\n", ":2: line should start with user keyword"),
        ("\xff\0\n", ":1: line should start with user keyword"),
        ("user a (+addjob\n", ":1: "),
        ("\xef\xbb\xbfuser a on\n", ":1: the file begins with a byte order mark"),
        (None, "No such file or directory"),
    ],
)
def test_an_error_in_the_file_prevents_the_start(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    file = tmp_path / "users.acl"
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    done = run_server("--port", "1", "--aclfile", "users.acl", "--dir", str(tmp_path))
    assert done.returncode == 1
    assert str(file) in done.stderr
    assert problem in done.stderr


def test_users_in_both_a_file_and_the_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "users.acl").write_text("")
    config = tmp_path / "node.conf"
    config.write_text(f"port 1\naclfile users.acl\nuser a on\ndir {tmp_path}\n")
    for arguments in ([str(config)], ["--check-config", str(config)]):
        done = run_server(*arguments)
        assert done.returncode == 1
        assert "aclfile" in done.stderr
    config.write_text(f"port 1\nuser a on +nope\ndir {tmp_path}\n")
    done = run_server(str(config))
    assert done.returncode == 1
    assert "'+nope' for the user named 'a'" in done.stderr


CONF = 'port {port}\nuser a on ">p w" ~a* +@all\nuser b on >x %maxmemory=1mb (+ping)\n'
YAML = """\
port: {port}
# users
user:
  a: on ">p w" ~a* +@all  # one
  b: on >x %maxmemory=1mb (+ping)
hz: 10
"""
YAML_LIST = """\
port: {port}
user:
- 'a on ">p w" ~a* +@all'
- "b on >x %maxmemory=1mb (+ping)"
hz: 10
"""


@pytest.mark.parametrize(
    ("name", "text"), [("n.conf", CONF), ("n.yaml", YAML), ("l.yaml", YAML_LIST)]
)
def test_users_are_in_the_settings(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text.format(port=free_port()))
    node = start_node(tmp_path, file=str(file))
    try:
        wire = node.wire()
        before = file.read_text()
        assert wire("CONFIG", "REWRITE") == b"OK"
        assert "p w" in file.read_text()  # no user has changed
        login(node, "a", "p w")
        wire("ACL", "SETUSER", "c", "on", ">secret", "~c", "%rate=7/s")
        listed = wire("ACL", "LIST")
        assert wire.error("ACL", "SAVE").startswith("ERR This server is not configured to use")
        assert wire("CONFIG", "REWRITE") == b"OK"
        assert "p w" not in file.read_text()
        assert "secret" not in file.read_text()
        assert "hz" not in before or "hz: 10" in file.read_text()
    finally:
        node.close()
    again = start_node(tmp_path, file=str(file))
    try:
        assert again.wire()("ACL", "LIST") == listed
        assert again.info("users").keys() == {"user_b", "user_c"}
    finally:
        again.close()


def test_sighup_reads_the_users_again(disque_server: NodeFactory, tmp_path: Path) -> None:
    file, config = tmp_path / "users.acl", tmp_path / "node.conf"
    file.write_text("user a on >p +@all ~*\n")
    config.write_text(f"aclfile {file}\n")
    node = disque_server(str(config))
    wire = node.wire()
    wire("ACL", "SETUSER", "unsaved", "on")
    config.write_text(f"aclfile {file}\nhz 50\n")
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: wire("CONFIG", "GET", "hz") == [b"hz", b"50"])
    assert b"unsaved" in wire("ACL", "USERS")  # the unchanged file was not loaded again
    file.write_text("user b on >p +@all ~*\n")
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: wire("ACL", "USERS") == [b"b", b"default"])
    file.write_text("nonsense\n")
    config.write_text(f"aclfile {file}\nhz 60\n")
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: wire("CONFIG", "GET", "hz") == [b"hz", b"60"])
    assert wire("ACL", "USERS") == [b"b", b"default"]
    assert "users.acl:1" in wire.error("RESTART")


def test_sighup_leaves_a_declared_default_user_its_password(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    file, config = tmp_path / "users.acl", tmp_path / "node.conf"
    file.write_text("user default on >own ~* +@all\n")
    config.write_text(f"aclfile {file}\nrequirepass other\n")
    node = disque_server(str(config))
    wire, stranger = login(node, "default", "own"), node.wire()
    config.write_text(f"aclfile {file}\nhz 50\n")
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: wire("CONFIG", "GET", "hz") == [b"hz", b"50"])
    assert stranger.error("PING").startswith("NOAUTH")
    assert node.wire().error("PING").startswith("NOAUTH")


# ---- the roles of docs/users.md -----------------------------------------------------------------


def test_the_documented_roles_work(shared: LiveNode, admin: Wire) -> None:
    lines = [
        line.split()
        for line in (ROOT / "docs" / "users.md").read_text().splitlines()
        if line.startswith("    ACL SETUSER ") and "-password" in line
    ]
    assert [line[2] for line in lines] == ["shop", "mailer", "viewer", "operator"]
    for line in lines:
        assert admin(*line) == b"OK"
    shop, mailer, viewer, operator = (
        login(shared, line[2], line[2] + "-password") for line in lines
    )
    for wire in (shop, mailer, viewer, operator):
        assert wire("PING") == b"PONG"
        assert isinstance(wire("HELLO"), list)
    id = shop("ADDJOB", "mail.in", "body", 0)
    assert shop.error("GETJOB", "FROM", "mail.in").startswith("NOPERM")
    assert viewer("QLEN", "mail.in") == 1
    assert isinstance(viewer("INFO"), bytes)
    assert viewer.error("ADDJOB", "mail.in", "b", 0).startswith("NOPERM")
    assert mailer("GETJOB", "FROM", "mail.in")[0][1] == id
    assert mailer.error("GETJOB", "NOHANG", "FROM", "other").startswith("NOPERM")
    assert mailer("ACKJOB", id) == 1
    assert operator("CONFIG", "GET", "hz") == [b"hz", b"10"]
