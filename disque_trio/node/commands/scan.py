"""QSCAN and JSCAN: iterate over all queues and all jobs of the node, one step per call.

The cursor may stand anywhere among the options. 0 begins and 0 ends; what is there throughout
the walk comes exactly once.
"""

from typing import Final

from disque_trio.node.commands.jobs import describe
from disque_trio.node.core.job import STATE_NAMES, Job
from disque_trio.node.core.node import Node
from disque_trio.node.core.queue import Queue
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import Simple, Value, encode
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX

DEFAULT_COUNT: Final = 100
MAX_COUNT: Final = 1 << 30
# COUNT is a hint: one step must not stop the node for long.
MAX_IDS: Final = 10_000
MAX_WHOLE_JOBS: Final = 1_000

_BAD_OPTION: Final = "ERR invalid cursor or option name"


class _Options:
    """What QSCAN and JSCAN share: the cursor, COUNT and BUSYLOOP. Walks over the arguments; the
    command takes from ``word`` and ``number`` what is its own."""

    def __init__(self, args: list[bytes]) -> None:
        self.cursor = 0
        self.count = DEFAULT_COUNT
        self.busyloop = False
        self._args = args
        self._next = 1
        self._has_cursor = False

    def option(self) -> bytes | None:
        """The next option that is not a shared one, in lower case; None at the end."""
        while self._next < len(self._args):
            text = self._args[self._next]
            self._next += 1
            option = text.lower()
            if option == b"count" and self._more():
                count = self.number("ERR COUNT must be a number greater than zero")
                if count == 0:
                    raise CommandError("ERR COUNT must be a number greater than zero")
                self.count = min(count, MAX_COUNT)
            elif option == b"busyloop":
                self.busyloop = True
            elif text.isdigit():
                if self._has_cursor:
                    raise CommandError(SYNTAX)
                self._has_cursor = True
                # More digits than a cursor can have is a place behind the end.
                self.cursor = int(text) if len(text) < 20 else 1 << 64
            else:
                return option
        return None

    def _more(self) -> bool:
        return self._next < len(self._args)

    def word(self) -> bytes:
        """The value of the option just read."""
        if not self._more():
            raise CommandError(_BAD_OPTION)
        self._next += 1
        return self._args[self._next - 1]

    def number(self, problem: str) -> int:
        """The value of the option just read, a number of at least 0."""
        value = parse_int(self.word())
        if value is None or value < 0:
            raise CommandError(problem)
        return value


def qscan(node: Node, client: Client, args: list[bytes]) -> None:
    """QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n] [MAXIDLE s]."""
    options = _Options(args)
    minlen = -1
    maxlen = -1
    import_rate = -1
    maxidle = -1
    not_a_number = "ERR value is not an integer or out of range"
    while (option := options.option()) is not None:
        if option == b"minlen":
            minlen = options.number(not_a_number)
        elif option == b"maxlen":
            maxlen = options.number(not_a_number)
        elif option == b"importrate":
            import_rate = options.number(not_a_number)
        elif option == b"maxidle":
            maxidle = options.number(not_a_number)
        else:
            raise CommandError(_BAD_OPTION)

    def wanted(queue: Queue) -> bool:
        return (
            queue.length >= minlen
            and (maxlen < 0 or queue.length <= maxlen)
            and (import_rate <= 0 or node.federation.import_rate(queue) >= import_rate)
            and (maxidle < 0 or node.now - queue.atime <= maxidle * 1000)
        )

    if options.busyloop:
        cursor, queues = 0, node.queues.index.values()
    else:
        cursor, queues = node.queues.index.scan(options.cursor, min(options.count, MAX_IDS))
    names: list[Value] = [queue.name for queue in queues if wanted(queue)]
    client.out.append(encode([b"%d" % cursor, names], client.resp))


def jscan(node: Node, client: Client, args: list[bytes]) -> None:
    """JSCAN [cursor] [COUNT n] [BUSYLOOP] [QUEUE q] [STATE s] ... [REPLY all|id]."""
    options = _Options(args)
    queue: bytes | None = None
    states: list[int] = []
    whole = False
    while (option := options.option()) is not None:
        if option == b"queue":
            queue = options.word()
        elif option == b"state":
            state = options.word().lower()
            if state not in STATE_NAMES:
                raise CommandError("ERR Invalid job state name")
            states.append(STATE_NAMES.index(state))
        elif option == b"reply":
            reply = options.word().lower()
            if reply not in (b"all", b"id"):
                raise CommandError("ERR Invalid REPLY type, try ID or ALL")
            whole = reply == b"all"
        else:
            raise CommandError(_BAD_OPTION)

    def wanted(job: Job) -> bool:
        return (
            job.body is not None
            and (queue is None or job.queue == queue)
            and (not states or job.state in states)
        )

    if options.busyloop:
        cursor, jobs = 0, node.store.jobs.values()
    else:
        most = MAX_WHOLE_JOBS if whole else MAX_IDS
        cursor, jobs = node.store.jobs.scan(options.cursor, min(options.count, most))
    found: list[Value] = [
        describe(node, job) if whole else Simple(job.id) for job in jobs if wanted(job)
    ]
    client.out.append(encode([b"%d" % cursor, found], client.resp))
