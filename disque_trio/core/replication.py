"""Copies of jobs on other nodes: how a job gets them, and when its producer may know.

A job that is to have copies is in WAIT_REPL while its producer waits: it is sent (REPLJOB) to
random reachable nodes, each confirms it (GOTJOB), and every 50 ms one more node is tried until
enough have. Only then it is queued here, or, when this node must not hold it (it is leaving, or
short of memory), on one of the others (ENQUEUE).
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_trio.core.client import Client, Pending
from disque_trio.core.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_QUEUED_BEFORE,
    FLAG_RESERVED,
    FLAG_WILLQUEUE,
    UINT32_MAX,
    WAIT_REPL,
    Job,
)
from disque_trio.core.peers import Peers
from disque_trio.core.queue import PAUSED_IN
from disque_trio.core.requeue import RequeueStore
from disque_trio.core.spread import choose_hosts, hosts_of
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketError, PacketWriter
from disque_trio.protocol.reply import error
from disque_trio.protocol.serialjob import SerialJobError, decode_fields, encode_job, loadjob

if TYPE_CHECKING:
    from random import Random

RETRY_GAP: Final = 50  # ms between attempts to get a job confirmed
MAX_RETRY_GAP: Final = 400  # once all nodes were tried
MAX_HOLDERS: Final = 1_000  # of a job that another node sends

_REMOVED: Final = error(
    b"NOREPL job removed (expired?) before the requested replication level was achieved"
)
_TIMEOUT: Final = error(
    b"NOREPL Timeout reached before replicating to the requested number of nodes"
)


class Adding(Pending):
    """The reply of an ADDJOB whose job waits for its copies.

    Attributes:
        job: the job. needed: confirmations that it takes from other nodes.
        external: this node does not hold it afterwards.
        deadline: when the client gives up, ms, 0: never.
        gap: ms until those that do not answer are asked once more, at ``repeat`` (ms).
    """

    __slots__ = ("deadline", "external", "gap", "job", "needed", "repeat")

    def __init__(
        self, client: Client, job: Job, needed: int, external: bool, deadline: int, repeat: int
    ) -> None:
        super().__init__(client, None)
        self.job = job
        self.needed = needed
        self.external = external
        self.deadline = deadline
        self.gap = RETRY_GAP
        self.repeat = repeat


class ReplicatedStore(RequeueStore):
    """Jobs with copies.

    Attributes:
        leaving: CLUSTER LEAVING yes was said: no new jobs are held here.
        write_problem: why the append-only file cannot be written, empty: it can.
    """

    def __init__(
        self,
        id: bytes,
        peers: Peers,
        packets: PacketWriter,
        entropy: Callable[[int], bytes],
        rng: "Random",
        maxmemory: int,
    ) -> None:
        super().__init__(id, peers, packets, entropy, rng, maxmemory)
        self.leaving = False
        self.write_problem = ""
        self._rng = rng
        self._adding: dict[bytes, Adding] = {}
        # Nearly all are settled before they are due; the rest is put behind the others again.
        self._attempts: deque[tuple[int, Adding]] = deque()

    # ---- ADDJOB -----------------------------------------------------------------------------

    def add_async(self, job: Job) -> None:
        """Queue ``job``, which was just made, and send its copies without waiting for them."""
        chosen = self._choose(job, job.repl - 1)
        if chosen:
            job.delivered = self.holders.of((self.id, *chosen))
            self._send_copy(job, chosen, bus.NOREPLY)
        self.place(job)

    def add_sync(self, client: Client, job: Job, external: bool, timeout: int) -> None:
        """Have ``job`` confirmed by others; ``client`` gets its reply when they are enough, or
        after ``timeout`` ms (0: it waits for ever)."""
        needed = job.repl if external else job.repl - 1
        now = self.now
        job.state = WAIT_REPL
        adding = Adding(
            client, job, needed, external, now + timeout if timeout else 0, now + RETRY_GAP
        )
        self._adding[job.id] = adding
        self._attempts.append((now + RETRY_GAP, adding))
        client.line.append(adding)
        client.adding += 1
        chosen = self._choose(job, needed)
        job.delivered = self.holders.of(tuple(chosen) if external else (self.id, *chosen))
        job.confirmed = []
        self._schedule(job)
        self._send_copy(job, chosen, 0)

    def may_overlap(self, request: list[bytes]) -> bool:
        """Whether ``request`` may be served while ADDJOBs of its client wait for their copies: a
        further ADDJOB, unless it asks how long the queue is, which these will change."""
        overlaps = request[0] == b"ADDJOB" or request[0].lower() == b"addjob"
        for option in request[4:]:
            if len(option) == 6 and option.lower() == b"maxlen":
                overlaps = False
        return overlaps

    def _choose(self, job: Job, count: int) -> list[bytes]:
        """Up to ``count`` random reachable nodes that do not have ``job``, those with a
        connection first."""
        if self.peers.by_host:
            adding = self._adding.get(job.id)
            external = adding is not None and adding.external
            return choose_hosts(self.peers, self._rng, self.id, job, count, external)
        reachable = self.peers.reachable
        holders = job.delivered
        if holders is not None and holders != self._me_alone:
            reachable = [id for id in reachable if id not in holders]
        if len(reachable) <= count:
            return reachable
        linked = [id for id in reachable if self.peers.linked(id)]
        if len(linked) >= count:
            return self._rng.sample(linked, count)
        rest = [id for id in reachable if id not in linked]
        return linked + self._rng.sample(rest, count - len(linked))

    def _send_copy(self, job: Job, nodes: list[bytes], flags: int) -> None:
        """Send REPLJOB to ``nodes``."""
        if nodes:
            packet = self.packets.jobs(bus.REPLJOB, [self._for_bus(job)], flags)
            for id in nodes:
                self.peers.send(id, packet)

    def _for_bus(self, job: Job) -> bytes:
        """``job`` as it travels: with the seconds it has left, since clocks differ."""
        left = job.etime - self.now // 1000
        return encode_job(
            job.id,
            job.state,
            job.flags & FLAG_QUEUED_BEFORE,
            job.repl,
            left + 1 if left > 0 else 1,
            job.ctime,
            job.delay,
            job.retry,
            job.nacks,
            job.deliveries,
            job.queue,
            job.body or b"",
            self.holders.encode(self._me_alone if job.delivered is None else job.delivered),
        )

    def _let_queue(self, job: Job, nodes: list[bytes]) -> bytes:
        """Ask one of ``nodes``, which hold ``job``, to queue it; better one that hears it.
        Returns which."""
        linked = [id for id in nodes if self.peers.linked(id)]
        chosen = self._rng.choice(linked or nodes)
        self.peers.send(chosen, self.packets.about_job(bus.ENQUEUE, job.id, job.delay))
        return chosen

    def replicated(self, job: Job) -> None:
        """Enough nodes confirmed ``job``: its producer may know, and it is queued."""
        adding = self._adding.pop(job.id)
        confirmed = job.confirmed or []
        before = self.client
        self.client = adding.client
        self.peer = b""  # the last of several that confirmed is nobody special
        if self.eventing:
            self.note("replicated", job, new=True)
        self._settle(adding, b"+" + job.id + b"\r\n")
        if adding.external:
            chosen = self._let_queue(job, confirmed)
            if self.eventing:
                self.note("added", job, new=True)
            if job.retry == 0:
                # Nobody else may ever queue it.
                packet = self.packets.about_job(bus.DELJOB, job.id)
                for id in job.delivered or ():
                    if id not in (self.id, chosen):
                        self.peers.send(id, packet)
            self.total_added += 1
            self.delete(job)
        else:
            job.confirmed = None
            job.state = ACTIVE
            self.place(job)
            adding.journaled = self.journaling
        self.client = before

    def overtaken(self, job: Job) -> None:
        adding = self._adding.pop(job.id)
        self._settle(adding, b"+" + job.id + b"\r\n")
        self.total_added += 1
        if self.eventing:
            self.note("added", job, new=True)

    def gave_up(self, job: Job) -> None:
        """``job`` is about to be deleted before it was replicated."""
        adding = self._adding.pop(job.id, None)
        if adding is not None:
            self._settle(adding, _REMOVED)

    def _settle(self, adding: Adding, reply: bytes) -> None:
        adding.reply = reply
        self.settled.append(adding)

    def _cancel(self, adding: Adding, reply: bytes) -> None:
        """Give the job of ``adding`` up, and its copies as well as may be."""
        job = adding.job
        del self._adding[job.id]
        if self.eventing:
            self.note("deleted", job, "given-up")
        self._settle(adding, reply)
        self.tell_deleted(job.id, job)
        self.delete(job)

    def cancel_adding(self, client: Client) -> None:
        """``client`` is gone: nobody waits for its jobs any more."""
        for pending in list(client.line):
            if isinstance(pending, Adding) and pending.reply is None:
                self._cancel(pending, b"")

    def try_more(self, now: int) -> None:
        """Where copies are not confirmed in time: one more node, and once more those that have
        not answered."""
        attempts = self._attempts
        while attempts and (attempts[0][1].reply is not None or attempts[0][0] <= now):
            _, adding = attempts.popleft()
            if adding.reply is not None:
                continue
            if adding.deadline and now >= adding.deadline:
                self._cancel(adding, _TIMEOUT)
                continue
            attempts.append((now + RETRY_GAP, adding))
            self._try_once_more(adding, now)

    def _try_once_more(self, adding: Adding, now: int) -> None:
        job = adding.job
        holders = job.delivered or ()
        confirmed = job.confirmed or []
        # What still waits in a connection need not be put behind it once more.
        silent = [
            id
            for id in holders
            if id != self.id and id not in confirmed and not self.peers.behind(id)
        ]
        chosen = self._choose(job, 1)
        if self.id not in holders:
            # It is held elsewhere only, but while it takes so long somebody may process it: the
            # acknowledge has to find its producer.
            holders = job.delivered = self.holders.add(holders, self.id)
            self._send_copy(job, list(confirmed), bus.NOREPLY)
        if chosen:
            job.delivered = self.holders.add(holders, chosen[0])
            # The ones that have it get to know of the new holder.
            self._send_copy(job, list(confirmed), bus.NOREPLY)
            self._send_copy(job, [*silent, chosen[0]], 0)
        elif now >= adding.repeat:
            # Everybody was told. What is lost has to be said again, but a node that does not read
            # must not be buried under it.
            self._send_copy(job, silent, 0)
            adding.gap = min(2 * adding.gap, MAX_RETRY_GAP)
            adding.repeat = now + adding.gap

    def next_attempt(self) -> int:
        """When ``try_more`` has something to do, ms; 0: never."""
        attempts = self._attempts
        while attempts and attempts[0][1].reply is not None:
            attempts.popleft()
        return attempts[0][0] if attempts else 0

    # ---- what other nodes say ---------------------------------------------------------------

    def job_from_bus(self, data: bytes) -> Job | None:
        """The job that another node sent, not registered, ACTIVE. None: it is malformed."""
        try:
            (id, _, _, _, repl, left, ctime, delay, retry, nacks, deliveries, name, body, nodes) = (
                decode_fields(data)
            )
        except SerialJobError:
            return None
        if ctime >> 63 or len(nodes) > MAX_HOLDERS * len(self.id) or not id.isascii():
            return None
        if len(id.split()) > 1:
            return None  # it would break replies
        etime = min(self.now // 1000 + left, UINT32_MAX)
        name = self._one_name(name)
        job = Job(id, name, body, repl, ctime, etime, delay, retry, self.dump_number)
        job.nacks = nacks
        job.deliveries = deliveries
        job.delivered = self._holders_with_me(nodes)
        return job

    def on_repljob(self, sender: bytes, packet: bytes) -> None:
        """Hold a copy, unless there is a reason not to."""
        jobs = bus.read_jobs(packet)
        if len(jobs) != 1:
            raise PacketError("a REPLJOB with several jobs")
        if self.leaving or self.write_problem:
            return
        new = self.job_from_bus(jobs[0])
        if new is None:
            raise PacketError("a REPLJOB without a job")
        job = self.jobs.get(new.id)
        if job is None and self.has_ended(sender, new.id):
            return
        if job is None:
            if self.memory.used > self.memory.external_above or self._is_paused_in(new.queue):
                return
            # The next time in a queue is a further delivery: it is queued elsewhere first.
            new.flags = FLAG_QUEUED_BEFORE if new.retry else FLAG_QUEUED_BEFORE | FLAG_RESERVED
            self._register(new)
            if self.eventing:
                self.note("copied", new, new=True)
            if new.retry:
                new.flags |= FLAG_WILLQUEUE
                new.qtime = self._retry_time(new) + new.delay * 1000
            self._schedule(new)
            if self.journaling:
                self.journal.append(loadjob(self.serialize(new)))
        else:
            for id in new.delivered or ():
                self._add_holder(job, id)
        if not bus.packet_flags(packet) & bus.NOREPLY:
            self.peers.send(sender, self.packets.about_job(bus.GOTJOB, new.id, 1))

    def _is_paused_in(self, name: bytes) -> bool:
        queue = self.queues.get(name)
        return queue is not None and queue.paused & PAUSED_IN != 0

    def on_gotjob(self, sender: bytes, packet: bytes) -> None:
        """A node confirms a copy."""
        adding = self._adding.get(bus.read_about_job(packet)[0])
        if adding is None:
            return
        job = adding.job
        confirmed = job.confirmed
        if confirmed is None or sender in confirmed:
            return
        confirmed.append(sender)
        self._add_holder(job, sender)
        if len(confirmed) >= adding.needed and (
            not self.peers.by_host
            or hosts_of(self.peers, confirmed, adding.external) >= adding.needed
        ):
            self.replicated(job)

    def on_enqueue(self, sender: bytes, packet: bytes) -> None:
        """Queue a job that its creator does not hold itself."""
        id, delay = bus.read_about_job(packet)
        job = self.jobs.get(id)
        if job is None or job.state != ACTIVE or self._is_paused_in(job.queue):
            return
        if job.retry == 0 and job.flags & FLAG_DELIVERED:
            return
        job.flags &= ~(FLAG_QUEUED_BEFORE | FLAG_WILLQUEUE | FLAG_RESERVED)
        if delay:
            job.qtime = self.now + delay * 1000
            self._schedule(job)
        else:
            self._put(job)
            if self.eventing:
                self.note("queued", job, "add")
            if self.asked_for:
                self.offer(job.queue)

    # ---- replies ----------------------------------------------------------------------------

    def flush(self) -> None:
        for adding in list(self._adding.values()):
            self._settle(adding, _REMOVED)
            self.tell_deleted(adding.job.id, adding.job)
        self._adding.clear()
        self._attempts.clear()
        super().flush()
