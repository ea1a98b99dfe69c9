"""Limited queues in a cluster: jobs, and parts of ACTIVE, are where clients wait.

While a node has used up its part of a RATE, no jobs move there because of its patterns.
"""

import random

import pytest

from disque_trio.protocol.bus import (
    INCR_DELIVERIES,
    REQUEUED,
)
from disque_trio.protocol.requeued import Requeued
from disque_trio.respserver.client import Client
from tests.support.gifts import given_ids, is_gift
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


@pytest.mark.parametrize("pause", [0, 5000])
def test_a_job_that_another_node_queues_while_a_client_has_it_is_in_hand(pause: int) -> None:
    mesh = limited(2, 1)
    client = wait_on(mesh, 0)
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 20)
    assert mesh[0].got(client) == id
    message = Requeued(id, INCR_DELIVERIES, pause, b"", {})
    mesh.moving.append((1, 0, mesh[1].node.packets.fields(REQUEUED, message.pack())))
    mesh.settle()
    assert in_hand(mesh[0]) == 1
    assert b"client" in mesh[0].fields("SHOW", id, "CLIENT")
    mesh[1]("NACK", id)
    mesh.settle()
    assert in_hand(mesh[0]) == 0


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
        assert len(mesh.told("given")) <= 5


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
    assert len(mesh.told("given")) <= taken * size


@pytest.mark.parametrize("delayed", [False, True])
def test_a_job_that_comes_due_and_was_in_nobodys_hands_frees_no_room(delayed: bool) -> None:
    mesh, _ = used_up(2)
    options = ["DELAY", 1] if delayed else []
    mesh.add(0, "REPLICATE", 1, "RETRY", 600, *options)
    mesh.advance(0.98)
    mesh.told("question")
    mesh.advance(0.04)
    assert mesh.told("question") == []


# ---- RATE -------------------------------------------------------------------------------------


class Workers:
    """Workers on all nodes of ``mesh`` that take jobs of two queues, and work for a while."""

    def __init__(self, mesh: Mesh, number: int, by_pattern: bool) -> None:
        self.mesh = mesh
        self.rng = random.Random(1)
        where = ["PATTERN", "FROM", "q?"] if by_pattern else ["FROM", "qa", "qb"]
        self.request = ["GETJOB", *where]
        self.free: list[tuple[float, int, Client]] = [
            (0.0, index, bench.client())
            for index, bench in enumerate(mesh.nodes)
            for _ in range(number)
        ]
        self.waiting: list[tuple[int, Client]] = []
        self.taken = 0
        self.moved = 0
        mesh.lose = self._count

    def _count(self, source: int, target: int, packet: bytes) -> bool:
        if is_gift(packet):
            self.moved += len(given_ids(packet))
        return False

    def work(self, seconds: float, busy: float) -> None:
        """Take jobs for some time. Each takes ``busy`` seconds on average."""
        for step in range(round(seconds * 100)):
            now = step / 100
            for at, index, client in [one for one in self.free if one[0] <= now]:
                self.free.remove((at, index, client))
                self.waiting.append((index, client))
                self.mesh[index].send(client, *self.request)
            self.mesh.advance(0.01)
            for index, client in [one for one in self.waiting if not one[1].blocked]:
                self.waiting.remove((index, client))
                for reply in self.mesh[index].replies(client):
                    ids = Bench.ids(reply or [])
                    self.taken += self.mesh[index]("ACKJOB", *ids)
                self.free.append((now + self.rng.uniform(0, 2 * busy), index, client))


@pytest.mark.parametrize("by_pattern", [False, True])
@pytest.mark.parametrize(("rate", "number", "busy"), [(20, 2, 0.05), (20, 10, 0.5), (60, 6, 0.05)])
def test_a_rate_is_reached_on_all_nodes_without_moving_jobs_to_and_fro(
    by_pattern: bool, rate: int, number: int, busy: float
) -> None:
    mesh = Mesh(3)
    for name in (b"qa", b"qb"):
        set_policy(*mesh.nodes, name=name, rate=(rate, 1))
        for _ in range(10 * rate):
            mesh[0]("ADDJOB", name, "body", 0, "REPLICATE", 1, "RETRY", 600)
    workers = Workers(mesh, number, by_pattern)
    workers.work(6, busy)
    assert 0.95 <= workers.taken / (6 * 2 * rate) <= 1.05
    assert workers.moved <= 2 * workers.taken


def rated(rate: tuple[int, int], *names: bytes) -> Mesh:
    mesh = Mesh(2)
    for name in names:
        set_policy(*mesh.nodes, name=name, rate=rate)
    return mesh


def take(mesh: Mesh, index: int) -> None:
    """Have a client of a node add and take a job."""
    id = mesh.add(index, "REPLICATE", 1, "RETRY", 600)
    client = wait_on(mesh, index)
    mesh.advance(0.1)
    assert [Bench.ids(reply) for reply in mesh[index].replies(client)] == [[id]]


def test_a_node_gets_no_job_by_pattern_before_it_may_deliver_it() -> None:
    mesh = rated((1, 10), b"q")
    take(mesh, 1)
    client = wait_on(mesh, 1, by_pattern=True)
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 600)
    mesh.told()
    mesh.advance(9.7)
    assert mesh.told("given") == []
    mesh.advance(0.3)
    assert mesh[1].replies(client) == [[[b"q", id, b"body"]]]


def test_jobs_of_other_queues_are_given_meanwhile() -> None:
    mesh = rated((1, 10), b"q")
    take(mesh, 1)
    client = wait_on(mesh, 1, by_pattern=True)
    id = mesh[0].add("q2", "body", "REPLICATE", 1)
    mesh.advance(0.1)
    assert mesh[1].replies(client) == [[[b"q2", id, b"body"]]]


def test_who_is_given_what_it_may_not_deliver_yet_is_given_jobs_of_other_queues() -> None:
    mesh = limited(2, 1)
    holder = wait_on(mesh, 1)
    first = mesh.add(1, "REPLICATE", 1, "RETRY", 600)
    assert mesh[1].got(holder) == first
    client = wait_on(mesh, 1, by_pattern=True)
    second, third = (mesh.add(0, "REPLICATE", 1, "RETRY", 600) for _ in range(2))
    mesh.advance(0.05)
    assert client.blocked
    id = mesh[0].add("q2", "body", "REPLICATE", 1)
    mesh.settle()
    assert mesh[1].replies(client) == [[[b"q2", id, b"body"]]]
    assert (mesh[0]("QLEN", "q"), mesh[1]("QLEN", "q")) == (1, 1)
    for one in (first, second):
        client = wait_on(mesh, 1, by_pattern=True)
        assert mesh[1]("ACKJOB", one) == 1
        mesh.advance(0.1)
        assert mesh[1].got(client) == (second if one == first else third)


@pytest.mark.parametrize("rate", [(0, 0), (10, 1)])
def test_when_a_rate_is_raised_or_lifted_what_it_kept_away_comes(rate: tuple[int, int]) -> None:
    mesh = rated((1, 3_600), b"q")
    take(mesh, 1)
    client = wait_on(mesh, 1, by_pattern=True)
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 600)
    mesh.advance(10)
    assert mesh[1].replies(client) == []
    set_policy(*mesh.nodes, rate=rate)
    mesh.advance(2)
    assert mesh[1].replies(client) == [[[b"q", id, b"body"]]]


def test_a_node_gives_by_pattern_no_more_than_can_be_delivered_soon() -> None:
    mesh = rated((1, 10), b"qa")
    for _ in range(20):
        mesh[0]("ADDJOB", "qa", "body", 0, "REPLICATE", 1, "RETRY", 600)
    for _ in range(4):
        mesh[1].send(mesh[1].client(), "GETJOB", "PATTERN", "FROM", "q*")
    mesh.advance(35)
    assert mesh[0]("QLEN", "qa") >= 15


def test_of_many_limited_queues_some_are_told_and_none_with_a_long_name() -> None:
    names = [b"q", b"q" * 1_000, b"q" * 1_001, b"qa", b"qb"]
    mesh = rated((1, 10), *names)
    limits = mesh[0].node.limits
    assert limits.without_room(10) == []
    for name in names:
        mesh[0].add(name.decode(), "body", "REPLICATE", 1)
        mesh[0].send(mesh[0].client(), "GETJOB", "FROM", name.decode())
        mesh.settle()
    assert limits.without_room(10) == [b"q", b"q" * 1_000, b"qa", b"qb"]
    assert limits.without_room(3) == [b"q", b"q" * 1_000, b"qa"]
    mesh.advance(10)
    assert limits.without_room(10) == []
