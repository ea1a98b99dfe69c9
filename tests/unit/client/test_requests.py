"""How Python values become the arguments of commands."""

from datetime import datetime, timedelta, timezone

import pytest

from disque_trio.client.requests import addjob, jscan, milliseconds
from disque_trio.job_options import JobOptions


def test_a_short_time_limit_does_not_become_unlimited() -> None:
    assert milliseconds(0.0001) == 1
    assert milliseconds(-3) == 1
    assert milliseconds(1.5) == 1500


def test_all_options_of_addjob_are_sent() -> None:
    options = JobOptions(replicate=2, delay=3, retry=4, ttl=5, maxlen=6)
    assert addjob("q", b"b", 1.5, async_=True, **options) == [
        *("ADDJOB", "q", b"b", 1500, "REPLICATE", 2, "DELAY", 3),
        *("RETRY", 4, "TTL", 5, "MAXLEN", 6, "ASYNC"),
    ]


def test_zero_is_sent_and_none_is_omitted() -> None:
    command = addjob("q", "b", None, replicate=None, retry=0, ttl=None)
    assert command == ["ADDJOB", "q", "b", 0, "RETRY", 0]


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_a_timeout_of_addjob_that_is_not_positive_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="None waits forever"):
        addjob("q", "b", timeout)


def test_jscan_takes_ages_and_headers() -> None:
    found = jscan(
        {"min_age": 5, "max_age": 60, "min_returns": 2, "group": "g", "headers": {"a": "b"}}
    )
    assert found == ["MINAGE", 5, "MAXAGE", 60, "MINRETURNS", 2, "GROUP", "g", "HEADER", "a", "b"]


def test_jscan_takes_several_states() -> None:
    assert jscan({"count": 10, "queue": "q", "states": ["active", "queued"]}) == [
        *("COUNT", 10, "QUEUE", "q", "STATE", "active", "STATE", "queued")
    ]


def test_a_filter_that_jscan_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="'age'"):
        jscan({"age": 5})  # type: ignore[typeddict-unknown-key]


def test_arguments_that_c_nodes_do_not_know_come_last() -> None:
    command = addjob("q", "b", 1, replicate=2, headers={"n": "v", "m": b"\xff"}, key="k", kept=1.5)
    assert command == [
        *("ADDJOB", "q", "b", 1000, "REPLICATE", 2, "UNIQUE", "k", "FOR", 2),
        *("HEADERS", 2, "n", "v", "m", b"\xff"),
    ]


def test_headers_may_be_pairs_since_names_may_repeat() -> None:
    pairs = iter([("n", "1"), (b"n", b"2")])
    command = addjob("q", "b", None, headers=pairs)
    assert command[4:] == ["HEADERS", 2, "n", "1", b"n", b"2"]
    assert addjob("q", "b", None, headers={})[4:] == []


@pytest.mark.parametrize(
    ("delay", "sent"), [(3, 3), (3.0, 3), (0.5, "0.500"), (1.2345, "1.234"), (0, 0)]
)
def test_a_delay_may_have_decimals(delay: float, sent: int | str) -> None:
    assert addjob("q", "b", None, delay=delay)[4:] == ["DELAY", sent]


def test_a_time_is_sent_in_ms() -> None:
    when = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    for at in (when, when.timestamp()):
        assert addjob("q", "b", None, at=at)[4:] == ["AT", 1_767_261_600_000]


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        addjob("q", "b", None, at=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match="either"):
        addjob("q", "b", None, at=1.0, delay=1)


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match=r"of a job: prio; did you mean priority\?"):
        addjob("q", "b", prio=7)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown option of a job: color; there are replicate, "):
        addjob("q", "b", color="red")  # type: ignore[call-arg]
