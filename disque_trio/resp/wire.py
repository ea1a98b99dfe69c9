"""Waits for sockets, receives requests from them and sends replies to them: in C where that is
compiled, else as ``plain`` does."""

import select
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

Poll: TypeAlias = Callable[[float, int], list[tuple[int, int]]]

try:
    from disque_trio.resp._wire import cut_plain, poll, receive, send
except ImportError:
    from disque_trio.resp.plain import cut_plain, receive, send

    def poller(epoll: select.epoll) -> Poll:
        """What waits so long (s) for so many events of ``epoll``, and gives them."""
        return epoll.poll

else:

    def poller(epoll: select.epoll) -> Poll:
        """What waits so long (s) for so many events of ``epoll``, and gives them."""
        return partial(poll, epoll.fileno())


__all__ = ["Poll", "cut_plain", "poller", "receive", "send"]
