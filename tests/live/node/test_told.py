"""The log of a node says who did what, and what becomes of the other nodes."""

import json
from typing import Any

import pytest

from tests.support.harness import LiveNode, NodeFactory, wait_until

pytestmark = pytest.mark.live


def lines(node: LiveNode, /, **fields: object) -> list[dict[str, Any]]:
    """The lines of the log of ``node`` that have ``fields``."""
    found = [json.loads(line) for line in node.log.read_text().splitlines()]
    return [line for line in found if fields.items() <= line.items()]


def test_who_did_it_is_told(disque_server: NodeFactory) -> None:
    node = disque_server()
    wire = node.wire()
    assert wire("ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all") == b"OK"
    assert wire("AUTH", "ann", "secret") == b"OK"
    for queue in "mail", "mail\nlevel=warning", "post":
        assert wire("QPURGE", queue) == 0
    mine = wire.sock.getsockname()
    (line,) = lines(node, user="ann")
    assert line["address"] == f"{mine[0]}:{mine[1]}"
    assert line["about"] == '"mail"'
    assert node.stop() == 0
    first, rest = lines(node, user="ann")
    assert (first, rest["times"]) == (line, 2)


def test_the_story_of_another_node_is_told(disque_server: NodeFactory) -> None:
    one, two = disque_server(), disque_server()
    id = two.ask("CLUSTER", "MYID")
    assert isinstance(id, bytes)
    about = {"node": id.decode(), "address": f"127.0.0.1:{two.port}"}
    assert one.ask("CLUSTER", "MEET", "127.0.0.1", two.port) == b"OK"
    wait_until(lambda: len(lines(one, **about)) == 1)
    assert two.ask("CLUSTER", "LEAVING", "yes") == b"OK"
    wait_until(lambda: len(lines(one, **about)) == 2)
    assert two.stop() == 0
    assert one.ask("CLUSTER", "FORGET", id) == b"OK"
    wait_until(lambda: len(lines(one, **about)) == 3)
    told = [line["event"] for line in lines(one, **about)]
    assert len(set(told)) == 3
