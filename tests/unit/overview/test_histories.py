"""What happened in the last hours, and the file that it is kept in, with a clock that the test
moves."""

import random
import zlib

import pytest

from disque_trio.log_times import quantile
from disque_trio.overview.histories import IDLE, MAGIC, Histories
from disque_trio.overview.history import RANGES, History, of_length, times_of, together
from disque_trio.overview.series import Series

NOW = 1_700_000_000.0
IDLE_SIZE = 4 * 2 * sum(round(each.seconds / each.step) for each in RANGES)
"""Bytes of a queue with nothing but a length."""


def worked(history: History, begin: float, end: float, each: float = 2.0) -> None:
    """Two jobs a second are added, ten are queued."""
    moment = begin
    while moment < end:
        moment += each
        counts = {"added": 2 * each, "acked": 0.0}
        history.add(moment, counts, {"length": 10}, since=moment - each)


def added(series: Series, now: float) -> list[float | None]:
    return [point.values[0] for point in series.points(["added"], now)]


def written(histories: Histories, now: float = NOW) -> bytes:
    return b"".join(histories.pack(now))


def test_each_range_has_all_its_points() -> None:
    history = History()
    worked(history, NOW - 90_000, NOW, 30.0)
    for each in RANGES:
        values = added(history.ranges[each.name], NOW)
        assert len(values) == round(each.seconds / each.step)
        assert set(values[:-1]) == {2.0}


def test_the_time_of_a_restart_is_a_gap_in_every_range() -> None:
    histories = Histories()
    worked(histories.cluster, NOW - 7_200, NOW - 3_000)
    again = Histories.unpack(written(histories))
    worked(again.cluster, NOW - 1_200, NOW)
    for each in RANGES:
        points = again.cluster.ranges[each.name].points(["added", "length"], NOW)
        ends = {NOW - point.start - each.step: point.values for point in points}
        gone = {values for ago, values in ends.items() if 1_200 < ago < 3_000 - each.step}
        before = {values for ago, values in ends.items() if 3_000 < ago < 3_500}
        after = {values for ago, values in ends.items() if 0 < ago < 1_200 - each.step}
        assert gone == {(None, None)}
        assert before == after == {(2.0, 10.0)}


def test_how_long_jobs_took_is_known_for_a_step_and_for_a_range() -> None:
    history = History()
    for ago, counts in ((50.0, [0, 0, 0, 8]), (5.0, [0, 0, 0, 0, 0, 0, 2])):
        history.add(NOW - ago, of_length("wait", counts), {}, since=NOW - ago - 1)
    steps = times_of(history.ranges["1h"], "wait", NOW)
    assert [sum(step) for step in steps if any(step)] == [8, 2]
    assert together(steps) == [0, 0, 0, 8, 0, 0, 2]
    assert quantile(together(steps), 0.5) == pytest.approx(6.5)
    assert times_of(history.ranges["1h"], "processing", NOW) == []


def test_a_queue_in_which_nothing_happens_has_no_history() -> None:
    histories = Histories()
    histories.note("q", NOW, {"added": 0}, {"length": 0}, NOW - 2)
    assert histories.get("q") is None
    histories.note("q", NOW, {"added": 0}, {"length": 1}, NOW - 2)
    assert histories.get("q") is not None


def filled(histories: Histories, count: int, now: float = NOW) -> None:
    for number in range(count):
        histories.note(f"q{number}", now + number / 1000, {}, {"length": 1}, None)


def test_when_there_is_no_room_a_queue_gets_none_until_another_one_is_idle() -> None:
    histories = Histories(most=10 * IDLE_SIZE)
    filled(histories, 50)
    assert len(histories) == 9
    assert histories.full
    assert histories.get("q9") is None
    later = NOW + IDLE + 1
    histories.note("q0", later - 5, {}, {"length": 2}, None)
    histories.note("q9", later, {}, {"length": 1}, None)
    assert histories.get("q9") is not None
    assert histories.get("q0") is not None
    assert histories.get("q1") is None


def test_a_queue_at_which_somebody_looks_gets_the_room_of_the_one_of_least_interest() -> None:
    histories = Histories(most=10 * IDLE_SIZE)
    filled(histories, 9)
    for name in ("x", "y", "z"):
        histories.look(name, NOW + 10)
        histories.note(name, NOW + 10, {}, {"length": 1}, None)
    assert all(histories.get(name) for name in ("x", "y", "z"))
    assert histories.get("q0") is None
    assert histories.get("q8") is not None


def test_histories_never_take_more_room_than_they_may() -> None:
    histories = Histories(most=20 * IDLE_SIZE)
    filled(histories, 18)
    for second in range(200):
        for number in range(18):
            times = {f"wait:{second % 20}": 1}
            histories.note(f"q{number}", NOW + second, times, {}, NOW + second - 1)
    names = [name for name in map("q{}".format, range(18)) if histories.get(name)]
    sizes = [history.size for history in map(histories.get, names) if history is not None]
    assert len(histories) == len(names) > 0
    assert sum(sizes) <= 20 * IDLE_SIZE


def test_what_is_older_than_a_day_is_dropped() -> None:
    histories = Histories()
    filled(histories, 2)
    histories.note("q1", NOW + 80_000, {}, {"length": 1}, None)
    histories.drop_old(NOW + 90_000)
    assert histories.get("q0") is None
    assert histories.get("q1") is not None


def test_a_file_has_all_queues_whatever_their_names() -> None:
    histories = Histories()
    histories.nodes = frozenset({"a" * 40})
    for name in ("q", "ü", "\udc80\udcff", 'x"\n', ""):
        histories.note(name, NOW, {"added": 2}, {"length": 1}, NOW - 1)
    again = Histories.unpack(written(histories))
    assert again.nodes == histories.nodes
    assert len(again) == 5
    for name in ("q", "ü", "\udc80\udcff", 'x"\n', ""):
        before, after = histories.get(name), again.get(name)
        assert before is not None
        assert after is not None
        assert before.changed == after.changed
        assert before.pack() == after.pack()


def test_a_file_that_is_larger_than_may_be_kept_is_read_in_part() -> None:
    histories = Histories()
    filled(histories, 30)
    again = Histories.unpack(written(histories), most=10 * IDLE_SIZE)
    assert 0 < len(again) <= 10


def test_a_file_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="release"):
        Histories.unpack(b"disque-console charts 0 little\n")
    with pytest.raises(ValueError, match="release"):
        Histories.unpack(b"")


def test_a_file_that_ends_too_early_is_refused_wherever_it_does() -> None:
    histories = Histories()
    filled(histories, 3)
    data = written(histories)
    for end in range(len(MAGIC), len(data)):
        with pytest.raises(ValueError, match="it"):
            Histories.unpack(data[:end])


def test_a_damaged_file_is_refused_and_nothing_worse() -> None:
    histories = Histories()
    filled(histories, 3)
    data = written(histories)
    dice = random.Random(5)
    for _ in range(300):
        broken = bytearray(data)
        broken[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        with pytest.raises(ValueError, match="it"):
            Histories.unpack(bytes(broken))


@pytest.mark.parametrize(
    "words",
    [
        b"[]",
        b"{}",
        b'{"nodes": 5, "queues": 0}',
        b'{"nodes": [], "queues": 0, "ranges": [{"count": 1e9, "names": []}]}',
        b'{"nodes": [], "queues": 0, "ranges": 7}',
        b'{"nodes": [], "queues": "x"}',
        b"\xff",
    ],
)
def test_a_file_with_right_checksums_but_wrong_words_is_refused(words: bytes) -> None:
    part = zlib.compress(len(words).to_bytes(4, "big") + words)
    frame = len(part).to_bytes(4, "big") + zlib.crc32(part).to_bytes(4, "big") + part
    with pytest.raises(ValueError, match="damaged"):
        Histories.unpack(MAGIC + frame + frame)
