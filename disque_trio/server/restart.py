"""A process that replaces itself: the same pid, the same listening sockets, a new program.

Owns the environment variable by which the old process tells the new one that it goes on for it.
"""

import os
import signal
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from socket import socket
from typing import NamedTuple

from disque_trio.server.systemd import Notifier, hand_over

# Arguments may name files relative to it; the node itself goes to its ``dir``.
STARTED_IN = Path.cwd()
_GOES_ON = "DISQUE_RESTARTED"


class Handover(NamedTuple):
    """What the old process says.

    Attributes:
        foreign: how many of the passed sockets somebody else opened (systemd). They come first;
            those behind them are the node's own.
        time: when it wrote its jobs, in ms since the epoch, by its clock.
    """

    foreign: int
    time: int


def take_handover(environ: MutableMapping[str, str]) -> Handover | None:
    """What the process before this one says; None: there is none, this one was just started.
    The variable is taken out of ``environ``."""
    words = environ.pop(_GOES_ON, "").split()
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        return None
    return Handover(*map(int, words))


def replace_process(
    notifier: Notifier,
    activated: Sequence[socket],
    own: Sequence[socket] = (),
    time: int | None = None,
) -> None:
    """Start the program anew in this process, as it was called. Never returns.

    Args:
        activated: listening sockets that somebody else opened.
        own: the node's own listening sockets, if they are to stay open.
        time: when the jobs were written, for the new process to go on with jobs and queues;
            None: it starts like any other.

    Raises:
        OSError: there is no such program any more. The process can do nothing but end then.
    """
    os.chdir(STARTED_IN)
    environ = hand_over([*activated, *own], notifier)
    if time is not None:
        environ[_GOES_ON] = f"{len(activated)} {time}"
    # The new program cannot take it before it listens; that it is ignored outlasts the exec.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # As it was called: options of the interpreter are kept, too.
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)
