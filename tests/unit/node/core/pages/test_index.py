"""The index finds jobs by their ids, and forgets those that are gone."""

import random
from zlib import crc32

from disque_trio.node.core.jobs.job import JobIds
from disque_trio.node.core.pages.index import SegmentIndex
from disque_trio.node.core.pages.segment import Segment


def some_ids(count: int) -> list[bytes]:
    ids = JobIds(b"a" * 40, random.Random(1).randbytes)
    return [ids.make(86_400, 300) for _ in range(count)]


def filled(ids: list[bytes]) -> tuple[SegmentIndex, Segment]:
    segment = Segment(1, 0, b"q", 0, 0)
    segment.offsets.extend(range(len(ids)))
    segment.bits = bytearray(b"\xff" * (len(ids) + 7 >> 3))
    index = SegmentIndex()
    index.slots.append(segment)
    index.add_all(ids, [crc32(id) for id in ids], 0)
    return index, segment


def end(segment: Segment, *places: int) -> None:
    for place in places:
        segment.take(place)


def test_each_job_is_found_where_it_is() -> None:
    ids = some_ids(2_000)
    index, segment = filled(ids[:1_000])
    end(segment, 7)
    assert [index.find(id) for id in ids[:7]] == [[place] for place in range(7)]
    assert index.find(ids[7]) == []
    assert not any(index.find(id) for id in ids[1_000:])


def test_a_scan_returns_each_job_once_in_steps() -> None:
    ids = some_ids(3_000)
    index, segment = filled(ids)
    end(segment, *range(0, 3_000, 3))
    found: list[int] = []
    cursor = 0
    while cursor < 1 << 32:
        cursor, places = index.scan(cursor, 1 << 32, 100)
        assert len(places) < 200
        found += places
    assert sorted(found) == [place for place in range(3_000) if place % 3]


def test_what_is_gone_is_swept_out_and_takes_no_memory() -> None:
    ids = some_ids(3_000)
    index, segment = filled(ids)
    full = index.taken
    end(segment, *range(2_900))
    for _ in range(100):
        index.sweep(3_000)
    assert index.passes
    assert index.entries == 100
    assert index.taken < full
    assert [index.find(id) for id in ids[2_900:]] == [[place] for place in range(2_900, 3_000)]
