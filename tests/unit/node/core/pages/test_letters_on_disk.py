"""Dead letters lie on disk: they are counted, sent back, and known as what follows other jobs."""

import pytest

from disque_trio.protocol.successor import successor_id
from disque_trio.protocol.trailer import DEAD
from tests.support.node_bench import Bench
from tests.support.paged import PagedBench
from tests.support.paged_mesh import PagedMesh


def bury(bench: Bench, count: int, *options: str | int) -> list[bytes]:
    """The ids of jobs that became dead letters."""
    bench("QSET", "q", "ATTEMPTS", 1, "DEAD", "d")
    ids = [bench.add("q", f"body{at}", *options) for at in range(count)]
    assert bench.get_all("q", count=count) == ids
    for id in ids:
        bench("NACK", id)
    return [successor_id(id, DEAD) for id in ids]


def filled() -> tuple[PagedBench, list[bytes]]:
    bench = PagedBench(above=1 << 30, jitter=0)
    letters = bury(bench, 100)
    bench.node.paging.set_above(1)
    bench.settle()
    bench.settle()
    assert bench.pages.jobs > 60
    return bench, letters


def test_they_count_as_dead() -> None:
    bench, letters = filled()
    assert bench.fields("QSTAT", "d", "FULL")[b"jobs-dead"] == 100
    reads = bench.pages.reads
    assert bench("JSCAN", "BUSYLOOP", "REPLY", "counts")[1] == [[b"d", 0, 0, 100]]
    assert bench.pages.reads == reads
    assert bench("ACKJOB", *letters[30:40]) == 10
    assert bench.fields("QSTAT", "d", "FULL")[b"jobs-dead"] == 90
    shown = bench.show(letters[50])
    assert (shown[b"dead-from"], shown[b"dead-why"]) == (b"q", b"attempts")


@pytest.mark.parametrize("above", [1, None])
def test_all_are_sent_back(above: int | None) -> None:
    bench, _ = filled()
    bench.node.paging.set_above(above)
    assert bench("REDRIVE", "d") == 100
    bench.settle()
    assert bench.number_queued("d") == 0
    assert bench.number_queued("q") == 100


def test_some_are_sent_back_and_others_stay_in_their_place() -> None:
    bench, letters = filled()
    plain = [bench.add("d", "plain") for _ in range(50)]
    bench.settle()
    assert bench("REDRIVE", "d", "COUNT", 30) == 30
    assert bench("REDRIVE", "d") == 70
    bench.node.paging.set_above(None)
    assert bench.get_all("d", count=30) == plain[:30]
    assert bench.number_queued("d") == 20
    assert letters


def test_those_with_given_ids_are_sent_back() -> None:
    bench, letters = filled()
    assert bench("REDRIVE", "d", "MATCH", *letters[40:60]) == 20
    assert bench.number_queued("d") == 80


def test_those_on_other_nodes_are_sent_back() -> None:
    mesh = PagedMesh(2)
    for index in range(2):
        mesh.stop_paging(index)
        mesh[index]("QSET", "q", "ATTEMPTS", 1, "DEAD", "d")
    bury(mesh[0], 60, "REPLICATE", 1)
    mesh.settle()
    mesh.send_to_disk(0)
    assert mesh[0].pages.jobs > 30
    client = mesh[1].client()
    mesh[1].send(client, "REDRIVE", "d")
    mesh.advance(2)
    assert mesh[1].replies(client) == [60]
    assert mesh[0].number_queued("q") == 60


def test_letters_go_to_disk_once_they_have_their_copies() -> None:
    mesh = PagedMesh(3)
    for bench in mesh.nodes:
        bench("QSET", "q", "ATTEMPTS", 1, "DEAD", "d")
    for index in range(3):
        mesh.stop_paging(index)
    ids = [mesh.add(0, "REPLICATE", 3, "RETRY", 20) for _ in range(60)]
    mesh.isolate(2)
    assert mesh[0].get_all("q", count=60) == ids
    for id in ids:
        mesh[0]("NACK", id)
    mesh.settle()
    mesh.advance(1)
    mesh.send_to_disk(0)
    letters = [successor_id(id, DEAD) for id in ids]
    assert mesh[0].pages.jobs == 0  # until they have their copies
    mesh.rejoin(2)
    mesh.advance(60)
    assert sum(map(mesh[0].node.paging.knows, letters)) > 30
    mesh.stop_paging(0)
    states = [
        [bench.show(letter)[b"state"] for bench in mesh.nodes if bench.held(letter)]
        for letter in letters
    ]
    assert [state.count(b"queued") for state in states] == [1] * 60
    assert [len(state) for state in states] == [3] * 60
    assert not any(bench.held(id) for bench in mesh.nodes for id in ids)
