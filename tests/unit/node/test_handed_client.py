"""A client that is handed over, as bytes."""

from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.handed_client import HandedClient, pack, unpack
from disque_trio.resp.request import RequestParser

NUMBERS = st.integers(0, 1 << 62)
WORDS = st.binary(max_size=20)
CLIENTS = st.builds(
    HandedClient,
    *(NUMBERS, st.text("[]:.0123456789"), NUMBERS, NUMBERS, WORDS, WORDS, st.sampled_from((2, 3))),
    *(WORDS, WORDS, WORDS, st.text("abc"), NUMBERS, st.integers(0, 1), NUMBERS),
)


@given(CLIENTS, st.lists(st.lists(WORDS, min_size=1)))
def test_what_is_packed_comes_out(client: HandedClient, requests: list[list[bytes]]) -> None:
    [about, *rest] = RequestParser().feed(pack(b"OFFER", 7, client, requests))
    assert about[:2] == [b"OFFER", b"7"]
    assert unpack(about[2:]) == client
    assert rest == requests
