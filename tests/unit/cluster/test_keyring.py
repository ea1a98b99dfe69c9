"""Keys of nodes: what is taken over from others, what is kept, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.cluster.keyring import (
    BY_FIRST,
    BY_MEET,
    MAX_EXPELLED,
    MAX_PINS,
    MAX_VERSION,
    Keyring,
    KeyringError,
    parse_key,
    read_keys,
)
from disque_trio.protocol.bus import KEYS, PacketError, PacketWriter

WRITER = PacketWriter(b"a" * 40, 7711)
IDS = [b"%040x" % n for n in range(4)]
KEYS_OF = [bytes([n]) * 32 for n in range(4)]
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=20)


def made(steps: list[tuple[int, int, bool]]) -> Keyring:
    keyring = Keyring()
    for id, key, expelled in steps:
        keyring.pin(IDS[id], KEYS_OF[key], BY_MEET)
        keyring.decide(KEYS_OF[key], expelled)
    return keyring


def tell(source: Keyring, target: Keyring) -> None:
    message = read_keys(WRITER.packet(KEYS, source.data()))
    for id, key in message.pins:
        target.pin(id, key, IDS[0])
    for key, version in message.versions:
        target.hear(key, version)


def test_a_pin_is_never_changed() -> None:
    keyring = Keyring()
    assert keyring.pin(IDS[0], KEYS_OF[0], BY_FIRST)
    assert not keyring.pin(IDS[0], KEYS_OF[1], BY_MEET)
    assert keyring.key_of(IDS[0]) == KEYS_OF[0]


@pytest.mark.parametrize("id", [b"\xff" * 40, b" " * 40, b"A" * 40, b"", b"a" * 41])
def test_what_is_no_node_id_gets_no_pin(id: bytes) -> None:
    keyring = Keyring()
    assert not keyring.pin(id, KEYS_OF[0], BY_MEET)
    assert keyring.dump() == ""


def test_the_ids_of_a_key_are_those_that_are_pinned_to_it() -> None:
    keyring, again = Keyring(), Keyring()
    for id in IDS:
        keyring.pin(id, KEYS_OF[0], BY_MEET)
    keyring.pin(IDS[0], KEYS_OF[1], BY_MEET)
    keyring.unpin(IDS[1])
    assert keyring.ids_of(KEYS_OF[0]) == [IDS[0], *IDS[2:]]
    assert keyring.ids_of(KEYS_OF[1]) == []
    again.load(keyring.dump())
    assert again.ids_of(KEYS_OF[0]) == [IDS[0], *IDS[2:]]
    again.clear()
    assert again.ids_of(KEYS_OF[0]) == []


def test_expelled_nodes_stay_known() -> None:
    keyring = made([(0, 0, True), (1, 1, False)])
    keyring.unpin(IDS[0])
    keyring.clear()
    assert keyring.ids_of(KEYS_OF[0]) == [IDS[0]]
    assert keyring.ids_of(KEYS_OF[1]) == []
    assert keyring.expelled() == [KEYS_OF[0]]


@given(STEPS, STEPS)
def test_what_others_say_expels_and_never_readmits(
    one: list[tuple[int, int, bool]], other: list[tuple[int, int, bool]]
) -> None:
    a, b = made(one), made(other)
    before = set(a.expelled()), set(b.expelled())
    tell(a, b)
    tell(b, a)
    assert before[0] <= set(a.expelled())
    assert before[1] <= set(b.expelled())


def test_who_was_readmitted_elsewhere_can_be_expelled_again() -> None:
    here, there = Keyring(), Keyring()
    here.decide(KEYS_OF[0], True)
    tell(here, there)
    there.decide(KEYS_OF[0], False)
    tell(here, there)
    assert not there.is_expelled(KEYS_OF[0])
    here.decide(KEYS_OF[0], True)
    tell(here, there)
    assert there.is_expelled(KEYS_OF[0])


def test_who_is_expelled_cannot_be_readmitted_over_the_bus() -> None:
    keyring = Keyring()
    keyring.decide(KEYS_OF[0], True)
    for version in (2, 4, MAX_VERSION - 1):
        assert not keyring.hear(KEYS_OF[0], version)
    assert keyring.is_expelled(KEYS_OF[0])


@given(STEPS)
def test_the_file_keeps_everything(steps: list[tuple[int, int, bool]]) -> None:
    keyring, again = made(steps), Keyring()
    again.load(keyring.dump())
    assert again.dump() == keyring.dump()
    assert again.data() == keyring.data()


@given(st.binary(max_size=300))
def test_hostile_data_is_an_error_or_valid(data: bytes) -> None:
    keyring = Keyring()
    try:
        message = read_keys(WRITER.packet(KEYS, data))
    except PacketError:
        return
    for id, key in message.pins:
        keyring.pin(id, key, BY_MEET)
    for key, version in message.versions:
        keyring.hear(key, version)
    Keyring().load(keyring.dump())


@given(st.text(max_size=200))
def test_hostile_text_is_an_error_or_valid(text: str) -> None:
    keyring = Keyring()
    try:
        keyring.load(text)
    except KeyringError:
        return
    assert keyring.dump() == ""  # nothing but spaces


@pytest.mark.parametrize(
    "line",
    [
        "pin",
        f"pin {IDS[0].decode()} {'0' * 64}",
        f"pin {IDS[0].decode()} {'0' * 63} meet",
        f"pin {IDS[0].decode()[1:]} {'0' * 64} meet",
        f"pin {IDS[0].decode()} {'0' * 64} somebody",
        f"key {'0' * 64} 0",
        f"key {'0' * 64} -1",
        f"key {'0' * 64} 9223372036854775808",
        f"key {'0' * 64} 1\nkey {'0' * 64} 2",
        "nonsense",
    ],
)
def test_a_damaged_line_is_named(line: str) -> None:
    with pytest.raises(KeyringError, match=f"line {1 + line.count(chr(10)) + 1}"):
        Keyring().load("\n" + line)


def test_a_node_hears_who_is_expelled_however_often_that_has_changed() -> None:
    keyring = Keyring()
    assert keyring.hear(KEYS_OF[0], 2001)
    assert not keyring.hear(KEYS_OF[0], 2001)
    assert not keyring.hear(KEYS_OF[0], 1)
    assert keyring.is_expelled(KEYS_OF[0])
    assert keyring.decide(KEYS_OF[0], False)
    assert not keyring.is_expelled(KEYS_OF[0])


def test_the_last_version_can_be_loaded_and_stays() -> None:
    keyring, again = Keyring(), Keyring()
    assert not keyring.hear(KEYS_OF[0], MAX_VERSION + 2)
    assert keyring.hear(KEYS_OF[0], MAX_VERSION)
    assert not keyring.decide(KEYS_OF[0], False)
    assert keyring.decide(KEYS_OF[0], True)
    again.load(keyring.dump())
    assert again.is_expelled(KEYS_OF[0])


def test_others_cannot_fill_the_memory() -> None:
    keyring = Keyring()
    for n in range(MAX_PINS + 10):
        keyring.pin(b"%040x" % n, b"%032d" % -n, BY_MEET)
    for n in range(1, MAX_EXPELLED + 10):
        keyring.hear(b"%032d" % n, 1)
    assert len(keyring.pins) == MAX_PINS
    assert len(keyring.expelled()) == MAX_EXPELLED


def test_where_others_have_filled_the_memory_a_node_can_be_expelled() -> None:
    keyring = Keyring()
    keyring.pin(IDS[0], KEYS_OF[0], BY_MEET)
    for n in range(MAX_EXPELLED):
        keyring.hear(b"%032d" % n, 1)
    assert not keyring.hear(KEYS_OF[1], 1)
    assert keyring.hear(KEYS_OF[0], 1)  # it has a pin
    assert keyring.decide(KEYS_OF[1], True)
    assert keyring.is_expelled(KEYS_OF[0])
    assert keyring.is_expelled(KEYS_OF[1])


def test_a_key_is_64_hex_characters() -> None:
    assert parse_key("aB" * 32) == b"\xab" * 32
    for wrong in ("", "a" * 63, "a" * 65, "g" * 64, "aa " * 21 + "a", "\u0660" * 64):
        assert parse_key(wrong) == b""
