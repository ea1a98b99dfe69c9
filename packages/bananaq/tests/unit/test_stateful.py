"""The embedded store compared with a plain model, through flushes, restarts and rewritten files."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from disque_bananaq.core.requests import (
    Ack,
    Add,
    DeliveryRequest,
    Flush,
    Get,
    Last,
    Next,
    Redo,
    Request,
    Status,
    Working,
    from_now,
)
from packages.bananaq.tests.support.banana_world import World

QUEUES = [b"a", b"b", b""]
GROUPS = [b"g", b"h", b"okq"]
OWN_IDS = [b"x", b"y", b""]
MS = 1000


def make_add(queue: bytes, expire: int, own_id: bytes | None, front: bool, body: bytes) -> Add:
    return Add(queue, body, from_now(expire), b"okq", own_id, front)


def make_get(kind: type[Request], queue: bytes, group: bytes, hold: int) -> Get | Next:
    return Get(queue, group, from_now(hold)) if kind is Get else Next(queue, group)


def make_about(
    kind: type[DeliveryRequest], given: tuple[bytes, bytes, bytes], hold: int
) -> DeliveryRequest:
    queue, group, id = given
    if kind is Working:
        return Working(queue, group, from_now(hold), id)
    return kind(queue, group, id)


def make_own(
    kind: type[DeliveryRequest], queue: bytes, own_id: bytes, hold: int
) -> DeliveryRequest:
    if kind is Working:
        return Working(queue, b"okq", from_now(hold), own_id=own_id)
    return kind(queue, b"okq", own_id=own_id)


expires = st.sampled_from([-1, 0, 1, 500, 5 * MS, 30 * MS, 100 * MS, 10_000 * MS, 10**9 * MS])
holds = st.sampled_from([0, 1, 999, 5 * MS, 20 * MS, 20_001 * MS, 10**8 * MS])
queues = st.sampled_from(QUEUES)
groups = st.sampled_from(GROUPS)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(
        queue=queues,
        expire=expires,
        own_id=st.none() | st.sampled_from(OWN_IDS),
        front=st.booleans(),
        body=st.binary(max_size=4),
    )
    def add(
        self, queue: bytes, expire: int, own_id: bytes | None, front: bool, body: bytes
    ) -> None:
        self.world.run(make_add(queue, expire, own_id, front, body))

    @rule(kind=st.sampled_from([Get, Get, Next]), queue=queues, group=groups, hold=holds)
    def get(self, kind: type[Request], queue: bytes, group: bytes, hold: int) -> None:
        self.world.run(make_get(kind, queue, group, hold))

    @precondition(lambda self: self.world.ids)
    @rule(kind=st.sampled_from([Ack, Ack, Working, Redo]), which=st.integers(0, 5), hold=holds)
    def about(self, kind: type[DeliveryRequest], which: int, hold: int) -> None:
        ids = self.world.ids
        self.world.run(make_about(kind, ids[-1 - which % len(ids)], hold))

    @rule(
        kind=st.sampled_from([Ack, Working, Redo]),
        queue=queues,
        own_id=st.sampled_from(OWN_IDS),
        hold=holds,
    )
    def about_own(
        self, kind: type[DeliveryRequest], queue: bytes, own_id: bytes, hold: int
    ) -> None:
        self.world.run(make_own(kind, queue, own_id, hold))

    @rule(kind=st.sampled_from([Last, Flush]), queue=queues)
    def simple(self, kind: type[Last | Flush], queue: bytes) -> None:
        self.world.run(kind(queue))

    @rule()
    def status_of_all(self) -> None:
        self.world.run(Status([], []))

    @rule(queues=st.lists(queues, unique=True), groups=st.lists(groups, unique=True))
    def status(self, queues: list[bytes], groups: list[bytes]) -> None:
        self.world.run(Status(queues, groups))

    @rule(ms=st.sampled_from([0, 1, 4, 19, 60, 5000, 10**6]), tick=st.booleans())
    def advance(self, ms: int, tick: bool) -> None:
        self.world.advance(ms, tick)

    @rule(room=st.sampled_from([1, 100, 10_000]))
    def dump(self, room: int) -> None:
        self.world.step_dump(room)

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule(queue=queues, group=groups)
    def enter(self, queue: bytes, group: bytes) -> None:
        self.world.enter(queue, group)

    @precondition(lambda self: self.world.model.consumers)
    @rule(which=st.integers(0, 3))
    def leave(self, which: int) -> None:
        self.world.leave(which % len(self.world.model.consumers))

    @invariant()
    def books(self) -> None:
        self.world.check()


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(stateful_step_count=40)


def live(world: World, rng: random.Random, steps: int) -> None:
    """Do ``steps`` random operations that leave more behind than those of the machine above."""
    for _ in range(steps):
        queue = rng.choice(QUEUES)
        group = rng.choice(GROUPS)
        expire = rng.choice([20, 300, 3000, 60_000, 10**8]) * MS
        hold = rng.choice([0, 5, 50, 5000, 10**7]) * MS
        dice = rng.random()
        if dice < 0.4:
            own_id = b"%d" % rng.randrange(60) if rng.random() < 0.4 else None
            front = rng.random() < 0.15
            world.run(make_add(queue, expire, own_id, front, rng.randbytes(rng.randrange(40))))
        elif dice < 0.65:
            world.run(make_get(rng.choice([Get, Get, Get, Next]), queue, group, hold))
        elif dice < 0.82:
            if world.ids:
                given = world.ids[-1 - min(int(rng.expovariate(0.1)), len(world.ids) - 1)]
                world.run(make_about(rng.choice([Ack, Ack, Ack, Working, Redo]), given, hold))
        elif dice < 0.88:
            own_id = b"%d" % rng.randrange(60)
            world.run(make_own(rng.choice([Ack, Ack, Working, Redo]), queue, own_id, hold))
        elif dice < 0.9:
            world.run(rng.choice([Last(queue), Status([], [])]))
        elif dice < 0.902:
            world.run(Flush(queue))
        elif dice < 0.94:
            world.advance(rng.choice([1, 1, 7, 40, 400]), tick=rng.random() < 0.5)
        elif dice < 0.941:
            world.advance(10_000)
        elif dice < 0.994:
            world.step_dump(rng.choice([1, 60, 500, 5000]))
        else:
            world.restart()
        if rng.random() < 0.02:
            world.check()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_a_long_life_with_rewrites_and_restarts_matches_the_model(seed: int) -> None:
    world = World()
    live(world, random.Random(seed), 3000)
    world.step_dump(1)
    while world.new_file is not None:
        live(world, random.Random(seed), 3)
        if world.new_file is not None:
            world.step_dump(2000)
    world.restart()
    for queue in QUEUES:
        for group in GROUPS:
            while world.run(make_get(Get, queue, group, 10**8 * MS)).event is not None:
                pass
    world.check()
