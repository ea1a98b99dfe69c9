"""Large copies of other nodes' jobs, one after another, on a slow disk."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from disque_trio.aof.writer import LARGE
from disque_trio.cluster.bus import Bus
from disque_trio.cluster.buslinks import BusLinks
from disque_trio.cluster.links import Link
from disque_trio.cluster.peers import Peers
from disque_trio.config import Config
from disque_trio.node.core.node import Node
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Log
from disque_trio.protocol.bus import (
    FAIL,
    GOTJOB,
    PacketWriter,
    first_job_id,
    packet_sender,
    packet_type,
    read_about_job,
)
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats
from tests.support.bus_bench import receive
from tests.support.harness import HANG_SECONDS
from tests.support.node_bench import Bench
from tests.support.slow_disk_stage import BODY, Stage, until

ONE_WRITE = LARGE + LARGE // 2  # bytes; the next copy must wait
GOTJOB_SIZE = len(PacketWriter(b"a" * 40, 7711).about_job(GOTJOB, b"D-" + b"j" * 38))


class Members(Peers):
    """One other node, over a real link."""

    config_changed = False

    def __init__(self) -> None:
        super().__init__()
        self._links: dict[bytes, Link] = {}

    def knows(self, id: bytes) -> bool:
        return True

    def accepted(self, link: Link, now: int) -> None: ...
    def opened(self, link: Link, now: int) -> None: ...
    def lost(self, link: Link, now: int) -> None: ...

    def receive(self, link: Link, packet: bytes, now: int) -> bytes:
        sender = packet_sender(packet)
        self._links[sender] = link
        return sender if packet_type(packet) > FAIL else b""

    def send(self, id: bytes, packet: bytes) -> None:
        self._links[id].send(packet)


class Copies(Peers):
    """The sender's view of the cluster: one node for its copies; records the packets for it."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 2
        self.reachable = [b"f" * 40]
        self.packets: list[bytes] = []

    def knows(self, id: bytes) -> bool:
        return True

    def linked(self, id: bytes) -> bool:
        return True

    def send(self, id: bytes, packet: bytes) -> None:
        self.packets.append(packet)


class Neighbour:
    """Another node, which replicates its jobs to the node of ``stage``."""

    def __init__(self, bus: Bus) -> None:
        self._copies = Copies()
        self._bench = Bench(seed=7, peers=self._copies)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._sock = socket.create_connection(listener.getsockname(), HANG_SECONDS)
            inside, peer = listener.accept()
        inside.setblocking(False)
        bus.admit(inside, peer[0], False)

    async def send_copy(self) -> bytes:
        """Send a large job; return its ID."""
        bench = self._bench
        bench.send(bench.client(), "ADDJOB", "theirs", BODY, 0, "REPLICATE", 2)
        bench.node.commit()
        packet = self._copies.packets.pop()
        await trio.to_thread.run_sync(self._sock.sendall, packet)
        return first_job_id(packet)

    async def confirmed(self) -> bytes:
        """Return the ID of the job that is confirmed next."""
        packet = await trio.to_thread.run_sync(receive, self._sock, GOTJOB_SIZE)
        assert packet_type(packet) == GOTJOB
        return read_about_job(packet).id

    def close(self) -> None:
        self._sock.close()


class Cluster(Stage):
    """A node with a neighbour."""

    def __init__(self, path: Path) -> None:
        members = Members()

        def make_bus(
            config: Config, clock: Clock, stats: Stats, log: Log, poller: Poller, node: Node
        ) -> Bus:
            self.links = BusLinks(config, stats, log, poller)
            self.bus = Bus(
                self.links,
                members,
                node.receive,
                lambda id: True,
                lambda: None,
                config,
                clock,
                stats,
                log,
            )
            return self.bus

        super().__init__(path, peers=members, make_links=make_bus)
        self.neighbour = Neighbour(self.bus)

    async def until_taken(self, count: int) -> None:
        """Wait until the node has ``count`` jobs that are being written to the file."""
        await until(lambda: self.engine.hold.on and self.bench.node.store.jobs.count >= count)

    async def put_by(self) -> bytes:
        """Send another large copy, which has to wait outside the node; return its ID."""
        before = self.links.memory
        id = await self.neighbour.send_copy()
        await until(
            lambda: self.links.memory > before + LARGE and not self.links.halves.holdings.total
        )
        return id

    def close(self) -> None:
        self.neighbour.close()
        super().close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


async def test_a_copy_is_confirmed_before_the_next_is_begun(cluster: Cluster) -> None:
    async with cluster.running():
        first = await cluster.neighbour.send_copy()
        await cluster.until_taken(1)
        second = await cluster.put_by()
        cluster.disk.let(ONE_WRITE)
        await cluster.until_taken(2)
        assert await cluster.neighbour.confirmed() == first
        assert cluster.engine.hold.on
        cluster.disk.let(ONE_WRITE)
        assert await cluster.neighbour.confirmed() == second
    assert cluster.loaded() == {first, second}


async def test_a_client_gets_its_reply_before_the_next_is_begun(cluster: Cluster) -> None:
    async with cluster.running():
        adding = cluster.wire()
        await cluster.add_large(adding)
        await cluster.put_by()
        cluster.disk.let(ONE_WRITE)
        await cluster.until_taken(2)
        assert isinstance(await adding.reply(), bytes)
        assert cluster.engine.hold.on


async def test_clients_have_their_turn_between_two_copies(cluster: Cluster) -> None:
    async with cluster.running():
        adding, getting = cluster.wire(), cluster.wire()
        await cluster.neighbour.send_copy()
        await cluster.until_taken(1)
        await adding.send(("PING",), ("ADDJOB", "q", "small", 0))
        assert await adding.reply() == b"PONG"
        await getting.send(("PING",), ("GETJOB", "FROM", "q"))
        assert await getting.reply() == b"PONG"
        await cluster.put_by()
        cluster.disk.let(ONE_WRITE)
        await cluster.until_taken(3)
        id = await adding.reply()
        assert await getting.reply() == [[b"q", id, b"small"]]
        assert cluster.engine.hold.on


async def test_what_is_due_is_done_between_two_copies(cluster: Cluster) -> None:
    async with cluster.running():
        delayed = await cluster.wire().ask("ADDJOB", "q", "b", 0, "DELAY", 1)
        assert isinstance(delayed, bytes)
        job = cluster.bench.node.store.jobs.get(delayed)
        assert job is not None
        await cluster.neighbour.send_copy()
        await cluster.until_taken(2)
        await cluster.put_by()
        await until(lambda: cluster.engine.clock.now() > job.qtime + 100)
        assert not cluster.bench.number_queued()
        cluster.disk.let(ONE_WRITE)
        await cluster.until_taken(3)
        assert cluster.bench.number_queued() == 1


async def test_copies_are_taken_although_clients_send_large_jobs_again_and_again(
    cluster: Cluster,
) -> None:
    async with cluster.running(), trio.open_nursery() as nursery:
        adding = cluster.wire()
        cluster.config.max_commands_per_turn = 1
        nursery.start_soon(adding.send, *[("ADDJOB", "q", BODY, 0)] * 5)
        await cluster.until_taken(1)
        id = await cluster.put_by()
        seen = []
        while cluster.bench.node.store.jobs.get(id) is None:
            seen.append(cluster.bench.node.store.jobs.count)
            cluster.disk.let(ONE_WRITE)
            await cluster.until_taken(seen[-1] + 1)
        nursery.cancel_scope.cancel()
    assert len(seen) <= 2


async def test_a_copy_that_was_written_is_confirmed_although_the_next_is_not(
    cluster: Cluster,
) -> None:
    async with cluster.running():
        first = await cluster.neighbour.send_copy()
        await cluster.until_taken(1)
        await cluster.put_by()
        cluster.disk.let(ONE_WRITE)
        await cluster.until_taken(2)
        cluster.disk.failure = OSError(28, "No space left on device")
        cluster.disk.let_all()
        assert await cluster.neighbour.confirmed() == first
        await until(lambda: cluster.bench.node.add_problem)
        cluster.disk.failure = None
        await until(lambda: not cluster.bench.node.add_problem)
        third = await cluster.neighbour.send_copy()
        assert await cluster.neighbour.confirmed() == third
