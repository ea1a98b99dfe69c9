"""ACL compared with that of a Redis, byte for byte, and through redis-py's functions."""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.support.harness import LiveNode, Wire, free_port, wait_until
from tests.support.live_helpers import start_node

pytestmark = pytest.mark.skipif(not shutil.which("redis-server"), reason="there is no Redis here")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    port = free_port()
    directory = tmp_path_factory.mktemp("redis")
    with subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
        cwd=directory,
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            wires: list[Wire] = []

            def answers() -> bool:
                try:
                    wires.append(Wire(socket.create_connection(("127.0.0.1", port))))
                except OSError:
                    return False
                return True

            wait_until(answers)
            with wires[0].sock:
                yield wires[0]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    node = start_node(tmp_path_factory.mktemp("node"), "--auth-failures-per-minute", "0")
    yield node
    node.close()


@pytest.fixture(scope="module")
def ours(node: LiveNode) -> Wire:
    return node.wire()


def said(wire: Wire, *words: str | int) -> Any:
    """Return a reply, or the text of an error."""
    reply = wire(*words)
    return str(reply) if isinstance(reply, Exception) else reply


def alike(reply: Any) -> Any:
    """Return a reply without what only Redis has, in a fixed order."""
    if isinstance(reply, str):
        return reply.replace("This Redis instance is", "This server is").replace(" Redis ", " ")
    if isinstance(reply, bytes):
        return re.sub(rb" sanitize-payload| skip-sanitize-payload", b"", reply)
    if isinstance(reply, list):
        return [alike(item) for item in reply if item not in (b"sanitize-payload",)]
    return reply


ZEROS = "0" * 64
# Commands that both have.
RULES = [
    "",
    "on >a >b <b",
    f"on #{ZEROS} !{ZEROS}",
    "nopass",
    "nopass >x",
    ">x resetpass",
    "+@all",
    "allcommands -config",
    "+@all -config|set",
    "+config|get",
    "+config -config|set",
    "+config|set +config",
    "-config|set",
    "+ping -ping",
    "+@all nocommands",
    "~a %R~b %W~c %RW~d",
    "%R~a %W~a",
    "~a allkeys",
    "~* ~a",
    "allkeys resetkeys ~b",
    "&a &b",
    "&* &a",
    "&a allchannels",
    "allchannels resetchannels &x",
    "(+ping ~a) (+config|get %R~b &c)",
    "(+ping ~a) clearselectors",
    "(+ping",
    "(on)",
    "nope",
    "%Q~a",
    "%~a",
    "<none",
    "#zz",
    "!zz",
    "+nosuch",
    "-@nosuch",
    "+config|nosuch",
    "+config|get|x",
    "+",
    "on reset",
    "ON ~X ALLKEYS OFF",
]


@pytest.mark.parametrize("rules", RULES)
def test_rules_have_the_same_replies_and_effects(ours: Wire, theirs: Wire, rules: str) -> None:
    replies = []
    for wire in (ours, theirs):
        wire("ACL", "SETUSER", "u", "reset")
        replies.append(
            [
                alike(said(wire, "ACL", "SETUSER", "u", *rules.split())),
                alike(said(wire, "ACL", "LIST")),
                alike(said(wire, "ACL", "GETUSER", "u")),
                said(wire, "ACL", "DELUSER", "u"),
            ]
        )
    assert replies[0] == replies[1]


def test_empty_rules_have_the_same_replies_and_effects(ours: Wire, theirs: Wire) -> None:
    found = []
    for wire in (ours, theirs):
        replies = [
            said(wire, "ACL", "SETUSER", "u", *rules)
            for rules in ([""], ["on", "", "+ping"], ["(+ping", "", "~x)"])
        ]
        found.append((replies, alike(said(wire, "ACL", "LIST"))))
        wire("ACL", "DELUSER", "u")
    assert found[0] == found[1]


def test_turning_the_default_user_off_keeps_who_is_connected(
    node: LiveNode, ours: Wire, theirs: Wire
) -> None:
    found = []
    for admin in (ours, theirs):
        place = admin.sock.getpeername()[:2]
        there = Wire(socket.create_connection(place))
        replies = [said(there, "PING"), said(admin, "ACL", "SETUSER", "default", "off")]
        late = Wire(socket.create_connection(place))
        replies += [said(there, "PING"), said(late, "PING"), said(admin, "PING")]
        replies += [said(admin, "CLIENT", "KILL", "USER", "default")]
        for wire in (there, late):
            assert wire.closed()
            wire.close()
        replies += [said(admin, "ACL", "SETUSER", "default", "on")]
        found.append(replies)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "words",
    [
        "ACL",
        "ACL NOPE",
        "ACL HELP x",
        "ACL CAT nope",
        "ACL CAT a b",
        "ACL SETUSER",
        "ACL GETUSER nobody",
        "ACL DELUSER",
        "ACL DELUSER default",
        "ACL DELUSER nobody",
        "ACL WHOAMI",
        "ACL WHOAMI x",
        "ACL USERS",
        "ACL LIST",
        "ACL LOG RESET",
        "ACL LOG",
        "ACL LOG x",
        "ACL LOG 1 2",
        "ACL GENPASS 0",
        "ACL GENPASS 4097",
        "ACL GENPASS x",
        "ACL LOAD",
        "ACL SAVE",
        "ACL DRYRUN",
        "ACL DRYRUN nobody ping",
        "ACL DRYRUN default nosuch",
        "ACL DRYRUN default echo",
        "ACL DRYRUN default ping",
        "ACL DRYRUN default config",
        "ACL DRYRUN default config nosuch",
        "ACL DRYRUN default config nosuch x",
        "AUTH nobody x",
        "AUTH a b c",
        "CLIENT KILL USER nobody",
        "COMMAND LIST FILTERBY ACLCAT nosuch",
        "CONFIG GET acllog-max-len",
    ],
)
def test_other_requests_have_the_same_replies(ours: Wire, theirs: Wire, words: str) -> None:
    for wire in (ours, theirs):
        wire("ACL", "LOG", "RESET")
    assert alike(said(ours, *words.split())) == alike(said(theirs, *words.split()))


def test_the_help_has_the_lines_of_theirs(ours: Wire, theirs: Wire) -> None:
    """And those of ACL CHECK, in between."""
    lines = iter(ours("ACL", "HELP"))
    assert all(line in lines for line in theirs("ACL", "HELP"))


def test_what_is_refused_is_said_and_logged_alike(node: LiveNode, ours: Wire, theirs: Wire) -> None:
    found = []
    for admin in (ours, theirs):
        wire = Wire(socket.create_connection(admin.sock.getpeername()[:2]))
        admin("ACL", "LOG", "RESET")
        admin("ACL", "SETUSER", "u", "reset", "on", ">p", "+config|get", "+multi", "+exec", "~a")
        replies = [
            said(wire, *words.split())
            for words in (
                "AUTH u wrong",
                "AUTH u p",
                "ACL WHOAMI",
                "PING",
                "CONFIG SET a b",
                "CONFIG GET acllog-max-len",
                "MULTI",
                "PING",
                "EXEC",
            )
        ]
        dry = [
            said(admin, "ACL", "DRYRUN", "u", *words.split())
            for words in ("ping", "config set a b", "config get a", "auth x")
        ]
        log = [dict(zip(e[::2], e[1::2], strict=True)) for e in admin("ACL", "LOG")]
        admin("HELLO", 3)
        deep = admin("ACL", "LOG", 1)
        assert isinstance(deep[0][b"age-seconds"], float)
        admin("HELLO", 2)
        for entry in log:
            assert b" user=" in entry.pop(b"client-info")
            assert float(entry.pop(b"age-seconds")) >= 0
        wire.sock.close()
        found.append((replies, dry, log))
        admin("ACL", "DELUSER", "u")
    assert found[0] == found[1]


def test_redis_pys_functions(node: LiveNode) -> None:
    client = redis.Redis(port=node.port, decode_responses=True)
    assert client.acl_whoami() == "default"
    assert client.acl_setuser(
        "py",
        enabled=True,
        passwords=["+secret"],
        commands=["+addjob", "-@dangerous"],
        categories=["+@read"],
        keys=["mail.*"],
    )
    shown = client.acl_getuser("py")
    assert shown["enabled"] is True
    assert shown["keys"] == ["~mail.*"]
    assert "py" in client.acl_users()
    assert any(line.startswith("user py on #") for line in client.acl_list())
    assert "dangerous" in client.acl_cat()
    assert "qpurge" in client.acl_cat("dangerous")
    assert len(client.acl_genpass()) == 64
    assert len(client.acl_genpass(5)) == 2
    other = redis.Redis(port=node.port, username="py", password="secret")
    with pytest.raises(redis.exceptions.NoPermissionError):
        other.config_get("*")
    wrong = redis.Redis(port=node.port, username="py", password="wrong")
    with pytest.raises(redis.AuthenticationError):
        wrong.execute_command("QLEN", "mail")
    (entry, *_) = client.acl_log()
    assert entry["username"] == "py"
    assert entry["reason"] == "auth"
    assert client.acl_log_reset()
    assert client.acl_dryrun("py", "addjob", "mail.x", "b", "0") == "OK"
    assert "no permissions" in client.acl_dryrun("py", "addjob", "x", "b", "0")
    assert client.acl_deluser("py") == 1
    for each in (client, other, wrong):
        each.close()
