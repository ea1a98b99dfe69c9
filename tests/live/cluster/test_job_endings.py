"""WAITJOB, results, CANCEL and UPDATEJOB on three real nodes."""

from collections.abc import Iterator

import pytest

from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member, live_cluster
from tests.support.live_helpers import add_job, info_value, pairs


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with live_cluster(tmp_path_factory.mktemp("endings"), 3, *options) as found:
        yield found


@pytest.fixture
def cluster(running: LiveCluster) -> Iterator[LiveCluster]:
    """Three connected nodes with append-only files that know each other's extensions."""
    running.wait_joined()
    for node in running:
        id = add_job(node.wire(), "probe", "body", "REPLICATE", 1)
        update(node, id, "TTL", 100)
        node.ask("DELJOB", id)
    yield running
    running.clean()


def update(node: Member, id: str, *options: str | int | bytes) -> None:
    """Change a job. On a busy machine, or with nodes that have just met, that takes several tries:
    the holders have two seconds to confirm."""
    wait_until(lambda: node.ask("UPDATEJOB", id, *options) == b"OK")


def waiting(cluster: LiveCluster, index: int) -> bool:
    return info_value(cluster[index], "clients", "blocked_clients") == 1


def test_a_result_reaches_a_client_waiting_at_any_node(cluster: LiveCluster) -> None:
    one = add_job(cluster[0].wire(), "q", "body", "REPLICATE", 1)
    two = add_job(cluster[0].wire(), "q", "body", "REPLICATE", 3)
    wires = [node.wire() for node in cluster]
    for index, wire in enumerate(wires):
        wire.send("WAITJOB", 0, two, one)
        wire.send("PING")
        wait_until(lambda index=index: waiting(cluster, index))
    assert cluster[0].ask("ACKJOB", one, "RESULT", b"x" * 1_000_000) == 1
    assert cluster[1].ask("ACKJOB", two, "RESULT", b"y") == 1
    for wire in wires:
        assert wire.read() == [
            [two.encode(), b"acked", b"y"],
            [one.encode(), b"acked", b"x" * 1_000_000],
        ]
        assert wire.read() == b"PONG"


def test_killing_a_client_ends_its_wait(cluster: LiveCluster) -> None:
    id = add_job(cluster[0].wire(), "q", "body", "REPLICATE", 1)
    wire = cluster[1].wire()
    number = wire("CLIENT", "ID")
    assert isinstance(number, int)
    wire.send("WAITJOB", 0, id)
    wait_until(lambda: waiting(cluster, 1))
    assert cluster[1].ask("CLIENT", "KILL", "ID", number) == 1
    assert wire.closed()
    assert info_value(cluster[1], "clients", "blocked_clients") == 0
    assert cluster[0].ask("ACKJOB", id) == 1


def test_a_large_body_reaches_all_holders(cluster: LiveCluster) -> None:
    id = add_job(cluster[0].wire(), "q", "body", "REPLICATE", 3)
    body = b"z" * (3 << 20)
    update(cluster[1], id, "BODY", body)
    for node in cluster:
        assert pairs(node.ask("SHOW", id))["body"] == body
    assert cluster[2].ask("GETJOB", "FROM", "q") == [[b"q", id.encode(), body]]
    assert cluster[2].ask("ACKJOB", id) == 1
    cluster.wait_empty()


def test_what_was_cancelled_and_changed_reaches_nodes_that_were_killed(
    cluster: LiveCluster,
) -> None:
    cancelled = add_job(cluster[0].wire(), "q", "old", "REPLICATE", 3, "DELAY", 6, "RETRY", 3)
    changed = add_job(cluster[0].wire(), "q", "old", "REPLICATE", 3, "DELAY", 6, "RETRY", 3)
    away = cluster[2]
    gone = away.id
    away.kill()
    cluster.wait_failing([gone], [cluster[0]])
    assert cluster[0].ask("CANCEL", cancelled) == 1
    update(cluster[0], changed, "BODY", "new")
    cluster[0].kill()
    cluster[0].start()
    away.start()
    cluster.wait_joined()
    # Until a node hears of the change, it may deliver what it has.
    wait_until(lambda: not away.holds(cancelled.encode()))
    wait_until(lambda: pairs(away.ask("SHOW", changed))["body"] == b"new")
    assert away.ask("GETJOB", "FROM", "q") == [[b"q", changed.encode(), b"new"]]
    assert away.ask("ACKJOB", changed) == 1
    cluster.wait_empty()
    assert away.ask("WAITJOB", 0, cancelled) == [[cancelled.encode(), b"cancelled", None]]
