"""The thread with a loop, where whoever starts it is interrupted."""

import signal
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
        Loop(never)
    assert ended.wait(HANG_SECONDS)
