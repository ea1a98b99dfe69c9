"""Options that need extensions, on real nodes that all support them or do not."""

from collections.abc import Iterator

import hiredis
import pytest

from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member, live_cluster
from tests.support.live_helpers import pairs

HEADERS = ("HEADERS", 1, "name", "value")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path_factory.mktemp("extensions"), 2) as found:
        found.wait_joined()
        yield found


def takes_headers(node: Member) -> bool:
    reply = node.ask("ADDJOB", "other", "body", 0, *HEADERS)
    if isinstance(reply, hiredis.ReplyError):
        assert str(reply).startswith("NOEXT ")
        return False
    return True


def test_headers_go_with_copies_and_with_jobs_that_move(cluster: LiveCluster) -> None:
    first, second = cluster
    wait_until(lambda: takes_headers(first))
    id = first.ask("ADDJOB", "q", "body", 0, "REPLICATE", 2, *HEADERS)
    assert isinstance(id, (bytes, str))
    for node in cluster:
        assert pairs(node.ask("SHOW", id))["headers"] == [b"name", b"value"]
    moved = first.ask("ADDJOB", "moving", "body", 0, "REPLICATE", 1, *HEADERS)
    reply = second.ask("GETJOB", "WITHHEADERS", "FROM", "moving")
    assert isinstance(reply, list)
    [[_, taken, body, _, headers]] = reply
    assert (taken, body, headers) == (moved, b"body", [b"name", b"value"])


def test_turning_extensions_off_at_one_node_turns_them_off_at_the_other(
    cluster: LiveCluster,
) -> None:
    first, second = cluster
    second.ask("CONFIG", "SET", "cluster-extensions", "no")
    wait_until(lambda: not takes_headers(first))
    assert not takes_headers(second)
    first.ask("CONFIG", "SET", "cluster-extensions", "yes")
    assert takes_headers(first)
    first.ask("CONFIG", "SET", "cluster-extensions", "auto")
    assert not takes_headers(first)
    second.ask("CONFIG", "SET", "cluster-extensions", "auto")
    wait_until(lambda: takes_headers(first) and takes_headers(second))
