"""The thread with a loop, where its callers are interrupted, or are what it waits for."""

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


def test_ctrl_c_while_it_opens_ends_the_thread() -> None:
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


def test_a_call_that_blocks_is_refused_in_the_thread_of_the_loop() -> None:
    async def outer() -> None:
        loop.run(trio.lowlevel.checkpoint, lambda _: None)

    loop: Loop[None] = Loop(contextlib.nullcontext, "test")
    with contextlib.closing(loop), pytest.raises(RuntimeError, match="blocks"):
        loop.run(outer, lambda _: None)


def test_what_the_loop_waits_for_can_close_it() -> None:
    closed = threading.Event()

    def close() -> None:
        loop.close()
        closed.set()

    loop: Loop[None] = Loop(contextlib.nullcontext, "test")
    loop.run(lambda: loop.in_thread(close, trio.CapacityLimiter(1)), lambda _: None)
    assert closed.is_set()
    loop.close()


def test_what_exits_in_the_loop_exits_its_caller_only() -> None:
    async def leave() -> None:
        sys.exit(3)

    loop: Loop[None] = Loop(contextlib.nullcontext, "test")
    with contextlib.closing(loop):
        with pytest.raises(SystemExit):
            loop.run(leave, lambda _: None)
        loop.run(trio.lowlevel.checkpoint, lambda _: None)
