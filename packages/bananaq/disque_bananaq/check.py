"""``bananaq-check-aof``: checks append-only files of bananaq, as ``disque-check-aof`` checks those
of Disque."""

import re
import sys
from collections.abc import Sequence

from disque_bananaq.core import records
from disque_trio.aof.check import run
from disque_trio.aof.scanner import Scanner
from disque_trio.process.one_line import one_line

DESCRIPTION = """\
Checks an append-only file of bananaq.
"""

# For each record: the positions of its numeric arguments, and how many arguments it may have.
_SHAPES = {
    records.QEVENT: ((2, 3), (5, 6)),
    records.QGET: ((3, 4), (5,)),
    records.QGIVE: ((3, 4, 5), (6,)),
    records.QREDO: ((3, 4, 5), (6,)),
    records.QDONE: ((3,), (4,)),
    records.QPOINTER: ((3,), (4,)),
    records.QDROP: ((), (2,)),
    records.QLAST: ((1,), (2,)),
}
_LONGEST_NAME = max(map(len, _SHAPES))


class EventScanner(Scanner):
    """Scans an append-only file of bananaq. ``jobs`` counts events, ``deletes`` other records."""

    can_list = False
    taken = "events"
    ended = "others"
    marker = re.compile(
        rb"\*[2-6]\r\n\$[4-8]\r\n(?:%b)\r\n\$" % b"|".join(sorted(_SHAPES, reverse=True))
    )
    longest_marker = len(b"*6\r\n$8\r\n\r\n$") + _LONGEST_NAME

    def begins_whole(self, at: int) -> bool:
        return False

    def _skim(self, at: int) -> int:
        return at

    def _is_good(self, at: int) -> bool:
        jobs, deletes = self.jobs, self.deletes
        error = self._examine(at)[1]
        self.jobs, self.deletes = jobs, deletes
        return error is None

    def classify(self, args: list[bytes]) -> tuple[str, bool]:
        numbers, counts = _SHAPES.get(args[0], ((), ()))
        if len(args) not in counts:
            name = args[0][:32]
            return f"{name!r} with {len(args) - 1} arguments does not belong here", False
        for place in numbers:
            try:
                records.number(args[place])
            except ValueError as error:
                return str(error), True
        if args[0] == records.QEVENT:
            self.jobs += 1
        else:
            self.deletes += 1
        if len(args) > 2:
            self._names.add(args[1])
        return "", False


@one_line("bananaq-check-aof")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; see ``disque_trio.aof.check``."""
    return run("bananaq-check-aof", DESCRIPTION, EventScanner, arguments)


if __name__ == "__main__":
    sys.exit(main())
