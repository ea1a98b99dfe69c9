"""Replicates new jobs to other nodes, and replies to the producer once enough copies exist.

A job that needs copies is in WAIT_REPL while its producer waits. It is sent (REPLJOB) to other
reachable nodes; each confirms it (GOTJOB), and every 50 ms one more node is tried until enough have
done so. Only then is it queued: here, or, if this node must not hold it (because it is leaving or
short of memory), on one of the others (ENQUEUE).
"""

from collections.abc import Callable
from typing import Final

from disque_trio.eventlog import schema
from disque_trio.node.core.copies.placement import Placement
from disque_trio.node.core.copies.shortage import not_confirmed, too_few
from disque_trio.node.core.federation.exports import Exports
from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_QUEUED_BEFORE,
    FLAG_RESERVED,
    FLAG_TRAILER,
    FLAG_WILLQUEUE,
    WAIT_REPL,
    Job,
    first_due,
)
from disque_trio.node.core.jobs.waits import RETRY_GAP, ReplicationWait
from disque_trio.node.core.queues.aof_codec import LARGE_BODY
from disque_trio.node.core.queues.bus_codec import TakeChange
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.queue import PAUSED_IN
from disque_trio.protocol import bus
from disque_trio.protocol.bus import JobMessage, JobsMessage, PacketError
from disque_trio.protocol.keyrecord import PENDING
from disque_trio.protocol.serialjob import loadjob
from disque_trio.resp.reply import error
from disque_trio.respserver.client import Client

MAX_RETRY_GAP: Final = 400  # ms between attempts to get a job confirmed, once all nodes were tried

_TIMEOUT: Final = "NOREPL Timeout reached before replicating to the requested number of nodes"

_STOPS: Final = error(b"LEAVING This node is about to stop, please connect to a different one")


class Replication:
    """Adds jobs with the requested number of copies, and stores copies for other nodes.

    Args:
        placement: chooses nodes.
        exports: gives jobs to nodes that want them.
        take_change: takes what another node has changed of a known job.

    Attributes:
        on_copy: called with a node and a job id if the node confirms a copy of that job, for
            which no ADDJOB waits.
    """

    def __init__(
        self, core: Core, placement: Placement, exports: Exports, take_change: TakeChange
    ) -> None:
        store = core.store
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._replicas = store.replicas
        self._waits = store.waits
        self._aof_codec = core.aof_codec
        self._codec = core.bus_codec
        self._placement = placement
        self._exports = exports
        self._tombstones = core.tombstones
        self._take_change = take_change
        self._notices = core.notices
        self._peers = core.peers
        self._packets = core.packets
        self._paging = core.paging
        self.on_copy: Callable[[bytes, bytes], None] = _nobody

    # ---- ADDJOB -----------------------------------------------------------------------------

    def place(self, job: Job) -> None:
        """Queue a new job, now or, if it has a delay, at its ``qtime``, and add it to the
        journal."""
        store = self._store
        machine = self._machine
        store.total_added += 1
        if self._notes.noting:
            self._notes.note(
                schema.ADDED, job, schema.NO_REASON if job.delay else schema.BY_ADD, new=True
            )
        if job.delay:
            store.schedule(job)
            store.queues.added(store.queues.traffic(job.queue), job)
        else:
            traffic = store.put(job).traffic
            adder = traffic.adder
            client = machine.client
            # Nearly always it is the client that added the job before; a shortcut.
            if client is not None and adder is not None and adder.token is client.origin:
                traffic.added += 1
                adder.added += 1
                job.adder = adder
            else:
                store.queues.added(traffic, job)
        if machine.journaling:
            body = job.body
            if body is None or len(body) < LARGE_BODY:  # avoids a call: this is ADDJOB
                machine.journal.append(loadjob(self._aof_codec.serialize(job)))
            else:
                self._aof_codec.note(job)
        if self._exports.asked_for:
            self._exports.offer(job.queue)

    def add_async(self, job: Job) -> None:
        """Queue the new ``job``, and send its copies without waiting for confirmation."""
        chosen = self._placement.choose(job, job.repl - 1, False)
        if chosen:
            job.delivered = self._replicas.sets.of((self._replicas.own, *chosen))
            self.send_copy(job, chosen, bus.NOREPLY)
        self.place(job)

    def add_sync(
        self,
        client: Client,
        job: Job,
        external: bool,
        timeout: int,
        admitted: ReplicationWait | None = None,
    ) -> None:
        """Send copies of ``job``; ``client`` gets its reply when enough nodes have confirmed, or
        after ``timeout`` ms (0: no limit). ``admitted``: its wait, if that is in the client's line
        already."""
        needed = job.repl if external else job.repl - 1
        job.state = WAIT_REPL
        if admitted is None:
            self._waits.begin(client, job, needed, external, timeout)
        else:
            self._waits.resume(admitted)
        chosen = self._placement.choose(job, needed, external)
        holders = tuple(chosen) if external else (self._replicas.own, *chosen)
        job.delivered = self._replicas.sets.of(holders)
        job.confirmed = []
        self.send_copy(job, chosen, 0)

    def send_copy(self, job: Job, nodes: list[bytes], flags: int) -> None:
        """Send REPLJOB to ``nodes``, but to no C node whose clients would see a trailer."""
        if job.flags & FLAG_TRAILER and not self._store.trailers.is_plain(job):
            nodes = [id for id in nodes if self._peers.understands(id)]
        if nodes:
            self._notices.copy(self._codec.encode(job), tuple(nodes), flags)

    def replicated(self, job: Job) -> None:
        """Reply to the producer of ``job``, and queue it: enough nodes have confirmed."""
        if job.flags & FLAG_TRAILER and not self._waits.by_job[job.id].agreed():
            return
        machine = self._machine
        notes = self._notes
        store = self._store
        wait = self._waits.end(job, b"+" + job.id + b"\r\n")
        before = machine.client
        machine.client = wait.client
        notes.peer = b""  # which node confirmed last does not matter
        if notes.noting:
            notes.note(schema.REPLICATED, job, new=True)
        if wait.external:
            chosen = self._placement.choose_one(job.confirmed or [])
            self._peers.send(chosen, self._packets.about_job(bus.ENQUEUE, job.id, job.delay))
            if notes.noting:
                notes.note(schema.ADDED, job, new=True)
            if job.retry == 0:
                # Nobody else may ever queue it.
                packet = self._packets.about_job(bus.DELJOB, job.id)
                for id in job.delivered or ():
                    if id not in (self._replicas.own, chosen):
                        self._peers.send(id, packet)
            store.total_added += 1
            store.queues.added(store.queues.traffic(job.queue), job)
            store.let_go(job)
        else:
            job.confirmed = None
            job.state = ACTIVE
            self.place(job)
            wait.journaled = machine.journaling
        machine.client = before

    def cancel(self, wait: ReplicationWait, reply: bytes) -> None:
        """Give up the job of ``wait``, and delete its copies as far as possible."""
        job = wait.job
        if self._notes.noting:
            self._notes.note(schema.DELETED, job, schema.BY_GIVING_UP)
        self._waits.end(job, reply)
        claimed = job.flags & FLAG_TRAILER
        self._store.delete(job)
        if not (claimed and wait.given_up()):
            self._replicas.tell_deleted(job.id, job)

    def cancel_all(self, client: Client) -> None:
        """Cancel the waits of ``client``, which has disconnected."""
        for wait in self._waits.of_client(client):
            self.cancel(wait, b"")

    def give_up(self) -> None:
        """Send the clients whose jobs still wait for copies to other nodes: this one is about to
        stop, and would not queue them. Otherwise their copies would wait for their retry time, and
        an ADDJOB with the same key would find them."""
        for wait in list(self._waits.by_job.values()):
            self.cancel(wait, _STOPS)

    def try_more(self, now: int) -> None:
        """Send each unconfirmed job to one more node, and again to nodes that have not answered."""
        waits = self._waits
        while (wait := waits.due(now)) is not None:
            if wait.deadline and now >= wait.deadline:
                self.cancel(wait, wait.refusal(error(_TIMEOUT + self._who_is_silent(wait))))
            elif hopeless := self._hopeless(wait):
                self.cancel(wait, wait.refusal(error(hopeless)))
            elif now >= wait.job.etime * 1000 + 1000:
                self._store.expire(wait.job)
            else:
                waits.attempts.append((now + RETRY_GAP, wait))
                if not (wait.job.flags & FLAG_TRAILER and wait.try_again(now)):
                    self._try_once_more(wait, now)

    def _who_is_silent(self, wait: ReplicationWait) -> str:
        """The end of an error: which nodes have not confirmed a copy of the job of ``wait``."""
        confirmed = wait.job.confirmed or []
        asked = [id for id in wait.job.delivered or () if id != self._replicas.own]
        return not_confirmed(self._peers, [id for id in asked if id not in confirmed])

    def _hopeless(self, wait: ReplicationWait) -> str:
        """Why the job of ``wait`` cannot get its copies, as far as is known; empty: it may."""
        peers = self._peers
        takers = peers.takers()
        # What was confirmed counts, even by a node that is down by now.
        lost = sum([id not in takers for id in wait.job.confirmed or ()])
        if peers.room(wait.external) + lost >= wait.needed:
            return ""
        return too_few(peers, wait.needed, wait.external, lost)

    def _try_once_more(self, wait: ReplicationWait, now: int) -> None:
        """Send the job of ``wait`` to one more node, and again to the silent ones."""
        own = self._replicas.own
        sets = self._replicas.sets
        job = wait.job
        holders = job.delivered or ()
        confirmed = job.confirmed or []
        owing = [id for id in holders if id != own and id not in confirmed]
        self._peers.expect(owing, now)
        self._placement.pass_over(owing)
        # A copy still waiting in a connection need not be queued behind itself.
        silent = [id for id in owing if not self._peers.behind(id)]
        chosen = self._placement.choose(job, 1, wait.external)
        if own not in holders:
            # Only others hold it, but this takes so long that somebody may process it meanwhile:
            # the acknowledgement has to find its producer.
            holders = job.delivered = sets.add(holders, own)
            self.send_copy(job, list(confirmed), bus.NOREPLY)
        if chosen:
            job.delivered = sets.add(holders, chosen[0])
            # Tell the nodes that hold it of the new holder.
            self.send_copy(job, list(confirmed), bus.NOREPLY)
            self.send_copy(job, [*silent, chosen[0]], 0)
        elif now >= wait.repeat:
            # All nodes were told. Repeat it in case it was lost, but do not bury a node that does
            # not read.
            if wait.gap > RETRY_GAP:
                for id in silent:
                    self._notices.reads_one(id)
            self.send_copy(job, silent, 0)
            wait.gap = min(2 * wait.gap, MAX_RETRY_GAP)
            wait.repeat = now + wait.gap

    def flush(self) -> None:
        """Cancel all waits for copies, on all nodes, before all jobs are forgotten."""
        for job in self._waits.removed_all():
            self._replicas.tell_deleted(job.id, job)

    # ---- from other nodes -------------------------------------------------------------------

    def wants_copy(self, id: bytes) -> bool:
        """Whether this node would take a copy of the job ``id``, as far as its id tells. Asked
        before a large copy has arrived in full."""
        if self._peers.leaving or self._machine.add_problem:
            return False
        memory = self._machine.memory
        return memory.used <= memory.external_above or self._store.jobs.get(id) is not None

    def on_repljob(self, sender: bytes, message: JobsMessage) -> None:
        """Handle REPLJOB: hold copies, unless there is a reason not to. Raises ``PacketError``."""
        if len(message.jobs) != 1:
            if not message.jobs:
                raise PacketError("a REPLJOB without a job")
            self._notices.reads_many(sender)
        if not (self._peers.leaving or self._machine.add_problem):
            for data in message.jobs:
                new = self._codec.decode(data)
                if new is None:
                    raise PacketError("a REPLJOB without a job")
                self._take_copy(sender, new, message.flags & bus.NOREPLY == 0)

    def _take_copy(self, sender: bytes, new: Job, confirm: bool) -> None:
        """Hold ``new``, a copy that ``sender`` has sent, unless there is a reason not to."""
        machine = self._machine
        store = self._store
        job = store.jobs.get(new.id)
        if job is None:
            if self._tombstones.refuse(sender, new.id):
                return
            memory = machine.memory
            if memory.used > memory.external_above or self._is_paused_in(new.queue):
                return
            # The next time in a queue counts as a further delivery: it is queued elsewhere first.
            new.flags |= FLAG_QUEUED_BEFORE if new.retry else FLAG_QUEUED_BEFORE | FLAG_RESERVED
            trailer = self._codec.trailer
            if trailer is not None and store.uniques.refuses(new.id):
                return
            store.register(new)
            if trailer is not None:
                store.trailers.put(new, trailer)
                store.uniques.hold(new, PENDING)
            if self._notes.noting:
                self._notes.note(schema.COPIED, new, new=True)
            if new.retry:
                new.flags |= FLAG_WILLQUEUE
                new.qtime = store.retry_time(new) + self._rest_of_delay(new)
                if sender in (new.delivered or ()):
                    new.place = self._replicas.places.queued(sender)
            store.schedule(new)
            if machine.journaling:
                self._aof_codec.note(new)
        else:
            # Everything else stays as it first came, as on a C node, unless changed by an update.
            if self._codec.trailer is not None:
                self._take_change(job, new, self._codec.trailer)
            for id in new.delivered or ():
                self._replicas.add(job, id)
            if job.state == WAIT_REPL:
                return  # it may still be given up here; the sender asks again
            if confirm:
                self._notices.reads_one(sender)  # it may have missed the first confirmation
        if confirm:
            self._notices.add(sender, bus.GOTJOB, new.id, 1, 0)

    def _rest_of_delay(self, job: Job) -> int:
        """How many ms of the delay of ``job``, which may have been added long ago, are left; by the
        clock of another node."""
        return min(job.delay * 1000, max(first_due(job) - self._machine.now, 0))

    def is_known(self, sender: bytes, data: bytes, confirm: bool) -> bool:
        """Confirm the copy ``data``, which ``sender`` has sent again, if it lies on disk here, and
        need not be read for that; return whether that was so."""
        if self._peers.leaving or self._machine.add_problem:
            return False
        new = self._codec.decode(data)
        if new is None or self._codec.trailer is not None:
            return False
        if not self._paging.is_copy_on(new.delivered or (), new.id):
            return False
        if confirm:
            self._notices.reads_one(sender)
            self._notices.add(sender, bus.GOTJOB, new.id, 1, 0)
        return True

    def _is_paused_in(self, name: bytes) -> bool:
        queue = self._store.queues.by_name.get(name)
        return queue is not None and queue.paused & PAUSED_IN != 0

    def on_gotjob(self, sender: bytes, message: JobMessage) -> None:
        """Handle GOTJOB: a node confirms that it holds a copy."""
        wait = self._waits.by_job.get(message.id)
        if wait is None:
            self.on_copy(sender, message.id)
            return
        job = wait.job
        confirmed = job.confirmed
        if confirmed is None or sender in confirmed:
            return
        confirmed.append(sender)
        self._replicas.add(job, sender)
        if self._placement.enough(confirmed, wait.needed, wait.external):
            self.replicated(job)

    def on_enqueue(self, sender: bytes, message: JobMessage) -> None:
        """Handle ENQUEUE: queue a job whose creator does not hold it."""
        delay = message.aux
        store = self._store
        job = store.jobs.get(message.id)
        if job is None or job.state != ACTIVE or self._is_paused_in(job.queue):
            return
        if job.retry == 0 and job.flags & FLAG_DELIVERED:
            return
        job.flags &= ~(FLAG_QUEUED_BEFORE | FLAG_WILLQUEUE | FLAG_RESERVED)
        if delay:
            job.qtime = self._machine.now + delay * 1000
            store.schedule(job)
        else:
            store.put(job)
            store.progress.note(job)
            if self._notes.noting:
                self._notes.note(schema.QUEUED, job, schema.BY_ADD)
            if self._exports.asked_for:
                self._exports.offer(job.queue)


def _nobody(node: bytes, id: bytes) -> None:
    pass
