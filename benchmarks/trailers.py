"""The memory of jobs with features that C Disque lacks.

For each kind of job, a new node is filled with jobs of 100 bytes; the growth of its resident memory
is compared with what it counts against ``maxmemory``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.bench.cli import Findings, option, say, size, table, words
from tools.bench.dialects import QUEUE, Dialect, Disque, encode
from tools.bench.filler import Filler
from tools.bench.load import info
from tools.bench.scripts import SERIAL_DIGITS
from tools.bench.servers import DISQUE_COMMAND, disque_server

PAGE = "performance-details.md"
SECTION = "memory of trailers"
HEADERS = (b"HEADERS", b"2", b"content-type", b"text/plain", b"traceparent", b"0" * 55)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure."""

    jobs: int = option(1_000_000, "jobs of each kind", quick=2_000)
    size: int = option(100, "bytes of a job's body", parse=size(SERIAL_DIGITS))
    server: tuple[str, ...] = option(DISQUE_COMMAND, "the command that starts a node", parse=words)


@dataclass(frozen=True, slots=True)
class Taken:
    """The memory of a job of one kind: resident bytes, and bytes that the node counts."""

    kind: str
    resident: float
    counted: float


class Keyed(Disque):
    """A dialect in which each job has its own key, as long as a serial number."""

    def add(self, body: bytes) -> bytes:
        return encode(b"ADDJOB", QUEUE, body, b"0", b"UNIQUE", body[:SERIAL_DIGITS])


def run(plan: Plan) -> Findings:
    """Fills a node with each kind."""
    plain = Disque(plan.size)
    found = [
        measure(plan, "plain", plain),
        measure(plan, "`HEADERS 2 ...` (84 bytes)", Disque(plan.size, options=(b"0", *HEADERS))),
        measure(plan, f"`UNIQUE key` ({SERIAL_DIGITS} bytes)", Keyed(plan.size)),
        measure(plan, "delivered once, in a queue with `ATTEMPTS`", plain, delivered=True),
    ]
    return Findings(taken_table(found), found)


def measure(plan: Plan, kind: str, dialect: Dialect, delivered: bool = False) -> Taken:
    """A node with ``plan.jobs`` jobs of one ``kind``. ``delivered``: deliver each once, with the
    attempts counted."""
    say(f"{plan.jobs:,} jobs: {kind}")
    with disque_server(command=plan.server) as server:
        filler = Filler(server, plan.size)
        filler.warm(Disque(plan.size))
        if delivered:
            filler.command(b"QSET", QUEUE, b"ATTEMPTS", b"3", b"DEAD", b"dead")
        empty, none = server.rss_bytes(), _counted(server.port)
        filler.add(plan.jobs, dialect)
        if delivered:
            filler.take(plan.jobs, dialect)
        resident = server.rss_bytes() - empty
        counted = _counted(server.port) - none
        return Taken(kind, resident / plan.jobs, counted / plan.jobs)


def _counted(port: int) -> int:
    """Bytes that the node counts against ``maxmemory``."""
    return int(info(port, b"memory")["used_memory"])


def taken_table(found: Sequence[Taken]) -> str:
    """The memory of each kind of job."""
    rows = [[one.kind, f"{one.resident:,.0f}", f"{one.counted:,.0f}"] for one in found]
    return table(["job", "resident bytes", "counted against `maxmemory`"], rows)
