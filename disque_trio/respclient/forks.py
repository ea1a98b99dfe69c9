"""Closes in the children of ``os.fork`` what only their parent may use."""

import os
import weakref

import trio

_streams: "weakref.WeakSet[trio.SocketStream]" = weakref.WeakSet()


def keep_from_children(stream: trio.SocketStream) -> None:
    """Close the socket of ``stream`` in each child that this process forks. Else the server would
    not notice that the parent has closed it, or is dead, as long as a child lives."""
    _streams.add(stream)


def _forked() -> None:
    for stream in list(_streams):
        if stream.socket.fileno() >= 0:
            os.close(stream.socket.detach())
    _streams.clear()


os.register_at_fork(after_in_child=_forked)
