"""A start with the index has the same effect as one that reads the whole append-only file, after
any history, and whatever happens next."""

from typing import Any

import pytest

from tests.support.paged import PagedBench
from tests.support.paged_mesh import PagedMesh
from tests.support.policies import set_policy
from tests.support.stopped import Stopped
from tests.unit.node.core.pages.test_same_replies import Pair, without_times

SLOW_SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 30)]


def facts(bench: PagedBench, ids: list[bytes]) -> dict[str, Any]:
    """All that clients and operators can find out about ``bench`` without changing it."""
    found: dict[str, Any] = {}
    for queue in ("a", "b"):
        for count in (1000, -1000):
            found[f"QPEEK {queue} {count}"] = without_times(bench("QPEEK", queue, count))
        stat = bench("QSTAT", queue, "FULL")
        if stat is not None:
            pairs = dict(zip(stat[::2], stat[1::2], strict=True))
            for name in (b"jobs-paged", b"jobs-in", b"jobs-out", b"age"):  # what the file says
                pairs.pop(name)
            for name in list(pairs):  # nor does it say since when a job has waited that came again
                if name.startswith((b"wait-", b"processing-")):
                    pairs.pop(name)
            if any(value for name, value in pairs.items() if name[:4] in (b"len", b"jobs")):
                found[f"QSTAT {queue}"] = pairs
    jobs = bench("JSCAN", "BUSYLOOP", "REPLY", "all")[1]
    found["JSCAN"] = sorted([repr(without_times(job)) for job in jobs])
    for id in ids:
        found[f"SHOW {id!r}"] = without_times(bench("SHOW", id))
        found[f"WAIT {id!r}"] = str(bench("RESULT", id))
    keys = bench.node.store.uniques.entries.values()
    found["keys"] = sorted(
        (one.queue, one.key, one.id, one.until, one.lasts) for one in keys if one.until > bench.now
    )
    found["held"] = bench.node.held()
    return found


def drained(bench: PagedBench) -> list[Any]:
    """All jobs as they come, with time between."""
    found: list[Any] = []
    for _ in range(4):
        for queue in ("a", "b"):
            while reply := bench("GETJOB", "NOHANG", "COUNT", 7, "WITHCOUNTERS", "FROM", queue):
                found += reply
                bench("ACKJOB", *[job[1] for job in reply])
                bench.settle()
        found.append(None)
        bench.advance(97.3)
        bench.settle()
    return found


def history(seed: int, steps: int = 60) -> Pair:
    pair = Pair(seed)
    for _ in range(steps):
        pair.step()
    forget_odd(pair.paged)
    return pair


def forget_odd(bench: PagedBench) -> None:
    """Delete the jobs of which a start without index does not know all: those that are queued in
    spite of their delays, and at-most-once jobs that were put back, or taken out of their
    queue."""
    for job in bench("JSCAN", "BUSYLOOP", "REPLY", "all")[1]:
        about = dict(zip(job[::2], job[1::2], strict=True))
        is_delayed = about[b"ctime"] // 1_000_000 + about[b"delay"] * 1000 > bench.now
        is_queued = about[b"state"] == b"queued"
        is_once = not about[b"retry"]
        if (is_delayed == is_queued and (is_queued or is_once)) or (is_once and about[b"nacks"]):
            bench("DELJOB", about[b"id"])
    bench.settle()


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *SLOW_SEEDS])
def test_a_start_with_the_index_is_as_one_without(seed: int) -> None:
    pair = history(seed, 20 + seed * 13 % 60)
    stopped = Stopped(pair.paged)
    full, fast = stopped.started(False), stopped.started(True)
    ids = list(dict.fromkeys(pair.ids))
    known = facts(full, ids)
    assert facts(fast, ids) == known
    assert facts(Stopped(fast).started(True), ids) == known
    assert drained(fast) == drained(full)
    assert facts(fast, ids) == facts(full, ids)


def test_the_jobs_of_groups_come_back_in_the_order_of_their_groups() -> None:
    bench = PagedBench(above=1, jitter=0)
    bench.node.journaling = True
    set_policy(bench, groups="fifo")
    groups = {bench.add("q", "x", "GROUP", "aab"[number % 3]): number % 3 for number in range(120)}
    for number in range(120):
        bench.add("a", str(number))
    bench.settle()
    bench.settle()
    assert bench.pages.jobs > 120
    new = Stopped(bench).started(True, policies={"groups": "fifo"})
    new.settle()
    found = []
    while reply := new("GETJOB", "NOHANG", "COUNT", 5, "FROM", "q"):
        found += [job[1] for job in reply]
        new("ACKJOB", *[job[1] for job in reply])
        new.settle()
    for group in (False, True):
        ids = [id for id, number in groups.items() if (number == 2) == group]
        assert [id for id in found if id in ids] == ids


# ---- with other nodes --------------------------------------------------------------------------


def some_nodes() -> PagedMesh:
    mesh = PagedMesh(3)
    for index in range(3):
        mesh.stop_paging(index)
        mesh[index].node.journaling = True
    return mesh


def restarted(
    mesh: PagedMesh, with_index: bool, seconds: float = 0.5, at_once: bool = False
) -> PagedBench:
    """The first node of ``mesh``, stopped and started again."""
    mesh.settle()
    stopped = Stopped(mesh[0])
    mesh.isolate(0)
    old = mesh[0]
    mesh.nodes[0] = PagedBench(seed=9, peers=mesh.peers[0], id=old.node.id)  # nobody is there
    mesh.advance(seconds)
    later = mesh[1].now - old.now
    new = mesh.nodes[0] = stopped.started(with_index, mesh.peers[0], later, at_once)
    mesh.rejoin(0)
    mesh.settle()
    return new


def given(mesh: PagedMesh, index: int, seconds: int) -> list[bytes]:
    """The jobs that a node gives, acknowledged, for so many seconds."""
    found: list[bytes] = []
    for _ in range(seconds):
        while (id := mesh[index].get()) is not None:
            found.append(id)
            mesh[index]("ACKJOB", id)
            mesh.settle()
        mesh.advance(1)
    return found


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("options", [(), ("UNIQUE", "key"), ("HEADERS", 1, "colour", "red")])
def test_other_holders_are_asked_before_jobs_on_disk_are_queued(
    with_index: bool, options: tuple[str | int, ...]
) -> None:
    mesh = some_nodes()
    ids = [
        mesh.add(0, "REPLICATE", 3, "RETRY", 100, *_numbered(options, number))
        for number in range(60)
    ]
    mesh.send_to_disk(0)
    assert mesh[0].pages.jobs > 30
    new = restarted(mesh, with_index)
    assert (new.pages.jobs > 20) == with_index
    assert new.node.held() == 60
    mesh.told()
    mesh.advance(1)
    found = given(mesh, 0, 20)
    assert len(mesh.told("willqueue")) > 0
    assert sorted(found) == sorted(ids)
    assert [bench.node.held() for bench in mesh.nodes] == [0, 0, 0]
    assert all(not bench.node.store.uniques.entries.count for bench in mesh.nodes)


def _numbered(options: tuple[str | int, ...], number: int) -> list[str | int]:
    return [f"key{number}" if option == "key" else option for option in options]


@pytest.mark.parametrize("with_index", [True, False])
def test_what_others_have_given_to_clients_meanwhile_is_not_queued(with_index: bool) -> None:
    mesh = some_nodes()
    ids = [mesh.add(0, "REPLICATE", 3, "RETRY", 10) for _ in range(60)]
    mesh.send_to_disk(0)
    mesh.settle()
    stopped = Stopped(mesh[0])
    old = mesh[0]
    mesh.isolate(0)
    mesh.nodes[0] = PagedBench(seed=9, peers=mesh.peers[0], id=old.node.id)
    mesh.advance(12)  # the others queue them
    taken = [id for index in (1, 2) for _ in range(15) if (id := mesh[index].get())]
    assert len(taken) == 30
    new = stopped.started(with_index, mesh.peers[0], mesh[1].now - old.now)
    mesh.nodes[0] = new
    mesh.rejoin(0)
    mesh.advance(3)
    here = {job.id for queue in new.node.queues.by_name.values() for job in queue.first_to_last()}
    assert not here & set(taken)
    found = [id for index in range(3) for id in given(mesh, index, 3)]
    assert not set(found) & set(taken)
    found += [id for _ in range(6) for index in range(3) for id in given(mesh, index, 3)]
    assert set(found) == set(ids)


def test_a_restart_that_is_told_to_queues_jobs_without_asking() -> None:
    mesh = some_nodes()
    ids = [mesh.add(0, "REPLICATE", 3, "RETRY", 100) for _ in range(60)]
    mesh.send_to_disk(0)
    new = restarted(mesh, True, at_once=True)
    assert new.number_queued() == 60
    mesh.told()
    assert given(mesh, 0, 1) == ids
    assert not mesh.told("willqueue")


@pytest.mark.parametrize("with_index", [True, False])
def test_copies_stay_where_they_are(with_index: bool) -> None:
    mesh = some_nodes()
    ids = [mesh.add(1, "REPLICATE", 3, "RETRY", 20) for _ in range(60)]
    mesh.advance(3)
    mesh.send_to_disk(0)
    new = restarted(mesh, with_index)
    assert new.node.held() == 60
    mesh.advance(200)
    assert [bench.number_queued() for bench in mesh.nodes] == [0, 60, 0]
    for id in ids[::7]:
        mesh[1]("ACKJOB", id)
        mesh.settle()
    mesh.advance(1)
    assert new.node.held() == 60 - len(ids[::7])
    mesh.isolate(1)
    mesh.advance(60)
    assert mesh[0].number_queued() + mesh[2].number_queued() >= 60 - len(ids[::7])
