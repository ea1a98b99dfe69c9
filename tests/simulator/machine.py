"""One machine: a node, its membership, its disk, its clock and its clients, taking turns.

A turn is what the server does: everything that arrived is passed to the node, then the journal is
written, the replies that waited for copies are settled, packets leave, replies leave. A crash can
happen between any two of these.
"""

import re
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from disque_trio.cluster.membership import Membership
from disque_trio.node.commands.table import build_table
from disque_trio.node.core.jobs.job import ACTIVE, QUEUED
from disque_trio.node.core.node import Node
from disque_trio.node.core.pause_words import format_file, parse_file
from disque_trio.node.core.shared.bindings import Binding
from disque_trio.node.core.shared.policies import Policy
from disque_trio.protocol.bus import (
    DELJOB,
    ENDJOB,
    GROUPS,
    LOTS,
    REPLACING,
    SETTLING,
    PacketWriter,
    job_ids,
    packet_type,
    read_fields,
)
from disque_trio.protocol.endjob import unpack_endjob
from disque_trio.protocol.trailer import CANCELLED
from disque_trio.respserver.host import Host
from disque_trio.respserver.slices import do_slice
from tests.simulator.clocks import NodeClock
from tests.simulator.disk import OFF, Disk
from tests.simulator.eventlog import MachineLog
from tests.simulator.events import MS
from tests.simulator.fabric import End, MachineNetwork
from tests.simulator.index import IndexFile
from tests.simulator.mesh import StaticMesh
from tests.simulator.pages import AllJobs, PageFiles
from tests.simulator.plan import BINDINGS, DEAD, TIMELY
from tests.simulator.restarts import Memory, compare, remember
from tests.simulator.session import Replied, Session
from tests.simulator.trace import packet_text
from tests.simulator.turns import watch

if TYPE_CHECKING:
    from tests.simulator.world import World

PORT = 7711
ID = re.compile(rb"D-[0-9a-f]{8}-[0-9A-Za-z+/]{24}-[0-9a-f]{4}")
CRON = 100 * MS  # by the node's clock; in µs
STATIC_CRON = 250 * MS
LOOK = 2 * MS  # between looks of a process that stops

# The points in a turn at which the process can die.
NEVER = -1
BEFORE_TURN = 0
BEFORE_PERSIST = 1
BEFORE_PACKETS = 2
BEFORE_REPLIES = 3


class Machine:
    """See the module.

    Attributes:
        up: the process is running. incarnation: how often it was started.
        paused_until: virtual time until which it gets no CPU, µs. stood_still_until: when it
            continues at the latest.
        off: it is switched off, so it refuses no connection.
        held_at_death: jobs that the last process had in memory, by id, with their states.
        intact: its file had all of them.
        leave: it was told to leave the cluster. removed: it has left, and is gone for good.
        stopping: the process is about to end cleanly. halted: it serves no more clients.
        start_with_queues: the last process wrote a file from which queues are restored.
        log: its event log; None: it writes none.
    """

    def __init__(self, world: "World", index: int, policy: str, maxmemory: int) -> None:
        self.world = world
        self.index = index
        self.ip = f"10.0.0.{index + 1}"
        self.port = PORT
        self.rng = Random(f"machine {index} {world.plan.seed}")
        self.rng_of_pages = Random(f"pages {index} {world.plan.seed}")
        self.pages: PageFiles | None = None
        self.jobs: AllJobs
        self.id = b"%040x" % self.rng.getrandbits(160)
        # Without it, they start as C nodes do.
        self.disk = Disk(policy, world.plan.seed % 4 != 0 or world.plan.mode == TIMELY)
        self.index_file = IndexFile(self.disk, Random(f"index {index} {world.plan.seed}"))
        self.maxmemory = maxmemory
        self.clock = NodeClock(0, 1_000_000)
        self.up = self.off = False
        self.incarnation = 0
        self.paused_until = self.stood_still_until = 0
        self.died_at = -1  # virtual µs
        self.killed_at: list[int] = []  # likewise
        self.held_at_death: dict[bytes, int] = {}
        self.sessions: list[Session] = []
        self.node: Node
        self.mesh: StaticMesh | None = None
        self.membership: Membership | None = None
        self.leave = False
        self.removed = False
        self.intact = True
        self.start_with_queues = False
        self.stopping = self.halted = False
        self.log: MachineLog | None = None
        self._draw = world.rng.getrandbits
        self._take: Callable[[], None] = self._turn  # as an event: of this incarnation
        self._cron_item = self._cron
        self._cron_every = STATIC_CRON if world.plan.static else CRON
        self._inbox: list[Callable[[int], None]] = []
        self._turn_due = False
        self._wake_at = 0
        self._due = 0  # for which time of the node this is, ms
        self._queues_at = 0  # ms of the node's clock
        self._cron_idled = False  # the last cron had nothing to do
        self._deleted: set[bytes] = set()  # jobs that it was told to delete
        self._cancelled: set[bytes] = set()  # of which it heard this turn that they are
        self._dies_at = NEVER  # a point in its turn
        self._dies_with_machine = False
        self._before: Memory | None = None
        self._clients = 0

    # ---- life -------------------------------------------------------------------------------

    def start(self, queue_jobs: bool = False) -> None:
        """Start the process with what is on the disk."""
        world = self.world
        self.up = True
        self.off = self.stopping = self.halted = False
        self.incarnation += 1
        self._take = partial(self._take_turn, self.incarnation)
        self._inbox.clear()
        self._turn_due = False
        self._wake_at = 0
        packets = PacketWriter(self.id, self.port)
        if self.index in world.plan.older:
            packets.extensions &= ~(SETTLING | LOTS | GROUPS | REPLACING)
            packets.refresh()
        connect = MachineNetwork(world.fabric, self).connect
        now = self.now()
        peers: StaticMesh | Membership
        if world.plan.static:
            older = {one.id for one in world.machines if one.index in world.plan.older}
            peers = self.mesh = StaticMesh(packets, connect, world.addresses, older)
        else:
            peers = self.membership = Membership(packets, connect, self.rng)
            peers.heartbeat.node_timeout = world.plan.node_timeout
            if self.disk.conf:
                peers.load_conf(self.disk.conf, now)
            peers.remember_extensions(self.disk.extensions)
            peers.extensions_heard = self._keep_extensions
        self.node = Node(
            id=self.id,
            commands=build_table(),
            host=Host(),
            peers=peers,
            entropy=self.rng.randbytes,
            rng=self.rng,
            clock=_no_time,
            maxmemory=self.maxmemory,
            packets=packets,
        )
        paging = world.plan.paging and self.disk.policy != OFF
        left = {} if self.pages is None else self.pages.left()
        self.pages = PageFiles(self, self.node, self.rng_of_pages, left) if paging else None
        self.jobs = AllJobs(self.node, self.pages)
        if paging:
            watch(self)
        self.node.batches.size = self.node.topics.slice = world.plan.slice
        self.node.lots.open_for = world.plan.lots_open
        self._set_policies()
        self.node.now = now
        self.disk.load(self.node, queue_jobs, partial(self._load_index, queue_jobs))
        self.node.journal.clear()
        self.node.journaling = self.disk.policy != OFF
        self._load_pauses()
        if self._before is not None:
            compare(self, self._before, world.oracle.problem)
            self._before = None
        if queue_jobs and world.timely is not None:
            world.timely.restored(self)
        if self.log is not None:
            self.log.start(self.node, world.loop.now)
        world.note(f"* {self.index} starts with {self.jobs.count} jobs")
        world.loop.after(self._cron_every, partial(self._cron_due, self.incarnation))
        self.post(_nothing)

    def _load_index(self, queue_jobs: bool) -> bool:
        """Load the index, if there is one that can be used; return whether there was."""
        pages = self.pages
        return pages is not None and self.index_file.load(self.node, pages, queue_jobs)

    def _load_pauses(self) -> None:
        """Pause queues as the file of pauses says, which is synced before each reply."""
        pauses = self.node.queue_pauses

        def keep(names: list[bytes] | None) -> None:
            self.disk.pauses = b"".join(format_file(pauses.known))

        parse_file(self.disk.pauses, pauses.known)
        pauses.resume()
        pauses.sharing.keep = pauses.sharing.changed = keep

    def _set_policies(self) -> None:
        """In extended mode, all queues have a policy, and there are bindings, as if the node had
        read them from its files."""
        plan = self.world.plan
        if plan.attempts:
            policy = Policy(b"*")
            policy.attempts = plan.attempts
            policy.dead = DEAD
            policy.retry = plan.later_retry  # for dead letters, and jobs that are sent back
            policy.dead_ttl = 86_400
            policy.backoff_min, policy.backoff_max = plan.backoff
            policy.active = plan.active
            policy.rate = plan.rate
            policy.period = 1 if plan.rate else 0
            policy.groups = ("", "fair", "fifo").index(plan.groups)
            policy.group_active = plan.group_active
            policy.group_rate = plan.group_rate
            policy.group_period = 1 if plan.group_rate else 0
            policies = self.node.policies
            policies.put(policies.make(b"*", policy, b"0" * 40, 1))
            known = self.node.topics.bindings
            for topic, queue in BINDINGS:
                binding = Binding(topic, queue)
                known.put(known.make(binding.name, binding, b"0" * 40, 1))

    def kill(self, stage: int, machine: bool) -> None:
        """Die at ``stage`` of the next turn that has something to lose there; ``machine``: data
        that was not synced is lost, too."""
        if not self.up:
            return
        self._dies_at = stage
        self._dies_with_machine = machine
        if stage == BEFORE_TURN:
            self._turn()

    @property
    def dying(self) -> bool:
        """Whether it will die in its next turn."""
        return self._dies_at != NEVER

    def settle_death(self) -> None:
        """If it is meant to die, but no turn had anything to lose, let it die now."""
        if self.up and self.dying:
            self._dies_at = BEFORE_TURN
            self._turn()
        if self.up and self.stopping:
            self._turn()
            self.end()

    def stop(self, handover: bool) -> None:
        """Begin to end the process cleanly; ``handover``: write all jobs for the next process.
        It takes its leave of the other nodes first."""
        self._turn()
        node = self.node
        self.stopping = True
        if handover:
            self.halted = True
            self.disk.replace(self._dump())
            node.journaling = True
        self.post(node.farewell.begin)
        self._turn()
        self._look(self.incarnation)

    def _dump(self) -> list[bytes]:
        """The records of all jobs. If some lie on disk in a damaged file, these are brought back
        first, as the server does when it is asked again."""
        node = self.node
        node.start_dump()
        records: list[bytes] = []
        done = False
        while not done:
            try:
                more, done = node.dump_step(1 << 40, 1 << 60)
            except OSError:
                assert self.pages is not None
                self.pages.carry_out(self.pages.waiting, self.now())
                return self._dump()
            records += more
        return records

    def _look(self, incarnation: int) -> None:
        """End the process if the other nodes have nothing more for it."""
        if self.up and self.incarnation == incarnation:
            if self.node.farewell.is_over(self.now()):
                self.node.replication.give_up()
                self._turn()
                self.end()
            else:
                self.world.loop.after(LOOK, lambda: self._look(incarnation))

    def end(self) -> None:
        """End the process, which is to be stopped."""
        world = self.world
        handover = self.halted
        if self.pages is not None:
            self.pages.end(self.now())
        if handover or self.disk.policy != OFF:
            self.disk.stop(self.node)
        if world.timely is not None:
            self._before = remember(self)
        if self.pages is not None and (handover or self.disk.policy != OFF):
            self.index_file.leave(self.node, self.pages, self.now())
        if self.log is not None:
            self.log.stop(self.node, world.loop.now)
        world.note(f"* {self.index} stops, handover {handover}")
        self.intact = handover or self.disk.policy != OFF
        self._gone(set(), False)

    def _dies(self, unsaved: set[bytes]) -> None:
        """The process is dead; ``unsaved``: what it added in the turn and never wrote."""
        stage, machine = self._dies_at, self._dies_with_machine
        self._dies_at = NEVER
        self.killed_at.append(self.world.loop.now)
        if stage >= BEFORE_PACKETS:  # it has noted what its clients get, and they do not get it
            for session in self.sessions:
                self._unheard(session, True)
        lost = self.disk.machine_dies(self.world.loop.now, self.world.rng) if machine else 0
        if self.log is not None:
            self.log.dies(self.world.loop.now, machine)
        self.intact = self.disk.policy != OFF and lost == 0
        self.world.note(
            f"* {self.index} dies at stage {stage}, machine {machine}, records lost {lost}"
        )
        self._gone(unsaved, machine)

    def _gone(self, unsaved: set[bytes], machine: bool) -> None:
        world = self.world
        self.held_at_death = {
            job.id: job.state for job in self.jobs.values() if job.id not in unsaved
        }
        self.up = False
        self.died_at = world.loop.now
        self._cancelled.clear()
        self._inbox.clear()
        self._turn_due = False
        world.fabric.discard()
        self.off = machine
        world.fabric.died(self, machine)
        sessions, self.sessions = self.sessions, []
        for session in sessions:
            session.open = False
            world.loop.after(world.rng.randrange(50 * MS), lambda session=session: session.closed())  # type: ignore[misc]

    def now(self) -> int:
        """The time of its clock, in ms."""
        return self.clock.now(self.world.loop.now)

    def change_clock(self, rate: int, jump: int) -> None:
        """Change the drift of the clock, after a jump of that many ms."""
        self.clock.change(self.world.loop.now, rate, jump)
        self._wake_at = self._due = 0
        if self.up:
            self.post(_nothing)

    def pause(self, microseconds: int) -> None:
        """Suspend the process."""
        self.paused_until = self.world.loop.now + microseconds
        self.stood_still_until = max(self.stood_still_until, self.paused_until)

    # ---- what comes -------------------------------------------------------------------------

    def post(self, item: Callable[[int], None]) -> None:
        """Add something for the next turn."""
        if self.up:
            self._inbox.append(item)
            if not self._turn_due:
                self._plan_turn()

    def _plan_turn(self) -> None:
        self._turn_due = True
        # As ``below`` does it.
        draw = self._draw
        delay = draw(7)
        while delay >= 100:
            delay = draw(7)
        loop = self.world.loop
        at = loop.now + delay
        loop.at(at if at > self.paused_until else self.paused_until, self._take)

    def _take_turn(self, incarnation: int) -> None:
        if self.incarnation == incarnation and self.up:
            if self.world.loop.now < self.paused_until:
                self._plan_turn()
            else:
                self._turn()

    def connect(self, replied: Replied, closed: Callable[[], None]) -> Session | None:
        """Connect a client; None: it was refused."""
        if not self.up:
            return None
        self._clients += 1
        session = Session(self, self._clients, replied, closed)
        self.sessions.append(session)
        return session

    def arrived(self, session: Session, requests: tuple[list[bytes], ...]) -> None:
        """Requests of a client have arrived."""
        if session.open:
            session.pending += requests
            self.post(lambda now: session.serve(now))

    def hung_up(self, session: Session) -> None:
        """A client has closed its connection."""
        world = self.world
        timely = world.timely
        incarnation = self.incarnation

        def gone(now: int) -> None:
            # A process that died before had it.
            if self.incarnation == incarnation and session in self.sessions:
                consumer = self.node.consumers.by_client.get(session.client)
                self._unheard(session, False)
                if consumer is not None and consumer.loss >= 0 and timely is not None:
                    pause = world.plan.backoff[1] + consumer.loss
                    timely.put_back(consumer.in_hand, pause * MS)
                if consumer is not None and consumer in self.node.consumers.pushed:
                    once = [id for _, id in consumer.once]
                    world.oracle.unsent.update(once)
                    if timely is not None:
                        timely.unheard(once, False)
                self.node.forget_client(session.client)
                self.sessions.remove(session)

        self.post(gone)

    def _unheard(self, session: Session, dying: bool) -> None:
        """Note that what this turn has for the client of ``session`` will never leave, since the
        client has left, or this process is ``dying``."""
        world = self.world
        if world.timely is not None and session.client.out:
            ids = ID.findall(b"".join(session.client.out))
            world.timely.unheard(ids, dying)
            world.oracle.unsent.update(ids)

    def link_accepted(self, link: End) -> None:
        if self.membership is not None:
            membership = self.membership
            self.post(lambda now: membership.accepted(link, now))

    def link_up(self, link: End) -> None:
        if self.mesh is not None:
            mesh = self.mesh
            self.post(lambda now: mesh.link_up(link))
        elif self.membership is not None:
            membership = self.membership
            self.post(lambda now: None if link.closed else membership.opened(link, now))

    def link_lost(self, link: End) -> None:
        if self.mesh is not None:
            mesh = self.mesh
            self.post(lambda now: mesh.link_lost(link))
        elif self.membership is not None:
            membership = self.membership
            self.post(lambda now: None if link.closed else membership.lost(link, now))

    def packets(self, link: End, packets: list[bytes]) -> None:
        self.post(partial(self._receive, link, packets))

    # ---- turns ------------------------------------------------------------------------------

    def _receive(self, link: End, packets: list[bytes], now: int) -> None:
        trace = self.world.trace
        drops = self.world.drops
        mesh = self.mesh
        receive = self.node.receive
        for packet in packets:
            if link.closed:
                return
            if drops is not None and drops(packet):
                continue
            type = packet_type(packet)
            if type == DELJOB:
                self._deleted.update(job_ids(packet))
            elif type == ENDJOB:
                end = unpack_endjob(read_fields(packet))
                if end.ending.kind == CANCELLED and self.holds(end.id):
                    self._cancelled.add(end.id)
            if trace.on:
                sender = packet[16:20].decode()
                trace.add(f"{self.index} got from {sender} {packet_text(packet)}")
            member = b""
            if mesh is not None:
                member = mesh.receive(packet)
            elif self.membership is not None:
                member = self.membership.receive(link, packet, now)
            if member:
                receive(member, packet, now)

    def _cron_due(self, incarnation: int) -> None:
        if self.up and self.incarnation == incarnation:
            loop = self.world.loop
            loop.after(self._cron_every, partial(self._cron_due, incarnation))
            # A process that was suspended has missed it.
            if loop.now >= self.paused_until:
                self.post(self._cron_item)

    def _cron(self, now: int) -> None:
        self._cron_idled = False
        if self.mesh is not None:
            self._cron_idled = self.mesh.cron(self.world.loop.now)
        elif self.membership is not None:
            membership = self.membership
            reachable = membership.reachable[:]
            membership.cron(now)
            changed = membership.config_changed or membership.reachable != reachable
            self._cron_idled = not changed and not self.world.fabric.unsent
        if now >= self._queues_at or self.node.recovery.asking:
            self._queues_at = now + 2000  # the server looks more often, to the same effect
            self._cron_idled = False
            self.node.cron(now)

    def _turn(self) -> None:
        """Handle everything that arrived, then the effects in their order."""
        world = self.world
        node = self.node
        now = self.clock.now(world.loop.now)
        self._turn_due = False
        if self._dies_at == BEFORE_TURN:
            self._dies(set())
            return
        inbox, self._inbox = self._inbox, []
        for item in inbox:
            item(now)
        due = node.next_wake()
        if 0 < due <= now and not self.halted:
            node.tick(now)
        elif self._cron_idled and self._stayed_idle(inbox):
            if self.log is not None:
                self.log.turn(node, world.loop.now)
            return
        if node.batches.waiting:
            self._do_slice(now)
        if world.replies_first:
            node.commit()
            self._send_replies()
        if self._dies_at == BEFORE_PERSIST and (node.journal or self.disk.policy == OFF):
            # A record may belong to an earlier job that was changed.
            ids_in = world.oracle.ids_in
            self._dies(ids_in(node.journal) - ids_in(self.disk.records))
            return
        self._write()
        node.commit()
        self._write()  # what settling has noted; the server also writes it before replies
        fabric = world.fabric
        if fabric.unsent:
            if self._dies_at == BEFORE_PACKETS:
                self._dies(set())
                return
            world.oracle.packets_leave(self, fabric.unsent, self._deleted)
            fabric.flush()
        if self._deleted:
            # What lies on disk is deleted in a later turn.
            self._deleted = {id for id in self._deleted if self.holds(id)}
        if self._dies_at == BEFORE_REPLIES and any(one.client.out for one in self.sessions):
            self._dies(set())
            return
        node.uncommitted.clear()
        node.woken.clear()
        self._send_replies()
        node.replied()
        if self._cancelled:
            world.oracle.promises.knows_cancelled(self, self._cancelled)
            self._cancelled.clear()
        if self.log is not None:
            self.log.turn(node, world.loop.now)
        self._plan_wake()

    def _do_slice(self, now: int) -> None:
        """Do a slice of a command, or all of a group."""
        node = self.node
        if not self.halted:
            do_slice(node, now)
            while node.batches.exclusive:
                do_slice(node, now)
                if self.pages is not None:
                    self.pages.carry_out(1, now)

    def _write(self) -> None:
        """Write what is to be on disk."""
        node = self.node
        if node.journal:
            self.disk.append(node.journal, self.world.loop.now)
            node.journal = []
        membership = self.membership
        if membership is not None and membership.config_changed:
            self.disk.conf = membership.dump_conf()
            membership.config_changed = False

    def _keep_extensions(self) -> None:
        """Keep what other nodes announce, as the file of policies does."""
        assert self.membership is not None
        self.disk.extensions = self.membership.extensions()

    def _stayed_idle(self, inbox: list[Callable[[int], None]]) -> bool:
        """Whether a turn in which nothing was due, and whose ``inbox`` was handled, left everything
        as the turn before did, so there is nothing to send, to write, to check or to plan. Its cron
        had nothing to do."""
        return (
            len(inbox) == 1
            and inbox[0] is self._cron_item
            and not self.node.batches.waiting
            and self._dies_at == NEVER
        )

    def _send_replies(self) -> None:
        again = False
        for session in self.sessions:
            if session.client.out:
                session.send_replies()
            if session.pending and not again:
                again = session.can_be_served()
        self.world.oracle.turn_over(self)
        if again:
            self.post(self._serve_all)

    def _serve_all(self, now: int) -> None:
        for session in self.sessions:
            session.serve(now)

    def _plan_wake(self) -> None:
        if self.halted:
            return
        node = self.node
        if node.batches.waiting:
            self.post(_nothing)
        due = node.next_wake()
        if due == 0:
            return
        loop = self.world.loop
        if due == self._due and self._wake_at > loop.now:
            return
        self._due = due
        at = self.clock.when(due)
        if at < loop.now + 100:
            at = loop.now + 100
        if self._wake_at <= loop.now or at < self._wake_at:
            self._wake_at = at
            incarnation = self.incarnation
            loop.at(at, partial(self._wake, incarnation, at))

    def _wake(self, incarnation: int, at: int) -> None:
        if self.incarnation == incarnation and self._wake_at == at:
            self._wake_at = 0
            self.post(_nothing)

    # ---- looking inside ---------------------------------------------------------------------

    def holds(self, id: bytes) -> bool:
        """Whether the node has the job in memory."""
        return self.up and self.jobs.get(id) is not None

    def live_copy(self, id: bytes) -> bool:
        """Whether the node has the job, and would deliver it some day."""
        if not self.up:
            return False
        job = self.jobs.get(id)
        return job is not None and job.state in (ACTIVE, QUEUED)


def _nothing(now: int) -> None:
    """Lets a turn happen."""


def _no_time() -> int:
    return 0
