"""Which worker processes there are to be: what the parent decides, without doing it.

Each of ``count`` places has one process that serves. A process that dies is started again, after a
pause that grows as long as it keeps dying; one that is to be replaced (more memory than it may
have, new code) is retired: it takes no more jobs, and ends when its tasks have. Time is passed in,
in seconds by any clock; what is to be done goes through ``Hands``.
"""

import math
import signal
from collections import deque
from enum import Enum
from typing import Any, Protocol

FIRST_PAUSE, LAST_PAUSE = 0.1, 10.0  # s before a process that died is started again
LONG_RUN = 60.0  # s after which the pauses are short again, and its deaths forgotten
BEAT = 1.0  # s between two signs of life
SILENCE = 5.0  # s without one after which a process is looked at
STUCK = 30.0  # s without one after which it does not count as one that works
OVERRUN = 2.0  # s that a task may be late before its process is killed, if it is silent
MARGIN = 5.0  # s beyond the grace, to hand jobs back


class State(Enum):
    """Of a process."""

    STARTING = "starting"
    SERVING = "serving"
    RETIRING = "retiring"


class Member:
    """A worker process.

    Attributes:
        place: which of the ``count`` it has, from 0. serial: counts all that were started.
        first: none has served in its place yet.
        state: as named. started, heard: when it was started, and last gave a sign of life.
        deadline: by when the first of its tasks has to have ended; set by who knows, before
            ``Fleet.tick``.
        limit: when it is killed.
        reason: why it was retired, or killed by us; empty: it was not.
        failure: what it said why it cannot start. final: nor could another one.
        old: whom it is to replace once it serves.
        stale: it may have read code that has changed since.
        warned: that it is silent was said.
    """

    def __init__(
        self, place: int, serial: int, now: float, *, first: bool, old: "Member | None"
    ) -> None:
        self.place = place
        self.first = first
        self.serial = serial
        self.state = State.STARTING
        self.started = self.heard = now
        self.deadline = self.limit = math.inf
        self.reason = ""
        self.failure = ""
        self.final = False
        self.old = old
        self.stale = False
        self.warned = False

    def stuck(self, now: float) -> bool:
        """It has been silent for so long that it cannot be said to work."""
        return self.state is not State.STARTING and now - self.heard > STUCK


class Hands(Protocol):
    """Does what is decided. Nothing raises, or waits."""

    def start(self, member: Member) -> None:
        """Start its process."""

    def finish(self, member: Member, within: float | None) -> None:
        """Tell it to take no more jobs, and to end when its tasks have, or in ``within`` s."""

    def hand_back(self, member: Member) -> None:
        """Tell it to hand its jobs back now, and to end."""

    def terminate(self, member: Member) -> None:
        """Send SIGTERM."""

    def kill(self, member: Member) -> None:
        """Send SIGKILL."""

    def say(self, event: str, *, urgent: bool = False, **fields: Any) -> None:
        """Log a line."""


class Fleet:
    """The processes, and what becomes of them.

    Args:
        hands: do it.
        count: places.
        grace: s that tasks have to finish when all stop.
        deaths: in a row, of one place, before it serves again, after which all is given up.

    Attributes:
        members: all processes that live.
        restarts: how many were started in the place of another, by why.
        complete: all places have served.
        problem: a line that says why all was given up; empty: it was not.
    """

    def __init__(self, hands: Hands, count: int, *, grace: float, deaths: int) -> None:
        self.members: dict[int, Member] = {}  # by serial
        self.restarts: dict[str, int] = {}
        self.complete = False
        self.stopping = False
        self.problem = ""
        self._hands = hands
        self._count = count
        self._grace = grace
        self._most_deaths = deaths
        self._serial = 0
        self._served: set[int] = set()  # places that have served
        self._deaths = [0] * count  # by places, of those that did not run for long
        self._failures = [0] * count  # by places, of those that did not come to serve
        self._due: dict[int, float] = {}  # when a place gets its process again
        self._rolling: deque[int] = deque()  # places that are to get new code
        self._newcomer: Member | None = None  # whose start the others wait for

    @property
    def over(self) -> bool:
        """All have ended, and none will be started."""
        return self.stopping and not self.members

    def serving(self) -> list[Member]:
        """Those that take jobs."""
        return [member for member in self.members.values() if member.state is State.SERVING]

    def begin(self, now: float) -> None:
        """Start all."""
        for place in range(self._count):
            self._start(place, now)

    def _start(self, place: int, now: float, old: Member | None = None) -> Member:
        self._due.pop(place, None)
        member = Member(place, self._serial, now, first=place not in self._served, old=old)
        self._serial += 1
        self.members[member.serial] = member
        self._hands.start(member)
        return member

    def _replaced(self, why: str) -> None:
        self.restarts[why] = self.restarts.get(why, 0) + 1

    # ---- what processes say -------------------------------------------------------------------

    def heard(self, member: Member, now: float) -> None:
        """It gave a sign of life."""
        member.heard = now
        if member.warned:
            member.warned = False
            self._hands.say("a process answers again", process=member.serial)

    def ready(self, member: Member, now: float) -> None:
        """It takes jobs."""
        member.heard = now
        if member.state is not State.STARTING:
            return
        member.state = State.SERVING
        self._failures[member.place] = 0
        self._served.add(member.place)
        if len(self._served) == self._count and not self.complete:
            self.complete = True
            self._hands.say("all processes serve", processes=self._count)
        old, member.old = member.old, None
        if old is not None and old.state is State.SERVING:
            self._retire(old, "reload", None, now)
        if member.stale and member.place not in self._rolling:
            self._rolling.append(member.place)
        if member is self._newcomer:
            self._newcomer = None
        self._roll(now)

    def failed(self, member: Member, text: str, final: bool = False) -> None:
        """It cannot start, and will end. ``final``: trying again would mend nothing."""
        member.failure = text
        member.final = final

    def wants_to_end(self, member: Member, why: str, within: float | None, now: float) -> None:
        """It is to be replaced, and takes no more jobs."""
        if member.state is not State.SERVING or self.stopping:
            return
        self._hands.say("a process is replaced", process=member.serial, reason=why)
        self._retire(member, why, within, now)
        self._replaced(why)
        self._start(member.place, now)

    def _retire(self, member: Member, why: str, within: float | None, now: float) -> None:
        member.state = State.RETIRING
        member.reason = why
        if within is not None:
            member.limit = now + within + MARGIN
        self._hands.finish(member, within)

    def ended(self, member: Member, status: int, now: float) -> None:
        """Its process is gone, with this exit status (a signal's number is negative)."""
        del self.members[member.serial]
        if member is self._newcomer:
            self._newcomer = None
        if self.stopping or member.state is State.RETIRING:
            return
        if member.old is not None and member.old.state is State.SERVING:
            self._rolling.clear()
            self._hands.say(
                "the new code does not start, the old processes go on",
                urgent=True,
                reason=member.failure or _how(status),
            )
        elif (heir := self._heir(member.place)) is not None:
            heir.old = None
            self._hands.say("a process died while it was replaced", process=member.serial)
        elif member.reason:  # killed by us
            self._replaced(member.reason)
            self._start(member.place, now)
        elif member.final or (member.first and member.state is State.STARTING):
            # Trying again would mend nothing.
            self._give_up(member.failure or f"a process ended: {_how(status)}", now)
        else:
            self._died(member, status, now)
        self._roll(now)

    def _heir(self, place: int) -> Member | None:
        """Who has this place, or will have it."""
        for member in self.members.values():
            if member.place == place and member.state is not State.RETIRING:
                return member
        return None

    def _died(self, member: Member, status: int, now: float) -> None:
        place = member.place
        if now - member.started > LONG_RUN:
            self._deaths[place] = 0
        self._deaths[place] += 1
        reason = member.failure or _how(status)
        if member.state is State.STARTING:  # else a task may have killed it, and others go on
            self._failures[place] += 1
        if self._failures[place] >= self._most_deaths:
            times = self._failures[place]
            self._give_up(f"a process did not start {times} times in a row, last: {reason}", now)
            return
        pause = min(FIRST_PAUSE * 2 ** (self._deaths[place] - 1), LAST_PAUSE)
        self._hands.say(
            "a process died and is started again",
            urgent=True,
            process=member.serial,
            reason=reason,
            pause=pause,
        )
        self._replaced("died")
        self._due[place] = now + pause

    def _give_up(self, problem: str, now: float) -> None:
        self.problem = problem
        self.stop(now)

    # ---- what the operator says ---------------------------------------------------------------

    def reload(self, now: float) -> None:
        """Replace all processes, one after the other, each when the new one serves."""
        if self.stopping:
            return
        self._hands.say("all processes are replaced")
        self._rolling = deque(range(self._count))
        if self._newcomer is not None:
            self._newcomer.stale = True  # it may have read the code of before
        self._roll(now)

    def _roll(self, now: float) -> None:
        """Replace the next process, unless one is being replaced."""
        while self._rolling and self._newcomer is None:
            place = self._rolling.popleft()
            current = self._heir(place)
            if place in self._due:
                self._start(place, now)  # it need not wait: the code is another one
            elif current is not None and current.state is State.SERVING:
                self._replaced("reload")
                self._newcomer = self._start(place, now, current)
            elif current is not None:
                current.stale = True

    def stop(self, now: float) -> None:
        """Let all end: no new jobs, and the grace for those in hand."""
        self.stopping = True
        self._due.clear()
        self._rolling.clear()
        for member in self.members.values():
            member.limit = min(member.limit, now + self._grace + MARGIN)
            if member.state is State.STARTING:
                self._hands.terminate(member)  # it may not listen yet
            else:
                member.state = State.RETIRING
                self._hands.finish(member, self._grace)

    def stop_now(self, now: float) -> None:
        """Let all hand their jobs back and end."""
        self.stop(now)
        for member in self.members.values():
            member.limit = min(member.limit, now + MARGIN)
            self._hands.hand_back(member)

    # ---- time ---------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due. To be called several times a second."""
        for place, due in list(self._due.items()):
            if due <= now:
                self._start(place, now)
        for member in list(self.members.values()):
            if member.limit <= now:
                self._hands.say("a process does not end", urgent=True, process=member.serial)
                self._kill(member, member.reason or "stop", now)
            elif member.state is not State.STARTING:
                self._look_at(member, now)

    def _look_at(self, member: Member, now: float) -> None:
        silent = now - member.heard
        if silent > SILENCE and now - member.deadline > OVERRUN:
            self._hands.say(
                "a task blocks its process beyond its timeout: the process is killed",
                urgent=True,
                process=member.serial,
                silent=round(silent, 1),
            )
            self._kill(member, "blocked", now)
        elif silent > STUCK and not member.warned:
            member.warned = True
            self._hands.say(
                "a process does not answer: a task blocks it",
                urgent=True,
                process=member.serial,
                silent=round(silent, 1),
            )

    def _kill(self, member: Member, why: str, now: float) -> None:
        member.reason = why
        member.limit = now + MARGIN  # once more, should it be needed
        member.deadline = math.inf
        self._hands.kill(member)


def _how(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
