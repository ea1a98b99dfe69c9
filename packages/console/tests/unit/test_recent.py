"""Recent replies are cached."""

import trio
from trio.testing import MockClock

from disque_console.io.calls import Calls
from disque_console.io.recent import KEPT, Recent
from disque_trio.overview.nodes import Nodes
from disque_trio.respclient.login import Login


class Count:
    """Counts its calls."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self) -> int:
        self.asked += 1
        await trio.sleep(0.1)
        return self.asked


async def test_those_who_ask_at_once_and_within_some_seconds_share_an_answer(
    autojump_clock: MockClock,
) -> None:
    recent, count = Recent(), Count()
    async with trio.open_nursery() as nursery:
        calls, others = (Calls(nursery, Nodes(), Login()) for _ in range(2))
        for _ in range(5):
            nursery.start_soon(recent.get, calls, "key", count)
        await trio.sleep(0.2)
        assert count.asked == 1
        assert await recent.get(others, "key", count) == 2
        assert await recent.get(calls, "other", count) == 3
        assert await recent.get(calls, "key", count) == 1
        await trio.sleep(KEPT)
        assert await recent.get(calls, "key", count) == 4
        recent.clear()
        assert await recent.get(calls, "key", count) == 5
