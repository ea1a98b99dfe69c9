"""QOWNER: the node that is best for a queue."""

import pytest

from disque_trio.cluster.troubles import TROUBLE_FILE, TROUBLE_MEMORY
from disque_trio.node.core.queues.owners import owner
from disque_trio.protocol.bus import NODE_LEAVING, PONG, PacketWriter
from tests.unit.node.commands.test_cluster import ClusterBench

QUEUES = [b"queue-%d" % number for number in range(50)]


class Team(ClusterBench):
    """A node and two others, whose states are set by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.others = [self.meet(2), self.meet(3)]

    def hear(self, number: int, *, extensions: int | None = None, **state: int) -> None:
        """Get a packet of node ``number``, that announces ``state``."""
        packets = PacketWriter(b"%d" % number * 40, 7711)
        if extensions is not None:
            packets.extensions = extensions
        for name, value in state.items():
            setattr(packets, name, value)
        packets.refresh()
        link = self.net.links[f"10.0.0.{number}", 17711]
        self.membership.receive(link, packets.gossip(PONG, []), self.now)

    def owners(self) -> list[bytes]:
        places = self("QOWNER", *QUEUES)
        assert isinstance(places, list)
        return [place[0] for place in places]  # type: ignore[index, misc]


@pytest.fixture
def team() -> Team:
    return Team()


def best(*ids: bytes) -> list[bytes]:
    return [owner(queue, ids) for queue in QUEUES]


def test_a_node_alone_is_the_best_for_all_queues(bench: ClusterBench) -> None:
    assert bench("QOWNER", "q", "r") == [[bench.node.id, b"", b"0"]] * 2


def test_the_best_node_of_each_queue_has_the_address_that_hello_tells(team: Team) -> None:
    assert team.owners() == best(team.node.id, *team.others)
    hello = team("HELLO")
    places = team("QOWNER", *QUEUES)
    assert isinstance(hello, list)
    assert isinstance(places, list)
    listed = [entry[:3] for entry in hello[2:]]  # type: ignore[index]
    assert all(place in listed for place in places)
    assert all(entry in places for entry in listed)


@pytest.mark.parametrize("trouble", [TROUBLE_MEMORY, TROUBLE_FILE])
def test_a_node_that_is_short_of_memory_or_disk_owns_nothing(team: Team, trouble: int) -> None:
    team.hear(2, trouble=trouble)
    assert team.owners() == best(team.node.id, team.others[1])
    team.membership.set_trouble(trouble)
    assert set(team.owners()) == {team.others[1]}
    team.hear(3, trouble=trouble)  # now all are
    assert team.owners() == best(team.node.id, *team.others)


def test_a_node_that_leaves_owns_nothing(team: Team) -> None:
    team.hear(2, flags=NODE_LEAVING)
    assert team.owners() == best(team.node.id, team.others[1])
    team.membership.set_leaving(True)
    assert set(team.owners()) == {team.others[1]}
    team.hear(3, trouble=TROUBLE_MEMORY)
    assert set(team.owners()) == {team.others[1]}
    team.hear(3, flags=NODE_LEAVING)
    assert set(team.owners()) == {team.node.id}


def test_a_c_node_owns_nothing(team: Team) -> None:
    team.hear(2, extensions=0)
    assert team.owners() == best(team.node.id, team.others[1])


def test_a_node_whose_address_is_not_known_owns_nothing(team: Team) -> None:
    team.membership._known[team.others[0]].ip = ""
    assert team.owners() == best(team.node.id, team.others[1])


def test_a_client_with_tls_gets_the_ports_for_tls(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    team.hear(2, tls_port=7712)
    ports = {place[0]: place[2] for place in team("QOWNER", *QUEUES)}  # type: ignore[index, misc, union-attr]
    assert ports[team.others[0]] == b"7711"
    monkeypatch.setattr(team.host, "over_tls", lambda client: True)
    ports = {place[0]: place[2] for place in team("QOWNER", *QUEUES)}  # type: ignore[index, misc, union-attr]
    assert ports[team.others[0]] == b"7712"
    assert ports[team.others[1]] == b"7711"


def test_whoever_asks_needs_a_right_on_each_queue(team: Team) -> None:
    team("ACL", "SETUSER", "shop", "on", ">x", "+@all", "%W~mail.*")
    client = team.client()
    team.ask(client, "AUTH", "shop", "x")
    assert isinstance(team.ask(client, "QOWNER", "mail.in"), list)
    assert "NOPERM" in str(team.ask(client, "QOWNER", "mail.in", "other"))
