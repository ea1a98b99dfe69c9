"""The handshake of two nodes with keys, and that nobody else can take part in it."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.cluster.crypto import KeyFormatError, NodeKey
from disque_trio.protocol.bus import PING, PacketWriter
from disque_trio.protocol.identity import (
    HELLO_SIZE,
    SIGNATURE_SIZE,
    Handshake,
    IdentityError,
    Session,
)
from disque_trio.protocol.seal import IDENTITY_MAGIC, LONGEST, MAGIC

OPENER, OTHER, FOREIGN = NodeKey.generate(), NodeKey.generate(), NodeKey.generate()
IDS = {OPENER.key: b"a" * 40, OTHER.key: b"b" * 40, FOREIGN.key: b"f" * 40}
PING_PACKET = PacketWriter(b"c" * 40, 7711).gossip(PING, [])


def pinned(id: bytes, key: bytes) -> str:
    return "" if key != FOREIGN.key and IDS.get(key) == id else "a stranger"


def side(
    key: NodeKey,
    opener: bool,
    *,
    id: bytes = b"",
    required: bool = True,
    encrypt: bool = False,
    judge: Callable[[bytes, bytes], str] = pinned,
) -> Handshake:
    return Handshake(key, id or IDS[key.key], opener, required, encrypt, judge)


def shake(a: Handshake, b: Handshake, bindings: tuple[bytes, bytes] = (b"", b"")) -> None:
    """Do the handshake of ``a``, which opened the connection, with ``b``."""
    hello = a.begin(bindings[0])
    assert b.begin(bindings[1]) == b""
    assert b.receive(a.receive(b.receive(hello))) != b""


def finish(a: Handshake, b: Handshake) -> None:
    hello = a.begin(b"")
    b.begin(b"")
    a.receive(b.receive(a.receive(b.receive(hello))))


def sessions(a: Handshake, b: Handshake) -> tuple[Session, Session]:
    assert a.records is not None
    assert b.records is not None
    return a.records, b.records


def pair(encrypt: bool = False) -> tuple[Session, Session]:
    a, b = side(OPENER, True, encrypt=encrypt), side(OTHER, False)
    finish(a, b)
    return sessions(a, b)


def test_each_side_learns_who_the_other_is() -> None:
    a, b = side(OPENER, True), side(OTHER, False)
    finish(a, b)
    assert (a.ready, a.peer, a.key) == (True, b"b" * 40, OTHER.key)
    assert (b.ready, b.peer, b.key) == (True, b"a" * 40, OPENER.key)
    assert not a.plain
    assert not b.plain


def test_the_acceptor_signs_only_for_who_has_proved_its_key() -> None:
    a, b = side(OPENER, True), side(OTHER, False)
    answer = b.receive(a.begin(b""))
    assert len(answer) == HELLO_SIZE
    with pytest.raises(IdentityError):
        b.receive(bytes(SIGNATURE_SIZE))
    assert not b.ready


@pytest.mark.parametrize("size", [1, 100, LONGEST, LONGEST + 1, 3 * LONGEST + 7])
@pytest.mark.parametrize("encrypt", [False, True])
def test_what_is_sent_arrives_in_both_directions(size: int, encrypt: bool) -> None:
    a, b = pair(encrypt)
    data = bytes(n % 251 for n in range(size))
    for _ in range(3):
        assert b.open(a.close(data)) == data
        assert a.open(b.close(data)) == data


@pytest.mark.parametrize("wishes", [(False, True), (True, False), (True, True)])
def test_one_wish_is_enough_to_encrypt(wishes: tuple[bool, bool]) -> None:
    a, b = side(OPENER, True, encrypt=wishes[0]), side(OTHER, False, encrypt=wishes[1])
    finish(a, b)
    one, other = sessions(a, b)
    assert one.encrypted
    assert other.encrypted
    assert b"secret body" not in one.close(b"secret body")


def test_without_a_wish_records_are_only_protected() -> None:
    a, b = pair()
    assert not a.encrypted
    assert b"a body" in a.close(b"a body")
    assert b"a body" in b.close(b"a body")


@pytest.mark.parametrize("size", [1, 7, HELLO_SIZE - 1, HELLO_SIZE + 1])
@pytest.mark.parametrize("encrypt", [False, True])
def test_the_pieces_in_which_bytes_come_do_not_matter(size: int, encrypt: bool) -> None:
    def in_pieces(take: Callable[[bytes], bytes], data: bytes) -> bytes:
        return b"".join([take(data[at : at + size]) for at in range(0, len(data), size)])

    a, b = side(OPENER, True, encrypt=encrypt), side(OTHER, False)
    signature = in_pieces(a.receive, in_pieces(b.receive, a.begin(b"")))
    assert in_pieces(a.receive, in_pieces(b.receive, signature)) == b""
    one, other = sessions(a, b)
    assert in_pieces(other.open, one.close(b"first") + one.close(b"second")) == b"firstsecond"


def test_records_that_come_with_the_end_of_the_handshake_are_kept() -> None:
    a, b = side(OPENER, True), side(OTHER, False)
    signed = b.receive(a.receive(b.receive(a.begin(b""))))
    assert b.records is not None
    a.receive(signed + b.records.close(b"data"))
    assert a.records is not None
    assert a.records.open(a.rest) == b"data"


@given(st.binary(max_size=400))
def test_hostile_bytes_are_refused_or_incomplete(data: bytes) -> None:
    for handshake in (side(OTHER, False), side(OTHER, False, required=False), side(OPENER, True)):
        handshake.begin(b"")
        try:
            handshake.receive(data)
        except IdentityError:
            continue
        assert handshake.plain == (data[:4] == b"DbuZ")
        assert handshake.plain or IDENTITY_MAGIC.startswith(data[:8]) or data[:4] in b"DbuZ"


@given(st.integers(0, 2 * HELLO_SIZE + 2 * SIGNATURE_SIZE - 1), st.integers(1, 255))
def test_a_changed_byte_in_the_handshake_ends_it(at: int, change: int) -> None:
    def altered(message: bytes) -> bytes:
        nonlocal at
        changed = bytearray(message)
        if 0 <= at < len(changed):
            changed[at] ^= change
        at -= len(changed)
        return bytes(changed)

    a, b = side(OPENER, True), side(OTHER, False)
    b.begin(b"")
    with pytest.raises(IdentityError):
        a.receive(altered(b.receive(altered(a.receive(altered(b.receive(altered(a.begin(b"")))))))))
    assert not (a.ready and b.ready)


def test_who_copies_an_id_and_a_public_key_is_refused() -> None:
    class Impostor(NodeKey):
        """Has another private key than the public one that it shows."""

    impostor = Impostor.generate()
    impostor.key = OPENER.key
    a, b = side(impostor, True), side(OTHER, False)
    with pytest.raises(IdentityError, match="does not have the key"):
        finish(a, b)
    a, b = side(OPENER, True), side(impostor, False, id=b"b" * 40, judge=pinned)
    impostor.key = OTHER.key
    with pytest.raises(IdentityError, match="does not have the key"):
        finish(a, b)
    assert not a.ready


@pytest.mark.parametrize("id", [b"f" * 40, b"b" * 40])
def test_strangers_are_refused_before_anything_is_told(id: bytes) -> None:
    a, b = side(FOREIGN, True, id=id), side(OTHER, False)
    with pytest.raises(IdentityError, match="a stranger"):
        b.receive(a.begin(b""))


def test_a_node_that_is_expelled_during_the_handshake_is_refused() -> None:
    verdicts = ["", "it was expelled"]
    a, b = side(OPENER, True), side(OTHER, False, judge=lambda id, key: verdicts.pop(0))
    with pytest.raises(IdentityError, match="expelled"):
        finish(a, b)
    assert not b.ready


def test_messages_of_another_connection_are_worthless() -> None:
    a, b = side(OPENER, True), side(OTHER, False)
    hello = a.begin(b"")
    signature = a.receive(b.receive(hello))
    again = side(OTHER, False)
    again.receive(hello)
    with pytest.raises(IdentityError):
        again.receive(signature)
    third = side(OPENER, True)
    third.begin(b"")
    with pytest.raises(IdentityError):
        third.receive(side(OTHER, False).receive(hello) + b.receive(signature))


def test_what_a_side_sent_is_not_taken_back() -> None:
    a = side(OPENER, True, judge=lambda id, key: "")
    with pytest.raises(IdentityError, match="back"):
        a.receive(a.begin(b""))
    one, other = pair()
    record = one.close(b"data")
    with pytest.raises(IdentityError):
        one.open(record)
    assert other.open(record) == b"data"


def test_the_signatures_cover_the_connection_below() -> None:
    a, b = side(OPENER, True), side(OTHER, False)
    with pytest.raises(IdentityError):
        shake(a, b, (b"1" * 32, b"2" * 32))
    shake(side(OPENER, True), side(OTHER, False), (b"1" * 32, b"1" * 32))


@pytest.mark.parametrize("encrypt", [False, True])
def test_records_come_once_in_order_and_unchanged(encrypt: bool) -> None:
    a, b = pair(encrypt)
    first, second = a.close(b"first"), a.close(b"second")
    with pytest.raises(IdentityError):
        b.open(second)
    a, b = pair(encrypt)
    first = a.close(b"first")
    assert b.open(first) == b"first"
    with pytest.raises(IdentityError):
        b.open(first)
    for at in range(len(first)):
        a, b = pair(encrypt)
        changed = bytearray(a.close(b"first"))
        changed[at] ^= 1
        try:
            assert b.open(bytes(changed)) == b""  # it waits for the rest of a longer one
        except IdentityError:
            pass


def test_a_node_without_identity_is_taken_only_if_none_is_required() -> None:
    b = side(OTHER, False, required=False)
    assert b.receive(PING_PACKET[:3]) == b""
    assert not b.ready
    assert b.receive(PING_PACKET[3:]) == b""
    assert (b.ready, b.plain, b.peer, b.rest) == (True, True, b"", PING_PACKET)
    assert b.records is None
    for strict in (side(OTHER, False), side(OPENER, True, required=False)):
        with pytest.raises(IdentityError, match="no identity"):
            strict.receive(PING_PACKET)
    with pytest.raises(IdentityError, match="cluster-secret"):
        side(OTHER, False, required=False).receive(MAGIC)


def test_a_key_that_is_no_point_is_refused() -> None:
    a, b = side(OPENER, True), side(OTHER, False)
    hello = bytearray(a.begin(b""))
    hello[40:72] = bytes(32)
    with pytest.raises(IdentityError, match="one-time"):
        b.receive(bytes(hello))


def test_the_private_key_survives_as_text() -> None:
    key = NodeKey.generate()
    assert NodeKey.from_pem(key.pem()).key == key.key
    for damaged in (b"", key.pem()[:60], b"nonsense", key.pem().replace(b"M", b"N")):
        with pytest.raises(KeyFormatError):
            NodeKey.from_pem(damaged)
