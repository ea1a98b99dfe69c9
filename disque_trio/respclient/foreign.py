"""Threads and their outcomes, for tasks of whatever loop the program runs: Trio or asyncio."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import trio

T = TypeVar("T")


def in_async() -> bool:
    """Whether this is called in a task of Trio or asyncio, which must not block."""
    return trio.lowlevel.in_trio_task() or in_asyncio()


def in_asyncio() -> bool:
    """Whether this is called in a task of asyncio."""
    if "asyncio" not in sys.modules:
        return False
    try:
        return asyncio.current_task() is not None
    except RuntimeError:  # there is no loop
        return False


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function that blocks in a thread. When the task is cancelled the thread is left
    alone."""
    if in_asyncio():
        return await asyncio.to_thread(function)
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True)


async def outcome_of(future: "Future[T]", drop: Callable[[], object]) -> T:
    """Wait for what another thread puts into ``future``, and return or raise that. ``drop`` is
    called where the task is cancelled."""
    try:
        if in_asyncio():
            await _in_asyncio(future)
        else:
            await _in_trio(future)
    except BaseException:
        drop()
        raise
    return future.result()


async def _in_asyncio(future: "Future[T]") -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def tell(_: "Future[T]") -> None:
        try:
            loop.call_soon_threadsafe(done.set)
        except RuntimeError:
            pass  # the loop is closed: nobody waits

    future.add_done_callback(tell)
    await done.wait()


async def _in_trio(future: "Future[T]") -> None:
    token = trio.lowlevel.current_trio_token()
    done = trio.Event()

    def tell(_: "Future[T]") -> None:
        try:
            token.run_sync_soon(done.set)
        except trio.RunFinishedError:
            pass  # nobody waits

    future.add_done_callback(tell)
    await done.wait()
