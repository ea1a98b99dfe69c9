"""Commands that need jobs on disk are put off, in their order, and nothing else is."""

from disque_trio.respserver.slices import do_slice
from tests.support.paged import PagedBench


def filled() -> tuple[PagedBench, list[bytes]]:
    bench = PagedBench(above=1, late=5)
    ids = [bench.add("q", f"body{number}") for number in range(100)]
    bench.settle()
    return bench, ids


def test_a_client_that_leaves_meanwhile_gets_nothing_and_its_change_is_made() -> None:
    bench, ids = filled()
    client = bench.client()
    bench.send(client, "CANCEL", ids[50])
    assert client.blocked
    bench.disconnect(client)
    bench.settle()
    assert bench("SHOW", ids[50]) is None
    assert bench.number_queued() == 99


def test_a_client_that_leaves_meanwhile_takes_no_job() -> None:
    bench, ids = filled()
    bench.node.paging.set_above(None)
    other = bench.client()
    taken = 0
    while not bench.node.queues.by_name[b"q"].dry:
        bench.send(other, "GETJOB", "FROM", "q")
        assert bench.got(other) == ids[taken]
        taken += 1
    client = bench.client()
    bench.send(client, "GETJOB", "FROM", "q")
    bench.disconnect(client)
    bench.settle()
    assert bench.get() == ids[taken]


def test_a_group_waits_before_it_begins() -> None:
    bench, ids = filled()
    bench("MULTI")
    bench("SHOW", ids[40])
    bench("ACKJOB", ids[41])
    bench("QPEEK", "q", 100)
    shown, acked, peeked = bench("EXEC")  # type: ignore[misc]
    assert shown[1] == ids[40]
    assert acked == 1
    assert bench.ids(peeked) == ids[:41] + ids[42:]


def test_reply_off_counts_once() -> None:
    bench, ids = filled()
    client = bench.client()
    bench.send(client, "CLIENT", "REPLY", "SKIP")
    bench.send(client, "SHOW", ids[50])
    bench.finish(client)
    bench.send(client, "SHOW", ids[60])
    bench.finish(client)
    (shown,) = bench.replies(client)
    assert isinstance(shown, list)
    assert shown[1] == ids[60]


def test_a_command_about_very_many_jobs_waits_before_each_slice() -> None:
    bench, ids = filled()
    bench.node.batches.size = 10
    assert bench("CANCEL", *ids) == 100
    assert bench.number_queued() == 0


def test_commands_are_counted_once() -> None:
    bench, ids = filled()
    before = int(bench.info("stats")["total_commands_processed"])
    bench("SHOW", ids[50])
    assert int(bench.info("stats")["total_commands_processed"]) == before + 2
    assert int(bench.info("jobs")["paging_waits"]) == 1


def test_purging_and_moving_go_on_as_segments_come_back() -> None:
    bench, ids = filled()
    assert bench("QMOVE", "q", "other", "COUNT", 60) == 60
    assert bench.ids(bench("QPEEK", "other", 100)) == ids[:60]
    assert bench("QPURGE", "q") == 40
    assert bench.number_queued() == 0


def test_what_was_read_for_a_client_that_has_left_is_forgotten() -> None:
    bench, _ = filled()
    client = bench.client()
    bench.send(client, "QPEEK", "q", 100)
    assert bench.orders
    bench.disconnect(client)
    bench.settle()
    views = bench.node.paging.views
    assert views.due
    bench.advance(11)
    assert views.due == 0


def test_who_fetches_what_was_read_late_asks_again() -> None:
    bench, ids = filled()
    client = bench.client()
    bench.send(client, "QPEEK", "q", 100)
    while bench.orders:
        bench.carry_out()
    bench.now += 11_000
    bench.node.paging.go_on(bench.now)
    assert bench.node.paging.views.due == 0
    bench.finish(client)
    (peeked,) = bench.replies(client)
    assert bench.ids(peeked) == ids


def test_a_command_waits_for_as_many_jobs_as_it_does_at_once() -> None:
    bench = PagedBench(above=1, late=1)
    ids = [bench.add("q", f"body{number}") for number in range(100)]
    bench.settle()
    bench.node.batches.size = 3
    chosen = [id for id in ids if bench.node.paging.knows(id)]
    for count in (2, 3, 4):
        assert bench("CANCEL", *chosen[:count]) == count
        del chosen[:count]
    bench.settle()
    assert bench.number_queued() == 91


def test_a_command_that_names_too_many_jobs_reads_none() -> None:
    bench = PagedBench(above=1)
    ids = [bench.add("q", f"body{number}") for number in range(1100)]
    bench.settle()
    assert "at most" in str(bench("WAITJOB", 0, *ids))
    assert "up to" in str(bench("REDRIVE", "q", "MATCH", *ids))
    assert bench.pages.reads == 0


def test_a_client_that_is_heard_again_is_pushed_jobs_while_its_command_waits() -> None:
    bench, ids = filled()
    client = bench.client()
    client.resp = 3
    bench.ask(client, "CONSUME", "other", "CREDIT", 1)
    late = bench.add("other", "", "RETRY", 1)
    bench.advance(3)  # its time is over: the client may hang, so it gets nothing else
    bench.pushes(client)
    bench("ACKJOB", late)
    waiting = bench.add("other", "")
    bench.settle()
    assert not bench.pushes(client)
    bench.send(client, "SHOW", ids[50])
    assert client.in_flight
    bench.node.commit()
    assert [message[2] for message in bench.pushes(client)] == [waiting]


def dry(bench: PagedBench) -> None:
    """Let the next job of the queue be on disk."""
    bench.node.paging.set_above(None)
    while not bench.node.queues.by_name[b"q"].dry:
        bench.send(bench.client(), "GETJOB", "FROM", "q")


def test_nothing_is_done_for_a_command_that_waits_for_the_disk() -> None:
    bench, ids = filled()
    dry(bench)
    (first,) = bench.ids([bench("GETJOB", "FROM", "q")[0]])  # type: ignore[index]
    client = bench.client()
    batches = bench.node.batches
    bench.send(client, "GETJOB", "COUNT", 60, "FROM", "q")
    carried_out = 0
    while client.in_slices or client.in_flight:
        slices = 0
        while batches.waiting and slices < 3:
            do_slice(bench.node, bench.now)
            slices += 1
        assert slices <= 2
        bench.node.commit()
        bench.node.replied()
        if bench.orders:
            bench.carry_out()
            carried_out += 1
        bench.node.tick(bench.now)
    assert carried_out > 1
    taken = bench.ids(bench.replies(client)[0])
    at = ids.index(first) + 1
    assert taken == ids[at : at + 60]
