"""Watches the other Trio tasks of the process, so that the engine can wait for clients itself.

A pass of Trio over its tasks takes longer than most turns. So the engine does not go through Trio
for each request to an idle server. It waits in its own epoll descriptor, in which Trio's is
registered, until a client has sent something, a Trio task has something to do, or the next deadline
has come. Only then does Trio get its pass.

This relies on the following: instruments hear of each task that can run and of each that runs
(documented), ``current_statistics`` tells the next deadline (documented), and everything else that
wakes a task does so through Trio's epoll descriptor (by reading the code: I/O, threads, signals).
Trio does not tell which descriptor that is, but Linux does. Where it does not, ``watch_others``
returns None.
"""

import os
from pathlib import Path

import trio
from trio.lowlevel import Task

_LONGEST_WAIT = 3600.0  # s
_DETAILS = Path("/proc/self/fdinfo")


class OtherTasks(trio.abc.Instrument):
    """All tasks of the process except the engine's.

    Attributes:
        fd: Trio's epoll descriptor, which is readable when a task may have something to do.
        runnable: the tasks that can run.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.runnable: set[Task] = set()

    def task_scheduled(self, task: Task) -> None:
        self.runnable.add(task)

    def before_task_step(self, task: Task) -> None:
        self.runnable.discard(task)

    def wait(self) -> float:
        """Return how long all of them will wait if nothing happens to them, in s.

        0: one can run, or its deadline is over.
        """
        if self.runnable:
            return 0.0
        left = trio.lowlevel.current_statistics().seconds_to_next_deadline
        return min(max(left, 0.0), _LONGEST_WAIT)


async def watch_others() -> OtherTasks | None:
    """Begin to watch the other tasks; None: that is not possible here."""
    fd = await _find_epoll()
    if fd is None:
        return None
    others = OtherTasks(fd)
    trio.lowlevel.add_instrument(others)
    await _let_all_run()  # it does not know of tasks that could run already
    return others


async def _let_all_run() -> None:
    """Let all runnable tasks run. It takes two passes: in the first, some may come after this
    one."""
    await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()


async def _find_epoll() -> int | None:
    """Find the epoll descriptor that Trio waits with: a task's descriptor is registered in it."""
    probe = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.lowlevel.wait_readable, probe)
            await _let_all_run()  # now it waits
            found = _epolls_with(probe)
            nursery.cancel_scope.cancel()
    finally:
        os.close(probe)
    return found[0] if len(found) == 1 else None


def _epolls_with(probe: int) -> list[int]:
    """The epoll descriptors of this process in which ``probe`` is registered."""
    found: list[int] = []
    try:
        for name in os.listdir(_DETAILS):
            try:
                lines = (_DETAILS / name).read_text().splitlines()
            except OSError:
                continue  # the directory's own descriptor
            if any(line.split()[:2] == ["tfd:", str(probe)] for line in lines):
                found.append(int(name))
    except OSError:
        return []  # there is no /proc
    return found
