"""The events of a run as text, for people after a failure, and to compare two runs of one seed."""

import re
from collections.abc import Callable
from hashlib import sha256

from disque_trio.protocol import bus
from disque_trio.protocol.given import read_row
from disque_trio.protocol.serialjob import decode_job, split_nodes
from disque_trio.protocol.settled import read_settled
from tests.support.gifts import given_ids

_ID = re.compile(rb"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}")


class Trace:
    """Lines that begin with the virtual time.

    Attributes:
        on: lines are kept; check this before formatting one.
    """

    def __init__(self, on: bool, time: Callable[[], int]) -> None:
        self.on = on
        self.lines: list[str] = []
        self._time = time

    def add(self, text: str) -> None:
        """Add ``text``."""
        now = self._time()
        self.lines.append(f"{now // 1_000_000:4}.{now % 1_000_000:06} {text}")

    def digest(self) -> str:
        """A checksum of all lines."""
        return sha256("\n".join(self.lines).encode()).hexdigest()

    def about(self, words: list[str]) -> list[str]:
        """The lines with one of ``words``, and those about the world, which begin with a star."""
        return [
            line for line in self.lines if line[12:13] == "*" or any(word in line for word in words)
        ]


def packet_text(packet: bytes) -> str:
    """A packet, for people."""
    type = bus.packet_type(packet)
    name = bus.TYPE_NAMES[type]
    flags = bus.packet_flags(packet)
    if type in (bus.REPLJOB, bus.YOURJOBS, bus.UPDATEJOB):
        jobs = [decode_job(data) for data in bus.read_jobs(packet).jobs]
        what = " ".join(
            f"{job.id.decode()}[{','.join(node[:4].decode() for node in split_nodes(job.nodes))}]"
            for job in jobs
        )
    elif type == bus.GIVEN:
        what = b" ".join(given_ids(packet)).decode() + f" heard {read_row(packet)}"
    elif type == bus.SETTLED:
        told = read_settled(packet)
        wants = " ".join(f"{want.queue.decode()} {want.aux}" for want in told.wants)
        what = f"{told.number} heard {told.heard} {b' '.join(told.ids).decode()} {wants}"
    elif type in (bus.NEEDJOBS, bus.PAUSE):
        about_queue = bus.read_about_queue(packet)
        what = f"{about_queue.queue.decode()} {about_queue.aux}"
    elif bus.GOTJOB <= type <= bus.WORKING:
        ids = b" ".join(bus.job_ids(packet)).decode()
        what = f"{ids} {bus.read_about_job(packet).aux}"
    elif type >= bus.ENDJOB:
        fields = bus.read_fields(packet)
        found = [id.decode() for _, value in fields for id in _ID.findall(value)]
        what = " ".join(found)
    elif type == bus.FAIL:
        what = bus.read_fail(packet)[:4].decode()
    else:
        what = ""
    return f"{name} {what}" + (f" flags {flags}" if flags else "")
