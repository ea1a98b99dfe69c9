"""The parts of systemctl that the docs use: starts units, without users or confinement.

``python systemctl.py UNITS COMMAND ... NAME``: UNITS is the directory with the units; pids go into
``run`` beside it.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.harness import HANG_SECONDS

INSTALL = """\
install() {
    local words=()
    while [ $# -gt 0 ]; do
        case $1 in -o | -g) shift ;; *) words+=("$1") ;; esac
        shift
    done
    command install "${words[@]}"
}
"""
"""``install`` for a shell that is not root's, without owners and groups."""
DONE_BY_OTHERS = ("daemon-reload", "mask", "status")


def settings_of(unit: Path) -> dict[str, list[str]]:
    """The settings of all sections."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "[")):
            found.setdefault(name, []).append(value)
    return found


def start(unit: Path, pid: Path) -> None:
    """Start it, and wait until it reports that it is ready, if it does so."""
    settings = settings_of(unit)
    environ = dict(os.environ)
    for file in settings.get("EnvironmentFile", ()):
        for line in Path(file.removeprefix("-")).read_text().splitlines():
            name, equals, value = line.partition("=")
            if equals:
                environ[name] = value
    words: list[str] = []
    for word in shlex.split(settings["ExecStart"][0]):
        words += environ[word[1:]].split() if word.startswith("$") else [word]
    place = Path(settings.get("WorkingDirectory", ["."])[0])
    place.mkdir(parents=True, exist_ok=True)
    notifies = settings.get("Type") == ["notify"]
    with (
        tempfile.TemporaryDirectory() as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        pid.with_suffix(".log").open("ab") as log,
    ):
        manager.bind(f"{directory}/notify")
        manager.settimeout(0.2)  # s between checks whether it has ended
        if notifies:
            environ["NOTIFY_SOCKET"] = f"{directory}/notify"
        process = subprocess.Popen(
            words,
            cwd=place,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        pid.write_text(str(process.pid))
        deadline = time.monotonic() + HANG_SECONDS
        while notifies:
            try:
                if b"READY=1" in manager.recv(4096).split(b"\n"):
                    return
            except TimeoutError:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{unit.name} is not ready: {pid.with_suffix('.log').read_text()}")


def stop(pid: Path) -> None:
    """Stop it like systemd, and wait for its end."""
    if not pid.exists():
        return
    number = int(pid.read_text())
    if lives(number):
        os.kill(number, signal.SIGTERM)
    deadline = time.monotonic() + HANG_SECONDS
    while lives(number):
        if time.monotonic() > deadline:
            os.kill(number, signal.SIGKILL)
        time.sleep(0.05)
    pid.unlink()


def lives(pid: int) -> bool:
    """Whether a process is running, and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def main() -> None:
    units, command, *words = sys.argv[1:]
    if command in DONE_BY_OTHERS:
        return
    name = words[-1].removesuffix(".service")
    pid = Path(units).parent / "run" / f"{name}.pid"
    pid.parent.mkdir(exist_ok=True)
    if command in ("stop", "restart"):
        stop(pid)
    if command in ("start", "restart") or (command == "enable" and "--now" in words):
        start(Path(units) / f"{name}.service", pid)


if __name__ == "__main__":
    main()
