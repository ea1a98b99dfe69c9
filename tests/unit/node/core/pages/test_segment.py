"""A record is only taken for what was written, where it was written."""

import pytest

from disque_trio.node.core.jobs.job import FLAG_QUEUED_BEFORE, QUEUED, Job
from disque_trio.node.core.pages.segment import QTIME, DamagedError, Segment, SegmentLines
from disque_trio.node.core.queues.columns import Columns


def job(number: int, body: bytes = b"body") -> Job:
    one = Job(b"D-aaaaaaaa-%024d-05a1" % number, b"q", body, 1, 1000 + number, 2_000_000, 0, 300)
    one.qtime = 5_000 + number
    one.state = QUEUED
    return one


def segment(number: int, jobs: list[Job]) -> tuple[Segment, bytes]:
    found = Segment(number, number * 4096, b"q", 0, 0)
    columns = Columns()
    for one in jobs:
        columns.add(one, FLAG_QUEUED_BEFORE, one.body or b"")
    return found, columns.fill(found)


def several(number: int, count: int) -> tuple[Segment, bytes]:
    return segment(number, [job(place, b"x" * place) for place in range(count)])


def test_what_was_written_is_read() -> None:
    one, data = several(1, 40)
    found = one.read(data, 3)
    assert found.number(0, QTIME) == 5_003
    read = found.job(0, b"q")
    assert (read.id, read.body, read.ctime, read.etime) == (job(3).id, b"xxx", 1003, 2_000_000)
    assert (read.state, read.flags, read.repl, read.retry) == (QUEUED, FLAG_QUEUED_BEFORE, 1, 300)
    assert one.body_size(3) == 3
    every = one.read_all(data)
    assert every.ids == [job(place).id for place in range(40)]
    assert every.wholes == [b"x" * place for place in range(40)]
    for place in range(40):
        part = b"".join([data[start:end] for start, end in one.parts(place)])
        assert one.read_part(part, place).job(0, b"q").body == b"x" * place


def test_large_jobs_are_read_alone() -> None:
    one, data = segment(1, [job(place, b"%d" % place * 5_000) for place in range(9)])
    part = one.part(data, 7)
    assert len(part) < 6_000
    assert one.read_part(part, 7).wholes == [b"7" * 5_000]


def test_jobs_may_differ_in_all_numbers() -> None:
    jobs = [job(place) for place in range(9)]
    for at, one in enumerate(jobs[1:], 1):
        field = ("etime", "repl", "retry", "nacks", "delay", "deliveries", "state", "ctime")[at - 1]
        setattr(one, field, 2 if field == "state" else 65_000)
    one, data = segment(1, jobs)
    every = one.read_all(data)
    for at, written in enumerate(jobs):
        read = every.job(at, b"q")
        for field in ("etime", "repl", "retry", "nacks", "delay", "deliveries", "state", "ctime"):
            assert getattr(read, field) == getattr(written, field)


def test_each_flipped_bit_is_found() -> None:
    one, data = several(1, 2)
    for start, end in one.parts(1):
        for bit in range(8 * start, 8 * end):
            damaged = bytearray(data)
            damaged[bit >> 3] ^= 1 << (bit & 7)
            with pytest.raises(DamagedError):
                one.read(bytes(damaged), 1)
            with pytest.raises(DamagedError):
                one.read_all(bytes(damaged))


def test_the_file_of_another_segment_and_other_places_are_refused() -> None:
    one, data = segment(1, [job(place) for place in range(64)])
    _, other = segment(2, [job(place) for place in range(64)])
    with pytest.raises(DamagedError):
        one.read(other, 2)
    with pytest.raises(DamagedError):
        one.read_all(other)
    with pytest.raises(DamagedError):
        one.read_part(one.part(data, 2), 34)
    for size in range(100, 104):  # some end in the middle of a number, where this one's end
        _, longer = segment(2, [job(place, b"x" * size) for place in range(65)])
        with pytest.raises(DamagedError):
            one.read_all(longer)


@pytest.mark.parametrize("missing", [1, 60, 500])
def test_a_file_that_was_cut_is_refused(missing: int) -> None:
    one, data = several(1, 3)
    with pytest.raises(DamagedError):
        one.read_all(data[:-missing])
    with pytest.raises(DamagedError):
        one.read(data[: -missing - 8], 2)


def test_the_next_segment_is_the_first_of_the_most_urgent_ones() -> None:
    lines = SegmentLines(b"q", {}, {}, lambda: None)
    for number, urgency, ctime in ((1, 0, 5), (2, 16, 9), (3, 16, 7), (4, 0, 1)):
        one = Segment(number, 0, b"q", urgency, 0)
        one.ctime = ctime
        one.live = 1
        lines.add(one)
    assert [one.number for one in lines.all()] == [3, 2, 4, 1]
    assert lines.live == 4
    while (first := lines.first()) is not None:
        lines.remove(first)
    assert lines.live == 0
