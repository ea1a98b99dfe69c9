"""The health file of an archive or a watch: what it is at, for those who look after it, and the
check of it.

The file is written when something happens: a start, a sign of life (also where there is nothing to
do), a failure, the end. So one that is old says that the process is gone, or that
nothing moves in it.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Self

STARTING, RUNNING, RESTARTING = "starting", "running", "restarting"
DONE, STOPPED = "done", "stopped"
MAX_AGE = 120  # s, of what has not ended
_FUTURE = 60.0  # s that a clock may have been set back


class HealthError(Exception):
    """There is no health, or it is bad; the text says which."""


@dataclass
class Health:
    """What a health file says.

    Attributes:
        state: starting, running, restarting; done: it has ended by itself, and well; stopped.
        reason: why it is so; None: that goes without saying.
        time, since: when this was written, and when the state began (seconds since 1970).
        pid: of the process.
        batch: the number of the last one with jobs; None: there was none yet.
        jobs: archived by this process. restarts: new starts of the stream, or looks that failed.
        error: the last failure, also one that is over; None: there was none.
        looks: of a watch, how many this process has made; None: it is an archive. events: that it
            has read in them. untold: rows that receivers have not got, as they cannot be reached.
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
        """Be in a state from now on, or still."""
        if state != self.state or not self.since:
            self.since = now
        self.state, self.reason, self.time = state, reason, now

    def json(self) -> str:
        """A line, with times that people can read as well."""
        readable = {
            f"{name}_utc": datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")
            for name, value in (("time", self.time), ("since", self.since))
        }
        return json.dumps(asdict(self) | readable) + "\n"

    @classmethod
    def of(cls, text: str) -> Self:
        """From a file. Raises HealthError: it is none."""
        try:
            found = json.loads(text)
            known = {name.name for name in fields(cls)}
            health = cls(**{name: value for name, value in found.items() if name in known})
            health.time, health.since = float(health.time), float(health.since)
        except (ValueError, TypeError, AttributeError) as problem:
            raise HealthError(f"it is no health file: {problem}") from None
        return health

    def judge(self, now: float, max_age: float | None = None) -> str:
        """What it is at, in a line.

        Args:
            max_age: s; None: MAX_AGE, or none at all for what is done.

        Raises:
            HealthError: it has stopped, or has said nothing for longer than ``max_age``.
        """
        age = now - self.time
        why = f" ({self.reason})" if self.reason else ""
        if self.state == STOPPED:
            raise HealthError(f"stopped{why}")
        if max_age is None and self.state != DONE:
            max_age = MAX_AGE
        if max_age is not None and not -_FUTURE <= age <= max_age:
            raise HealthError(f"{self.state}{why}, and without a sign of life for {age:.0f} s")
        done = f"batch {self.batch}, {self.jobs} jobs"
        if self.looks is not None:
            done = f"{self.looks} looks, {self.events} events"
            done += f", {self.untold} rows not told" if self.untold else ""
        text = f"{self.state}{why}, {done}, {age:.0f} s ago"
        return text + (f", last error: {self.error}" if self.error else "")


class HealthFile:
    """Keeps a health file up to date. It never keeps anybody from work: what cannot be written is
    left out.

    Args:
        path: None: there is none.
        clock: seconds since 1970.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time) -> None:
        self._path = path
        self._clock = clock
        self.health = Health(pid=os.getpid())

    def starting(self, reason: str | None = None) -> None:
        """It begins, or the stream is started again."""
        self._write(STARTING, reason)

    def running(self, batch: int, jobs: int) -> None:
        """The stream lives. Its last batch with jobs (-1: none), and how many were archived."""
        self.health.batch = batch if batch >= 0 else None
        self.health.jobs = jobs
        self._write(RUNNING)

    def watching(self) -> None:
        """It is a watch whose file this is; it has not looked yet."""
        self.health.looks = 0

    def looked(self, events: int, untold: int, error: str | None) -> None:
        """A watch has looked once more, and read so many events.

        Args:
            untold: rows that receivers have not got. error: why not.
        """
        self.health.looks = (self.health.looks or 0) + 1
        self.health.events += events
        self.health.untold = untold
        self.health.error = error or self.health.error
        self._write(RUNNING)

    def working(self) -> None:
        """A sign of life in the middle of something."""
        self._write(self.health.state, self.health.reason)

    def restarting(self, error: str, seconds: float) -> None:
        """It has failed, and is started again after so many seconds."""
        self.health.error = error
        self.health.restarts += 1
        again = "starts" if self.health.looks is None else "looks"
        self._write(RESTARTING, f"{error}: {again} again in {seconds:.0f} s")

    def done(self) -> None:
        """It ends by itself: there is no more to do."""
        self._write(DONE)

    def stopped(self, error: str | None = None) -> None:
        """It is ended; in good order without an error."""
        self.health.error = error or self.health.error
        self._write(STOPPED, error)

    def _write(self, state: str, reason: str | None = None) -> None:
        self.health.enter(state, self._clock(), reason)
        if self._path is None:
            return
        # Not brought to the disk: after a crash of the machine it says nothing.
        new = self._path.with_name(f".{self._path.name}.new")
        try:
            new.write_text(self.health.json())
            new.replace(self._path)
        except OSError:
            pass


def check_health(path: Path, max_age: float | None = None, now: float | None = None) -> str:
    """What a health file says, in a line.

    Args:
        max_age: s within which there has to have been a sign of life, see ``Health.judge``.

    Raises:
        HealthError: there is none, or it is not well.
    """
    try:
        text = path.read_text()
    except OSError as problem:
        raise HealthError(f"{path}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise HealthError(f"{path}: it is no health file: {problem}") from None
    try:
        return Health.of(text).judge(time() if now is None else now, max_age)
    except HealthError as problem:
        raise HealthError(f"{path}: {problem}") from None
