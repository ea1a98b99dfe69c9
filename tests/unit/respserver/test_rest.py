"""An idle server does no work."""

from collections.abc import Callable

import pytest
import trio
import trio.testing

from disque_trio.respserver.io.tasks import run_cron
from disque_trio.respserver.machine import LONGEST_REST
from tools.bench.inprocess import START, Desk, StillClock, make_node, request

IDLE = 600  # s


class RunningClock(StillClock):
    """Follows Trio's clock. ``looks`` counts the runs of the periodic work."""

    def __init__(self) -> None:
        super().__init__()
        self.began = trio.current_time()
        self.looks = 0

    def now(self) -> int:
        return START + round((trio.current_time() - self.began) * 1000)

    def slew(self) -> float:
        self.looks += 1
        return 0.0


async def idle(
    desk: Desk, then: Callable[[RunningClock], None], after: Callable[[RunningClock], None]
) -> None:
    """Leave ``desk`` idle for long; call ``then``, wait half a second, and call ``after``."""
    clock = RunningClock()
    desk.engine.clock = desk.engine.clients.clock = clock
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_cron, desk.engine)
        await trio.sleep(IDLE)
        clock.looks = 0
        await trio.sleep(IDLE)
        then(clock)
        clock.looks = 0
        await trio.sleep(0.5)
        after(clock)
        nursery.cancel_scope.cancel()
    desk.close()


async def test_the_periodic_work_rests_until_a_client_says_something(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk(make_node())

    def then(clock: RunningClock) -> None:
        assert clock.looks <= IDLE * 1000 // LONGEST_REST + 1
        desk.send(request(b"PING"))
        desk.turn()

    def after(clock: RunningClock) -> None:
        assert clock.looks >= desk.engine.config.hz // 2

    await idle(desk, then, after)


async def test_rates_are_right_after_a_rest(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk(make_node())

    def then(clock: RunningClock) -> None:
        desk.send(request(b"PING") * 50)
        desk.turn()

    def after(clock: RunningClock) -> None:
        # 50 commands in one of the last 16 tenths of a second.
        assert desk.engine.stats.fields()["instantaneous_ops_per_sec"] == pytest.approx(31, abs=2)

    await idle(desk, then, after)


async def test_the_engine_does_not_rest_during_a_pause(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk(make_node())

    def then(clock: RunningClock) -> None:
        desk.engine.pause(60_000)
        desk.send(request(b"PING"))
        desk.turn()

    def after(clock: RunningClock) -> None:
        assert desk.engine.rest() == 0
        desk.engine.pause(0)
        desk.turn()
        assert desk.engine.rest() > 0

    await idle(desk, then, after)


async def test_silent_clients_are_disconnected_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk(make_node(), clients=2)
    desk.engine.config.timeout = 300
    clock = RunningClock()
    desk.engine.clock = desk.engine.clients.clock = clock
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_cron, desk.engine)
        await trio.sleep(299)
        assert len(desk.engine.clients.connections) == 2
        await trio.sleep(3)
        assert not desk.engine.clients.connections
        nursery.cancel_scope.cancel()
    desk.close()


def test_the_more_queues_there_are_the_more_often_they_are_looked_at() -> None:
    node = make_node()
    assert node.rest() == LONGEST_REST
    node.now = START
    rests = []
    for count in (1, 1_000, 10_000):
        while node.queues.index.count < count:
            node.queues.create(b"q%d" % node.queues.index.count)
        rests.append(node.rest())
    assert rests[0] == LONGEST_REST
    assert rests == sorted(rests, reverse=True)
    assert 0 < rests[-1] < rests[0]
