"""Runs ``disque --top``: polls the nodes and shows the result."""

import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from io import TextIOWrapper
from typing import Final

import trio

from disque_trio.cli.cluster import cluster_of, greet
from disque_trio.cli.options import Options
from disque_trio.cli.runner import complain
from disque_trio.cli.top.page import page, seen, snapshot
from disque_trio.cli.top.terminal import Terminal, encoding, is_there
from disque_trio.cli.top.view import View
from disque_trio.client.nodes import parse_address
from disque_trio.overview.cluster import Cluster
from disque_trio.overview.looks import Looks
from disque_trio.overview.poller import Poller
from disque_trio.respclient.errors import first_of

LEAST: Final = 0.1  # minimum s between two pages
SETTLED_IN: Final = 20.0  # s to wait for all nodes to report all their queues twice


def run_top(options: Options) -> int:
    """Show queues until the user quits, or ``-r`` times; without a terminal once, or every ``-i``
    seconds. Returns the exit status.

    Fails if no node can be reached at the start; later it waits for them.
    """
    try:
        return trio.run(_Top(options).run)
    except BaseExceptionGroup as group:
        raise first_of(group) from None  # such as a BrokenPipeError, which main knows


class _Top:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._each = max(LEAST, options.interval or 1.0)
        self._on_screen = is_there(os.environ.get("TERM", ""))
        self._cluster = Cluster()
        self._looks = Looks()
        self._view = View()
        self._changed = trio.Event()
        self._status = 0
        self._ending = trio.CancelScope()
        self._terminal: Terminal | None = None

    async def run(self) -> int:
        address = cluster_of(self._options, "disque-top")
        if problem := await greet(address):
            complain(problem)
            return 1
        seeds = [parse_address(node) for node in address.nodes]
        poller = Poller(self._cluster, seeds, address.login, self._looks, each=self._each)
        with trio.open_signal_receiver(
            *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
            *((signal.SIGWINCH, signal.SIGTSTP) if self._on_screen else ()),
        ) as signals:
            async with trio.open_nursery() as nursery:
                self._ending = nursery.cancel_scope
                nursery.start_soon(self._heed, signals)
                nursery.start_soon(poller.run)
                await (self._show() if self._on_screen else self._print(poller))
                nursery.cancel_scope.cancel()
        return self._status

    async def _heed(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            if number == signal.SIGWINCH:
                self._change()
            elif number == signal.SIGTSTP:
                if self._terminal is not None:
                    self._terminal.suspend()
                self._change()
            else:
                self._status = 128 + number
                self._ending.cancel()

    # ---- on a screen -----------------------------------------------------------------------------

    async def _show(self) -> None:
        left = self._options.repeat if self._options.repeat_given else -1
        with Terminal() as self._terminal:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, self._terminal)
                next_page = trio.current_time()
                while not self._view.over and left != 0:
                    self._changed = trio.Event()
                    width, height = self._terminal.size
                    self._paint(self._terminal, width, height)
                    if trio.current_time() >= next_page:
                        next_page = trio.current_time() + self._each
                        left -= 1
                    with trio.move_on_at(next_page):
                        await self._changed.wait()
                nursery.cancel_scope.cancel()

    def _paint(self, terminal: Terminal, width: int, height: int) -> None:
        now = time.time()
        lines = page(self._cluster, self._view, width, height, now)
        if self._view.running and not self._view.help:
            self._looks.running.at(now)
        elif self._view.full and not self._view.help:
            self._looks.at(seen(self._cluster, self._view, height), now)
        try:
            terminal.paint(lines)
        except OSError:
            self._view.over = True  # the terminal is gone

    async def _listen(self, terminal: Terminal) -> None:
        async for key in terminal.keys():
            self._view.press(key)
            self._change()
        self._view.over = True
        self._change()

    def _change(self) -> None:
        self._changed.set()

    # ---- without a screen ------------------------------------------------------------------------

    async def _print(self, poller: Poller) -> None:
        options = self._options
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding=encoding(), errors="backslashreplace")
        left = options.repeat if options.repeat_given else (-1 if options.interval else 1)
        with trio.move_on_after(SETTLED_IN):
            while not self._settled():
                await poller.news.wait()
        first = True
        while left != 0:
            if not first:
                await trio.sleep(self._each)
                print()
            print("\n".join(snapshot(self._cluster, time.time())), flush=True)
            first = False
            left -= 1

    def _settled(self) -> bool:
        """Whether all reachable nodes have reported all their queues twice, so that rates are
        known."""
        states = self._cluster.nodes.all()
        return bool(states) and all(state.rounds >= 2 or state.problem for state in states)
