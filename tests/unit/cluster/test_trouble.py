"""A node that can take no copies says so, and is not chosen for them."""

from disque_trio.cluster.troubles import TROUBLE_MEMORY, trouble_of
from tests.support.cluster_bench import Wires

FULL = trouble_of(False, "No space left on device")


def test_the_others_hear_of_a_full_disk_at_once_and_of_its_end() -> None:
    wires = Wires()
    a, b, c = wires.join(3)
    b.member.set_trouble(FULL)
    wires.run(0.2)
    for other in (a, c):
        peers = other.member
        assert b.id in peers.reachable
        assert b.id not in peers.takers()
        assert peers.cannot_write(b.id)
        assert other.priority(b) == 100
        [obstacle] = peers.obstacles()
        assert obstacle.address.endswith(f":{b.port}")
        assert obstacle.why == "cannot write its file (No space left on device)"
        assert obstacle.trouble == FULL
    b.member.set_trouble(0)
    wires.run(0.2)
    for other in (a, c):
        assert b.id in other.member.takers()
        assert not other.member.cannot_write(b.id)
        assert other.priority(b) == 1
        assert other.member.obstacles() == []


def test_a_node_that_is_short_of_memory_is_still_good_for_clients() -> None:
    wires = Wires()
    a, b = wires.join(2)
    b.member.set_trouble(TROUBLE_MEMORY)
    wires.run(0.2)
    assert a.member.room(False) == 0
    assert a.priority(b) == 1
    assert not a.member.cannot_write(b.id)
    assert [obstacle.why for obstacle in a.member.obstacles()] == ["is short of memory"]


def test_a_node_without_memory_is_worse_for_clients() -> None:
    wires = Wires()
    a, b = wires.join(2)
    b.member.set_trouble(trouble_of(True, "", True))
    wires.run(0.2)
    assert a.member.room(False) == 0
    assert a.priority(b) == 10
    assert [obstacle.why for obstacle in a.member.obstacles()] == ["has no memory left"]
    b.member.set_trouble(TROUBLE_MEMORY)
    wires.run(0.2)
    assert a.priority(b) == 1


def test_a_node_with_a_slow_disk_is_worse_for_clients_and_still_takes_copies() -> None:
    wires = Wires()
    a, b = wires.join(2)
    b.member.set_trouble(trouble_of(False, "", slow=True))
    wires.run(0.2)
    assert a.member.has_slow_disk(b.id)
    assert a.member.room(False) == 1
    assert a.member.obstacles() == []
    assert a.priority(b) == 10
    b.member.set_trouble(0)
    wires.run(0.2)
    assert not a.member.has_slow_disk(b.id)
    assert a.priority(b) == 1


def test_nothing_is_said_without_extensions() -> None:
    wires = Wires()
    a, b = wires.join(2)
    b.member.set_extensions("no")
    b.member.set_trouble(FULL)
    wires.run(2)
    assert a.member.takers() == [b.id]


def test_a_node_that_is_down_or_leaves_is_an_obstacle() -> None:
    wires = Wires(2_000)
    a, b, c = wires.join(3)
    b.member.set_leaving(True)
    c.member.set_trouble(FULL)
    wires.run(0.2)
    wires.isolate(c)
    wires.run(20)
    # What the node that is down said last may no longer be true.
    found = {(obstacle.why, obstacle.trouble) for obstacle in a.member.obstacles()}
    assert found == {("is leaving the cluster", 0), ("is down", 0)}
