"""The interactive prompt: editing, completion, hints, reconnecting, Ctrl-C, on a real terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from disque_trio.cli.commandtable import CommandDoc
from disque_trio.cli.options import Options
from disque_trio.cli.prompt import CommandCompleter, hint_for
from disque_trio.cli.repl import Repl
from disque_trio.cli.runner import Runner
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS
from tests.support.scripted_server import HANG_UP, scripted_server

TABLE = {
    "addjob": CommandDoc("addjob", "queue job ms-timeout [DELAY seconds] [ASYNC]", "Add.", "jobs"),
    "ackjob": CommandDoc("ackjob", "id [id ...]", "Ack.", "jobs"),
    "qlen": CommandDoc("qlen", "queue", "Length.", "queues"),
}


@pytest.fixture
def completer() -> CommandCompleter:
    repl = Repl(Runner(Options(), sys.stdout.buffer))
    repl.table = TABLE
    return CommandCompleter(repl)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a", ["ackjob", "addjob"]),
        ("A", ["ACKJOB", "ADDJOB"]),
        ("qu", ["quit"]),
        ("addjob q b 0 d", ["delay"]),
        ("addjob q b 0 ", ["DELAY", "ASYNC"]),
        ("5 addjob q b 0 A", ["ASYNC"]),
        ("help @", ["@jobs", "@queues"]),
        ("help q", ["qlen"]),
        ("nope x", []),
    ],
)
def test_tab_offers_what_fits(completer: CommandCompleter, line: str, expected: list[str]) -> None:
    found = completer.get_completions(Document(line), CompleteEvent())
    assert [completion.text for completion in found] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("qlen", " queue"),
        ("QLEN ", "queue"),
        ("qlen q", ""),
        ("3 qlen ", "queue"),
        ("ql", ""),
        ("", ""),
        ("addjob q", " job ms-timeout [DELAY seconds] [ASYNC]"),
    ],
)
def test_the_hint_continues_the_line(line: str, expected: str) -> None:
    assert hint_for(TABLE, line) == expected


class Terminal:
    """A process on a pseudo terminal."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]") -> None:
        self._master = master
        self.process = process
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, pattern: str) -> str:
        """Wait until the pattern appears after what was expected before."""
        deadline = time.monotonic() + HANG_SECONDS
        while not (found := re.search(pattern, self._seen)):
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self._seen!r}"
            if select.select([self._master], [], [], left)[0]:
                data = os.read(self._master, 65536).decode(errors="replace")
                self._seen += re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>])", "", data)
        self._seen = self._seen[found.end() :]
        return found[0]


@contextmanager
def terminal(*arguments: str, home: Path, prelude: str = "") -> Iterator[Terminal]:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    code = f"{prelude}\nimport sys; from disque_trio.cli.main import main; sys.exit(main())"
    command = ["python -c", code] if prelude else ["disque"]
    process = start_command(
        *command,
        *arguments,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        # It would ask for the position of the cursor, even while nobody here reads, and a late
        # answer is read as if it had been typed.
        env=os.environ
        | {"HOME": str(home), "TERM": "xterm", "NO_COLOR": "1", "PROMPT_TOOLKIT_NO_CPR": "1"},
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(HANG_SECONDS)
        os.close(master)


def answer(command: list[bytes]) -> bytes:
    name = command[0].lower()
    if name == b"command":
        return b"*2\r\n+qlen\r\n*4\r\n+syntax\r\n+queuename\r\n+group\r\n+queues\r\n"
    if name == b"block":
        return b""
    if name == b"bye":
        return HANG_UP
    return b"*2\r\n$4\r\nbody\r\n:5\r\n"


def test_a_line_is_run_and_its_reply_printed_for_people(tmp_path: Path) -> None:
    with (
        scripted_server(answer) as server,
        terminal("-p", server.port, home=tmp_path) as terminal_,
    ):
        terminal_.expect(f"127.0.0.1:{server.port}>")
        terminal_.type("qlen q\r")
        terminal_.expect(r'1\) "body"\r\n2\) \(integer\) 5\r\n')
        terminal_.expect(">")
        terminal_.type("quit\r")
        assert terminal_.process.wait(HANG_SECONDS) == 0
    assert server.seen[-1] == [b"qlen", b"q"]
    assert "qlen q" in (tmp_path / ".disquecli_history").read_text()


def test_the_hint_and_the_completion_come_from_the_node(tmp_path: Path) -> None:
    with (
        scripted_server(answer) as server,
        terminal("-p", server.port, home=tmp_path) as terminal_,
    ):
        terminal_.expect(">")
        terminal_.type("ql\t")
        terminal_.expect("en")
        terminal_.type(" ")
        terminal_.expect("queuename")
        terminal_.type("\x04")


def test_passwords_are_not_written_to_the_history(tmp_path: Path) -> None:
    with (
        scripted_server(answer) as server,
        terminal("-p", server.port, home=tmp_path) as terminal_,
    ):
        terminal_.expect(">")
        terminal_.type("auth secret\r")
        terminal_.expect("body")
        terminal_.expect(">")
        terminal_.type("exit\r")
        terminal_.process.wait(HANG_SECONDS)
    history = tmp_path / ".disquecli_history"
    assert not history.exists() or "secret" not in history.read_text()


def test_ctrl_c_ends_a_blocking_command_and_the_prompt_comes_back(tmp_path: Path) -> None:
    with (
        scripted_server(answer) as server,
        terminal("-p", server.port, home=tmp_path) as terminal_,
    ):
        terminal_.expect(">")
        terminal_.type("block\r")
        server.wait_for(lambda: server.seen[-1] == [b"block"])
        terminal_.process.send_signal(signal.SIGINT)
        terminal_.expect("not connected>")
        server.wait_for(lambda: not server.open)
        terminal_.type("qlen q\r")
        terminal_.expect("body")
        terminal_.expect(f"127.0.0.1:{server.port}>")
        terminal_.type("\x04")
        assert terminal_.process.wait(HANG_SECONDS) == 0


def test_a_lost_connection_shows_in_the_prompt_and_is_made_anew(tmp_path: Path) -> None:
    with (
        scripted_server(answer) as server,
        terminal("-p", server.port, home=tmp_path) as terminal_,
    ):
        terminal_.expect(">")
        terminal_.type("bye\r")
        terminal_.expect("closed the connection")
        terminal_.expect("not connected>")
        terminal_.type("qlen q\r")
        terminal_.expect("body")
        server.drop_clients()
        terminal_.type("qlen q\r")
        terminal_.expect("body")


def test_a_node_that_is_down_leaves_a_prompt_with_help(tmp_path: Path) -> None:
    with terminal("-s", "/nonexistent.sock", home=tmp_path) as terminal_:
        terminal_.expect("Could not connect to Disque")
        terminal_.expect("not connected>")
        terminal_.type("help addjob\r")
        terminal_.expect("summary:")
        terminal_.expect("not connected>")


def test_without_prompt_toolkit_there_is_a_plain_prompt_and_one_line_about_it(
    tmp_path: Path,
) -> None:
    prelude = "import sys; sys.modules['prompt_toolkit'] = None"
    with (
        scripted_server(answer) as server,
        terminal("-p", server.port, home=tmp_path, prelude=prelude) as terminal_,
    ):
        terminal_.expect("-m pip install .*console")
        terminal_.expect(">")
        terminal_.type("qlen q\n")
        terminal_.expect("body")
        terminal_.type("quit\n")
        assert terminal_.process.wait(HANG_SECONDS) == 0
