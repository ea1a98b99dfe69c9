"""Talks to systemd: readiness, status, watchdog, passed sockets.

Owns the environment variables of both protocols (sd_notify(3), sd_listen_fds(3)), and removes them
from the environment, so that child processes do not think that they are meant. Without them, and so
without systemd, nothing in this module has an effect.
"""

import fcntl
import os
import socket
import time
from collections.abc import Callable, MutableMapping, Sequence

FIRST_SOCKET = 3  # number of the first passed socket
_PATIENCE = 0.2  # s that a message may wait for a busy manager
_NOTIFY = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_SHARED = "DISQUE_SOCKETS"  # numbers of further sockets
_LISTEN = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class SocketError(Exception):
    """The passed sockets cannot be used for clients; the text says why."""


class Notifier:
    """Notifies systemd of the node's state. No method raises or blocks for long.

    Args:
        environ: the environment; the variables of the protocol are removed from it. Without them,
            nothing is sent.
        when_ready: called when clients are served.

    Attributes:
        enabled: whether somebody listens.
        watchdog: s within which ``feed`` has to be called again; 0: there is no watchdog.
        environ: the removed variables, for a process that replaces this one.
    """

    def __init__(
        self,
        environ: MutableMapping[str, str] | None = None,
        when_ready: Callable[[], None] = lambda: None,
    ) -> None:
        taken = {name: environ.pop(name) for name in _NOTIFY if name in environ} if environ else {}
        address = os.fsencode(taken.get("NOTIFY_SOCKET", ""))
        self.environ = taken
        self.enabled = address[:1] in (b"/", b"@")
        self.watchdog = 0.0
        self.stops = False
        self._when_ready = when_ready
        self._is_ready = False
        self._status = ""
        if not self.enabled:
            return
        # A leading @ stands for the zero byte of the abstract namespace.
        self._address = b"\0" + address[1:] if address[:1] == b"@" else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_PATIENCE)
        if taken.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            self.watchdog = _number(taken.get("WATCHDOG_USEC", "")) / 1e6

    def _send(self, *lines: str) -> None:
        if not self.enabled:
            return
        try:
            self._socket.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except OSError:
            # The node continues without its supervisor; what is urgent is sent again.
            pass

    def ready(self) -> None:
        """Report that clients are served."""
        self._is_ready = True
        self._send("READY=1")
        self._when_ready()

    def status(self, text: str) -> None:
        """Show ``text`` (one line) in ``systemctl status``; the same text is sent only once."""
        if text != self._status:
            self._status = text
            self._send("STATUS=" + text.replace("\n", " "))

    def extend(self, microseconds: int) -> None:
        """Report that starting, or stopping, takes longer: at least ``microseconds`` from now on.
        Call it again before they are over."""
        self._send(f"EXTEND_TIMEOUT_USEC={microseconds}")

    def reloading(self) -> None:
        """Report that the configuration is being read again; ``reloaded`` ends it."""
        if self._is_ready:
            self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        """Report that the reload is over. A node that is still starting is not ready by that."""
        if self._is_ready:
            self._send("READY=1")

    def stopping(self) -> None:
        """Report that the node begins to stop."""
        self.stops = True
        self._send("STOPPING=1")

    def feed(self) -> None:
        """Feed the watchdog: the node is well."""
        self._send("WATCHDOG=1")

    def close(self) -> None:
        """Send nothing from now on."""
        if self.enabled:
            self.enabled = False
            self._socket.close()


def adopt_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The listening sockets that systemd has opened for this process; none without it.

    Removes their variables from ``environ``.

    Raises:
        SocketError: one of them is not a listening TCP or unix stream socket.
    """
    pid, count, names = (environ.pop(name, "") for name in _LISTEN)
    if pid != str(os.getpid()):
        return []
    labels = names.split(":")
    adopted: list[socket.socket] = []
    for index in range(_number(count)):
        number = FIRST_SOCKET + index
        label = labels[index] if index < len(labels) and labels[index] else "without a name"
        try:
            adopted.append(_adopt(number))
        except OSError as problem:
            for listener in adopted:
                listener.close()
            raise SocketError(f"socket {number} ({label}): {problem.strerror}") from problem
    return adopted


def pass_sockets(sockets: Sequence[socket.socket]) -> dict[str, str]:
    """The variable by which a child finds ``sockets``, which have the same numbers there."""
    return {_SHARED: " ".join(str(sock.fileno()) for sock in sockets)}


def adopt_shared(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The listening sockets that the parent has passed with ``pass_sockets``.

    Removes their variable from ``environ``.

    Raises:
        SocketError: one of them is not a listening TCP or unix stream socket.
    """
    try:
        return [_adopt(int(number)) for number in environ.pop(_SHARED, "").split()]
    except (ValueError, OSError) as problem:
        raise SocketError(f"{_SHARED}: {problem}") from problem


def _adopt(number: int) -> socket.socket:
    listener = socket.socket(fileno=number)
    listener.set_inheritable(False)
    listener.setblocking(False)
    if (
        listener.family not in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
        or listener.type != socket.SOCK_STREAM
        or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ):
        listener.close()
        raise OSError(0, "not a stream socket that listens (ListenStream= with Accept=no)")
    return listener


def hand_over(listeners: Sequence[socket.socket], notifier: Notifier) -> dict[str, str]:
    """Prepare for an exec that keeps the sockets: puts ``listeners`` where ``adopt_sockets`` of
    the new program looks, and returns the environment it needs.

    After this, the process can only exec: whatever had these numbers is closed.
    """
    # First copy them beyond the numbers to be overwritten, which a listener may have.
    beyond = FIRST_SOCKET + len(listeners)
    copies = [fcntl.fcntl(sock, fcntl.F_DUPFD_CLOEXEC, beyond) for sock in listeners]
    for number, copy in enumerate(copies, FIRST_SOCKET):
        os.dup2(copy, number)
    environ = {**os.environ, **notifier.environ}
    if listeners:
        environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(listeners))}
    return environ


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
