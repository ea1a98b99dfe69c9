"""What is cut quickly is what the careful parser gives."""

import os
import random
from collections.abc import Callable, Iterator

import pytest

from disque_trio.resp.plain import PLAIN_LINE, cut_plain, scan
from disque_trio.resp.request import MAX_BULK, RequestParser
from tests.support.careful_parser import CarefulParser

INPUTS = int(os.environ.get("REQUEST_INPUTS", 100_000))
BLOCKS = 4

# What requests consist of, and what they nearly consist of.
TOKENS = [
    b"*", b"$", b"\r\n", b"\r\n", b"\r", b"\n", b"-1", b"+1", b"0", b"1", b"2", b"3", b"9", b"01",
    b"0000000001", b"00000000001", b"9999999999", b"1048577", b"536870913", b" ", b"'", b'"', b"a",
    b"*1\r\n", b"*2\r\n", b"*0\r\n", b"*-1\r\n", b"*01\r\n", b"$1\r\na\r\n", b"$0\r\n\r\n",
    b"$2\r\n\r\n\r\n", b"$4\r\nPING\r\n", b"$4\r\nPINGxx", b"$12\r\n0123456789ab\r\n", b":0\r\n",
    b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$4\r\nECHO\r\n$1\r\n*\r\n", b"%1\r\n", b"+a\r\n", b"PING\r\n",
    b"x" * 600, b"$600\r\n" + b"*" * 600 + b"\r\n",
]  # fmt: skip

Requests = list[list[bytes]]


def inputs(seed: int, count: int) -> Iterator[tuple[bytes, int]]:
    """Bytes, and a place to cut them at."""
    rng = random.Random(seed)
    for _ in range(count):
        data = b"".join(rng.choices(TOKENS, k=int(rng.random() * 9) + 1))
        if rng.random() < 0.5:
            data = b"*1\r\n$4\r\nPING\r\n" + data
        yield data, int(rng.random() * len(data))


def carefully(data: bytes, trusted: bool = True) -> tuple[Requests, str | None]:
    parser = CarefulParser(trusted=trusted)
    return parser.feed(data), parser.error


@pytest.mark.parametrize("block", range(BLOCKS))
def test_requests_and_errors_are_those_of_the_careful_parser(block: int) -> None:
    for data, place in inputs(block, INPUTS // BLOCKS):
        expected = carefully(data)
        parser = RequestParser()
        found = parser.feed(data[:place]) if place else []
        found += parser.feed(data[place:])
        assert (found, parser.error) == expected, (data, place)
        # The pass over the bytes is what only the compiled parser uses.
        found = []
        end = scan(data, 0, MAX_BULK, found)
        rest, error = carefully(data[end:])
        assert (found + rest, error) == expected, data


@pytest.mark.parametrize("cut", [cut_plain, scan])
@pytest.mark.parametrize(
    "data",
    [
        b"*0\r\n",
        b"*-1\r\n",
        b"*1048577\r\n$1\r\na\r\n",
        b"*\r\n",
        b"*1\r\n$\r\n\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$5\r\nabcd\r\n",
        b"*1\n$1\na\n",
        b"*1\r\n:1\r\n",
        b"PING\r\n",
        b"*1\r\n$4\r\nPING\r",
    ],
)
def test_what_is_not_plain_or_not_whole_is_left(
    cut: Callable[[bytes, int, int, Requests], int], data: bytes
) -> None:
    requests: Requests = []
    assert cut(data, 0, MAX_BULK, requests) == 0
    assert not requests


def test_a_scan_ends_where_a_request_is_not_whole() -> None:
    requests: Requests = []
    whole = b"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n"
    assert scan(whole * 2 + whole[:-1], 0, MAX_BULK, requests) == 2 * len(whole)
    assert requests == [[b"ECHO", b"a\r\n"]] * 2


def test_lines_are_plain_up_to_their_longest_length() -> None:
    longest = b"*" + b"0" * (PLAIN_LINE - 2) + b"1\r\n$1\r\na\r\n"
    requests: Requests = []
    assert scan(longest, 0, MAX_BULK, requests) == len(longest)
    assert scan(longest.replace(b"*", b"*0"), 0, MAX_BULK, requests) == 0
    assert requests == [[b"a"]]
