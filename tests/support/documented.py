"""Runs commands of the documentation as written, except for ports and directories, which are
replaced so that they disturb nobody."""

import contextlib
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support import PYTHONPATH, ROOT, shims
from tests.support.harness import free_ports

ID = r"D-[0-9a-f]{8}-[0-9A-Za-z+/]{24}-[0-9a-f]{4}"
# Typed before commands that belong in /tmp/disque, with the project's programs in the PATH.
IN_PLACE = "  mkdir -p /tmp/disque\n  export PATH=$PWD/.venv/bin:$PATH\n  cd /tmp/disque\n"
Type = Callable[..., str]  # the fixture type_in
Main = Callable[[list[str]], int]  # a command: arguments to exit status

# Makes the test run the command.
_ASK = """\
import json, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({path!r})
    asked.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    with asked.makefile() as answer:
        status, out, err = json.load(answer)
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""


def page_of(name: str) -> Path:
    """The path of a page of docs/, or of the folder of that name in a distribution."""
    places = [ROOT / "docs", *ROOT.glob("packages/*/docs")]
    [found] = [place / name for place in places if (place / name).exists()]
    return found


def section(page: str, title: str) -> str:
    """The section below a title on a page of docs/, up to the next title of the same or a higher
    level."""
    text = page_of(page).read_text()
    found = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert found, f"{page} has no {title!r}"
    rest = text[found.end() :]
    return re.split(rf"^#{{1,{len(found[1])}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def commands(page: str, title: str) -> str:
    """The indented blocks of that section, except in fenced programs."""
    text = re.sub(r"^```.*?^```", "", section(page, title), flags=re.MULTILINE | re.DOTALL)
    lines = text.splitlines(True)
    return "".join(line[4:] for line in lines if line.startswith("    "))


def port_digits() -> str:
    """The digits of four free ports before the last digit, which counts from 1. No page has more
    nodes that begin alike."""
    return str(free_ports(4)[0] // 10)


def shape(text: str) -> str:
    """A text without its ids and numbers, which differ each time."""
    return re.sub(rf"{ID}|0x[0-9a-f]+|\d+", "N", text)


def until(condition: str) -> str:
    """A line that waits for a condition."""
    return f"  for n in $(seq 600); do if {condition}; then break; fi; sleep 0.1; done\n"


class Typist:
    """Types commands into a shell in the project's directory.

    Args:
        directory: for temporary files, and for ``others``; nodes leave their ``pid`` there.
        others: replacements besides the environment of these tests.
        main: replaces ``disque-pipeline``, and runs in this thread of this process, so that it can
            use an existing Spark session; None for a separate process.
    """

    def __init__(
        self, directory: Path, others: Mapping[str, str], main: Main | None = None
    ) -> None:
        self._directory = directory
        self._main = main
        programs = str(shims.programs())
        self._others = {**others, "$PWD/.venv/bin": programs, ".venv/bin": programs}

    def type(self, script: str, *, strictly: bool = True) -> str:
        """Type ``script``; returns all output.

        Args:
            strictly: whether the first failure ends it.

        Raises:
            AssertionError: the script failed.
        """
        olds = sorted(self._others, key=len, reverse=True)  # one may contain another
        either = "|".join(map(re.escape, olds))
        script = re.sub(either, lambda found: self._others[found[0]], script)
        socket_path = self._directory / "asked"
        if self._main is not None:
            ask = self._directory / "ask.py"
            ask.write_text(_ASK.format(path=str(socket_path)))
            asking = f"{shlex.quote(sys.executable)} {shlex.quote(str(ask))}"
            script = re.sub(r"^\S*disque-pipeline", lambda _: asking, script, flags=re.MULTILINE)
        temporary = self._directory / "temporary"
        temporary.mkdir(exist_ok=True)
        environment = {"TMPDIR": str(temporary), "SPARK_LOCAL_IP": "127.0.0.1"}
        printed = self._directory / "printed"
        with (
            printed.open("wb") as output,
            socket.socket(socket.AF_UNIX) as listener,
            subprocess.Popen(
                ["bash", "-e", "-c", script] if strictly else ["bash", "-c", script],
                cwd=ROOT,
                env={**os.environ, **environment, "PYTHONPATH": PYTHONPATH},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as shell,
        ):
            try:
                if self._main is not None:
                    socket_path.unlink(missing_ok=True)
                    listener.bind(str(socket_path))
                    listener.listen()
                    threading.Thread(target=_tell_the_end, args=(shell, socket_path)).start()
                    while self._answer(listener, self._main):
                        pass
                shell.wait()
            finally:
                self._clean_up(shell)
        text = printed.read_text(errors="replace")
        assert not strictly or shell.returncode == 0, text
        return text

    def _answer(self, listener: socket.socket, main: Main) -> bool:
        """Run a command requested by the shell; returns False if the shell has ended."""
        connection, _ = listener.accept()
        with connection, connection.makefile("r") as asked:
            line = asked.readline()
            if not line:
                return False
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    status = main(json.loads(line))
                except SystemExit as ended:  # argparse
                    status = int(ended.code or 0)
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(json.dumps([status, out.getvalue(), err.getvalue()]).encode())
        return True

    def _clean_up(self, shell: "subprocess.Popen[bytes]") -> None:
        with contextlib.suppress(ProcessLookupError):  # what it left in the background
            os.killpg(shell.pid, signal.SIGKILL)
        for pid in self._directory.rglob("pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGKILL)


def _tell_the_end(shell: "subprocess.Popen[bytes]", path: Path) -> None:
    shell.wait()
    with socket.socket(socket.AF_UNIX) as nothing, contextlib.suppress(OSError):
        nothing.connect(str(path))  # nobody listens any more if the test has failed
