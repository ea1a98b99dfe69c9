"""bananaq in a process of its own, for tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from harness import free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]


class BananaProcess:
    """bananaq on `port`, working in `directory`. It can be killed and started again.

    Args:
        directory: where it works, and where its output goes (`out.log`).
        options: of the command line, besides those about port and directory.
    """

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options
        self.port = free_port()
        self.log = directory / "out.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._served = False

    def start(self) -> BananaProcess:
        """Start it, and return when it serves."""
        while True:
            command = [sys.executable, "-m", "disque_trio.bananaq.main"]
            command += ["--listen-addr", f"127.0.0.1:{self.port}", "--dir", str(self.directory)]
            try:
                self.launch([*command, *self.options], {**os.environ, "PYTHONPATH": str(ROOT)})
            except RuntimeError as problem:
                if self._served or "in use" not in str(problem):
                    raise
                self.port = free_port()  # somebody else was faster
            else:
                self._served = True
                return self

    def launch(self, command: list[str], environment: dict[str, str]) -> None:
        """Start it with another command, which has to make it listen on `port`."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        wait_until(lambda: self.serves() or self.ended(), 20)
        if self.ended():
            raise RuntimeError(f"bananaq did not start: {self.log.read_text()}")

    def serves(self) -> bool:
        """Whether it answers, if only that a password is missing."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it with a signal; returns the exit status."""
        assert self.process is not None
        if not self.ended():
            self.process.send_signal(number)
        return self.process.wait(20)
