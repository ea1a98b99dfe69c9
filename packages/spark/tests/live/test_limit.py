"""A hundred workers to which jobs are pushed stay within the limit of a queue, according to the
audit of the nodes' event logs."""

import selectors
import time
from pathlib import Path

import hiredis
import pytest
from pyspark.sql import SparkSession

from disque_spark import pipeline
from disque_spark.cli import commands
from disque_spark.events import read_events
from tests.support.harness import HANG_SECONDS, ClusterFactory, LiveNode, wait_until
from tests.support.live_helpers import packed

pytestmark = pytest.mark.timeout(400)

WORKERS = 100
JOBS = 300
RATE = 50
NODES = 3
# The limit in docs/guarantees.md for a second: RATE, what is due in 20 ms, and one for each node.
A_SECOND = RATE + RATE // 50 + NODES
# How many partitions the nodes of a loaded machine may seem to form for a moment: each then has the
# whole limit.
PARTS = 3


class Worker:
    """A connection to which jobs of q are pushed, and which acknowledges them.

    Attributes:
        acked: how many jobs were ended.
    """

    def __init__(self, node: LiveNode) -> None:
        self.wire = node.wire()
        self.wire("HELLO", 3)
        assert self.wire("CONSUME", "q", "CREDIT", 2) == b"OK"
        self.acked = 0

    def work(self) -> None:
        """Handle what has arrived."""
        for message in self.wire.read_all():
            if isinstance(message, hiredis.PushNotification):
                self.wire.raw(packed("ACKJOB", message[2]))
            else:
                assert message == 1
                self.acked += 1


def work(workers: list[Worker]) -> None:
    """Run until all jobs are acknowledged."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.wire.sock, selectors.EVENT_READ, worker)
        end = time.monotonic() + HANG_SECONDS
        while sum(worker.acked for worker in workers) < JOBS:
            assert time.monotonic() < end
            for key, _ in selector.select(1):
                key.data.work()


@pytest.fixture
def logs(cluster: ClusterFactory) -> list[Path]:
    """The event logs of nodes that stopped when all jobs were done."""
    nodes = cluster(NODES, "--event-log", "yes")
    for node in nodes:  # a node that cannot ask the others uses the whole limit
        wait_until(lambda node=node: node.ask("QSET", "x", "ATTEMPTS", 1) == b"OK")  # type: ignore[misc]
    assert nodes[0].ask("QSET", "q", "RATE", f"{RATE}/s") == b"OK"
    for node in nodes:
        wait_until(lambda node=node: node.ask("QGET", "q"))  # type: ignore[misc]
    workers = [Worker(nodes[number % NODES]) for number in range(WORKERS)]
    for number in range(JOBS):
        nodes[number % NODES].ask("ADDJOB", "q", "body", 0, "REPLICATE", 2, "ASYNC")
    work(workers)
    for worker in workers:
        worker.wire.close()
    for node in nodes:
        assert node.stop() == 0
    found = [node.directory / "events" for node in nodes]
    wait_until(lambda: not [path for log in found for path in log.glob("*.open")])
    return found


def test_a_hundred_workers_keep_a_limit_as_the_audit_confirms(
    spark: SparkSession, logs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "audit"
    words = ["audit", *map(str, logs), "--output", str(output), "--settled", "0", "--check"]
    assert pipeline.main(words, lambda options: spark) == commands.OK
    assert "no findings" in capsys.readouterr().out
    jobs = spark.read.parquet(str(output / "current" / "jobs")).collect()
    assert [(job["deliveries"], job["ended"]) for job in jobs] == [(1, "acked")] * JOBS
    # How many were delivered within a second that ends with one of them, computed from the events.
    read_events(spark, *map(str, logs)).createOrReplaceTempView("events_of_limits")
    seconds = spark.sql(
        "SELECT count(*) OVER (PARTITION BY queue ORDER BY time_ms"
        " RANGE BETWEEN 999 PRECEDING AND CURRENT ROW) AS jobs"
        " FROM events_of_limits WHERE event = 'delivered'"
    )
    counts = sorted(row["jobs"] for row in seconds.collect())
    minutes = spark.read.parquet(str(output / "current" / "queue_minutes")).collect()
    assert max(minute["most_in_a_second"] for minute in minutes) == counts[-1]
    assert counts[JOBS * 9 // 10] <= A_SECOND
    assert counts[-1] <= A_SECOND * PARTS
