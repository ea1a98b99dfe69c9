"""The models of the network, the clocks and the disks behave like the real ones."""

from random import Random

import pytest

from disque_trio.protocol.bus import SETACK, YOURJOBS, PacketWriter
from tests.simulator.clocks import EPOCH, NodeClock
from tests.simulator.disk import ALWAYS, EVERYSEC, OFF, Disk
from tests.simulator.events import MS, SECOND, EventLoop
from tests.simulator.fabric import BUS_OFFSET, End, Fabric
from tests.simulator.faults import shaped


class Box:
    """A machine that records what it receives."""

    def __init__(self, fabric: Fabric, index: int) -> None:
        self.index = index
        self.ip = f"10.0.0.{index}"
        self.port = 7711
        self.up = True
        self.off = False
        self.incarnation = 1
        self.got: list[bytes] = []
        self.links: list[End] = []
        self.lost: list[End] = []
        self._fabric = fabric
        fabric.add(self)

    def connect(self, other: "Box") -> End:
        return self._fabric.connect(self, other.ip, other.port + BUS_OFFSET)

    def link_accepted(self, link: End) -> None:
        pass

    def link_up(self, link: End) -> None:
        self.links.append(link)

    def link_lost(self, link: End) -> None:
        self.lost.append(link)

    def packets(self, link: End, packets: list[bytes]) -> None:
        self.got += packets


class Net:
    """Two machines."""

    def __init__(self, seed: int = 1, tail: float = 0.2, duplicates: float = 0.0) -> None:
        self.loop = EventLoop()
        self.fabric = Fabric(self.loop, Random(seed), tail, duplicates)
        self.one = Box(self.fabric, 0)
        self.two = Box(self.fabric, 1)
        self.link = self.one.connect(self.two)
        self.both = [(0, 1), (1, 0)]

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.now + int(seconds * SECOND))

    def send(self, *packets: bytes) -> None:
        for packet in packets:
            self.link.send(packet)
        self.fabric.flush()


@pytest.mark.parametrize("seed", range(10))
def test_packets_of_one_link_arrive_in_order(seed: int) -> None:
    net = Net(seed)
    net.run(3)
    sent = [b"%d" % number for number in range(100)]
    for packet in sent:
        net.send(packet)
        net.run(0.01)
    net.run(5)
    assert net.two.got == sent


def test_a_link_is_up_only_when_the_other_side_has_accepted_it() -> None:
    net = Net()
    assert not net.link.up
    net.send(b"too early")
    net.run(3)
    assert net.one.links == [net.link]
    assert net.link.up
    assert (net.link.local_ip, net.link.remote_ip) == ("10.0.0.0", "10.0.0.1")
    assert net.two.got == []


def test_what_is_on_its_way_is_lost_with_the_link_and_both_ends_learn_it() -> None:
    net = Net()
    net.run(3)
    net.send(b"gone")
    net.fabric.break_links(1, 0)
    net.run(5)
    assert net.two.got == []
    assert net.one.lost == [net.link]
    assert len(net.two.lost) == 1
    assert not net.link.up


def test_a_cut_path_swallows_packets_without_a_word() -> None:
    net = Net()
    net.run(3)
    net.fabric.cut_paths([(0, 1)])
    net.send(b"held")
    net.run(60)
    assert net.two.got == []
    assert net.one.lost == []
    assert net.link.hung_since > 0


def test_what_hung_arrives_in_order_when_the_path_is_mended_or_is_lost_with_the_link() -> None:
    endings = set()
    for seed in range(20):
        net = Net(seed)
        net.run(3)
        net.fabric.cut_paths(net.both)
        net.send(b"1")
        net.send(b"2")
        net.fabric.mend_paths(net.both)
        net.run(5)
        if net.one.lost:
            assert net.two.got == []
        else:
            net.send(b"3")
            net.run(5)
            assert net.two.got == [b"1", b"2", b"3"]
        endings.add(bool(net.one.lost))
    assert endings == {True, False}


def test_connecting_through_a_cut_path_hangs_and_then_fails() -> None:
    net = Net()
    net.run(3)
    net.fabric.cut_paths([(1, 0)])  # the answers do not come back
    link = net.one.connect(net.two)
    net.run(0.5)
    assert net.one.lost == []
    net.run(20)
    assert net.one.lost == [link]


@pytest.mark.parametrize("off", [False, True])
def test_connecting_to_a_process_that_is_gone_fails_at_once(off: bool) -> None:
    net = Net(tail=0.0)
    net.two.up = False
    net.two.off = off
    link = net.one.connect(net.two)
    net.run(0.1)
    assert link in net.one.lost
    assert link.refused != off  # who is switched off refuses nothing


def test_a_dead_process_is_noticed() -> None:
    net = Net()
    net.run(3)
    net.two.up = False
    net.fabric.died(net.two, silently=False)
    net.run(3)
    assert net.one.lost == [net.link]
    assert net.two.lost == []


def test_a_closed_link_tells_the_other_side_and_not_the_one_that_closed_it() -> None:
    net = Net()
    net.run(3)
    net.send(b"last words")
    net.link.close()
    net.run(5)
    assert net.two.got == [b"last words"]
    assert len(net.two.lost) == 1
    assert net.one.lost == []


def test_only_what_a_node_says_again_comes_twice() -> None:
    net = Net(duplicates=1.0)
    net.run(3)
    writer = PacketWriter(b"f" * 40, 7711)
    ack = writer.about_job(SETACK, b"D" * 40)
    gift = writer.jobs(YOURJOBS, [b""])
    net.send(ack, gift)
    net.run(5)
    assert net.two.got == [ack, ack, gift]


def test_partitions_have_the_shape_they_are_named_after() -> None:
    rng = Random(1)
    for count in range(3, 8):
        everybody = range(count)
        pairs = {(a, b) for a in everybody for b in everybody if a != b}
        one = shaped("one", count, rng)
        alone = set.intersection(*[set(path) for path in one])
        assert len(alone) == 1
        assert len(one) == 2 * (count - 1)
        ring = pairs - set(shaped("ring", count, rng))
        assert all(sum(a == node for a, _ in ring) == 2 for node in everybody)
        one_way = set(shaped("one-way", count, rng))
        assert one_way
        assert not one_way & {(b, a) for a, b in one_way}
        bridge = pairs - set(shaped("bridge", count, rng))
        assert any(sum(a == node for a, _ in bridge) == count - 1 for node in everybody)
        halves = set(shaped("halves", count, rng))
        assert halves == {(b, a) for a, b in halves}


def test_a_clock_drifts_and_jumps_and_tells_when_a_moment_will_be() -> None:
    clock = NodeClock(offset=5_000, rate=1_050_000)
    assert clock.now(0) == EPOCH + 5_000
    assert clock.now(10 * SECOND) == EPOCH + 5_000 + 10_500
    clock.change(10 * SECOND, 950_000, jump=1_000)
    assert clock.now(10 * SECOND) == EPOCH + 16_500
    for local in range(EPOCH + 16_501, EPOCH + 16_600):
        moment = clock.when(local)
        assert clock.now(moment) == local
        assert clock.now(moment - 2) == local - 1
    assert clock.now(20 * SECOND) == EPOCH + 16_500 + 9_500


def test_the_death_of_a_machine_takes_at_most_the_last_second_of_an_everysec_file() -> None:
    lost = set()
    for seed in range(30):
        disk = Disk(EVERYSEC)
        for number in range(30):
            disk.append([b"%d" % number], (2_000 + 100 * number) * MS)
        lost.add(disk.machine_dies(4_950 * MS, Random(seed)))
        assert disk.records == [b"%d" % number for number in range(len(disk.records))]
    assert min(lost) == 0
    assert 5 < max(lost) <= 11


def test_the_death_of_a_machine_takes_nothing_of_an_always_file() -> None:
    disk = Disk(ALWAYS)
    disk.append([b"1", b"2"], SECOND)
    assert disk.machine_dies(SECOND, Random(1)) == 0
    assert disk.records == [b"1", b"2"]
    assert Disk(OFF).machine_dies(0, Random(1)) == 0
