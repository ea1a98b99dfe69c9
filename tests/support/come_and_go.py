"""Clients that come and go at random."""

import random
from collections.abc import Iterator

from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench


def come_and_go(mesh: Mesh, rng: random.Random, each: int) -> Iterator[None]:
    """Let clients take jobs of q and acknowledge them on three nodes, whose packets are slow, for a
    minute. Yields after each step. ``each``: how many clients a node has."""
    free: list[tuple[int, Client]] = [(i, mesh[i].client()) for i in range(3) for _ in range(each)]
    busy: list[tuple[int, Client]] = []
    taken: list[bytes] = []
    for _ in range(600):
        step = rng.randrange(4)
        if step == 0 and free:
            index, client = free.pop(rng.randrange(len(free)))
            mesh[index].send(client, "GETJOB", "TIMEOUT", rng.randrange(1, 5000), "FROM", "q")
            busy.append((index, client))
        elif step == 1 and taken:
            mesh[rng.randrange(3)]("ACKJOB", taken.pop(rng.randrange(len(taken))))
        elif step == 2:
            for bench in mesh.nodes:  # the packets are slow
                bench.now += 50
                bench.node.tick(bench.now)
        else:
            mesh.settle()
            mesh.advance(rng.random() / 5)
        for index, client in list(busy):
            if not client.blocked:
                busy.remove((index, client))
                free.append((index, client))
                taken += [
                    id for reply in mesh[index].replies(client) if reply for id in Bench.ids(reply)
                ]
        yield
