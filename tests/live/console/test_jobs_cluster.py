"""Jobs with copies on several nodes, of which some go away."""

import re
from collections.abc import Iterator

import pytest

from disque_trio.console.model.names import unquoted
from tests.support.console import ConsoleProcess, Visitor, console, quoted
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
    """A console that knows all of them."""
    with console(tmp_path_factory.mktemp("console"), [cluster[0].port]) as found:
        found.wait_for("/", lambda text: text.count(" here ") == 3)
        yield found


def listed(visitor: Visitor, path: str) -> list[str]:
    """The jobs of a page, with the node of each."""
    found = re.findall(r'name="shown" value="([^"]*)"', visitor.get(path).text)
    return [unquoted(value) for value in found]


def test_a_copy_on_several_nodes_is_once_on_a_page_and_all_holders_on_that_of_the_job(
    cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    ids = set()
    for node in cluster:
        id = node.ask("ADDJOB", "copied", "x", 5000, "REPLICATE", 3)
        assert isinstance(id, bytes)
        ids.add(id.decode())
    visitor = shown.visitor()
    found = [value.partition("@")[0] for value in listed(visitor, "/jobs?queue=copied")]
    assert sorted(found) == sorted(ids)
    says = visitor.get(f"/job?id={quoted(found[0])}").says
    assert all(f"127.0.0.1:{node.port}" in says.partition("On the nodes")[2] for node in cluster)


def test_a_job_is_asked_for_where_it_is_queued_and_changed_on_all_holders(
    cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    id = cluster[2].ask("ADDJOB", "changed", "old", 5000, "REPLICATE", 3, "DELAY", 1000)
    assert isinstance(id, bytes)
    visitor, page = shown.visitor(), f"/job?id={quoted(id)}"
    assert "The job is changed." in visitor.do(page, "job-edit", body="new").says
    for node in cluster:
        job = node.ask("SHOW", id)
        assert isinstance(job, list)
        assert job[job.index(b"body") + 1] == b"new"
    assert "1 job queued" in visitor.do(page, "job-promote").says
    assert cluster[2].ask("QLEN", "changed") == 1
    assert [node.ask("QLEN", "changed") for node in list(cluster)[:2]] == [0, 0]
    assert "1 job deleted." in visitor.do(page, "job-delete").says
    wait_until(lambda: all(node.ask("SHOW", id) is None for node in cluster))


def test_pages_go_on_with_the_nodes_that_are_there(
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
        shown.wait_for("/", "1 of 3 nodes does not answer")
        path, seen = following[1].replace("&amp;", "&"), set[str]()
        for _ in range(50):
            answer = visitor.get(path)
            assert answer.status == 200
            assert "1 of 3 nodes does not answer" in answer.says
            seen |= set(re.findall(r'name="shown" value="([^"]*)"', answer.text))
            following = re.search(r'rel="next" href="([^"]*)"', answer.text)
            if not following:
                break
            path = following[1].replace("&amp;", "&")
        assert len(seen) == 120
    finally:
        first.start()
    shown.wait_for("/", lambda text: text.count(" here ") == 3)
