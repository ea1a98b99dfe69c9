"""What the other nodes are told, and when."""

import pytest
from node_bench import Bench

from disque_trio.core import peers as peers_module
from disque_trio.core.job import Job
from disque_trio.core.peers import Peers

if not (peers_module.__file__ or "").endswith(".py"):
    pytest.skip("a class compiled by mypyc cannot be derived from", allow_module_level=True)


class Recorder(Peers):
    """Other nodes that only listen."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[object, ...]] = []

    def tell_queued(self, job: Job, nack: bool) -> None:
        self.told.append(("queued", job.id, nack))

    def tell_working(self, job: Job) -> None:
        self.told.append(("working", job.id))

    def tell_deleted(self, job_id: bytes, job: Job | None) -> None:
        self.told.append(("deleted", job_id, job is not None))

    def tell_paused(self, queue: bytes, paused: int) -> None:
        self.told.append(("paused", queue, paused))

    def collect(self, job: Job) -> None:
        self.told.append(("collect", job.id))


@pytest.fixture
def peers() -> Recorder:
    return Recorder()


@pytest.fixture
def bench(peers: Recorder) -> Bench:
    return Bench(peers=peers)


def told(peers: Recorder) -> list[tuple[object, ...]]:
    found, peers.told = peers.told, []
    return found


def test_only_a_further_queueing_is_told(bench: Bench, peers: Recorder) -> None:
    id = bench.add("q", "b", "RETRY", 5)
    delayed = bench.add("q", "b", "DELAY", 1)
    bench.advance(1.1)
    assert bench.get_all() == [id, delayed]
    assert told(peers) == []
    bench("NACK", id)
    assert told(peers) == [("queued", id, True)]
    bench("DEQUEUE", id)
    bench("ENQUEUE", id)
    assert told(peers) == [("queued", id, False)]
    bench.get()
    bench.advance(5.5)
    assert told(peers) == [("queued", id, False)]
    bench.advance(60)  # it stays queued: nothing to tell
    assert told(peers) == []


def test_working_is_told_unless_there_is_nothing_to_postpone(bench: Bench, peers: Recorder) -> None:
    id, once = bench.add(), bench.add("q", "b", "RETRY", 0)
    bench("WORKING", id)
    bench("WORKING", once)
    assert told(peers) == [("working", id)]


@pytest.mark.parametrize(
    ("command", "known", "unknown"),
    [
        (["FASTACK"], True, True),
        (["DELJOB"], False, False),
        (["DELJOB", "BCAST"], True, False),
        (["DELJOB", "FORCE"], False, True),
        (["DELJOB", "BCAST", "FORCE"], True, True),
    ],
)
def test_deleting_is_told_as_the_command_says(
    bench: Bench, peers: Recorder, command: list[str], known: bool, unknown: bool
) -> None:
    here, gone = bench.add(), bench.add()
    bench("DELJOB", gone)
    told(peers)
    assert bench(*command, here, gone) == 1
    expected = [("deleted", here, True)] * known + [("deleted", gone, False)] * unknown
    assert told(peers) == expected


def test_expiring_and_acknowledging_the_only_copy_is_told_to_nobody(
    bench: Bench, peers: Recorder
) -> None:
    bench.add("q", "b", "TTL", 5)
    bench("ACKJOB", bench.add())
    bench.advance(10)
    assert told(peers) == []


def test_the_acknowledge_of_a_job_with_copies_is_brought_to_them_each_time(
    bench: Bench, peers: Recorder
) -> None:
    id = bench.add()
    job = bench.node.jobs.get(id)
    assert job is not None
    job.delivered = [bench.node.id, b"f" * 40]
    assert bench("ACKJOB", id) == 1
    assert told(peers) == [("collect", id)]
    assert bench.held(id)


def test_pause_is_told_with_bcast_only(bench: Bench, peers: Recorder) -> None:
    bench("PAUSE", "q", "in")
    assert told(peers) == []
    bench("PAUSE", "q", "all", "bcast")
    bench("PAUSE", "q", "none", "bcast")
    bench("PAUSE", "other", "state", "bcast")
    assert told(peers) == [("paused", b"q", 3), ("paused", b"q", 0), ("paused", b"other", 0)]


def test_the_default_of_replicate_follows_the_size_of_the_cluster(
    bench: Bench, peers: Recorder
) -> None:
    for size, replicate in ((2, 2), (3, 3), (50, 3)):
        peers.size = size
        peers.reachable = replicate - 2  # one short
        assert bench.error("ADDJOB", "q", "b", 0).startswith("NOREPL ")
        assert bench.error("ADDJOB", "q", "b", 0, "RETRY", 0).startswith(
            "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1"
        )
    bench.add("q", "b", "RETRY", 0, "REPLICATE", 1)
