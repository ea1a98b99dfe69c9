"""Jobs with copies on several nodes, some of which fail."""

import re
from collections.abc import Iterator

import pytest

from disque_trio.overview.names import unquoted
from packages.console.tests.support.console import ConsoleProcess, Visitor, console, quoted
from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, live_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Three nodes."""
    with live_cluster(tmp_path_factory.mktemp("cluster"), 3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, cluster: LiveCluster
) -> Iterator[ConsoleProcess]:
    """A console that knows all the nodes."""
    with console(tmp_path_factory.mktemp("console"), [cluster[0].port]) as found:
        found.wait_for("/", lambda text: text.count(" up ") == 3)
        yield found


def listed(visitor: Visitor, path: str) -> list[str]:
    """The jobs on a page, each with its node."""
    found = re.findall(r'name="shown" value="([^"]*)"', visitor.get(path).text)
    return [unquoted(value) for value in found]


def test_a_copied_job_is_listed_once_and_its_page_shows_all_holders(
    cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    ids = set()
    for node in cluster:
        id = node.ask("ADDJOB", "copied", "x", 0, "REPLICATE", 3)
        assert isinstance(id, bytes)
        ids.add(id.decode())
    visitor = shown.visitor()
    found = [value.partition("@")[0] for value in listed(visitor, "/jobs?queue=copied")]
    assert sorted(found) == sorted(ids)
    says = visitor.get(f"/job?id={quoted(found[0])}").says
    assert all(f"127.0.0.1:{node.port}" in says.partition("On the nodes")[2] for node in cluster)


def test_commands_go_to_the_node_with_the_job_queued_and_change_all_holders(
    cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    id = cluster[2].ask("ADDJOB", "changed", "old", 0, "REPLICATE", 3, "DELAY", 1000)
    assert isinstance(id, bytes)
    visitor, page = shown.visitor(), f"/job?id={quoted(id)}"
    assert "The job has been changed." in visitor.do(page, "job-edit", body="new").says
    for node in cluster:
        job = node.ask("SHOW", id)
        assert isinstance(job, list)
        assert job[job.index(b"body") + 1] == b"new"
    assert "1 job queued" in visitor.do(page, "job-promote").says
    assert cluster[2].ask("QLEN", "changed") == 1
    assert [node.ask("QLEN", "changed") for node in list(cluster)[:2]] == [0, 0]
    assert "1 job deleted." in visitor.do(page, "job-delete").says
    wait_until(lambda: all(node.ask("SHOW", id) is None for node in cluster))


def test_paging_continues_with_the_reachable_nodes(
    cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    for node in cluster:
        wire = node.wire()
        for _ in range(60):
            wire("ADDJOB", "half", "x", 0, "REPLICATE", 1)
    visitor = shown.visitor()
    answer = visitor.get("/jobs?queue=half")
    following = re.search(r'rel="next" href="([^"]*)"', answer.text)
    assert following
    first = min(cluster, key=lambda node: bytes(node.id))
    first.kill()
    try:
        shown.wait_for("/", "1 of 3 nodes is not responding")
        path, seen = following[1].replace("&amp;", "&"), set[str]()
        for _ in range(50):
            answer = visitor.get(path)
            assert answer.status == 200
            assert "1 of 3 nodes is not responding" in answer.says
            seen |= set(re.findall(r'name="shown" value="([^"]*)"', answer.text))
            following = re.search(r'rel="next" href="([^"]*)"', answer.text)
            if not following:
                break
            path = following[1].replace("&amp;", "&")
        assert len(seen) == 120
    finally:
        first.start()
    shown.wait_for("/", lambda text: text.count(" up ") == 3)
