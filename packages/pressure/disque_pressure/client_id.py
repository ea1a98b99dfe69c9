"""Makes unique, readable client ids from host, process, thread and task.

Owns the numbering of tasks, since Trio does not number them.
"""

import itertools
import os
import socket
import threading
import weakref

import trio

_numbers: "weakref.WeakKeyDictionary[trio.lowlevel.Task, int]" = weakref.WeakKeyDictionary()
_next = itertools.count(1)
_host = socket.gethostname()


def client_id() -> str:
    """Return the id of the calling task, such as ``host_pid123_thread456_task789``; outside of
    Trio, that of the calling thread. A task keeps its id for life."""
    # Ask for the process each time: a fork changes it.
    base = f"{_host}_pid{os.getpid()}_thread{threading.get_native_id()}"
    try:
        task = trio.lowlevel.current_task()
    except RuntimeError:
        return base
    number = _numbers.get(task)
    if number is None:
        number = _numbers[task] = next(_next)
    return f"{base}_task{number}"
