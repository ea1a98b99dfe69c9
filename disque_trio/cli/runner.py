"""Runs commands for a person: sends, waits and prints; reconnects when needed.

Owns the connection of the process, and the output of replies.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from disque_trio.cli.connection import Connection, ConnectionFailed, Disconnected
from disque_trio.cli.format import Output, format_reply
from disque_trio.cli.options import Options
from disque_trio.cli.resp import Kind

TYPE_CHECKING = False  # typing is slow to import; see main
if TYPE_CHECKING:
    from typing import BinaryIO

_SLOW_SECONDS = 0.5
_RESTART_SECONDS = 60.0  # to wait for a node that restarts to accept a connection
_AGAIN_SECONDS = 0.1


def complain(text: str) -> None:
    """Print a message for the user that is not a reply."""
    print(text, file=sys.stderr, flush=True)


def connected(options: Options) -> Connection:
    """A new connection. Tells the user about errors in AUTH or HELLO."""
    connection = Connection(options)
    for complaint in connection.complaints:
        complain(complaint)
    return connection


class Runner:
    """Runs commands one after the other.

    Args:
        options: of the command line.
        out: where replies go.
        interactive: print the duration of slow commands, like redis-cli's prompt.
    """

    def __init__(self, options: Options, out: BinaryIO, *, interactive: bool = False) -> None:
        self.options = options
        self._out = out
        self._interactive = interactive
        self._connection: Connection | None = None
        self._output = options.output or (Output.STANDARD if out.isatty() else Output.RAW)

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as we know."""
        return self._connection is not None

    def connect(self) -> Connection:
        """The connection; opens one if there is none, or if the node has hung up.

        Raises:
            ConnectionFailed: the node cannot be reached.
        """
        if self._connection is not None and self._connection.is_stale():
            self.disconnect()
        if self._connection is None:
            self._connection = connected(self.options)
        return self._connection

    def disconnect(self) -> None:
        """Hang up. The node then forgets a command that blocks."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, command: Sequence[bytes], repeat: int = 1) -> bool:
        """Run a command ``repeat`` times (negative: forever) and print the replies.

        Returns:
            Whether all went well: no error reply, and no connection failure.
        """
        fine = True
        while repeat != 0:
            fine = self._run_once(command) and fine
            repeat -= 1
            if repeat != 0 and self.options.interval > 0:
                time.sleep(self.options.interval)
        return fine

    def _run_once(self, command: Sequence[bytes]) -> bool:
        started = time.monotonic()
        name = command[0].lower()
        try:
            connection = self.connect()
            connection.send(command)
            fine = self._print_reply(connection, is_text=_answers_text(command))
            while fine and name == b"monitor":
                self._print_reply(connection)
        except ConnectionFailed as error:
            complain(str(error))
            return False
        except Disconnected as error:
            self.disconnect()
            if name == b"shutdown":
                return True  # it gets no reply
            if name == b"restart":
                return self._returns()
            complain(str(error))
            return False
        except KeyboardInterrupt:
            self.disconnect()
            raise
        if name == b"quit":
            self.disconnect()
        took = time.monotonic() - started
        if self._interactive and took >= _SLOW_SECONDS and self._output is Output.STANDARD:
            self._write(b"(%.2fs)\n" % took)
        return fine

    def _returns(self) -> bool:
        """Wait until the node, which restarts, answers and has loaded its jobs. Returns whether it
        does; it may take as long as it likes to load them."""
        until = time.monotonic() + _RESTART_SECONDS
        while True:
            try:
                reply = self.connect().execute(b"PING")
            except (ConnectionFailed, Disconnected) as error:
                self.disconnect()
                if time.monotonic() > until:
                    complain(f"The node did not come back in {_RESTART_SECONDS:g} s: {error}")
                    return False
            else:
                if not reply.text.startswith(b"LOADING"):
                    return True
            time.sleep(_AGAIN_SECONDS)

    def _print_reply(self, connection: Connection, *, is_text: bool = False) -> bool:
        reply = connection.read()
        self._write(format_reply(reply, self._output, is_text=is_text))
        return reply.kind is not Kind.ERROR

    def _write(self, data: bytes) -> None:
        self._out.write(data)
        self._out.flush()


_TEXTS = {
    (b"info",),
    (b"client", b"list"),
    (b"client", b"info"),
    (b"cluster", b"nodes"),
    (b"cluster", b"info"),
    (b"latency", b"graph"),
    (b"latency", b"doctor"),
}


def _answers_text(command: Sequence[bytes]) -> bool:
    """Whether the reply is a text of several lines for people, to print unquoted."""
    words = tuple(word.lower() for word in command[:2])
    return words[:1] in _TEXTS or words in _TEXTS
