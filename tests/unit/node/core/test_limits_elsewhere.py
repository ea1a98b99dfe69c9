"""Limited queues in a cluster: jobs, and parts of ACTIVE, are where clients wait."""

import random

import pytest

from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.support.policies import set_policy


def in_hand(bench: Bench) -> int:
    limit = bench.node.limits.by_name.get(b"q")
    return 0 if limit is None else len(limit.in_hand)


def limited(size: int, active: int) -> Mesh:
    mesh = Mesh(size)
    set_policy(*mesh.nodes, active=active)
    return mesh


def wait_on(mesh: Mesh, index: int, by_pattern: bool = False) -> Client:
    client = mesh[index].client()
    where = ("PATTERN", "FROM", "q*") if by_pattern else ("FROM", "q")
    mesh[index].send(client, "GETJOB", *where)
    mesh.settle()
    return client


def used_up(size: int) -> tuple[Mesh, list[Client]]:
    """Return nodes that have used up their parts of the limit, each with a client that waits."""
    mesh = limited(size, size)
    for index in range(size):
        wait_on(mesh, index)
        mesh.add(index, "REPLICATE", 1, "RETRY", 600)
        mesh.advance(0.05)
    clients = [wait_on(mesh, index) for index in range(size)]
    mesh.advance(0.05)
    return mesh, clients


def end_one(mesh: Mesh, index: int) -> None:
    """End the job that a client of a node has."""
    (id,) = mesh[index].node.limits.by_name[b"q"].in_hand
    assert mesh[index]("ACKJOB", id) == 1


@pytest.mark.parametrize("here", [0, 1])
def test_a_job_goes_where_there_is_room_though_clients_wait_here_too(here: int) -> None:
    mesh, clients = used_up(2)
    there = 1 - here
    end_one(mesh, there)
    mesh.settle()
    id = mesh.add(here, "REPLICATE", 1, "RETRY", 600)
    assert mesh[there].replies(clients[there]) == [[[b"q", id, b"body"]]]  # no time has passed


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_job_is_delivered_where_one_has_ended_or_where_it_is(size: int) -> None:
    for here in range(size):
        mesh, clients = used_up(size)
        mesh.told()
        id = mesh.add(here, "REPLICATE", 1, "RETRY", 600)
        mesh.advance(1)
        assert not any(mesh[index].replies(clients[index]) for index in range(size))
        end_one(mesh, (here + 1) % size)
        mesh.advance(0.05)
        replies = [one for index in range(size) for one in mesh[index].replies(clients[index])]
        assert replies == [[[b"q", id, b"body"]]]
        # It may go first to some that asked before their parts were used up.
        assert len(mesh.told("yourjobs")) <= 5


@pytest.mark.parametrize("by_pattern", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_whoever_waits_has_a_job_soon_while_there_is_room_anywhere(
    seed: int, by_pattern: float
) -> None:
    """Clients wait, poll and go on several nodes, and jobs come and end, for some seconds."""
    rng = random.Random(seed)
    size = rng.choice((2, 3, 3, 5))
    active = rng.randrange(1, 2 * size)
    mesh = limited(size, active)
    waiting: list[tuple[int, Client]] = []
    busy: list[bytes] = []
    lacking = most = taken = 0
    for _ in range(1_000):
        fate = rng.random()
        index = rng.randrange(size)
        if fate < 0.1 and len(waiting) < 2 * size:
            waiting.append((index, wait_on(mesh, index, rng.random() < by_pattern)))
        elif fate < 0.13 and waiting:
            index, client = waiting.pop(rng.randrange(len(waiting)))
            mesh[index].disconnect(client)
        elif fate < 0.17:
            poller = mesh[index].client()
            mesh[index].send(poller, "GETJOB", "NOHANG", "FROM", "q")
            waiting.append((index, poller))
        elif fate < 0.27:
            mesh.add(index, "REPLICATE", rng.randrange(1, size + 1), "RETRY", 600)
        elif fate < 0.37 and busy:
            mesh[index]("ACKJOB", busy.pop(rng.randrange(len(busy))))
        mesh.advance(0.01)
        for index, client in list(waiting):
            if not client.blocked:
                waiting.remove((index, client))
                got = [id for reply in mesh[index].replies(client) for id in Bench.ids(reply or [])]
                busy += got
                taken += len(got)
        used = sum(map(in_hand, mesh.nodes))
        assert used <= active
        queued = sum(bench.number_queued() for bench in mesh.nodes)
        lacking = lacking + 10 if used < active and waiting and queued else 0
        most = max(most, lacking)
    assert most <= 50
    assert taken > 40
    # Each node may have asked each other one once for each job, and passes it on.
    assert len(mesh.told("yourjobs")) <= taken * size


@pytest.mark.parametrize("delayed", [False, True])
def test_a_job_that_comes_due_and_was_in_nobodys_hands_frees_no_room(delayed: bool) -> None:
    mesh, _ = used_up(2)
    options = ["DELAY", 1] if delayed else []
    mesh.add(0, "REPLICATE", 1, "RETRY", 600, *options)
    mesh.advance(0.98)
    mesh.told("question")
    mesh.advance(0.04)
    assert mesh.told("question") == []
