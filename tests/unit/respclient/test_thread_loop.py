"""The thread with an event loop: interrupted callers, and calls from inside the loop."""

import contextlib
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from disque_trio.respclient.thread_loop import Loop
from tests.support.harness import HANG_SECONDS


def test_ctrl_c_during_opening_ends_the_thread() -> None:
    main = threading.main_thread().ident
    assert main is not None
    ended = threading.Event()

    @asynccontextmanager
    async def never() -> AsyncIterator[None]:
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        yield

    with pytest.raises(KeyboardInterrupt):
        Loop(never, "test")
    assert ended.wait(HANG_SECONDS)


def test_a_blocking_call_is_refused_in_the_thread_of_the_loop() -> None:
    async def outer() -> None:
        loop.run(trio.lowlevel.checkpoint, lambda _: None)

    loop: Loop[None] = Loop(contextlib.nullcontext, "test")
    with contextlib.closing(loop), pytest.raises(RuntimeError, match="a blocking call"):
        loop.run(outer, lambda _: None)


def test_a_task_of_the_loop_can_close_it() -> None:
    closed = threading.Event()

    def close() -> None:
        loop.close()
        closed.set()

    loop: Loop[None] = Loop(contextlib.nullcontext, "test")
    loop.run(lambda: loop.in_thread(close, trio.CapacityLimiter(1)), lambda _: None)
    assert closed.is_set()
    loop.close()


def test_an_exit_in_the_loop_only_exits_its_caller() -> None:
    async def leave() -> None:
        sys.exit(3)

    loop: Loop[None] = Loop(contextlib.nullcontext, "test")
    with contextlib.closing(loop):
        with pytest.raises(SystemExit):
            loop.run(leave, lambda _: None)
        loop.run(trio.lowlevel.checkpoint, lambda _: None)
