"""The store in a Redis compared with a plain model, with a clock that the test moves."""

import random

import pytest

from disque_bananaq.core.requests import (
    Ack,
    Add,
    DeliveryRequest,
    Flush,
    Get,
    Last,
    Next,
    QueueRequest,
    Redo,
    Request,
    Status,
    Working,
    from_now,
)
from disque_bananaq.core.results import Result
from packages.bananaq.tests.support.banana_model import Model
from packages.bananaq.tests.support.redis_drive import MovedDrive, RedisServer, moved

pytestmark = pytest.mark.live

QUEUES = [b"a", b"b", b""]
GROUPS = [b"g", b"h", b"okq"]
MS = 1000


class World:
    """A store and its model."""

    def __init__(self, drive: MovedDrive, rng: random.Random) -> None:
        self.drive = drive
        self.rng = rng
        # Ids increase within a queue, so each queue has its own model.
        self.models = {queue: Model() for queue in QUEUES}
        self.ids: list[tuple[bytes, bytes, bytes]] = []

    async def run(self, requests: list[Request]) -> None:
        """Submit all at once; the results are those of one after another."""
        results = await self.drive.run_all(requests)
        for request, result in zip(requests, results, strict=True):
            assert result.error == ""
            if isinstance(request, Status):
                self._check_status(request, result)
                continue
            assert isinstance(request, QueueRequest)
            self.models[request.queue].check(request, result, self.drive.time)
            if result.event is not None:
                assert isinstance(request, (Get, Next, Last))
                group = b"" if isinstance(request, Last) else request.group
                self.ids.append((request.queue, group, result.event.id))

    def _check_status(self, request: Status, result: Result) -> None:
        there = []
        for queue in QUEUES:
            self.models[queue].pass_time(self.drive.time)
            if self.models[queue].queues:
                there.append(queue)
        assert [found.queue for found in result.queues] == (request.queues or sorted(there))
        for found in result.queues:
            one = Status([found.queue], request.groups)
            self.models[found.queue].check(one, Result(queues=[found]), self.drive.time)

    def request(self) -> Request:
        """Return a random request, except one about all queues."""
        rng = self.rng
        queue, group = rng.choice(QUEUES), rng.choice(GROUPS)
        dice = rng.random()
        id, own_id = b"", None
        kind: type[QueueRequest]
        if dice < 0.4:
            kind, group = Add, b"okq"
            body = rng.randbytes(rng.randrange(40))
            expire = from_now(rng.choice([-1, 0, 1, 20, 300, 3000, 60_000, 10**8]) * MS)
            front = rng.random() < 0.15
            own_id = b"%d" % rng.randrange(60) if front or rng.random() < 0.4 else None
        elif dice < 0.65:
            kind = rng.choice([Get, Get, Get, Next])
        elif dice < 0.85 and self.ids:
            queue, group, id = self.ids[-1 - min(int(rng.expovariate(0.1)), len(self.ids) - 1)]
            kind = rng.choice([Ack, Ack, Ack, Working, Redo])
        elif dice < 0.95:
            group = b"okq"
            kind = rng.choice([Ack, Ack, Working, Redo])
            own_id = b"%d" % rng.randrange(60)
        else:
            kind = Flush if dice > 0.99 else Last
        hold = from_now(rng.choice([0, 1, 50, 5000, 10**7]) * MS)
        if kind is Add:
            return Add(queue, body, expire, group, own_id, front)
        if kind is Get:
            return Get(queue, group, hold)
        if kind is Next:
            return Next(queue, group)
        if kind is Working:
            return Working(queue, group, hold, id, own_id)
        if issubclass(kind, DeliveryRequest):
            return kind(queue, group, id, own_id)
        return kind(queue)


@pytest.mark.parametrize("seed", range(8))
async def test_a_long_life_matches_the_model(
    banana_redis: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    async with moved(banana_redis.port, prefix, monkeypatch) as drive:
        world = World(drive, rng)
        for _ in range(150):
            await world.run([world.request() for _ in range(rng.choice([1, 1, 2, 10, 40]))])
            drive.move(rng.choice([0, 1, 1, 7, 40, 400, 10_000]))
            if rng.random() < 0.2:
                await world.run([Status([], [])])
            queues = rng.sample(QUEUES, 2)
            await world.run([Status(queues, rng.sample(GROUPS, rng.randrange(3)))])
        assert len(world.ids) > 100
