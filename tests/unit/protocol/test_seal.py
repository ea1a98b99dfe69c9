"""The messages of two nodes with a shared secret, and that nobody else can take part."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.protocol.seal import LONGEST, MAGIC, NONCE_SIZE, Seal, SealError, master_key

OURS = master_key(b"a secret of ours, long enough")
OLD = master_key(b"the secret that we had before")
FOREIGN = master_key(b"some secret of somebody else")
GREETING = len(MAGIC) + NONCE_SIZE


def opener(*masters: bytes, nonce: bytes = b"o" * NONCE_SIZE) -> Seal:
    return Seal(masters or (OURS,), nonce, True)


def other(*masters: bytes, nonce: bytes = b"x" * NONCE_SIZE) -> Seal:
    return Seal(masters or (OURS,), nonce, False)


def shake(a: Seal, b: Seal) -> None:
    """Do the handshake of ``a``, which opened the connection, with ``b``."""
    assert b.open(a.greeting) == b""
    assert a.open(b.greeting) == b""
    assert b.answer() == b""
    assert b.open(a.answer()) == b""
    assert a.open(b.answer()) == b""
    assert a.ready
    assert b.ready


def pair() -> tuple[Seal, Seal]:
    a, b = opener(), other()
    shake(a, b)
    return a, b


@pytest.mark.parametrize("size", [1, 100, LONGEST, LONGEST + 1, 3 * LONGEST + 7])
def test_what_is_sent_arrives_in_both_directions(size: int) -> None:
    a, b = pair()
    data = bytes(n % 251 for n in range(size))
    for _ in range(3):
        assert b.open(a.close(data)) == data
        assert a.open(b.close(data)) == data


@given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=6), st.data())
def test_the_pieces_in_which_bytes_come_do_not_matter(
    batches: list[bytes], data: st.DataObject
) -> None:
    a, b = opener(), other()
    a.open(b.greeting)
    sent = a.greeting + a.answer()
    answered = False
    got = b""
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=5))
    for begin, end in pairwise([0, *sorted(cuts), len(sent)]):
        got += b.open(sent[begin:end])
    a.open(b.answer())
    answered = a.ready
    sent = b"".join(map(a.close, batches))
    cuts = data.draw(st.lists(st.integers(0, len(sent)), max_size=9))
    for begin, end in pairwise([0, *sorted(cuts), len(sent)]):
        got += b.open(sent[begin:end])
    assert answered
    assert got == b"".join(batches)


def test_bytes_that_come_with_the_proof_are_not_lost() -> None:
    a, b = opener(), other()
    b.open(a.greeting)
    a.open(b.greeting)
    b.open(a.answer())
    assert a.open(b.answer() + b.close(b"first words")) == b"first words"
    assert b.open(a.close(b"an answer")) == b"an answer"


def test_a_node_with_another_secret_is_noticed_by_both_sides() -> None:
    a, b = opener(FOREIGN), other()
    b.open(a.greeting)
    a.open(b.greeting)
    with pytest.raises(SealError, match="differs from this node"):
        b.open(a.answer())
    assert not b.ready
    assert b.answer() == b""
    assert "differ" in a.ended


def test_the_side_that_was_connected_to_proves_nothing_to_strangers() -> None:
    b = other()
    b.open(opener(FOREIGN).greeting)
    assert b.answer() == b""
    with pytest.raises(SealError):
        b.open(bytes(20))
    assert b.answer() == b""


@pytest.mark.parametrize("first", [b"DbuZ", b"D", b"\0", b"\x16\x03\x01", MAGIC[:-1] + b"2"])
def test_a_peer_that_does_not_greet_has_no_secret(first: bytes) -> None:
    b = other()
    if MAGIC.startswith(first):
        assert b.open(first) == b""
        first = b"buZ"
    with pytest.raises(SealError, match="no cluster-secret"):
        b.open(first)
    assert "no cluster-secret" in b.ended


def test_each_step_of_a_change_of_the_secret_fits_the_one_before() -> None:
    steps = [(OLD,), (OLD, OURS), (OURS, OLD), (OURS,)]
    for before, after in pairwise(steps):
        for mine, theirs in ((before, after), (after, before), (after, after)):
            shake(opener(*mine), other(*theirs))


def test_two_secrets_in_the_wrong_order_do_not_fit() -> None:
    a, b = opener(OURS, OLD), other(OLD)
    b.open(a.greeting)
    a.open(b.greeting)
    with pytest.raises(SealError):
        b.open(a.answer())


def test_it_is_known_which_secrets_a_connection_needs() -> None:
    a, b = opener(OURS, OLD), other(OLD, OURS)
    assert not a.holds_with([OURS, OLD])
    shake(a, b)
    assert a.holds_with([OURS, OLD])
    assert a.holds_with([OLD, OURS, FOREIGN])
    assert not a.holds_with([OURS])
    assert not b.holds_with([OLD])


def test_records_of_another_connection_are_worth_nothing() -> None:
    a, b = opener(), other()
    hello = a.greeting
    shake(a, b)
    recorded = a.close(b"remove a job")
    # The same greeting replayed meets another nonce.
    again = other(nonce=b"y" * NONCE_SIZE)
    again.open(hello)
    with pytest.raises(SealError):
        again.open(recorded)
    c, d = opener(nonce=b"p" * NONCE_SIZE), other(nonce=b"q" * NONCE_SIZE)
    shake(c, d)
    with pytest.raises(SealError):
        d.open(recorded)


def test_the_proof_of_another_connection_is_worth_nothing() -> None:
    a = opener()
    a.open(other().greeting)
    proof = a.answer()
    b = other(nonce=b"y" * NONCE_SIZE)
    b.open(a.greeting)
    with pytest.raises(SealError):
        b.open(proof)


def test_what_was_sent_is_not_taken_back() -> None:
    a, _ = pair()
    with pytest.raises(SealError):
        a.open(a.close(b"remove a job"))
    c = opener()
    with pytest.raises(SealError, match="sent this node's greeting back"):
        c.open(c.greeting)


def test_a_stranger_between_two_openers_of_the_same_node_gets_nowhere() -> None:
    # Both connect to the stranger, who relays their messages.
    a, b = opener(), opener(nonce=b"p" * NONCE_SIZE)
    a.open(b.greeting)
    b.open(a.greeting)
    with pytest.raises(SealError):
        b.open(a.answer())


def test_an_empty_record_or_one_that_is_too_long_is_refused_before_it_has_come() -> None:
    _, b = pair()
    with pytest.raises(SealError):
        b.open((LONGEST + 1).to_bytes(4, "big") + bytes(16))
    _, b = pair()
    with pytest.raises(SealError):
        b.open(bytes(20))
    c = other()
    c.open(opener().greeting)
    with pytest.raises(SealError):
        c.open(b"\0\0\0\1" + bytes(16))


CHANGES = ["flip", "cut", "repeat", "swap", "insert", "drop"]


@given(
    st.lists(st.binary(min_size=1, max_size=40), min_size=2, max_size=6),
    st.sampled_from(CHANGES),
    st.data(),
)
def test_whatever_is_changed_on_the_way_is_noticed(
    batches: list[bytes], change: str, data: st.DataObject
) -> None:
    a, b = pair()
    records = [a.close(batch) for batch in batches]
    at = data.draw(st.integers(0, len(records) - 2))
    if change == "flip":
        record = bytearray(records[at])
        record[data.draw(st.integers(0, len(record) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        records[at] = bytes(record)
    elif change == "cut":
        records[at] = records[at][: data.draw(st.integers(0, len(records[at]) - 1))]
    elif change == "repeat":
        records.insert(at, records[at])
    elif change == "swap":
        records[at], records[at + 1] = records[at + 1], records[at]
    elif change == "insert":
        records.insert(at, data.draw(st.binary(min_size=1, max_size=60)))
    else:
        del records[at]
    got = b""
    try:
        for record in records:
            got += b.open(record)
    except SealError:
        pass
    # Records before the change are good. None after it is, though the seal may wait for the rest of
    # a record that the change made longer.
    whole = b"".join(batches)
    assert whole.startswith(got)
    assert len(got) <= sum(map(len, batches[: at + 1])) < len(whole)


@given(st.binary(max_size=200))
def test_noise_is_never_taken_for_data(noise: bytes) -> None:
    for seal in (opener(), other(), *pair()):
        try:
            assert seal.open(noise) == b""
        except SealError:
            pass
