"""The garbage collector is off under load, so serving must not leave cycles behind."""

import gc
import os
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import trio

from disque_trio.config import Config, load_settings
from disque_trio.node.server import Server
from disque_trio.process.logs import Logging
from disque_trio.respserver.io.tasks import (
    COLLECT_MAX_JOBS,
    COLLECT_MAX_OBJECTS,
    collect_garbage,
    collect_new_garbage,
)
from tests.support.harness import HANG_SECONDS, free_port

CONNECTIONS = 50
CYCLES = 20
ROUNDS = 3  # the first connections may leave more


async def _work(port: int) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        for number in range(CYCLES):
            await stream.send_all(b"ADDJOB q%d body 0\r\n" % number)
            id = (await stream.receive_some(100)).strip()[1:]
            await stream.send_all(b"GETJOB NOHANG FROM q%d\r\nNOSUCH\r\n" % number)
            await stream.receive_some(1000)
            await stream.send_all(b"ACKJOB %b\r\n" % id)
            await stream.receive_some(100)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_clients_that_come_work_and_go_leave_no_cycles_behind(tmp_path: Path) -> None:
    here, there = Pipe(duplex=False)
    # In a process of its own, since threads of other tests may leave cycles meanwhile.
    process = get_context("fork").Process(target=_serve, args=(tmp_path, there))
    process.start()
    there.close()
    left, kinds = here.recv()
    process.join(HANG_SECONDS)
    assert left < CONNECTIONS * CYCLES // 10, f"{left} objects were kept by cycles: {kinds}"


def _serve(directory: Path, there: Connection) -> None:
    os.chdir(directory)
    there.send(trio.run(_left_by_clients, directory))


async def _left_by_clients(directory: Path) -> tuple[int, list[tuple[str, int]]]:
    """The number of objects that clients of a node leave in cycles, and most of their kinds."""
    port = free_port()
    config = load_settings(Config, None, [("port", str(port)), ("bind", "127.0.0.1")])
    logging = Logging(path=str(directory / "log"))
    server = Server(config, logging)
    left = sys.maxsize
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.daemon.run)
        with trio.fail_after(HANG_SECONDS):
            while True:
                try:
                    await _work(port)
                    break
                except OSError:
                    await trio.lowlevel.checkpoint()
            gc.collect()
            gc.freeze()
            for number in range(ROUNDS):
                for _ in range(CONNECTIONS):
                    await _work(port)
                if number == ROUNDS - 1:
                    gc.set_debug(gc.DEBUG_SAVEALL)
                left = min(left, gc.collect())
            kinds = Counter(type(one).__name__ for one in gc.garbage).most_common(5)
        server.daemon.stop("the test is over")
    logging.close()
    return left, kinds


class Ring:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def _collector() -> Iterator[None]:
    """Set up the collector as a node does at its start. What is frozen stays so: to look through
    all tests at each collection takes a second."""
    collect_garbage()
    yield
    gc.enable()


@pytest.mark.usefixtures("_collector")
def test_a_cycle_is_freed_while_there_are_few_jobs() -> None:
    gone = weakref.ref(Ring())
    assert gone() is not None
    assert not collect_new_garbage(COLLECT_MAX_JOBS + 1)
    assert gone() is not None
    assert collect_new_garbage(COLLECT_MAX_JOBS)
    assert gone() is None


@pytest.mark.usefixtures("_collector")
def test_nothing_is_collected_while_there_is_much_to_look_at() -> None:
    gone = weakref.ref(Ring())
    much = [[number] for number in range(COLLECT_MAX_OBJECTS)]
    assert not collect_new_garbage(0)
    assert gone() is not None
    much.clear()
    assert collect_new_garbage(0)
    assert gone() is None


@pytest.mark.usefixtures("_collector")
def test_a_cycle_of_old_objects_is_freed_as_well() -> None:
    ring = Ring()
    assert collect_new_garbage(0)
    gone = weakref.ref(ring)
    del ring
    assert collect_new_garbage(0)
    assert gone() is None
