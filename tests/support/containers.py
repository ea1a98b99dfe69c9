"""Nodes as the container image runs them, without a container."""

import os
import subprocess
from pathlib import Path

from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, free_port
from tests.support.shims import programs

SCRIPT = ROOT / "config" / "container" / "disque-container"
SCALED_DOWN = SCRIPT.with_name("disque-scaled-down")
COMMANDS = ("disque", "disque-server")


class Containers:
    """Nodes as the image runs them, on loopback addresses with the same port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "bin").mkdir()
        for name in COMMANDS:
            (directory / "bin" / name).symlink_to(programs() / name)
        (directory / "bin" / SCALED_DOWN.name).symlink_to(SCALED_DOWN)
        (directory / "password").write_text('pass "word\\\n')
        (directory / "cluster-secret").write_text("0123456789abcdef0123456789abcdef\n")
        (directory / "disque.yaml").write_text("maxmemory: 2gb\n")
        self.environ = {
            "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "DISQUE_PORT": str(free_port()),
            "DISQUE_PASSWORD_FILE": str(directory / "password"),
            "DISQUE_MEET_WAIT": "0",
        }
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, address: str, **environ: str) -> None:
        place = self.place(address)
        place.mkdir(exist_ok=True)
        process = subprocess.Popen(
            [str(SCRIPT), "--bind", address, "--logfile", str(place / "log")],
            env={**self.environ, "DISQUE_DIR": str(place), **environ},
        )
        self.running.append(process)

    def place(self, address: str) -> Path:
        """The directory of a node."""
        return self.directory / address

    def end(self) -> None:
        """Kill all nodes."""
        for process in self.running:
            process.kill()
            process.wait()

    def run(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        """Run the script with ``arguments``, and with more in its environment."""
        return subprocess.run(
            [str(SCRIPT), *arguments],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_SECONDS,
        )

    def replace(self, program: str, script: str) -> None:
        """Put a shell script in place of ``disque`` or ``disque-server``."""
        path = self.directory / "bin" / program
        path.unlink()
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def ask(self, address: str, *command: str) -> str:
        options = ("-h", address, "-p", self.environ["DISQUE_PORT"])
        return self.run("disque", *options, *command).stdout
