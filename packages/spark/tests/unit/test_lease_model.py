"""Leases in Disque, checked by an oracle: processes end at any call, answers are lost, tasks run
twice, drivers come back or are replaced; yet no job is lost, or acknowledged before its batch is
committed, and repeated batches have the same rows."""

import os
from contextlib import closing, suppress
from random import Random

import pyarrow as pa
import pytest

from disque_spark.client import WireError
from disque_spark.leases.journal import Cell
from disque_spark.leases.queue import QueueStore
from disque_spark.leases.queue_batch import QueueBatch
from disque_spark.leases.store import LeaseError, PartitionPlan
from packages.spark.tests.support.lease_model import Killed, ModelCells, Nodes, body_of

SEEDS = range(int(os.environ.get("DISQUE_LEASE_SEEDS", "60")))
SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("body", pa.binary(), nullable=False)])
PARTS = 3
JOBS = 40


def rows_of(ids: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": ids, "body": [body_of(i) for i in ids]}, schema=SCHEMA)


class World:
    """A query with a checkpoint, and a sink that goes by the number of the batch.

    Attributes:
        written: the rows of each batch in the sink.
        seen: the rows that each partition of a batch has ever given to Spark.
        planned, committed: as in Spark's checkpoint.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nodes = Nodes(self.random, kill=0.01, lose=0.01)
        self.written: dict[int, list[str]] = {}
        self.seen: dict[tuple[int, int], list[tuple[str, bytes]]] = {}
        self.planned = 0
        self.committed = 0
        self.nodes.queued = [f"J-{n}" for n in range(JOBS)]

    def open(self) -> QueueStore:
        """Start a driver. The lock of the previous one is gone, however it ended."""
        for key in [key for key in self.nodes.cells if key.startswith("lock/")]:
            del self.nodes.cells[key]
        return QueueStore(ModelCells(self.nodes), "model", 0)

    def task(self, number: int, part: int, owner: str) -> list[tuple[str, bytes]]:
        """Attempt a task; return the rows that it passed to Spark."""
        cells = ModelCells(self.nodes)
        with closing(QueueBatch(cells, "model", number, owner)) as batch:
            jobs = batch.jobs(part)
            if jobs is None:
                with closing(batch.draft(SCHEMA)) as draft:
                    mine: set[str] = set()
                    for _ in range(2):
                        given = list(dict.fromkeys(self.nodes.get(self.random.randrange(5))))
                        draft.append(rows_of([id for id in given if id not in mine]))
                        mine.update(given)
                        if self.random.random() < 0.3:
                            self.come_twice()
                    if self.random.random() < 0.1 and self.nodes.fails:
                        with suppress(WireError, LeaseError):
                            self.task(number, part, owner)  # speculation
                    draft.publish(part)
                jobs = batch.jobs(part)
            if jobs is None:
                raise LeaseError("none")
            found = [(row["id"], row["body"]) for some in jobs for row in some.to_pylist()]
            if found:
                batch.mark_read(part)
        # All attempts return the same rows, whatever was lost in between.
        assert self.seen.setdefault((number, part), found) == found
        return found

    def come_twice(self) -> None:
        """Let another node deliver a job that one has already delivered."""
        if self.nodes.delivered:
            self.nodes.queued.append(min(self.nodes.delivered))

    def held(self, store: QueueStore) -> set[str]:
        """Return the jobs for which the driver sends WORKING."""
        return {
            id
            for number in store.open_batches()
            for lease in store.leases(number)
            for id in lease.ids
        }

    def drive(self, store: QueueStore) -> None:
        """Run a driver until nothing is left."""
        store.take_over()
        while True:
            self.acknowledge(store)
            left = store.open_batches()
            if not left:
                self.nodes.retry(self.held(store))
                if not self.nodes.queued:
                    return
                number = max(store.highest(), self.committed) + 1
                jobs = list(dict.fromkeys(self.nodes.get(self.random.randrange(3))))
                first = rows_of(jobs) if jobs else None
                store.begin(number, [PartitionPlan("a:1", 9)] * PARTS, first)
            else:
                number = left[0]
            assert number == self.committed + 1
            self.planned = number
            rows = [self.task(number, part, store.owner) for part in range(PARTS)]
            ids = [id for part in rows for id, _ in part]
            assert len(set(ids)) == len(ids)
            assert all(body == body_of(id) for part in rows for id, body in part)
            self.nodes.step()
            # The batch may already be in the sink; then it has the same rows.
            assert self.written.setdefault(number, ids) == ids
            self.nodes.step()
            self.committed = number

    def acknowledge(self, store: QueueStore) -> None:
        """Finish what is committed."""
        for number in store.open_batches():
            if number <= self.committed:
                store.finish(number)
        for number in store.to_acknowledge():
            assert number <= self.committed
            for lease in store.leases(number):
                assert lease.read
                assert set(lease.ids) <= set(self.written[number])
                half = len(lease.ids) // 2
                self.nodes.ack(lease.ids[:half])
                self.nodes.ack(lease.ids[half:])
            store.clear(number)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_job_is_lost_and_none_acknowledged_too_early_whatever_ends_where(seed: int) -> None:
    world = World(seed)
    for life in range(200):
        world.nodes.fails = life < 150
        try:
            store = world.open()
            world.drive(store)
        except (Killed, WireError, LeaseError):
            # Its lease keeps the jobs in one; all others come back after their retry time.
            world.nodes.fails = False
            with closing(world.open()) as looking:
                world.nodes.retry(world.held(looking))
            continue
        break
    else:
        pytest.fail("it does not come to an end")
    done = [id for ids in world.written.values() for id in ids]
    assert set(done) == {f"J-{n}" for n in range(JOBS)}
    assert world.nodes.acknowledged == set(done)
    world.nodes.fails = False
    # Finished batches leave nothing behind, except what the next process that opens the queue
    # drops.
    with closing(world.open()):
        pass
    left = {key for key, cell in world.nodes.cells.items() if b'"nothing"' not in cell.body}
    assert {key.partition("/")[0] for key in left} == {"done", "identity"}
    assert f"done/{world.committed}" in left
    assert len(left) == 2
    assert world.nodes.pages == {}


def test_a_driver_that_was_replaced_cannot_end_a_batch() -> None:
    nodes = Nodes(Random(1))
    one = QueueStore(ModelCells(nodes), "model", 0)
    one.begin(1, [PartitionPlan("a:1", 9)], rows_of(["J-1"]))
    nodes.cells = {key: cell for key, cell in nodes.cells.items() if "lock" not in key}
    other = QueueStore(ModelCells(nodes), "model", 0)
    other.take_over()
    with pytest.raises(LeaseError, match="another query"):
        one.finish(1)
    assert other.open_batches() == [1]
    other.finish(1)
    assert other.to_acknowledge() == [1]


def at_day(nodes: Nodes, day: int) -> QueueStore:
    return QueueStore(ModelCells(nodes), "model", 0, lambda: day * 86_400.0)


def test_leases_are_the_same_as_long_as_somebody_comes_back_now_and_then() -> None:
    nodes = Nodes(Random(1))
    nodes.cells["identity"] = Cell("D-0", "identity", b"of the first release")
    for day in range(0, 1000, 80):
        with closing(at_day(nodes, day)) as store:
            assert store.identity == "of the first release"
    assert "identity" not in nodes.cells
    # Cells expire in real nodes. A query that does not end writes its identity with its batches.
    store = at_day(nodes, 1000)
    assert store.identity == "of the first release"
    store._clock = lambda: 2000 * 86_400.0
    store.begin(1, [PartitionPlan("a:1", 9)], rows_of(["J-1"]))
    store.close()
    with closing(at_day(nodes, 2080)) as late:
        assert late.identity == "of the first release"
        assert late.open_batches() == [1]
    with closing(at_day(nodes, 2400)) as later:
        assert later.identity != "of the first release"


def test_what_is_left_of_a_batch_whose_plan_has_expired_does_not_come_into_the_next_one() -> None:
    nodes = Nodes(Random(1))
    with closing(QueueStore(ModelCells(nodes), "model", 0)) as store:
        store.begin(1, [PartitionPlan("a:1", 9)] * 2, rows_of(["J-1"]))
        with closing(QueueBatch(ModelCells(nodes), "model", 1, store.owner)) as batch:
            assert batch.jobs(1) is None
            draft = batch.draft(SCHEMA)
            draft.append(rows_of(["J-2"]))
            assert draft.publish(1)
    del nodes.cells["1/0"]
    with closing(QueueStore(ModelCells(nodes), "model", 0)) as store:
        assert store.open_batches() == []
        assert nodes.pages == {}
        store.begin(1, [PartitionPlan("a:1", 9)] * 2, rows_of(["J-3"]))
        assert [lease.ids for lease in store.leases(1)] == [["J-3"]]


def test_a_second_query_is_refused_while_the_first_one_lives() -> None:
    nodes = Nodes(Random(1))
    one = QueueStore(ModelCells(nodes), "model", 0)
    with pytest.raises(LeaseError, match="in use"):
        QueueStore(ModelCells(nodes), "model", 0)
    one.close()
    QueueStore(ModelCells(nodes), "model", 0).close()


def test_the_second_to_plan_the_same_batch_gets_an_error() -> None:
    nodes = Nodes(Random(1))
    one = QueueStore(ModelCells(nodes), "model", 0)
    nodes.cells = {key: cell for key, cell in nodes.cells.items() if "lock" not in key}
    other = QueueStore(ModelCells(nodes), "model", 0)
    one.begin(1, [PartitionPlan("a:1", 9)], None)
    with pytest.raises(LeaseError, match="has planned batch 1"):
        other.begin(1, [PartitionPlan("b:1", 9)], None)
    assert other.plans(1) == [PartitionPlan("a:1", 9)]


def test_reads_of_another_query_do_not_count() -> None:
    nodes = Nodes(Random(1))
    one = QueueStore(ModelCells(nodes), "model", 0)
    one.begin(1, [PartitionPlan("a:1", 9)] * 2, rows_of(["J-1"]))
    batch = QueueBatch(ModelCells(nodes), "model", 1, one.owner)
    assert batch.jobs(1) is None
    draft = batch.draft(SCHEMA)
    draft.append(rows_of(["J-2", "J-1"]))
    assert draft.publish(1)
    assert [(lease.ids, lease.read) for lease in one.leases(1)] == [
        (["J-1"], False),
        (["J-2"], True),
    ]
    one.close()
    other = QueueStore(ModelCells(nodes), "model", 0)
    other.forget_reads()
    batch.mark_read(0)  # a task of the first driver that lives a little longer
    assert [lease.read for lease in other.leases(1)] == [False, False]
    again = QueueBatch(ModelCells(nodes), "model", 1, other.owner)
    assert again.jobs(1) is not None
    again.mark_read(1)
    assert [lease.read for lease in other.leases(1)] == [False, True]
    batch.close()


def test_a_late_task_adds_nothing_to_a_finished_batch() -> None:
    nodes = Nodes(Random(1))
    store = QueueStore(ModelCells(nodes), "model", 0)
    store.begin(1, [PartitionPlan("a:1", 9)], None)
    late = QueueBatch(ModelCells(nodes), "model", 1, store.owner)
    assert late.jobs(0) is None
    draft = late.draft(SCHEMA)
    draft.append(rows_of(["J-1"]))
    store.finish(1)
    assert not draft.publish(0)
    draft.close()
    assert nodes.pages == {}
    assert store.leases(1) == []
    store.clear(1)
    later = QueueBatch(ModelCells(nodes), "model", 1, store.owner)
    assert later.jobs(0) is None
    with pytest.raises(LeaseError, match="too late"):
        later.draft(SCHEMA)
