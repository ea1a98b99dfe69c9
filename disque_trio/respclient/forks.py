"""Closes what belongs to the parent in children made by ``os.fork``."""

import os
import weakref
from collections.abc import Callable

_streams: "weakref.WeakKeyDictionary[object, Callable[[], int]]" = weakref.WeakKeyDictionary()


def keep_from_children(stream: object, fileno: Callable[[], int]) -> None:
    """Close the socket of ``stream`` in each child that this process forks.

    Otherwise, while a child lives, the server would not notice that the parent has closed the
    socket or died.

    Args:
        fileno: returns the socket's descriptor, or -1 if it is closed. Must not refer to
            ``stream``.
    """
    _streams[stream] = fileno


def _forked() -> None:
    sockets = [fileno() for fileno in list(_streams.values())]
    _streams.clear()
    if sockets:
        # Do not just close it: its owner would later close whatever has the number by then.
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in sockets:
            if number >= 0:
                os.dup2(nothing, number, inheritable=False)
        os.close(nothing)


os.register_at_fork(after_in_child=_forked)
