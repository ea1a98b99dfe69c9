"""A cluster under random faults, whose producers repeatedly add jobs with keys.

A seed determines which packet arrives next, who adds, takes and acknowledges what at which node,
which node is killed and restarted with its file, and which links are cut. The invariants are
checked all the time.
"""

from io import BytesIO
from random import Random

import hiredis

from disque_trio.aof.format import RecordReader
from disque_trio.node.core.jobs.job import ACTIVE, QUEUED
from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

KEYS = ("k", "l")
KEPT = 20  # s of FOR


class Producer:
    """A client that waits for the reply to one ADDJOB."""

    def __init__(
        self, client: Client, node: int, key: str, kept: bool, since: int, gone: set[bytes]
    ) -> None:
        self.client = client
        self.node = node
        self.key = key
        self.kept = kept
        self.since = since
        self.gone = gone  # jobs that had ended by then on all nodes


class UniqueWorld:
    """See the module.

    Args:
        kept: whether all keys are kept for KEPT s; otherwise as long as their jobs live.

    Attributes:
        problems: broken invariants. answered: ids by key. undecided: ADDJOBs answered with NOUNIQ.
    """

    def __init__(self, seed: int, size: int, kept: bool, files: bool = True) -> None:
        self.rng = Random(seed)
        self.mesh = Mesh(size, seed=seed, jitter=None)
        self.size = size
        self.kept = kept
        self.files_kept = files
        self.files: list[bytearray] = [bytearray() for _ in range(size)]
        self.dead: set[int] = set()
        self.cuts: set[tuple[int, int]] = set()
        self.now = self.mesh[0].now
        self.producers: list[Producer] = []
        self.workers: list[tuple[bytes, bytes]] = []  # ids to acknowledge, with their keys
        self.problems: list[str] = []
        self.log: list[str] = []
        self.living: dict[str, bytes] = {}  # added and unacknowledged jobs, by key
        self.acked: dict[bytes, int] = {}  # when
        self.first: dict[bytes, int] = {}  # when an answered job was first requested
        self.answered: dict[str, list[bytes]] = {key: [] for key in KEYS}
        self.undecided = 0
        self.errors = 0
        self.patient = False  # producers wait for half a minute
        for bench in self.mesh.nodes:
            bench.node.journaling = True

    # ---- events -----------------------------------------------------------------------------

    def run(self, steps: int, faults: bool = True) -> None:
        """Run ``steps`` random steps; then end the faults and let everything settle."""
        rng = self.rng
        calm = rng.choice((0.75, 1, 1))  # some runs have many faults
        for _ in range(steps):
            chance = rng.random()
            if faults and rng.random() > calm:
                chance = 0.93 + 0.07 * chance
            if chance < 0.55:
                for _ in range(rng.choice((1, 1, 2, 8, 30))):
                    self.deliver()
            elif chance < 0.70:
                self.pass_time(rng.choice((1, 5, 20, 60, 300)))
            elif chance < 0.83:
                self.add()
            elif chance < 0.88:
                self.take()
            elif chance < 0.93:
                self.acknowledge()
            elif not faults:
                self.deliver()
            elif chance < 0.945:
                self.kill()
            elif chance < 0.965:
                self.start()
            elif chance < 0.975:
                self.cut()
            elif chance < 0.99:
                self.join()
            else:
                self.disconnect()
            if self.problems:
                return
        self.rest()

    def rest(self) -> None:
        """End all faults: every producer gets a reply, every job is done."""
        while self.dead:
            self.start()
        while self.cuts:
            self.join()
        for _ in range(200):
            while self.mesh.moving:
                self.deliver()
            self.pass_time(100)
            self.take()
            self.acknowledge()
            if self.problems:
                return
        if self.producers:
            self.problems.append(f"{len(self.producers)} producers got no reply")
        for bench in self.mesh.nodes:
            if bench.node.memory.used != bench.counted_memory():
                self.problems.append(
                    f"accounts {bench.node.memory.used} for {bench.counted_memory()}"
                )

    def _some(self) -> int:
        return self.rng.choice([i for i in range(self.size) if i not in self.dead])

    def turn_over(self) -> None:
        """End the turn of every node: write its file, and send its packets and replies."""
        for index, bench in enumerate(self.mesh.nodes):
            if index not in self.dead:
                node = bench.node
                self.files[index] += b"".join(node.journal)
                node.journal.clear()
                node.commit()
        for producer in list(self.producers):
            data = b"".join(producer.client.out)
            if data:
                self.producers.remove(producer)
                reader = hiredis.Reader()
                reader.feed(data)
                self.replied(producer, reader.gets())

    def deliver(self) -> None:
        """Deliver the next packet on some link."""
        links: dict[tuple[int, int], bytes] = {}
        for source, target, packet in self.mesh.moving:
            links.setdefault((source, target), packet)
        if not links:
            return
        source, target = self.rng.choice(sorted(links))
        packet = links[source, target]
        self.mesh.moving.remove((source, target, packet))
        self.mesh[target].node.receive(self.mesh.ids[source], packet, self.now)
        self.turn_over()

    def pass_time(self, ms: int) -> None:
        self.now += ms
        for index, bench in enumerate(self.mesh.nodes):
            if index not in self.dead:
                bench.now = self.now
                bench.node.tick(self.now)
        self.turn_over()

    def add(self) -> None:
        rng = self.rng
        index = self._some()
        bench = self.mesh[index]
        key = rng.choice(KEYS)
        client = bench.client()
        words = [key, str(30_000 if self.patient else rng.choice((300, 1000, 3000))), "RETRY", "2"]
        words += ["REPLICATE", str(rng.choice((1, 2, 2, 3)[: self.size]))]
        if rng.random() < 0.15:
            words.append("ASYNC")
        words += ["UNIQUE", key]
        if self.kept:
            words += ["FOR", str(KEPT)]
        gone = {id for id in self.acked if not self.exists(id)}
        self.producers.append(Producer(client, index, key, self.kept, self.now, gone))
        self.log.append(f"{self.now} {index}: ADDJOB {words}")
        bench.send(client, "ADDJOB", "q", *words)
        self.turn_over()

    def take(self) -> None:
        index = self._some()
        bench = self.mesh[index]
        reply = bench("GETJOB", "NOHANG", "FROM", "q")
        if reply is not None:
            (_, id, key) = reply[0]  # type: ignore[index]
            self.log.append(f"{self.now} {index}: gives {id} {key}")
            self.workers.append((id, key))
            self.added(id, key.decode(), "delivered")
        self.turn_over()

    def acknowledge(self) -> None:
        if self.workers:
            id, key = self.workers.pop(self.rng.randrange(len(self.workers)))
            index = self._some()
            self.log.append(f"{self.now} {index}: ACKJOB {id}")
            self.mesh[index]("ACKJOB", id)
            self.acked.setdefault(id, self.now)
            if self.living.get(key.decode()) == id:
                del self.living[key.decode()]
            self.turn_over()

    def disconnect(self) -> None:
        if self.producers:
            producer = self.producers.pop(self.rng.randrange(len(self.producers)))
            self.log.append(f"{self.now} {producer.node}: a client disconnects")
            self.mesh[producer.node].disconnect(producer.client)
            self.turn_over()

    def kill(self) -> None:
        if len(self.dead) < (self.size - 1) // 2:
            index = self._some()
            self.log.append(f"{self.now} {index}: killed")
            self.dead.add(index)
            self.mesh.isolate(index)
            self.producers = [p for p in self.producers if p.node != index]

    def start(self) -> None:
        if not self.dead:
            return
        index = self.rng.choice(sorted(self.dead))
        self.dead.discard(index)
        mesh = self.mesh
        bench = Bench(
            self.rng.getrandbits(30), peers=mesh.peers[index], id=mesh.ids[index], jitter=None
        )
        bench.now = bench.node.now = self.now
        if self.files_kept:
            for record in RecordReader(BytesIO(bytes(self.files[index]))):
                bench.node.load_record(record, False)
        else:
            self.files[index].clear()
        bench.node.journal.clear()
        bench.node.journaling = True
        mesh.nodes[index] = bench
        for other in range(self.size):
            if (
                other != index
                and other not in self.dead
                and (*sorted((index, other)),) not in (self.cuts)
            ):
                mesh.join(index, other)
        self.log.append(f"{self.now} {index}: started with {bench.node.store.jobs.count} jobs")
        self.turn_over()

    def cut(self) -> None:
        a, b = sorted(self.rng.sample(range(self.size), 2))
        self.log.append(f"{self.now} cut {a} {b}")
        self.cuts.add((a, b))
        self.mesh.cut(a, b)

    def join(self) -> None:
        if self.cuts:
            a, b = self.rng.choice(sorted(self.cuts))
            self.cuts.discard((a, b))
            self.log.append(f"{self.now} join {a} {b}")
            if a not in self.dead and b not in self.dead:
                self.mesh.join(a, b)

    # ---- invariants ---------------------------------------------------------------------------

    def replied(self, producer: Producer, reply: object) -> None:
        self.log.append(f"{self.now} {producer.node}: {producer.key} {reply!r}")
        if not isinstance(reply, (bytes, str)):
            self.errors += 1
            self.undecided += str(reply).startswith("NOUNIQ ")
            if not str(reply).startswith(("NOUNIQ ", "NOREPL ")):
                self.problems.append(str(reply))
            return
        id = reply if isinstance(reply, bytes) else reply.encode()
        key = producer.key
        self.first.setdefault(id, producer.since)
        ended = self.acked.get(id)
        if ended is None:
            self.added(id, key, "answered")
            if not self.exists(id):
                self.problems.append(f"{id!r} was answered and does not exist")
        elif not producer.kept and id in producer.gone:
            self.problems.append(f"{id!r} had ended when it was asked for")
        if producer.kept:
            for other in self.answered[key]:
                if other != id and self.now < self.first[other] + KEPT * 1000 - 1000:
                    self.problems.append(f"{id!r} although the key was kept for {other!r}")
        if id not in self.answered[key]:
            self.answered[key].append(id)

    def added(self, id: bytes, key: str, how: str) -> None:
        """A client learned of the job."""
        if id in self.acked:
            return
        other = self.living.get(key)
        if other is not None and other != id and not self.kept:
            self.problems.append(f"{id!r} {how} while {other!r} lives")
        self.living[key] = id

    def exists(self, id: bytes) -> bool:
        """Whether some node holds it, or will once it is started."""
        for index, bench in enumerate(self.mesh.nodes):
            job = bench.node.store.jobs.get(id)
            held = job is not None and job.state in (ACTIVE, QUEUED)
            if held and (index not in self.dead or id in self.files[index]):
                return True
        return False
