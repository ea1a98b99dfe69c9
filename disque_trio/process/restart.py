"""Restarts a process in place: the same pid and listening sockets, a new program.

Owns the environment variable by which the old process tells the new one that it takes over.
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
        foreign: how many of the passed sockets somebody else (systemd) opened. They come first;
            the rest are the node's own.
        time: when it wrote its jobs, by its clock, in ms since the epoch.
    """

    foreign: int
    time: int


def command_line() -> list[str]:
    """The command line of this process, including options of the interpreter."""
    return [sys.executable, *sys.orig_argv[1:]]


def take_handover(environ: MutableMapping[str, str]) -> Handover | None:
    """Return what the previous process handed over; None: there was no previous process.

    Remove the variable from ``environ``.
    """
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
    """Start the program again in this process, with the same command line. Never returns.

    Args:
        directory: where this one was started: arguments may name files relative to it.
        activated: listening sockets that somebody else opened.
        own: the node's own listening sockets, if they have to stay open.
        time: when the jobs were written, so that the new process continues with jobs and queues;
            None: it starts normally.

    Raises:
        OSError: the program no longer exists. The process can then only end.
    """
    os.chdir(directory)
    environ = hand_over([*activated, *own], notifier)
    if time is not None:
        environ[_GOES_ON] = f"{len(activated)} {time}"
    # The new program has no handler at first; "ignore" survives the exec.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.execve(sys.executable, command_line(), environ)
