"""How Python values become the arguments of commands."""

import pytest

from disque_trio.client.connection import encode_command
from disque_trio.client.requests import addjob, jscan, milliseconds


def test_arguments_are_sent_as_bytes_text_and_numbers() -> None:
    encoded = encode_command(["X", b"\x00\r\n", "é", 12, memoryview(b"mv"), bytearray(b"ba")])
    assert encoded == (
        b"*6\r\n$1\r\nX\r\n$3\r\n\x00\r\n\r\n$2\r\n\xc3\xa9\r\n$2\r\n12\r\n$2\r\nmv\r\n$2\r\nba\r\n"
    )


@pytest.mark.parametrize("bad", [None, 1.5, True, ["x"]])
def test_other_arguments_are_refused(bad: object) -> None:
    with pytest.raises(TypeError):
        encode_command(["X", bad])  # type: ignore[list-item]


def test_a_command_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name"):
        encode_command([])


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
