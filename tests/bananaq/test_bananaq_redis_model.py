"""The store in a Redis against the plain model, with a clock that is moved by hand."""

import random
import time

import pytest
from banana_model import Model
from redis_drive import RedisDrive, RedisServer, plain_client, running

from disque_trio.bananaq import redis_lane
from disque_trio.bananaq.core.ops import (
    ACK,
    ADD,
    FLUSH,
    GET,
    LAST,
    NEXT,
    REDO,
    STATUS,
    WORKING,
    Op,
)
from disque_trio.redis_link import Script

pytestmark = pytest.mark.live

QUEUES = [b"a", b"b", b""]
GROUPS = [b"g", b"h", b"okq"]
MS = 1000
# So far ahead that the keys do not expire while the test lasts.
AHEAD = 50 * 365 * 86_400_000_000


class World:
    """A store and the model of it, at the same time."""

    def __init__(self, drive: RedisDrive, port: int, rng: random.Random) -> None:
        self.drive = drive
        self.port = port
        self.rng = rng
        # Ids rise within a queue, so each has a model of its own.
        self.models = {queue: Model() for queue in QUEUES}
        self.ids: list[tuple[bytes, bytes, bytes]] = []
        self.now = time.time_ns() // 1000 + AHEAD
        self.advance(0)

    def advance(self, ms: int) -> None:
        self.now += ms * MS
        with plain_client(self.port) as raw:
            raw.set("clock", self.now)

    async def run(self, ops: list[Op]) -> None:
        """Submit all at once; the answers are those of one after another."""
        await self.drive.run_all(ops)
        for op in ops:
            assert op.error == ""
            if op.kind == STATUS:
                self._check_status(op)
            else:
                self.models[op.queue].check(op, self.now)
            if op.event is not None:
                self.ids.append((op.queue, op.group, op.event.id))

    def _check_status(self, op: Op) -> None:
        there = []
        for queue in QUEUES:
            self.models[queue].pass_time(self.now)
            if self.models[queue].queues:
                there.append(queue)
        assert [found.queue for found in op.status] == (op.queues or sorted(there))
        for found in op.status:
            one = Op(STATUS, b"")
            one.queues = [found.queue]
            one.groups = op.groups
            one.status = [found]
            self.models[found.queue].check(one, self.now)

    def op(self) -> Op:
        """Any operation but one on all queues."""
        rng = self.rng
        queue, group = rng.choice(QUEUES), rng.choice(GROUPS)
        dice = rng.random()
        if dice < 0.4:
            op = Op(ADD, queue, b"okq")
            op.body = rng.randbytes(rng.randrange(40))
            op.expire = rng.choice([-1, 0, 1, 20, 300, 3000, 60_000, 10**8]) * MS
            op.front = rng.random() < 0.15
            if op.front or rng.random() < 0.4:
                op.own_id = b"%d" % rng.randrange(60)
                op.by_own_id = True
        elif dice < 0.65:
            op = Op(rng.choice([GET, GET, GET, NEXT]), queue, group)
        elif dice < 0.85 and self.ids:
            queue, group, id = self.ids[-1 - min(int(rng.expovariate(0.1)), len(self.ids) - 1)]
            op = Op(rng.choice([ACK, ACK, ACK, WORKING, REDO]), queue, group)
            op.id = id
        elif dice < 0.95:
            op = Op(rng.choice([ACK, ACK, WORKING, REDO]), queue, b"okq")
            op.own_id = b"%d" % rng.randrange(60)
            op.by_own_id = True
        else:
            op = Op(FLUSH if dice > 0.998 else LAST, queue)
        op.hold = rng.choice([0, 1, 50, 5000, 10**7]) * MS
        return op


@pytest.mark.parametrize("seed", range(4))
async def test_a_long_life_is_as_the_model_has_it(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    source = redis_lane.OPERATIONS.source.decode()
    moved = source.replace("call('TIME')", "{0, call('GET', 'clock')}")
    assert moved != source
    monkeypatch.setattr(redis_lane, "OPERATIONS", Script(moved))
    rng = random.Random(seed)
    async with running(own_redis.port, pool_size=2) as drive:
        world = World(drive, own_redis.port, rng)
        for _ in range(150):
            await world.run([world.op() for _ in range(rng.choice([1, 1, 2, 10, 40]))])
            world.advance(rng.choice([0, 1, 1, 7, 40, 400, 10_000]))
            if rng.random() < 0.2:
                await world.run([Op(STATUS, b"")])
            some = Op(STATUS, b"")
            some.queues = rng.sample(QUEUES, 2)
            some.groups = rng.sample(GROUPS, rng.randrange(3))
            await world.run([some])
        assert len(world.ids) > 100
