"""Which jobs the tasks of a read take from nodes, and keep from being delivered again."""

import resource
from contextlib import closing

import pyarrow as pa
import pytest

from disque_spark.client import BlockingClient, WireError
from disque_spark.datasources.queues import read_options
from disque_spark.leases.division import divided, shares
from disque_spark.leases.fetch import FIRST_FETCH, ReadOptions, leased, take
from disque_spark.leases.keeper import LeaseKeeper
from disque_spark.leases.planner import Planner
from disque_spark.leases.queue import QueuePlace
from disque_spark.leases.queue_batch import QueueDraft
from disque_spark.leases.store import LeaseError, PartitionPlan
from disque_spark.options import OptionError
from disque_trio.respclient.login import Login
from packages.spark.tests.support.lease_model import ModelPlace
from packages.spark.tests.support.lease_reader import SCHEMA, Reader, add, jobs_at, place_at
from tests.support.harness import (
    LiveNode,
    free_port,
    wait_until,
)
from tests.support.scripted_node import ScriptedNode


def test_large_jobs_are_fetched_a_few_at_a_time(
    reader: Reader, node: LiveNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disque_spark.leases.fetch.FETCH_BYTES", 100_000)
    wire = node.wire()
    for _ in range(40):
        wire("ADDJOB", "q", b"x" * 30_000, 0)
    with BlockingClient(reader.options.nodes) as own:
        taken = [rows.num_rows for rows in take(own, ReadOptions(("q",)), 0, SCHEMA)]
    assert taken == [16] + [3] * 8


def read(place: ModelPlace, share: PartitionPlan, fetch: int = 500) -> list[pa.RecordBatch]:
    """What a task reads as partition 0 of batch 1."""
    batch = place.batch(1, place.log.owner, share.address)
    return list(leased(batch, 0, share, ReadOptions(("q",), fetch=fetch), SCHEMA))


def test_a_full_disk_fails_the_task_and_gives_the_jobs_back(node: LiveNode) -> None:
    wire = node.wire()
    for _ in range(10):
        wire("ADDJOB", "q", b"x" * 50_000, 0, "RETRY", 600)
    share = PartitionPlan(f"127.0.0.1:{node.port}", 10)
    place = ModelPlace()
    place.open().begin(1, [share], None)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            read(place, share)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert place.pages() == 0
    assert place.log.leases(1) == []
    assert node.ask("QLEN", "q") == 10
    assert sum(rows.num_rows for rows in read(place, share)) == 10


def test_a_task_that_comes_when_the_batch_is_over_fails(node: LiveNode) -> None:
    add(node, 3)
    share = PartitionPlan(f"127.0.0.1:{node.port}", 3)
    place = ModelPlace()
    place.open().begin(1, [share], None)
    place.log.finish(1)
    with pytest.raises(LeaseError):
        read(place, share)
    assert node.ask("QLEN", "q") == 3


@pytest.mark.parametrize(
    ("options", "batch", "reason"),
    [
        ({"queue": "q"}, False, "leaseQueue: expected a name"),
        ({"queue": "q"}, True, "leaseQueue: expected a name"),
        ({"leases": "disque", "queue": "q"}, False, "leaseQueue: expected a name"),
        ({"leaseQueue": "a", "leases": "directory", "queue": "q"}, False, "leases: .*disque"),
        ({"leaseQueue": "a" * 257, "queue": "q"}, False, "leaseQueue"),
        ({"leaseQueue": "spark-leases/a", "queue": "q"}, False, "leaseQueue"),
        ({"leaseQueue": "x"}, False, "queue or queues"),
        ({"leaseQueue": "x", "queue": "q", "queues": "a,b"}, False, "queue or queues"),
        ({"leaseQueue": "x", "queues": "a,,b"}, False, "queue or queues"),
        ({"leaseQueue": "x", "queue": "q", "nodes": "a:7711,b:x"}, False, "nodes: .*b:x"),
        ({"leaseQueue": "x", "queue": "q", "nodes": ":7711"}, False, "nodes"),
        ({"leaseQueue": "x", "queue": "q", "fetch": "0"}, False, "fetch"),
        ({"leaseQueue": "x", "queue": "q", "queuePattern": "q*"}, False, "queuePattern"),
        ({"leaseQueue": "x", "queuePattern": ""}, False, "queuePattern"),
        ({"leaseQueue": "x", "queue": "q", "minPartitions": "0"}, False, "minPartitions"),
        ({"leaseQueue": "x", "queue": "q", "maxBytesPerBatch": "0"}, False, "maxBytes"),
        ({"leaseQueue": "x", "queue": "q", "maxJobsPerBatch": "0"}, False, "maxJobsPerBatch"),
        ({"leaseQueue": "x", "queue": "q", "ackOnRead": "true"}, False, "ackOnRead"),
        ({"queue": "q", "ackOnRead": "all", "maxBytesPerBatch": "1"}, True, "maxBytes"),
        ({"queue": "q", "ackOnRead": "all"}, False, "ackOnRead: for batch reads"),
        ({"queue": "q", "ackOnRead": "true"}, True, "maxJobsPerBatch .*=all .*read disque-jobs"),
        ({"queue": "q", "ackOnRead": "true", "maxJobsPerBatch": "0"}, True, "maxJobsPerBatch"),
        ({"queue": "q", "ackOnRead": "all", "maxJobsPerBatch": "5"}, True, "maxJobsPerBatch"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], batch: bool, reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        read_options(options, batch)


def test_driver_and_executors_name_the_same_leases_and_each_queue_once() -> None:
    options = {"nodes": "a:1,b:2", "leaseQueue": "orders", "queues": "a, b,a"}
    read = read_options(options, batch=False)
    assert read.leases == QueuePlace("orders", ("a:1", "b:2"), Login())
    assert read.queues == ("a", "b")


def test_a_target_counts_what_was_taken_and_not_what_was_planned(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 5)
    reader.planner.only_what_is_there()
    start = reader.planner.initial()
    one = reader.planner.latest(start)
    taken = node.ask("GETJOB", "COUNT", 3, "FROM", "q")  # somebody else is faster
    assert isinstance(taken, list)
    assert len(reader.read(one)) == 2
    add(node, 10, first=5)
    two = reader.planner.latest(one)
    assert len(reader.read(two)) == 3
    assert reader.planner.latest(two) == two


def test_tasks_whose_node_is_gone_have_no_jobs() -> None:
    share = PartitionPlan(f"127.0.0.1:{free_port()}", 10)
    place = ModelPlace()
    place.open().begin(1, [share], None)
    assert read(place, share) == []
    batch = place.batch(1, place.log.owner, share.address)
    assert list(batch.jobs(0) or ()) == []
    assert list(batch.journal.leases) == [0]


def test_jobs_of_an_attempt_that_was_not_first_go_back_to_their_queue(
    node: LiveNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(node, 10)
    share = PartitionPlan(f"127.0.0.1:{node.port}", 3)
    place = ModelPlace()
    place.open().begin(1, [share], None)
    other: list[pa.RecordBatch] = []
    append = QueueDraft.append

    def slow(draft: QueueDraft, rows: pa.RecordBatch) -> None:
        append(draft, rows)
        monkeypatch.undo()
        other.extend(read(place, share, 3))

    monkeypatch.setattr(QueueDraft, "append", slow)
    again = read(place, share, 3)
    assert [rows.to_pydict() for rows in again] == [rows.to_pydict() for rows in other]
    assert node.ask("QLEN", "q") == 7


def test_acknowledging_goes_on_where_a_lost_node_ended_it(node: LiveNode) -> None:
    ids = add(node, 10)

    def dies(request: list[bytes]) -> bytes | None:
        return None

    place = ModelPlace()
    with ScriptedNode(dies) as gone, closing(place.open()) as log:
        log.begin(1, [PartitionPlan(gone.address, 10)], leases_of(ids))
        batch = place.batch(1, log.owner, gone.address)
        assert batch.jobs(0) is not None
        batch.mark_read(0)
        with pytest.raises(WireError):
            LeaseKeeper(log).finish()
        assert log.open_batches() == []
        assert [lease.ids for lease in log.leases(1)] == [ids]
        assert LeaseKeeper(log, [f"127.0.0.1:{node.port}"]).finish() == {1: 10}
        assert log.to_acknowledge() == []
    assert jobs_at(node) == 0


def leases_of(ids: list[str]) -> pa.RecordBatch:
    """Rows of jobs for a lease."""
    return pa.RecordBatch.from_pydict({"id": ids, "body": [b"x"] * len(ids)})


def test_working_keeps_leased_jobs_from_being_delivered_again(node: LiveNode) -> None:
    ids = add(node, 20)
    node.ask("GETJOB", "COUNT", 20, "FROM", "q")
    with closing(ModelPlace().open()) as log:
        # Half of them are in a lease of a node that is gone, so other nodes are asked.
        own = f"127.0.0.1:{node.port}"
        log.begin(1, [PartitionPlan(own, 5)], leases_of(ids[:5]))
        gone = PartitionPlan(f"127.0.0.1:{free_port()}", 5)
        log.begin(2, [gone], leases_of(ids[5:10]))
        holder = LeaseKeeper(log, [own])

        def not_leased_are_back() -> bool:
            holder.working()
            return node.ask("QLEN", "q") == 10

        wait_until(not_leased_are_back)
        holder.working()
        assert [jobs_state(node, id) for id in ids] == [b"active"] * 10 + [b"queued"] * 10


def jobs_state(node: LiveNode, id: str) -> object:
    fields = node.ask("SHOW", id)
    assert isinstance(fields, list)
    return fields[fields.index(b"state") + 1]


def has_one_job(request: list[bytes]) -> bytes:
    """The replies of a node with one job, D-1, which only its first GETJOB gets."""
    if request[0] == b"HELLO":
        return b"*2\r\n:1\r\n$2\r\nab\r\n"
    if request[0] == b"GETJOB" and int(request[request.index(b"COUNT") + 1]) == FIRST_FETCH:
        fields = (b"q", b"D-1", b"body", b"nacks", 0, b"additional-deliveries", 0)
        return b"*1\r\n*7\r\n" + b"".join(
            b":%d\r\n" % field if isinstance(field, int) else b"$%d\r\n%s\r\n" % (len(field), field)
            for field in fields
        )
    return {b"CLUSTER": b"$2\r\nno\r\n", b"WORKING": b":60\r\n"}.get(request[0], b"*-1\r\n")


def test_working_is_sent_as_soon_as_there_is_a_lease() -> None:
    """Not a heartbeat later: a copy elsewhere may be about to be queued."""
    leases: list[list[str]] = []
    place = ModelPlace()

    def answer(request: list[bytes]) -> bytes:
        if request == [b"WORKING", b"D-1"]:
            leases.extend(lease.ids for lease in place.log.leases(1))
        return has_one_job(request)

    with ScriptedNode(answer) as node, closing(place.open()) as log:
        share = PartitionPlan(node.address, FIRST_FETCH)
        log.begin(1, [share], None)
        assert read(place, share)
    assert leases == [["D-1"]]


def test_working_is_sent_at_once_for_jobs_that_the_driver_takes() -> None:
    with ScriptedNode(has_one_job) as node:
        planner = Reader(ModelPlace(), [node.address]).planner
        start = planner.initial()
        assert planner.latest(start) != start
        assert [b"WORKING", b"D-1"] in node.requests
        planner.close()


def test_a_starting_driver_sends_working_for_the_leases_it_finds() -> None:
    with ScriptedNode(has_one_job) as node, closing(ModelPlace().open()) as log:
        log.begin(1, [PartitionPlan(node.address, 1)], leases_of(["D-old"]))
        holder = LeaseKeeper(log, [node.address])
        holder.start(3600)
        try:
            wait_until(lambda: [b"WORKING", b"D-old"] in node.requests)
        finally:
            holder.close()


def test_all_nodes_have_their_turn_when_there_are_fewer_jobs_in_a_batch_than_nodes() -> None:
    lengths = {"a:1": 1_000_000, "b:1": 3, "c:1": 0, "d:1": 5}
    assert [shares(lengths, 1, turn) for turn in range(3)] == [
        {"a:1": 1, "b:1": 0, "d:1": 0},
        {"a:1": 0, "b:1": 1, "d:1": 0},
        {"a:1": 0, "b:1": 0, "d:1": 1},
    ]


def test_a_node_with_few_jobs_is_visited_beside_one_with_many() -> None:
    lengths = {"a:1": 1_000_000, "b:1": 3, "c:1": 0, "d:1": 5}
    assert shares(lengths, 100, 0) == {"a:1": 99, "b:1": 1, "d:1": 0}
    assert shares(lengths, 100, 1) == {"a:1": 99, "b:1": 1, "d:1": 0}
    assert shares(lengths, 100, 2) == {"a:1": 99, "b:1": 0, "d:1": 1}
    assert shares({"a:1": 6, "b:1": 4}, 20, 7) == {"a:1": 11, "b:1": 9}
    assert shares({}, 20, 7) == {}


def test_shares_add_up() -> None:
    assert divided(10, 3) == [4, 3, 3]
    assert divided(2, 2) == [1, 1]


def taking(node: LiveNode, size: int = 0, **options: object) -> list[pa.RecordBatch]:
    """Return what a task takes from a node."""
    with BlockingClient([f"127.0.0.1:{node.port}"]) as client:
        return list(take(client, ReadOptions(**options), 0, SCHEMA, size))  # type: ignore[arg-type]


def test_a_task_takes_no_more_bytes_than_it_may(node: LiveNode) -> None:
    for _ in range(30):
        node.ask("ADDJOB", "q", "x" * 1000, 0, "RETRY", 600)
    assert sum(rows.num_rows for rows in taking(node, 10_500, queues=("q",))) == 10
    assert sum(rows.num_rows for rows in taking(node, 10, queues=("q",))) == 1  # at least one
    assert sum(rows.num_rows for rows in taking(node, queues=("q",))) == 19


def test_queues_of_a_pattern_are_read_when_they_appear(node: LiveNode) -> None:
    place = place_at(node)
    options = ReadOptions(
        (), (f"127.0.0.1:{node.port}",), False, max_jobs=100, leases=place, pattern="mail.*"
    )
    planner = Planner(options, SCHEMA, hold=False)
    try:
        start = planner.initial()
        node.ask("ADDJOB", "other", "body", 0)
        assert planner.latest(start) == start
        node.ask("ADDJOB", "mail.a", "one", 0, "RETRY", 600)
        one = planner.latest(start)
        assert one != start
        node.ask("ADDJOB", "mail.b", "two", 0, "RETRY", 600)
        bodies: list[bytes] = []

        def read() -> bool:
            nonlocal one
            for seq, number, plan in planner.plans(one):
                batch = place.batch(seq, planner.owner, plan.address)
                for rows in leased(batch, number, plan, options, SCHEMA):
                    bodies.extend(rows.column("body").to_pylist())
            one = planner.latest(one)
            return sorted(bodies) == [b"one", b"two"]

        wait_until(read)
        assert node.ask("QLEN", "other") == 1
    finally:
        planner.close()
