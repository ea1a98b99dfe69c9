"""Restarts a process in place: the same pid and listening sockets, a new program.

Owns the environment variable by which the old process tells the new one that it goes on for it.
"""

import os
import signal
import sys
from collections.abc import MutableMapping, Sequence
from socket import socket
from typing import NamedTuple

from disque_trio.process.systemd import Notifier, hand_over

_GOES_ON = "DISQUE_RESTARTED"


class Handover(NamedTuple):
    """The data that the old process passes to the new one.

    Attributes:
        foreign: how many of the passed sockets somebody else opened (systemd). They come first;
            those behind them are the node's own.
        time: when it wrote its jobs, in ms since the epoch, by its clock.
    """

    foreign: int
    time: int


def command_line() -> list[str]:
    """How this process was called: options of the interpreter are kept, too."""
    return [sys.executable, *sys.orig_argv[1:]]


def take_handover(environ: MutableMapping[str, str]) -> Handover | None:
    """What the process before this one says; None: there is none, this one was just started.
    The variable is taken out of ``environ``."""
    words = environ.pop(_GOES_ON, "").split()
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        return None
    return Handover(*map(int, words))


def replace_process(
    notifier: Notifier,
    directory: str,
    activated: Sequence[socket],
    own: Sequence[socket] = (),
    time: int | None = None,
) -> None:
    """Start the program anew in this process, as it was called. Never returns.

    Args:
        directory: where this one was started: arguments may name files relative to it.
        activated: listening sockets that somebody else opened.
        own: the node's own listening sockets, if they are to stay open.
        time: when the jobs were written, for the new process to go on with jobs and queues;
            None: it starts like any other.

    Raises:
        OSError: there is no such program any more. The process can do nothing but end then.
    """
    os.chdir(directory)
    environ = hand_over([*activated, *own], notifier)
    if time is not None:
        environ[_GOES_ON] = f"{len(activated)} {time}"
    # The new program cannot take it before it listens; that it is ignored outlasts the exec.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.execve(sys.executable, command_line(), environ)
