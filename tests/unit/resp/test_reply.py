"""Replies, parsed as clients parse them."""

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.resp.reply import (
    NULL_ARRAY,
    Simple,
    Text,
    Value,
    bulk,
    encode,
    error,
    integer,
    null,
    null_array,
)


def read(data: bytes) -> object:
    reader = hiredis.Reader()
    reader.feed(data)
    reply = reader.gets()
    assert reply is not False, data
    assert not reader.has_data()
    return reply


words = st.binary(max_size=30)
leaves = st.one_of(
    words,
    st.integers(-(2**63), 2**63 - 1),
    st.none(),
    st.just(NULL_ARRAY),
    words.map(Text),
    st.from_regex(rb"[^\r\n]{0,20}", fullmatch=True).map(Simple),
)
# hiredis reads at most nine levels.
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=3)),
    max_leaves=12,
)


def expected(value: Value, resp: int) -> object:
    if isinstance(value, (Simple, Text)):
        return value.text
    if isinstance(value, list):
        return [expected(item, resp) for item in value]
    if isinstance(value, dict):
        if resp == 3:
            return {key: expected(item, resp) for key, item in value.items()}
        return [part for key, item in value.items() for part in (key, expected(item, resp))]
    if isinstance(value, (bytes, int)):
        return value
    return None


@pytest.mark.parametrize("resp", [2, 3])
@given(value=values)
def test_clients_read_back_what_was_encoded(resp: int, value: Value) -> None:
    assert read(encode(value, resp)) == expected(value, resp)


@pytest.mark.parametrize(
    ("value", "resp2", "resp3"),
    [
        (b"ab", b"$2\r\nab\r\n", b"$2\r\nab\r\n"),
        (b"", b"$0\r\n\r\n", b"$0\r\n\r\n"),
        (-5, b":-5\r\n", b":-5\r\n"),
        (Simple(b"OK"), b"+OK\r\n", b"+OK\r\n"),
        (Text(b"ab"), b"$2\r\nab\r\n", b"=6\r\ntxt:ab\r\n"),
        (None, b"$-1\r\n", b"_\r\n"),
        (NULL_ARRAY, b"*-1\r\n", b"_\r\n"),
        ([], b"*0\r\n", b"*0\r\n"),
        ([1, [b"a"]], b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n"),
        ({}, b"*0\r\n", b"%0\r\n"),
        ({b"a": 1}, b"*2\r\n$1\r\na\r\n:1\r\n", b"%1\r\n$1\r\na\r\n:1\r\n"),
    ],
)
def test_the_bytes_of_each_kind(value: Value, resp2: bytes, resp3: bytes) -> None:
    assert encode(value) == encode(value, 2) == resp2
    assert encode(value, 3) == resp3


def test_the_short_forms_agree_with_encode() -> None:
    assert integer(7) == encode(7)
    assert bulk(b"\r\n") == encode(b"\r\n")
    for resp in (2, 3):
        assert null(resp) == encode(None, resp)
        assert null_array(resp) == encode(NULL_ARRAY, resp)


@given(
    st.one_of(
        st.binary(max_size=50),
        st.text(max_size=50, alphabet=st.characters(exclude_categories=["Cs"])),
    )
)
def test_an_error_is_one_line_whatever_is_in_it(text: bytes | str) -> None:
    data = error(text)
    assert data.startswith(b"-")
    assert data.endswith(b"\r\n")
    assert b"\r" not in data[:-2]
    assert b"\n" not in data[:-2]


def test_bytes_that_were_decoded_with_surrogates_come_out_as_they_were() -> None:
    assert error(b"ERR \xff\xfe".decode("utf-8", "surrogateescape")) == b"-ERR \xff\xfe\r\n"
