"""Closes in the children of ``os.fork`` what only their parent may use."""

import os
import weakref
from collections.abc import Callable

_streams: "weakref.WeakKeyDictionary[object, Callable[[], int]]" = weakref.WeakKeyDictionary()


def keep_from_children(stream: object, fileno: Callable[[], int]) -> None:
    """Close the socket of ``stream`` in each child that this process forks. Else the server would
    not notice that the parent has closed it, or is dead, as long as a child lives. ``fileno`` says
    which one it is, or -1 when it is closed, and does not refer to the stream."""
    _streams[stream] = fileno


def _forked() -> None:
    sockets = [fileno() for fileno in list(_streams.values())]
    _streams.clear()
    if sockets:
        # Not just closed: whoever owns the number would close what has it by then.
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in sockets:
            if number >= 0:
                os.dup2(nothing, number, inheritable=False)
        os.close(nothing)


os.register_at_fork(after_in_child=_forked)
