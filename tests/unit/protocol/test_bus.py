"""Bus packets byte for byte, and their parser on arbitrary streams."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.protocol import bus
from disque_trio.protocol.bus import (
    HEADER_SIZE,
    LARGE_START,
    MAX_CONTROL_PACKET,
    MAX_PACKET,
    Gossip,
    PacketError,
    PacketWriter,
    packet_sender,
    packet_type,
)
from disque_trio.protocol.given import read_row
from disque_trio.protocol.packet_parser import PacketParser
from disque_trio.protocol.settled import read_settled

ME = b"a" * 40
OTHER = b"b" * 40
JOB = b"D-aaaaaaaa-ABCDEFGHIJKLMNOPQRSTUVWX-05a1"


def header(
    type: int,
    size: int,
    count: int = 0,
    message_flags: int = 0,
    ip: bytes = b"",
    flags: int = 4,
    port: int = 7711,
) -> bytes:
    """Return the first 144 bytes, field by field."""
    return (
        b"DbuZ"
        + struct.pack(">I", size)  # at 4: the size of the whole packet
        + struct.pack(">H", 1)  # at 8: version
        + b"\0\0"
        + struct.pack(">H", type)  # at 12
        + struct.pack(">H", count)  # at 14: gossip entries
        + ME  # at 16
        + ip.ljust(46, b"\0")  # at 56
        + b"\0?"  # the extensions it supports
        + bytes(32)
        + struct.pack(">H", port)  # at 136
        + struct.pack(">H", flags)  # at 138
        + b"\0"  # at 140: state
        + bytes((message_flags, 0, 0))  # at 141
    )


@pytest.fixture
def writer() -> PacketWriter:
    return PacketWriter(ME, 7711)


# ---- packet types -------------------------------------------------------------------------------

_ABOUT_JOB = [(5, "gotjob"), (6, "enqueue"), (7, "queued"), (8, "setack"), (9, "willqueue"),
              (10, "gotack"), (11, "deljob"), (14, "working")]  # fmt: skip


@pytest.mark.parametrize(("type", "name"), _ABOUT_JOB)
def test_a_message_about_a_job(writer: PacketWriter, type: int, name: str) -> None:
    packet = writer.about_job(type, JOB, 0x01020304, 2)
    assert packet == header(type, 188, 0, 2) + JOB + b"\1\2\3\4"
    message = bus.read_about_job(packet)
    assert bus.TYPE_NAMES[type] == name
    assert bus.packet_type(packet) == type
    assert bus.packet_sender(packet) == ME
    assert bus.packet_flags(packet) == 2
    assert (message.id, message.aux) == (JOB, 0x01020304)
    assert (message.flags, message.mark) == (2, 0)


def test_a_message_about_a_job_tells_the_mark_of_a_set_of_holders(writer: PacketWriter) -> None:
    message = bus.read_about_job(writer.about_job(bus.SETACK, JOB, 3, 1, 0x1234))
    assert (message.aux, message.flags, message.mark) == (3, 1, 0x1234)


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_a_message_about_jobs_names_them_one_behind_the_other(
    writer: PacketWriter, count: int
) -> None:
    ids = [b"D-%038d" % number for number in range(count)]
    packet = writer.about_jobs(bus.SETACK, ids, 3, 0x1234)
    size = 148 + 40 * count
    assert packet[:141] == header(bus.SETACK, size, 0, 0)[:141]
    assert packet[141:] == b"\0\x12\x34" + b"".join(ids) + b"\0\0\0\3"
    message = bus.read_about_job(packet)
    assert (message.id, message.aux, message.flags, message.mark) == (ids[0], 3, 0, 0x1234)
    assert bus.job_ids(packet) == ids
    assert bus.names_many(packet) == (count > 1)


@pytest.mark.parametrize("type", [12, 15])
@pytest.mark.parametrize("queue", [b"q", b"", b"\0\xff" * 3000])
def test_a_message_about_a_queue(writer: PacketWriter, type: int, queue: bytes) -> None:
    packet = writer.about_queue(type, queue, 7)
    size = 152 + len(queue)
    assert packet == header(type, size) + struct.pack(">II", 7, len(queue)) + queue
    message = bus.read_about_queue(packet)
    assert (message.queue, message.aux) == (queue, 7)


@pytest.mark.parametrize("type", [4, 13])
@pytest.mark.parametrize("count", [1, 2, 100])
def test_jobs(writer: PacketWriter, type: int, count: int) -> None:
    jobs = [struct.pack("<I", 10 + n) + bytes([n]) * (10 + n) for n in range(count)]
    data = b"".join(jobs)
    packet = writer.jobs(type, jobs, 1)
    counts = struct.pack(">II", count, len(data))
    assert packet == header(type, 152 + len(data), 0, 1) + counts + data
    message = bus.read_jobs(packet)
    assert (message.jobs, message.flags) == (jobs, 1)


def test_a_process_says_which_one_of_its_server_it_is(writer: PacketWriter) -> None:
    before = writer.fail(OTHER)
    assert bus.sender_process(before) == b""
    writer.process = b"servname\x02\x04"
    writer.refresh()
    packet = writer.fail(OTHER)
    assert bus.sender_process(packet) == b"servname\x02\x04"
    assert packet[:108] + bytes(10) + packet[118:] == before
    writer.extensions = 0
    writer.refresh()
    assert writer.fail(OTHER)[102:136] == bytes(34)  # as C Disque's


def test_fail(writer: PacketWriter) -> None:
    packet = writer.fail(OTHER)
    assert packet == header(3, 184) + OTHER
    assert bus.read_fail(packet) == OTHER


@pytest.mark.parametrize("type", [0, 1, 2])
def test_gossip(writer: PacketWriter, type: int) -> None:
    entries = [
        Gossip(OTHER, 0x1_0203_0405, 0, "10.0.0.2", 7712, 2 | 128),
        Gossip(b"c" * 40, 0, (1 << 40) + 5, "fd00::1", 55535, 0),
    ]
    packet = writer.gossip(type, entries)
    assert packet == (
        header(type, 144 + 2 * 104, 2)
        + OTHER
        + struct.pack(">II", 0x02030405, 0)
        + b"10.0.0.2".ljust(46, b"\0")
        + struct.pack(">HHHI", 7712, 130, 0, 0)
        + b"c" * 40
        + struct.pack(">II", 0, 5)
        + b"fd00::1".ljust(46, b"\0")
        + struct.pack(">HHHI", 55535, 0, 0, 0)
    )
    first, second = bus.read_gossip(packet)
    assert (first.id, first.ping_sent, first.pong_received) == (OTHER, 0x02030405, 0)
    assert (first.ip, first.port, first.flags) == ("10.0.0.2", 7712, 130)
    assert (second.id, second.ping_sent, second.pong_received) == (b"c" * 40, 0, 5)
    assert (second.ip, second.port, second.flags) == ("fd00::1", 55535, 0)


def test_a_ping_without_gossip_is_the_header(writer: PacketWriter) -> None:
    assert writer.gossip(0, []) == header(0, 144)
    assert bus.read_gossip(header(0, 144)) == []


def test_packets_follow_what_changes_about_the_node(writer: PacketWriter) -> None:
    writer.ip = "10.1.2.3"
    writer.port = 8811
    writer.flags |= bus.NODE_LEAVING
    writer.refresh()
    changed = {"ip": b"10.1.2.3", "flags": 132, "port": 8811}
    packet = writer.about_job(5, JOB)
    assert packet[:144] == header(5, 188, **changed)  # type: ignore[arg-type]
    assert writer.fail(OTHER)[:144] == header(3, 184, **changed)  # type: ignore[arg-type]
    assert bus.sender_address(packet) == ("10.1.2.3", 8811)
    assert bus.sender_flags(packet) == 132


def test_a_c_node_announces_no_address() -> None:
    assert bus.sender_address(header(0, 144)) == ("", 7711)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (b"10.0.0.1" + bytes(38), "10.0.0.1"),
        (b"1" * 46, "1" * 46),
        (bytes(46), ""),
        (b"\xff" * 46, ""),
        (b"10.0.0.1\0rubbish\xff".ljust(46, b"\0"), "10.0.0.1"),
    ],
)
def test_the_text_of_an_ip_ends_at_a_nul(field: bytes, text: str) -> None:
    assert bus.read_ip(field) == text


# ---- lengths that do not fit ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 43, 45, 104])
def test_a_message_about_a_job_has_one_length(writer: PacketWriter, size: int) -> None:
    with pytest.raises(PacketError):
        bus.read_about_job(writer.packet(5, bytes(size)))


@pytest.mark.parametrize("data", [b"", bytes(7), b"\0\0\0\1\0\0\0\1", b"\0\0\0\1\0\0\0\1qq"])
def test_a_message_about_a_queue_is_as_long_as_it_says(writer: PacketWriter, data: bytes) -> None:
    with pytest.raises(PacketError):
        bus.read_about_queue(writer.packet(12, data))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(7),
        struct.pack(">II", 1, 5) + b"1234",
        struct.pack(">II", 1, 5) + b"123456",
        struct.pack(">II", 1, 0xFFFFFFFF),
        struct.pack(">II", 2, 5) + struct.pack("<I", 1) + b"x",  # one job, not two
        struct.pack(">II", 0, 5) + struct.pack("<I", 1) + b"x",
        struct.pack(">II", 2, 7) + struct.pack("<I", 1) + b"x" + b"12",  # too short for a length
        struct.pack(">II", 2, 9) + struct.pack("<I", 1) + b"x" + struct.pack("<I", 9),
        struct.pack(">II", 2, 5) + struct.pack("<I", 0xFFFFFFFF) + b"x",
    ],
)
def test_jobs_are_as_many_and_as_long_as_they_say(writer: PacketWriter, data: bytes) -> None:
    with pytest.raises(PacketError):
        bus.read_jobs(writer.packet(13, data))


@pytest.mark.parametrize(("count", "size"), [(0, 104), (1, 0), (1, 103), (1, 105), (65_535, 104)])
def test_gossip_is_as_long_as_its_count_says(writer: PacketWriter, count: int, size: int) -> None:
    with pytest.raises(PacketError):
        bus.read_gossip(writer.packet(0, bytes(size), 0, count))


@pytest.mark.parametrize("size", [0, 39, 41])
def test_a_fail_has_one_length(writer: PacketWriter, size: int) -> None:
    with pytest.raises(PacketError):
        bus.read_fail(writer.packet(3, bytes(size)))


_READERS: list[Callable[[bytes], object]] = [
    bus.read_about_job, bus.read_about_queue, bus.read_jobs, bus.read_gossip, bus.read_fail,
    bus.packet_type, bus.packet_sender, bus.packet_flags, bus.sender_address, bus.sender_flags,
    read_settled, read_row,
]  # fmt: skip


@given(st.binary(max_size=400), st.integers(0, 20), st.integers(0, 4), st.integers(0, 255))
def test_any_data_is_read_or_refused(data: bytes, type: int, count: int, flags: int) -> None:
    packet = PacketWriter(ME, 7711).packet(type, data, flags, count)
    for reader in _READERS:
        try:
            reader(packet)
        except PacketError:
            pass


@given(st.binary(min_size=HEADER_SIZE, max_size=400))
def test_any_bytes_as_long_as_a_header_are_read_or_refused(packet: bytes) -> None:
    for reader in _READERS:
        try:
            reader(packet)
        except PacketError:
            pass


# ---- the parser ---------------------------------------------------------------------------------

_PACKETS = st.builds(
    lambda type, data, flags, count: PacketWriter(ME, 7711).packet(type, data, flags, count),
    st.integers(0, 65_535),
    st.one_of(st.binary(max_size=300), st.integers(0, 5000).map(bytes)),
    st.integers(0, 255),
    st.integers(0, 65_535),
)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Return ``stream`` cut at ``cuts`` (taken modulo its length)."""
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return [stream[a:b] for a, b in itertools.pairwise(places)]


@given(st.lists(_PACKETS, max_size=6), st.lists(st.integers(0, 20_000), max_size=12))
def test_any_split_of_a_stream_gives_the_same_packets(
    packets: list[bytes], cuts: list[int]
) -> None:
    parser = PacketParser()
    found: list[bytes] = []
    fed = 0
    for piece in pieces(b"".join(packets), cuts):
        found += parser.feed(piece)
        fed += len(piece)
        assert parser.pending == fed - sum(map(len, found))
    assert found == packets
    assert parser.pending == 0


@given(st.lists(_PACKETS, min_size=1, max_size=3))
def test_a_stream_byte_by_byte_gives_the_same_packets(packets: list[bytes]) -> None:
    parser = PacketParser()
    found: list[bytes] = []
    for byte in b"".join(packets):
        found += parser.feed(bytes([byte]))
    assert found == packets


@given(
    st.lists(_PACKETS, max_size=2),
    st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda b: b"DbuZ" + b)),
    st.lists(st.integers(0, 20_000), max_size=8),
)
def test_garbage_is_refused_or_cut_into_something_and_nothing_else_happens(
    packets: list[bytes], garbage: bytes, cuts: list[int]
) -> None:
    stream = b"".join(packets) + garbage
    parser = PacketParser()
    found: list[bytes] = []
    try:
        for piece in pieces(stream, cuts):
            found += parser.feed(piece)
    except PacketError:
        assert stream.startswith(b"".join(found))
        return
    assert b"".join(found) == stream[: len(stream) - parser.pending]
    assert all(len(packet) == int.from_bytes(packet[4:8], "big") for packet in found)


@given(
    st.lists(_PACKETS, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255)), min_size=1, max_size=5),
    st.lists(st.integers(0, 20_000), max_size=8),
)
def test_a_stream_with_changed_bytes_never_does_harm(
    packets: list[bytes], changes: list[tuple[int, int]], cuts: list[int]
) -> None:
    stream = bytearray(b"".join(packets))
    for place, value in changes:
        stream[place % len(stream)] = value
    parser = PacketParser()
    found: list[bytes] = []
    try:
        for piece in pieces(bytes(stream), cuts):
            found += parser.feed(piece)
    except PacketError:
        return
    for packet in found:
        for reader in _READERS:
            try:
                reader(packet)
            except PacketError:
                pass


@pytest.mark.parametrize("signature", [b"RCmb", b"dbuZ", b"GET ", b"\x16\3\1\2", bytes(4)])
def test_another_protocol_is_refused(signature: bytes) -> None:
    with pytest.raises(PacketError):
        PacketParser().feed(signature + bytes(200))


@pytest.mark.parametrize("size", [0, 16, 143, MAX_PACKET + 1, 0xFFFFFFFF])
def test_a_length_that_no_packet_has_is_refused(size: int) -> None:
    with pytest.raises(PacketError):
        PacketParser().feed(header(4, size))


@pytest.mark.parametrize("first", range(1, 145))
def test_a_long_packet_of_a_type_that_never_is_is_refused_with_its_header(first: int) -> None:
    parser = PacketParser()
    with pytest.raises(PacketError):  # noqa: PT012
        start = header(0, MAX_CONTROL_PACKET + 1)
        parser.feed(start[:first])
        parser.feed(start[first:])


@pytest.mark.parametrize("type", [4, 13])
def test_jobs_may_be_large(type: int) -> None:
    writer = PacketWriter(ME, 7711)
    packet = writer.packet(type, bytes(3 * MAX_CONTROL_PACKET))
    parser = PacketParser()
    found: list[bytes] = []
    for at in range(0, len(packet), 65_536):
        assert found == []
        found = parser.feed(packet[at : at + 65_536])
    assert found == [packet]
    assert parser.feed(writer.fail(OTHER)) == [writer.fail(OTHER)]


def cut(parser: PacketParser, data: bytes, size: int) -> list[bytes]:
    return [p for at in range(0, len(data), size) for p in parser.feed(data[at : at + size])]


@pytest.mark.parametrize("size", [7, 1000, 1 << 16, 1 << 30])
def test_a_large_packet_that_is_not_wanted_is_passed_over_without_being_held(size: int) -> None:
    writer = PacketWriter(ME, 7711)
    small = writer.fail(OTHER)
    job_id = b"D-" + b"j" * 38
    start = b"\0\0\0\1" + bytes(4) + bytes(4) + job_id
    unwanted = writer.packet(4, start + bytes(2 * MAX_CONTROL_PACKET))
    wanted = writer.packet(13, start + bytes(MAX_CONTROL_PACKET + size % 5))
    asked: list[bytes] = []

    def wants(start: bytes) -> bool:
        asked.append(start)
        return packet_type(start) == 13

    parser = PacketParser(wants)
    if size == 7:  # byte by byte would take too long
        unwanted_parts = unwanted[:700]
        assert cut(parser, small + unwanted_parts, size) == [small]
        assert parser.pending <= LARGE_START
        assert cut(parser, unwanted[700:] + small, 1 << 16) == [small]
    else:
        data = small + unwanted + small + wanted + unwanted + unwanted + small
        assert cut(parser, data, size) == [small, small, wanted, small]
    assert parser.pending == 0
    assert {(packet_sender(start), start[-40:]) for start in asked} == {(ME, job_id)}
    assert len(asked) == (1 if size == 7 else 4)


def test_a_packet_that_began_to_come_is_not_asked_about_again() -> None:
    answers = [True, False]
    parser = PacketParser(lambda start: answers.pop(0))
    packet = PacketWriter(ME, 7711).packet(4, bytes(2 * MAX_CONTROL_PACKET))
    assert cut(parser, packet, 1 << 16) == [packet]
    assert answers == [False]


def test_small_packets_are_not_asked_about() -> None:
    def never(start: bytes) -> bool:
        raise AssertionError

    packet = PacketWriter(ME, 7711).packet(4, bytes(MAX_CONTROL_PACKET - HEADER_SIZE))
    assert PacketParser(never).feed(packet) == [packet]


def test_who_is_asked_may_end_the_link_with_the_header() -> None:
    def refuse(start: bytes) -> bool:
        raise PacketError("a stranger")

    packet = PacketWriter(ME, 7711).packet(4, bytes(2 * MAX_CONTROL_PACKET))
    with pytest.raises(PacketError):
        PacketParser(refuse).feed(packet[:LARGE_START])
