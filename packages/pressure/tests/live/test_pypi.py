"""Queues shared with the client ``pressure`` 0.5 from PyPI, which runs in its own
environment."""

import fcntl
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path

import pytest
import trio

from disque_pressure import PressureQueue, QueueClosedError, QueueDoesNotExistError
from packages.pressure.tests.support.pressure_helpers import Spot, blocked
from tests.support.harness import HANG_SECONDS
from tests.support.redis_server import until

# As published, it cannot be iterated on Python 3, and takes the token of a closed queue for an
# element, because it compares text with bytes.
THEIRS = """
import sys, warnings
warnings.simplefilter("ignore")
import pressure
class Queue(pressure.PressureQueue):
    def __next__(self):
        return self.next()
    def unblockable_brpop(self, *args):
        found = super().unblockable_brpop(*args)
        return found and (found[0].decode(), found[1])
port, prefix = int(sys.argv[1]), sys.argv[2]
q = Queue("q", prefix=prefix, port=port, socket_timeout=None)
"""

INSTALL = (
    # Its setup.py imports it, and it imports redis, so the requirements must be installed first.
    ("redis", "setuptools<66", "wheel"),
    ("--no-build-isolation", "pressure==0.5"),
)


@pytest.fixture(scope="session")
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the PyPI client. It is kept in the cache of pytest."""
    cache = getattr(request.config, "cache", None)  # it can be disabled
    version = f"pressure-pypi-{sys.version_info.major}.{sys.version_info.minor}"
    place = tmp_path_factory.mktemp(version) if cache is None else cache.mkdir(version)
    python, ready = place / "venv/bin/python", place / "ready"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            venv.create(place / "venv", with_pip=True, clear=True)
            for packages in INSTALL:
                pip = [python, "-m", "pip", "install", "-q", "--retries", "0", "--timeout", "10"]
                try:
                    subprocess.run(
                        [*pip, *packages], check=True, capture_output=True, timeout=HANG_SECONDS
                    )
                except subprocess.TimeoutExpired:
                    pytest.skip("pressure 0.5 cannot be installed: no answer of PyPI")
                except subprocess.CalledProcessError as error:
                    lines = error.stderr.decode(errors="replace").strip().splitlines() or ["?"]
                    pytest.skip(f"pressure 0.5 cannot be installed: {lines[-1]}")
            ready.touch()
    return python


async def run(python: Path, spot: Spot, source: str) -> str:
    """Return the output of the PyPI client for this source, in which ``q`` is the queue."""
    command = [str(python), "-c", THEIRS + source, str(spot.port), spot.prefix]
    with trio.fail_after(HANG_SECONDS):
        done = await trio.run_process(command, capture_stdout=True)
    return done.stdout.decode()


def bodies(count: int) -> list[bytes]:
    return [b"element %d" % n for n in range(count)]


COUNT = 200  # of the elements that pass a queue of 10
PRODUCE = f"""
for n in range({COUNT}):
    q.put(b"element %d" % n)
q.close()
"""
CONSUME = """
for n, data in enumerate(q):
    assert data == b"element %d" % n, data
print(n + 1)
"""


@pytest.mark.parametrize("way", ["one by one", "many", "as the consumer"])
async def test_its_producer_feeds_the_consumer(theirs: Path, spot: Spot, way: str) -> None:
    got: list[bytes] = []
    async with spot.queue() as q:
        await q.create(10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, theirs, spot, PRODUCE)
            if way == "one by one":
                got += [data async for data in q]
            elif way == "many":
                while len(got) < COUNT:
                    got += await q.get_many(7)
                with pytest.raises(QueueClosedError):
                    await q.get_many(7)
            else:
                async with q.consumer() as consumer:
                    got += [data async for data in consumer]
        # The producer has ended: it counts and gives its token back after its element is there.
        assert got == bodies(COUNT)
        stats = await q.stats()
        assert stats.produced_messages == stats.consumed_messages == COUNT
        assert stats.produced_bytes == stats.consumed_bytes == sum(map(len, got))
        assert spot.tokens()[:2] == (1, 1)


async def feed(q: PressureQueue, way: str) -> None:
    if way == "one by one":
        for data in bodies(COUNT):
            await q.put(data)
    elif way == "many":
        await q.put_many(bodies(COUNT))
    else:
        async with q.producer() as producer:
            for data in bodies(COUNT):
                await producer.put(data)


@pytest.mark.parametrize("way", ["one by one", "many", "as the producer"])
async def test_the_producer_feeds_its_consumer(theirs: Path, spot: Spot, way: str) -> None:
    printed: list[str] = []

    async def consume() -> None:
        printed.append(await run(theirs, spot, CONSUME))

    async with spot.queue() as q:
        await q.create(10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await feed(q, way)
            # It does not count what it gets from a closed queue.
            await until(lambda: spot.raw.get(spot.key("stats:consumed_messages")) == b"%d" % COUNT)
            await q.close()
        assert printed == [f"{COUNT}\n"]
        stats = await q.stats()
        assert stats.produced_bytes == stats.consumed_bytes == sum(map(len, bodies(COUNT)))
        # The client that was blocked has taken one of the two tokens of the end.
        assert spot.tokens() in ((1, 1, 1, 1), (1, 1, 1, 2))


async def test_it_sees_a_queue_of_this_library_in_the_same_way(theirs: Path, spot: Spot) -> None:
    look = "print(bool(q.exists), q.bound, q.qsize(), bool(q.closed()), q.peek_reverse())"
    async with spot.queue() as q:
        await q.create(10)
        await q.put_many(bodies(3))
        assert await run(theirs, spot, look) == "True 10 3 False b'element 2'\n"
        await q.close()
        assert await run(theirs, spot, look) == "True 10 3 True b'element 2'\n"


async def test_this_library_sees_its_queue_in_the_same_way(theirs: Path, spot: Spot) -> None:
    async with spot.queue() as q:
        await run(theirs, spot, "q.create(2); q.put(b'a'); q.put(b'b')")
        stats = await q.stats()
        assert (stats.bound, stats.length, stats.closed) == (2, 2, False)
        assert (stats.not_full, stats.produced_bytes) == (False, 2)
        await run(theirs, spot, "q.close()")
        assert await q.closed()
        assert [data async for data in q] == [b"a", b"b"]


async def test_a_full_queue_is_full_to_both(theirs: Path, spot: Spot) -> None:
    full = "try: q.put_nowait(b'x'); print('put')\nexcept pressure.QueueFullError: print('full')"
    async with spot.queue() as q:
        await q.create(2)
        await q.put_many(bodies(2))
        assert await run(theirs, spot, full) == "full\n"
        await q.get()
        assert await run(theirs, spot, full) == "put\n"
        assert await run(theirs, spot, full) == "full\n"
        assert await q.length() == 2


async def test_each_can_delete_a_queue_of_the_other(theirs: Path, spot: Spot) -> None:
    async with spot.queue() as q:
        await q.create(10)
        await q.put_many(bodies(3))
        await q.get()
        await run(theirs, spot, "q.delete()")
        assert spot.keys() == set()
        await run(theirs, spot, "q.create(3); q.put(b'a'); q.get()")
        await q.delete()
        assert spot.keys() == set()


@pytest.mark.parametrize("call", ["close", "delete"])
async def test_its_blocked_getter_is_woken(theirs: Path, spot: Spot, call: str) -> None:
    get = "try: print(q.get())\nexcept pressure.QueueClosedError: print('closed')"
    printed: list[str] = []

    async def consume() -> None:
        printed.append(await run(theirs, spot, get))

    async with spot.queue() as q:
        await q.create(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await blocked(spot.raw)
            await (q.close() if call == "close" else q.delete())
        assert printed == ["closed\n"]
        if call == "delete":
            assert spot.keys() == set()


@pytest.mark.parametrize(
    ("call", "error"), [("close", QueueClosedError), ("delete", QueueDoesNotExistError)]
)
async def test_the_blocked_getter_of_this_library_is_woken(
    theirs: Path, spot: Spot, call: str, error: type[Exception]
) -> None:
    async with spot.queue() as q:
        await q.create(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(after_block, theirs, spot, f"q.{call}()"))
            with pytest.raises(error):
                await q.get()
        if call == "delete":
            assert spot.keys() == set()


async def after_block(python: Path, spot: Spot, source: str) -> None:
    await blocked(spot.raw)
    await run(python, spot, source)
