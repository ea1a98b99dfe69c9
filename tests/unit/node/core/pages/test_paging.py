"""Long queues lie on disk while memory is short: what goes, what comes back, and what if the disk
fails."""

import random
from io import BytesIO
from pathlib import Path

from disque_trio.aof.format import RecordReader
from disque_trio.aof.loader import Loader
from disque_trio.node.core.jobs.job import JOB_OVERHEAD
from disque_trio.node.core.pages.pages import READ, Order
from tests.support.node_bench import Bench
from tests.support.paged import PagedBench


def filled(count: int = 100, **more: int) -> tuple[PagedBench, list[bytes]]:
    bench = PagedBench(above=1, **more)
    ids = [bench.add("q", f"body{number}") for number in range(count)]
    bench.settle()
    return bench, ids


def take_all(bench: Bench) -> list[bytes]:
    found: list[bytes] = []
    while (id := bench.get()) is not None:
        found.append(id)
    return found


def test_the_middle_goes_to_disk_and_comes_back_in_its_order() -> None:
    bench, ids = filled()
    assert bench.pages.jobs > 70
    assert bench.node.store.jobs.count + bench.pages.jobs == 100
    assert len(bench.files) == len(bench.pages.segments)
    assert take_all(bench) == ids
    bench.settle()
    assert (bench.pages.jobs, bench.files, bench.pages.taken) == (0, {}, 0)
    assert bench.node.memory.used == bench.counted_memory()


def test_memory_has_only_what_is_counted() -> None:
    bench, _ = filled()
    in_memory = bench.counted_memory() + bench.pages.taken
    assert bench.node.memory.used == in_memory


def test_nothing_goes_to_disk_while_memory_is_not_short() -> None:
    bench = PagedBench(above=1 << 20)
    for _ in range(100):
        bench.add()
    bench.settle()
    assert bench.pages.jobs == 0
    assert not bench.files


def test_acknowledgements_read_nothing() -> None:
    bench, ids = filled()
    assert bench("ACKJOB", *ids[20:80]) == 60
    assert bench("ACKJOB", ids[30]) == 0
    bench.settle()
    assert bench.pages.reads == 0
    assert bench.info("stats")["total_jobs_acked"] == "60"
    assert take_all(bench) == ids[:20] + ids[80:]


def test_the_event_log_needs_no_jobs_that_are_acknowledged() -> None:
    bench, ids = filled()
    notes = bench.node.notes
    notes.eventing = True
    assert bench("ACKJOB", ids[30]) == 1
    assert bench("ACKJOB", *ids[31:33]) == 2
    assert bench("FASTACK", ids[40]) == 1
    assert bench.pages.reads == 0
    events = [event for event in notes.events if event]
    assert [event[1:4] for event in events if isinstance(event, tuple)] == [
        ("acked", b"q", "client"),
        ("deleted", b"q", "fastack"),
    ]
    assert [event for event in events if isinstance(event, bytes)] == [*ids[30:33], ids[40]]


def test_jobs_that_were_only_looked_at_go_back_to_their_places() -> None:
    bench, ids = filled()
    looked_at = [id for at, id in enumerate(ids) if 30 <= at < 60 and at not in (40, 50)]
    before = [bench.pages.find(id) for id in looked_at]
    for id in ids[30:60]:
        assert bench("SHOW", id)
    assert bench("UPDATEJOB", ids[40], "BODY", "other")
    assert bench("ACKJOB", ids[50]) == 1
    written = dict(bench.files)
    bench.advance(2)
    bench.settle()
    assert [bench.pages.find(id) for id in looked_at] == before
    assert bench.files.items() >= written.items()
    assert bench.node.memory.used == bench.counted_memory() + bench.pages.taken
    taken = [bench.get_with_body() for _ in range(99)]
    assert taken == [
        (id, b"other" if n == 40 else b"body%d" % n) for n, id in enumerate(ids) if n != 50
    ]
    bench.settle()
    assert (bench.pages.jobs, bench.pages.taken) == (0, 0)


def test_jobs_that_others_refer_to_are_not_given_back_before_that_is_over() -> None:
    bench, ids = filled()
    before = bench.pages.jobs
    referred: dict[bytes, None] = {ids[40]: None}
    bench.node.paging.keep(referred)
    assert bench("SHOW", ids[40])
    bench.advance(2)
    bench.settle()
    assert bench.pages.jobs == before - 1
    referred.clear()
    bench.advance(2)
    bench.settle()
    assert bench.pages.jobs == before


def test_any_number_of_segments_may_become_empty_behind_the_first_one() -> None:
    bench, ids = filled(2500, most=2)
    pages = bench.pages
    assert len(pages.segments) > 1100
    for id in reversed(ids[6:]):
        assert bench("CANCEL", id) == 1
    assert take_all(bench) == ids[:6]
    bench.settle()
    assert (pages.jobs, bench.files, pages.taken) == (0, {}, 0)


def test_a_job_is_found_again_after_what_led_to_its_place_was_swept_out() -> None:
    bench, ids = filled()
    bench("SHOW", ids[40])
    bench.pages.index.sweep(1 << 20)
    assert not bench.pages.index.find(ids[40])
    bench.advance(2)
    bench.settle()
    assert bench("ACKJOB", ids[40]) == 1
    assert take_all(bench) == ids[:40] + ids[41:]


def test_qpurge_reads_only_ids() -> None:
    bench, ids = filled()
    most = max(segment.file_size for segment in bench.pages.segments.values())
    read: list[int] = []
    perform = bench.pages.perform

    def noted(orders: list[Order]) -> None:
        read.extend(part[1] - part[0] for one in orders for part in one.parts if one.kind == READ)
        perform(orders)

    bench.pages.perform = noted
    assert bench("QPURGE", "q") == 100
    bench.settle()
    assert read
    assert max(read) == 8 * 40 < most
    assert (bench.pages.jobs, bench.files, bench.number_queued()) == (0, {}, 0)
    assert bench("WAITJOB", 0, ids[50]) == [[ids[50], b"cancelled", None]]
    assert bench.info("stats")["total_jobs_cancelled"] == "100"


def test_qpurge_ends_all_jobs_of_damaged_files() -> None:
    bench = PagedBench(above=1)
    bench.node.journaling = True
    for number in range(100):
        bench.add("q", f"body{number}")
    bench.settle()
    for number, data in list(bench.files.items()):
        bench.files[number] = data[:-7]
    assert bench("QPURGE", "q") == 100
    bench.settle()
    assert (bench.pages.jobs, bench.files, bench.number_queued()) == (0, {}, 0)


def test_jobs_that_were_delivered_stay_in_memory_in_their_place() -> None:
    bench = PagedBench(above=1 << 30)
    ids = [bench.add("q", "b") for _ in range(100)]
    for id in ids[::5]:
        bench("DEQUEUE", id)
        bench("WORKING", id)
        bench("NACK", id)
    bench.node.paging.set_above(1)
    bench.settle()
    bench.settle()
    assert bench.pages.jobs > 50
    assert take_all(bench) == ids


def test_trailers_go_along() -> None:
    bench = PagedBench(above=1)
    ids = [
        bench.add("q", "body", "HEADERS", 1, "n", "v" * (number % 7), "NOTE", f"note{number}")
        for number in range(100)
    ]
    bench.settle()
    assert bench.pages.jobs > 70
    assert bench("JSCAN", "BUSYLOOP", "HEADER", "n", "vv")[1]
    assert bench.pages.jobs > 70
    for number in (20, 50, 80):
        assert bench.show(ids[number])[b"note"] == b"note%d" % number
    assert len(bench("QPEEK", "q", 100)) == 100
    assert take_all(bench) == ids
    assert bench("ACKJOB", *ids) == 100
    bench.settle()
    assert bench.node.memory.used == bench.counted_memory()


def test_keys_of_jobs_on_disk_are_taken_until_these_end() -> None:
    bench = PagedBench(above=1)
    ids = [bench.add("q", "body", "UNIQUE", f"key{number}") for number in range(100)]
    bench.settle()
    assert bench.pages.jobs > 70
    assert bench("ADDJOB", "q", "other", 0, "UNIQUE", "key50") == ids[50]
    before = bench.pages.reads
    assert bench("ACKJOB", ids[50]) == 1
    assert bench.pages.reads == before
    new = bench.add("q", "other", "UNIQUE", "key50")
    assert new != ids[50]
    assert bench("ACKJOB", new) == 1
    assert bench("ACKJOB", *ids) == 99
    bench.settle()
    assert bench.pages.jobs == bench.pages.taken == 0
    assert bench.node.memory.used == bench.counted_memory()
    assert bench.node.store.uniques.entries.count == 0


def test_a_start_sends_jobs_with_keys_to_disk_and_frees_those_of_ended_ones(
    tmp_path: Path,
) -> None:
    bench = PagedBench()
    bench.node.journaling = True
    ids = [bench.add("q", "b", "UNIQUE", f"key{number}", "FOR", 900) for number in range(200)]
    more = [bench.add("q", "b", "UNIQUE", f"more{number}") for number in range(200)]
    assert bench("ACKJOB", *ids[:50], *more[:50]) == 100
    again = loaded(bench, tmp_path)
    assert again.pages.jobs > 200
    uniques, expected = again.node.store.uniques, bench.node.store.uniques
    places = {entry.key: entry.id for shard in uniques.entries.shards for entry in shard.values()}
    assert places == {
        entry.key: entry.id for shard in expected.entries.shards for entry in shard.values()
    }
    assert again("ACKJOB", more[100]) == 1
    assert again.add("q", "new", "UNIQUE", "more100") != more[100]


def test_a_dump_for_c_nodes_has_no_trailers() -> None:
    bench = PagedBench(above=1)
    for number in range(50):
        bench.add("q", f"body{number}", "HEADERS", 1, "n", "v")
    bench.settle()
    assert bench.pages.jobs > 20
    bench.node.peers.plain = True
    jobs = bench.dumped()
    assert {job.body for job in jobs} == {b"body%d" % number for number in range(50)}
    assert all(job.flags & 128 == 0 for job in jobs)


def test_a_client_that_waits_gets_the_job_once_it_is_read() -> None:
    bench, ids = filled(100, late=1)
    bench.node.paging.set_above(None)
    taken = 0
    other = bench.client()
    while not bench.node.queues.by_name[b"q"].dry:
        bench.send(other, "GETJOB", "FROM", "q")
        assert bench.got(other) == ids[taken]
        taken += 1
    client = bench.block()
    assert client.blocked
    bench.settle()
    assert bench.got(client) == ids[taken]


def test_jobs_on_disk_expire_within_two_seconds() -> None:
    bench = PagedBench(above=1, jitter=0)
    for _ in range(50):
        bench.add("q", "short", "TTL", 100)
    for _ in range(50):
        bench.add("q", "long", "TTL", 1000)
    bench.settle()
    assert bench.pages.jobs > 70
    bench.advance(99)
    assert bench.number_queued() == 100
    bench.advance(3)
    bench.settle()
    bench.advance(0.1)
    assert bench.number_queued() == 50
    assert bench.info("stats")["total_jobs_expired"] == "50"


def test_only_jobs_that_expire_next_come_back_for_that() -> None:
    bench = PagedBench(above=1, jitter=0, most=128)
    rng = random.Random(3)
    ttls = [rng.randrange(100, 2100) for _ in range(2000)]
    ids = [bench.add("q", "body", "TTL", ttl) for ttl in ttls]
    bench.settle()
    before = bench.pages.jobs
    assert before > 1500
    bench.advance(103)
    bench.settle()
    assert bench.pages.jobs > before - 2000 // 64 - 20
    for moment in range(103, 2000, 30):
        gone = [ttl for ttl in ttls if ttl <= moment - 3]
        assert bench.number_queued() <= len(ttls) - len(gone)
        assert len(gone) - 30 < int(bench.info("stats")["total_jobs_expired"])
        assert bench.pages.jobs > before - len(gone) - 600 or moment > 1000
        bench.advance(30)
        bench.settle()
    assert bench.pages.reads < 64 * 15
    bench.advance(200)
    bench.settle()
    assert bench.number_queued() == 0
    assert (bench.pages.jobs, bench.files, bench.pages.taken) == (0, {}, 0)
    assert bench.info("stats")["total_jobs_expired"] == str(len(ids))


def test_jobs_that_expire_soon_stay_in_memory() -> None:
    for ttl in (2, 4):
        bench = PagedBench(above=1)
        for _ in range(50):
            bench.add("q", "body", "TTL", ttl)
        bench.settle()
        assert (bench.pages.jobs > 0) == (ttl > 2)


def test_a_job_that_was_given_back_expires_in_time() -> None:
    bench = PagedBench(above=1, jitter=0)
    for number in range(100):
        ttl = {50: 104, 51: 100}.get(number, 1000)
        bench.add("q", b"%d" % number, "TTL", ttl, "RETRY", 0)
    bench.settle()
    bench.advance(100.5)
    id = bench.ids(bench("QPEEK", "q", 100))[50]
    before = bench.pages.jobs
    assert bench("SHOW", id)
    assert bench.pages.jobs == before - 1
    bench.advance(0.8)
    assert bench.info("stats")["total_jobs_expired"] == "1"
    bench.advance(1)
    bench.settle()
    assert bench.pages.jobs == before - 1  # the other one has expired
    bench.advance(4)
    bench.settle()
    bench.advance(0.1)
    assert bench.info("stats")["total_jobs_expired"] == "2"


def test_while_the_disk_is_full_jobs_stay_in_memory_and_go_once_there_is_room() -> None:
    bench = PagedBench(above=1)
    bench.full = True
    ids = [bench.add("q", f"body{number}") for number in range(50)]
    bench.settle()
    assert bench.pages.jobs == 0
    assert bench.info("jobs")["paging_problem"] == "No space left on device"
    assert bench("SHOW", ids[25])
    bench.full = False
    bench.advance(2)
    ids.append(bench.add("q", "last"))
    bench.settle()
    assert bench.pages.jobs > 20
    assert bench.info("jobs")["paging_problem"] == ""
    assert take_all(bench) == ids


def test_a_damaged_file_is_made_again_from_the_append_only_file() -> None:
    bench = PagedBench(above=1)
    bench.node.journaling = True
    ids = [bench.add("q", f"body{number}") for number in range(100)]
    bench.settle()
    rng = random.Random(1)
    for number, data in list(bench.files.items()):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 4
        bench.files[number] = bytes(damaged)
    assert take_all(bench) == ids
    assert bench.damaged
    assert bench.pages.lost == 0


def test_looks_at_a_damaged_file_show_all_jobs() -> None:
    for look in ("QPEEK", "backwards", "JSCAN"):
        bench = PagedBench(above=1, late=4)
        bench.node.journaling = True
        ids = [bench.add("q", f"body{number}") for number in range(100)]
        bench.settle()
        for number in list(bench.files)[1::2]:
            bench.files[number] = bench.files[number][:400]
        if look == "JSCAN":
            reply = bench("JSCAN", "BUSYLOOP")
            assert sorted(reply[1]) == sorted(ids)  # type: ignore[index]
        else:
            found = bench.ids(bench("QPEEK", "q", 100 if look == "QPEEK" else -100))
            assert sorted(found) == sorted(ids)
        assert bench.damaged
        assert bench.pages.jobs
        assert take_all(bench) == ids


def test_a_file_that_is_gone_because_its_jobs_were_taken_is_not_damaged() -> None:
    bench = PagedBench(above=1)
    bench.node.journaling = True
    ids = [bench.add("q", f"body{number}") for number in range(100)]
    bench.settle()
    looks = [bench.node.paging.views.scan(0, 1000)[1] for _ in range(2)]
    for look in looks:
        while next(look) is not None:
            pass
    bench.settle()
    # What was read once is for the first one only.
    assert len(list(looks[0])) < 100
    assert take_all(bench) == ids
    for _ in looks[1]:
        bench.settle()
    assert bench.damaged == []


def test_a_scan_reads_few_large_jobs_at_a_time() -> None:
    bench = PagedBench(above=1, late=2)
    ids = [bench.add("q", "x" * 200_000) for _ in range(100)]
    bench.settle()
    read: list[Order] = []
    bench.pages.perform = read.extend
    look = bench.node.paging.views.scan(0, 1000)[1]
    found: list[bytes] = []
    for job in look:
        if job is not None:
            found.append(job.id)
            continue
        size = sum([end - start for order in read for start, end in order.parts])
        assert 0 < size < 2_000_000
        bench.orders += read
        read.clear()
        while bench.orders:
            bench.carry_out()
    assert sorted(found) == sorted(ids)


def test_a_scan_shows_jobs_that_leave_the_disk_meanwhile() -> None:
    bench = PagedBench(above=1)
    ids = [bench.add("q", "x" * 200_000) for _ in range(100)]
    bench.settle()
    look = bench.node.paging.views.scan(0, 1000)[1]
    seen = [job.id for job in [next(look) for _ in range(3)] if job is not None]
    bench.node.paging.set_above(None)
    taken = [bench.get() for _ in range(50)]
    bench.settle()
    for job in look:
        if job is None:
            bench.settle()
        else:
            seen.append(job.id)
    assert sorted(seen) == sorted(ids)
    assert taken == ids[:50]


def test_jobs_that_are_nowhere_are_counted_as_lost() -> None:
    bench = PagedBench(above=1)
    bench.node.journaling = True
    ids = [bench.add("q", f"body{number}") for number in range(100)]
    bench.settle()
    bench.lost = set(ids[40:43])
    bench.files.clear()
    assert take_all(bench) == ids[:40] + ids[43:]
    assert bench.pages.lost == 3
    assert bench.number_queued() == 0


def test_a_command_about_a_lost_job_gets_its_reply() -> None:
    bench = PagedBench(above=1)
    bench.node.journaling = True
    ids = [bench.add("q", f"body{number}") for number in range(100)]
    bench.settle()
    bench.files.clear()
    assert bench.show(ids[50])[b"body"] == b"body50"
    bench.lost = {ids[70]}
    assert bench("SHOW", ids[70]) is None


def test_switching_it_off_while_jobs_lie_on_disk_loses_none() -> None:
    bench, ids = filled()
    bench.node.paging.set_above(None)
    ids += [bench.add("q", "more") for _ in range(50)]
    assert take_all(bench) == ids
    assert bench.pages.jobs == 0


def test_a_flush_forgets_jobs_on_disk_too() -> None:
    bench, _ = filled()
    bench("DEBUG", "FLUSHALL")
    bench.settle()
    assert (bench.pages.jobs, bench.files, bench.number_queued()) == (0, {}, 0)
    id = bench.add()
    assert bench.get() == id


def test_a_command_waits_only_for_its_own_jobs_and_the_next_one_for_it() -> None:
    bench, ids = filled(100, late=3)
    client = bench.client()
    bench.send(client, "NACK", ids[50], ids[60])
    assert client.blocked
    assert bench("QLEN", "q") == 100
    bench.finish(client)
    assert bench.replies(client) == [0]


def loaded(
    bench: PagedBench, directory: Path, above: int = 1, left: dict[int, bytes] | None = None
) -> PagedBench:
    """A node that has loaded what ``bench`` wrote, and finds the files that are ``left``."""
    path = directory / "aof"
    path.write_bytes(b"".join(bench.node.journal))
    again = PagedBench(above=above, seed=7, id=bench.node.id)
    again.pages.seed = 54321  # each process draws another one
    again.files.update(left or {})
    again.now = again.node.now = bench.now
    for _ in Loader(str(path), again.node, True).steps():
        again.turn()
    again.settle()
    return again


def test_loading_sends_jobs_to_disk_as_it_goes(tmp_path: Path) -> None:
    bench = PagedBench()
    bench.node.journaling = True
    ids = [bench.add("q", f"body{number}") for number in range(1, 500)]
    bench("ACKJOB", *ids[100:120])
    again = loaded(bench, tmp_path)
    assert again.pages.jobs > 400
    assert again.number_queued() == 479
    assert take_all(again) == ids[:100] + ids[120:]


def test_a_dump_has_the_jobs_on_disk_whatever_moves_meanwhile() -> None:
    for seed in range(5):
        rng = random.Random(seed)
        bench = PagedBench(above=1, seed=seed)
        node = bench.node
        node.journaling = True
        ids = [bench.add("q", f"body{number}") for number in range(200)]
        bench.settle()
        node.journal.clear()
        node.start_dump()
        records: list[bytes] = []
        done = False
        ended: set[bytes] = set()
        while not done:
            more, done = node.dump_step(10, 1 << 20)
            records += node.journal + more
            node.journal.clear()
            what = rng.randrange(4)
            id = rng.choice(ids)
            if what == 0 and bench("ACKJOB", id):
                ended.add(id)
            elif what == 1:
                bench("SHOW", id)
            elif what == 2:
                ids.append(bench.add("q", "new"))
            elif (taken := bench.get()) is not None:
                assert taken not in ended
            bench.settle()
        records += node.journal
        again = PagedBench(above=1 << 30, seed=seed + 100)
        again.now = again.node.now = bench.now
        for record in RecordReader(BytesIO(b"".join(records))):
            again.node.load_record(record, True)
        for id in ids:
            assert (again("SHOW", id) is not None) == (id not in ended), seed


def test_what_a_job_takes_in_memory_on_disk_is_little() -> None:
    bench = PagedBench(above=1 << 40, most=512)
    for _ in range(3_000):
        bench.add("q", "x" * 100)
    bench.node.paging.set_above(1)
    before = bench.node.memory.used
    for _ in range(10):
        bench.settle()
    assert bench.pages.jobs >= 1_024
    index = bench.pages.taken - 8 * 65_536  # a fixed part, for the first one
    assert index < 120 * bench.pages.jobs
    assert before - bench.node.memory.used > bench.pages.jobs * (JOB_OVERHEAD - 120) - 8 * 65_536


def test_counts_and_jobs_in_hand_are_known_without_reading() -> None:
    bench = PagedBench(above=1)
    for _ in range(100):
        bench.add("q", "body")
        bench.add("later", "body", "DELAY", 10_000)
        bench.advance(1)
    bench.settle()
    taken = [bench.get() for _ in range(3)]
    bench.settle()
    assert bench.pages.jobs > 120
    reads = bench.pages.reads
    reply = bench("JSCAN", "BUSYLOOP", "REPLY", "counts")
    assert sorted(reply[1]) == [[b"later", 100, 0, 0], [b"q", 0, 3, 0]]  # type: ignore[index]
    found: dict[bytes, int] = {}
    cursor = b"0"
    while True:
        cursor, rows = bench("JSCAN", cursor, "COUNT", 7, "REPLY", "counts")  # type: ignore[misc]
        for name, delayed, _, _ in rows:
            found[name] = found.get(name, 0) + delayed
        if cursor == b"0":
            break
    assert found == {b"later": 100, b"q": 0}
    reply = bench("JSCAN", "BUSYLOOP", "TAKEN")
    assert sorted(reply[1]) == sorted(taken)  # type: ignore[index,type-var]
    assert bench.pages.reads == reads
