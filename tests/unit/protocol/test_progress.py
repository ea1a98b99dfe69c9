"""The progress file: what is written is read, in pieces, up to the first bad block."""

from io import BytesIO
from struct import pack

import pytest

from disque_trio.protocol.progress import (
    BLOCK_BYTES,
    MAGIC,
    JobEnding,
    JobProgress,
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
    return b"D-%038d" % number


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
    good = MAGIC + pack_block([pack_taken([id_of(1)], 5)])
    torn = pack("<II", length, 1) + bytes(4 * MB)
    found, file = read(good + torn)
    assert found.jobs[id_of(1)].taken == 5
    assert found.cut == len(torn)
    assert file.longest < MB


@pytest.mark.parametrize("rest", [1, 7, 8, 20])
def test_half_a_block_at_the_end_is_cut(rest: int) -> None:
    block = pack_block([pack_taken([id_of(1)], 5)])
    found, _ = read(MAGIC + block + block[:rest])
    assert found.cut == rest
    assert len(found.jobs) == 1


@pytest.mark.parametrize("data", [b"", b"DISQUE", b"x" * 100])
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(ProgressError):
        read(data)
