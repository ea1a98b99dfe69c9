"""How Python values become the arguments of commands."""

import pytest

from disque_trio.client.requests import addjob, jscan, milliseconds


def test_a_short_time_limit_does_not_become_for_ever() -> None:
    assert milliseconds(0.0001) == 1
    assert milliseconds(-3) == 1
    assert milliseconds(1.5) == 1500


def test_all_options_of_addjob_are_sent() -> None:
    assert addjob("q", b"b", 1.5, 2, 3, 4, 5, 6, True) == [
        *("ADDJOB", "q", b"b", 1500, "REPLICATE", 2, "DELAY", 3),
        *("RETRY", 4, "TTL", 5, "MAXLEN", 6, "ASYNC"),
    ]


def test_zero_is_a_value_of_an_option_and_none_is_none() -> None:
    command = addjob("q", "b", None, None, None, 0, None, None, False)
    assert command == ["ADDJOB", "q", "b", 0, "RETRY", 0]


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_a_timeout_of_addjob_that_is_not_positive_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="None waits for ever"):
        addjob("q", "b", timeout, None, None, None, None, None, False)


def test_jscan_takes_several_states() -> None:
    assert jscan(10, "q", ["active", "queued"]) == [
        *("COUNT", 10, "QUEUE", "q", "STATE", "active", "STATE", "queued")
    ]
