"""What a node loads from an append-only file."""

from pathlib import Path

import pytest

from disque_trio.aof.disk import Disk
from disque_trio.aof.dump import dump_all
from disque_trio.aof.format import AofError
from disque_trio.aof.loader import Loader
from tests.support.node_bench import Bench


def journal_of(bench: Bench) -> bytes:
    return b"".join(bench.node.journal)


def load(data: bytes, path: Path, now: int, queue_jobs: bool = False, same: bool = False) -> Bench:
    """Return a node that has loaded ``data``: a different one from the writer, or the ``same``."""
    path.write_bytes(data)
    after = Bench() if same else Bench(seed=7)
    after.now = now
    after.node.now = now
    for _ in Loader(str(path), after.node, queue_jobs).steps():
        pass
    return after


@pytest.fixture
def before() -> Bench:
    bench = Bench()
    bench.node.journaling = True
    return bench


def test_a_job_comes_back_with_all_its_fields(before: Bench, tmp_path: Path) -> None:
    id = before.add("q", "body", "TTL", 1000, "RETRY", 20)
    after = load(journal_of(before), tmp_path / "aof", before.now)
    job = after.show(id)
    for field in (b"queue", b"body", b"ttl", b"retry", b"delay", b"ctime", b"repl"):
        assert job[field] == before.show(id)[field]
    assert after.node.memory.used > 0


def test_an_at_least_once_job_is_queued_again_after_its_retry_time(
    before: Bench, tmp_path: Path
) -> None:
    id = before.add("q", "body", "RETRY", 20)
    after = load(journal_of(before), tmp_path / "aof", before.now)
    assert after.get() is None
    after.advance(21)
    assert after.get() == id


def test_an_at_most_once_job_is_never_queued_again(before: Bench, tmp_path: Path) -> None:
    id = before.add("q", "body", "RETRY", 0)
    after = load(journal_of(before), tmp_path / "aof", before.now)
    assert after("ENQUEUE", id) == 0
    after.advance(3600)
    assert after.get() is None


def test_a_delay_goes_on_where_it_was(before: Bench, tmp_path: Path) -> None:
    late = before.add("q", "late", "DELAY", 100)
    once = before.add("q", "once", "DELAY", 100, "RETRY", 0)
    after = load(journal_of(before), tmp_path / "aof", before.now + 60_000)
    after.advance(39)
    assert after.get() is None
    after.advance(2)
    assert {after.get(), after.get()} == {late, once}


@pytest.mark.parametrize("retry", [0, 300])
def test_a_delay_may_end_while_the_node_is_down(before: Bench, tmp_path: Path, retry: int) -> None:
    path = tmp_path / "aof"
    id = before.add("q", "body", "DELAY", 100, "RETRY", retry)
    dump_all(Disk(), str(path), before.node).take_name()
    later = before.now + 1_000_000
    after = load(path.read_bytes(), path, later, queue_jobs=True, same=True)
    after.advance(1)
    assert after.get() == id
    # A node that was killed may have queued and delivered the job before.
    killed = load(path.read_bytes(), path, later, same=True)
    killed.advance(299)
    assert killed.get() is None
    killed.advance(2)
    assert killed.get() == (id if retry else None)


@pytest.mark.parametrize(("seconds", "queued"), [(105, True), (401, False)])
def test_a_delay_that_ends_while_one_of_two_holders_is_down_is_left_to_the_other_in_the_end(
    before: Bench, tmp_path: Path, seconds: int, queued: bool
) -> None:
    path = tmp_path / "aof"
    id = before.add("q", "body", "DELAY", 100, "RETRY", 300)
    dump_all(Disk(), str(path), before.node).take_name()
    # A node with another ID takes the writer of the file for a holder.
    after = load(path.read_bytes(), path, before.now + seconds * 1000, queue_jobs=True)
    after.advance(2)
    assert (after.get() == id) is queued


def test_a_delay_that_ended_before_the_node_stopped_is_no_reason_to_queue_a_job(
    before: Bench, tmp_path: Path
) -> None:
    path = tmp_path / "aof"
    ids = [before.add("q", "body", "DELAY", 10, "RETRY", retry) for retry in (0, 300)]
    before.advance(11)
    assert {before.get(), before.get()} == set(ids)
    dump_all(Disk(), str(path), before.node).take_name()
    after = load(path.read_bytes(), path, before.now, queue_jobs=True, same=True)
    after.advance(299)
    assert after.get() is None


def test_ended_and_expired_jobs_do_not_come_back(before: Bench, tmp_path: Path) -> None:
    for how in ("ACKJOB", "FASTACK", "DELJOB"):
        before(how, before.add())
    before.add("q", "short", "TTL", 10)
    after = load(journal_of(before), tmp_path / "aof", before.now + 11_000)
    assert after.node.store.jobs.count == 0


def test_a_delivered_at_most_once_job_is_forgotten_by_the_file(
    before: Bench, tmp_path: Path
) -> None:
    id = before.add("q", "x", "RETRY", 0)
    assert before.get() == id
    assert load(journal_of(before), tmp_path / "aof", before.now).node.store.jobs.count == 0


def test_a_dump_restores_the_queues_at_most_once_jobs_included(
    before: Bench, tmp_path: Path
) -> None:
    path = tmp_path / "aof"
    queued = [before.add("q", f"job {n}", "RETRY", n % 2 * 300) for n in range(100)]
    taken = [before.get() for _ in range(10)]
    delayed = before.add("q", "later", "DELAY", 50, "RETRY", 0)
    dump_all(Disk(), str(path), before.node).take_name()
    after = load(path.read_bytes(), path, before.now, queue_jobs=True)
    assert [after.get() for _ in range(90)] == queued[10:]
    assert after.get() is None
    after.advance(51)
    assert after.get() == delayed
    after.advance(300)
    again = {after.get() for _ in range(100)} - {None}
    assert again == set(queued[1::2])
    assert not again & set(taken[::2])


@pytest.mark.parametrize("cut", [1, 2, 30, 100])
def test_a_file_that_ends_inside_of_a_record_says_where(
    before: Bench, tmp_path: Path, cut: int
) -> None:
    before.add()
    whole = len(journal_of(before))
    before.add()
    with pytest.raises(AofError) as caught:
        load(journal_of(before)[:-cut], tmp_path / "aof", before.now)
    assert caught.value.truncated
    assert caught.value.offset == whole


def test_damage_in_the_middle_says_where(before: Bench, tmp_path: Path) -> None:
    before.add()
    whole = len(journal_of(before))
    before.add()
    before.add()
    data = bytearray(journal_of(before))
    data[whole + 4] ^= 0xFF
    with pytest.raises(AofError) as caught:
        load(bytes(data), tmp_path / "aof", before.now)
    assert not caught.value.truncated
    assert caught.value.offset == whole


def test_a_job_that_is_in_the_file_twice_is_there_once(before: Bench, tmp_path: Path) -> None:
    before.add()
    after = load(journal_of(before) * 2, tmp_path / "aof", before.now)
    assert after.node.store.jobs.count == 1
    after.advance(301)
    assert after.get() is not None
    assert after.get() is None
