"""What a healthy cluster promises about when jobs come, and how often.

Used in timely mode: the network is well, and nodes only stop, are killed and start again. Every
fraction of a second, this looks at all nodes at once, as no client can:

- every live job that is due is in a queue, or was delivered, within ``SOON``;
- a client that waits for jobs of a queue gets one in time (see ``timely_waits``);
- a job that was delivered is not delivered again before its retry time is over, or somebody said
  that it should be, and never more often than the policy of its queue says;
- a job has the copies that were promised, and so has what it becomes, even while nodes are down, if
  there are enough others;
- what a node had queued whose process is gone is soon queued elsewhere (see ``timely_losses``);
- a job that became another one while a node with a copy was down does not come again from there.

Each exemption says why it is one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disque_trio.node.core.jobs.job import ACKED, QUEUED, WAIT_REPL, Job
from disque_trio.node.core.queues.pauses import MUCH_LATER
from disque_trio.node.core.queues.store import TIME_ERROR
from disque_trio.protocol.bus import QUEUED as QUEUED_PACKET
from disque_trio.protocol.bus import REQUEUED, job_ids, packet_type, read_fields
from disque_trio.protocol.requeued import unpack_requeued
from disque_trio.protocol.trailer import BY_REDRIVE
from disque_trio.respserver.client import Client
from tests.simulator.events import MS, SECOND
from tests.simulator.plan import DEAD
from tests.simulator.records import Complain, JobRecord
from tests.simulator.timely_losses import Losses
from tests.simulator.timely_waits import Waits, runs

if TYPE_CHECKING:
    from tests.simulator.machine import Machine
    from tests.simulator.world import World

    Copies = list[tuple[Machine, Job]]  # of one job, and where

LOOK = 10 * MS  # how often to look at queues and the clients that wait for them
LOOKS = 20  # after how many such looks to look at all jobs, too
SOON = 1 * SECOND
# A node asks the others half a second before it queues a job; it is seen in the queue when all jobs
# are looked at.
ASKED = SECOND // 2 + LOOKS * LOOK
REACHED = 2 * SECOND  # after which a node that has started has asked the others
FORGOTTEN = 2 * MS  # a node that is killed may have forgotten what happened in this time before
EARLY = 5 * MS  # by how much a retry time may be shorter: clocks count ms
# In this time a node hears that another one has queued a job. If both queue it at the same moment,
# as rarely happens (docs/guarantees.md), and clients wait for it on both, both get it.
CROSSED = 5 * MS
# Holders of a job that expires notice that at different times, and each makes its copy of the
# letter then; the one that queues it may be the last.
EXPIRY = 2 * SECOND
# A holder that wants to queue a job which a client of another node has is told by that node to
# wait, for this much longer than it waits itself (``Pauses.answer``). When that node wants to queue
# the job in turn, it is told the same.
ANSWERED = MUCH_LATER * MS
NEVER = 1 << 60


@dataclass(slots=True)
class Watch:
    """What is known about one job.

    Attributes:
        due: when it has to be queued or delivered at the latest, in µs.
        free: when it may be delivered again at the earliest, in µs; 0: at any time.
        taken, by: when it was last delivered, in µs, and by which machine; -1: never.
        count: how often it was delivered. first: when it first was, in µs.
        extra: deliveries that do not count: nodes may have forgotten them, as they were killed just
            afterwards, or clients asked for them.
        life: incarnation of that machine.
        copies: how many there have to be.
        begun: from when on it has to be where it belongs, with its copies, in µs.
        dark: since when it is due and in no queue, in µs; 0: it is not.
        short: since when there are fewer copies, in µs; 0: there are not.
        alone: which nodes are up has not changed between this time, in µs, and the moment at which
            it was made of another job; -1: it was not, or that is not known.
        strange: not all holders knew each other, so they could not tell each other what happened to
            it. If A gives a job to B, and B to C, then A and C know of B only.
        expired: it may be the letter of a job that expired. If the holders of the job did not know
            each other, several queue it; if the one that is to queue it is down just then, none.
    """

    due: int
    begun: int
    copies: int = 0
    free: int = 0
    taken: int = -1
    by: int = -1
    life: int = 0
    count: int = 0
    extra: int = 0
    dark: int = 0
    short: int = 0
    strange: bool = False
    expired: bool = False
    first: int = -1
    alone: int = -1


class Timely:
    """See the module.

    Args:
        complain: notes a broken promise: a text, and the ids that it is about.
    """

    def __init__(self, world: "World", complain: Complain) -> None:
        self.world = world
        self._complain = complain
        self._jobs: dict[bytes, Watch] = {}
        self._well_since = 0  # since when all nodes are up and linked, in µs
        self._waits = Waits(world, complain)
        self._losses = Losses(world)
        self._looks = 0
        self._troubles: list[tuple[int, int]] = []  # when the cluster was not well, from and until
        self._announced: dict[bytes, tuple[int, int]] = {}  # id: which machine queued it, when
        self._crossed: dict[bytes, int] = {}  # id: when two machines queued it at once
        self._told: set[tuple[str, bytes]] = set()
        self._strange: set[bytes] = set()  # first ids of jobs whose holders were strangers
        self._up: list[object] = []  # which nodes are up and linked with which
        self._same_since = 0  # since when they are, in µs
        self._queued: dict[bytes, int] = {}  # id: since when it is in some queue, in µs
        self._restored: set[tuple[int, int, bytes]] = set()  # queued so: machine, life, id
        self._put_back: dict[bytes, int] = {}  # id: when a client last handed it back, in µs
        self._left: dict[bytes, int] = {}  # id: since when it is where nobody knew of its end

    def start(self) -> None:
        """Begin to look."""
        self._waits.start()
        self._well_since = self.world.loop.now
        self.world.loop.after(LOOK, self._look)

    # ---- what happens -----------------------------------------------------------------------

    def delivered(self, machine: "Machine", id: bytes) -> None:
        """``machine`` delivers the job ``id`` to a client."""
        now = self.world.loop.now
        job = machine.jobs.get(id)
        if job is not None:
            self._waits.delivered(job.queue)
        watch = self._jobs.get(id)
        if watch is None:
            watch = self._jobs[id] = Watch(now, now) if job is None else self._begin(machine, job)
        again = watch.taken >= 0 and now < watch.free - EARLY
        copies = self._copies_of(id)
        self._look_for_strangers(watch, copies)
        if job is not None and job.retry and self._follower(machine, job) is not None:
            self._complain(f"node {machine.index} delivers what has become another job", id)
        if again and self._losses.was_told(watch.by, watch.taken) and not watch.strange:
            self._complain(
                f"node {machine.index} delivers what a client of node {watch.by}, which is gone, "
                f"has had for {(now - watch.taken) // MS} ms",
                id,
            )
        if again and self._may_not_know(id, watch, machine):
            watch.extra += 1
        elif again:
            self._complain(
                f"node {machine.index} delivers again what node {watch.by} delivered "
                f"{(now - watch.taken) // MS} ms ago, for {(watch.free - now) // MS} ms more",
                id,
            )
        elif self._crossed.get(id, -1) >= watch.taken - CROSSED and watch.taken >= 0:
            # The second copy was in a queue until now. Its node need not know of the delivery of
            # the first, and delivers it for the same attempt.
            watch.extra += 1
        if self._forgot(watch):
            watch.extra += 1
        watch.count += 1
        if watch.first < 0:
            watch.first = now
        self._count(machine, id, watch)
        watch.taken, watch.by, watch.life = now, machine.index, machine.incarnation
        watch.dark = 0
        retry = 0 if job is None else int(job.retry) * SECOND
        # A job that was queued for some time may have half of its retry time left, by the time of
        # this node; another holder's may be earlier by as much as these times are spread.
        watch.free = now + retry // 2 - TIME_ERROR * MS if retry else NEVER
        watch.due = now + retry + self._pause() + ANSWERED if retry else NEVER

    def _count(self, machine: "Machine", id: bytes, watch: Watch) -> None:
        """``machine`` delivers ``id``: check that it was not delivered often enough already."""
        most = self.world.plan.attempts
        entry = self.world.oracle.by_id.get(id)
        if entry is None or watch.count <= most + watch.extra or watch.strange:
            return
        # A node that is down cannot say how often it has delivered the job, nor hear of it. That a
        # node knows after a start what it knew is checked elsewhere (see ``restarts``).
        if self._well_since > watch.first:
            return
        job = machine.jobs.get(id)
        if job is not None and job.queue != DEAD:  # letters do not die
            self._complain(
                f"node {machine.index} delivers it for the {watch.count}. time of {most}", id
            )

    def _may_not_know(self, id: bytes, watch: Watch, machine: "Machine") -> bool:
        """Whether the job may come from a node that need not know of its last delivery: it hears of
        that only now; or a holder did not know all others; or the node that delivered it was killed
        in the same ms, or was down since and could not say so when it was asked; or some node has
        just started, and could not ask; or the node was told to queue the job without asking."""
        now = self.world.loop.now
        restored = (machine.index, machine.incarnation, id)
        if restored in self._restored:
            self._restored.remove(restored)
            return True
        if self._forgot(watch) or now - watch.taken <= CROSSED:
            return True
        crossed = self._crossed.get(id, -1) >= watch.taken - SOON
        if crossed or watch.expired or watch.strange:
            return True
        if self._troubles and self._was_redriven(machine, id):
            return True
        other = self.world.machines[watch.by]
        if other.killed_at and self._was_made_since(machine, id, watch.taken):
            return True
        if other.incarnation != watch.life:
            return other is not machine
        return now - self._well_since < REACHED

    def _was_redriven(self, machine: "Machine", id: bytes) -> bool:
        """Whether a dead letter became the job ``id`` of ``machine``. If the node that sent it back
        was killed just then, another holder may not know, and send it back again."""
        job = machine.jobs.get(id)
        trailer = None if job is None else machine.node.store.trailers.of(job)
        letter = None if trailer is None else trailer.letter
        return letter is not None and letter.why == BY_REDRIVE

    def _was_made_since(self, machine: "Machine", id: bytes, taken: int) -> bool:
        """Whether ``machine`` has made the job ``id`` of the one before it since ``taken`` (µs). It
        was down when others did so, and that the job before has ended is forgotten by a killed
        node, once the letter has ended, too."""
        job = machine.jobs.get(id)
        trailer = None if job is None else machine.node.store.trailers.of(job)
        if job is None or trailer is None or trailer.letter is None:
            return False
        return machine.clock.when(job.ctime // 1_000_000) > taken

    def _forgot(self, watch: Watch) -> bool:
        """Whether the node that last delivered the job was killed just then."""
        if watch.by < 0:
            return False
        machine = self.world.machines[watch.by]
        return any(0 <= at - watch.taken <= FORGOTTEN for at in machine.killed_at)

    def _forgot_return(self, id: bytes) -> bool:
        """Whether a node was killed just after a client handed the job back: then the job comes
        when its retry time is over."""
        at = self._put_back.get(id, -1)
        kills = [time for one in self.world.machines for time in one.killed_at]
        return at >= 0 and any(0 <= time - at <= FORGOTTEN for time in kills)

    def restored(self, machine: "Machine") -> None:
        """``machine`` has started, and was told to queue its jobs without asking their other
        holders, who may have queued them, too."""
        for job in machine.jobs.values():
            if job.state == QUEUED and job.delivered is not None:
                self._jobs.setdefault(job.id, self._begin(machine, job)).extra += 1
                self._restored.add((machine.index, machine.incarnation, job.id))

    def answered(self, machine: "Machine", client: Client) -> None:
        """``machine`` sends something to ``client``."""
        self._waits.answered(machine, client)

    def unheard(self, ids: Iterable[bytes], dying: bool) -> None:
        """A node delivers these jobs to a client that has left before the reply; or the node is
        ``dying`` before the reply, and may forget it."""
        now = self.world.loop.now
        for id in ids:
            watch = self._jobs.setdefault(id, Watch(now, now))
            if watch.due < NEVER and not (watch.taken >= 0 and now < watch.free):
                watch.count += 1
                watch.extra += dying
                if watch.first < 0:
                    watch.first = now
                watch.dark = 0
                retry = self._retry(id)
                watch.due = now + retry + self._pause() + ANSWERED if retry else NEVER

    def announces(self, machine: "Machine", packet: bytes) -> None:
        """``machine`` tells another one, with ``packet``, that it has queued jobs."""
        now = self.world.loop.now
        type = packet_type(packet)
        ids: list[bytes] = []
        if type == QUEUED_PACKET:
            ids = job_ids(packet)
        elif type == REQUEUED:
            message = unpack_requeued(read_fields(packet))
            ids = [message.id] if message.flags and not message.delay else []
        for id in ids:
            index, when = self._announced.get(id, (-1, -CROSSED))
            if index not in (-1, machine.index) and now - when <= CROSSED:
                self._crossed[id] = now
            self._announced[id] = (machine.index, now)

    def asks(self, request: list[bytes]) -> None:
        """A client sends ``request``, which may make jobs come earlier than they would."""
        if request[0] in (b"NACK", b"ENQUEUE"):
            for id in request[1:]:
                self._put_back[id] = self.world.loop.now
                watch = self._jobs.get(id)
                if watch is not None:
                    watch.free = 0
                    watch.extra += request[0] == b"ENQUEUE"  # whatever a policy says

    def replied(self, request: list[bytes], reply: object) -> None:
        """A node answers ``request``."""
        if request[0] == b"WORKING":
            self._works(request[1])
        elif request[0] in (b"NACK", b"ENQUEUE"):
            ids = [word for word in request[1:] if word in self._jobs]
            pause = self._pause()
            if b"DELAY" in request:
                pause = int(float(request[request.index(b"DELAY") + 1]) * SECOND)
            # Otherwise the node does not have all of them, and they come after their retry times.
            if reply == len(ids):
                self.put_back(ids, pause)

    def _works(self, id: bytes) -> None:
        """A node says that it has postponed the job by its retry time."""
        watch = self._jobs.get(id)
        if watch is not None and watch.due < NEVER:
            due = self.world.loop.now + self._retry(id) + self._pause() + ANSWERED
            watch.due = max(watch.due, due)

    def put_back(self, ids: Iterable[bytes], pause: int = 0) -> None:
        """These jobs may be queued again now, and have to be after ``pause`` µs: clients said so,
        or have left."""
        for id in ids:
            self._put_back[id] = self.world.loop.now
            watch = self._jobs.get(id)
            # In the same turn, another client may have got it already.
            if watch is not None and watch.due < NEVER and watch.taken < self.world.loop.now:
                watch.free = watch.dark = 0
                watch.due = self.world.loop.now + pause

    def _retry(self, id: bytes) -> int:
        jobs = [machine.jobs.get(id) for machine in self.world.machines]
        return max([int(job.retry) * SECOND for job in jobs if job is not None], default=0)

    def _pause(self) -> int:
        """The longest pause of the policy of all queues, in µs."""
        return self.world.plan.backoff[1] * MS

    # ---- looking ----------------------------------------------------------------------------

    def _look(self) -> None:
        world = self.world
        if world.drained:
            return
        world.loop.after(LOOK, self._look)
        now = world.loop.now
        for machine, id in self._losses.look(self._well_since):
            self._check_loss(machine, id)
        up = [self._links(machine) for machine in world.machines]
        if up != self._up:
            self._up = up
            self._same_since = now
        if not self._waits.is_well():
            if self._troubles and self._troubles[-1][1] == self._well_since:
                self._troubles[-1] = (self._troubles[-1][0], now)
            else:
                self._troubles.append((now, now))
            self._well_since = now
        self._waits.check()
        self._looks += 1
        if self._looks % LOOKS == 0:
            self._check_jobs()

    def _check_loss(self, lost: "Machine", id: bytes) -> None:
        """Check that the job ``id``, which the machine ``lost`` had queued, is queued elsewhere, or
        has been delivered or put back since."""
        copies = self._copies_of(id)
        watch = self._jobs.get(id)
        if not copies or watch is None or watch.strange or watch.expired:
            return
        since = max(watch.taken, self._put_back.get(id, -1))
        over = any(job.state in (QUEUED, ACKED, WAIT_REPL) for _, job in copies)
        if since < lost.died_at and not over and not self._may_be_over(id, copies):
            self._complain(
                f"was in the queue of node {lost.index}, which is gone, and nobody queues it", id
            )

    def _links(self, machine: "Machine") -> object:
        """Which process of ``machine`` runs, and the nodes to which it has connections."""
        if not runs(machine):
            return None
        peers = machine.node.peers
        return machine.incarnation, [id for id in peers.everyone() if peers.linked(id)]

    def _check_jobs(self) -> None:
        """Check that all live jobs are where somebody gets them, with as many copies as they
        should have."""
        now = self.world.loop.now
        found: dict[bytes, Copies] = {}
        for machine in self.world.machines:
            if machine.up:
                for job in machine.jobs.values():
                    found.setdefault(job.id, []).append((machine, job))
        well = now - self._well_since
        queued = [id for id in found if any(job.state == QUEUED for _, job in found[id])]
        self._queued = {id: self._queued.get(id, now) for id in queued}
        left = [id for id in found if self._outlived(id, found)]
        self._left = {id: self._left.get(id, now) for id in left}
        for id, copies in found.items():
            if self._record_of(*copies[0]) is None:
                continue  # nobody was told that it exists
            states = [job.state for _, job in copies]
            over = ACKED in states or WAIT_REPL in states or self._may_be_over(id, copies)
            if over or id in self._left:
                self._jobs.pop(id, None)
                if not over:
                    self._check_left(id, copies, well)
                continue
            watch = self._jobs.get(id)
            if watch is None:
                watch = self._jobs[id] = self._begin(*copies[0])
            self._look_for_strangers(watch, copies)
            self._check_dark(id, watch, copies, states, well)
            before = self._neighbour(id, copies, -1)
            kept = found.get(before, []) if self._outlived(before, found) else []
            self._check_copies(id, watch, copies + kept, well)
            self._check_made(id, watch, copies)

    def _neighbour(self, id: bytes, copies: "Copies", step: int) -> bytes:
        """The id of what the job ``id``, of which there are ``copies``, became (``step`` 1) or was
        before (-1); empty: nothing is known of that."""
        record = self._record_of(*copies[0])
        line = [] if record is None else self.world.oracle.promises.line_of(record)
        place = line.index(id) + step if id in line else -1
        return line[place] if 0 <= place < len(line) else b""

    def _outlived(self, id: bytes, found: "dict[bytes, Copies]") -> bool:
        """Whether the job ``id`` is left on a node that was down when others made something else of
        it, and nobody can tell that node: which jobs have ended is forgotten with a killed process
        (docs/guarantees.md), and those that knew were all killed, or did not know that it is there,
        too, since they have started."""
        copies = found.get(id)
        after = self._neighbour(id, copies, 1) if copies else b""
        if not copies or after not in found:
            return False
        record = self._record_of(*copies[0])
        if record is not None and record.id in self._strange:
            return True
        watch = self._jobs.get(after)
        since = self.world.loop.now if watch is None else watch.begun
        since -= LOOKS * LOOK  # it may have been there before it was looked at
        return all(any(at >= since for at in one.killed_at) for one, _ in found[after])

    def _begin(self, machine: "Machine", job: Job) -> Watch:
        """Begin to watch ``job``, which was not seen before, and which ``machine`` has."""
        begun = self.world.loop.now
        record = self._record_of(machine, job)
        expired = record is not None and record.id != job.id and record.ttl < 3600
        if expired:
            begun += EXPIRY
        delayed = machine.clock.when(job.ctime // 1_000_000 + int(job.delay) * 1000)
        strange = record is not None and record.id in self._strange
        watch = Watch(max(begun, delayed), begun, expired=expired, strange=strange)
        made = machine.clock.when(job.ctime // 1_000_000)
        if record is not None and record.id != job.id and made > self._same_since + LOOK:
            watch.alone = self._same_since
        return watch

    def _follower(self, machine: "Machine", job: Job) -> "Machine | None":
        """A node that could have told ``machine`` in time that ``job``, which it delivers, has
        ended: it has what the job became, and ``machine`` asks it before it queues the job, unless
        a client hands it back or another node gives it."""
        now = self.world.loop.now
        since = self._queued.get(job.id, now)
        given = self.world.oracle.promises.given.get(job.id, -REACHED)
        moved = max(given, self._put_back.get(job.id, -REACHED))
        record = self._record_of(machine, job)
        if record is None or since < max(self._well_since + ASKED, moved + REACHED):
            return None
        line = self.world.oracle.promises.line_of(record)
        later = line[line.index(job.id) + 1 :] if job.id in line else []
        for one in self.world.machines:
            if one is machine or one.id not in (job.delivered or ()):
                continue
            for id in later:
                watch = self._jobs.get(id)
                if watch is not None and watch.begun < since - REACHED and one.live_copy(id):
                    return one
        return None

    def _check_left(self, id: bytes, copies: "Copies", well: int) -> None:
        """Check that the job ``id``, which has become another one, does not stay where
        nobody knew of that: its node asks the others before it queues it."""
        retry = max(int(job.retry) for _, job in copies) * SECOND
        late = min(self.world.loop.now - self._left[id], well) - retry - self._pause() - ANSWERED
        knows = self._neighbour(id, copies, 1)
        asked = {holder for _, job in copies for holder in job.delivered or ()}
        told = any(one.id in asked and one.live_copy(knows) for one in self.world.machines)
        if told and late > REACHED + SOON and ("left", id) not in self._told:
            self._told.add(("left", id))
            self._complain(
                f"is left on {[one.index for one, _ in copies]} since {late // MS} ms too long", id
            )

    def _check_made(self, id: bytes, watch: Watch, copies: "Copies") -> None:
        """Check that what was made of another job has its copies on the nodes that are up, if which
        these are has not changed since. (If a job expires, each holder makes its letter, and who
        queues it need not know that others are down.)"""
        now = self.world.loop.now
        if watch.alone != self._same_since or watch.expired or watch.strange:
            return
        up = [one for one in self.world.machines if runs(one)]
        others = {one.id for one in up}
        if not all(others - {one.id} <= set(filter(one.node.peers.linked, others)) for one in up):
            return
        wanted = min(watch.copies, len(up))
        if now - watch.begun > SOON and len(copies) < wanted and ("made", id) not in self._told:
            self._told.add(("made", id))
            self._complain(
                f"was made on {[one.index for one, _ in copies]} while nodes were down, with fewer "
                f"copies than {wanted}",
                id,
            )

    def _look_for_strangers(self, watch: Watch, copies: "Copies") -> None:
        """Note whether some holder of a job, of which there are ``copies``, does not know all
        others."""
        if watch.strange or not _are_strangers(copies):
            return
        watch.strange = True
        record = self._record_of(*copies[0])
        if record is not None:
            self._strange.add(record.id)

    def _may_be_over(self, id: bytes, copies: "Copies") -> bool:
        """Whether the job has ended or may have: its time to live is over, or a client asked to end
        it or a job that it descends from, which nodes that were down may not know."""
        record = self._record_of(*copies[0])
        assert record is not None
        oracle = self.world.oracle
        line = oracle.promises.line_of(record)
        before = line[: line.index(id) + 1] if id in line else [id]
        if any(oracle.ended(one) for one in before):
            return True
        # The end of its time is in whole seconds, and may be one earlier on the node that has
        # dropped it by now.
        if id == record.id and oracle.promises.may_be_expired(record):
            return True
        return any(job.etime * 1000 <= machine.now() for machine, job in copies)

    def _check_dark(
        self,
        id: bytes,
        watch: Watch,
        copies: "Copies",
        states: list[int],
        well: int,
    ) -> None:
        """Check that the job is in a queue, unless a client has it, or it pauses."""
        now = self.world.loop.now
        if QUEUED in states:
            watch.dark = 0
            if watch.taken < 0:
                watch.due = min(watch.due, now)
            return
        away = self._went_astray(id) or (self._troubles and watch.expired)
        if now < watch.due or watch.strange or away:
            watch.dark = 0
            return
        if self._forgot_return(id) and now < watch.taken + self._retry(id) + self._pause():
            watch.dark = 0
            return
        watch.dark = watch.dark or now
        # A holder that was asked to queue a job which another one had in its queue when it was
        # killed takes it for delivered: it pauses first, as the policy says.
        late = min(now - watch.dark, well - REACHED - self._pause())
        if late > SOON and ("dark", id) not in self._told:
            self._told.add(("dark", id))
            where = [machine.index for machine, _ in copies]
            back = max(job.qtime for _, job in copies) - copies[0][0].now()
            self._complain(
                f"on the nodes {where}, in no queue and in no hand since {late // MS} ms; "
                f"queued again in {back} ms; delivered {watch.count} times",
                id,
            )

    def _went_astray(self, id: bytes) -> bool:
        """Whether the job was last given to another node while the cluster was not well: if that
        one was gone, the others only queue it after its retry time."""
        given = self.world.oracle.promises.given.get(id, -1)
        return any(begin - SOON <= given <= end + LOOK for begin, end in self._troubles)

    def _check_copies(self, id: bytes, watch: Watch, copies: "Copies", well: int) -> None:
        """Check that the job has as many copies as were promised when it, or what it was before,
        was added."""
        now = self.world.loop.now
        if not watch.copies:
            record = self._record_of(*copies[0])
            assert record is not None
            once = record.is_async or not record.retry or record.confirmed < 0
            watch.copies = 1 if once else record.repl
        if len(copies) >= watch.copies or now < watch.begun:
            watch.short = 0
            return
        watch.short = watch.short or now
        late = min(now - watch.short, well - REACHED)
        if late > SOON and ("copies", id) not in self._told:
            self._told.add(("copies", id))
            where = [machine.index for machine, _ in copies]
            self._complain(
                f"has copies on the nodes {where} since {late // MS} ms, not {watch.copies}", id
            )

    def _copies_of(self, id: bytes) -> "Copies":
        """All copies of the job ``id`` on nodes that are up."""
        found = [(one, one.jobs.get(id)) for one in self.world.machines if one.up]
        return [(one, job) for one, job in found if job is not None]

    def _record_of(self, machine: "Machine", job: Job) -> JobRecord | None:
        """The record of ``job``, a copy on ``machine``, or of the job that it descends from; None:
        nobody knows its id yet."""
        by_id = self.world.oracle.by_id
        trailer = machine.node.store.trailers.of(job)
        if trailer is not None and trailer.letter is not None:
            return by_id.get(trailer.letter.first)
        return by_id.get(job.id)


def _are_strangers(copies: "Copies") -> bool:
    """Whether some holder of a job does not know all others."""
    ids = {machine.id for machine, _ in copies}
    return any(not ids <= {machine.id, *(job.delivered or ())} for machine, job in copies)
