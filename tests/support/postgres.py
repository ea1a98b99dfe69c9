"""A private PostgreSQL for tests, from the machine's package, in a temporary directory."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.harness import HANG_SECONDS, wait_until


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _user() -> str | None:
    """The user who runs it: it refuses to run as root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody")


class Postgres:
    """A server that listens on a socket in its own directory.

    Raises:
        pytest.skip.Exception: it is not installed.
    """

    def __init__(self) -> None:
        programs = _programs()
        if programs is None:
            pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
        self._programs = programs
        self._user = _user()
        self.directory = Path(tempfile.mkdtemp(prefix="disque-postgres-", dir="/tmp"))
        if self._user:
            shutil.chown(self.directory, self._user)
        self._data = self.directory / "data"
        options = ("-U", "test", "-A", "trust", "-E", "UTF8", "--no-sync")
        assert self._run("initdb", "-D", self._data, *options) == 0
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is usable."""
        options = ["-k", self.directory, "-c", "listen_addresses=", "-c", "fsync=off"]
        command = [self._programs / "postgres", "-D", self._data, *options]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*map(str, command)], user=self._user, cwd="/", stdout=log, stderr=log
            )
        wait_until(lambda: self._run("pg_isready", "-h", self.directory) == 0)

    def stop(self) -> None:
        """Stop it at once, breaking connections."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(HANG_SECONDS)

    def database(self) -> str:
        """The URL of a new database."""
        name = "d" + uuid4().hex[:8]
        assert self._run("createdb", "-h", self.directory, "-U", "test", name) == 0
        return f"postgresql+psycopg://test@/{name}?host={self.directory}"

    def close(self) -> None:
        """Stop it and clean up."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(HANG_SECONDS)
        shutil.rmtree(self.directory)

    def _run(self, program: str, *arguments: object) -> int:
        return subprocess.run(
            [self._programs / program, *map(str, arguments)],
            user=self._user,
            cwd="/",
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=HANG_SECONDS,
            check=False,
        ).returncode
