"""What a damaged append-only file has lost comes from the nodes with copies."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from disque_trio.aof.check import main
from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, live_cluster


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster:
        yield cluster


def test_jobs_in_damaged_records_come_from_other_nodes_soon(three: LiveCluster) -> None:
    broken = three[0]
    with closing(broken.wire()) as wire:
        bodies = {}
        for number in range(60):
            id = wire("ADDJOB", "q", f"body {number}", 0, "RETRY", 600, "REPLICATE", 2)
            assert isinstance(id, bytes)
            bodies[id] = b"body %d" % number
    assert broken.stop() == 0
    path = broken.log.parent / "disque.aof"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"body 20", b"evil 20").replace(b"body 21", b"evil 21"))
    assert main([str(path)]) == 1
    broken.start()
    lost = int(broken.info("persistence")["aof_lost_records"])
    assert lost >= 2
    found: dict[bytes, bytes] = {}

    def take() -> bool:
        for member in three:
            with closing(member.wire()) as wire:
                reply = wire("GETJOB", "NOHANG", "COUNT", 100, "FROM", "q")
                for _, id, body in reply if isinstance(reply, list) else []:
                    assert id not in found
                    found[id] = body
        return len(found) == len(bodies)

    wait_until(take)
    assert found == bodies
    # All have two copies again; those that have come to the third node need none here.
    wait_until(lambda: all(sum(member.holds(id) for member in three) >= 2 for id in bodies))
    wait_until(lambda: main([str(path)]) == 0)  # the file was made again
