"""How long jobs are with no worker after a stop, a death and other trouble: the table of
docs/durability.md, measured. ``-s`` shows the times."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.harness import HANG_SECONDS, wait_until
from tests.support.live_cluster import Member, live_cluster
from tests.support.small_disk import small_disk

JOBS = 200
RETRY = 4  # s, where nothing but the retry time helps
ALONE = 1.0  # s until a node that is alone has queued its jobs
WITH_OTHERS = 2.0  # s until one that has to ask others has
LOST = 2.5  # s until the others have queued what a dead node had
SLOW = 1.0  # s for the machine, and for the worker that takes them

pytestmark = pytest.mark.load  # how long it takes is the question


def stop(node: Member) -> None:
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(HANG_SECONDS) == 0
    node.start()


def kill(node: Member) -> None:
    node.kill()
    node.start()


def restart(node: Member) -> None:
    wire = node.wire()
    wire.send("RESTART")
    assert wire.closed()
    node.wait_ready()


def add(node: Member, retry: int) -> set[bytes]:
    wire = node.wire()
    added = [wire("ADDJOB", "q", number, 0, "RETRY", retry) for number in range(JOBS)]
    return {id for id in added if isinstance(id, bytes)}


def taken_within(node: Member, wanted: set[bytes]) -> float:
    """Work at ``node`` until all ``wanted`` jobs are done; return how many seconds it took."""
    begun = time.monotonic()
    wire = node.wire()
    left = set(wanted)
    while left:
        jobs = wire("GETJOB", "TIMEOUT", 1000, "COUNT", 50, "FROM", "q")
        assert time.monotonic() - begun < HANG_SECONDS
        ids = [job[1] for job in jobs] if isinstance(jobs, list) else []
        if ids:
            wire("ACKJOB", *ids)
        left.difference_update(ids)
    return time.monotonic() - begun


def tell(event: str, nodes: int, seconds: float) -> None:
    print(f"\n{event}, nodes: {nodes}, s until workers have all jobs: {seconds:.2f}")


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("event", [stop, kill, restart])
def test_after_a_start(tmp_path: Path, nodes: int, event: Callable[[Member], None]) -> None:
    with live_cluster(tmp_path, nodes, "--appendonly", "yes") as cluster:
        added = add(cluster[0], 600)
        assert len(added) == JOBS
        event(cluster[0])
        seconds = taken_within(cluster[-1], added)
    tell(event.__name__, nodes, seconds)
    assert seconds < (ALONE if nodes == 1 else WITH_OTHERS) + SLOW


def test_after_a_node_is_lost(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        added = add(cluster[0], 600)
        cluster[0].kill()
        seconds = taken_within(cluster[1], added)
    tell("lost", 3, seconds)
    assert seconds < LOST + SLOW


def test_what_clients_of_a_lost_node_had_comes_after_the_retry_time(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        added = add(cluster[0], RETRY)
        jobs = cluster[0].wire()("GETJOB", "COUNT", 50, "FROM", "q")
        assert isinstance(jobs, list)
        in_hand = {job[1] for job in jobs}
        begun = time.monotonic()
        time.sleep(1)  # the others hear of it
        cluster[0].kill()
        taken_within(cluster[1], added - in_hand)
        early = time.monotonic() - begun
        taken_within(cluster[1], in_hand)
        seconds = time.monotonic() - begun
    tell("lost, in hand", 3, seconds)
    assert early < 1 + LOST + SLOW
    assert RETRY * 0.9 < seconds < RETRY * 1.5 + SLOW


def test_in_a_split_and_after_it(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        first, second = add(cluster[0], RETRY), add(cluster[1], 600)
        cluster[0].pause()
        seconds = taken_within(cluster[1], first | second)
        tell("split", 3, seconds)
        assert seconds < RETRY * 1.5 + SLOW
        cluster[0].resume()
        later = add(cluster[0], 600)
        seconds = taken_within(cluster[1], later)
        tell("after a split", 3, seconds)
        assert seconds < SLOW


@pytest.mark.parametrize("nodes", [1, 3])
def test_with_a_full_disk(tmp_path: Path, nodes: int) -> None:
    with (
        small_disk(tmp_path / "disk", 16) as disk,
        live_cluster(tmp_path, nodes) as cluster,
    ):
        full = cluster[0]
        wire = full.wire()
        assert wire("CONFIG", "SET", "dir", str(disk)) == b"OK"
        assert wire("CONFIG", "SET", "appendonly", "yes") == b"OK"
        wait_until(lambda: full.info("persistence")["aof_state"] == "on")
        added = add(full, 600)
        while isinstance(wire("ADDJOB", "other", "x" * 50_000, 0, "REPLICATE", 1), bytes):
            pass
        seconds = taken_within(cluster[-1], added)
    tell("full disk", nodes, seconds)
    assert seconds < SLOW


@pytest.mark.parametrize("nodes", [1, 3])
def test_with_a_full_memory(tmp_path: Path, nodes: int) -> None:
    with live_cluster(tmp_path, nodes, "--maxmemory", "16mb", "--appendonly", "yes") as cluster:
        wire = cluster[0].wire()
        added = add(cluster[0], 600)
        while isinstance(wire("ADDJOB", "other", "x" * 50_000, 0), bytes):
            pass
        seconds = taken_within(cluster[-1], added)
    tell("full memory", nodes, seconds)
    assert seconds < SLOW
