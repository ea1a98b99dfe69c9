"""What a user has set and bound on real nodes, when the user is deleted or may do less."""

from pathlib import Path
from typing import Any

from tests.support.harness import ClusterFactory, LiveNode, NodeFactory, wait_until
from tests.support.live_helpers import pairs

RULES = ("on", ">p", "~my.*", "%R~@news", "-@all", "+cron", "+bind")


def set_both(node: LiveNode) -> None:
    """Let eve set a schedule and a binding."""
    wire = node.wire()
    assert wire("AUTH", "eve", "p") == b"OK"
    assert wire("CRON", "SET", "eves", "@every 1s", "my.q", "body") == b"OK"
    assert wire("BIND", "news", "my.copy") == b"OK"
    wire.close()


def length(node: LiveNode, queue: str) -> int:
    reply = node.ask("QLEN", queue)
    assert isinstance(reply, int)
    return reply


def ticks_pass(node: LiveNode, most: int) -> None:
    """Wait until another schedule has added three more jobs; that of eve must have added at most
    ``most``."""
    mine, before = length(node, "my.q"), length(node, "other")
    wait_until(lambda: length(node, "other") >= before + 3)
    assert length(node, "my.q") - mine <= most


def problems(node: LiveNode) -> tuple[Any, Any]:
    """Why the schedule and the binding do nothing, as far as the node says."""
    binding: Any = node.ask("BINDINGS", "FULL")
    return pairs(node.ask("CRON", "GET", "eves")).get("problem"), pairs(binding[0]).get("problem")


def test_what_a_deleted_user_leaves_does_nothing_and_is_named(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server("--dir", str(tmp_path))
    node.ask("ACL", "SETUSER", "eve", *RULES)
    node.ask("CRON", "SET", "others", "@every 1s", "other", "body")
    set_both(node)
    wait_until(lambda: length(node, "my.q") > 0)
    assert len(node.ask("ADDJOB", "@news", "body", 0)) == 1  # type: ignore[arg-type]
    assert node.ask("ACL", "DELUSER", "eve") == 1
    ticks_pass(node, 1)  # it may have been added already
    ticks_pass(node, 0)
    assert node.ask("ADDJOB", "@news", "body", 0) == []
    gone = b"user eve does not exist"
    assert problems(node) == (gone, gone)
    log: Any = node.ask("ACL", "LOG")
    assert {pairs(entry)["object"] for entry in log} == {b"eves", b"news my.copy"}
    assert node.info("queues")["schedules_without_rights"] == "1"
    assert node.info("queues")["bindings_without_rights"] == "1"
    node.kill()
    again = disque_server("--dir", str(tmp_path))
    wait_until(lambda: length(again, "other") > 0)
    ticks_pass(again, 0)
    assert again.ask("ADDJOB", "@news", "body", 0) == []
    assert problems(again) == (gone, gone)
    again.ask("ACL", "SETUSER", "eve", *RULES)
    wait_until(lambda: length(again, "my.q") > 0)
    assert len(again.ask("ADDJOB", "@news", "body", 0)) == 1  # type: ignore[arg-type]


def test_after_acl_load_users_may_have_less(disque_server: NodeFactory, tmp_path: Path) -> None:
    users = tmp_path / "users.acl"
    line = "user eve on >p ~my.* %R~@news -@all +cron +bind\n"
    users.write_text(line)
    node = disque_server("--dir", str(tmp_path), "--aclfile", str(users))
    set_both(node)
    assert problems(node) == (None, None)
    users.write_text(line.replace("~my.*", "~my.copy"))
    assert node.ask("ACL", "LOAD") == b"OK"
    assert problems(node) == (b'user eve may not add to "my.q"', None)
    assert len(node.ask("ADDJOB", "@news", "body", 0)) == 1  # type: ignore[arg-type]


def test_the_nodes_of_a_cluster_ask_their_own_users(cluster: ClusterFactory) -> None:
    nodes = cluster(2)
    for node in nodes:
        node.ask("ACL", "SETUSER", "eve", *RULES)
    set_both(nodes[0])
    wait_until(lambda: nodes[1].ask("BINDINGS") == [[b"news", b"my.copy"]])
    assert problems(nodes[1]) == (None, None)
    nodes[1].ask("ACL", "SETUSER", "eve", "off")
    assert problems(nodes[1]) == (b"user eve is off", b"user eve is off")
    assert problems(nodes[0]) == (None, None)
    assert nodes[1].ask("ADDJOB", "@news", "body", 0) == []
