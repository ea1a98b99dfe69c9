"""A record is only taken for what was written, where it was written."""

import pytest

from disque_trio.node.core.pages.segment import (
    HEAD_SIZE,
    DamagedError,
    Segment,
    SegmentLines,
    pack_head,
)
from disque_trio.protocol.serialjob import JobWriter

NODE = b"a" * 40


def job(number: int, body: bytes = b"body") -> bytes:
    id = b"D-aaaaaaaa-%024d-05a1" % number
    return JobWriter().encode(id, 2, 3, 1, 2_000_000, 1000 + number, 0, 300, 0, 0, b"q", body, NODE)


def segment(number: int, count: int) -> tuple[Segment, bytes]:
    found = Segment(number, number * 4096, b"q", 0, len(job(0)) - 4 + HEAD_SIZE)
    data = b""
    for place in range(count):
        one = job(place, b"x" * place)
        data += pack_head(found.seed, place, 5_000 + place, 1 << place, one) + one
        found.offsets.append(len(data))
    found.live = count
    found.bits = bytearray(b"\xff" * (count + 7 >> 3))
    return found, data


def test_what_was_written_is_read() -> None:
    one, data = segment(1, 10)
    qtime, found = one.read(data, 0, 3)
    assert (qtime, found.body, found.ctime) == (5_003, b"xxx", 1003)
    assert one.body_size(3) == 3
    assert one.read_all(data)[3] == (5_003, 8, job(3, b"xxx"))
    start = one.offsets[4]
    assert one.read(data[start : one.offsets[5]], start, 4)[1].body == b"xxxx"


def test_each_flipped_bit_is_found() -> None:
    one, data = segment(1, 2)
    for bit in range(8 * one.offsets[1], 8 * one.offsets[2]):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(DamagedError):
            one.read(bytes(damaged), 0, 1)


def test_the_file_of_another_segment_and_other_places_are_refused() -> None:
    one, _ = segment(1, 4)
    _, other = segment(2, 4)
    with pytest.raises(DamagedError):
        one.read(other, 0, 2)


@pytest.mark.parametrize("missing", [1, 60, 500])
def test_a_file_that_was_cut_is_refused(missing: int) -> None:
    one, data = segment(1, 3)
    with pytest.raises(DamagedError):
        one.read(data[:-missing], 0, 2)


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
