"""Adds the jobs of schedules when their time has come.

One node adds the job of each tick. The nodes that reach each other are ordered by a number made
from the name of the schedule and the id of the node; the first one adds the job, the second does if
it has heard nothing for ``STAGGER``, and so on. The key of the job (UNIQUE) is made from the
schedule and the time, so two nodes that try add one job.

If the nodes cannot agree on the key, the job is still added (ANYWAY) if every node that is missing
now was already missing when the time came. Otherwise a missing node may have added it.
"""

from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Final
from zlib import crc32

from disque_trio.eventlog import schema
from disque_trio.node.core.jobs.events import EventNotes
from disque_trio.node.core.jobs.replicas import Replicas
from disque_trio.node.core.rpc.services import Services
from disque_trio.node.core.shared.bindings import TOPIC
from disque_trio.node.core.shared.cron_times import Times, times_of
from disque_trio.node.core.shared.makers import Makers, of_schedule
from disque_trio.node.core.shared.policies import Policies
from disque_trio.node.core.shared.schedules import CATCHES_UP, PAUSED, Schedule, Schedules
from disque_trio.node.core.shared.sharing import SharedMaps, Sharing
from disque_trio.node.core.shared.versions import Entry, SharedError
from disque_trio.protocol import bus
from disque_trio.resp.reply import error
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError

if TYPE_CHECKING:
    from mypy_extensions import i64

STAGGER: Final = 3_000  # ms that a node waits for the one before it
MOST_BEFORE: Final = 10  # nodes that one waits for
GRACE: Final = 60_000  # ms after which a tick without a job counts as missed
RETRY: Final = 5_000  # ms until a job that was refused is tried again
KEPT: Final = 3_600  # s for which the key of a tick is kept
LINK_TIME: Final = 5_000  # ms after its start during which a node learns which others are there
PLAN_AFTER: Final = 50  # ms until a changed schedule is looked at, together with others
MOST: Final = 20  # schedules to look at per turn
MOST_NOTED: Final = 100  # events to note for a row of missed ticks
_ID_SIZE: Final = 40  # bytes of the id of a job
_TIMEOUT: Final = b"2000"  # ms that the ADDJOB of a tick waits for other nodes


class Plan:
    """The next action of this node for a schedule.

    Attributes:
        entry: what is known of the schedule.
        times: its ticks; None: they cannot be computed.
        tick: the next one, in ms since the epoch; 0: none.
        at: when there is something to do for it, in ms; 0: never.
        lined_up: the ``at`` under which it is in the queue of pending work.
        seen: when this node first saw that a tick has come for which nobody has added a job yet,
            in ms; 0: none has.
        problem: why the last attempt to add a job failed, or why there are no times; empty: none.
        client: stand-in that is adding a job; None: there is none.
        copies: of the job, if there have to be fewer than usual; 0: as many as ADDJOB makes.
    """

    __slots__ = ("at", "client", "copies", "entry", "lined_up", "problem", "seen", "tick", "times")

    def __init__(self, entry: Entry[Schedule], schedule: Schedule) -> None:
        self.entry = entry
        self.times: Times | None = None
        self.tick = 0
        self.at = 0
        self.lined_up = 0
        self.seen = 0
        self.problem = ""
        self.client: Client | None = None
        self.copies = 0
        try:
            self.times = times_of(schedule.spec, schedule.zone)
        except SharedError as problem:
            self.problem = str(problem)
        self.await_next()

    def await_next(self) -> None:
        """Wait for the tick after the last one that is done."""
        self.tick = self.at = 0 if self.times is None else self.times.next(self.entry.reached)
        self.seen = 0
        self.copies = 0


class Ticks:
    """The ticks of one node.

    Args:
        notes: hear of the ticks.
        policies: of the queues.
        replicas: have this node's id.
        shared_maps: what all nodes share.

    Attributes:
        schedules: the known ones.
        sharing: shares them with other nodes.
        makers: the users who made them.
        due: when there is something to do, in ms since the epoch; 0: never.
        adding: the plans whose jobs are being added, by name.
        total: ticks for which this node added a job.
        missed: ticks for which no node did in time, as this node sees it.
    """

    def __init__(
        self,
        services: Services,
        notes: EventNotes,
        policies: Policies,
        replicas: Replicas,
        shared_maps: SharedMaps,
    ) -> None:
        machine = services.machine
        known = self.schedules = Schedules()
        self.sharing = Sharing("schedules", bus.SCHEDULES, services, known, shared_maps)
        self.sharing.on_change = self._look_again
        self.makers = Makers("schedule", "cron|set", of_schedule, services, known)
        self.due: i64 = 0
        self._from: i64 = 0  # when this node begins to add jobs
        self._left: i64 = 0  # when another node was last lost, or this one started
        self._reachable: list[bytes] = []
        self.total = 0
        self.missed = 0
        self._machine = machine
        self._notes = notes
        self._policies = policies
        self._peers = services.peers
        self._timer = services.timer
        self._replicas = replicas
        self._plans: dict[bytes, Plan] = {}
        self.adding: dict[bytes, Plan] = {}
        self._changed: dict[bytes, None] = {}  # names to look at
        self._queue: list[tuple[int, bytes]] = []  # when to do what; some of it outdated

    def _look_again(self, names: list[bytes]) -> None:
        """Look at the schedules ``names``, which have changed."""
        self.makers.changed(names)
        for name in names:
            self._changed[name] = None
        due = self._machine.now + PLAN_AFTER
        if not self.due or due < self.due:
            self.due = due
        self._timer.wake_by(self.due)

    def plan_of(self, entry: Entry[Schedule]) -> Plan | None:
        """The plan for the schedule in ``entry``; None: there is none yet."""
        plan = self._plans.get(entry.name)
        return plan if plan is not None and plan.entry is entry else None

    # ---- due work -------------------------------------------------------------------------------

    def look_around(self, now: int) -> None:
        """Check which nodes are there."""
        if self._machine.loading:
            return  # nodes connect only after loading
        reachable = self._peers.reachable
        if not self._from:
            self._left = now
            self._from = now + LINK_TIME if self._peers.size > 1 else now
        elif self._from > now + LINK_TIME:
            self._from = self._left = now  # the clock was set back
        if not self.schedules.count:
            return
        if reachable is not self._reachable:
            if not set(self._reachable) <= set(reachable):
                self._left = now
            self._reachable = reachable
        for id in reachable:
            if not self._peers.linked(id):
                self._left = now  # it may be dead, which nobody knows yet

    def go_on(self, now: int) -> None:
        """Do what is due at ``now``, or a part of it if there is much."""
        if not self.due or now < self.due:
            return
        self.look_around(now)
        if now < self._from:
            self.due = self._from
            return
        queue = self._queue
        if len(queue) > 2 * len(self._plans) + MOST:
            queue[:] = sorted((p.lined_up, name) for name, p in self._plans.items() if p.lined_up)
        names = list(islice(self._changed, MOST))
        for name in names:
            del self._changed[name]
            self._plan(name)
        left = MOST - len(names)
        while left and queue and queue[0][0] <= now:
            at, name = heappop(queue)
            plan = self._plans.get(name)
            if plan is not None and plan.at == at and plan.client is None:
                left -= 1
                plan.lined_up = 0
                self._act(plan, now)
                self._line_up(plan)
        self.due = now if self._changed else queue[0][0] if queue else 0

    def _plan(self, name: bytes) -> None:
        """Decide what to do for the schedule ``name``."""
        entry = self.schedules.entries.get(name)
        schedule = None if entry is None else entry.value
        if entry is None or schedule is None or schedule.flags & PAUSED:
            self._plans.pop(name, None)
            if schedule is None:
                self.schedules.runs.pop(name, None)
            return
        plan = self.plan_of(entry)
        if plan is None:
            plan = self._plans[name] = Plan(entry, schedule)
        elif plan.tick <= entry.reached:
            plan.await_next()
        self._line_up(plan)

    def _line_up(self, plan: Plan) -> None:
        if plan.at and plan.client is None and plan.at != plan.lined_up:
            plan.lined_up = plan.at
            heappush(self._queue, (plan.at, plan.entry.name))

    def _act(self, plan: Plan, now: int) -> None:
        """Act on ``plan``, whose tick has come, or whose wait is over."""
        schedule = plan.entry.value
        if plan.times is None or schedule is None:
            return
        latest = plan.times.last(plan.tick - 1, now)
        if latest > plan.tick:  # there were several: only the last one counts
            self.missed += 1
            self._note_missed(plan, schedule, plan.times, latest)
            plan.tick = latest
        if not plan.seen:
            plan.seen = now
        if now - plan.tick > GRACE and not schedule.flags & CATCHES_UP:
            self.missed += 1
            self._note_missed(plan, schedule, plan.times, plan.tick + 1)
            self._done(plan)
            return
        turn = plan.seen + self._place(plan.entry.name) * STAGGER
        if now < turn:
            plan.at = turn
        elif not self.makers.allows(schedule):
            plan.at = now + RETRY  # meanwhile a node where its user may have it adds the job
        else:
            self._add(plan, schedule)

    def _note_missed(self, plan: Plan, schedule: Schedule, times: Times, until: int) -> None:
        """Note all ticks of ``plan`` before ``until`` as missed; if there are very many, combine
        the last ones in one event."""
        if not self._notes.eventing:
            return
        refused = plan.problem or not self.makers.allows(schedule)
        reason = schema.BY_REFUSAL if refused else schema.BY_ABSENCE
        at = plan.tick
        for number in range(MOST_NOTED):
            last = number == MOST_NOTED - 1
            tick = (schedule.name, at, schedule.queue)
            self._notes.note_tick(schema.MISSED, tick, reason, until if last else -1, b"")
            at = times.next(at)
            if not at or at >= until:
                return

    def _place(self, name: bytes) -> int:
        """Return how many reachable nodes precede this one in adding jobs of ``name``."""
        peers = self._peers
        own = crc32(name + self._replicas.own)
        before = 0
        for id in peers.reachable:
            if peers.understands(id) and (peers.leaving or crc32(name + id) < own):
                before += 1
        return min(before, MOST_BEFORE)

    def _done(self, plan: Plan) -> None:
        """Record that the schedule is done up to the tick of ``plan``."""
        if self._plans.get(plan.entry.name) is plan:
            self.sharing.reach(plan.entry.name, plan.tick)
            plan.await_next()

    # ---- adding ---------------------------------------------------------------------------------

    def _add(self, plan: Plan, schedule: Schedule) -> None:
        """Add the job of the tick."""
        machine = self._machine
        command = machine.find_command(b"addjob")
        assert command is not None
        key = b"%b@%d" % (schedule.name, plan.tick)
        args = [b"ADDJOB", schedule.queue, schedule.body, _TIMEOUT, *schedule.options]
        args += [b"UNIQUE", key, b"FOR", b"%d" % KEPT]
        if plan.tick > self._left:
            args.append(b"ANYWAY")
        if not plan.copies and self._may_have_fewer(schedule):
            peers = self._peers
            linked = sum([peers.linked(id) for id in peers.takers()])
            usual = self._replicas.default_copies
            plan.copies = min(linked, peers.room(False), usual - 1) + 1
        if 0 < plan.copies < self._replicas.default_copies:
            args += [b"REPLICATE", b"%d" % plan.copies]
        client = plan.client = Client(0)
        if schedule.user:  # whose budget counts; it has the rights, or the schedule would not act
            client.user = machine.users.by_name.get(schedule.user, client.user)
        client.label = "cron:" + schedule.name.decode("utf-8", "replace")
        self.adding[schedule.name] = plan
        refusal = machine.refusal(client, command, args)
        if refusal:
            client.out.append(refusal)
        else:
            noted = len(machine.journal)
            machine.client = client
            try:
                command.handler(machine, client, args)
            except CommandError as failure:
                client.out.append(error(str(failure)))
            machine.client = None
            machine.after_command()
            if machine.journaling and len(machine.journal) != noted:
                machine.uncommitted.append((client, 0, len(client.out)))

    def _may_have_fewer(self, schedule: Schedule) -> bool:
        """Whether a job may have fewer copies if nodes are missing, since no number was given."""
        if self._policies.count and schedule.queue.startswith(TOPIC):
            return False  # the policies of its queues may give one
        return not self._policies.of(schedule.queue).replicate and not any(
            option.lower() == b"replicate" for option in schedule.options
        )

    def settle(self) -> None:
        """Check which jobs have been added, at the end of a turn. Call it only while ``adding``."""
        now = self._machine.now
        for name, plan in list(self.adding.items()):
            client = plan.client
            if client is None or not client.out:
                continue
            del self.adding[name]
            plan.client = None
            reply = b"".join(client.out)
            problem = _problem_in(reply)
            if not problem:
                plan.problem = ""
                self.total += 1
                schedule = plan.entry.value
                if schedule is not None:
                    tick = (name, plan.tick, schedule.queue)
                    id = _first_id(reply)
                    self._notes.note_tick(schema.TICKED, tick, schema.NO_REASON, -1, id)
                    self.schedules.ran(name, plan.tick, id)
                self._done(plan)
            else:
                plan.problem = problem.decode("utf-8", "replace")
                plan.at = now + RETRY
                if plan.copies > 1 and problem[:6] in (b"NOREPL", b"NOUNIQ"):
                    plan.copies -= 1  # a node is missing, and this one does not know it yet
                    plan.at = now
            self._line_up(plan)
            self._timer.wake_by(self._soonest())

    def flush(self) -> None:
        """Start over: all jobs have been forgotten, including those that were being added."""
        for plan in self.adding.values():
            plan.client = None
            plan.at = self._machine.now
            self._line_up(plan)
        self.adding.clear()
        self._timer.wake_by(self._soonest())

    def _soonest(self) -> int:
        """Return when there is next something to do."""
        if self._queue and (not self.due or self._queue[0][0] < self.due):
            self.due = self._queue[0][0]
        return self.due


def _first_id(reply: bytes) -> bytes:
    """The id in the reply to an ADDJOB (the first one for a topic); empty: there is none."""
    start = reply.find(b"D-")
    return reply[start : start + _ID_SIZE] if start >= 0 else b""


def _problem_in(reply: bytes) -> bytes:
    """The error in the reply to an ADDJOB (the first one for a topic); empty: there is none. If it
    is tried again, queues that have the job already do not get a second one."""
    return (b"\r\n" + reply).partition(b"\r\n-")[2].partition(b"\r\n")[0]
