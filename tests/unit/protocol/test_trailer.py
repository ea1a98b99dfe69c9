"""Trailers round-trip; invalid ones are refused; unknown fields are kept."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.protocol.fields import pack_fields, pack_number, pack_texts
from disque_trio.protocol.serialjob import SerialJobError
from disque_trio.protocol.trailer import Trailer, split_body
from tests.support.trailers import full_trailer, trailers

ID = bytes(40)


def tail(fields: bytes, version: int = 1, length: int | None = None) -> bytes:
    return fields + struct.pack("<IB", len(fields) if length is None else length, version)


def seen(trailer: Trailer) -> object:
    """Return all fields of a trailer."""
    letter, ending = trailer.letter, trailer.ending
    return (
        trailer.headers,
        trailer.group,
        trailer.note,
        trailer.key,
        trailer.key_until,
        trailer.key_state,
        trailer.updated,
        letter and letter.pack(),
        trailer.reason,
        trailer.attempts,
        ending and ending.pack(),
        trailer.unknown,
        trailer.whole,
    )


@given(trailers(), st.binary(max_size=50))
def test_a_trailer_comes_out_as_it_went_in(trailer: Trailer, body: bytes) -> None:
    found_body, found = split_body(body + trailer.pack())
    assert found_body == body
    assert seen(found) == seen(trailer)
    assert found.pack() == trailer.pack()


def test_clients_can_read_the_sum_of_all_deliveries() -> None:
    trailer = full_trailer()
    trailer.attempts = {b"%08d" % node: 2**64 - 1 for node in range(1000)}
    assert trailer.letter is not None
    trailer.letter.attempts = 2**64 - 1
    _, found = split_body(trailer.pack())
    assert 2**32 <= sum(found.attempts.values()) < 2**63
    assert found.letter is not None
    assert found.letter.attempts < 2**63


def test_a_trailer_without_anything_is_five_bytes() -> None:
    assert Trailer().pack() == b"\0\0\0\0\1"
    assert split_body(b"body\0\0\0\0\1")[0] == b"body"


def test_a_trailer_of_100_kilobytes_comes_out_as_it_went_in() -> None:
    trailer = Trailer()
    trailer.headers = [b"n", b"x" * 100_000]
    assert split_body(trailer.pack())[1].headers == trailer.headers


@given(st.binary(max_size=50), st.integers(2, 255), st.binary(max_size=20))
def test_a_trailer_of_a_later_version_is_carried_on_byte_for_byte(
    fields: bytes, version: int, body: bytes
) -> None:
    data = tail(fields, version)
    found_body, found = split_body(body + data)
    assert found_body == body
    assert found.pack() == data
    assert found.headers == []


@given(st.lists(st.tuples(st.integers(13, 255), st.binary(max_size=30)), max_size=5))
def test_unknown_fields_are_carried_on_byte_for_byte(fields: list[tuple[int, bytes]]) -> None:
    data = tail(pack_fields(fields))
    assert split_body(data)[1].pack() == data


def test_of_a_field_that_stands_there_twice_the_last_counts() -> None:
    assert split_body(tail(pack_fields([(6, b"old"), (6, b"new")])))[1].reason == b"new"


LIES = {
    "nothing": b"",
    "four bytes": b"\0\0\0\1",
    "version 0": b"\0\0\0\0\0",
    "one byte too long": tail(b"", length=1),
    "as long as can be": tail(b"", length=2**32 - 1),
    "a later version that is too long": tail(b"", 2, 1),
    "a field without an end": tail(b"\1\xff\xff\xff\xff"),
    "half a head": tail(b"\1\0\0"),
    "a header without a value": tail(pack_fields([(1, pack_texts([b"name"]))])),
    "headers that go past the end": tail(pack_fields([(1, b"\xff\0\0\0")])),
    "a short number": tail(pack_fields([(3, b"1234567")])),
    "a long number": tail(pack_fields([(4, bytes(9))])),
    "a letter of nothing": tail(pack_fields([(5, b"")])),
    "a letter with a short id": tail(pack_fields([(5, pack_texts([b"D-", b"q", bytes(16), b""]))])),
    "a letter of an unknown cause": tail(
        pack_fields([(5, pack_texts([ID, b"q", pack_number(5) + bytes(8), b""]))])
    ),
    "a letter of no cause": tail(pack_fields([(5, pack_texts([ID, b"q", bytes(16), b""]))])),
    "attempts of 15 bytes": tail(pack_fields([(7, bytes(15))])),
    "an ending of nothing": tail(pack_fields([(8, b"")])),
    "an unknown ending": tail(
        pack_fields([(8, pack_texts([pack_number(9) + bytes(8), b"", b"", b""]))])
    ),
    "a death without a letter": tail(
        pack_fields([(8, pack_texts([pack_number(2) + bytes(8), b"", b"", b""]))])
    ),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_inconsistent_trailers_are_refused(lie: bytes) -> None:
    with pytest.raises(SerialJobError):
        split_body(lie)


@given(st.integers(0, 400), st.integers(0, 255), st.binary(max_size=10))
def test_a_changed_or_cut_trailer_is_read_or_refused(at: int, byte: int, body: bytes) -> None:
    data = body + full_trailer().pack()
    at %= len(data)
    for changed in (data[:at], data[:at] + bytes([byte]) + data[at + 1 :], data[at:]):
        try:
            found_body, found = split_body(changed)
        except SerialJobError:
            continue
        again_body, again = split_body(found_body + found.pack())
        assert (again_body, seen(again)) == (found_body, seen(found))
