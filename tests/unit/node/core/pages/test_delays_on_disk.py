"""Jobs whose delay is not over lie on disk, and are queued in time."""

from tests.support.paged import PagedBench
from tests.support.paged_mesh import PagedMesh


def filled(*options: str | int, **more: int) -> tuple[PagedBench, list[bytes]]:
    bench = PagedBench(above=1, jitter=0, **more)
    ids = [bench.add("q", f"body{at}", "DELAY", 100 + at, *options) for at in range(100)]
    bench.settle()
    bench.advance(1)
    assert bench.pages.jobs > 90
    return bench, ids


def delayed(bench: PagedBench) -> object:
    return bench.fields("QSTAT", "q", "FULL")[b"jobs-delayed"]


def test_they_are_queued_when_their_delay_is_over() -> None:
    for options in ((), ("RETRY", 0), ("RETRY", 3)):
        bench, ids = filled(*options)
        bench.node.paging.set_above(None)
        found: list[bytes] = []
        for second in range(205):
            while (id := bench.get()) is not None:
                found.append(id)
                bench("ACKJOB", id)
            assert abs(len(found) - min(max(second - 98, 0), 100)) <= 1
            bench.advance(1)
        assert found == ids
        assert bench.pages.jobs == 0


def test_they_count_as_delayed() -> None:
    bench, ids = filled()
    bench.make_queue("q")
    assert bench.pages.jobs > 90
    assert delayed(bench) == 100
    assert bench.show(ids[50])[b"state"] == b"active"
    assert bench("ACKJOB", *ids[:10]) == 10
    assert bench("CANCEL", *ids[10:20]) == 10
    assert bench("PROMOTE", *ids[20:30]) == 10
    bench.settle()
    assert delayed(bench) == 70
    assert bench.number_queued() == 10
    assert len(bench("JSCAN", "BUSYLOOP", "STATE", "active")[1]) == 70


def test_a_job_that_was_put_off_counts_as_delayed_no_longer_than_its_delay() -> None:
    bench, ids = filled("RETRY", 900)
    bench.make_queue("q")
    for id in ids[:20]:
        assert bench("WORKING", id) == 900
    bench.advance(1)
    assert bench.pages.jobs > 70
    bench.advance(210)
    assert delayed(bench) == 0


def test_a_damaged_file_is_made_again_with_their_delays() -> None:
    bench = PagedBench(above=1, jitter=0)
    bench.node.journaling = True
    ids = [bench.add("q", f"body{at}", "DELAY", 100 + at) for at in range(50)]
    bench.settle()
    bench.advance(1)
    assert bench.pages.jobs > 40
    bench.files.clear()
    assert bench.show(ids[30])[b"body"] == b"body30"
    bench.advance(98)
    assert bench.number_queued() == 0
    bench.node.paging.set_above(None)
    bench.advance(55)
    assert bench.number_queued() == 50
    assert bench.pages.lost == 0


def test_copies_elsewhere_wait_as_long() -> None:
    mesh = PagedMesh(3)
    for index in range(3):
        mesh.stop_paging(index)
    ids = [mesh.add(0, "REPLICATE", 3, "RETRY", 20, "DELAY", 100) for _ in range(60)]
    mesh.advance(1.5)
    for index in range(3):
        mesh.send_to_disk(index)
    assert [bench.pages.jobs for bench in mesh.nodes] == [60, 60, 60]
    mesh.advance(90)
    assert [bench.number_queued() for bench in mesh.nodes] == [0, 0, 0]
    mesh.advance(10)
    assert [bench.number_queued() for bench in mesh.nodes] == [60, 0, 0]
    assert mesh[2]("ACKJOB", *ids) == 60
    mesh.settle()
    mesh.advance(1)
    assert [bench.pages.jobs for bench in mesh.nodes] == [0, 0, 0]


def test_their_queue_need_not_exist() -> None:
    bench, ids = filled()
    assert b"q" not in bench.node.queues.by_name
    assert bench("ACKJOB", ids[50]) == 1
    assert bench("DELJOB", ids[51]) == 1
    assert bench("FASTACK", ids[52]) == 1
    assert bench.node.held() == 97
