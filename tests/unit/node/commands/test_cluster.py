"""CLUSTER and the list of HELLO."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from disque_trio.cluster.links import Link
from disque_trio.cluster.membership import Membership
from disque_trio.protocol.bus import (
    MEET,
    NODE_FAIL,
    NODE_LEAVING,
    NODE_PFAIL,
    PING,
    PONG,
    PacketWriter,
    packet_type,
    sender_flags,
)
from disque_trio.respserver.host import Host
from tests.support.node_bench import START, Bench


class Wire(Link):
    """Records what was sent."""

    __slots__ = ("sent",)

    def __init__(self, outgoing: bool) -> None:
        super().__init__(outgoing)
        self.sent: list[bytes] = []

    def send(self, packet: bytes) -> None:
        self.sent.append(packet)

    def close(self) -> None:
        self.up = False


class Net:
    """Records the links that were begun."""

    def __init__(self) -> None:
        self.links: dict[tuple[str, int], Wire] = {}

    def connect(self, ip: str, port: int) -> Link:
        link = self.links[ip, port] = Wire(True)
        return link


class ClusterBench(Bench):
    """A node in a cluster whose other nodes are played by the test."""

    def __init__(self) -> None:
        self.net = Net()
        id = b"%040x" % random.Random(1).getrandbits(160)
        self.save: Callable[[str], str | None] = lambda text: None
        self.membership = Membership(
            PacketWriter(id, 7711), self.net.connect, random.Random(2), lambda text: self.save(text)
        )
        super().__init__(seed=1, peers=self.membership)
        assert self.node.id == id
        self.membership.me.ip = "10.0.0.1"
        self.membership.cron(START)

    def meet(self, number: int, process: bytes = b"") -> bytes:
        """Meet node ``number``, which answers, and is this ``process`` of its server; return its
        id."""
        id = f"{number}".encode() * 40
        assert self("CLUSTER", "MEET", f"10.0.0.{number}", 7711) == b"OK"
        self.membership.cron(self.now)
        link = self.net.links[f"10.0.0.{number}", 17711]
        link.up = True
        link.remote_ip = f"10.0.0.{number}"
        self.membership.opened(link, self.now)
        assert packet_type(link.sent[0]) == MEET
        writer = PacketWriter(id, 7711)
        writer.process = process
        writer.refresh()
        self.membership.receive(link, writer.gossip(PONG, []), self.now)
        return id

    def fields(self) -> dict[str, str]:
        """Return the fields of CLUSTER INFO."""
        lines = self.text("CLUSTER", "INFO").split("\r\n")
        assert lines.pop() == ""
        return dict(line.split(":", 1) for line in lines)


@pytest.fixture
def joined() -> ClusterBench:
    return ClusterBench()


def test_meet_begins_a_handshake_which_nodes_hello_and_info_show(joined: ClusterBench) -> None:
    assert joined("CLUSTER", "MEET", "10.0.0.2", "7712") == b"OK"
    assert joined("CLUSTER", "MEET", "10.0.0.2", "7712") == b"OK"  # one is under way
    me, other = joined.text("CLUSTER", "NODES").splitlines()
    assert me == f"{joined.node.id.decode()} 10.0.0.1:7711 myself 0 0 connected"
    id, *rest = other.split()
    assert rest == ["10.0.0.2:7712", "handshake", "0", "0", "disconnected"]
    hello = joined("HELLO")
    assert isinstance(hello, list)
    assert hello[:2] == [1, joined.node.id]
    assert hello[2] == [joined.node.id, b"10.0.0.1", b"7711", b"1"]
    assert hello[3] == [id.encode(), b"10.0.0.2", b"7712", b"5"]
    assert joined.fields() == {
        "cluster_state": "ok",
        "cluster_known_nodes": "2",
        "cluster_reachable_nodes": "0",
        "cluster_size": "1",
        "cluster_stats_messages_sent": "0",
        "cluster_stats_messages_received": "0",
    }


def test_members_that_are_processes_of_a_server_are_shown_together(joined: ClusterBench) -> None:
    assert joined("CLUSTER", "PROCESSES") == [[[0, joined.node.id, b"10.0.0.1", b"7711", b"1"]]]
    second = joined.meet(2, b"servname\1\2")
    alone = joined.meet(3)
    first = joined.meet(4, b"servname\0\2")
    assert joined("CLUSTER", "PROCESSES") == [
        [[0, joined.node.id, b"10.0.0.1", b"7711", b"1"]],
        [[0, first, b"10.0.0.4", b"7711", b"1"], [1, second, b"10.0.0.2", b"7711", b"1"]],
        [[0, alone, b"10.0.0.3", b"7711", b"1"]],
    ]
    assert len(joined.text("CLUSTER", "NODES").splitlines()) == 4
    known = joined.membership
    assert known.states() == {"ok": 4, "pfail": 0, "fail": 0, "handshake": 0}
    assert known.node_states() == {"ok": 3, "pfail": 0, "fail": 0, "handshake": 0}
    known._known[first].flags |= NODE_FAIL
    assert known.node_states() == {"ok": 3, "pfail": 0, "fail": 0, "handshake": 0}
    known._known[second].flags |= NODE_PFAIL
    known._known[alone].flags |= NODE_FAIL
    assert known.node_states() == {"ok": 1, "pfail": 1, "fail": 1, "handshake": 0}


def test_a_node_that_was_met_is_counted_and_shown(joined: ClusterBench) -> None:
    second = joined.meet(2)
    third = joined.meet(3)
    assert joined.fields() == {
        "cluster_state": "ok",
        "cluster_known_nodes": "3",
        "cluster_reachable_nodes": "2",
        "cluster_size": "3",
        "cluster_stats_messages_sent": "2",
        "cluster_stats_messages_received": "2",
    }
    _, *lines = joined.text("CLUSTER", "NODES").splitlines()
    assert lines == [
        f"{id.decode()} 10.0.0.{n}:7711 noflags 0 {START} connected"
        for n, id in ((2, second), (3, third))
    ]
    hello = joined("HELLO")
    assert isinstance(hello, list)
    assert hello[3:] == [
        [second, b"10.0.0.2", b"7711", b"1"],
        [third, b"10.0.0.3", b"7711", b"1"],
    ]


@pytest.mark.parametrize(
    ("typed", "ip"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("FD00:0:0::1", "fd00::1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
    ],
)
@pytest.mark.parametrize("port", [1, 55_535])
def test_meet_takes_ip_literals_of_both_kinds(
    joined: ClusterBench, typed: str, ip: str, port: int
) -> None:
    assert joined("CLUSTER", "MEET", typed, port) == b"OK"
    (peer,) = joined.membership.others()
    assert (peer.ip, peer.port) == (ip, port)
    joined.membership.cron(joined.now)
    assert list(joined.net.links) == [(ip, port + 10_000)]


@pytest.mark.parametrize(
    ("ip", "port", "problem"),
    [
        ("10.0.0.2", "x", "ERR Invalid TCP port specified: x"),
        ("10.0.0.2", "77 11", "ERR Invalid TCP port specified: 77 11"),
        ("10.0.0.2", "9" * 30, "ERR Invalid TCP port specified: " + "9" * 30),
        ("10.0.0.2", "0", "ERR Invalid node address specified: 10.0.0.2:0"),
        ("10.0.0.2", "-1", "ERR Invalid node address specified: 10.0.0.2:-1"),
        ("10.0.0.2", "55536", "ERR Invalid node address specified: 10.0.0.2:55536"),
        ("localhost", "0", "ERR Invalid node address specified: localhost:0"),
        ("localhost", "x", "ERR Invalid TCP port specified: x"),
        ("host name", "7711", "ERR Invalid node address specified: host name:7711"),
        ("host\0", "7711", "ERR Invalid node address specified: host\0:7711"),
        ("h" * 300, "7711", f"ERR Invalid node address specified: {'h' * 300}:7711"),
        ("h.." + "o" * 9, "7711", "ERR Invalid node address specified: h..ooooooooo:7711"),
        ("127.1", "7711", "ERR Invalid node address specified: 127.1:7711"),
        ("0x7f000001", "7711", "ERR Invalid node address specified: 0x7f000001:7711"),
        ("10.0.0.256", "7711", "ERR Invalid node address specified: 10.0.0.256:7711"),
        ("10.0.0", "7711", "ERR Invalid node address specified: 10.0.0:7711"),
        ("010.0.0.1", "7711", "ERR Invalid node address specified: 010.0.0.1:7711"),
        ("fe80::1%lo", "7711", "ERR Invalid node address specified: fe80::1%lo:7711"),
        ("", "7711", "ERR Invalid node address specified: :7711"),
        ("é", "7711", "ERR Invalid node address specified: é:7711"),
    ],
)
def test_meet_refuses_invalid_addresses(
    joined: ClusterBench, ip: str, port: str, problem: str
) -> None:
    assert joined.error("CLUSTER", "MEET", ip, port) == problem
    assert joined.membership.others() == []


def test_meet_of_a_name_is_answered_when_it_is_looked_up(joined: ClusterBench) -> None:
    joined.send(joined.me, "CLUSTER", "MEET", "node-2.example.org", "7711")
    ((name, found),) = joined.host.wishes
    assert name == "node-2.example.org"
    assert joined.raw(joined.me) == b""
    assert joined.me.blocked
    assert joined.ask(joined.client(), "PING") == b"PONG"
    found(["10.0.0.2", "fd00::2"])
    assert joined.replies(joined.me) == [b"OK"]
    assert not joined.me.blocked
    joined.membership.cron(joined.now)
    assert list(joined.net.links) == [("10.0.0.2", 17_711), ("fd00::2", 17_711)]


def test_meet_of_a_name_that_has_no_address_is_an_error(joined: ClusterBench) -> None:
    joined.send(joined.me, "CLUSTER", "MEET", "nowhere.invalid", "7711")
    joined.host.wishes[0][1]([])
    (refused,) = joined.replies(joined.me)
    assert str(refused) == "ERR No address found for 'nowhere.invalid'"
    assert joined.membership.others() == []


def test_meet_of_a_name_is_begun_although_the_client_is_gone(joined: ClusterBench) -> None:
    client = joined.client()
    joined.send(client, "CLUSTER", "MEET", "node-2", "7711")
    joined.disconnect(client)
    joined.host.wishes[0][1](["10.0.0.2"])
    joined.node.commit()
    assert [peer.ip for peer in joined.membership.others()] == ["10.0.0.2"]


def test_meet_of_a_name_in_a_group_has_its_place(joined: ClusterBench) -> None:
    joined("MULTI")
    joined("CLUSTER", "MEET", "node-2", "7711")
    joined("PING")
    joined.send(joined.me, "EXEC")
    joined.finish(joined.me)
    assert joined.raw(joined.me) == b"*2\r\n"
    joined.host.wishes[0][1](["10.0.0.2"])
    assert joined.replies(joined.me) == [b"OK", b"PONG"]


def test_meet_of_a_name_may_be_silent(joined: ClusterBench) -> None:
    joined.send(joined.me, "CLIENT", "REPLY", "SKIP")
    joined.send(joined.me, "CLUSTER", "MEET", "node-2", "7711")
    joined.host.wishes[0][1](["10.0.0.2"])
    assert joined("PING") == b"PONG"


def test_a_node_without_a_process_knows_no_names(joined: ClusterBench) -> None:
    joined.node.host = Host()
    assert joined.error("CLUSTER", "MEET", "node-2", "7711") == "ERR No address found for 'node-2'"


def test_forget_takes_a_node_out(joined: ClusterBench) -> None:
    second = joined.meet(2)
    link = joined.net.links["10.0.0.2", 17711]
    assert joined("CLUSTER", "FORGET", second) == b"OK"
    assert not link.up
    assert joined.fields()["cluster_size"] == "1"
    assert joined.error("CLUSTER", "FORGET", second) == f"ERR Unknown node {second.decode()}"


@pytest.mark.parametrize("id", [b"x", b"", b"A" * 40, b"0" * 39, b"0" * 41, b"\xff" * 40])
def test_forget_refuses_invalid_ids(joined: ClusterBench, id: bytes) -> None:
    assert joined.error("CLUSTER", "FORGET", id) == "ERR Invalid node identifier"


def test_a_node_does_not_forget_itself(joined: ClusterBench) -> None:
    problem = "ERR I tried hard but I can't forget myself..."
    assert joined.error("CLUSTER", "FORGET", joined.node.id) == problem


@pytest.mark.parametrize("words", [[], ["SOFT"], ["soft"], ["HARD"], ["hard"]])
def test_reset_forgets_nodes_and_jobs_and_hard_the_id_as_well(
    joined: ClusterBench, words: list[str]
) -> None:
    joined.meet(2)
    job = joined.add("q", "b", "REPLICATE", 1)
    old = joined.node.id
    assert joined("CLUSTER", "RESET", *words) == b"OK"
    assert not joined.held(job)
    assert joined.fields()["cluster_known_nodes"] == "1"
    me = joined("CLUSTER", "MYID")
    assert (me != old) == (words in (["HARD"], ["hard"]))
    assert me == joined.membership.packets.id == joined.node.id
    assert joined.text("CLUSTER", "NODES").startswith(f"{joined.node.id.decode()} ")
    assert joined.membership.config_changed


def test_an_invalid_argument_resets_nothing(joined: ClusterBench) -> None:
    joined.meet(2)
    assert joined.error("CLUSTER", "RESET", "ALL") == "ERR syntax error"
    assert joined.fields()["cluster_known_nodes"] == "2"


def test_leaving_is_announced_and_shown(joined: ClusterBench) -> None:
    joined.meet(2)
    link = joined.net.links["10.0.0.2", 17711]
    assert joined("CLUSTER", "LEAVING") == b"no"
    assert joined("CLUSTER", "LEAVING", "YES") == b"OK"
    assert joined("CLUSTER", "LEAVING") == b"yes"
    assert " myself,leaving " in joined.text("CLUSTER", "NODES")
    hello = joined("HELLO")
    assert isinstance(hello, list)
    assert hello[2][3] == b"100"
    assert hello[3][3] == b"1"
    joined.membership.receive(link, PacketWriter(b"2" * 40, 7711).gossip(PING, []), joined.now)
    assert sender_flags(link.sent[-1]) & NODE_LEAVING
    assert joined("CLUSTER", "RESET") == b"OK"
    assert joined("CLUSTER", "LEAVING") == b"yes"  # a reset does not change its mind
    assert joined("CLUSTER", "LEAVING", "no") == b"OK"
    assert " myself " in joined.text("CLUSTER", "NODES")
    problem = "ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"
    assert joined.error("CLUSTER", "LEAVING", "maybe") == problem


def test_hello_shows_a_node_that_leaves_as_the_last_choice(joined: ClusterBench) -> None:
    second = joined.meet(2)
    packets = PacketWriter(second, 7711)
    packets.flags |= NODE_LEAVING
    packets.refresh()
    link = joined.net.links["10.0.0.2", 17711]
    joined.membership.receive(link, packets.gossip(PONG, []), joined.now)
    hello = joined("HELLO")
    assert isinstance(hello, list)
    assert hello[3] == [second, b"10.0.0.2", b"7711", b"100"]
    assert joined.fields()["cluster_reachable_nodes"] == "0"
    assert joined.fields()["cluster_size"] == "2"


def test_saveconfig_saves_or_says_why_not(joined: ClusterBench) -> None:
    saved: list[str] = []

    def save(text: str) -> str | None:
        saved.append(text)
        return None if len(saved) == 1 else "No space left on device"

    joined.save = save
    second = joined.meet(2)
    assert joined("CLUSTER", "SAVECONFIG") == b"OK"
    assert second.decode() in saved[0]
    problem = "ERR error saving the cluster node config: No space left on device"
    assert joined.error("CLUSTER", "SAVECONFIG") == problem


@pytest.mark.parametrize(
    "words",
    [
        ["NONSENSE"], ["NODES", "x"], ["INFO", "x"], ["MYID", "x"], ["MEET"], ["MEET", "10.0.0.1"],
        ["MEET", "10.0.0.1", "1", "2"], ["FORGET"], ["FORGET", "x", "y"], ["SAVECONFIG", "x"],
        ["RESET", "soft", "x"], ["LEAVING", "yes", "x"], ["SLOTS"],
    ],
)  # fmt: skip
def test_anything_else_is_an_error(joined: ClusterBench, words: list[str]) -> None:
    problem = "ERR Wrong CLUSTER subcommand or number of arguments"
    assert joined.error("CLUSTER", *words) == problem


def test_a_node_without_a_bus_answers_for_itself(bench: Bench) -> None:
    line = f"{bench.node.id.decode()} :0 myself 0 0 connected\n"
    assert bench.text("CLUSTER", "NODES") == line
    assert "cluster_known_nodes:1\r\n" in bench.text("CLUSTER", "INFO")
    assert bench("CLUSTER", "SAVECONFIG") == b"OK"
    old = bench.node.id
    assert bench("CLUSTER", "RESET", "HARD") == b"OK"
    assert bench("CLUSTER", "MYID") != old
