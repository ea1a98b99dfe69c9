"""What was promised to clients, and whether the promises are kept.

The oracle sees requests and replies of clients, what nodes promised each other, and which copies
crashes destroyed. Everything it calls a problem is a broken promise; every exemption says why.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from disque_trio.node.core.jobs.job import ACKED, ACTIVE, JOB_OVERHEAD, QUEUED, STATE_NAMES
from disque_trio.node.core.lifecycle.ack_gc import FIRST_GAP
from disque_trio.node.core.queues.queue import QUEUE_OVERHEAD
from disque_trio.protocol import bus, trailer
from disque_trio.protocol.successor import successor_id
from tests.simulator.events import MS, SECOND
from tests.simulator.marks import EVERY, check_marks
from tests.simulator.patterns import check_queues, check_waits
from tests.simulator.plan import CALM, DEAD
from tests.simulator.promises import Promises
from tests.simulator.pushes import check_consumers
from tests.simulator.records import JobRecord, token_of
from tests.simulator.trace import packet_text
from tests.support.gifts import given_ids, is_gift
from tests.support.node_bench import counted_extras

if TYPE_CHECKING:
    from tests.simulator.fabric import End
    from tests.simulator.machine import Machine
    from tests.simulator.world import World


@dataclass(slots=True)
class Problem:
    """A broken promise. ``words``: to search for in the trace."""

    text: str
    words: list[str]


class Enough(BaseException):
    """The problem that was looked for is there: the rest of the run does not matter."""


class Oracle:
    """See the module.

    Attributes:
        enough: the run ends with a problem whose text has one of these.
    """

    def __init__(self, world: "World") -> None:
        self.world = world
        self.problems: list[Problem] = []
        self.enough: tuple[str, ...] = ()
        plan = world.plan
        limited = plan.gentle and plan.static
        self._in_hand = plan.active if limited else 0  # 0: any number
        self._in_hand_of_group = plan.group_active if limited and not plan.older else 0
        self._extended = plan.attempts > 0
        self.records: list[JobRecord] = []
        self.by_id: dict[bytes, JobRecord] = {}
        self.promises = Promises(world, self.problem, self.by_id)
        # Jobs that were about to be pushed in the turn in which their clients hung up: what was
        # counted as a delivery may never have left.
        self.unsent: set[bytes] = set()
        self._promises: dict[bytes, dict[int, int]] = {}  # id: machine: when it said GOTJOB
        self._losses: dict[bytes, dict[int, int]] = {}  # id: machine: when a crash took its copy
        self._last_copies: set[bytes] = set()  # ids of jobs whose only copy went with a crash
        self._turns = 0
        self._new: list[JobRecord] = []  # confirmed in this turn
        self._quiet_from: dict[bytes, int] = {}  # id: µs from which it may not be delivered again

    def problem(self, text: str, *ids: bytes) -> None:
        """Note a broken promise about the jobs ``ids``."""
        if len(self.problems) < 20:
            now = self.world.loop.now
            names = [id.decode() for id in ids]
            problem = Problem(f"{now / SECOND:.3f} s: {text} {' '.join(names)}", names)
            self.problems.append(problem)
            self.world.note(f"* PROBLEM {text} {' '.join(names)}")
            if any(text in problem.text for text in self.enough):
                raise Enough

    # ---- what clients ask ---------------------------------------------------------------------

    def new_job(
        self, queue: bytes, retry: int, ttl: int, delay: int, repl: int, is_async: bool
    ) -> JobRecord:
        """Note that a client is about to add a job; its body is its number."""
        record = JobRecord(
            len(self.records), queue, retry, ttl, delay, repl, is_async, self.world.loop.now
        )
        record.clock = min(machine.now() for machine in self.world.machines)
        self.records.append(record)
        return record

    def asks(self, request: list[bytes]) -> None:
        """Note that a client sends a command that may end jobs or queue them again, even if it
        never hears the answer."""
        self.promises.asks(request)
        if self.world.timely is not None:
            self.world.timely.asks(request)
        for id in request[1:]:
            record = self.by_id.get(id)
            if record is not None:
                record.asked_for.add(request[0])
                if request[0] == b"FASTACK":
                    record.deletion_asked = True
                elif request[0] == b"NACK":
                    record.nacks += 1
                elif request[0] == b"ACKJOB":
                    record.ack_asked = True
                elif request[0] == b"CANCEL":
                    record.cancel_asked = True

    def ended(self, id: bytes) -> bool:
        """Whether a client asked to end the job."""
        record = self.by_id.get(id)
        return self.promises.ended_by(id) or (record is not None and record.asked_to_end)

    # ---- what nodes do ------------------------------------------------------------------------

    def ids_in(self, journal: list[bytes]) -> set[bytes]:
        """The jobs that ``journal`` adds."""
        # *2 $7 LOADJOB $n, then the job: four bytes of length, its id.
        found: set[bytes] = set()
        for entry in journal:
            if entry.startswith(b"*2\r\n$7\r\nLOADJOB\r\n"):
                start = entry.index(b"\r\n", 17) + 6
                found.add(entry[start : start + 40])
        return found

    def packets_leave(self, machine: "Machine", ends: "list[End]", deleted: set[bytes]) -> None:
        """A turn of ``machine`` sends the contents of ``ends``; ``deleted``: jobs that it was told
        to delete in this turn."""
        trace = self.world.trace
        timely = self.world.timely
        promised: list[bytes] = []
        for end in ends:
            for packet in end.buffer:
                if trace.on:
                    target = end.wire.ends[1 - end.side].host.index if end.wire else -1
                    trace.add(f"{machine.index} to {target} {packet_text(packet)}")
                type = bus.packet_type(packet)
                if timely is not None:
                    timely.announces(machine, packet)
                if type in (bus.GIVEN, bus.SETTLED) and end.wire is not None:
                    to = end.wire.ends[1 - end.side].host.index
                    if not {machine.index, to}.isdisjoint(self.world.plan.older):
                        self.problem(f"a packet of type {type} for a node that does not know it")
                if type == bus.GOTJOB:
                    promised += bus.job_ids(packet)
                elif is_gift(packet):
                    # At-most-once jobs are then nowhere else.
                    given = given_ids(packet)
                    self.promises.given.update(dict.fromkeys(given, self.world.loop.now))
                    if end.wire is not None:
                        to = end.wire.ends[1 - end.side].host.index
                        self.world.faults.jobs_given_to(self.world.machines[to])
        for id in promised:
            if id not in deleted:
                self._promised(machine, id)

    def _promised(self, machine: "Machine", id: bytes) -> None:
        """A GOTJOB for ``id`` leaves ``machine``, which must have the job."""
        self._promises.setdefault(id, {})[machine.index] = self.world.loop.now
        if machine.holds(id):
            return
        # In the same turn, the job may have been acknowledged and collected, or given away for good
        # (even numbers are at-most-once jobs), or the clock jumped and the time to live is over.
        given = id in self.promises.given and id[39] in b"02468ace"
        for how in (trailer.DEAD, trailer.REDRIVEN):
            # It became a dead letter, or was one and was sent back: in the same turn, or on another
            # node, and in the same turn this one heard that all nodes know. What it became may have
            # moved on, or have ended.
            successor = successor_id(id, how)
            if self.ended(successor) or any(one.holds(successor) for one in self.world.machines):
                return
        if machine.node.store.uniques.refuses(id):
            return  # its producer hung up before it was added, which was reported
        if not self.ended(id) and not given and id[36:39] != b"000":
            self.problem(f"node {machine.index} says GOTJOB and does not have the job", id)

    def replied(self, machine: "Machine", request: list[bytes], reply: object) -> None:
        """Check a reply that leaves ``machine``."""
        name = request[0]
        now = self.world.loop.now
        if self.world.timely is not None:
            self.world.timely.replied(request, reply)
        if name == b"ADDJOB":
            record = self.records[int(request[2])]
            if request[1][:1] == b"@":
                self._published(machine, request, record, reply)
            else:
                self._added(machine, request, record, reply)
        elif name == b"GETJOB":
            if isinstance(reply, list):
                if self.world.plan.attempts:
                    self.promises.in_order(reply)
                    check_queues(self.world, request, reply)
                for entry in reply:
                    self.sent(machine, entry)
        elif name == b"ACKJOB":
            for id in request[1:]:
                known = self.by_id.get(id)
                if known is not None and known.id == id:
                    known.acked.append((now, machine.index))
        else:
            if name == b"CANCEL":
                for id in request[1:]:
                    known = self.by_id.get(id)
                    if known is not None and known.id == id:
                        known.cancelled.append((now, machine.index))
            self.promises.replied(machine, request, reply)

    def _added(
        self, machine: "Machine", request: list[bytes], record: JobRecord, reply: object
    ) -> None:
        """The ADDJOB ``request``, or its part about the queue of ``record``, was answered."""
        record.answers += 1
        if record.answers > 1:
            self.problem("an ADDJOB was answered twice", record.id)
        elif isinstance(reply, bytes):
            self._answered(machine, record, reply)
        else:
            record.error = str(reply)
            record.refused = self.world.loop.now
            if not record.error.startswith(_refusals(request, machine)):
                self.problem(f"ADDJOB was answered {record.error}")
            elif self.world.plan.mode == CALM:
                self.problem(f"ADDJOB failed without any fault: {record.error}")

    def _published(
        self, machine: "Machine", request: list[bytes], record: JobRecord, reply: object
    ) -> None:
        """The ADDJOB ``request`` to a topic was answered: each bound queue has its own job."""
        records = [record, *record.others.values()]
        replies = reply if isinstance(reply, list) else [reply] * len(records)
        if len(replies) != len(records) or isinstance(reply, bytes):
            self.problem(f"{request[1].decode()} was answered {reply!r}")
            return
        for one, its_reply in zip(records, replies, strict=True):
            self._added(machine, request, one, its_reply)
            job = machine.jobs.get(one.id) if one.id else None  # it was refused
            queue = b"" if job is None else self.promises.added_to([one.id]) or job.queue
            if queue not in (one.queue, b""):
                self.problem(f"the job for {one.queue!r} is in {queue!r}", one.id)

    def _record_of(self, body: bytes, queue: bytes, *ids: bytes) -> JobRecord:
        """The record of the job with this ``body`` in ``queue``, which has, or had, one of
        ``ids``."""
        record = self.records[token_of(body)]
        if record.replaces:  # it may have given its body to another one
            for one in (record, *self.promises.with_key_of(record)):
                if one.id and set(ids) & set(self.promises.line_of(one)):
                    return one
        if not record.others:
            return record
        for one in (record, *record.others.values()):
            if one.id and set(ids) & set(self.promises.line_of(one)):
                return one
        # It may have been moved before its producer learned its id.
        return record.others.get(self.promises.added_to(ids) or queue, record)

    def _answered(self, machine: "Machine", record: JobRecord, id: bytes) -> None:
        """The ADDJOB ``record`` was answered with ``id``."""
        if record.id and record.id != id:
            self.problem("the id belongs to another job", id, record.id)
        owner = self._owner(record, id)
        owner.repeat = owner is not record
        if owner is record or owner.confirmed < 0:
            self._confirmed(owner, id)
        if owner is record:
            self._new.append(record)
        elif not owner.promised_to and not self.promises.may_be_gone(owner, id in self._losses):
            self.problem("a repeat was answered with the id of a job that is nowhere", id)
        if record.key:
            record.replied = self.world.loop.now
            self.promises.key_answered(record, owner)

    def _owner(self, record: JobRecord, id: bytes) -> JobRecord:
        """The ADDJOB that made the job ``id``, which was the reply to ``record``, or was delivered
        with its body: that one itself, or another one with the same key."""
        owner = self.by_id.get(id)
        if owner is None and record.key and (body := self.promises.body_of(id)):
            owner = self._record_of(body, record.queue, id)
        if owner is None:
            return record
        same_key = record.key and (owner.queue, owner.key) == (record.queue, record.key)
        if owner is not record and not same_key:
            self.problem("the id belongs to another job", id, record.id)
        return owner

    def _confirmed(self, record: JobRecord, id: bytes) -> None:
        now = self.world.loop.now
        record.id = id
        record.confirmed = now
        self.by_id[id] = record
        machines = self.world.machines
        holders = [one.index for one in machines if one.holds(id)]
        excused: list[int] = []
        promises = self._promises.get(id, {})
        for index, when in promises.items():
            one = machines[index]
            if index in holders:
                continue
            # A holder may have died between its promise and now; its disk is checked when it comes
            # back.
            if one.died_at >= when or self._losses.get(id, {}).get(index, -1) >= when:
                excused.append(index)
        record.promised_to = holders + excused

    def turn_over(self, machine: "Machine") -> None:
        """All replies of a turn have left: check that there were enough copies of the confirmed
        jobs."""
        if self._in_hand:
            self._check_limits(machine, self._in_hand)
        if self._in_hand_of_group:
            self._check_groups(machine, self._in_hand_of_group)
        if self._extended:
            node = machine.node
            if node.consumers.by_client:
                check_consumers(self.world, machine)
            if node.deliveries.interests.by_client:
                check_waits(self.world, machine)
        self._turns += 1
        if self._turns % EVERY == 0:
            check_marks(self.world, machine)
        if self._new:
            self._check_copies(machine)

    def _check_copies(self, machine: "Machine") -> None:
        """Check that there are enough copies of the jobs that ``machine`` confirmed just now."""
        plan = self.world.plan
        confirmed, self._new = self._new, []
        for record in confirmed:
            wanted = 1 if record.is_async else record.repl
            if len(record.promised_to) >= wanted:
                continue
            # A copy may be queued, delivered and acknowledged before the producer is told, or be
            # cancelled by a producer with the same key that learned its id earlier. And the only
            # copy of an at-most-once job may be on its way to its consumer's node.
            if record.sent or self._expired(record) or self.ended(record.id):
                continue
            if record.retry == 0 and record.id in self.promises.given:
                continue
            if record.is_async and (plan.leaving == machine.index or machine.maxmemory):
                continue  # placed elsewhere without waiting: nothing is confirmed
            self.problem(
                f"confirmed with {len(record.promised_to)} of {wanted} copies on "
                f"{record.promised_to} by {machine.index}",
                record.id,
            )

    def _check_limits(self, machine: "Machine", active: int) -> None:
        """Check that no more than ``active`` jobs are in hand of each queue of which ``machine``
        may just have delivered some."""
        for name, its_limit in machine.node.limits.by_name.items():
            if its_limit.in_hand:
                limits = [one.node.limits.by_name.get(name) for one in self.world.machines]
                count = sum(len(limit.in_hand) for limit in limits if limit is not None)
                if count > active:
                    self.problem(f"{count} jobs of {name.decode()} in hand, not {active}")

    def _check_groups(self, machine: "Machine", active: int) -> None:
        """Check that no more than ``active`` jobs are in hand of each group of which ``machine``
        may just have delivered some."""
        for key, its_limit in machine.node.limits.of_groups.in_use.items():
            if its_limit.in_hand:
                found = [one.node.limits.of_groups.in_use.get(key) for one in self.world.machines]
                count = sum(len(limit.in_hand) for limit in found if limit is not None)
                if count > active:
                    self.problem(f"{count} jobs of the group {key!r} in hand, not {active}")

    def sent(self, machine: "Machine", entry: list[bytes]) -> None:
        """Check a delivery of a job, or of a dead letter."""
        if self.world.timely is not None:
            self.world.timely.delivered(machine, entry[1])
        if entry[0] == DEAD:
            self._sent_letter(machine, entry)
        else:
            self._sent(machine, entry)

    def _sent(self, machine: "Machine", entry: list[bytes]) -> None:
        now = self.world.loop.now
        queue, id, body = entry[:3]
        record = self._owner(self._record_of(body, queue, id), id)
        self.by_id.setdefault(id, record)
        self.promises.delivered(machine, record, entry)
        if self._quiet_from.get(id, now) < now:
            self.problem(f"an acknowledged job came back: {_times(record)}", id)
        if record.id != id and self._is_later(machine, record, id):
            record.later.setdefault(id, []).append((now, machine.index))
            return
        if record.id and record.id != id:
            self.problem("delivered with the body of another job", id, record.id)
        record.id = id
        record.sent.append((now, machine.index))
        if len(record.sent) > 1:
            if record.retry == 0:
                self.problem(f"a job with RETRY 0 was delivered again: {_times(record)}", id)
            elif self.world.plan.mode == CALM and len(record.sent) > 1 + record.nacks:
                self.problem(f"delivered twice without any fault: {_times(record)}", id)

    def _is_later(self, machine: "Machine", record: JobRecord, id: bytes) -> bool:
        """Whether ``id`` is that of a job that ``record`` became when it was sent back."""
        if record.id:
            return id in record.later or id in self.promises.line_of(record)
        job = machine.jobs.get(id)
        beyond = None if job is None else machine.node.store.trailers.of(job)
        return beyond is not None and beyond.letter is not None

    def _sent_letter(self, machine: "Machine", entry: list[bytes]) -> None:
        """A dead letter is delivered: check that the job had all of its attempts."""
        _, id, body = entry[:3]
        store = machine.node.store
        job = machine.jobs.get(id)
        beyond = None if job is None else store.trailers.of(job)
        letter = None if beyond is None else beyond.letter
        first = (b"", b"") if letter is None else (letter.queue, letter.first)
        record = self._owner(self._record_of(body, first[0], first[1], id), id)
        self.by_id.setdefault(id, record)
        self.promises.delivered(machine, record, entry)
        record.letters.add(id)
        if letter is None:
            return
        if not record.id:
            return
        line = self.promises.line_of(record)
        if letter.first != record.id or id not in line:
            self.problem("a dead letter names another job", id, letter.first, record.id)
        elif letter.why == trailer.BY_ATTEMPTS:
            before = line[line.index(id) - 1]
            often = len(record.sent if before == record.id else record.later.get(before, ()))
            if often < self.world.plan.attempts and before not in self.unsent:
                self.problem(f"dead after {often} deliveries", before)

    def received(self, id: bytes) -> None:
        """Note that a delivered job has reached a client."""
        self.by_id[id].received = True

    def restarted(self, machine: "Machine") -> None:
        """``machine`` has loaded its file: check whether anything is missing."""
        now = self.world.loop.now
        for id, state in machine.held_at_death.items():
            if machine.holds(id):
                continue
            self._losses.setdefault(id, {})[machine.index] = now
            others = [one for one in self.world.machines if one is not machine]
            if not any(one.holds(id) or id in one.held_at_death for one in others):
                self._last_copies.add(id)
            record = self.by_id.get(id)
            if (
                machine.intact
                and state in (ACTIVE, QUEUED)
                and record is not None
                and record.retry
                and record.confirmed >= 0
                and record.ttl > 3600  # clocks jump by minutes
            ):
                self.problem(f"node {machine.index} lost a job that its file should have", id)
        machine.held_at_death = {}
        self.promises.restarted(machine)

    # ---- when all faults are over ----------------------------------------------------------------

    def snapshot(self, network_well: int) -> None:
        """Called when all faults are over; from ``network_well`` (µs) on, packets arrive, and
        delayed ones have arrived or are lost. If a node that knows all live copies of a job knows
        that it was acknowledged, the job does not come back from some time on: when this node first
            tells the others over a healthy network."""
        machines = [machine for machine in self.world.machines if machine.up]
        for record in self.records:
            id = record.id
            if not (record.acked or record.cancelled):
                continue
            alive = [machine for machine in machines if machine.live_copy(id)]
            for machine in machines:
                job = machine.jobs.get(id)
                if job is None or job.state != ACKED:
                    continue
                known = job.delivered or ()
                # A node that never saw the job asks all others.
                if job.body is None or all(other.id in known for other in alive):
                    told = machine.clock.when(job.awake)
                    attempt = int(job.gc_retry)
                    while told < network_well:
                        told += FIRST_GAP * MS * 5 // 4 << min(attempt, 8)
                        attempt += 1
                    told += 5 * SECOND
                    self._quiet_from[id] = min(told, self._quiet_from.get(id, told))

    # ---- the end ------------------------------------------------------------------------------

    def check_drained(self) -> None:
        """Check that all promises are kept, and that nothing is left."""
        for record in self.records:
            if record.confirmed >= 0 and not record.received and self.must_arrive(record):
                excuse = self.excuse(record)
                if not excuse:
                    self.problem(
                        f"a confirmed job was never delivered; on {record.promised_to}, losses "
                        f"{self._losses.get(record.id, {})}",
                        record.id,
                    )
            if self._is_lost(record):
                self.problem("a job with RETRY 0 was lost, though no node was killed", record.id)
            ended = record.ack_asked or record.cancel_asked
            if record.confirmed >= 0 and record.retry and not ended:
                excuse = self.excuse(record)
                if not excuse:
                    self.problem("a job that nobody acknowledged is gone", record.id)
        for machine in self.world.machines:
            self.check_accounts(machine)
            if machine.node.bad_packets:
                self.problem(f"node {machine.index} got {machine.node.bad_packets} bad packets")
            if machine.removed:
                continue  # a client may have asked it for something while it took its leave
            for job in self.left_over(machine):
                self.problem(
                    f"left on node {machine.index}, {STATE_NAMES[job[1]].decode()}", job[0]
                )

    def _is_lost(self, record: JobRecord) -> bool:
        """Whether ``record`` is of a confirmed at-most-once job that was never delivered, in a
        healthy network in which nodes only stopped, cleanly and with a farewell."""
        world = self.world
        stopped = any(machine.incarnation > 1 for machine in world.machines)
        if world.timely is None or (stopped and not world.faults.only_stops):
            return False
        if record.retry or record.confirmed < 0 or record.sent or record.id in self.unsent:
            return False
        # It may have become another job before it was delivered.
        return not (self.ended(record.id) or self._expired(record) or record.letters)

    def must_arrive(self, record: JobRecord) -> bool:
        """Whether it is delivered at least once; without faults, so are at-most-once jobs. (Not
        with late packets: a node that hears no PONG for long gives up a link, and what is on
            it.)"""
        return record.retry > 0 or self.world.plan.mode == CALM

    def left_over(self, machine: "Machine") -> list[tuple[bytes, int]]:
        """Jobs that should no longer be there, with their states."""
        left: list[tuple[bytes, int]] = []
        for job in machine.jobs.values():
            # An at-most-once job whose consumer died stays until its time to live is over.
            stays = job.retry == 0 and job.state == ACTIVE and not job.qtime
            if not (stays and job.body is not None):
                left.append((job.id, job.state))
        return left

    def check_accounts(self, machine: "Machine") -> None:
        """Check that the memory account is the sum of what is there."""
        node = machine.node
        jobs = sum(
            len(job.body or b"") + JOB_OVERHEAD
            for shard in filter(None, node.store.jobs.shards)
            for job in shard.values()
        )
        queues = sum(len(name) + QUEUE_OVERHEAD for name in node.queues.by_name)
        there = jobs + queues + counted_extras(node) + node.paging.pages.taken
        if node.memory.used != there:
            self.problem(f"node {machine.index} accounts {node.memory.used} bytes for {there}")
        for name, queue in node.queues.by_name.items():
            size = sum(len(job.body or b"") for job in queue.first_to_last())
            if queue.bytes_queued() != size:
                self.problem(f"{name.decode()} does not have the {size} bytes of its jobs")

    def check_gone(self, machine: "Machine") -> None:
        """Note that the time to live of all jobs is over."""
        if machine.jobs.count:
            ids = [job.id for job in machine.jobs.values()]
            self.problem(f"node {machine.index} still has jobs after their time to live", *ids)
        self.check_accounts(machine)

    def _expired(self, record: JobRecord) -> bool:
        """Whether its time to live is over on the clock that is furthest ahead."""
        world = self.world
        ahead = max(machine.now() for machine in world.machines) // 1000 - world.started_s
        return record.asked // SECOND + record.ttl <= ahead + 1

    def leaves(self, machine: "Machine") -> None:
        """``machine`` is about to go for good: from now on, the other nodes that have its jobs have
        to keep what was promised."""
        others = [one for one in self.world.machines if one is not machine and one.up]
        for record in self.records:
            id = record.id
            if not id or machine.index not in record.promised_to:
                continue
            there = [one.index for one in others if one.live_copy(id) or one.node.paging.knows(id)]
            if there:
                rest = [index for index in record.promised_to if index != machine.index]
                record.promised_to = list(dict.fromkeys(rest + there))
            elif machine.live_copy(id) and record.retry and not self.ended(id):
                self.problem("a job goes with a node that leaves", id)

    def excuse(self, record: JobRecord) -> str:
        """Why a confirmed at-least-once job need not have been delivered; empty: it must have
        been."""
        if record.deletion_asked:
            return "a client asked to delete it"
        if record.cancel_asked:
            return "a client asked to cancel it"
        if self._expired(record) and not self.world.plan.attempts:
            return "its time to live is over"
        later = self.promises.line_of(record)[1:] if self._last_copies else []
        if record.id and not self._last_copies.isdisjoint(later):
            return "a crash took the only copy of the job that it became"
        losses = self._losses.get(record.id, {})
        # ASYNC promises one copy, or none if the node was not to hold one itself.
        if all(losses.get(index, -1) >= 0 for index in record.promised_to):
            return "crashes took all copies that were promised"
        return ""

    def check_answers(self, limit: int) -> None:
        """Check that every ADDJOB so far was answered within ``limit`` µs."""
        for record in self.records:
            self._check_answer(record, limit)

    def _check_answer(self, record: JobRecord, limit: int) -> None:
        answered = max(record.confirmed, record.refused)
        late = (self.world.loop.now if answered < 0 else answered) - record.asked
        if late > limit:
            self.problem(f"ADDJOB was answered after {late // MS} ms", record.id)

    def check_latency(self, since: int, answered: int, delivered: int) -> None:
        """Check that every job requested after ``since`` was confirmed within ``answered`` µs and
        delivered within ``delivered`` µs, or that long after its delay."""
        now = self.world.loop.now
        for record in self.records:
            if record.asked < since:
                continue
            self._check_answer(record, answered)
            if record.confirmed >= 0 and self.must_arrive(record):
                first = record.sent[0][0] if record.sent else now
                late = first - record.confirmed - record.delay * SECOND
                if late > delivered:
                    self.problem(f"delivered {late // MS} ms late", record.id)


def _refusals(request: list[bytes], machine: "Machine") -> tuple[str, ...]:
    """The beginnings of errors that are not broken promises. In a group, one answers all."""
    refusals: tuple[str, ...] = ("NOREPL ", "PAUSED ", "MAXLEN ", "OOM ", "EXECABORT ")
    if machine.stopping:
        refusals = (*refusals, "LEAVING ")
    return (*refusals, "NOUNIQ ") if b"UNIQUE" in request else refusals


def _times(record: JobRecord) -> str:
    return ", ".join(f"{at / SECOND:.3f} s on {index}" for at, index in record.sent)
