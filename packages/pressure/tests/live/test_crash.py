"""Processes that are killed while they have a role: the next client gets it, and no element is lost
that had been put but not yet got."""

import signal
from collections.abc import Iterator

import pytest
import trio

from disque_pressure import QueueInUseError
from packages.pressure.tests.support.pressure_helpers import Child, Spot
from tests.support.harness import HANG_SECONDS
from tests.support.redis_server import until

LEASE = 2

# The process prints what it is about to do, or has done, and continues until it is killed.
BEGIN = """
import sys, trio
from disque_pressure import PressureQueue
port, prefix = int(sys.argv[1]), sys.argv[2]
def say(word):
    print(word, flush=True)
async def main():
    async with PressureQueue("q", port=port, prefix=prefix, lease=2) as q:
        say(q.uid)
"""
END = """
trio.run(main)
"""

# The code, and how the test recognizes the step: the lengths of producer_free, consumer_free,
# not_full and closed, and of the data.
STEPS: dict[str, tuple[str, tuple[int, int, int, int], int]] = {
    "a put waits for room": ("await q.put(b'x')", (0, 1, 0, 0), 2),
    "a put_many is half done": (
        "await q.get_many(2); await q.put_many([b'0', b'1', b'2'])",
        (0, 1, 0, 0),
        2,
    ),
    "a producer is idle": (
        "p = q.producer(); await p.__aenter__(); await trio.sleep_forever()",
        (0, 1, 0, 0),
        2,
    ),
    "a producer waits for room": (
        "cp = q.producer(); p = await cp.__aenter__(); await p.put(b'x')",
        (0, 1, 0, 0),
        2,
    ),
    "a producer has put": (
        "await q.get_many(2); cp = q.producer(); p = await cp.__aenter__(); await p.put(b'0'); "
        "await trio.sleep_forever()",
        (0, 1, 1, 0),
        1,
    ),
    "a producer has closed": (
        "cp = q.producer(); p = await cp.__aenter__(); await p.close(); await trio.sleep_forever()",
        (0, 1, 0, 2),
        2,
    ),
    "a get waits for an element": ("await q.get_many(2); await q.get()", (1, 0, 1, 0), 0),
    "a consumer is idle": (
        "c = q.consumer(); await c.__aenter__(); await trio.sleep_forever()",
        (1, 0, 0, 0),
        2,
    ),
    "a consumer has got": (
        "cc = q.consumer(); c = await cc.__aenter__(); await c.get(); await trio.sleep_forever()",
        (1, 0, 1, 0),
        1,
    ),
    "both roles are held": (
        "cc = q.consumer(); c = await cc.__aenter__(); cp = q.producer(); "
        "p = await cp.__aenter__(); await p.put(b'x')",
        (0, 0, 0, 0),
        2,
    ),
}


PUT_ALL = """n = START
while True:
    await q.put_many([b'%d' % n, b'%d' % (n + 1)])
    say(n + 1)
    n += 2"""


class Crashes:
    """Starts processes, and ends them after the test."""

    def __init__(self, spot: Spot) -> None:
        self.spot = spot
        self.children: list[Child] = []

    async def start(self, body: str) -> Child:
        lines = "".join(f"        {line}\n" for line in body.replace("; ", "\n").split("\n"))
        child = Child(BEGIN + lines + END, self.spot.port, self.spot.prefix)
        self.children.append(child)
        child.uid = await child.line()
        return child


@pytest.fixture
def crashes(spot: Spot) -> Iterator[Crashes]:
    made = Crashes(spot)
    yield made
    for child in made.children:
        child.close()


@pytest.mark.parametrize("step", STEPS)
async def test_after_sigkill_the_roles_are_free_when_the_lease_has_expired(
    spot: Spot, crashes: Crashes, step: str
) -> None:
    body, tokens, length = STEPS[step]
    async with spot.queue(lease=LEASE) as q:
        await q.create(2)
        await q.put_many([b"0", b"1"])
        child = await crashes.start(body)
        await until(lambda: spot.tokens() == tokens and spot.raw.llen(spot.data) == length)
        role = "producer" if tokens[0] == 0 else "consumer"
        with pytest.raises(QueueInUseError) as caught:
            async with q.consumer(0) if role == "consumer" else q.producer(0):
                pytest.fail("it is held")
        assert caught.value.user == child.uid
        # While it lives, nobody gets its role, however long ago the lease began.
        left = list(reversed(spot.raw.lrange(spot.data, 0, -1)))
        child.kill()
        with trio.fail_after(HANG_SECONDS):
            if tokens[3] == 0 and not left[1:]:
                await q.put(b"next")
                left.append(b"next")
            got = [await q.get() for _ in left]
            if tokens[3] == 0:
                await q.put(b"more")
                assert await q.get() == b"more"
        assert got == left
        closed = tokens[3]
        assert spot.tokens()[1:] == (1, 1, closed)
        await q.delete()
        assert spot.keys() == set()


@pytest.mark.parametrize("role", ["producer", "consumer"])
async def test_a_queue_whose_holder_was_killed_can_be_deleted(
    spot: Spot, crashes: Crashes, role: str
) -> None:
    async with spot.queue(lease=LEASE) as q:
        await q.create()
        child = await crashes.start(
            f"h = q.{role}(); await h.__aenter__(); await trio.sleep_forever()"
        )
        await until(lambda: not spot.raw.exists(spot.key(f"{role}_free")))
        child.kill()
        with trio.fail_after(HANG_SECONDS):
            await q.delete()
        assert spot.keys() == set()


async def test_a_deletion_whose_process_was_killed_is_finished_by_the_next_create(
    spot: Spot, crashes: Crashes
) -> None:
    async with spot.queue(lease=LEASE) as q:
        await q.create()
        await q.put(b"old")
        async with q.producer():
            child = await crashes.start("await q.delete()")
            await until(lambda: not spot.raw.exists(spot.key("bound")))
            child.kill()
        with trio.fail_after(HANG_SECONDS):
            await q.create(4, patience=10)
        assert spot.values() == {
            "bound": b"4",
            "producer_free": 1,
            "consumer_free": 1,
            "not_full": 1,
        }


async def test_a_producer_killed_at_any_moment_loses_no_confirmed_element(
    spot: Spot, crashes: Crashes
) -> None:
    async with spot.queue(lease=LEASE) as q:
        await q.create(50)
        got: list[bytes] = []
        told = -1
        for round_ in range(4):
            start = int(got[-1]) + 1 if got else 0
            child = await crashes.start(PUT_ALL.replace("START", str(start)))
            limit = start + 40 + 17 * round_
            with trio.fail_after(HANG_SECONDS):
                while told < limit:
                    got += await q.get_many(7)
                    told = int(await child.line())
            child.kill()
            with trio.fail_after(HANG_SECONDS):
                while True:
                    part = await q.get_many(100, timeout=0) if await q.length() else []
                    got += part
                    if not part:
                        break
        assert got == [b"%d" % n for n in range(len(got))]
        assert int(got[-1]) >= told


async def test_a_process_that_was_stopped_for_longer_than_its_lease_learns_that_it_lost_the_role(
    spot: Spot, crashes: Crashes
) -> None:
    async with spot.queue(lease=LEASE) as q:
        await q.create()
        child = await crashes.start(
            "cp = q.producer(); p = await cp.__aenter__(); say('in'); sys.stdin.readline(); "
            "await p.put(b'late')"
        )
        assert await child.line() == "in"
        child.process.send_signal(signal.SIGSTOP)
        with trio.fail_after(HANG_SECONDS):
            await q.put(b"ours")
        child.process.send_signal(signal.SIGCONT)
        assert child.process.stdin is not None
        child.process.stdin.write(b"go\n")
        child.process.stdin.flush()
        assert await trio.to_thread.run_sync(child.wait) == 1
        assert await q.get_many(5) == [b"ours"]
        assert spot.tokens() == (1, 1, 1, 0)
