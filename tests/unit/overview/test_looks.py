"""Who waits for what nodes report."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from disque_trio.overview.looks import Looks

A, B = "a:1", "b:1"


async def test_what_nodes_were_asked_before_an_action_is_not_waited_for(
    autojump_clock: MockClock,
) -> None:
    looks = Looks()
    before = looks.round
    looks.again()
    async with trio.open_nursery() as nursery:
        seen = trio.Event()

        async def see() -> None:
            await looks.wait_reported(60.0, {A, B})
            seen.set()

        nursery.start_soon(see)
        await wait_all_tasks_blocked()
        looks.reported(A, looks.round)
        looks.reported(B, before)
        await wait_all_tasks_blocked()
        assert not seen.is_set()
        looks.reported(B, looks.round)
        await seen.wait()
    assert trio.current_time() < 60.0


async def test_a_node_that_was_busy_hears_of_an_action_meanwhile() -> None:
    looks = Looks()
    round = looks.round
    looks.again()
    with trio.fail_after(60):
        await looks.wait(round)


@pytest.mark.parametrize("nodes", [set(), {A}])
async def test_nobody_waits_longer_than_the_limit(
    nodes: set[str], autojump_clock: MockClock
) -> None:
    began = trio.current_time()
    await Looks().wait_reported(0.5, nodes)
    assert trio.current_time() - began == pytest.approx(0.5)
