"""The health file of an archive or a watch: its state, for monitoring, and the check of it.

The file is written at every event: a start, a sign of life (also while there is nothing to do), a
failure, the end. So an old file means that the process is gone or hangs.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any, Self

from disque_trio.process import health
from disque_trio.process.health import HealthError

STARTING, RUNNING, RESTARTING = "starting", "running", "restarting"
DONE, STOPPED = "done", "stopped"
MAX_AGE = 120  # s, unless the state is done


@dataclass
class Health:
    """The contents of a health file.

    Attributes:
        state: starting, running, restarting, stopped, or done (ended by itself without a failure).
        reason: the reason for the state; None: there is nothing to say.
        time: when the file was written, seconds since 1970.
        since: when the state began, seconds since 1970.
        pid: id of the process.
        batch: number of the last batch with jobs; None: there has been none.
        jobs: jobs archived by this process.
        restarts: how often the stream was restarted, or how many looks failed.
        error: the last failure, even if it is over; None: there has been none.
        looks: looks of a watch by this process; None: this is an archive.
        events: events read in these looks.
        untold: rows not yet delivered to receivers, which cannot be reached.
    """

    state: str = STARTING
    reason: str | None = None
    time: float = 0.0
    since: float = 0.0
    pid: int = 0
    batch: int | None = None
    jobs: int = 0
    restarts: int = 0
    error: str | None = None
    looks: int | None = None
    events: int = 0
    untold: int = 0

    def enter(self, state: str, now: float, reason: str | None = None) -> None:
        """Enter a state, or stay in it."""
        if state != self.state or not self.since:
            self.since = now
        self.state, self.reason, self.time = state, reason, now

    def values(self) -> dict[str, Any]:
        """What the file has: the times also in readable form."""
        readable = {
            f"{name}_utc": datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
            for name, value in (("time", self.time), ("since", self.since))
        }
        return asdict(self) | readable

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The state that a health file says."""
        known = {name.name for name in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    def judge(self, now: float, max_age: float | None = None) -> str:
        """The state in one line.

        Args:
            max_age: seconds; None: MAX_AGE, or no limit if the state is done.

        Raises:
            HealthError: the process has stopped, or the file is older than ``max_age``.
        """
        why = f" ({self.reason})" if self.reason else ""
        if self.state == STOPPED:
            raise HealthError(f"stopped{why}")
        if max_age is None and self.state != DONE:
            max_age = MAX_AGE
        try:
            age = health.age(self.time, now, max_age)
        except HealthError as problem:
            raise HealthError(f"{self.state}{why}, but {problem}") from None
        done = f"batch {self.batch}, {self.jobs} jobs"
        if self.looks is not None:
            done = f"{self.looks} looks, {self.events} events"
            done += f", {self.untold} rows not delivered" if self.untold else ""
        text = f"{self.state}{why}, {done}, {age:.0f} s ago"
        return text + (f", last error: {self.error}" if self.error else "")


class HealthFile:
    """Keeps a health file up to date. It never gets in the way: failures to write are ignored.

    Args:
        path: None: there is no file.
        clock: returns seconds since 1970.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time) -> None:
        self._path = path
        self._clock = clock
        self.health = Health(pid=os.getpid())

    def starting(self, reason: str | None = None) -> None:
        """The process starts, or starts the stream again."""
        self._write(STARTING, reason)

    def running(self, batch: int, jobs: int) -> None:
        """The stream is alive.

        Args:
            batch: its last batch with jobs; -1: none.
            jobs: jobs archived by this process.
        """
        self.health.batch = batch if batch >= 0 else None
        self.health.jobs = jobs
        self._write(RUNNING)

    def watching(self) -> None:
        """The file is that of a watch, which has not looked yet."""
        self.health.looks = 0

    def looked(self, events: int, untold: int, error: str | None) -> None:
        """A watch has finished a look.

        Args:
            events: events that it read.
            untold: rows not yet delivered to receivers.
            error: why not.
        """
        self.health.looks = (self.health.looks or 0) + 1
        self.health.events += events
        self.health.untold = untold
        self.health.error = error or self.health.error
        self._write(RUNNING)

    def working(self) -> None:
        """A sign of life during a long step."""
        self._write(self.health.state, self.health.reason)

    def restarting(self, error: str, seconds: float) -> None:
        """The stream or a look has failed, and starts again in ``seconds``."""
        self.health.error = error
        self.health.restarts += 1
        what = "start" if self.health.looks is None else "look"
        self._write(RESTARTING, f"{error}; next {what} in {seconds:.0f} s")

    def done(self) -> None:
        """The process ends by itself, with nothing left to do."""
        self._write(DONE)

    def stopped(self, error: str | None = None) -> None:
        """The process was stopped, or failed with ``error``."""
        self.health.error = error or self.health.error
        self._write(STOPPED, error)

    def _write(self, state: str, reason: str | None = None) -> None:
        self.health.enter(state, self._clock(), reason)
        if self._path is not None:
            with suppress(OSError):
                health.write(self._path, self.health.values())


def check_health(path: Path, max_age: float | None = None, now: float | None = None) -> str:
    """What a health file says, in one line.

    Args:
        max_age: the greatest age in seconds, see ``Health.judge``.

    Raises:
        HealthError: there is no file, or it reports trouble.
    """
    found = Health.of(health.read(path))
    try:
        return found.judge(time() if now is None else now, max_age)
    except HealthError as problem:
        raise HealthError(f"{path}: {problem}") from None
