"""Which nodes run on which host."""

from collections.abc import Callable

from disque_trio.cluster.hosts import Hosts
from disque_trio.cluster.members import Member
from disque_trio.process.addresses import is_loopback
from tests.support.cluster_bench import Machine, Wires

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def id_of(number: int) -> bytes:
    return b"%040d" % number


def table(*places: tuple[str, int]) -> dict[bytes, Member]:
    return {
        id_of(number): Member(id_of(number), ip, port, 0, 0)
        for number, (ip, port) in enumerate(places)
    }


def computed(
    ip: str, port: int, known: dict[bytes, Member], is_own: Callable[[str], bool] = is_loopback
) -> Hosts:
    hosts = Hosts()
    hosts.compute(ip, port, known, sorted(known), is_own)
    return hosts


def test_a_node_that_is_alone_is_on_the_only_host() -> None:
    hosts = computed("", 7711, {})
    assert (hosts.count, hosts.room(False), hosts.room(True)) == (1, 0, 0)


def test_nodes_with_one_address_are_on_one_host() -> None:
    hosts = computed(A, 7711, table((A, 7712), (B, 7711), (B, 7712), (C, 7711)))
    assert hosts.count == 3
    assert hosts.room(False) == 2
    assert hosts.of[id_of(1)] == hosts.of[id_of(2)] != hosts.of[id_of(3)]


def test_another_node_of_the_own_host_has_room_only_for_what_is_not_held_here() -> None:
    hosts = computed(A, 7711, table((A, 7712)))
    assert (hosts.room(False), hosts.room(True)) == (0, 1)


def test_an_address_of_the_own_machine_is_the_own_host() -> None:
    hosts = computed(A, 7711, table(("127.0.0.1", 7712), ("::1", 7713), (B, 7711)))
    assert hosts.count == 2
    assert hosts.of[id_of(0)] == hosts.of[id_of(1)] == hosts.here == A


def test_a_machine_with_several_addresses_is_one_host() -> None:
    known = table((A, 7712), (B, 7713), (C, 7711))
    hosts = computed(A, 7711, known, lambda ip: ip in (A, B))
    assert hosts.count == 2
    assert hosts.of[id_of(0)] == hosts.of[id_of(1)] == A
    assert hosts.room(False) == 1


def test_as_long_as_the_own_address_is_unknown_nobody_is_known_to_be_elsewhere() -> None:
    hosts = computed("", 7711, table((A, 7712), (B, 7711)))
    assert hosts.here == ""
    assert hosts.room(False) == 0


def test_a_node_whose_address_is_unknown_is_on_no_host() -> None:
    hosts = computed(A, 7711, table(("", 0), (B, 7711)))
    assert id_of(0) not in hosts.of
    assert hosts.count == 2


def test_the_processes_of_two_hosts_go_in_pairs() -> None:
    for port, partner in ((7711, 0), (7712, 1), (7713, 0)):
        own = [(A, other) for other in (7711, 7712, 7713) if other != port]
        hosts = computed(A, port, table((B, 8001), (B, 8002), *own))
        assert hosts.partners == [id_of(partner)]


def test_only_a_reachable_node_is_a_partner() -> None:
    known = table((B, 7711), (B, 7712))
    hosts = Hosts()
    hosts.compute(A, 7711, known, [id_of(1)], is_loopback)
    assert hosts.partners == [id_of(1)]


def test_a_membership_knows_its_hosts_once_it_is_told_that_they_matter() -> None:
    wires = Wires()
    first = wires.add(1)[0]
    second = Machine(wires, first.ip, 7712, 8)
    wires.machines.append(second)
    third = wires.add(1)[0]
    for other in (second, third):
        first.member.meet(other.ip, other.port)
    wires.wait(wires.meshed, 30)
    assert first.member.places() == 3
    assert first.member.room(False) == 2
    for machine in (first, second, third):
        machine.member.spread(True)
    assert [m.member.places() for m in (first, second, third)] == [2, 2, 2]
    assert [m.member.room(False) for m in (first, second, third)] == [1, 1, 1]
    assert [m.member.room(True) for m in (first, second, third)] == [2, 2, 1]
    assert first.member.partners() == second.member.partners() == [third.id]
    assert first.member.place(second.id) == first.member.here() == first.ip
    first.member.forget(third.id)
    assert first.member.places() == 1


def test_when_all_nodes_fail_at_once_the_system_is_asked_about_each_address_once() -> None:
    wires = Wires()
    (machine,) = wires.add(1)
    member = machine.member
    nodes = "".join(f"{n:040x} 192.0.2.{n}:7711 noflags 0 0 connected\n" for n in range(200))
    member.load_conf(f"{'a' * 40} :7711 myself 0 0 connected\n{nodes}", wires.now)
    asked: list[str] = []
    machine.is_own_address = lambda ip: bool(asked.append(ip))
    member.spread(True)
    assert len(member.reachable) == 200
    while member.reachable:
        asked.clear()
        member.cron(wires.now)
        wires.now += 500
    assert (member.places(), member.room(False)) == (200, 0)
    assert len(asked) == 200


def test_the_announced_address_says_which_host_it_is() -> None:
    wires = Wires()
    first, second = wires.join(2)
    first.member.packets.ip = second.ip
    first.member.spread(True)
    assert first.member.here() == second.ip
    assert first.member.places() == 1


def test_a_member_is_found_by_its_addresses() -> None:
    wires = Wires()
    first, second = wires.join(2)
    assert first.member.has([(C, 1), (second.ip, second.port)])
    assert not first.member.has([(second.ip, second.port + 1)])
