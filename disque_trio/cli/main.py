"""The entry point of ``disque``: reads the command line and dispatches.

Scripts run one command at a time, and imports would take most of that time, so modules are imported
only where they are needed.
"""

import os
import sys
from collections.abc import Sequence

from disque_trio.cli.options import Options, UsageError, parse_options, usage
from disque_trio.cli.runner import Runner, complain
from disque_trio.cli.subcommands.table import find
from disque_trio.version import VERSION

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from disque_trio.cli.repl import Repl

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line client.

    Args:
        arguments: the command line without the program's name; default: that of the process.

    Returns:
        The exit status: 0, or 1 after an error reply, a lost or refused connection, or a mistake
        on the command line, or 130 when interrupted; of ``check`` see there.
    """
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments, os.environ)
    except UsageError as error:
        complain(f"disque: {error}\nTry: disque --help")
        return 1
    try:
        return _run(options)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        if options.debug:
            raise
        if not isinstance(error, OSError):
            from disque_trio.process.one_line import DEBUG, line_of

            complain(f"disque: {line_of(error)} ({DEBUG} shows where)")
            return 1
        # The reader of our output is gone, or the disk is full.
        if not isinstance(error, BrokenPipeError):
            complain(f"disque: {error.strerror or error}")
        # Without this, Python complains again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(options: Options) -> int:
    if options.help:
        print(usage(), end="")
        return 0
    if options.version:
        print(f"disque {VERSION}")
        return 0
    if options.password_in_argv and options.warn:
        complain(
            "Warning: Using a password with '-a' option on the command line interface"
            " may not be safe."
        )
    if options.stat:
        from disque_trio.cli.stat import run_stat

        return run_stat(options)
    if options.top:
        from disque_trio.cli.top.running import run_top

        return run_top(options)
    if options.command:
        command = options.command
        if found := find(command):
            from disque_trio.cli.subcommands.running import run_subcommand

            return run_subcommand(*found, options)
        if options.last_from_stdin:
            command = [*command, sys.stdin.buffer.read()]
        fine = Runner(options, sys.stdout.buffer).run(command, options.repeat)
        return 0 if fine else 1
    from disque_trio.cli.repl import Repl

    if sys.stdin.isatty():
        _prompt(Repl(Runner(options, sys.stdout.buffer, interactive=True)))
        return 0
    fine = Repl(Runner(options, sys.stdout.buffer)).run_stream(sys.stdin.buffer)
    return 0 if fine else 1


def _prompt(repl: "Repl") -> None:
    """Show a prompt, with history, completion and hints if prompt-toolkit is installed."""
    try:
        from disque_trio.cli.prompt import line_reader
    except ImportError:
        from disque_trio.extras import how_to_install

        complain(f"(For history, completion and hints: {how_to_install('console')})")
        repl.run_prompt(input)
    else:
        repl.run_prompt(line_reader(repl))


if __name__ == "__main__":
    sys.exit(main())
