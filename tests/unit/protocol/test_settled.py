"""SETTLED: bytes to values and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.protocol.bus import HEADER_SIZE, SETTLED, PacketError, PacketWriter, QueueMessage
from disque_trio.protocol.settled import Confirmation, Settled, pack_settled, read_settled

WRITER = PacketWriter(b"a" * 40, 7711)
U32 = st.integers(0, 2**32 - 1)
WANTS = st.builds(QueueMessage, st.binary(max_size=20), U32, st.integers(0, 255))


def packet_of(message: Settled) -> bytes:
    return WRITER.packet(SETTLED, pack_settled(message))


def shown(message: Settled) -> tuple[object, ...]:
    wants = [(want.queue, want.aux, want.flags) for want in message.wants]
    return (message.number, message.heard, message.ids, wants)


@given(U32, U32, U32, st.lists(st.binary(min_size=40, max_size=40), max_size=4), st.lists(WANTS))
def test_what_is_written_is_read(
    number: int, first: int, last: int, ids: list[bytes], wants: list[QueueMessage]
) -> None:
    message = Settled(number, Confirmation(first, last), ids, wants)
    assert shown(read_settled(packet_of(message))) == shown(message)


def test_a_packet_that_is_cut_off_is_malformed_or_tells_less() -> None:
    wants = [QueueMessage(b"q", 1), QueueMessage(b"longer", 9, 3)]
    whole = packet_of(Settled(7, Confirmation(1, 2), [b"D" * 40, b"E" * 40], wants))
    fine = set()
    for size in range(HEADER_SIZE, len(whole)):
        try:
            message = read_settled(whole[:size])
        except PacketError:
            continue
        fine.add((len(message.ids), len(message.wants)))
    assert fine == {(2, 0), (2, 1)}


def test_a_length_that_goes_past_the_end_is_malformed() -> None:
    packet = bytearray(
        packet_of(Settled(1, Confirmation(0, 0), [b"D" * 40], [QueueMessage(b"q", 1)]))
    )
    for at in (HEADER_SIZE + 15, len(packet) - 2):
        changed = packet[:]
        changed[at] += 1
        with pytest.raises(PacketError):
            read_settled(bytes(changed))
