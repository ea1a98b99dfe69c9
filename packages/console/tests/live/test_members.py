"""The cluster page: nodes join, leave, fail and are forgotten."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.console.tests.support.console import ConsoleProcess, console, quoted
from tests.support.harness import LiveNode, wait_until
from tests.support.live_cluster import LiveCluster, live_cluster
from tests.support.live_helpers import start_node


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """Three nodes."""
    with live_cluster(tmp_path_factory.mktemp("members"), 3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory, cluster: LiveCluster
) -> Iterator[ConsoleProcess]:
    """A console that has found the nodes."""
    with console(tmp_path_factory.mktemp("console"), [cluster[0].port]) as found:
        found.wait_for("/cluster", lambda text: text.count("2 of 2") == 3)
        yield found


def address(node: LiveNode) -> str:
    return f"127.0.0.1:{node.port}"


def row(console: ConsoleProcess, node: LiveNode) -> str:
    """The text of a node's row in the table."""
    page = console.visitor().get("/cluster").text
    for found in re.findall(r"<tr data-key=.*?</tr>", page, re.S):
        if f"<b>{address(node)}</b>" in found:
            return " ".join(re.sub("<.*?>", " ", found).split())
    return ""


def post(console: ConsoleProcess, action: str, **fields: str) -> str:
    """Submit a form that was not on the page; returns the result."""
    visitor = console.visitor()
    form = {"token": visitor.get("/cluster").token, "confirmed": "yes", "back": "/cluster"}
    answer = visitor.post(f"/do/{action}", form | fields)
    assert answer.status == 303, answer.says
    return visitor.get(answer.where).says


def test_each_node_is_shown_with_its_version_memory_and_links(
    cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    for node in cluster:
        text = row(shown, node)
        assert " up " in text
        assert node.info("server")["python_version"] in text
        assert "2 of 2" in text
        assert node.id.decode()[:8] in text


def test_a_node_leaves_and_is_taken_back(cluster: LiveCluster, shown: ConsoleProcess) -> None:
    said = post(shown, "leave", node=quoted(address(cluster[1])))
    assert f"{address(cluster[1])} no longer accepts new jobs." in said
    assert cluster[1].ask("CLUSTER", "LEAVING") == b"yes"
    assert cluster[0].ask("CLUSTER", "LEAVING") == b"no"
    wait_until(lambda: " leaving " in row(shown, cluster[1]))
    assert "accepts jobs again" in post(shown, "stay", node=quoted(address(cluster[1])))
    assert cluster[1].ask("CLUSTER", "LEAVING") == b"no"
    wait_until(lambda: " up " in row(shown, cluster[1]))


def test_leaving_asks_first(cluster: LiveCluster, shown: ConsoleProcess) -> None:
    visitor = shown.visitor()
    form = visitor.get("/cluster").fields("leave")
    question = visitor.post("/do/leave", form)
    assert (question.status, "accept no new jobs" in question.says) == (200, True)
    assert {node.ask("CLUSTER", "LEAVING") for node in cluster} == {b"no"}


def test_nothing_is_sent_to_an_address_outside_the_cluster(
    shown: ConsoleProcess, tmp_path: Path
) -> None:
    stranger = start_node(tmp_path)
    try:
        said = post(shown, "leave", node=quoted(address(stranger)))
        assert "Not done:" in said
        assert "not a node of the cluster" in said
        assert stranger.ask("CLUSTER", "LEAVING") == b"no"
    finally:
        stranger.close()


def test_an_unreachable_node_is_shown_with_its_last_values_then_forgotten(
    tmp_path: Path,
) -> None:
    with live_cluster(tmp_path, 3) as cluster, console(tmp_path, [cluster[0].port]) as found:
        found.wait_for("/cluster", lambda text: text.count("2 of 2") == 3)
        _forget(cluster, found)


def _forget(cluster: LiveCluster, shown: ConsoleProcess) -> None:
    gone = cluster[2]
    version = gone.info("server")["disque_version"]
    id = gone.id.decode()
    gone.kill()
    cluster.wait_failing([id.encode()], cluster.nodes[:2])
    wait_until(lambda: " fail" in row(shown, gone))
    text = row(shown, gone)
    assert " unreachable " in text
    assert "Connection refused" in text
    assert "Last known" in text
    assert version in text
    said = post(shown, "forget", node=quoted(address(gone)), id=id)
    assert f"{address(gone)} is forgotten." in said
    for node in (cluster[0], cluster[1]):
        assert id.encode() not in node.lines()
    wait_until(lambda: not row(shown, gone))


def test_a_node_is_met(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 2)
    try:
        cluster.start(meet=False)
        with console(tmp_path, [cluster[0].port]) as found:
            found.wait_for("/", " up ")
            said = post(found, "meet", host="127.0.0.1", port=str(cluster[1].port))
            assert "is being added" in said
            wait_until(lambda: " up " in row(found, cluster[1]))
            assert cluster[1].id in cluster[0].lines()
    finally:
        cluster.close()


def test_the_nodes_error_for_an_invalid_address_is_shown(shown: ConsoleProcess) -> None:
    assert "Not done: port: 'x' is not a number." in post(shown, "meet", host="h", port="x")
    assert "Not done:" in post(shown, "meet", host="127.0.0.1", port="99999999")


def test_the_page_shows_what_users_with_a_budget_use(
    cluster: LiveCluster, shown: ConsoleProcess
) -> None:
    node = cluster[0]
    try:
        node.ask("ACL", "SETUSER", "<b>team", "~team.*", "%maxkeys=2", "%maxmemory=1mb", "%rate=7")
        node.ask("ADDJOB", "team.q", "body", 0, "REPLICATE", 1, "UNIQUE", "k1", "FOR", 1000)
        node.ask("ADDJOB", "team.q", "body", 0, "REPLICATE", 1, "UNIQUE", "k2", "FOR", 1000)
        shown.wait_for("/cluster", lambda text: "keys 2 of 2" in text)
        page = shown.visitor().get("/cluster").text
        assert "&lt;b&gt;team" in page
        assert "<b>team" not in page
    finally:
        node.ask("ACL", "DELUSER", "<b>team")
        node.ask("QPURGE", "team.q")
    shown.wait_for("/cluster", lambda text: "Budgets of users" not in text)


def test_a_row_shows_the_key_of_its_node(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        live_cluster(tmp_path, 2, "--cluster-identity", "yes") as cluster,
        console(tmp_path_factory.mktemp("console"), [cluster[0].port]) as found,
    ):
        found.wait_for("/cluster", lambda text: text.count("1 of 1") == 2)
        for node in cluster:
            key = node.ask("CLUSTER", "MYKEY")
            assert isinstance(key, bytes)
            assert f"key {key.decode()[:16]}" in row(found, node)
