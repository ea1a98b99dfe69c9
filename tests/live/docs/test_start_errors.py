"""docs/errors.md has the reasons for which a node does not start, as it prints them."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import run_command
from tests.support.documented import section
from tests.support.harness import LiveNode, free_port

pytestmark = pytest.mark.live

TOLD = section("errors.md", "A node does not start")
HEADS = ("disque-server: cannot start: ", "disque-server: the configuration is wrong")
RECORD = b"*5\r\n$7\r\nLOADJOB\r\n"


def rows(head: str) -> list[str]:
    """The reasons below a head, as the page has them."""
    table = TOLD.partition(f"| `{head}` | what to do |\n")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE)


def conf(directory: Path, text: str) -> list[str]:
    """The words that have a node read a file with ``text``."""
    path = directory / "disque.conf"
    path.write_text(text)
    return [str(path)]


def file(directory: Path, name: str, data: bytes) -> list[str]:
    (directory / name).write_bytes(data)
    return ["--appendonly", "yes"]


def users(directory: Path) -> list[str]:
    (directory / "users.acl").write_text("user ann on +@nothing\n")
    return ["--aclfile", "users.acl"]


def torn(directory: Path) -> list[str]:
    return [*file(directory, "disque.aof", RECORD[:9]), "--aof-load-truncated", "no"]


# What is in its directory, and what else is typed, by the reason.
CASES: dict[str, Callable[[Path], list[str]]] = {
    "... is damaged at offset ...": lambda at: file(at, "disque.aof", b"rubbish" * 99),
    "... was torn by a crash at offset ...": torn,
    "...: Cannot assign requested address": lambda at: ["--bind", "192.0.2.1"],
    "...nodes.conf: line ...": lambda at: file(at, "nodes.conf", b"rubbish\n"),
    "Error loading ACLs, opening file ...": lambda at: ["--aclfile", "missing.acl"],
    "...: Error loading ACL rule ...": users,
    "Failed to configure TLS: ...": lambda at: ["--tls-port", str(free_port())],
    "rename-command: ...": lambda at: ["--rename-command", "nothing", "something"],
    "...: unknown parameter": lambda at: conf(at, "port 0\nfrobnicate yes\n"),
    "...: expected ..., got ...": lambda at: conf(at, "hz abc\n"),
}


def matches(row: str, reason: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, row.split("..."))), reason) is not None


def refused(*words: str) -> str:
    done = run_command("disque-server", *words, text=True, check=False)
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("row", CASES)
def test_a_node_says_why_it_does_not_start(tmp_path: Path, row: str) -> None:
    words = CASES[row](tmp_path)
    place = ["--port", str(free_port()), "--dir", str(tmp_path)]
    if "--bind" not in words:
        place += ["--bind", "127.0.0.1"]
    first, *lines = [line for line in refused(*words, *place).splitlines() if line[:1] != "{"]
    if row in rows(HEADS[0]):
        assert first.startswith(HEADS[0])
        assert matches(row, first.removeprefix(HEADS[0]))
    else:
        assert row in rows(HEADS[1])
        assert first == HEADS[1]
        assert matches(row, lines[0])


def test_two_nodes_cannot_share_a_port_or_a_directory(
    shared_node: LiveNode, tmp_path: Path
) -> None:
    place = ("--bind", "127.0.0.1", "--dir", str(tmp_path))
    assert ": Address already in use" in refused("--port", str(shared_node.port), *place)
    there = shared_node.ask("CONFIG", "GET", "dir")
    assert isinstance(there, list)
    words = ("--port", str(free_port()), "--bind", "127.0.0.1", "--dir", there[1].decode())
    assert matches(
        "... is in use by a node that is running: ...", refused(*words).split("start: ")[1].strip()
    )


def test_each_reason_of_the_page_is_tried() -> None:
    others = {"...: Address already in use", "... is in use by a node that is running: ..."}
    assert {row for head in HEADS for row in rows(head)} == {*CASES, *others}
