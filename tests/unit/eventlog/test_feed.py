"""Events on their way to the process that writes them: nothing blocks, and losses are counted."""

import marshal
import os
from collections.abc import Iterator

import pytest

from disque_trio.eventlog.child import HEAD
from disque_trio.eventlog.feed import Feed
from disque_trio.eventlog.schema import Event

NOW = 1_795_290_000_123


class Pipe:
    """A pipe of 64 KiB that the test reads on demand."""

    def __init__(self) -> None:
        self.source, self.sink = os.pipe()
        os.set_blocking(self.source, False)
        os.set_blocking(self.sink, False)

    def read(self) -> bytes:
        data = b""
        try:
            while chunk := os.read(self.source, 1 << 20):
                data += chunk
        except BlockingIOError:
            pass
        return data


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.source)
    os.close(pipe.sink)


def events(*numbers: int) -> list[Event]:
    return [(NOW, "queued", b"q", "add"), *(b"D-%08d" % n for n in numbers)]


def ids(batches: list[list[Event]]) -> list[Event]:
    return [event for batch in batches for event in batch if isinstance(event, bytes)]


def batches(data: bytes) -> list[list[Event]]:
    """Return all batches that arrived; the last one must be complete."""
    found = []
    while data:
        (length,) = HEAD.unpack_from(data)
        assert len(data) >= HEAD.size + length
        found.append(marshal.loads(data[HEAD.size : HEAD.size + length]))
        data = data[HEAD.size + length :]
    return found


def test_events_arrive_in_order_in_batches(pipe: Pipe) -> None:
    feed = Feed()
    feed.add(events(1, 2), NOW)
    feed.add(events(3), NOW)
    feed.push(pipe.sink)
    assert batches(pipe.read()) == [events(1, 2), events(3)]
    assert not feed.unsent


def test_a_write_that_filled_the_pipe_continues_where_it_stopped(pipe: Pipe) -> None:
    feed = Feed()
    for start in range(0, 6000, 100):
        feed.add(events(*range(start, start + 100)), NOW)
    data = b""
    while feed.unsent:
        feed.push(pipe.sink)
        data += pipe.read()
    assert ids(batches(data)) == [b"D-%08d" % n for n in range(6000)]


def test_confirmed_events_count_as_written(pipe: Pipe) -> None:
    feed = Feed()
    feed.add(events(1, 2), NOW)
    feed.add(events(3), NOW)
    feed.push(pipe.sink)
    assert feed.written == 0
    assert feed.confirm(1, 2)
    assert feed.written == 2
    assert feed.waiting
    assert not feed.confirm(1, 2)
    assert feed.confirm(2, 3)
    assert (feed.written, feed.waiting) == (3, 0)


def test_the_next_process_gets_all_unconfirmed_events_again(pipe: Pipe) -> None:
    feed = Feed()
    for n in range(4):
        feed.add(events(n), NOW)
    feed.push(pipe.sink)
    pipe.read()
    feed.confirm(1, 1)
    big = events(*range(100, 1100))
    for _ in range(8):
        feed.add(big, NOW)
    feed.push(pipe.sink)  # the last batch only in part
    pipe.read()
    assert feed.unsent
    feed.rewind()
    data = b""
    while feed.unsent:
        feed.push(pipe.sink)
        data += pipe.read()
    assert batches(data) == [events(1), events(2), events(3), *[big] * 8]
    feed.confirm(11, 8003)
    assert (feed.written, feed.waiting) == (8004, 0)


def test_while_the_reader_hangs_memory_is_bounded_and_drops_are_counted(
    pipe: Pipe,
) -> None:
    limit = 100_000
    feed = Feed(limit)
    for start in range(0, 10_000, 10):
        feed.add(events(*range(start, start + 10)), NOW)
        feed.push(pipe.sink)
    assert limit <= feed.waiting < limit + 1000
    assert 0 < feed.dropped < 10_000
    dropped = feed.dropped
    taken = 10_000 - dropped

    data = pipe.read()
    while feed.unsent:
        feed.push(pipe.sink)
        data += pipe.read()
    assert ids(batches(data)) == [b"D-%08d" % n for n in range(taken)]

    feed.confirm(1, 10)
    feed.add(events(1), NOW)
    assert feed.dropped == dropped + 1, "it takes events again before there is room"

    feed.confirm(taken // 10, taken)
    feed.add(events(77), NOW + 5)
    feed.push(pipe.sink)
    missing = (NOW + 5, "dropped", dropped + 1)
    assert batches(pipe.read()) == [[missing], events(77)]
    feed.confirm(taken // 10 + 2, taken + 1)
    assert feed.written == taken + 1
    assert feed.waiting == 0


def test_lost_events_are_reported_even_without_a_new_one(pipe: Pipe) -> None:
    feed = Feed(1)
    feed.add(events(1), NOW)
    feed.add(events(2), NOW)
    feed.push(pipe.sink)
    feed.confirm(1, 1)
    feed.add([], NOW + 9)
    feed.push(pipe.sink)
    assert batches(pipe.read()) == [events(1), [(NOW + 9, "dropped", 1)]]


def test_abandoned_events_count_as_dropped(pipe: Pipe) -> None:
    feed = Feed()
    feed.add(events(1, 2), NOW)
    feed.push(pipe.sink)
    feed.add(events(3), NOW)
    assert feed.give_up() == 3
    assert (feed.dropped, feed.waiting, feed.unsent) == (3, 0, False)


def test_a_job_that_was_added_and_queued_counts_as_two_dropped_events() -> None:
    added = (NOW, "added", b"q", "add", b"", 0, 0)
    later = (NOW, "added", b"q", "", b"", 0, 0)
    feed = Feed(1)
    feed.add(["web-1", added, b"D-1", "web-2", b"D-2"], NOW)
    feed.add([added, b"D-3", later, b"D-4"], NOW)
    assert feed.dropped == 3
    assert feed.give_up() == 4
    assert feed.dropped == 7


def test_a_reader_that_has_ended_changes_nothing() -> None:
    pipe = Pipe()
    os.close(pipe.source)
    feed = Feed()
    feed.add(events(1), NOW)
    feed.push(pipe.sink)
    os.close(pipe.sink)
    assert feed.unsent
