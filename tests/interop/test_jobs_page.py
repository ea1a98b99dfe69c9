"""docs/jobs.md: its commands, in order, do what the page shows."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from fcntl import ioctl
from functools import partial
from pathlib import Path
from termios import TIOCSCTTY

import pytest

from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, wait_until
from tests.support.live_cluster import free_cluster_ports

PAGE = (ROOT / "docs" / "jobs.md").read_text()
ID = r"D-[0-9a-f]{8}-[0-9A-Za-z+/]{24}-[0-9a-f]{4}"
END = "--- done ---"


def steps() -> list[tuple[str, list[str]]]:
    """Return the commands of the page, each with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"(?:^(?:    .*)?\n)+", PAGE, re.MULTILINE):
        for part in re.split(r"^    \$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip().split("\n")
            found.append((command, [line.strip() for line in shown]))
    return found


class Shell:
    """A bash in the source directory, where the paths on the page are those of a test.

    Args:
        directory: stands for /tmp/disque, and contains the log.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ports = free_cluster_ports(3)
        program = directory / "mails.py"
        program.write_text(self._ported((ROOT / "examples" / "mails" / "mails.py").read_text()))
        self._places = {
            "/tmp/disque": str(directory),
            ".venv/bin/": f"{Path(sys.executable).parent}/",
            "examples/mails/mails.py": str(program),
            "RETRY 5": "RETRY 1",
            "BACKOFF 1 60": "BACKOFF 0.1 0.4",
        }
        self._ids: dict[str, str] = {}
        # Only with a terminal can a job of the shell be ended with all of its processes.
        self._terminal, terminal = os.openpty()
        with (directory / "errors").open("wb") as errors, os.fdopen(terminal):
            self._process = subprocess.Popen(
                ["bash", "-m"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                text=True,
                start_new_session=True,
                pass_fds=[terminal],
                preexec_fn=partial(ioctl, terminal, TIOCSCTTY, 0),
            )

    def _ported(self, text: str) -> str:
        for told, port in zip(("7711", "7712", "7713"), self._ports, strict=True):
            text = text.replace(told, str(port))
        return text

    def run(self, command: str) -> list[str]:
        """Run a command of the page; return the lines that it prints."""
        for told, place in self._places.items():
            command = command.replace(told, place)
        command = re.sub(ID, lambda id: self._ids[id[0]], self._ported(command))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\necho '{END}'\n")
        self._process.stdin.flush()
        lines = []
        limit = threading.Timer(HANG_SECONDS, self.kill_nodes)
        limit.start()
        try:
            for line in self._process.stdout:
                if line == f"{END}\n":
                    return lines
                lines.append(line.strip())
        finally:
            limit.cancel()
        pytest.fail(f"the shell ended: {command}\n{(self.directory / 'errors').read_text()}")

    def compare(self, shown: list[str], lines: list[str]) -> None:
        """Compare what the page shows with the output. Ids, and the order of letters, may differ;
        an id on the page stands for the first one that was printed in its place."""
        if shown[-1:] == ["..."]:
            shown, lines = shown[:-1], lines[: len(shown) - 1]
        while lines and not lines[-1]:  # an answer that is null
            lines.pop()
        assert len(shown) == len(lines), lines
        for told, line in zip(shown, lines, strict=True):
            for id, found in zip(re.findall(ID, told), re.findall(ID, line), strict=True):
                assert self._ids.setdefault(id, found) == found
        assert [_without_ids(line) for line in lines] == [_without_ids(line) for line in shown]

    def close(self) -> None:
        """End everything that was started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("for group in $(jobs -p); do kill -9 -- -$group; done\nexit\n")
        self._process.stdin.close()
        self._process.wait(HANG_SECONDS)
        self._process.stdout.close()
        os.close(self._terminal)
        self.kill_nodes()

    def kill_nodes(self) -> None:
        """End the nodes at once; commands that wait for them fail."""
        for file in self.directory.glob("*/pid"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)


def _without_ids(line: str) -> str:
    return re.sub("^mail [369]$", "mail N", re.sub(ID, "ID", line))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def joined(shell: Shell) -> bool:
    for port in (7711, 7712, 7713):
        lines = shell.run(f"redis-cli -p {port} HELLO")
        if lines.count("1") != 4 or "handshake" in str(
            shell.run(f"redis-cli -p {port} CLUSTER NODES")
        ):
            return False
    return True


def dead(shell: Shell) -> int:
    lines = [shell.run(f"redis-cli -p {port} QLEN mails.dead") for port in (7711, 7712, 7713)]
    return sum(int(number) for [number] in filter(None, lines))  # one may not respond yet


def sent(shell: Shell) -> set[str]:
    return {line for line in shell.run("cut -d ' ' -f 1-3 /tmp/disque/sent") if line}


def test_the_commands_of_the_page_do_what_it_shows(shell: Shell) -> None:
    # What a reader waits for before going on, by the beginning of the next command.
    before: dict[str, Callable[[], object]] = {
        "redis-cli -p 7711 CLUSTER": lambda: shell.run("redis-cli -p 7713 PING") == ["PONG"],
        "redis-cli -p 7711 QSET": lambda: joined(shell),
        "redis-cli -p 7712 GETJOB WITH": lambda: dead(shell) == 3,
        "redis-cli -p 7711 ADDJOB": lambda: joined(shell),
    }
    found = steps()
    assert len(found) > 35
    for command, shown in found:
        for beginning, condition in before.items():
            if command.startswith(beginning):
                wait_until(condition)
        if command.startswith("cut"):
            wait_until(lambda shown=shown: sent(shell) == set(shown))
        if command.startswith("kill -9"):
            wait_until(lambda: sent(shell))
        shell.compare(shown, shell.run(command))
