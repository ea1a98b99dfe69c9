"""When schedules tick."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.shared.cron_times import Times, times_of
from disque_trio.node.core.shared.versions import SharedError

BERLIN = b"Europe/Berlin"


def ms(text: str, zone: str = "UTC") -> int:
    """Return a time of day in ms since the epoch."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000


def utc(time: int) -> str:
    return datetime.fromtimestamp(time // 1000, UTC).isoformat(" ", "minutes")[:16]


def ticks(spec: bytes, zone: bytes, start: str, count: int) -> list[str]:
    """Return the next ticks, in UTC."""
    times = Times(spec, zone)
    found = []
    time = ms(start)
    for _ in range(count):
        time = times.next(time)
        found.append(utc(time))
    return found


def test_schedules_with_the_same_times_share_them() -> None:
    times = times_of(b"* * * * *", b"")
    assert times_of(b"* * * * *", b"") is times
    assert times_of(b"* * * * *", BERLIN) is not times
    assert [times.next(after) for after in (0, 0, 60_000, 1, 0)] == [60_000, 60_000, 120_000] + [
        60_000
    ] * 2


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (b"*/20 * * * *", ["2026-03-01 00:20", "2026-03-01 00:40"]),
        (b" 5  4 * * sun ", ["2026-03-01 04:05", "2026-03-08 04:05"]),
        (b"0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        (b"0 12 1 jan,jul *", ["2026-07-01 12:00", "2027-01-01 12:00"]),
        (b"0 0 l * *", ["2026-03-31 00:00", "2026-04-30 00:00"]),
        (b"0 9 * * mon#1", ["2026-03-02 09:00", "2026-04-06 09:00"]),
        (b"0 3 * * mon-fri", ["2026-03-02 03:00", "2026-03-03 03:00"]),
        (b"@hourly", ["2026-03-01 01:00", "2026-03-01 02:00"]),
        (b"@Daily", ["2026-03-02 00:00", "2026-03-03 00:00"]),
        (b"@weekly", ["2026-03-08 00:00", "2026-03-15 00:00"]),
        (b"@monthly", ["2026-04-01 00:00", "2026-05-01 00:00"]),
        (b"@yearly", ["2027-01-01 00:00", "2028-01-01 00:00"]),
        (b"@every 1h30m", ["2026-03-01 01:30", "2026-03-01 03:00"]),
        (b"@EVERY 1d", ["2026-03-02 00:00", "2026-03-03 00:00"]),
    ],
)
def test_what_the_times_mean(spec: bytes, expected: list[str]) -> None:
    assert ticks(spec, b"", "2026-03-01 00:00", 2) == expected


def test_the_fields_are_of_the_time_zone() -> None:
    assert ticks(b"0 3 * * *", BERLIN, "2026-01-01", 1) == ["2026-01-01 02:00"]
    assert ticks(b"0 3 * * *", BERLIN, "2026-07-01", 1) == ["2026-07-01 01:00"]


def test_an_hour_that_is_left_out_moves_a_tick_behind_it() -> None:
    found = ticks(b"30 2 * * *", BERLIN, "2026-03-28 12:00", 2)
    assert found == ["2026-03-29 01:00", "2026-03-30 00:30"]


def test_a_field_that_begins_with_a_star_goes_by_the_hours_that_there_are() -> None:
    assert ticks(b"*/20 2 * * *", BERLIN, "2026-03-28 12:00", 1) == ["2026-03-30 00:00"]
    found = ticks(b"*/20 2 * * *", BERLIN, "2026-10-24 12:00", 7)
    assert found[0] == "2026-10-25 00:00"
    assert found[5:] == ["2026-10-25 01:40", "2026-10-26 01:00"]


def test_in_an_hour_that_comes_twice_a_time_of_day_comes_once() -> None:
    found = ticks(b"30 2 * * *", BERLIN, "2026-10-24 12:00", 2)
    assert found == ["2026-10-25 00:30", "2026-10-26 01:30"]


def test_what_ticks_all_day_ticks_in_both_hours() -> None:
    found = ticks(b"*/30 * * * *", BERLIN, "2026-10-25 00:00", 4)
    assert found == [f"2026-10-25 {time}" for time in ("00:30", "01:00", "01:30", "02:00")]


@pytest.mark.parametrize("spec", [b"30 2 * * *", b"15 * * * *", b"*/7 2,3 * * *"])
def test_ticks_go_on_from_any_moment_of_an_hour_that_comes_twice(spec: bytes) -> None:
    times = Times(spec, BERLIN)
    for minute in range(0, 240, 7):
        time = ms("2026-10-24 23:00") + minute * 60_000
        for _ in range(5):
            later = times.next(time)
            assert later > time
            time = later


def test_seconds_since_the_epoch_make_the_ticks_of_a_period() -> None:
    times = Times(b"@every 7s", b"")
    assert times.next(0) == 7_000
    assert times.next(7_000) == 14_000
    assert times.next(13_999) == 14_000


@pytest.mark.parametrize(
    "spec",
    [
        b"", b"*", b"* * * *", b"* * * * * *", b"60 * * * *", b"* * 32 * *", b"a b c d e",
        b"0 0 30 2 *", b"@never", b"@every", b"@every ", b"@every 0s", b"@every 5", b"@every -5s",
        b"@every 1.5s", b"@every 367d", b"@every 99999999999s", b"\xff * * * *", b"*/0 * * * *",
        b"* " * 200, b"1-0 * * * *", b"@reboot",
    ],
)  # fmt: skip
def test_times_that_make_no_sense_are_refused(spec: bytes) -> None:
    with pytest.raises(SharedError, match=r"@every|times"):
        Times(spec, b"")


@pytest.mark.parametrize(
    "zone", [b"Mars", b"Europe", b"../../etc/passwd", b"/etc/localtime", b"\xff", b"x" * 99, b"\0"]
)
def test_a_zone_that_is_not_known_is_refused(zone: bytes) -> None:
    with pytest.raises(SharedError, match="there is no time zone"):
        Times(b"* * * * *", zone)


def test_a_time_that_never_comes_has_no_next_one() -> None:
    assert Times(b"0 0 29 2 *", b"").next(ms("9999-03-01")) == 0


@given(
    st.sampled_from([b"* * * * *", b"7 * * * *", b"0 3 * * *", b"0 0 1 * *", b"@every 45m"]),
    st.sampled_from([b"", BERLIN]),
    st.integers(0, 400 * 24 * 60),
    st.integers(0, 3 * 24 * 60),
)
def test_the_last_tick_is_the_one_that_counting_finds(
    spec: bytes, zone: bytes, start: int, length: int
) -> None:
    times = Times(spec, zone)
    after = ms("2026-01-01") + start * 60_000
    until = after + length * 60_000
    expected = 0
    time = times.next(after)
    while time <= until:
        expected = time
        time = times.next(time)
    assert times.last(after, until) == expected


def test_the_last_tick_of_years_is_found_in_a_few_looks() -> None:
    times = Times(b"* * * * *", b"")
    looks: list[str] = []
    real = times._sim

    def counting(fields: str, start: datetime) -> object:
        looks.append(fields)
        return real(fields, start)

    times._sim = counting
    until = ms("2026-01-01") + int(timedelta(days=3650).total_seconds()) * 1000
    assert times.last(ms("2026-01-01"), until) == until
    assert len(looks) < 100
