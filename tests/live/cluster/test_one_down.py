"""Three nodes, of which one is killed, is full, or starts again."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness import Wire, notice_deaths, wait_until
from tests.support.live_cluster import LiveCluster, Member, live_cluster

LIMIT = resource.RLIMIT_FSIZE


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        yield cluster


def ids(reply: object) -> list[bytes]:
    return [job[1] for job in reply] if isinstance(reply, list) else []


def queued(member: Member, queue: str = "q") -> int:
    wire = member.wire()
    found = wire("QLEN", queue)
    wire.close()
    assert isinstance(found, int)
    return found


def test_producers_go_on_without_options_when_a_node_is_killed(three: LiveCluster) -> None:
    three[2].kill()
    wire = three[0].wire()
    for _ in range(20):
        assert isinstance(wire("ADDJOB", "q", "body", 0), bytes)


@pytest.mark.parametrize("silently", [False, True])
def test_a_producer_that_waits_hears_which_node_is_down(three: LiveCluster, silently: bool) -> None:
    wire = three[0].wire()
    notice_deaths([three[0]])
    if silently:
        three[2].pause()  # its system takes packets, and nothing answers them
    else:
        three[2].kill()
    # It waits until the node is known to be down, and no longer.
    refused = wire.error("ADDJOB", "q", "body", 0, "REPLICATE", 3)
    assert refused == (
        "NOREPL Not enough reachable nodes: 1 of the 2 needed besides this one; "
        f"127.0.0.1:{three[2].port} is down"
    )
    assert wire.error("ADDJOB", "q", "body", 60_000, "REPLICATE", 3) == refused


def test_a_node_with_a_full_disk_is_named_and_not_chosen_until_it_can_write(
    three: LiveCluster,
) -> None:
    full = three[2]
    resource.prlimit(full.process.pid, LIMIT, (2_000, -1))
    assert full.wire().error("ADDJOB", "q", "x" * 10_000, 0, "REPLICATE", 1).startswith("MISCONF")
    wire = three[0].wire()
    wait_until(lambda: three[0].priorities()[full.id] == 100)
    assert full.priorities()[full.id] == 100
    assert wire.error("ADDJOB", "q", "body", 60_000, "REPLICATE", 3) == (
        f"NOREPL 127.0.0.1:{full.port} cannot write its file (File too large)"
    )
    for _ in range(20):
        id = wire("ADDJOB", "q", "body", 0)
        assert isinstance(id, bytes)
        assert not full.holds(id)
    resource.prlimit(full.process.pid, LIMIT, (-1, -1))
    wait_until(lambda: three[0].priorities()[full.id] == 1)
    assert isinstance(wire("ADDJOB", "q", "body", 60_000, "REPLICATE", 3), bytes)


def test_a_killed_node_queues_its_jobs_when_it_has_asked_the_others(three: LiveCluster) -> None:
    wire = three[0].wire()
    added = [wire("ADDJOB", "q", n, 0, "RETRY", 600) for n in range(10)]
    three[0].kill()
    three[0].start()
    wait_until(lambda: queued(three[0]) == 10)
    assert ids(three[0].wire()("GETJOB", "COUNT", 20, "FROM", "q")) == added
    assert three[0].info("jobs")["jobs_waiting_retry"] == "0"


def test_all_nodes_killed_at_once_have_the_jobs_again(three: LiveCluster) -> None:
    added = set()
    for member in three:
        wire: Wire = member.wire()
        added |= {wire("ADDJOB", "q", n, 0, "RETRY", 600) for n in range(5)}
    taken = ids(three[1].wire()("GETJOB", "COUNT", 2, "FROM", "q"))
    wait_until(lambda: three[1].info("persistence")["progress_file_pending"] == "0")
    for member in three:
        member.kill()
    for member in three:
        member.spawn()
    for member in three:
        member.wait_ready()
    wait_until(lambda: sum(map(queued, three)) == 13)
    found = [id for member in three for id in ids(member.wire()("QPEEK", "q", 20))]
    assert set(found) == added - set(taken)
