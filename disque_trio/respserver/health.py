"""Looks at a server again and again, keeps what is wrong with it, and logs what changes."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import trio

from disque_trio import humanize
from disque_trio.aof.persistence import Persistence
from disque_trio.health.deeds import DeedKeeper, Deeds, DeedTeller
from disque_trio.health.keeper import Alarm, Fact, Keeper, Teller
from disque_trio.health.table import CERTIFICATE_DAYS, SHORT_MOST, SHORT_PART, SLOW_SYNC
from disque_trio.process.logs import Log
from disque_trio.respserver.io.engine import Engine

LOOK_SECONDS: Final = 1.0  # between two looks while something happens
CALM_SECONDS: Final = 5.0  # and while nothing does
DISK_EVERY: Final = 10_000  # ms between two questions to the system about a disk
DAY: Final = 86_400  # s


class Certificate(NamedTuple):
    """The certificate of a server.

    Attributes:
        file: where it is.
        first, last: the first and the last second of its validity, since the epoch.
    """

    file: str
    first: float
    last: float


def certificate_facts(certificate: Certificate, now: float) -> Iterator[Fact]:
    """What is wrong with the dates of ``certificate`` at ``now``, in s since the epoch."""
    first, last = certificate.first, certificate.last
    if now > last:
        text = f"the certificate expired at {humanize.moment(last)} UTC: clients may refuse it"
        yield Fact("certificate-expired", text, certificate.file)
    elif now < first:
        text = f"the certificate is not valid before {humanize.moment(first)} UTC"
        yield Fact("certificate-expired", f"{text}: clients may refuse it", certificate.file)
    elif last - now < CERTIFICATE_DAYS * DAY:
        text = (
            f"the certificate ends in {humanize.duration(last - now)}, at "
            f"{humanize.moment(last)} UTC"
        )
        yield Fact("certificate-ends", text, certificate.file)


def is_short(free: int, size: int) -> bool:
    """Whether little of a disk of ``size`` bytes is left if ``free`` are."""
    return free < min(size // SHORT_PART, SHORT_MOST)


class Disks:
    """Finds out how much of the disks of some directories is free, now and then."""

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}  # when, by directory
        self._found: dict[str, tuple[int, int]] = {}

    def space(self, directory: str, now: int) -> tuple[int, int]:
        """How many bytes are free, and how many there are; 0 if the system cannot tell. ``now`` in
        ms."""
        if not 0 <= now - self._asked.get(directory, -DISK_EVERY) < DISK_EVERY:
            self._asked[directory] = now
            try:
                found = os.statvfs(directory)
            except OSError:
                self._found[directory] = 0, 0
            else:
                block = found.f_frsize
                self._found[directory] = found.f_bavail * block, found.f_blocks * block
        return self._found[directory]

    def facts(self, directory: str, now: int) -> Iterator[Fact]:
        """Whether the disk of ``directory`` is short at ``now`` (ms)."""
        free, size = self.space(directory, now)
        if is_short(free, size):
            text = (
                f"{humanize.size(free)} of {humanize.size(size)} are free on the disk of "
                f"{directory}"
            )
            yield Fact("disk-short", text, directory)


class CommonFacts:
    """What can be wrong with any server.

    Attributes:
        certificate: the one in use; None: none is.
        disks: knows the space on disks.
    """

    def __init__(self, engine: Engine, persistence: Persistence) -> None:
        self.certificate: Certificate | None = None
        self.disks = Disks()
        self._engine = engine
        self._persistence = persistence

    def find(self, now: int) -> Iterator[Fact]:
        """What is wrong at ``now``, in ms."""
        machine = self._engine.node
        if machine.loading:
            yield Fact("loading", "the append-only file is being loaded: clients get -LOADING")
        yield from self._file(now)
        memory = machine.memory
        if memory.level() == 2:
            text = (
                f"{humanize.size(memory.used)} of {humanize.size(memory.limit)} (maxmemory) are "
                "taken, more than 95%"
            )
            yield Fact("memory-full", text)
        if self.certificate is not None:
            yield from certificate_facts(self.certificate, now / 1000)

    def is_slow(self) -> bool:
        """Whether an fsync of the append-only file takes long."""
        return self._persistence.behind() > SLOW_SYNC

    def _file(self, now: int) -> Iterator[Fact]:
        """What is wrong with the append-only file."""
        persistence = self._persistence
        file = persistence.file
        holds = file.dataset.holds
        if file.problem:
            if file.dataset.lagging:
                then = (
                    f"no more {holds} are taken, work goes on, and what has to be written is kept"
                )
            else:
                then = "whatever has to be written is refused"
            yield Fact("file-write", f"{file.path} cannot be written ({file.problem}): {then}")
        elif file.full:
            then = f"no more {holds} are taken, work goes on"
            yield Fact("disk-full", f"{file.full}: {then}")
        elif file.wanted:
            yield from self.disks.facts(os.getcwd(), now)
        if self.is_slow():
            behind = persistence.behind()
            yield Fact("disk-slow", f"an fsync of {file.path} has taken {behind:.0f} s so far")
        if persistence.rewriting.problem:
            problem = persistence.rewriting.problem
            yield Fact("rewrite", f"{file.path} cannot be rewritten, and grows: {problem}")
        if persistence.sums_problem:
            text = f"checksums of {file.path} cannot be written or compared"
            yield Fact("checksums", f"{text}: {persistence.sums_problem}")
        if file.damaged_places:
            places = humanize.counted(file.damaged_places, "place")
            text = f"{file.path} was damaged in {places}, and was made again"
            yield Fact("damaged", f"{text}; {file.lost_records} records were left out")


class Health(Teller, DeedTeller):
    """The health of a server.

    Args:
        find: finds all that is wrong at a time in ms.

    Attributes:
        deeds: what clients did that the log has to tell.
    """

    def __init__(self, log: Log, find: Callable[[int], Iterable[Fact]]) -> None:
        self._log = log
        self._find = find
        self._keeper = Keeper(self)
        self.deeds = DeedKeeper(self)

    def look(self, now: int) -> None:
        """Look at the server at ``now``, in ms."""
        self._keeper.look(self._find(now), now)
        self.deeds.look(now)

    def alarms(self) -> list[Alarm]:
        """What was wrong at the last look: the worst first."""
        return self._keeper.alarms()

    async def run(self, engine: Engine) -> None:
        """Look again and again until cancelled."""
        stirred = trio.Event()
        stirred.set()
        while True:
            self.look(engine.clock.now())
            if stirred.is_set():
                stirred = trio.Event()
                engine.when_stirred(stirred.set)
            await trio.sleep(LOOK_SECONDS)
            with trio.move_on_after(CALM_SECONDS - LOOK_SECONDS):
                await stirred.wait()

    def begins(self, alarm: Alarm, times: int) -> None:
        fields: dict[str, object] = {"condition": alarm.kind, "severity": alarm.severity}
        if alarm.about:
            fields["about"] = alarm.about
        if times > 1:
            fields["times"] = times
        self._log.warning(alarm.cause, **fields)

    def ends(self, alarm: Alarm, now: int) -> None:
        fields: dict[str, object] = {"condition": alarm.kind}
        if alarm.about:
            fields["about"] = alarm.about
        lasted = humanize.duration((now - alarm.since) / 1000)
        self._log.notice(f"over: {alarm.condition.title}", lasted=lasted, **fields)

    def did(self, deeds: Deeds) -> None:
        fields: dict[str, object] = {"user": deeds.user, "address": deeds.address}
        if deeds.names:
            fields["about"] = " ".join(deeds.names)
        if deeds.times > 1:
            fields["times"] = deeds.times
        if deeds.jobs:
            fields["jobs"] = deeds.jobs
        self._log.notice(deeds.what, **fields)
