"""What a node finds wrong with itself and its cluster, with a moved clock."""

import os
from types import SimpleNamespace

from disque_trio.cluster.troubles import TROUBLE_MEMORY
from disque_trio.health.keeper import Fact
from disque_trio.health.table import DROPPED_FOR
from disque_trio.node.core.node import Node
from disque_trio.node.health import NodeFacts, cluster_facts, memory_facts
from disque_trio.respserver.memory import Memory
from tests.support.cluster_bench import Machine, Wires
from tests.support.mesh import Mesh
from tests.support.node_bench import START, Bench


def kinds(facts: list[Fact]) -> list[str]:
    return [fact.kind for fact in facts]


def of_memory(node: Node) -> list[Fact]:
    return list(memory_facts(node.memory, node.peers, node.replicas.usual_copies()))


def of_cluster(machine: Machine) -> list[Fact]:
    return list(cluster_facts(machine.member))


def test_a_node_that_is_lost_is_named_until_it_is_back() -> None:
    wires = Wires()
    *rest, dead = wires.join(3)
    assert not of_cluster(rest[0])
    dead.crash()
    wires.wait(lambda: "peer-lost" in kinds(of_cluster(rest[0])), 40)
    wires.wait(lambda: "most nodes agree" in str(of_cluster(rest[0])), 40)
    (lost,) = of_cluster(rest[0])
    address = f"{dead.ip}:{dead.port}"
    assert lost.about == address
    assert address in lost.cause
    assert dead.id[:8].decode() in lost.cause
    dead.boot(dead.id)
    wires.wait(wires.meshed, 3)
    assert not of_cluster(rest[0])


def test_a_connection_that_is_missing_is_named() -> None:
    wires = Wires()
    one, two, _ = wires.join(3)
    wires.block((one, two))
    for link in one.links:
        if link.outgoing and link.other is not None and link.other.machine is two:
            link.close()
    wires.wait(lambda: "peer-unlinked" in kinds(of_cluster(one)), 5)
    assert of_cluster(one)[0].about == f"{two.ip}:{two.port}"


def test_a_connection_that_the_other_side_only_accepts_counts_as_missing() -> None:
    wires = Wires()
    one, two, _ = wires.join(3)
    [link] = [link for link in one.links if link.outgoing and link.other.machine is two]
    link.answered = False
    assert link.up
    assert kinds(of_cluster(one)) == ["peer-unlinked"]
    wires.wait(lambda: not of_cluster(one), 2)


def test_only_the_side_without_a_majority_is_split() -> None:
    wires = Wires()
    machines = wires.join(5)
    for machine in machines[:3]:
        for other in machines[3:]:
            wires.block((machine, other), (other, machine))
            ends = {machine, other}
            for link in [*machine.links, *other.links]:
                if link.other is not None and {link.machine, link.other.machine} == ends:
                    link.close()
    wires.wait(lambda: "split" in kinds(of_cluster(machines[3])), 40)
    wires.wait(lambda: kinds(of_cluster(machines[0])).count("peer-lost") == 2, 40)
    wires.wait(lambda: kinds(of_cluster(machines[4])).count("peer-lost") == 3, 40)
    assert "split" not in kinds(of_cluster(machines[0]))


def test_of_two_nodes_one_that_is_lost_is_no_split() -> None:
    wires = Wires()
    one, two = wires.join(2)
    two.crash()
    wires.wait(lambda: kinds(of_cluster(one)) == ["peer-lost"], 40)


def fill(bench: Bench, percent: int) -> None:
    memory = bench.node.memory
    memory.used = memory.limit * percent // 100


def test_short_memory_is_worse_if_no_other_node_takes_jobs() -> None:
    bench = Bench(maxmemory=1 << 20)
    fill(bench, 75)
    assert not of_memory(bench.node)
    fill(bench, 80)
    assert kinds(of_memory(bench.node)) == ["memory-refuses"]
    fill(bench, 96)  # any server can have that
    assert not of_memory(bench.node)
    mesh = Mesh(3, maxmemory=1 << 20)
    fill(mesh[0], 80)
    mesh[0].node.replicas.default_copies = 2
    assert kinds(of_memory(mesh[0].node)) == ["memory-short"]
    mesh[0].node.replicas.default_copies = 3
    assert kinds(of_memory(mesh[0].node)) == ["memory-refuses"]


def test_a_node_tells_that_memory_is_short_on_too_many_others() -> None:
    wires = Wires()
    machines = wires.join(3)
    for short in machines[1:]:
        short.member.set_trouble(TROUBLE_MEMORY)
    memory, peers = Memory(1 << 20), machines[0].member
    wires.wait(lambda: kinds(list(memory_facts(memory, peers, 2))) == ["memory-refuses"], 10)
    assert not list(memory_facts(memory, peers, 1))
    machines[1].member.set_trouble(0)
    wires.wait(lambda: not list(memory_facts(memory, peers, 2)), 10)


class Surroundings:
    """The files, the event log and the other processes of a node."""

    def __init__(self, bench: Bench) -> None:
        self.pages = SimpleNamespace(problem="", free=1 << 40, size=1 << 40)
        self.pages.space = lambda: (self.pages.free, self.pages.size)
        self.events = SimpleNamespace(problem="", dropped=0)
        self.file = SimpleNamespace(path="nodes.conf", problem="")
        self.silent: list[tuple[int, str]] = []
        (alone,) = Wires().add(1)
        self.facts = NodeFacts(
            bench.node, alone.member, self.pages, self.events, [self.file], lambda: self.silent
        )

    def kinds(self, now: int = START) -> list[str]:
        return kinds(list(self.facts.find(now)))


def test_a_node_that_is_well_has_nothing_to_tell() -> None:
    assert Surroundings(Bench()).kinds() == []


def test_files_are_named() -> None:
    around = Surroundings(Bench())
    around.file.problem = os.strerror(28)
    assert list(around.facts.find(START)) == [
        Fact("own-file", "nodes.conf cannot be written: No space left on device", "nodes.conf")
    ]


def test_jobs_on_disk_count_only_while_jobs_go_there() -> None:
    bench = Bench(maxmemory=1 << 20)
    around = Surroundings(bench)
    around.pages.problem = "it is full"
    around.pages.free = 0
    bench.node.paging.pages.lost = 3
    bench.node.paging.set_above(None, "paging is no")
    assert around.kinds() == []
    bench.node.paging.set_above(1 << 19, "")
    assert around.kinds() == ["pages-write", "pages-lost", "disk-short"]


def test_events_that_were_dropped_count_for_a_while() -> None:
    around = Surroundings(Bench())
    around.events.dropped = 5
    assert around.kinds(START) == ["event-log"]
    assert around.kinds(START + DROPPED_FOR - 1) == ["event-log"]
    assert around.kinds(START + DROPPED_FOR) == []
    around.events.problem = "it cannot be written"
    assert around.kinds(START + DROPPED_FOR) == ["event-log"]


def test_other_processes_that_do_not_answer_are_named() -> None:
    around = Surroundings(Bench())
    around.silent = [(2, "silent")]
    assert list(around.facts.find(START)) == [Fact("process-down", "process 2 is silent", "2")]


def test_while_it_loads_a_node_says_nothing_of_others_or_of_jobs() -> None:
    bench = Bench()
    around = Surroundings(bench)
    bench.node.set_trouble(True, "")
    bench.node.progress.waiting[b"D-1"] = None
    assert around.kinds() == []
    bench.node.set_trouble(False, "")
    assert around.kinds() == ["not-queued"]
