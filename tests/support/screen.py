"""``disque`` on its own terminal, whose screen and keyboard the test controls."""

import fcntl
import os
import re
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS

_STYLE = re.compile(r"\x1b\[(?:\d*m|K)")
_PAINTED = re.compile(r"\x1b\[H(.*?)\x1b\[J", re.S)


class Screen:
    """The terminal, and ``disque`` on it.

    Attributes:
        process: the program. before: the settings of the terminal before its start.
    """

    def __init__(
        self, arguments: Sequence[str], columns: int, lines: int, environment: dict[str, str]
    ) -> None:
        self._ours, theirs = os.openpty()
        self._theirs = theirs  # kept open, to check its settings after the program ends
        self.resize(columns, lines)
        self.before = self.settings()
        self._data = b""
        self.process = start_command(
            "disque",
            *arguments,
            env={**os.environ, "TERM": "xterm", **environment},
            terminal=theirs,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def settings(self) -> list[Any]:
        """The settings of the terminal."""
        return termios.tcgetattr(self._theirs)

    @property
    def output(self) -> str:
        """All output so far."""
        return self._data.decode(errors="replace")

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, without styles."""
        painted = _PAINTED.findall(self.output)
        # The terminal translates line feeds again.
        return re.split("\r+\n", _STYLE.sub("", painted[-1])) if painted else []

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def shows(self, wanted: str | Callable[[str], bool]) -> None:
        """Wait until the screen shows this."""
        fits = (lambda text: wanted in text) if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + HANG_SECONDS
        while not fits(self.text):
            assert time.monotonic() < deadline, f"not within {HANG_SECONDS} s:\n{self.text}"
            time.sleep(0.005)

    def press(self, keys: str) -> None:
        """Press keys, given as a terminal sends them."""
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Resize the terminal."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def ends(self) -> int:
        """Wait for the end of the program; returns its exit status."""
        return self.process.wait(HANG_SECONDS)

    def close(self) -> None:
        """End the program, and close the terminal."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        os.close(self._theirs)
        self._reader.join()
        os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:
                return
            if not data:
                return
            self._data += data


@contextmanager
def screen(
    arguments: Sequence[str], columns: int = 100, lines: int = 30, **environment: str
) -> Iterator[Screen]:
    """``disque`` on a terminal, which ends with the block."""
    found = Screen(arguments, columns, lines, environment)
    try:
        yield found
    finally:
        found.close()
