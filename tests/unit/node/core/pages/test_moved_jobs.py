"""Jobs lie on disk that were delivered before, or made elsewhere. What is known of them comes back
with them, and the progress file has it."""

from io import BytesIO
from pathlib import Path

from disque_trio.node.core.pages.pages import Order
from disque_trio.node.progress_file import _NewFile
from disque_trio.protocol.progress import MAGIC, ProgressReader
from tests.support.paged import PagedBench
from tests.support.paged_mesh import PagedMesh
from tests.support.stopped import Stopped


def filled() -> tuple[PagedBench, list[bytes]]:
    """A node with jobs on disk, which have been delivered before."""
    bench = PagedBench(above=1 << 30, jitter=0)
    ids = [bench.add("q", "body", "RETRY", 50) for _ in range(100)]
    assert bench.get_all("q", count=100) == ids
    for id in ids[:50]:
        assert bench("NACK", id, "REASON", "no") == 1
    bench.advance(51)
    bench.node.paging.set_above(1)
    bench.settle()
    bench.settle()
    assert bench.pages.jobs > 60
    return bench, ids


def counters(bench: PagedBench) -> dict[bytes, tuple[object, object]]:
    found: dict[bytes, tuple[object, object]] = {}
    while reply := bench("GETJOB", "NOHANG", "COUNT", 1, "WITHCOUNTERS", "FROM", "q"):
        assert isinstance(reply, list)
        found[reply[0][1]] = (reply[0][4], reply[0][6])
    return found


def test_counters_and_reasons_come_back() -> None:
    bench, ids = filled()
    shown = bench("JSCAN", "BUSYLOOP", "REPLY", "all")[1]
    assert len(shown) == 100
    assert bench("JSCAN", "BUSYLOOP", "MINRETURNS", 1)[1]
    assert bench.pages.jobs > 60
    assert bench.show(ids[30])[b"last-reason"] == b"no"
    assert bench.show(ids[70])[b"additional-deliveries"] == 1
    found = counters(bench)
    assert list(found) == ids
    assert set(list(found.values())[:50]) == {(1, 0)}
    assert set(list(found.values())[50:]) == {(0, 1)}


def test_a_new_progress_file_has_them_whatever_moves_meanwhile(tmp_path: Path) -> None:
    bench, ids = filled()
    node = bench.node
    blocks: list[bytes] = []
    node.progress.recording = True
    node.progress.write = blocks.append
    path = tmp_path / "progress"
    new = _NewFile(str(path))
    new.append(MAGIC)
    step = size = 0
    while not new.complete:
        new.append_jobs(node, 5)  # fewer than a segment has
        before, size = size, path.with_name("progress.tmp").stat().st_size
        assert size - before < 5 * 100
        bench.show(ids[step % 100])  # which brings it back
        bench.advance(0.01)
        step += 13
    new.take_name()
    found = ProgressReader()
    found.read(BytesIO(path.read_bytes() + b"".join(blocks)))
    assert {id: found.jobs[id].nacks for id in ids} == {id: int(id in ids[:50]) for id in ids}
    assert all(found.jobs[id].reason == b"no" for id in ids[:50])


def test_jobs_of_a_dead_node_go_to_disk_where_they_are_queued_then() -> None:
    mesh = PagedMesh(2)
    mesh.stop_paging(0)
    ids = [mesh.add(0, "REPLICATE", 2, "RETRY", 20) for _ in range(100)]
    mesh.advance(1.5)
    mesh.send_to_disk(1)
    assert mesh[1].pages.jobs == 100
    mesh.isolate(0)
    mesh.advance(40)
    assert mesh[1].number_queued() == 100
    assert mesh[1].pages.jobs > 60
    queue = mesh[1].node.queues.by_name[b"q"]
    assert queue.on_disk() == mesh[1].pages.jobs
    found = counters(mesh[1])
    assert sorted(found) == sorted(ids)
    assert set(found.values()) == {(0, 1)}


def test_a_client_of_another_node_gets_jobs_as_soon_as_they_are_back_from_disk() -> None:
    mesh = PagedMesh(2)
    mesh.advance(0)
    mesh.send_to_disk(0)
    for _ in range(60):
        mesh.add(0, "REPLICATE", 1, "RETRY", 300)
    mesh.advance(1)
    assert mesh[0].node.paging.pages.jobs > 40
    client = mesh[1].me
    waited = []
    for _ in range(55):
        begun = mesh[1].now
        mesh[1].send(client, "GETJOB", "FROM", "q")
        mesh.settle()
        while not mesh[1].replies(client):
            mesh.advance(0.001)
        waited.append(mesh[1].now - begun)
    assert max(waited) <= 2


def test_jobs_whose_files_are_damaged_at_a_stop_are_queued_at_the_start() -> None:
    mesh = PagedMesh(2)
    mesh.stop_paging(0)
    bench = mesh[1]
    bench.node.journaling = True
    ids = [mesh.add(0, "REPLICATE", 2, "RETRY", 50) for _ in range(100)]
    bench("ENQUEUE", *ids)
    mesh.send_to_disk(1)
    queued = bench.number_queued("q")
    assert bench.pages.jobs > 30
    for number in bench.files:
        bench.files[number] = b"damaged"

    def perform(orders: list[Order]) -> None:
        bench.orders += orders
        while bench.orders:
            bench.carry_out()

    bench.pages.perform = perform
    started = Stopped(bench).started(with_index=False)
    assert started.number_queued("q") == queued
