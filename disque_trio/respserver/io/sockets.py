"""Waits for sockets, receives requests from them and sends replies to them: in C if the package is
compiled, which takes half as many instructions."""

import os
import select
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from disque_trio.resp.plain import cut_plain

try:
    from disque_trio.respserver.io import _sockets
except ImportError:
    _sockets = None  # type: ignore[assignment]

Poll: TypeAlias = Callable[[float, int], list[tuple[int, int]]]


def poller(epoll: select.epoll) -> Poll:
    """Return a function that takes a time-out (s, not negative) and a number of events, and returns
    the events of ``epoll``; it may return none before the time is over."""
    if _sockets is None:
        return epoll.poll
    return partial(_sockets.poll, epoll.fileno())


def receive_uncompiled(
    fd: int, most: int, max_bulk: int, requests: list[list[bytes]]
) -> tuple[int, bytes]:
    """Read up to ``most`` bytes from the non-blocking socket ``fd``, and append the plain requests
    at their start to ``requests``, like ``cut_plain``.

    Returns:
        how many bytes arrived (0: no more will come), and those that were not cut.

    Raises:
        OSError: like ``os.read``.
    """
    data = os.read(fd, most)
    after = cut_plain(data, 0, max_bulk, requests)
    return len(data), data[after:]


receive = receive_uncompiled if _sockets is None else _sockets.receive
# Writes bytes to a socket, and returns how many it took.
send = os.write if _sockets is None else _sockets.send
