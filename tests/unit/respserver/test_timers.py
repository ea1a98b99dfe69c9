"""Work due at the same time is done in slices, with turns for clients in between."""

import pytest
import trio
import trio.testing

from disque_trio.respserver.client import Client
from disque_trio.respserver.io.engine import LINGER, Engine
from disque_trio.respserver.io.links import Links
from disque_trio.respserver.io.tasks import LONGEST_SLICE, PATIENCE, SLICE, slice_of
from disque_trio.respserver.machine import Machine
from tools.bench.inprocess import START, Desk, make_node

JOBS = 20_000


def crowd() -> Desk:
    """Return a desk whose node has many jobs that have all just expired."""
    node = make_node()
    producer = Client(1)
    for _ in range(JOBS):
        node.command(producer, [b"ADDJOB", b"q", b"", b"0", b"RETRY", b"99", b"TTL", b"9"], START)
        producer.out.clear()
    desk = Desk(node, timed=True)
    desk.clock.time = START + 11_000  # not so late that the slices grow
    return desk


async def test_others_have_many_turns_while_jobs_expire() -> None:
    desk = crowd()
    node, engine = desk.machine, desk.engine
    timer = desk.timer
    seen = []
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timer.run, engine)
            while node.held():
                await trio.lowlevel.checkpoint()
                seen.append((node.held(), engine.linger))
            nursery.cancel_scope.cancel()
    between = {held for held, _ in seen if 0 < held < JOBS}
    assert len(between) >= 4
    # The engine lingers only when there is nothing to do.
    assert {linger for held, linger in seen if held in between} == {0.0}
    assert engine.linger == LINGER
    desk.close()


async def test_what_is_due_waits_while_the_node_is_halted() -> None:
    desk = crowd()
    desk.engine.halt()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.timer.run, desk.engine)
            for _ in range(10):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert desk.machine.held() == JOBS
    desk.close()


async def test_while_much_is_written_nobody_looks_for_what_is_due(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    desk = crowd()
    engine = desk.engine
    looks = []
    timer = desk.timer
    do_due = timer._do_due

    def look(engine: Engine, linger: float) -> None:
        looks.append(desk.machine.held())
        do_due(engine, linger)

    monkeypatch.setattr(timer, "_do_due", look)
    engine.hold.begin([])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run, engine)
        await trio.sleep(60)
        engine.after_node()
        await trio.sleep(60)
        assert looks == []
        engine.stored(True)
        while desk.machine.held():
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    desk.close()


class HeldLinks(Links):
    """Links that note how many jobs there are when packets that were held back are handled."""

    def __init__(self, node: Machine) -> None:
        super().__init__()
        self.seen: list[int] = []
        self._node = node

    def take_held(self, now: int) -> None:
        self.seen.append(self._node.held())


async def test_what_came_during_a_large_write_is_handled_before_what_is_due() -> None:
    """A new link, too, is something due, and newer than what the last one brought."""
    desk = crowd()
    engine = desk.engine
    engine.bus = links = HeldLinks(desk.machine)
    engine.hold.begin([])
    engine.stored(True)
    assert links.seen == [JOBS]
    assert desk.machine.held() < JOBS
    desk.close()


def test_slices_grow_only_when_what_is_due_is_very_late() -> None:
    assert slice_of(0) == slice_of(PATIENCE) == SLICE
    assert SLICE < slice_of(PATIENCE + 1_000) < slice_of(PATIENCE + 2_000) < LONGEST_SLICE
    assert slice_of(10**9) == LONGEST_SLICE
