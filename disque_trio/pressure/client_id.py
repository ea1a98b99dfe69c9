"""Makes unique, readable ids of clients: host, process, thread and task.

Owns the numbering of tasks, as Trio gives them none.
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
    """The id of the calling task (or, outside of Trio, thread), as
    ``host_pid123_thread456_task789``. It stays the same for the life of the task."""
    # The process is asked each time: a fork changes it.
    base = f"{_host}_pid{os.getpid()}_thread{threading.get_native_id()}"
    try:
        task = trio.lowlevel.current_task()
    except RuntimeError:
        return base
    number = _numbers.get(task)
    if number is None:
        number = _numbers[task] = next(_next)
    return f"{base}_task{number}"
