"""The engine waits for clients itself, yet all other tasks get to run."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest
import trio

from disque_trio.respserver.io import others
from disque_trio.respserver.io.others import watch_others
from disque_trio.respserver.io.tasks import serve_ahead
from tools.bench.inprocess import Desk, make_node, request

LIMIT = 30  # s
LOAD = """
import socket, sys
with socket.socket(fileno=int(sys.argv[1])) as sock:
    sock.setblocking(True)
    sock.sendall(b"*1\\r\\n$4\\r\\nPING\\r\\n")
    assert sock.recv(1000)
    print(flush=True)
    while True:
        sock.sendall(b"*1\\r\\n$4\\r\\nPING\\r\\n")
        sock.recv(1000)
"""


@asynccontextmanager
async def serving(desk: Desk) -> AsyncIterator[None]:
    with closing(desk), trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_ahead, desk.engine)
            yield
            nursery.cancel_scope.cancel()


async def answer(sock: socket.socket) -> bytes:
    await trio.lowlevel.wait_readable(sock)
    return sock.recv(1000)


@pytest.fixture(params=[True, False], ids=["ahead", "with Trio"])
def found(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the engine finds Trio's epoll."""
    if not request.param:
        monkeypatch.setattr(others, "_epolls_with", lambda probe: [])
    return bool(request.param)


async def test_tasks_are_woken_by_clients_deadlines_threads_and_signals(found: bool) -> None:
    desk = Desk(make_node())
    async with serving(desk):
        for _ in range(3):
            desk.send(request(b"PING"))
            assert await answer(desk.socks[0]) == b"+PONG\r\n"
            await trio.sleep(0.002)
            assert await trio.to_thread.run_sync(lambda: 17) == 17
            with trio.open_signal_receiver(signal.SIGUSR1) as signals:
                threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1)).start()
                assert await anext(aiter(signals)) == signal.SIGUSR1


async def test_tasks_that_can_run_do_though_nobody_says_anything(found: bool) -> None:
    desk = Desk(make_node())
    turns = [0, 0]

    async def spin(number: int) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            turns[number] += 1

    async with serving(desk), trio.open_nursery() as nursery:
        nursery.start_soon(spin, 0)
        nursery.start_soon(spin, 1)
        while min(turns) < 50:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_tasks_have_their_turns_under_load(found: bool) -> None:
    desk = Desk(make_node())
    busy = desk.socks[0]
    async with serving(desk):
        # Not a thread, which would compete with the engine for the GIL.
        command = [sys.executable, "-c", LOAD, str(busy.fileno())]
        with subprocess.Popen(command, pass_fds=[busy.fileno()], stdout=subprocess.PIPE) as load:
            try:
                assert load.stdout is not None
                await trio.lowlevel.wait_readable(load.stdout)
                for _ in range(5):
                    await trio.sleep(0.001)
            finally:
                load.kill()


async def test_who_can_run_is_known() -> None:
    watched = await watch_others()
    assert watched is not None
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as nursery:
            event = trio.Event()
            nursery.start_soon(event.wait)
            assert watched.wait() == 0.0
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            assert 0.0 < watched.wait() <= LIMIT
            event.set()
            assert watched.wait() == 0.0
    trio.lowlevel.remove_instrument(watched)
