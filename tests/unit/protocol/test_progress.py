"""The progress file: what is written is read, in pieces, up to the first bad block."""

import random
import tracemalloc
from io import BytesIO
from struct import pack

import pytest

from disque_trio.node.core.jobs.job import JobIds
from disque_trio.protocol.progress import (
    BLOCK_BYTES,
    MAGIC,
    TAKEN,
    JobEnding,
    JobProgress,
    KnownJobs,
    ProgressError,
    ProgressReader,
    pack_block,
    pack_blocks,
    pack_ending,
    pack_job,
    pack_stopped,
    pack_taken,
    pack_time,
)

MB = 1 << 20


def id_of(number: int) -> bytes:
    return b"D-%08d-%024d-0001" % (0, number)


class Watched(BytesIO):
    """Knows the longest read."""

    longest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.longest = max(self.longest, len(data))
        return data


def read(data: bytes) -> tuple[ProgressReader, Watched]:
    file = Watched(data)
    found = ProgressReader()
    found.read(file)
    return found, file


def test_many_records_are_read_in_pieces() -> None:
    jobs = [pack_job(id_of(number), JobProgress(1, 0, number, 0, 1, 2)) for number in range(50_000)]
    data = MAGIC + b"".join(pack_blocks(jobs)) + pack_block([pack_stopped(7)])
    found, file = read(data)
    assert len(found.jobs) == 50_000
    assert found.jobs[id_of(49_999)].qtime == 49_999
    assert (found.stopped_at, found.cut) == (7, 0)
    assert len(data) > 3 * MB
    assert file.longest <= BLOCK_BYTES


def test_jobs_are_noted_at_the_time_that_comes_before_them() -> None:
    jobs = [pack_job(id_of(number), JobProgress(1, 0, 9, 0, 1, 2)) for number in range(3)]
    block = pack_block([jobs[0], pack_time(5), jobs[1]]) + pack_block([jobs[2]])
    found, _ = read(MAGIC + block)
    assert [found.jobs[id_of(number)].noted for number in range(3)] == [0, 5, 5]


@pytest.mark.parametrize("expected", [0, 100_000])
def test_the_last_that_is_said_of_each_of_many_jobs_counts(expected: int) -> None:
    jobs = KnownJobs(expected)
    said: dict[bytes, JobProgress] = {}
    rng = random.Random(expected)
    ids = [JobIds(b"a" * 40, rng.randbytes).make(60, 60) for _ in range(300)]
    for _ in range(3_000):
        id = rng.choice(ids)
        if rng.random() < 0.3:
            known = said.setdefault(id, JobProgress(1, 0, 0, 0, 0, 0))
            known.state, known.taken = 1, rng.randrange(1, 9)
            jobs.take(id, known.taken)
            continue
        known = JobProgress(*[rng.randrange(1, 9) for _ in range(6)])
        if rng.random() < 0.3:
            known.reason, known.attempts = b"why", {b"a" * 8: rng.randrange(9)}
        known.noted = rng.randrange(9)
        said[id] = known
        jobs.put(id, pack_job(id, known)[5:], known.noted)
    assert (len(jobs), {*jobs}) == (len(said), {*said})
    for id, known in said.items():
        assert all_of(jobs[id]) == all_of(known)
    assert jobs.get(id_of(1)) is None


def all_of(job: JobProgress) -> tuple[object, ...]:
    numbers = (job.state, job.flags, job.qtime, job.taken, job.nacks, job.deliveries, job.noted)
    return (*numbers, job.reason, job.attempts)


def test_what_is_known_of_many_jobs_takes_little_memory() -> None:
    rng = random.Random(1)
    ids = [JobIds(b"a" * 40, rng.randbytes).make(60, 60) for _ in range(20_000)]
    records = [pack_job(id, JobProgress(1, 0, 2**40 + at, 0, 0, 0)) for at, id in enumerate(ids)]
    data = MAGIC + b"".join(pack_blocks(records))
    tracemalloc.start()
    found, _ = read(data)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.jobs) == len(ids)
    assert used - len(data) < 130 * len(ids)


def test_a_long_record_has_a_block_of_its_own() -> None:
    results = [b"x" * 3 * MB, b"y", b"z" * 2 * MB]
    records = [
        pack_ending(JobEnding(id_of(number), 1, 5, result)) for number, result in enumerate(results)
    ]
    blocks = list(pack_blocks(records))
    assert len(blocks) == 3
    found, _ = read(MAGIC + b"".join(blocks))
    assert [found.endings[id_of(number)].result for number in range(3)] == results


def test_no_records_make_no_block() -> None:
    assert list(pack_blocks([])) == []


@pytest.mark.parametrize("length", [0, 5, 3 * MB, 0xFFFFFFFF])
def test_a_block_with_a_wrong_length_is_not_read_at_once(length: int) -> None:
    good = MAGIC + pack_taken([id_of(1)], 5)
    torn = pack("<II", length, 1) + bytes(4 * MB)
    found, file = read(good + torn)
    assert found.jobs[id_of(1)].taken == 5
    assert found.cut == len(torn)
    assert file.longest < MB


@pytest.mark.parametrize("rest", [1, 7, 8, 20, 50])
@pytest.mark.parametrize(
    "block",
    [pack_taken([id_of(1)], 5), pack_block([pack_job(id_of(1), JobProgress(1, 0, 9, 5, 0, 0))])],
)
def test_half_a_block_at_the_end_is_cut(block: bytes, rest: int) -> None:
    found, _ = read(MAGIC + block + block[:rest])
    assert found.cut == rest
    assert found.jobs[id_of(1)].taken == 5
    assert len(found.jobs) == 1


def test_ids_of_jobs_that_clients_got_are_read_in_pieces() -> None:
    ids = [id_of(number) for number in range(50_000)]
    found, file = read(MAGIC + pack_taken(ids, 5) + pack_taken(ids[:1], 6))
    assert sorted(found.jobs) == ids
    assert (found.jobs[ids[0]].taken, found.jobs[ids[-1]].taken) == (6, 5)
    assert found.cut == 0
    assert file.longest < MB


@pytest.mark.parametrize("at", range(16))
def test_a_changed_head_of_a_block_of_ids_is_noticed(at: int) -> None:
    block = bytearray(pack_taken([id_of(1), id_of(2)], 5))
    block[at] ^= 1
    found, _ = read(MAGIC + block)
    assert found.cut == len(block)
    assert not found.jobs


@pytest.mark.parametrize("kept", [16, 20, 16 + 40, 16 + 75])
def test_ids_that_did_not_reach_the_disk_are_not_read(kept: int) -> None:
    block = pack_taken([id_of(number) for number in range(3)], 5)
    torn = block[:kept] + bytes(len(block) - kept) + block
    found, _ = read(MAGIC + torn)
    assert found.cut == len(torn)
    assert b"\0" not in b"".join(found.jobs)


def test_the_file_of_an_earlier_version_is_read() -> None:
    taken = pack("<BIq", TAKEN, 8 + 2 * 40, 7) + id_of(1) + id_of(2)
    data = b"DISQUE-PROGRESS-1\n" + pack_block([taken]) + pack_block([pack_stopped(3)])
    found, _ = read(data)
    assert [found.jobs[id].taken for id in found.jobs] == [7, 7]
    assert (found.stopped_at, found.cut) == (3, 0)


def test_a_delivery_after_a_stop_is_not_overlooked() -> None:
    found, _ = read(MAGIC + pack_block([pack_stopped(3)]) + pack_taken([id_of(1)], 5))
    assert found.stopped_at == -1


@pytest.mark.parametrize("data", [b"", b"DISQUE", b"x" * 100])
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(ProgressError):
        read(data)
