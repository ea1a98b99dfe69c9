"""The node: a state machine driven by clients, other nodes and time.

Dispatches packets and due work, and keeps the clients that wait for jobs. What any server does for
its clients is in ``respserver.machine``; the objects that the node puts together do the work on
jobs.
"""

from collections.abc import Callable
from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.cluster.troubles import TROUBLE_FULL, TROUBLE_MEMORY, trouble_of
from disque_trio.node.core.changes.replacements import Replacements
from disque_trio.node.core.changes.scatter_gather import ScatterGathers
from disque_trio.node.core.changes.updates import Updates
from disque_trio.node.core.clocks import Clocks
from disque_trio.node.core.copies.admissions import Admissions
from disque_trio.node.core.copies.copies import Copies
from disque_trio.node.core.copies.few_copies import FewCopies
from disque_trio.node.core.copies.handover import Handover
from disque_trio.node.core.copies.placement import Placement
from disque_trio.node.core.copies.replication import Replication
from disque_trio.node.core.delivery.deliveries import Deliveries
from disque_trio.node.core.dispatcher import Dispatcher
from disque_trio.node.core.federation.exports import Exports
from disque_trio.node.core.federation.farewell import Farewell
from disque_trio.node.core.federation.federation import Federation
from disque_trio.node.core.info import Figures
from disque_trio.node.core.jobs.job import ACKED, FLAG_QUEUED_BEFORE, GONE, Job, JobIds
from disque_trio.node.core.jobs.timers import sooner
from disque_trio.node.core.lifecycle.ack_gc import AckGc
from disque_trio.node.core.lifecycle.dead_letters import DeadLetters
from disque_trio.node.core.lifecycle.dead_nodes import DeadNodes
from disque_trio.node.core.lifecycle.job_waits import JobWaits
from disque_trio.node.core.lifecycle.lots import Lots
from disque_trio.node.core.lifecycle.requeue import Requeue
from disque_trio.node.core.lifecycle.successors import Successors
from disque_trio.node.core.put_off_commands import PutOffCommands
from disque_trio.node.core.queue_pauses import QueuePauses
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.pauses import Pauses
from disque_trio.node.core.queues.store import JobStore
from disque_trio.node.core.rpc.services import Services
from disque_trio.node.core.rpc.timer import Timer
from disque_trio.node.core.shared.policies import Policies
from disque_trio.node.core.shared.sharing import SharedMaps, Sharing
from disque_trio.node.core.ticks import Ticks
from disque_trio.node.core.topics import Topics
from disque_trio.node.core.unique.claims import Claims
from disque_trio.node.core.unique.key_drops import KeyDrops
from disque_trio.node.core.unique.voter import Voter
from disque_trio.node.core.user_budgets import Budgets
from disque_trio.node.core.worker_reports import ReportsOfWorkers
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketError, PacketWriter
from disque_trio.resp.reply import null_array
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import AnyCommand, Command
from disque_trio.respserver.host import Host
from disque_trio.respserver.machine import Machine
from disque_trio.rng import Rng

MAX_JOBS_PER_TICK: Final = 100  # a fraction of a millisecond
LONGEST_REST: Final = 100  # ms until commands that wait for the disk look again, whatever was read
REST_ASKED: Final = 1_000  # ms between looks at what others asked for, when nothing happens
# Commands that set what all nodes share.
_SHARED: Final = frozenset((b"qset", b"bind"))
_CRON_SET: Final = ([b"SET"], [b"set"])
LEAVING: Final = b"-LEAVING This node is leaving the cluster, please connect to a different one\r\n"


class Node(Machine):
    """The state machine of one Disque node.

    Args:
        id: 40 lower-case hex characters.
        commands: the command table, by name in lower case.
        host: the surroundings of the state machine (see ``host``). peers: the rest of the cluster.
        entropy: returns that many random bytes, for job ids. rng: spreads times on purpose.
        clock: monotonic, in ns; for the durations in SLOWLOG and commandstats.
        maxmemory: limit for jobs and queues, in bytes; 0: no limit.
        packets: makes this node's packets; its port is set there once it is known.

    Attributes:
        notes: the events of jobs, for an event log.
        waits: the ADDJOBs that wait for copies.
        queues: all queues.
        policies: of the queues. policy_sharing: shares them with other nodes.
        replicas: which nodes may hold which jobs.
        store: the jobs.
        progress: notes what becomes of jobs. recovery: places those that are loaded.
        deliveries: gives jobs to clients.
        consumers: the clients that jobs are pushed to.
        exports: gives jobs to other nodes. federation: gets jobs from them. farewell: ends that.
        dead_nodes: queues what a dead node had in its queues.
        replication: adds jobs and copies them.
        requeue: queues jobs again. lots: jobs that stay queued, many of which are told at once.
        ack_gc: ends jobs.
        handover: gives everything away before this node leaves.
        dead_letters: what becomes of jobs that nobody could process. copies: of what they become.
        few_copies: the jobs that have too few copies.
        scatter_gather: work on a queue on all nodes.
        rpc: calls to other nodes, and their answers.
        ticks: adds the jobs of schedules.
        limits: of the queues.
        job_waits: the clients that wait for the end of jobs.
        updates: changes to jobs.
        shared_maps: what all nodes share by name.
        topics: adds jobs to the queues of topics.
        bad_packets: number of malformed packets from other nodes.
        budgets: of users, for what is in queues.
        key_drops: frees keys of ADDJOB UNIQUE.
        clocks: of the other nodes.
        admissions: ADDJOBs that wait for other nodes' answers. claims: those with UNIQUE.
        paging: moves jobs to disk and back. put_off: commands that wait for that.
        worker_reports: what worker processes report.
        bus_codec: jobs to and from other nodes. aof_codec: jobs to and from files.
    """

    def __init__(
        self,
        id: bytes,
        commands: "dict[bytes, Command[Node]]",
        host: Host,
        peers: Peers,
        entropy: Callable[[int], bytes],
        rng: Rng,
        clock: Callable[[], int],
        maxmemory: int = 0,
        packets: PacketWriter | None = None,
    ) -> None:
        super().__init__("disque", "jobs", commands, host, clock, maxmemory)
        self.may_lag = True
        self.name = f"node {id[:8].decode('ascii', 'replace')}"
        self.peers = peers
        packets = self.packets = packets or PacketWriter(id, 0)
        services = Services(self, peers, packets, rng)
        self._notices = services.notices
        self._settlements = services.settlements
        self.rpc = services.rpc
        policies = self.policies = Policies()
        store = self.store = JobStore(services, id, policies, entropy)
        self.notes = store.notes
        self.queues = store.queues
        self.waits = store.waits
        self.replicas = store.replicas
        self.limits = store.limits
        self.progress = store.progress
        core = Core(services, store)
        self.recovery = core.recovery
        self.paging = core.paging
        self.aof_codec = core.aof_codec
        self.bus_codec = core.bus_codec
        exports = self.exports = Exports(core)
        self.job_waits = JobWaits(core)
        placement = Placement(core)
        copies = self.copies = Copies(core, placement)
        self.few_copies = FewCopies(core, copies)
        successors = Successors(core, exports, copies)
        ack_gc = self.ack_gc = AckGc(core, successors)
        letters = self.dead_letters = DeadLetters(core, successors, ack_gc)
        lots = self.lots = Lots(core)
        requeue = self.requeue = Requeue(core, exports, letters, successors, Pauses(core), lots)
        updates = self.updates = Updates(core, exports, requeue)
        replication = self.replication = Replication(core, placement, exports, updates.take)
        self.handover = Handover(core, placement, exports)
        replication.on_copy = self._copied
        federation = self.federation = Federation(core, exports, updates.take)
        self.farewell = Farewell(core, federation)
        self.dead_nodes = DeadNodes(core, copies)
        self.deliveries = Deliveries(core, federation, requeue, letters)
        self.consumers = self.deliveries.consumers
        self.clocks = Clocks(services)
        self.scatter_gather = ScatterGathers(core, ack_gc, letters, updates)
        voter = Voter(core, copies)
        self.key_drops = KeyDrops(core, voter)
        admissions = self.admissions = Admissions(core, replication)
        self.replacements = Replacements(core, updates)
        self.claims = Claims(core, voter, replication, admissions, self.replacements.ask)
        shared_maps = self.shared_maps = SharedMaps(peers)
        self.policy_sharing = Sharing("policies", bus.POLICIES, services, policies, shared_maps)
        self.ticks = Ticks(services, self.notes, policies, self.replicas, shared_maps)
        self.topics = Topics(services, shared_maps)
        self.queue_pauses = QueuePauses(core, federation, shared_maps)
        self.budgets = Budgets(
            core, admissions, self.ticks.schedules, self.topics.bindings, self.queue_pauses.known
        )
        self.put_off = PutOffCommands(core)
        self.worker_reports = ReportsOfWorkers()
        self.topics.is_full = self.budgets.is_full
        self._pages = core.paging.pages
        self._figures = Figures(
            store, letters, self.claims, self.ticks, self.topics, self.deliveries, shared_maps
        )
        self.bad_packets = 0
        self._entropy = entropy
        peers.linked_to = self._linked_to
        self._dispatcher = Dispatcher(
            core, replication, requeue, ack_gc, federation, exports, shared_maps, updates
        )

    @property
    def id(self) -> bytes:
        """The node's id."""
        return self.replicas.own

    def renew_id(self) -> None:
        """Change the node's id: CLUSTER RESET HARD."""
        id = self._entropy(20).hex().encode()
        self.replicas.renew(id)
        self.store.ids = JobIds(id, self._entropy)

    # ---- called by the driver -------------------------------------------------------------

    def receive(self, sender: bytes, packet: bytes, now: int) -> None:
        """Handle a packet of type 4 or above from the known node ``sender``."""
        self.now = now
        if self.loading:
            # A partly loaded node must not answer. But the others do not ask again soon.
            self._dispatcher.keep_request(sender, packet)
            return
        self.notes.peer = sender
        try:
            self._dispatcher.dispatch(sender, packet)
        except PacketError:
            self.bad_packets += 1
        self.notes.peer = b""
        self.after_command()

    def set_leaving(self, leaving: bool) -> None:
        """CLUSTER LEAVING: prepare to leave the cluster, or stay in it after all."""
        self.peers.set_leaving(leaving)
        if leaving:
            self.unblock_all()
            self.consumers.stop_all(LEAVING[1:].rstrip())
        else:
            self.handover.end()

    def _copied(self, node: bytes, id: bytes) -> None:
        """Note that ``node`` holds a copy of the job ``id``, for which no ADDJOB waits."""
        self.copies.confirmed(node, id)
        if self.handover.active:
            self.handover.confirmed(node, id)

    def tick(self, now: int) -> None:
        """Do the work due at ``now``: queue jobs again, expire them, end waits. A call handles at
        most 100 jobs; if there is more to do, ``next_wake`` then returns a time in the past."""
        self.now = now
        self.client = None
        self.notes.peer = b""
        if self.batches.resting:
            self.batches.wake()
        for job in self.store.timers.due(now, MAX_JOBS_PER_TICK):
            if job.state != GONE:  # handling one job can end another
                self._job_due(job)
        if self.waits.by_job:
            self.replication.try_more(now)
        places = self.replicas.places
        if places.due and places.due <= now:
            self.dead_nodes.tell(now)
        if self.federation.questions:
            self.federation.ask_due(now)
        if self.exports.soon or self.exports.later:
            self.exports.offer_due(now)
        timer = self.rpc.timer
        if timer.at and timer.at <= now:
            self._do_rare_work(timer, now)
        self.deliveries.serve_waiting()
        self.end_waits(now)
        if self.progress.due and self.progress.due <= now:
            self.progress.due = now + 1  # the end of the turn writes it
        if self.store.freeing is not None:
            self.store.free_some()

    def _do_rare_work(self, timer: Timer, now: int) -> None:
        """Do the rare work that is due at ``now``."""
        timer.at = 0
        self.rpc.end_due(now)
        self.scatter_gather.do_slice()
        self.claims.go_on(now)
        if self.federation.linked:
            self._greet(list(self.federation.linked), now)
        self.ack_gc.go_on()
        self.copies.go_on(now)
        self.few_copies.go_on(now)
        self.handover.go_on(now)
        self.job_waits.go_on(now)
        self.job_waits.tick(now)
        self.updates.tick(now)
        self.ticks.makers.go_on(now)
        self.topics.makers.go_on(now)
        self.ticks.go_on(now)
        self.topics.go_on(now)
        self.limits.go_on(now)
        self.paging.go_on(now)
        if self.recovery.asking:
            self.recovery.go_on(now)
        self.put_off.go_on(now)
        self.deliveries.go_on(now)
        self.dead_nodes.go_on(now)
        self.lots.go_on(now)
        for due in (self.rpc.next_due(), self.claims.next_due(), self.job_waits.due):
            timer.wake_by(due)
        for due in (self.updates.due, self.ticks.due, self.limits.due, self.deliveries.due):
            timer.wake_by(due)
        timer.wake_by(self.paging.due)
        timer.wake_by(self.ack_gc.due)
        timer.wake_by(self.copies.due)
        timer.wake_by(self.few_copies.due)
        timer.wake_by(self.handover.due)
        timer.wake_by(self.dead_nodes.due)
        timer.wake_by(self.lots.due)

    def _job_due(self, job: Job) -> None:
        """Handle a job from the timers: expire it, collect it if acknowledged, or queue it."""
        state = job.state
        over = self.now - job.etime * 1000
        # Timers are late by more than the time between a delay and a time to live that is barely
        # longer. Such a job still gets into the queue, for the second until it is dropped.
        if over >= 1000 or (over >= 0 and (job.flags & FLAG_QUEUED_BEFORE or state == ACKED)):
            self.dead_letters.expire(job)
        elif state == ACKED:
            self.ack_gc.collect(job)
        else:
            self.requeue.due(job)

    def next_wake(self) -> int:
        """Return when to call ``tick`` next, in ms since the epoch; 0: not before an event."""
        # What is often there is compared here: uncompiled, ``sooner`` costs more than it does.
        due = self.store.timers.next_due()
        if (end := self.wait_ends.next_due()) and (due == 0 or end < due):
            due = end
        if self.waits.attempts:
            due = sooner(due, self.waits.next_due())
        if self.replicas.places.due:
            due = sooner(due, self.replicas.places.due)
        if self.federation.questions:
            due = sooner(due, self.federation.questions[0][0])
        if (offer := self.exports.next_due()) and (due == 0 or offer < due):
            due = offer
        if (rare := self.rpc.timer.at) and (due == 0 or rare < due):
            due = rare
        if self.progress.due:
            due = sooner(due, self.progress.due)
        if self.store.freeing is not None:
            return self.now
        if self.batches.resting:
            due = sooner(due, self.now + LONGEST_REST)
        return due

    def cron(self, now: int) -> None:
        """Run the periodic work, a few times a second."""
        self.now = now
        memory = self.memory
        if memory.used > memory.external_above:
            wanted = memory.external_above - memory.external_above // 32
            self.queues.make_room(wanted)
            self.store.uniques.make_room(wanted)
        self._tell_trouble()
        self.few_copies.cron(now)
        self.federation.cron(now)
        self.shared_maps.cron(now)
        self.ticks.look_around(now)
        self.limits.cron(now)
        if self.recovery.asking:
            self.recovery.go_on(now)
        if self.recovery.ended and self.journaling:
            self.recovery.write_ended()
        self.queues.evict_idle()
        self.progress.tidy()
        self.store.cron(now)
        if self.consumers.open:
            self.consumers.cron()
        if self.memory.shares is not None:
            self.budgets.go_on()
        self.after_command()  # the file may no longer lag

    def set_trouble(
        self, loading: bool, write_problem: str, full: str = "", lagging: bool = False
    ) -> None:
        lagged = self.lagging
        loaded = self.loading and not loading
        super().set_trouble(loading, write_problem, full, lagging)
        if lagging != lagged:
            self.limits.file_lags()
        self._tell_trouble()
        if loaded:
            self.few_copies.loaded(self.now)
            for id in self.peers.everyone():
                self._linked_to(id, False)

    def set_slow_disk(self, slow: bool) -> None:
        super().set_slow_disk(slow)
        self._tell_trouble()

    def _linked_to(self, id: bytes, again: bool) -> None:
        """Greet the node ``id`` in the next turn: there is a new connection to it. ``again``: there
        was one before."""
        self.federation.linked[id] = again
        self.rpc.timer.wake_by(max(self.now, 1))

    def _greet(self, nodes: list[bytes], now: int) -> None:
        """Tell ``nodes``, to which connections are new at ``now``, whatever waits for that: all who
        want to know that a node can be reached again hear it here."""
        self.federation.exchange()
        self.shared_maps.linked_to(nodes, now)
        self.ack_gc.linked_to(nodes)
        self.copies.linked_to(now)
        self.dead_letters.linked_to_some()
        self.dead_nodes.linked_to(nodes)
        self.recovery.go_on(now)

    def _tell_trouble(self) -> None:
        """Tell the other nodes what keeps this one from taking copies, if that has changed."""
        memory = self.memory
        # Not at once when there is just enough memory again: it would change all the time.
        enough = memory.external_above
        if self.peers.trouble & TROUBLE_MEMORY:
            enough -= enough // 32
        full = memory.evict_above
        if self.peers.trouble & TROUBLE_FULL:
            full -= full // 32
        used = memory.used
        self.peers.set_trouble(
            trouble_of(used > enough, self.add_problem, used > full, self.slow_disk)
        )

    def rest(self) -> int:
        rest = super().rest()
        if self.exports.asked_for:
            return min(rest, REST_ASKED)
        if self.consumers.open or self.recovery.asking or self.budgets.busy:
            return 0
        return min(rest, self.queues.rest(), self.shared_maps.rest())

    def forget_client(self, client: Client) -> None:
        super().forget_client(client)
        self.consumers.forget_client(client)
        self.worker_reports.forget_client(client)
        if client.in_flight:
            self.claims.forget_client(client)
            self.admissions.forget_client(client)
            self.replication.cancel_all(client)
            self.few_copies.forget_client(client)
            self.topics.forget_client(client)

    def heard(self, client: Client) -> None:
        self.consumers.seen(client)

    def stop_pushing(self, client: Client) -> None:
        self.consumers.forget_client(client)

    def go_on_pushing(self, client: Client) -> None:
        self.consumers.go_on_pushing(client)

    def roll_back(self, refusal: bytes) -> None:
        super().roll_back(refusal)
        self.updates.refuse(refusal)
        self.consumers.roll_back()
        self.ack_gc.roll_back()
        self._notices.drop()

    def commit(self) -> None:
        if self.shared_maps.unsettled:
            self.shared_maps.settle()
        if self.answered or self.uncommitted:
            super().commit()
        if self.topics.waiting:
            self.topics.settle()
            super().commit()
        if self.ticks.adding:
            self.ticks.settle()
        if self.consumers.pushed:
            self.consumers.send()
        notices = self._notices
        settlements = self._settlements
        if (
            notices.waiting
            or notices.copies
            or notices.fields
            or notices.announced
            or settlements.ends
            or settlements.wants
        ):
            notices.send()
        if self.progress.taken:
            self.progress.write_taken()

    def replied(self) -> None:
        if self.progress.due:
            self.progress.write_block()
        pages = self._pages
        if self.memory.used > pages.above or pages.hungry or pages.orders:
            self.paging.turn()
            self.holding = pages.jobs > 0

    def puts_off(self, client: Client, command: AnyCommand, args: list[bytes]) -> bool:
        put_off = self.put_off.puts_off(client, command, args)
        if put_off:
            self.after_command()  # the client has said something, and may have credit again
        return put_off

    def paged_in(self, number: int, place: int, data: bytes | None) -> None:
        """Take what was read for an order of ``paging``: see ``Paging.paged_in``."""
        self.paging.paged_in(number, place, data)
        self.holding = self._pages.jobs > 0

    def rebuilt(self, number: int, found: dict[int, bytes]) -> None:
        """Take what was found for an order of ``paging``: see ``Paging.rebuilt``."""
        self.paging.rebuilt(number, found)
        self.holding = self._pages.jobs > 0

    def users_changed(self) -> None:
        self.ticks.makers.users_changed()
        self.topics.makers.users_changed()
        self.budgets.users_changed()

    def may_overlap(self, request: list[bytes]) -> bool:
        """Whether ``request`` may run while earlier ones of its client wait for their replies.

        An ADDJOB may, unless it depends on the queue's length, which earlier ones will change. So
        may a change of what all nodes share, so that those of one turn are written at once.
        """
        name = request[0]
        if name != b"ADDJOB":
            name = name.lower()
            if name != b"addjob":
                shared = name in _SHARED or (name == b"cron" and request[1:2] in _CRON_SET)
                return shared and len(self.shared_maps.unsettled) > 0
        return not self.policies.ask_length(request)

    # ---- the append-only file -----------------------------------------------------------------

    def load_record(self, record: list[bytes], queue_jobs: bool) -> int:
        return self.aof_codec.load_record(record, queue_jobs)

    def load_suspect(self, record: list[bytes]) -> bool:
        return self.aof_codec.load_suspect(record)

    def load_usual(self, data: bytes, at: int, most: int, queue_jobs: bool) -> tuple[int, int, int]:
        found = self.aof_codec.load_usual(data, at, most, queue_jobs)
        if self.memory.used > self._pages.above or self._pages.orders:
            self.paging.turn()  # there may be more jobs than memory holds
            self.holding = self._pages.jobs > 0
        return found

    def start_dump(self) -> None:
        self.aof_codec.start_dump()

    def dump_step(self, count: int, room: int) -> tuple[list[bytes], bool]:
        return self.aof_codec.dump_step(count, room)

    # ---- clients that wait ------------------------------------------------------------------

    def after_command(self) -> None:
        if self.queues.ready and not (self.in_group or self.batches.exclusive):
            self.deliveries.serve_waiting()

    def end_wait(self, client: Client) -> None:
        """End the wait of ``client``, which must be blocked, with nothing found."""
        if self.peers.leaving:
            self.unblock(client, LEAVING)
        else:
            self.time_out(client)

    def time_out(self, client: Client) -> None:
        wait = self.job_waits.by_client.get(client)
        if wait is None:
            self.unblock(client, null_array(client.resp))
        else:
            self.job_waits.time_out(client, wait)

    def unblock_all(self) -> None:
        """End all waits: with an error if the node is leaving, otherwise with an empty reply."""
        for client in [*self.deliveries.waiting(), *self.job_waits.by_client]:
            if client.waits_for:  # not ended already, through another of its queues
                self.end_wait(client)

    def standing(self, client: Client) -> list[tuple[bytes, list[bytes]]]:
        found = super().standing(client)
        if client in self.job_waits.by_client:
            # It waits for jobs by their ids, in any queue.
            found = [(name, []) for name, _ in found]
        if client.consumes:
            found.append((b"consume", self.consumers.by_client[client].names))
        return found

    def stop_waiting(self, client: Client) -> None:
        if client in self.job_waits.by_client:
            self.job_waits.forget(client)
        else:
            self.deliveries.stop_waiting(client)

    # ---- the rest ---------------------------------------------------------------------------

    def used_by(self, user: User) -> dict[str, int]:
        return self.budgets.used_by(user) | super().used_by(user)

    def make_room(self, command: AnyCommand) -> bool:
        self.store.evict(self.memory.evict_above)
        self.queues.make_room(self.memory.evict_above)
        self.store.uniques.make_room(self.memory.evict_above)
        self.after_command()  # clients that held evicted jobs may have credit again
        return super().make_room(command)

    def noted(self) -> int:
        return len(self.notes.events)

    def held(self) -> int:
        return self.store.jobs.count + self._pages.jobs

    def counts(self) -> "dict[str, dict[str, str | int | float]]":
        sections = self._figures.sections()
        sections["jobs"]["jobs_few_copies"] = self.few_copies.count
        return sections

    def reset_stats(self) -> None:
        super().reset_stats()
        self._figures.reset()
        if self.notes.counts is not None:
            self.notes.counts.reset()

    def flush(self) -> None:
        """Forget all jobs and queues, and end the waits of all clients."""
        self.unblock_all()
        self.federation.flush()
        self.ack_gc.flush()
        self.copies.flush()
        self.few_copies.flush()
        self.handover.flush()
        self.claims.flush()
        self.key_drops.flush()
        self.replacements.flush()
        self.admissions.flush()
        self.replication.flush()
        self.scatter_gather.flush()
        self.rpc.flush()
        self.job_waits.flush()
        self.updates.flush()
        self.ticks.flush()
        self.topics.flush()
        self.deliveries.flush()
        self.progress.flush()
        self.recovery.flush()
        self.dead_nodes.flush()
        self.lots.flush()
        self.journal.clear()
        self.flushed = True
        self.store.flush()
        self.paging.flush()
        self.budgets.flush()
        self.queue_pauses.flush()
