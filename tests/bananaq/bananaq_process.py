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

    def start(self) -> BananaProcess:
        """Start it, and return when it serves."""
        command = [sys.executable, "-m", "disque_trio.bananaq.main"]
        command += ["--listen-addr", f"127.0.0.1:{self.port}", "--dir", str(self.directory)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.options], stdout=log, stderr=log, env=environment
            )
        wait_until(lambda: self.serves() or self.ended(), 20)
        if self.ended():
            raise RuntimeError(f"bananaq did not start: {self.log.read_text()}")
        return self

    def serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(100) == b"+PONG\r\n"
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
