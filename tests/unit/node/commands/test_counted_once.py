"""Each job counts on one of its holders, so that sums over the nodes are numbers of jobs."""

import random
from typing import Any

import pytest

from disque_trio.node.core.changes.state_counts import LATER, state_of
from disque_trio.node.core.jobs.counts import JobCounts
from disque_trio.node.metrics import Walk
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

NAMES = ("delayed", "in-hand", "dead")


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh(3)
    for bench in mesh.nodes:
        bench("QSET", "q", "ATTEMPTS", 1, "DEAD", "letters")
    mesh.settle()
    return mesh


def full(bench: Bench, queue: str) -> dict[str, int]:
    """The counts of QSTAT FULL."""
    bench.send(bench.me, "QSTAT", queue, "FULL")
    bench.node.tick(bench.now)
    bench.node.commit()
    (reply,) = bench.replies(bench.me)
    if reply is None:
        return dict.fromkeys(NAMES, 0)
    assert isinstance(reply, list)
    fields = dict(zip(reply[::2], reply[1::2], strict=True))
    return {name: fields[f"jobs-{name}".encode()] for name in NAMES}


def scanned(bench: Bench, queue: str) -> dict[str, int]:
    """The counts of JSCAN REPLY counts."""
    reply: Any = bench("JSCAN", "BUSYLOOP", "REPLY", "counts")
    rows = {row[0].decode(): row[1:] for row in reply[1]}
    return dict(zip(NAMES, rows.get(queue, (0, 0, 0)), strict=True))


def first(bench: Bench, queue: str) -> dict[str, int]:
    """The counts of JSCAN FIRST; those that are queued dead letters have no other stage."""
    reply: Any = bench("JSCAN", "QUEUE", queue, "STATE", "delayed", "FIRST", 0)
    counts = dict(zip(reply[0][::2], reply[0][1::2], strict=True))
    later = counts[b"delayed"] + counts[b"retrying"]
    return dict(zip(NAMES, (later, counts[b"running"], counts[b"dead"]), strict=True))


def walked(bench: Bench, queue: str) -> dict[str, int]:
    """The counts of the metrics."""
    walk = Walk(lambda: 0.0)
    list(walk.take(bench.node, JobCounts(100)))
    tally = walk.queues.get(queue.encode())
    if tally is None:
        return dict.fromkeys(NAMES, 0)
    return dict(zip(NAMES, (tally.delayed, tally.in_hand, tally.dead), strict=True))


def total(mesh: Mesh, queue: str = "q", *, without: int = -1) -> dict[str, int]:
    """The sums over the nodes, which all ways of asking agree on; only those that are not 0."""
    found = []
    for ask in (full, scanned, first, walked):
        sums = dict.fromkeys(NAMES, 0)
        for index, bench in enumerate(mesh.nodes):
            if index != without:
                for name, count in ask(bench, queue).items():
                    sums[name] += count
        found.append({name: count for name, count in sums.items() if count})
    assert found.count(found[0]) == len(found), found
    return found[0]


def taken(mesh: Mesh, index: int) -> bytes | None:
    """The next job, taken on a node."""
    mesh[index].send(mesh[index].me, "GETJOB", "FROM", "q")
    mesh.settle()
    (reply,) = mesh[index].replies(mesh[index].me)
    return mesh[index].ids(reply)[0]


def test_a_delayed_job_counts_once(mesh: Mesh) -> None:
    for index in (0, 1, 2):
        for copies in (1, 2, 3):
            mesh.add(index, "DELAY", 100, "REPLICATE", copies)
    assert total(mesh) == {"delayed": 9}


def test_a_delayed_job_counts_where_it_was_added(mesh: Mesh) -> None:
    mesh.add(1, "DELAY", 100, "REPLICATE", 3)
    assert [full(bench, "q")["delayed"] for bench in mesh.nodes] == [0, 1, 0]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_another_holder_counts_for_one_that_is_lost(mesh: Mesh, lost: int) -> None:
    for index in (0, 1, 2):
        mesh.add(index, "DELAY", 100, "REPLICATE", 3)
    mesh.isolate(lost)
    assert total(mesh, without=lost) == {"delayed": 3}
    mesh.rejoin(lost)
    mesh.settle()
    assert total(mesh) == {"delayed": 3}


def test_both_sides_of_a_partition_count_what_they_hold(mesh: Mesh) -> None:
    mesh.add(0, "DELAY", 100, "REPLICATE", 3)
    mesh.isolate(0)
    assert full(mesh[0], "q")["delayed"] == 1
    assert sorted(full(bench, "q")["delayed"] for bench in mesh.nodes) == [0, 1, 1]


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_job_that_pauses_counts_once_wherever_it_was_processed(mesh: Mesh, worker: int) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    assert taken(mesh, worker) == id
    mesh[worker]("QSET", "q", "ATTEMPTS", 5)
    mesh.settle()
    mesh[worker]("NACK", id, "DELAY", 50)
    mesh.settle()
    assert total(mesh) == {"delayed": 1}


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_dead_letter_counts_once_wherever_it_died(mesh: Mesh, worker: int) -> None:
    id = mesh.add(0, "REPLICATE", 3)
    assert taken(mesh, worker) == id
    mesh[worker]("NACK", id)
    mesh.settle()
    assert total(mesh, "letters") == {"dead": 1}
    assert full(mesh[worker], "letters")["dead"] == 1
    letter = mesh[worker].get("letters")
    assert letter is not None
    mesh[worker]("NACK", letter, "DELAY", 50)
    mesh.settle()
    assert sum(full(bench, "letters")["dead"] for bench in mesh.nodes) == 1
    assert sum(full(bench, "letters")["delayed"] for bench in mesh.nodes) == 1


def test_a_dead_letter_whose_node_is_lost_counts_once_it_is_queued_again(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3)
    assert mesh[0].get("q") == id
    mesh[0]("NACK", id)
    mesh.settle()
    mesh.isolate(0)
    mesh.advance(700)
    assert total(mesh, "letters", without=0) == {"dead": 1}


def test_a_letter_with_two_holders_counts_at_once_when_one_is_lost(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    assert mesh[0].get("q") == id
    mesh[0]("NACK", id)
    mesh.settle()
    mesh.isolate(0)
    assert sum(full(bench, "letters")["dead"] for bench in mesh.nodes[1:]) == 1


def test_the_states_of_all_nodes_add_up_to_the_number_of_jobs(mesh: Mesh) -> None:
    for _ in range(4):
        mesh.add(0, "DELAY", 100, "REPLICATE", 3)
        mesh.add(1, "REPLICATE", 2)
    assert mesh[1].get("q")
    mesh.settle()
    sums: dict[str, int] = {}
    for bench in mesh.nodes:
        walk = Walk(lambda: 0.0)
        list(walk.take(bench.node, JobCounts(100)))
        for state, count in walk.states.items():
            sums[state] = sums.get(state, 0) + count
    copies = sums.pop("copy")
    assert {state: count for state, count in sums.items() if count} == {
        "queued": 3,
        "active": 1,
        "delayed": 4,
    }
    assert copies == 8 + 4


def delayed_ids(mesh: Mesh) -> set[bytes]:
    """The jobs of ``q`` that wait for their time on all nodes that hold them."""
    states: dict[bytes, set[str]] = {}
    for bench in mesh.nodes:
        for job in bench.node.store.jobs.values():
            if job.queue == b"q":
                states.setdefault(job.id, set()).add(state_of(job, bench.now))
    return {id for id, found in states.items() if found == {LATER}}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happened_before_each_delayed_job_counts_once(seed: int) -> None:
    rng = random.Random(seed)
    mesh = Mesh(3, seed=seed + 1)
    taken_by: dict[bytes, int] = {}
    for _ in range(40):
        index = rng.randrange(3)
        what = rng.choice(("add", "add", "delay", "take", "take", "nack", "ack", "move", "wait"))
        if what in ("add", "delay"):
            delay = ("DELAY", rng.randrange(20, 90)) if what == "delay" else ()
            mesh.add(index, "RETRY", 600, "REPLICATE", rng.randrange(1, 4), *delay)
        elif what == "take":
            id = mesh[index].get("q")
            mesh.settle()
            if id is not None:
                taken_by[id] = index
        elif what == "move":
            waiting = mesh[index].client()  # gets a job, from any node, and goes away with it
            mesh[index].send(waiting, "GETJOB", "FROM", "q")
            mesh.settle()
            mesh[index].disconnect(waiting)
        elif what == "wait":
            mesh.advance(rng.choice((0.5, 3)))
        elif taken_by:
            id, index = taken_by.popitem()
            words = (
                ("NACK", id, "DELAY", rng.randrange(20, 90)) if what == "nack" else ("ACKJOB", id)
            )
            mesh[index](*words)
            mesh.settle()
    mesh.advance(2)
    found = sum(scanned(bench, "q")["delayed"] for bench in mesh.nodes)
    assert found == len(delayed_ids(mesh))
    assert found == sum(first(bench, "q")["delayed"] for bench in mesh.nodes)
