"""Packets that name many jobs, in whole clusters."""

from disque_trio.protocol import bus
from tests.simulator.campaign import simulate
from tests.simulator.plan import SAFETY
from tests.simulator.world import World

SEEDS = 6
TYPES = (bus.REPLJOB, bus.GOTJOB, bus.SETACK, bus.GOTACK, bus.DELJOB)


def names_many(packet: bytes) -> bool:
    """Return whether ``packet`` is one of ``TYPES`` and names several jobs."""
    type = bus.packet_type(packet)
    if type == bus.REPLJOB:
        return len(bus.read_jobs(packet).jobs) > 1
    return type in TYPES and bus.names_many(packet)


def test_nodes_that_pass_over_packets_that_name_many_jobs_end_all_jobs_all_the_same() -> None:
    seen: dict[int, int] = dict.fromkeys(TYPES, 0)

    def as_c_nodes(world: World) -> None:
        def drops(packet: bytes) -> bool:
            many = names_many(packet)
            if many:
                seen[bus.packet_type(packet)] += 1
            return many

        world.drops = drops

    for seed in range(SEEDS):
        assert simulate(seed, SAFETY, "static", spoil=as_c_nodes).problems == []
    assert seen[bus.SETACK]


def test_the_simulated_clusters_send_such_packets_of_all_types() -> None:
    seen: set[int] = set()

    def watched(world: World) -> None:
        def drops(packet: bytes) -> bool:
            if names_many(packet):
                seen.add(bus.packet_type(packet))
            return False

        world.drops = drops

    for seed in range(SEEDS):
        assert simulate(seed, SAFETY, "static", spoil=watched).problems == []
    assert seen == set(TYPES)
