"""What our nodes promise beyond what C Disque does: keys, endings, results, changes and headers.

A part of the oracle, which passes on what concerns these. The standard is docs/commands.md; every
exemption says why it is one.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from disque_trio.node.core.changes.scatter_gather import PATIENCE
from disque_trio.node.core.jobs.job import ACTIVE, QUEUED, Job, is_delivered
from disque_trio.protocol import trailer
from disque_trio.protocol.successor import successor_id
from tests.simulator.events import MS, SECOND
from tests.simulator.records import (
    Complain,
    JobRecord,
    expected_group,
    expected_headers,
    expected_note,
    expected_priority,
    token_of,
)

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World

ENDS = {b"ACKJOB", b"FASTACK", b"CANCEL"}
LONGEST_LINE = 24  # jobs that become each other, including letters
LATE = 1 * SECOND  # for a turn, a tick and the way of a request


class Promises:
    """See the module.

    Args:
        complain: notes a broken promise: a text, and the ids that it is about.
        by_id: the records of all jobs that were seen, including letters and redriven jobs.

    Attributes:
        asked: what clients asked to be done with a job, by its id; ``NACK DEAD`` is one word.
        given: when a node last gave a job to another one, in µs, by its id.
    """

    def __init__(self, world: "World", complain: Complain, by_id: dict[bytes, JobRecord]) -> None:
        self.world = world
        self.asked: dict[bytes, set[bytes]] = {}
        self.given: dict[bytes, int] = {}
        self._complain = complain
        self._by_id = by_id
        self._by_key: dict[tuple[bytes, bytes], list[JobRecord]] = {}  # those that were answered
        self._shared: dict[bytes, list[JobRecord]] = {}  # by id of the job: who were answered so
        self._anyway: set[tuple[bytes, bytes]] = set()  # keys that were used with ANYWAY
        self._forgot_at = -1  # when a node that had lost what it knew last started, in µs
        self._cancelled: dict[bytes, set[int]] = {}  # id: machines that know that it was
        self._results: dict[bytes, set[bytes]] = {}
        self._lines: dict[bytes, list[bytes]] = {}  # see ``line_of``
        self._redriven = False  # a client sent REDRIVE
        self._last_of_group: dict[tuple[int, int, object, bytes], bytes] = {}
        # µs, when a client last sent QMOVE, or got an answer; later than now if a node died that
        # was asked for one, and others may still do what it asked of them.
        self._moved_at = -1
        self._moved_to: dict[bytes, set[bytes]] = {}  # id: queues; those of QMOVE without an id

    # ---- what clients ask, and what happens ---------------------------------------------------

    def asks(self, request: list[bytes]) -> None:
        """Note that a client sends ``request``."""
        name = request[0]
        if name == b"NACK" and b"DEAD" in request:
            name = b"NACK DEAD"
        for word in request[1:]:
            if word[:2] == b"D-":
                self.asked.setdefault(word, set()).add(name)
        if name == b"ACKJOB" and request[-2] == b"RESULT":
            self._results.setdefault(request[1], set()).add(request[-1])
        elif name == b"UPDATEJOB":
            self._by_id[request[1]].updates_open += 1
            if b"QUEUE" in request:
                self._moved_to.setdefault(request[1], set()).add(request[-1])
        elif name == b"QMOVE":
            self._moved_at = max(self._moved_at, self.world.loop.now)
            self._moved_to.setdefault(b"", set()).add(request[2])
        elif name == b"REDRIVE":
            self._redriven = True

    def unanswered(self, requests: list[list[bytes]]) -> None:
        """Note that a client waited for the answers to ``requests`` when the node died."""
        if any(request[0] == b"QMOVE" for request in requests):
            self._moved_at = self.world.loop.now + PATIENCE * MS

    def anyway(self, record: JobRecord) -> None:
        """Note that a client asks for ``record`` even if there may be a job with its key."""
        self._anyway.add((record.queue, record.key))

    def restarted(self, machine: "Machine") -> None:
        """``machine`` is running again."""
        if not machine.intact:
            self._forgot_at = self.world.loop.now
        # Its file says that a job was cancelled until all holders have confirmed that, unless the
        # end of the file is lost.
        for id, machines in self._cancelled.items():
            if not machine.intact or machine.jobs.get(id) is None:
                machines.discard(machine.index)

    def ended_by(self, id: bytes) -> bool:
        """Whether a client asked to end the job."""
        return not ENDS.isdisjoint(self.asked.get(id, ()))

    def knows_cancelled(self, machine: "Machine", ids: Iterable[bytes]) -> None:
        """Note that ``machine`` said or heard in this turn that these jobs were cancelled."""
        for id in ids:
            self._cancelled.setdefault(id, set()).add(machine.index)

    # ---- UNIQUE -------------------------------------------------------------------------------

    def key_answered(self, asked: JobRecord, record: JobRecord) -> None:
        """Check the reply to ``asked`` that ``record`` is the job that has the key."""
        if record.until_start and self.world.plan.gentle:
            if record.sent and record.sent[0][0] < asked.asked:
                self._complain("the job had started before its id was asked for", record.id)
            self._shared.setdefault(record.id, []).append(asked)
        key = (record.queue, record.key)
        others = self._by_key.setdefault(key, [])
        # The id of a job that ended elsewhere may be returned by a node that has not heard of that.
        if key not in self._anyway and self._has_key(record):
            for other in others:
                if other is not record and self._has_key(other):
                    self._complain("two jobs have one key", other.id, record.id)
        if record not in others:
            others.append(record)

    def _has_key(self, record: JobRecord) -> bool:
        """Whether only ``record``, which was answered, may have its key now."""
        world = self.world
        # This is exact as long as the membership is stable and all nodes have their files. A voter
        # that lost its memory has forgotten who has the key; together with an unreachable one, that
        # makes a majority.
        if world.plan.leaving >= 0 or self._forgot_at >= record.asked:
            return False
        age = max(machine.now() for machine in world.machines) - record.clock
        if record.kept:
            return age < record.kept * 1000  # whatever came of it; and no longer
        if record.until_start and self._has_started(record):
            return False
        # Where it ended, the key is free, though a node that was away may not know that.
        if self.ended_by(record.id) or age > record.ttl * 1000:
            return False
        # After its delivery, a restart forgets an at-most-once job, and nobody has it while it is
        # on its way to another node.
        if record.retry == 0 and (record.sent or record.id in self.given):
            return False
        return not self.became_letter(record.id) and self._is_alive(record.id)

    def with_key_of(self, record: JobRecord) -> list[JobRecord]:
        """The jobs that were answered and have, or had, the key of ``record``."""
        return self._by_key.get((record.queue, record.key), [])

    def _has_started(self, record: JobRecord) -> bool:
        """Whether a client had, or may have had, the job."""
        if record.sent or record.id in self.world.oracle.unsent:
            return True
        for machine in self.world.machines:
            job = machine.jobs.get(record.id)
            beyond = None if job is None else machine.node.store.trailers.of(job)
            if beyond is not None and beyond.key_state == trailer.STARTED:
                return True
        return False

    def _replaced(self, record: JobRecord, body: bytes) -> None:
        """The job ``record`` starts, with this ``body``: check that it is that of the last ADDJOB
        that was answered with its id, or of one that was not over then."""
        ran = self.world.oracle.records[token_of(body)]
        for asked in self._shared.get(record.id, ()):
            if asked.replaces and asked is not ran and 0 <= ran.replied < asked.asked:
                self._complain(f"it starts as {ran.token}, and was {asked.token}", record.id)

    def became_letter(self, id: bytes) -> bool:
        """Whether some node has, or had, the dead letter of the job."""
        letter = successor_id(id, trailer.DEAD)
        return letter in self._by_id or any(
            machine.jobs.get(letter) is not None for machine in self.world.machines
        )

    def _is_alive(self, id: bytes) -> bool:
        """Whether the job may be delivered some day, by a node that is or will be running."""
        for machine in self.world.machines:
            if machine.up and machine.live_copy(id):
                return True
            if machine.intact and machine.held_at_death.get(id) in (ACTIVE, QUEUED):
                return True
        return False

    def body_of(self, id: bytes) -> bytes:
        """The contents of the job, as far as a node knows them or did when it died; otherwise
        nothing."""
        for machine in self.world.machines:
            job = machine.jobs.get(id)
            if job is not None and job.body:
                return job.body
        return b""

    def added_to(self, ids: Sequence[bytes]) -> bytes:
        """The queue to which the job with one of ``ids`` was added, if it was moved and a node
        knows that or did when it died; otherwise empty."""
        for machine in self.world.machines:
            for id in ids:
                job = machine.jobs.get(id)
                beyond = None if job is None else machine.node.store.trailers.of(job)
                if beyond is not None and beyond.added_to:
                    return beyond.added_to
        return b""

    def may_be_gone(self, record: JobRecord, lost: bool) -> bool:
        """Whether the job ``record``, whose id was just the reply to a repeated ADDJOB, need not be
        anywhere. ``lost``: a crash took a copy."""
        if lost or record.sent or record.kept or self.ended_by(record.id):
            return True
        age = max(machine.now() for machine in self.world.machines) - record.clock
        down = any(record.id in machine.held_at_death for machine in self.world.machines)
        # The only copy of an at-most-once job may be on its way to its consumer.
        return down or record.retry == 0 or age > record.ttl * 1000 or self.became_letter(record.id)

    # ---- the line of a job --------------------------------------------------------------------

    def line_of(self, record: JobRecord) -> list[bytes]:
        """The ids that ``record`` has or may get: its own, that of its dead letter, that of the job
        that this becomes when it is sent back, and so on."""
        line = self._lines.get(record.id)
        if line is None:
            line = self._lines[record.id] = [record.id]
            while len(line) < LONGEST_LINE:
                line.append(successor_id(line[-1], trailer.DEAD))
                line.append(successor_id(line[-1], trailer.REDRIVEN))
        return line

    # ---- what nodes answer --------------------------------------------------------------------

    def replied(self, machine: "Machine", request: list[bytes], reply: object) -> None:
        """Check a reply of ``machine`` to a kind of request that C Disque does not know."""
        name = request[0]
        if name == b"CANCEL":
            if reply == len(request) - 1:
                self.knows_cancelled(machine, request[1:])
        elif name == b"UPDATEJOB":
            self._updated(request, reply)
        elif name == b"QMOVE":
            self._moved_at = max(self._moved_at, self.world.loop.now)
            self._check_all_copies()
        elif name == b"QSTAT":
            self._counted(machine, request[1], reply)
        elif name == b"WAITJOB":
            if isinstance(reply, list):
                for id, state, result in reply:
                    self._told(id, state, result)
            elif not str(reply).startswith("LEAVING"):
                self._complain(f"WAITJOB was answered {reply}")

    def in_order(self, entries: Sequence[Sequence[bytes]]) -> None:
        """Check the reply ``entries`` to a GETJOB. More urgent jobs may come between its slices, or
        while it waits for the disk."""
        last: dict[tuple[bytes, bytes], int] = {}
        for number, entry in enumerate(entries):
            queue, id, body = entry[:3]
            if number % self.world.plan.slice == 0 or self.world.plan.paging:
                last.clear()
            line = (queue, expected_group(body) if self.world.plan.groups else b"")
            priority = expected_priority(body)
            if priority > last.get(line, priority):
                self._complain("delivered behind less urgent jobs", id)
            last[line] = priority

    def delivered(self, machine: "Machine", record: JobRecord, entry: Sequence[object]) -> None:
        """``machine`` delivers ``entry``, which descends from ``record``, to a client."""
        id, body = entry[1], entry[2]
        assert isinstance(id, bytes)
        assert isinstance(body, bytes)
        # A node that is short of memory may have forgotten it, and so has every node where its time
        # to live is over: a copy may come from a node whose clock is behind, or may have been in
        # flight.
        forgot = self.world.plan.memories[machine.index] or self.may_be_expired(record)
        if machine.index in self._cancelled.get(id, ()) and not forgot:
            self._complain(f"node {machine.index} knew that the job was cancelled", id)
        if len(entry) > 3:
            details = dict(zip(entry[3::2], entry[4::2], strict=True))
            if details[b"headers"] != expected_headers(body):
                self._complain(f"delivered with the headers {details[b'headers']!r}", id)
            self._check_note(machine, id, body)
            if details.get(b"priority", 0) != expected_priority(body):
                self._complain(f"delivered with the priority {details.get(b'priority', 0)}", id)
        if record.replaces:
            if not record.sent:
                self._replaced(record, body)
        else:
            self._check_version(record, id, body)
        if id == record.id:
            self._check_queue(record, entry[0])
        if self.world.plan.groups == "fifo":
            self._one_of_a_group(machine, entry[0], id, expected_group(body))

    def _check_note(self, machine: "Machine", id: bytes, body: bytes) -> None:
        store = machine.node.store
        job = machine.jobs.get(id)
        trailer = None if job is None else store.trailers.of(job)
        note = b"" if trailer is None else trailer.note
        if job is not None and note != expected_note(body):
            self._complain(f"delivered with the note {note!r}", id)

    def _one_of_a_group(self, machine: "Machine", queue: object, id: bytes, group: bytes) -> None:
        """``machine`` delivers a job of ``group``: check that the last one that it delivered has
        ended, or come back. At-most-once jobs wait, but nobody waits for them, and the replies of a
        turn are in no order."""
        if id[39] in b"02468ace":
            return
        jobs = machine.jobs
        key = (machine.index, machine.incarnation, queue, group)
        last = jobs.get(self._last_of_group.get(key, b""))
        changes = None if last is None else machine.node.store.trailers.of(last)
        if (
            last is not None
            and last.id != id
            and not (changes and changes.updated)  # another node may have moved it, and back
            and is_delivered(last)
        ):
            self._complain("delivered while another job of its group is out", id, last.id)
        self._last_of_group[key] = id

    # ---- WAITJOB ------------------------------------------------------------------------------

    def _told(self, id: bytes, state: bytes, result: bytes | None) -> None:
        """A client is told how the job ended: check that."""
        record = self._by_id[id]
        asked = self.asked.get(id, set())
        if result is not None and (state != b"acked" or result not in self._results.get(id, ())):
            self._complain(f"WAITJOB knows of a result that nobody gave: {state!r} {result!r}", id)
        if state == b"acked":
            # A letter that was sent back is done, too.
            sent_back = self._redriven and id != record.id
            true = b"ACKJOB" in asked or b"FASTACK" in asked or sent_back
        elif state == b"cancelled":
            true = b"CANCEL" in asked
        elif state == b"dead":
            often = len(record.sent if id == record.id else record.later.get(id, ()))
            # A client may have left in the turn in which its GETJOB was to be answered.
            spent = often >= self.world.plan.attempts or id in self.world.oracle.unsent
            true = spent or b"NACK DEAD" in asked or self.may_be_expired(record)
        elif state == b"expired":
            true = self.may_be_expired(record)
        else:
            # Gone: nothing is known of it. That happens if it ended too long ago, or all nodes that
            # knew of it died, and nobody can prove the contrary.
            true = state in (b"gone", b"pending")
        if not true:
            self._complain(f"WAITJOB says {state.decode()}, which is not true", id)

    def may_be_expired(self, record: JobRecord) -> bool:
        """Whether the time to live was over by one clock, measured on another one: they jump."""
        ahead = max(machine.now() for machine in self.world.machines)
        return ahead - record.clock >= (record.ttl - 1) * 1000

    def waited(self, asked: int, timeout: int, machine: "Machine", reply: list[object]) -> None:
        """Check ``reply``, for which a client waited at ``machine`` since ``asked`` (µs), for
        ``timeout`` ms (0: as long as it takes)."""
        pending = any(isinstance(entry, list) and entry[1] == b"pending" for entry in reply)
        if timeout == 0:
            if pending:
                self._complain("WAITJOB did not wait")
            return
        # Clocks are slow by a twentieth at most. A suspended node began the wait when it continued.
        begun = max(asked, machine.stood_still_until)
        latest = begun + timeout * MS * 19 // 18 + LATE
        if self.world.loop.now > latest:
            late = (self.world.loop.now - asked) // MS
            self._complain(f"WAITJOB {timeout} was answered after {late} ms")

    # ---- UPDATEJOB ----------------------------------------------------------------------------

    def _updated(self, request: list[bytes], reply: object) -> None:
        """Check the reply to a change of a job."""
        record = self._by_id[request[1]]
        record.updates_open -= 1
        self._check_copies(record.id)
        version = version_of(request[3])
        # Another change in progress may be newer, or may be undone.
        if reply != b"OK" or record.updates_open or version != record.versions:
            return
        now = self.world.loop.now
        # So may one by QMOVE, which has the contents that its node knew.
        if 0 <= self._moved_at > now - LATE:
            return
        copies = [live_job(machine, record.id) for machine in self.world.machines]
        jobs = [job for job in copies if job is not None]
        if all(version_of(job.body or b"") == version for job in jobs):
            # An old copy may be on its way to a node that is known to hold the job but has no copy.
            named = {id for job in jobs for id in job.delivered or ()}
            if len(named) <= len(jobs):
                record.settled = version
                record.settled_at = now
                # A QMOVE goes on until it is answered, and may get to this job. Then it is over:
                # a node that did not answer in time is skipped (docs/commands.md), and one that
                # was not reached keeps its queue (docs/guarantees.md).
                record.settled_queue = jobs[0].queue if jobs and not self._moving() else b""
        elif self.world.plan.gentle and self.given.get(record.id, 0) < now - SECOND:
            self._complain("a holder that could be reached does not have the change", record.id)

    def _moving(self) -> bool:
        """Whether a client waits for the answer to a QMOVE."""
        lines = [actor.waits_for for actor in self.world.clients]
        return any(
            request[0] == b"QMOVE" for line in lines if line is not None for request in line.asked
        )

    def _check_version(self, record: JobRecord, id: bytes, body: bytes) -> None:
        version = version_of(body)
        if version > record.versions:
            self._complain(f"delivered with a body that no client sent: {body!r}", id)
        # A node whose file has lost its end may have lost the change.
        elif id == record.id and version < record.settled and record.settled_at > self._forgot_at:
            self._complain(f"delivered as {body!r} after the change {record.settled}", id)

    def _check_copies(self, id: bytes) -> None:
        """Check that copies of the job with the same change are equal."""
        copies = [(machine, live_job(machine, id)) for machine in self.world.machines]
        self._compare([(machine, job) for machine, job in copies if job is not None])

    def _check_all_copies(self) -> None:
        """Check the same of all jobs whose ids are known."""
        ids = {record.id for record in self._by_id.values()}
        self._compare(
            [
                (machine, job)
                for machine in self.world.machines
                for job in machine.jobs.values()
                if is_live(machine, job) and job.id in ids
            ]
        )

    def _compare(self, copies: "list[tuple[Machine, Job]]") -> None:
        """Check that those of ``copies`` are equal that have the same change of the same job."""
        seen: dict[tuple[bytes, int], tuple[bytes, bytes | None]] = {}
        for machine, job in copies:
            if version := machine.node.updates.version(job):
                what = (job.queue, job.body)
                first = seen.setdefault((job.id, version), what)
                if first != what:
                    self._complain(f"one change made it {what} and {first}", job.id)

    def _check_queue(self, record: JobRecord, queue: object) -> None:
        """Check that ``record`` is delivered from ``queue``."""
        moved_to = self._moved_to.get(record.id, set()) | self._moved_to.get(b"", set())
        if queue != record.queue and queue not in moved_to:
            self._complain(f"delivered from {queue!r}, to which nobody moved it", record.id)
        if (
            record.settled_queue
            and record.settled == record.versions
            and record.settled_at > max(self._forgot_at, self._moved_at)
            and queue != record.settled_queue
        ):
            self._complain(f"delivered from {queue!r} after it was moved", record.id)

    def _counted(self, machine: "Machine", queue: bytes, reply: object) -> None:
        """QSTAT FULL was answered: check that these are the jobs of the queue."""
        if not isinstance(reply, list):
            return
        fields = dict(zip(reply[::2], reply[1::2], strict=True))
        node = machine.node
        jobs = [
            job
            for job in machine.jobs.values()
            if job.queue == queue and is_delivered(job) and job.retry > 0
        ]
        # A node counts before it delivers in the same turn.
        just_now = sum(job.taking is not None and job.taking.last_seen >= node.now for job in jobs)
        in_hand = len(jobs)
        if not in_hand - just_now <= fields[b"jobs-in-hand"] <= in_hand:
            self._complain(f"node {machine.index} has {in_hand} in hand and says {fields}")


def version_of(body: bytes) -> int:
    """Which change of the job made the body; 0: it is unchanged."""
    _, _, version = body.partition(b"/")
    return int(version or 0)


def live_job(machine: "Machine", id: bytes) -> Job | None:
    """The copy that ``machine`` would deliver, or will once it is running again."""
    job = machine.jobs.get(id)
    return job if job is not None and is_live(machine, job) else None


def is_live(machine: "Machine", job: Job) -> bool:
    """Whether ``machine`` would deliver ``job``, its own, or will once it is running again."""
    state = job.state if machine.up else machine.held_at_death.get(job.id)
    return state in (ACTIVE, QUEUED)
