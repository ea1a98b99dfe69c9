"""Runs command lines, typed at the prompt or read from stdin."""

from collections.abc import Callable
from typing import BinaryIO

from disque_trio.cli.commandtable import CommandTable, built_in_table, table_from_docs
from disque_trio.cli.connection import ConnectionFailed, Disconnected
from disque_trio.cli.help import help_text
from disque_trio.cli.runner import Runner, complain
from disque_trio.resp.inline import split_inline

_CLEAR_SCREEN = "\x1b[H\x1b[2J"


class Repl:
    """Runs lines with a ``Runner``, and handles help, clear, quit and exit itself."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.table: CommandTable = {}

    def learn_commands(self) -> None:
        """Ask the node for its commands, for help and hints; if it is down, use the built-in table.

        Raises nothing: the user learns that a node is down when a command runs.
        """
        try:
            self.table = table_from_docs(self.runner.connect().execute(b"COMMAND", b"DOCS"))
        except ConnectionFailed as error:
            complain(str(error))
        except Disconnected:
            self.runner.disconnect()
        self.table = self.table or built_in_table()

    def run_line(self, line: bytes) -> bool | None:
        """Run one line. Returns whether it succeeded; None if the user wants to leave."""
        arguments = split_inline(line)
        if arguments is None:
            print("Invalid argument(s)", flush=True)
            return False
        repeat = 1
        if len(arguments) > 1 and arguments[0].isdigit():
            repeat = int(arguments.pop(0))
        if not arguments:
            return True
        name = arguments[0].lower()
        if name in (b"quit", b"exit"):
            return None
        if name in (b"help", b"?"):
            topics = [word.decode(errors="replace") for word in arguments[1:]]
            print(help_text(self.table or built_in_table(), topics), end="", flush=True)
            return True
        if name == b"clear":
            print(_CLEAR_SCREEN, end="", flush=True)
            return True
        return self.runner.run(arguments, repeat)

    def run_stream(self, lines: BinaryIO) -> bool:
        """Run all lines of a file; returns whether all succeeded."""
        fine = True
        for line in lines:
            outcome = self.run_line(line)
            if outcome is None:
                break
            fine = outcome and fine
        return fine

    def run_prompt(self, read_line: Callable[[str], str]) -> None:
        """Read and run lines until the user leaves.

        Args:
            read_line: shows a prompt and returns a line; EOFError means the end.
        """
        self.learn_commands()
        while True:
            try:
                line = read_line(self.prompt())
                if self.run_line(line.encode("utf-8", "surrogateescape")) is None:
                    return
            except KeyboardInterrupt:
                # It cancelled the typed line, or the command, whose connection is already closed.
                continue
            except EOFError:
                print()
                return

    def prompt(self) -> str:
        """The text before the cursor."""
        if not self.runner.connected:
            return "not connected> "
        options = self.runner.options
        return f"disque {options.where}> " if options.socket else f"{options.where}> "
