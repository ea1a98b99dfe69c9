"""The entry point of the command ``pressure``: parses its arguments before it loads anything else.

Help, the version and errors in arguments need neither Trio nor a connection.
"""

import sys
from importlib import import_module

from disque_pressure.arguments import parse
from disque_trio.process.one_line import one_line


@one_line("pressure")
def main() -> int:
    """Run the command; returns its exit status."""
    options = parse()
    status: int = import_module("disque_pressure.cli").run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
