"""``disque-server``: the entry point of the command. It immediately handles whatever needs no node,
and imports the rest only to run one.
"""

import sys

from disque_trio.form import form
from disque_trio.node.texts import USAGE
from disque_trio.process.one_line import one_line, without_debug
from disque_trio.version import VERSION


@one_line("disque-server")
def main() -> int:
    """Run the command; return the exit status."""
    args = without_debug(sys.argv[1:])
    if args and args[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if args and args[0] in ("-v", "--version"):
        print(f"disque-trio {VERSION}, {form()} (Python {sys.version.split()[0]})")
        return 0
    from disque_trio.process.imports import to_stay

    with to_stay():
        from disque_trio.node.main import main as run
    return run(args)
