"""``disque check``: how a cluster is, in one line and an exit status, for Nagios and the like."""

from __future__ import annotations

import copy
import socket
import time
from collections.abc import Sequence
from typing import Final

from disque_trio.cli.connection import Connection, ConnectionFailed, Disconnected
from disque_trio.cli.options import Options
from disque_trio.cli.resp import Kind, Reply
from disque_trio.cli.stat import parse_info
from disque_trio.health.lines import AlarmLine, in_order, own_lines
from disque_trio.health.queues import QueueSeen, queue_facts
from disque_trio.health.table import CONDITIONS, CRITICAL, WARNING
from disque_trio.humanize import duration
from disque_trio.notation.addresses import format_address

OK: Final = 0
UNKNOWN: Final = 3
_STATUS: Final = {WARNING: 1, CRITICAL: 2}
_WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
PATIENCE: Final = 5.0  # s for a node to answer
SHOWN: Final = 3  # conditions that the line names
_PAGE: Final = 1_000  # queues to ask of at a time
_SCOPES: Final = ((), (b"nodes",), (b"queues",))
USAGE: Final = "disque check [nodes|queues]"


class Refused(Exception):
    """A node does not tell; the text says why."""


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

    def status(self) -> int:
        """The exit status."""
        return max([_STATUS.get(line.severity, UNKNOWN) for _, line in self.lines], default=OK)

    def text(self, now: float) -> str:
        """The line, at ``now`` (s): the worst first; then the figures, as Nagios reads them."""
        order = in_order(line for _, line in self.lines)
        sorted_lines = sorted(self.lines, key=lambda pair: order.index(pair[1]))
        told = [_told(where, line, now) for where, line in sorted_lines[:SHOWN]]
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


def _told(where: str, line: AlarmLine, now: float) -> str:
    since = f" (for {duration(now - line.since)})" if 0 < line.since < now else ""
    return f"{where}: {line.cause}{since}"


def run_check(options: Options) -> int:
    """Print how the cluster is. Returns the exit status: 0, 1, 2 or 3, as Nagios wants it."""
    scope = tuple(word.lower() for word in options.command[1:])
    if scope not in _SCOPES:
        print(f"DISQUE UNKNOWN - usage: {USAGE}")
        return UNKNOWN
    # A node that hangs must not keep whoever asks: that is the first thing to find out.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(PATIENCE)
    found = Found()
    try:
        _look(options, found, scope)
    except Refused as problem:
        print(f"DISQUE UNKNOWN - {options.where}: {problem}".replace("|", "/"))
        return UNKNOWN
    finally:
        socket.setdefaulttimeout(before)
    print(found.text(time.time()))
    return found.status()


def _look(options: Options, found: Found, scope: tuple[bytes, ...]) -> None:
    """Ask all nodes. Raises ``Refused``."""
    first = _open(options, options.where, found)
    found.nodes = 1
    if first is None:
        return
    try:
        hello = _asked(first, b"HELLO")
    except Disconnected as problem:
        _unreachable(options.where, str(problem), found)
        return
    nodes = _nodes(hello)
    found.nodes = max(len(nodes), 1)
    own = hello.elements[1].text if len(hello.elements) > 1 else b""
    queues: dict[bytes, list[dict[bytes, Reply]]] = {}
    answered: list[tuple[str, Connection]] = [(options.where, first)]
    for id, host, port in nodes:
        if id == own:
            continue
        address = format_address(host, port)
        there = copy.copy(options)
        there.host, there.port, there.socket = host, port, None
        connection = _open(there, address, found)
        if connection is not None:
            answered.append((address, connection))
    for address, connection in answered:
        try:
            if scope != (b"queues",):
                _take_alarms(address, connection, found)
            if scope != (b"nodes",):
                _take_queues(connection, queues)
        except Disconnected as problem:
            _unreachable(address, str(problem), found)
            continue
        found.here += 1
    if scope != (b"nodes",):
        _judge_queues(queues, [connection for _, connection in answered], found)
    for _, connection in answered:
        connection.close()


def _open(options: Options, address: str, found: Found) -> Connection | None:
    """Connect to a node; None, and noted, if it cannot be reached. Raises ``Refused``."""
    try:
        connection = Connection(options)
    except ConnectionFailed as problem:
        _unreachable(address, str(problem), found)
        return None
    if connection.complaints:
        raise Refused("; ".join(connection.complaints))
    return connection


def _unreachable(address: str, problem: str, found: Found) -> None:
    found.add(address, AlarmLine("peer-lost", CRITICAL, 0, address, problem))


def _asked(connection: Connection, *words: bytes) -> Reply:
    """A reply that is no error. Raises ``Refused``, ``Disconnected``."""
    reply = connection.execute(*words)
    if reply.kind is Kind.ERROR:
        raise Refused(reply.text.decode(errors="replace"))
    return reply


def _nodes(hello: Reply) -> list[tuple[bytes, str, int]]:
    """The nodes that HELLO names, and where they are."""
    nodes = []
    for entry in hello.elements[2:]:
        words = [element.text for element in entry.elements]
        if len(words) >= 3 and words[1] and words[2].isdigit():
            nodes.append((words[0], words[1].decode(errors="replace"), int(words[2])))
    return nodes


def _take_alarms(address: str, connection: Connection, found: Found) -> None:
    """Take what a node says is wrong with it. Raises ``Refused``, ``Disconnected``."""
    info = parse_info(_asked(connection, b"INFO").text.decode(errors="replace"))
    for line in own_lines(info):  # the other processes tell themselves
        found.add(address, line)


def _take_queues(connection: Connection, queues: dict[bytes, list[dict[bytes, Reply]]]) -> None:
    """Take what a node says of the queues that have jobs. Raises ``Refused``,
    ``Disconnected``."""
    cursor = b"0"
    while True:
        page = _asked(connection, b"QSCAN", cursor, b"COUNT", b"%d" % _PAGE, b"MINLEN", b"1")
        if len(page.elements) != 2:
            raise Refused("QSCAN answers something else")
        cursor = page.elements[0].text
        names = [name.text for name in page.elements[1].elements]
        for name in names:
            connection.send([b"QSTAT", name])
        for name in names:
            reply = connection.read()
            if reply.elements:
                fields = {key.text: value for key, value in reply.pairs()}
                queues.setdefault(name, []).append(fields)
        if cursor == b"0":
            return


def _judge_queues(
    queues: dict[bytes, list[dict[bytes, Reply]]], nodes: Sequence[Connection], found: Found
) -> None:
    """Note what is wrong with the queues. Only their age counts: that nobody has taken jobs for
    long is known to those who look all the time."""
    found.jobs = 0
    for name, parts in queues.items():
        seen = QueueSeen(
            name.decode("utf-8", "backslashreplace"),
            sum([_number(part, b"len") for part in parts]),
            max([_number(part, b"oldest-job-age") for part in parts]) / 1000,
            all(_text(part, b"pause") in (b"out", b"all") for part in parts),
            sum([_number(part, b"blocked") for part in parts]),
        )
        found.jobs += seen.length
        for fact in queue_facts(seen):
            if not _is_for_letters(name, nodes):
                severity = CONDITIONS[fact.kind].severity
                line = AlarmLine(fact.kind, severity, 0, fact.about, fact.cause)
                found.add(seen.name, line)


def _number(fields: dict[bytes, Reply], name: bytes) -> int:
    reply = fields.get(name)
    return int(reply.text) if reply is not None and reply.kind is Kind.INTEGER else 0


def _text(fields: dict[bytes, Reply], name: bytes) -> bytes:
    reply = fields.get(name)
    return b"" if reply is None else reply.text


def _is_for_letters(queue: bytes, nodes: Sequence[Connection]) -> bool:
    """Whether the first job of ``queue`` on some node is a dead letter: these wait for people."""
    return any(_first_is_letter(queue, connection) for connection in nodes)


def _first_is_letter(queue: bytes, connection: Connection) -> bool:
    try:
        for job in _asked(connection, b"QPEEK", queue, b"1", b"MAXBODY", b"1").elements:
            shown = connection.execute(b"SHOW", job.elements[1].text)
            return any(key.text == b"dead-why" for key, _ in shown.pairs())
    except (Refused, Disconnected, IndexError):
        pass
    return False
