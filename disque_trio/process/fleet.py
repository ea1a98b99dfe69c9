"""Decides which processes there should be; the parent of workers, or the supervisor of a server
with several processes, carries this out.

Each of ``count`` places has one process that serves; their number may change. A process that dies
is started again, after a pause that grows while it keeps dying. A process to be replaced (it uses
too much memory, or there is new code) is retired: it takes no more jobs, and ends when its tasks
have ended. Callers pass in the time, in seconds of any clock. Decisions are carried out through
``FleetControl``.
"""

import math
import signal
from collections import deque
from enum import Enum
from typing import Any, Protocol

FIRST_PAUSE, LAST_PAUSE = 0.1, 10.0  # s before a process that died is started again
_MOST_DOUBLINGS = 100  # a float has an end
LONG_RUN = 60.0  # s after which pauses are short again, and earlier deaths forgotten
BEAT = 1.0  # s between two signs of life
SILENCE = 5.0  # s without a sign of life after which a process is examined
STUCK = 30.0  # s without a sign of life after which a process is considered stuck
OVERRUN = 2.0  # s that a task may be late before its silent process is killed
MARGIN = 5.0  # s beyond the grace, to hand jobs back


class State(Enum):
    """The state of a process."""

    STARTING = "starting"
    SERVING = "serving"
    RETIRING = "retiring"


class Member:
    """A process.

    Attributes:
        place: its number among the ``count`` places, from 0.
        serial: its number among all processes that were started.
        first: whether no process has served in its place yet.
        state: its state.
        started, heard: when it was started, and when it last gave a sign of life.
        deadline: by when the first of its tasks must have ended; set from outside, before
            ``Fleet.tick``.
        limit: when to kill it.
        reason: why it was retired, or killed by us; empty if it was not.
        failure: why it said that it cannot start.
        final: whether no other process could start either.
        old: the process that it replaces once it serves.
        stale: whether it may have loaded code that has changed since.
        warned: whether its silence was logged.
        killed: whether we have killed it.
        busy: whether it ran something that may have killed it; set from outside, before
            ``Fleet.ended``.
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
        self.killed = False
        self.busy = False

    def silent(self, now: float) -> float:
        """Return for how long (s) it has given no sign of life, since it serves."""
        return 0.0 if self.state is State.STARTING else now - self.heard

    def stuck(self, now: float) -> bool:
        """Return whether it has been silent for so long that it counts as stuck."""
        return self.silent(now) > STUCK


class FleetControl(Protocol):
    """Carries out decisions. Its methods neither raise nor wait."""

    def start(self, member: Member) -> None:
        """Start the member's process."""

    def finish(self, member: Member, within: float | None) -> None:
        """Tell it to take no more jobs, and to end with its tasks, or in ``within`` s."""

    def hand_back(self, member: Member) -> None:
        """Tell it to hand back its jobs now, and to end."""

    def terminate(self, member: Member) -> None:
        """Send SIGTERM."""

    def kill(self, member: Member) -> None:
        """Send SIGKILL."""

    def restarting(self, member: Member, status: int, reason: str, pause: float) -> None:
        """Log that it ended so, and that it will be started again in ``pause`` s."""

    def say(self, event: str, *, urgent: bool = False, **fields: Any) -> None:
        """Log a line."""


class Fleet:
    """The processes, and the decisions about them.

    Args:
        control: carries out the decisions.
        count: the number of places, at first.
        grace: seconds that tasks have to finish when everything stops.
        deaths: how often in a row the process of one place may die before it serves, until the
            fleet gives up.
        watched: whether it looks after processes that are silent.
        stuck_after: seconds of silence after which a process is killed; None: never.

    Attributes:
        members: all living processes.
        restarts: how many processes were started to replace another, by reason.
        complete: whether all places have served.
        problem: a line that says why the fleet gave up; empty if it did not.
    """

    def __init__(
        self,
        control: FleetControl,
        count: int,
        *,
        grace: float,
        deaths: float,
        watched: bool = True,
        stuck_after: float | None = None,
    ) -> None:
        self.members: dict[int, Member] = {}  # by serial
        self.restarts: dict[str, int] = {}
        self.complete = False
        self.stopping = False
        self.problem = ""
        self._control = control
        self._count = count
        self._grace = grace
        self._most_deaths = deaths
        self._watched = watched
        self._stuck_after = math.inf if stuck_after is None else stuck_after
        self._serial = 0
        self._served: set[int] = set()  # places that have served
        self._deaths = [0] * count  # by place, of processes that did not run for long
        self._failures = [0] * count  # by place, of processes that never served
        self._due: dict[int, float] = {}  # when to start the process of a place again
        self._rolling: deque[int] = deque()  # places that are to get new code
        self._newcomer: Member | None = None  # the process whose start the other places wait for

    @property
    def over(self) -> bool:
        """Whether all have ended and none will be started."""
        return self.stopping and not self.members

    def serving(self) -> list[Member]:
        """Return the members that take jobs."""
        return [member for member in self.members.values() if member.state is State.SERVING]

    def begin(self, now: float) -> None:
        """Start all processes."""
        for place in range(self._count):
            self._start(place, now)

    def _start(self, place: int, now: float, old: Member | None = None) -> Member:
        self._due.pop(place, None)
        member = Member(place, self._serial, now, first=place not in self._served, old=old)
        self._serial += 1
        self.members[member.serial] = member
        self._control.start(member)
        return member

    def _replaced(self, why: str) -> None:
        self.restarts[why] = self.restarts.get(why, 0) + 1

    # ---- what processes report ----------------------------------------------------------------

    def heard(self, member: Member, now: float) -> None:
        """Note a sign of life."""
        member.heard = now
        if member.warned:
            member.warned = False
            self._control.say("a process answers again", process=member.serial)

    def ready(self, member: Member, now: float) -> None:
        """Note that the process takes jobs."""
        member.heard = now
        if member.state is not State.STARTING:
            return
        member.state = State.SERVING
        self._failures[member.place] = 0
        self._served.add(member.place)
        if len(self._served) == self._count and not self.complete:
            self.complete = True
            self._control.say("all processes serve", processes=self._count)
        old, member.old = member.old, None
        if old is not None and old.state is State.SERVING:
            self._retire(old, "reload", None, now)
        if member.stale and member.place not in self._rolling:
            self._rolling.append(member.place)
        if member is self._newcomer:
            self._newcomer = None
        self._roll(now)

    def failed(self, member: Member, text: str, final: bool = False) -> None:
        """Note that it cannot start, and will end. ``final``: trying again would not help."""
        member.failure = text
        member.final = final

    def wants_to_end(self, member: Member, why: str, within: float | None, now: float) -> None:
        """Replace a process that takes no more jobs."""
        if member.state is not State.SERVING or self.stopping:
            return
        self._control.say("a process is replaced", process=member.serial, reason=why)
        self._retire(member, why, within, now)
        self._replaced(why)
        self._start(member.place, now)

    def _retire(self, member: Member, why: str, within: float | None, now: float) -> None:
        member.state = State.RETIRING
        member.reason = why
        if within is not None:
            member.limit = now + within + MARGIN
        self._control.finish(member, within)

    def ended(self, member: Member, status: int, now: float) -> None:
        """Note that its process has ended, with this exit status (negative for a signal)."""
        del self.members[member.serial]
        if member is self._newcomer:
            self._newcomer = None
        if self.stopping or member.state is State.RETIRING:
            return
        if member.old is not None and member.old.state is State.SERVING:
            self._rolling.clear()
            self._control.say(
                "the new code does not start, the old processes go on",
                urgent=True,
                reason=member.failure or how_ended(status),
            )
        elif (heir := self._heir(member.place)) is not None:
            heir.old = None
            self._control.say("a process died while it was replaced", process=member.serial)
        elif member.reason:  # killed by us
            self._replaced(member.reason)
            self._start(member.place, now)
        elif member.final or (member.first and member.state is State.STARTING):
            # Trying again would not help.
            self._give_up(member.failure or f"a process ended: {how_ended(status)}", now)
        else:
            self._died(member, status, now)
        self._roll(now)

    def _heir(self, place: int) -> Member | None:
        """Return the member that has this place, or will have it."""
        for member in self.members.values():
            if member.place == place and member.state is not State.RETIRING:
                return member
        return None

    def _died(self, member: Member, status: int, now: float) -> None:
        place = member.place
        if now - member.started > LONG_RUN:
            self._deaths[place] = 0
        if not member.busy:  # what has killed it comes back late enough, and less and less often
            self._deaths[place] += 1
        reason = member.failure or how_ended(status)
        if member.state is State.STARTING:  # otherwise a task may have killed it; others go on
            self._failures[place] += 1
        if self._failures[place] >= self._most_deaths:
            times = self._failures[place]
            self._give_up(f"a process did not start {times} times in a row, last: {reason}", now)
            return
        doublings = 0 if member.busy else min(self._deaths[place] - 1, _MOST_DOUBLINGS)
        pause = min(FIRST_PAUSE * 2**doublings, LAST_PAUSE)
        self._control.restarting(member, status, reason, pause)
        self._replaced("died")
        self._due[place] = now + pause

    def _give_up(self, problem: str, now: float) -> None:
        self.problem = problem
        self.stop(now)

    # ---- what the operator orders -------------------------------------------------------------

    def reload(self, now: float) -> None:
        """Replace all processes one after the other, each one once the new one serves."""
        if self.stopping:
            return
        self._control.say("all processes are replaced")
        self._rolling = deque(range(self._count))
        if self._newcomer is not None:
            self._newcomer.stale = True  # it may have loaded the old code
        self._roll(now)

    def _roll(self, now: float) -> None:
        """Replace the next process, unless one is being replaced."""
        while self._rolling and self._newcomer is None:
            place = self._rolling.popleft()
            current = self._heir(place)
            if place in self._due:
                self._start(place, now)  # it need not wait, since the code is different now
            elif current is not None and current.state is State.SERVING:
                self._replaced("reload")
                self._newcomer = self._start(place, now, current)
            elif current is not None:
                current.stale = True

    def resize(self, count: int, now: float) -> None:
        """Have ``count`` places from now on, once all have served. The processes of places that are
        no more end when their tasks have ended."""
        if self.stopping or not self.complete:
            return
        before, self._count = self._count, count
        for place in range(before, count):
            self._deaths.append(0)
            self._failures.append(0)
            self._served.add(place)  # if it does not start, the others go on
            self._start(place, now)
        if count < before:
            del self._deaths[count:], self._failures[count:]
            self._served &= set(range(count))
            self._due = {place: due for place, due in self._due.items() if place < count}
            self._rolling = deque(place for place in self._rolling if place < count)
            for member in self.members.values():
                if member.place >= count and member.state is not State.RETIRING:
                    self._retire(member, "scaled", None, now)
            if self._newcomer is not None and self._newcomer.place >= count:
                self._newcomer = None
                self._roll(now)

    def stop(self, now: float) -> None:
        """End all processes: no new jobs, and the grace for those in hand."""
        self.stopping = True
        self._due.clear()
        self._rolling.clear()
        for member in self.members.values():
            member.limit = min(member.limit, now + self._grace + MARGIN)
            if member.state is State.STARTING:
                self._control.terminate(member)  # it may not listen yet
            else:
                member.state = State.RETIRING
                self._control.finish(member, self._grace)

    def stop_now(self, now: float) -> None:
        """Make all processes hand back their jobs and end."""
        self.stop(now)
        for member in self.members.values():
            member.limit = min(member.limit, now + MARGIN)
            self._control.hand_back(member)

    # ---- time ---------------------------------------------------------------------------------

    def next_due(self) -> float:
        """When a process is to be started again."""
        return min(self._due.values(), default=math.inf)

    def tick(self, now: float) -> None:
        """Do what is due. Call this several times a second, or, if the processes are not watched,
        at ``next_due``."""
        for place, due in list(self._due.items()):
            if due <= now:
                self._start(place, now)
        for member in list(self.members.values()):
            if member.limit <= now:
                self._control.say("a process does not end", urgent=True, process=member.serial)
                self._kill(member, member.reason or "stop", now)
            elif self._watched and member.state is not State.STARTING:
                self._look_at(member, now)

    def _look_at(self, member: Member, now: float) -> None:
        silent = now - member.heard
        if silent > SILENCE and now - member.deadline > OVERRUN:
            self._control.say(
                "a task blocks its process beyond its timeout: the process is killed",
                urgent=True,
                process=member.serial,
                silent=round(silent, 1),
            )
            self._kill(member, "blocked", now)
        elif silent > self._stuck_after and not member.killed:
            self._control.say(
                "a process does not answer: it is killed",
                urgent=True,
                process=member.serial,
                silent=round(silent, 1),
            )
            self._kill(member, "stuck", now)
        elif silent > STUCK and not member.warned:
            member.warned = True
            self._control.say(
                "a process does not answer: a task blocks it",
                urgent=True,
                process=member.serial,
                silent=round(silent, 1),
            )

    def _kill(self, member: Member, why: str, now: float) -> None:
        member.reason = why
        member.killed = True
        member.limit = now + MARGIN  # kill it again then, if necessary
        member.deadline = math.inf
        self._control.kill(member)


def how_ended(status: int) -> str:
    """Describe how a process ended; a negative ``status`` is the number of a signal."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
