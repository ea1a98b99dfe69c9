"""``disque check``: how a cluster is, in one line and an exit status, for Nagios and the like."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import trio

from disque_trio.cli.cluster import PATIENCE
from disque_trio.cli.subcommands.reach import Member, Reached, reach
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.client import replies
from disque_trio.health.lines import AlarmLine, in_order, own_lines
from disque_trio.health.queues import (
    QueueSeen,
    QueueTimes,
    last_death,
    queue_facts,
    read_times,
    unserved_for,
)
from disque_trio.health.table import CONDITIONS, CRITICAL, DEAD_WITHIN, NO_WORKER_AFTER, WARNING
from disque_trio.humanize import duration
from disque_trio.process.options import Parser
from disque_trio.respclient.errors import ConnectionLost, DisqueError, LoadingError, first_of

OK: Final = 0
UNKNOWN: Final = 3
_STATUS: Final = {WARNING: 1, CRITICAL: 2}
_WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
SHOWN: Final = 3  # conditions that the line names
_PAGE: Final = 1_000  # queues to ask of at a time
_SCOPES: Final = ((), ("nodes",), ("queues",))
USAGE: Final = "disque check [nodes|queues]"


class Found:
    """What was found in a cluster.

    Attributes:
        lines: what is wrong, each with the address of the node or the name of the queue.
        nodes: how many there are. here: how many answered.
        jobs: queued jobs; None: nobody has asked.
    """

    def __init__(self) -> None:
        self.lines: list[tuple[str, AlarmLine]] = []
        self.nodes = 0
        self.here = 0
        self.jobs: int | None = None

    def add(self, where: str, line: AlarmLine) -> None:
        """Note something that is wrong with the node, or the queue, at ``where``."""
        self.lines.append((where, line))

    def lost(self, address: str, problem: str) -> None:
        """Note that the node at ``address`` cannot be reached."""
        self.add(address, AlarmLine("peer-lost", CRITICAL, 0, address, problem))

    def status(self) -> int:
        """The exit status."""
        return max([_STATUS.get(line.severity, UNKNOWN) for _, line in self.lines], default=OK)

    def in_order(self) -> list[tuple[str, AlarmLine]]:
        """What is wrong, the worst first."""
        order = in_order(line for _, line in self.lines)
        return sorted(self.lines, key=lambda pair: order.index(pair[1]))

    def text(self, now: float) -> str:
        """The line, at ``now`` (s): the worst first; then the figures, as Nagios reads them."""
        told = [_told(where, line, now) for where, line in self.in_order()[:SHOWN]]
        more = len(self.lines) - len(told)
        if more:
            told.append(f"and {more} more")
        if not told:
            told = [f"{self.here} of {self.nodes} nodes are well"]
        words = "; ".join(told).replace("|", "/")
        return f"DISQUE {_WORDS[self.status()]} - {words} | {self._figures()}"

    def _figures(self) -> str:
        critical = len([line for _, line in self.lines if line.severity == CRITICAL])
        warning = len(self.lines) - critical
        figures = [
            f"critical={critical};;0;0",
            f"warning={warning};0;;0",
            f"nodes={self.here};;;0;{self.nodes}",
        ]
        if self.jobs is not None:
            figures.append(f"queued={self.jobs};;;0")
        return " ".join(figures)

    def fields(self) -> dict[str, Any]:
        """The same as an object of JSON."""
        return {
            "status": _WORDS[self.status()].lower(),
            "nodes": self.nodes,
            "nodes_here": self.here,
            "queued": self.jobs,
            "conditions": [
                {
                    "where": where,
                    "kind": line.kind,
                    "severity": line.severity,
                    "since": line.since or None,
                    "cause": line.cause,
                }
                for where, line in self.in_order()
            ],
        }


def _told(where: str, line: AlarmLine, now: float) -> str:
    since = f" (for {duration(now - line.since)})" if 0 < line.since < now else ""
    return f"{where}: {line.cause}{since}"


class _Queue:
    """A queue, as far as the nodes have told. ``parts``: their replies to QSTAT, by address."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.parts: dict[str, Mapping[bytes, Any]] = {}

    def seen(self) -> QueueSeen:
        """The queue as a whole."""
        parts = [*self.parts.values()]
        times: list[QueueTimes] = []
        known = True
        for part in parts:
            told = read_times(part)
            if told is not None:
                times.append(told)
            elif part.get(b"len"):
                known = False
        died, deaths = last_death(times)
        return QueueSeen(
            self.name.decode("utf-8", "backslashreplace"),
            sum([part[b"len"] for part in parts]),
            max([part.get(b"oldest-job-age", 0) for part in parts]) / 1000,
            all(part.get(b"pause") in (b"out", b"all") for part in parts if part[b"len"]),
            sum([part.get(b"blocked", 0) for part in parts]),
            unserved_for(times) if known else None,
            died=died,
            deaths=deaths,
        )


class _Look:
    """A look at the nodes of a cluster and their queues."""

    def __init__(self, reached: Reached, found: Found) -> None:
        self._members = reached.members
        self._found = found
        self._queues: dict[bytes, _Queue] = {}
        self._refused: list[DisqueError] = []

    async def run(self, scope: tuple[str, ...]) -> None:
        """Ask all nodes, and judge. Raises DisqueError: one refuses to tell."""
        async with trio.open_nursery() as nursery:
            for member in self._members:
                nursery.start_soon(self._ask, member, scope)
        if self._refused:
            raise self._refused[0]
        if scope != ("nodes",):
            await self._judge()

    async def _ask(self, member: Member, scope: tuple[str, ...]) -> None:
        try:
            if scope != ("queues",):
                info = replies.info(await member.ask("INFO", within=PATIENCE))
                for line in own_lines(info):  # the other processes tell themselves
                    self._found.add(member.address, line)
            if scope != ("nodes",):
                await self._take_queues(member, "MINLEN", 1)
                await self._take_queues(member, "DIED", DEAD_WITHIN)
        except LoadingError as error:  # which INFO has told
            if scope == ("queues",):
                self._found.add(member.address, AlarmLine("loading", WARNING, 0, "", str(error)))
        except ConnectionLost as error:
            self._found.lost(member.address, str(error))
            return
        except DisqueError as error:
            self._refused.append(error)
            return
        self._found.here += 1

    async def _take_queues(self, member: Member, word: str, value: int) -> None:
        """Take what a node says of the queues that QSCAN finds by these words."""
        cursor = b"0"
        while True:
            words = ("QSCAN", cursor, "COUNT", _PAGE, word, value)
            cursor, names = replies.page(await member.ask(*words, within=PATIENCE))
            await self._take(member, [name for name in names if isinstance(name, bytes)])
            if cursor == b"0":
                return

    async def _take(self, member: Member, names: Iterable[bytes]) -> None:
        asked = [
            name
            for name in names
            if (known := self._queues.get(name)) is None or member.address not in known.parts
        ]
        stats = await member.ask_all([("QSTAT", name) for name in asked], within=PATIENCE)
        for name, stat in zip(asked, stats, strict=True):
            if isinstance(stat, list):
                fields: dict[Any, Any] = dict(zip(stat[::2], stat[1::2], strict=True))
                self._queues.setdefault(name, _Queue(name)).parts[member.address] = fields

    async def _judge(self) -> None:
        """Note what is wrong with the queues."""
        late = [
            queue.name
            for queue in self._queues.values()
            if (unserved := queue.seen().unserved) is not None and unserved >= NO_WORKER_AFTER
        ]
        for member in self._members:  # a client of theirs may take the jobs of another node
            try:
                await self._take(member, late)
            except DisqueError:
                continue  # which was told, or they will not be blamed for it
        self._found.jobs = 0
        for queue in self._queues.values():
            seen = queue.seen()
            self._found.jobs += seen.length
            for fact in queue_facts(seen):
                if fact.kind != "dead-letters" and await self._is_for_letters(queue.name):
                    continue
                severity = CONDITIONS[fact.kind].severity
                line = AlarmLine(fact.kind, severity, 0, fact.about, fact.cause)
                self._found.add(seen.name, line)

    async def _is_for_letters(self, queue: bytes) -> bool:
        """Whether the first job of ``queue`` on some node is a dead letter: these wait for
        people."""
        for member in self._members:
            try:
                jobs = await member.ask("QPEEK", queue, 1, "MAXBODY", 1, within=PATIENCE)
                for job in jobs if isinstance(jobs, list) else ():
                    id = job[1] if isinstance(job, list) else None
                    if isinstance(id, bytes):
                        shown = await member.ask("SHOW", id, within=PATIENCE)
                        if isinstance(shown, list) and b"dead-why" in shown[::2]:
                            return True
            except DisqueError:
                continue
        return False


def _describe(parser: Parser) -> None:
    parser.add_argument(
        "scope", nargs="*", metavar="nodes|queues", help="look only at these (default: at both)"
    )
    parser.epilog = "The exit status is 0 if all is well, 1 (warning), 2 (critical) or 3 (unknown)."


async def _run(call: Call) -> int:
    scope = tuple(word.lower() for word in call.arguments.scope)
    if scope not in _SCOPES:
        return _unknown(call, f"usage: {USAGE}")
    found = Found()
    try:
        async with reach(call) as reached:
            for address, why in reached.missing:
                found.lost(address, why)
            found.nodes = len(reached.members) + len(reached.missing)
            await _Look(reached, found).run(scope)
    except (Failure, DisqueError, BaseExceptionGroup) as raised:
        error = first_of(raised)
        if not isinstance(error, Failure | DisqueError):
            raise error from None
        if not isinstance(error.__cause__, ConnectionLost):
            return _unknown(call, f"{call.options.where}: {error}")
        found.nodes = 1  # as far as is known
        found.lost(call.options.where, str(error))
    if call.printer.json:
        call.printer.record(found.fields())
    else:
        call.printer.line(found.text(time.time()))
    return found.status()


def _unknown(call: Call, problem: str) -> int:
    problem = problem.replace("|", "/")
    if call.printer.json:
        call.printer.record({"status": "unknown", "problem": problem})
    else:
        call.printer.line(f"DISQUE UNKNOWN - {problem}")
    return UNKNOWN


SUBCOMMAND: Final = Subcommand(_describe, _run)
