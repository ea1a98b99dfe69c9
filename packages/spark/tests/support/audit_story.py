"""A scenario with three real nodes that contains everything an audit can find."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from packages.spark.tests.support.live_books import Books
from tests.support.harness import HANG_SECONDS, wait_until
from tests.support.live_cluster import LiveCluster, live_cluster

OPTIONS = ("--appendonly", "yes", "--appendfsync", "always", "--event-log", "yes")
WAITS = "waits"  # a queue that has no consumers


def told(directory: Path) -> Books:
    """Run the scenario. The logs are below ``directory`` in ``node-0/events`` and so on; all nodes
    have stopped. Queues are named after what happens to their jobs."""
    with live_cluster(directory, 3, *OPTIONS, proxied=True) as cluster:
        books = Books(cluster)
        try:
            for chapter in _chapters():
                chapter(cluster, books)
        finally:
            books.close()
        for node in cluster:
            assert node.stop() == 0
        for node in cluster:
            wait_until(lambda node=node: not list(node.directory.glob("events/*.open")))
    return books


def _chapters() -> Iterator[Callable[[LiveCluster, Books], None]]:
    yield _work
    yield _troubles
    yield _ends
    yield _kill
    yield _restart
    yield _partition
    yield _loss


def _work(cluster: LiveCluster, books: Books) -> None:
    """Jobs of one node are processed at another, and acknowledged at a third."""
    for node in range(3):
        books.add(node, "done", 20, "REPLICATE", 2, "RETRY", 60)
    for node in (1, 2, 0):
        ids = books.get(node, "done", 20)
        assert books.say((node + 1) % 3, "ACKJOB", ids[:10]) >= 0
        assert books.say(node, "ACKJOB", ids[10:]) == 10
    books.add(0, "once", 5, "REPLICATE", 1, "RETRY", 0)
    books.get(1, "once", 5)


def _troubles(cluster: LiveCluster, books: Books) -> None:
    """Jobs are redelivered for all reasons caused by clients."""
    books.add(0, "nack", 6, "REPLICATE", 2, "RETRY", 60)
    books.say(0, "NACK", books.get(0, "nack", 6))
    books.say(1, "ACKJOB", books.get(1, "nack", 6))
    books.add(1, "poison", 3, "REPLICATE", 1, "RETRY", 60)
    for _ in range(5):
        books.say(1, "NACK", books.get(1, "poison", 3))
    books.add(2, "enqueue", 4, "REPLICATE", 1, "RETRY", 60)
    books.say(2, "ENQUEUE", books.get(2, "enqueue", 4))
    books.say(2, "ACKJOB", books.get(2, "enqueue", 4))
    ids = books.add(0, "retry", 5, "REPLICATE", 3, "RETRY", 1)
    books.get_each(0, "retry", ids)
    books.get_each(0, "retry", ids)
    books.say(0, "ACKJOB", ids)


def _ends(cluster: LiveCluster, books: Books) -> None:
    """Jobs that are never delivered end, or do not."""
    books.add(0, WAITS, 4, "REPLICATE", 2, "RETRY", 60)
    books.add(1, WAITS, 3, "REPLICATE", 1, "RETRY", 60)
    books.add(0, "expire", 4, "REPLICATE", 1, "RETRY", 60, "TTL", 1)
    deleted = books.add(0, "delete", 4, "REPLICATE", 1, "RETRY", 60)
    assert books.say(0, "DELJOB", deleted) == 4
    far = books.add(0, "delete far", 3, "REPLICATE", 2, "RETRY", 60)
    # A node that gets no answer in time puts the job on a third one, too.
    while not (strangers := [node.index for node in cluster if not node.holds(far[-1])]):
        far += books.add(0, "delete far", 1, "REPLICATE", 2, "RETRY", 60)
    (stranger,) = strangers
    for id in far:  # the others may be on other nodes
        books.say(stranger, "DELJOB", [id], "BCAST", "FORCE")
    wait_until(lambda: not any(cluster.holders(id) for id in far))


def _kill(cluster: LiveCluster, books: Books) -> None:
    """A node dies with jobs in its queue, and with a delivery that it has not logged."""
    waiting = books.add(2, "killed", 4, "REPLICATE", 1, "RETRY", 2)
    unsure = books.add(2, "lost line", 3, "REPLICATE", 1, "RETRY", 2)
    wait_until(lambda: cluster[2].info("persistence")["event_log_buffer_length"] == "0")
    books.unsure.update(id.decode() for id in books.get(2, "lost line", 3))
    cluster[2].process.send_signal(signal.SIGKILL)
    cluster[2].process.wait(HANG_SECONDS)
    books.forget(2)
    cluster[2].start()
    cluster.wait_joined()
    books.get_each(2, "lost line", unsure)
    books.say(2, "ACKJOB", unsure)
    books.get_each(2, "killed", waiting)
    books.say(2, "ACKJOB", waiting)


def _restart(cluster: LiveCluster, books: Books) -> None:
    """A node restarts with jobs in its queue."""
    ids = books.add(1, "restarted", 4, "REPLICATE", 1, "RETRY", 60)
    wire = books.wire(1)
    wire.send("RESTART")
    assert wire.closed()
    books.forget(1)
    cluster[1].wait_ready()
    cluster.wait_joined()
    assert set(books.get(1, "restarted", 4)) == set(ids)
    books.say(1, "ACKJOB", ids)


def _partition(cluster: LiveCluster, books: Books) -> None:
    """An isolated node has jobs in its queue that others also queue. It delivers jobs that were
    acknowledged elsewhere."""
    ids = books.add(0, "partition", 4, "REPLICATE", 3, "RETRY", 2)
    cluster.proxy.isolate(0)
    books.get_each(1, "partition", ids)
    assert books.say(1, "ACKJOB", ids[:2]) == 2
    end = time.monotonic() + 0.3  # well above the difference between two clocks
    wait_until(lambda: time.monotonic() > end)
    books.get_each(0, "partition", ids)
    cluster.proxy.heal()
    cluster.wait_joined()
    books.say(0, "ACKJOB", ids)


def _loss(cluster: LiveCluster, books: Books) -> None:
    """A node loses everything without logging it. Some jobs are safe elsewhere."""
    books.add(2, "lost", 3, "REPLICATE", 1, "RETRY", 60)
    books.add(0, "kept", 3, "REPLICATE", 1, "RETRY", 60)
    assert cluster[2].ask("DEBUG", "FLUSHALL") == b"OK"
    wait_until(lambda: cluster[2].registered() == 0)
