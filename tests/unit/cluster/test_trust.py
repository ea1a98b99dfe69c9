"""Whom a node trusts: at MEET, through introductions, and never again."""

from random import Random

import pytest

from disque_trio.cluster.keyring import MAX_PINS, Keyring, read_keys
from disque_trio.cluster.links import Link
from disque_trio.cluster.membership import Membership
from disque_trio.cluster.trust import Trust
from disque_trio.protocol.bus import (
    FAIL,
    GOTJOB,
    HEADER_SIZE,
    KEYS,
    MEET,
    PING,
    PONG,
    PacketWriter,
    packet_sender,
    packet_type,
)

NOW = 1_700_000_000_000
A, B, C = b"a" * 40, b"b" * 40, b"c" * 40
KEY = {id: id[:32] for id in (A, B, C)}
WRITER = {id: PacketWriter(id, 7000 + id[0]) for id in (A, B, C)}


class Wire(Link):
    """A link that keeps what is sent over it."""

    def __init__(self, outgoing: bool, ip: str = "192.0.2.7") -> None:
        super().__init__(outgoing)
        self.remote_ip = ip
        self.local_ip = "192.0.2.1"
        self.up = True
        self.sent: list[bytes] = []
        self.closed = False

    def send(self, packet: bytes) -> None:
        self.sent.append(packet)

    def close(self) -> None:
        self.closed = True
        self.up = False

    def types(self) -> list[int]:
        return [packet_type(packet) for packet in self.sent]


class Node:
    """Node A, with links that tests make by hand."""

    def __init__(self) -> None:
        self.opened: list[tuple[tuple[str, int], Wire]] = []
        self.members = Membership(PacketWriter(A, 7000 + A[0]), self._connect, Random(1))
        self.trust: Trust = self.members.use_identity(KEY[A], Keyring())
        self.trust.required = True
        self.gone: list[bytes] = []
        self.trust.close_links = self.gone.extend
        self.told: list[str] = []
        self.trust.tell = lambda text, id, key: self.told.append(text)
        self.now = NOW
        self.members.cron(self.now)

    def _connect(self, ip: str, port: int) -> Link:
        wire = Wire(True, ip)
        self.opened.append(((ip, port), wire))
        return wire

    def cron(self) -> None:
        self.now += 1000
        self.members.cron(self.now)

    def comes(self, id: bytes, key: bytes = b"", wire: Wire | None = None) -> Wire | None:
        """A node shows its id and key. Returns its link, or None if it is refused."""
        wire = wire or Wire(False)
        key = key or KEY[id]
        if self.trust.judge(wire, id, key):
            return None
        wire.peer, wire.key = id, key
        self.trust.proved(wire)
        return wire

    def hears(self, wire: Wire, packet: bytes) -> bytes:
        return self.members.receive(wire, packet, self.now)

    def meets(self, id: bytes, ip: str = "192.0.2.7") -> Wire:
        """CLUSTER MEET with success."""
        self.members.meet(ip, 7000 + id[0])
        self.cron()
        wire = self.opened[-1][1]
        assert self.comes(id, wire=wire) is wire
        self.members.opened(wire, self.now)
        self.hears(wire, WRITER[id].gossip(PONG, []))
        assert self.members.knows(id)
        back = self.comes(id, wire=Wire(False, ip))
        assert back is not None
        self.hears(back, WRITER[id].gossip(PING, []))
        return wire


@pytest.fixture
def node() -> Node:
    return Node()


def about(id: bytes, expelled: bytes = b"") -> bytes:
    """What another node says: the key of ``id``; and which key is expelled."""
    keyring = Keyring()
    keyring.pin(id, KEY[id], B)
    if expelled:
        keyring.decide(expelled, True)
    return WRITER[B].packet(KEYS, keyring.data())


def test_meet_pins_the_key_of_who_answers(node: Node) -> None:
    node.meets(B)
    assert node.trust.keyring.key_of(B) == KEY[B]
    assert node.comes(B, KEY[C]) is None
    assert node.comes(B) is not None


@pytest.mark.parametrize("id", [b"\xff" * 40, b" " * 40, b"A" * 40])
def test_who_shows_no_valid_id_is_refused(node: Node, id: bytes) -> None:
    assert node.trust.judge(Wire(False), id, KEY[B])
    node.members.meet("192.0.2.7", 7098)
    node.cron()
    assert node.trust.judge(node.opened[-1][1], id, KEY[B])


def test_meet_with_a_key_takes_nobody_else(node: Node) -> None:
    node.members.meet("192.0.2.7", 7098, KEY[C])
    node.cron()
    wire = node.opened[-1][1]
    assert node.comes(B, wire=wire) is None
    assert node.comes(B, KEY[C], wire=wire) is wire


def from_before(node: Node, *ids: bytes) -> None:
    """The nodes ``ids`` are members from the time before identities."""
    old = Node()
    for id in ids:
        old.meets(id, f"192.0.2.{id[0]}")
    node.members.load_conf(old.members.dump_conf(), NOW)


def test_meet_of_a_member_without_a_pin_takes_no_other_key_and_id(node: Node) -> None:
    from_before(node, B)
    ip = f"192.0.2.{B[0]}"
    node.members.meet(ip, 7000 + B[0], KEY[B])
    node.cron()
    by_address = {}
    for (_, _), wire in node.opened:
        by_address[wire.node_id] = wire
    to_member = by_address.pop(B)
    (met,) = by_address.values()
    assert node.comes(B, KEY[C], wire=met) is None
    met.peer, met.key = B, KEY[B]  # it has shown its key, but is pinned later
    node.members.opened(met, node.now)
    node.hears(met, WRITER[B].gossip(PONG, []))
    assert node.comes(B, KEY[C], wire=to_member) is None
    assert node.comes(C, KEY[B], wire=to_member) is None
    assert node.comes(B, wire=to_member) is to_member


def test_meet_of_a_member_takes_no_other_node_at_its_address(node: Node) -> None:
    from_before(node, B)
    node.cron()
    (to_member,) = (wire for _, wire in node.opened)
    (member,) = (node.members._known[id] for id in node.members.everyone())
    member.meeting = True
    assert node.comes(C, wire=to_member) is None
    to_member.peer, to_member.key = C, KEY[C]
    node.trust.proved(to_member)
    assert not node.trust.keyring.key_of(C)


def test_a_node_that_knows_nobody_trusts_the_first_that_meets_it(node: Node) -> None:
    first, second = node.comes(B), node.comes(C)
    assert first is not None
    assert second is not None
    assert not node.trust.keyring.pins
    node.hears(first, WRITER[B].gossip(PING, []))
    assert not node.trust.keyring.pins  # that is no MEET
    node.hears(first, WRITER[B].gossip(MEET, []))
    assert node.trust.keyring.key_of(B) == KEY[B]
    node.hears(second, WRITER[C].gossip(MEET, []))
    assert second.closed
    assert not node.trust.keyring.key_of(C)
    assert node.comes(C) is None


def test_a_member_introduces_another_node(node: Node) -> None:
    wire = node.meets(B)
    assert node.comes(C) is None
    node.hears(wire, about(C))
    assert node.trust.keyring.pins[C] == (C, KEY[C], B)
    assert node.comes(C, KEY[B]) is None
    assert node.comes(C) is not None


def test_only_who_is_trusted_introduces_others(node: Node) -> None:
    wire = node.comes(B)
    assert wire is not None
    node.hears(wire, about(C))
    plain = Wire(False)
    node.hears(plain, about(C))
    assert not node.trust.keyring.pins


def test_what_others_say_changes_no_pin(node: Node) -> None:
    node.meets(C)
    wire = node.meets(B, "192.0.2.8")
    keyring = Keyring()
    keyring.pin(C, KEY[B], B)
    keyring.pin(A, KEY[B], B)
    node.hears(wire, WRITER[B].packet(KEYS, keyring.data()))
    assert node.trust.keyring.key_of(C) == KEY[C]
    assert not node.trust.keyring.key_of(A)


def test_two_nodes_that_were_told_to_meet_each_other_do(node: Node) -> None:
    node.meets(B)
    node.members.meet("192.0.2.9", 7000 + C[0])
    assert node.comes(C) is None  # it has another address
    wire = node.comes(C, wire=Wire(False, "192.0.2.9"))
    assert wire is not None
    node.hears(wire, WRITER[C].gossip(MEET, []))
    assert not node.trust.keyring.key_of(C)  # any process at that address could say so
    assert wire.closed
    node.cron()
    assert node.comes(C, wire=node.opened[-1][1])  # that is the one at the port, too
    assert node.trust.keyring.key_of(C) == KEY[C]
    again = node.comes(C, wire=Wire(False, "192.0.2.9"))
    assert again is not None
    node.hears(again, WRITER[C].gossip(MEET, []))
    assert not again.closed
    other = node.comes(B, KEY[A], wire=Wire(False, "192.0.2.9"))
    assert other is None


def test_who_shows_the_key_that_meet_named_is_let_in_when_it_comes(node: Node) -> None:
    node.meets(B)
    node.members.meet("192.0.2.9", 7000 + C[0], KEY[C])
    wire = node.comes(C, wire=Wire(False, "192.0.2.9"))
    assert wire is not None
    node.hears(wire, WRITER[C].gossip(MEET, []))
    assert not wire.closed
    assert node.trust.keyring.key_of(C) == KEY[C]


def test_a_member_from_before_is_pinned_when_it_shows_its_key(node: Node) -> None:
    old = Node()
    old.meets(B)
    node.members.load_conf(old.members.dump_conf(), NOW)
    assert node.trust.unpinned() == 1
    assert node.comes(C) is None
    assert node.comes(B) is not None
    assert node.trust.unpinned() == 0
    assert node.comes(B, KEY[C]) is None


@pytest.mark.parametrize("type", [PING, PONG, MEET, FAIL, GOTJOB, KEYS])
def test_a_member_cannot_speak_as_another(node: Node, type: int) -> None:
    node.meets(C)
    wire = node.meets(B, "192.0.2.8")
    back = node.comes(B)
    assert back is not None
    for link in (wire, back):
        assert node.hears(link, WRITER[C].packet(type, b"")) == b""
        assert link.closed
    assert node.trust.refused == 2
    assert packet_sender(WRITER[C].packet(type, b"")) == C


def test_an_expelled_node_is_parted_with_and_stays_out(node: Node) -> None:
    wire = node.meets(B)
    node.trust.expel(KEY[B])
    assert not node.members.knows(B)
    assert wire.closed
    assert node.gone == [KEY[B]]
    assert node.comes(B) is None
    assert node.comes(C, KEY[B]) is None  # whatever id it takes
    node.members.meet("192.0.2.7", 7098)
    node.cron()
    assert node.comes(B, wire=node.opened[-1][1]) is None
    node.trust.reset()
    assert node.comes(B) is None
    assert node.trust.readmit(KEY[B])
    assert node.comes(B) is not None


def test_a_node_that_knows_only_expelled_ones_can_be_met(node: Node) -> None:
    node.meets(B)
    node.trust.expel(KEY[B])
    node.members.reset(A)
    assert node.comes(B) is None
    wire = node.comes(C)
    assert wire is not None
    node.hears(wire, WRITER[C].gossip(MEET, []))
    assert node.trust.keyring.key_of(C) == KEY[C]


def test_all_members_hear_who_is_expelled(node: Node) -> None:
    node.meets(C)
    wire = node.meets(B, "192.0.2.8")
    wire.sent.clear()
    node.trust.expel(KEY[C])
    assert KEYS in wire.types()
    other = Node()
    heard = other.meets(B)
    other.meets(C, "192.0.2.8")
    other.hears(heard, about(C, KEY[C]))
    assert not other.members.knows(C)
    assert other.comes(C) is None


def test_who_comes_later_hears_who_was_expelled_before(node: Node) -> None:
    node.meets(C)
    node.trust.expel(KEY[C])
    wire = node.meets(B, "192.0.2.8")
    told = [read_keys(sent) for sent in wire.sent if packet_type(sent) == KEYS]
    assert any((KEY[C], 1) in expelled for _, expelled in told)


def test_an_expelled_node_cannot_readmit_itself(node: Node) -> None:
    friend = node.meets(C)
    node.meets(B, "192.0.2.8")
    node.trust.expel(KEY[B])
    keyring = Keyring()
    keyring.decide(KEY[B], True)
    keyring.decide(KEY[B], False)
    node.hears(friend, WRITER[C].packet(KEYS, keyring.data_about([], [KEY[B]])))
    assert node.comes(B) is None


def test_what_is_readmitted_here_is_not_expelled_by_old_news(node: Node) -> None:
    friend = node.meets(C)
    old = WRITER[C].packet(KEYS, about(B, KEY[B])[HEADER_SIZE:])
    node.hears(friend, old)
    assert node.comes(B) is None
    assert node.trust.readmit(KEY[B])
    node.hears(friend, old)
    assert node.comes(B) is not None


def test_what_an_expelled_node_sent_before_does_not_count(node: Node) -> None:
    wire = node.meets(B)
    node.trust.expel(KEY[B])
    node.hears(wire, about(C))
    assert not node.trust.keyring.key_of(C)


def test_an_expelled_node_is_refused_even_where_identity_is_optional(node: Node) -> None:
    node.meets(B)
    node.trust.expel(KEY[B])
    node.trust.required = False
    plain = Wire(False)
    node.hears(plain, WRITER[B].gossip(MEET, []))
    assert not plain.sent
    node.hears(plain, WRITER[C].gossip(MEET, []))
    assert PONG in plain.types()


def test_many_changes_at_once_take_few_lines_and_one_search_for_links(node: Node) -> None:
    wire = node.meets(B)
    searches: list[int] = []
    node.trust.close_links = lambda keys: searches.append(len(keys))
    keyring = Keyring()
    for n in range(MAX_PINS // 2):
        keyring.pin(b"%040x" % n, b"%032x" % n, B)
        keyring.decide(b"%032x" % n, True)
    node.told.clear()
    node.hears(wire, WRITER[B].packet(KEYS, keyring.data()))
    assert len(node.trust.keyring.pins) == 1 + MAX_PINS // 2
    assert len(node.trust.keyring.expelled()) == MAX_PINS // 2
    assert searches == [MAX_PINS // 2]
    assert len(node.told) <= 2


def test_news_are_passed_on_and_nothing_else(node: Node) -> None:
    node.meets(C)
    wire = node.meets(B, "192.0.2.8")
    wire.sent.clear()
    third = b"d" * 40
    keyring = Keyring()
    for id in (B, C, third):
        keyring.pin(id, KEY.get(id, b"d" * 32), B)
    keyring.decide(b"e" * 32, True)
    packet = WRITER[B].packet(KEYS, keyring.data())
    node.hears(wire, packet)
    node.hears(wire, packet)
    told = [read_keys(sent) for sent in wire.sent if packet_type(sent) == KEYS]
    assert told == [([(third, b"d" * 32)], [(b"e" * 32, 1)])]


def test_where_there_is_no_room_for_a_pin_nobody_gets_in(node: Node) -> None:
    node.meets(C)
    for n in range(MAX_PINS):
        node.trust.keyring.pin(b"%040x" % n, b"k" * 32, C)
    node.members.meet("192.0.2.8", 7098)
    node.cron()
    assert node.comes(B, wire=node.opened[-1][1]) is None
    assert node.comes(C) is not None


def test_others_cannot_make_a_node_part_with_itself(node: Node) -> None:
    wire = node.meets(B)
    node.hears(wire, about(B, KEY[A]))
    assert node.trust.judge(Wire(True), A, KEY[A]) == ""
    assert node.gone == []
    assert node.trust.keyring.expelled() == []  # or it would tell new nodes after READMIT


def test_a_forgotten_node_has_no_pin_and_is_not_introduced_for_a_while(node: Node) -> None:
    node.meets(C)
    wire = node.meets(B, "192.0.2.8")
    assert node.members.forget(C)
    assert not node.trust.keyring.key_of(C)
    node.hears(wire, about(C))
    assert not node.trust.keyring.key_of(C)


def test_a_pin_without_a_member_can_be_forgotten(node: Node) -> None:
    wire = node.meets(B)
    node.hears(wire, about(C))
    assert not node.members.knows(C)
    assert node.members.forget(C)
    assert not node.trust.keyring.key_of(C)
    node.hears(wire, about(C))
    assert not node.trust.keyring.key_of(C)
    assert not node.members.forget(C)


def test_this_nodes_id_with_another_key_is_refused(node: Node) -> None:
    assert node.comes(A, KEY[B]) is None
    assert node.comes(A) is not None
    assert not node.trust.keyring.pins
