"""Replies that a socket did not take are kept in pieces, in order."""

from hypothesis import given
from hypothesis import strategies as st

from disque_trio.respserver.client import PIECE
from disque_trio.respserver.io.unsent import Unsent

sizes = st.lists(st.integers(0, PIECE * 2), max_size=8)


@given(sizes, st.lists(st.integers(1, PIECE), max_size=30))
def test_what_is_appended_comes_out_in_order(added: list[int], taken: list[int]) -> None:
    unsent, expected, found = Unsent(), b"", b""
    for number, size in enumerate(added):
        data = bytes([number + 1]) * size
        expected += data
        unsent.append(memoryview(data) if number % 2 else data)
    assert len(unsent) == len(expected)
    for most in [*taken, *[PIECE] * 40]:
        if not unsent:
            break
        piece = bytes(unsent.first()[:most])
        found += piece
        unsent.drop(len(piece))
        assert len(unsent) >= len(expected) - len(found)
    assert found == expected
    assert len(unsent) == 0


def test_what_is_long_is_not_copied_and_counts_until_it_has_been_sent() -> None:
    unsent, data = Unsent(), bytes(4 * PIECE)
    unsent.append(memoryview(data)[PIECE:])
    first = unsent.first()
    assert isinstance(first, memoryview)
    assert first.obj is data
    unsent.drop(2 * PIECE)
    assert len(unsent) == len(data)
    unsent.append(b"short")
    unsent.drop(PIECE)
    assert len(unsent) == 5
    assert bytes(unsent.first()) == b"short"


def with_length(data: bytes | memoryview) -> bytes:
    """Stands for encryption."""
    return len(data).to_bytes(4, "big") + bytes(data)


@given(sizes, sizes, st.integers(PIECE // 4, 3 * PIECE))
def test_what_is_lined_up_is_sealed_in_order_when_its_turn_comes(
    before: list[int], after: list[int], most: int
) -> None:
    unsent, sent = Unsent(with_length), b""
    replies = [bytes([number]) * size for number, size in enumerate([*before, *after])]
    unsent.line_up(replies[: len(before)])
    if unsent:
        assert len(unsent.first()) <= PIECE + 4  # no more is sealed than can be sent
    unsent.line_up(replies[len(before) :])
    while unsent:
        piece = bytes(unsent.first()[:most])
        sent += piece
        unsent.drop(len(piece))
    found = b""
    while sent:
        end = 4 + int.from_bytes(sent[:4], "big")
        found, sent = found + sent[4:end], sent[end:]
    assert found == b"".join(replies)
    assert len(unsent) == 0


def test_a_piece_does_not_grow_without_end() -> None:
    unsent = Unsent()
    for _ in range(4 * PIECE // 1000):
        unsent.append(bytes(1000))
    assert len(unsent.first()) < PIECE + 1000
    assert len(unsent) == 4 * PIECE // 1000 * 1000


@given(sizes, st.lists(st.integers(0, PIECE // 2), max_size=8), st.integers(PIECE // 4, 3 * PIECE))
def test_what_is_lined_up_comes_out_in_order_and_is_joined_when_its_turn_comes(
    before: list[int], sizes: list[int], most: int
) -> None:
    unsent, found, sent = Unsent(), b"", 0
    all = [bytes([number]) * size for number, size in enumerate([*before, *sizes, 7, PIECE])]
    for reply in all[: len(before)]:
        unsent.append(reply)
    unsent.line_up(all[len(before) : -2])
    for reply in all[-2:]:
        unsent.append(memoryview(reply))
    expected = b"".join(all)
    assert len(unsent) == len(expected)
    while unsent:
        first = unsent.first()
        piece = bytes(first[:most])
        found += piece
        sent += len(piece)
        unsent.drop(len(piece))
        assert len(unsent) >= len(expected) - sent
    assert found == expected


def test_a_long_reply_that_is_lined_up_is_not_copied() -> None:
    unsent, data = Unsent(), bytes(4 * PIECE)
    unsent.line_up([b"a", b"b" * PIECE, data, b"c", b"d"])
    pieces = []
    while unsent:
        first = unsent.first()
        pieces.append(first)
        unsent.drop(len(first))
    assert [len(piece) for piece in pieces] == [1, PIECE, 4 * PIECE, 2]
    assert isinstance(pieces[2], memoryview)
    assert pieces[2].obj is data
