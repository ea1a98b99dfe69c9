"""A node: the state machine that clients, other nodes and time drive.

Owns the dispatch of packets and the clients that wait for jobs; what serves clients in general is
in ``machine``, the jobs are ``store``'s and what is built on it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_trio.core.client import Client
from disque_trio.core.command import Command
from disque_trio.core.federation import FederatedStore
from disque_trio.core.host import Host
from disque_trio.core.job import GONE, Job
from disque_trio.core.peers import Peers
from disque_trio.core.queue import PAUSED_OUT, Queue
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketError, PacketWriter
from disque_trio.protocol.reply import null_array

if TYPE_CHECKING:
    from random import Random

MAX_JOBS_PER_TICK: Final = 100  # a fraction of a millisecond

LEAVING: Final = b"-LEAVING This node is leaving the cluster, please connect to a different one\r\n"


class Node(FederatedStore):
    """One node.

    Args:
        id: 40 lower-case hex characters.
        commands: the command table, names in lower case.
        host: what is around the state machine (see ``host``).
        peers: the rest of the cluster.
        packets: makes this node's packets; whoever knows the port sets it there.
        entropy: gives so many random bytes, for job ids.
        rng: for times that are spread on purpose.
        clock: monotonic ns, for the durations that SLOWLOG and commandstats show.
        maxmemory: bytes of jobs and queues, 0: no limit.

    Attributes:
        bad_packets: packets of other nodes that were malformed.
    """

    def __init__(
        self,
        id: bytes,
        commands: dict[bytes, Command],
        host: Host,
        peers: Peers,
        entropy: Callable[[int], bytes],
        rng: "Random",
        clock: Callable[[], int],
        maxmemory: int = 0,
        packets: PacketWriter | None = None,
    ) -> None:
        super().__init__(id, peers, packets or PacketWriter(id, 0), entropy, rng, maxmemory)
        self.furnish(commands, host, clock)
        self.bad_packets = 0

    # ---- what the driver calls ------------------------------------------------------------

    def receive(self, sender: bytes, packet: bytes, now: int) -> None:
        """Take in a packet of the types 4 to 15 from the node ``sender``, which is known."""
        self.now = now
        if self.loading:
            return  # half of the jobs is no node
        self.peer = sender
        try:
            self._receive(bus.packet_type(packet), sender, packet)
        except PacketError:
            self.bad_packets += 1
        self.peer = b""
        if self.ready:
            self.serve_waiting()

    def _receive(self, type: int, sender: bytes, packet: bytes) -> None:
        if type == bus.REPLJOB:
            self.on_repljob(sender, packet)
        elif type == bus.GOTJOB:
            self.on_gotjob(sender, packet)
        elif type == bus.SETACK:
            self.on_setack(sender, packet)
        elif type == bus.GOTACK:
            self.on_gotack(sender, packet)
        elif type == bus.DELJOB:
            self.on_deljob(sender, packet)
        elif type == bus.NEEDJOBS:
            self.on_needjobs(sender, packet)
        elif type == bus.YOURJOBS:
            self.on_yourjobs(sender, packet)
        elif type == bus.QUEUED:
            self.on_queued(sender, packet)
        elif type == bus.WILLQUEUE:
            self.on_willqueue(sender, packet)
        elif type == bus.ENQUEUE:
            self.on_enqueue(sender, packet)
        elif type == bus.WORKING:
            self.on_working(sender, packet)
        elif type == bus.PAUSE:
            self.on_pause(sender, packet)

    def set_leaving(self, leaving: bool) -> None:
        """CLUSTER LEAVING: prepare to be taken out of the cluster, or stay."""
        self.leaving = leaving
        self.peers.set_leaving(leaving)
        if leaving:
            self.unblock_all()

    def tick(self, now: int) -> None:
        """Do what is due at ``now``: queue again, expire, end waits. At most 100 jobs a call:
        when there is more to do, ``next_wake`` is in the past afterwards."""
        self.now = now
        self.client = None
        self.peer = b""
        for job in self._timers.due(now, MAX_JOBS_PER_TICK):
            if job.state != GONE:  # what one job causes can end another
                self.job_due(job)
        if self._adding:
            self.try_more(now)
        if self._hungry:
            self.ask_again(now)
        if self._offers:
            self.offer_kept(now)
        self.serve_waiting()
        self.end_waits(now)
        if self.discarded is not None:
            self.free_some()

    def next_wake(self) -> int:
        """When ``tick`` has to be called, ms since the epoch; 0: not before something happens."""
        due = self._timers.next_due()
        end = self.next_wait_end()
        if end and (due == 0 or end < due):
            due = end
        if self._attempts:
            attempt = self.next_attempt()
            if attempt and (due == 0 or attempt < due):
                due = attempt
        if self._hungry and (due == 0 or self._hungry[0][0] < due):
            due = self._hungry[0][0]
        if self._offers and (due == 0 or self._offers[0][0] < due):
            due = self._offers[0][0]
        if self.discarded is not None:
            return self.now
        return due

    def forget_client(self, client: Client) -> None:
        super().forget_client(client)
        if client.adding:
            self.cancel_adding(client)

    # ---- clients that wait ------------------------------------------------------------------

    def block(self, client: Client, names: list[bytes], timeout: int, withcounters: bool) -> None:
        """``client`` waits for one job of the queues ``names``, ``timeout`` ms (0: for ever)."""
        self.begin_wait(client, names, timeout)
        client.withcounters = withcounters
        for name in names:
            queue = self.queues.get(name)
            if queue is None:
                queue = self.create_queue(name)
            queue.waiters[client] = None

    def after_command(self) -> None:
        if self.ready:
            self.serve_waiting()

    def serve_waiting(self) -> None:
        """Give jobs of the queues that got some to the clients that wait for them."""
        while self.ready:
            queue = self.ready.pop(0)
            while queue.length and queue.waiters and not queue.paused & PAUSED_OUT:
                client = next(iter(queue.waiters))
                self.client = client
                job = self.take_job(queue)
                self.client = None
                self.unblock(client, b"*1\r\n" + job_entry(job, queue, client.withcounters))
                if self.journaling and job.retry == 0 and client.out:
                    self.unsafe.append((client, len(client.out) - 1, len(client.out)))
            if queue.length == 0 and queue.imports is not None:
                self.emptied(queue)

    def end_wait(self, client: Client) -> None:
        """End the wait of ``client``, which must be blocked, without a job."""
        self.unblock(client, LEAVING if self.leaving else null_array(client.resp))

    def time_out(self, client: Client) -> None:
        self.unblock(client, null_array(client.resp))

    def unblock_all(self) -> None:
        """End all waits: with an error when the node is leaving, else empty."""
        for queue in self.queue_index.values():
            for client in list(queue.waiters):
                self.end_wait(client)

    def stop_waiting(self, client: Client) -> None:
        for name in client.waits_for:
            self.queues[name].waiters.pop(client, None)

    # ---- the rest ---------------------------------------------------------------------------

    def make_room(self, command: Command) -> bool:
        self.evict(self.memory.evict_above)
        return super().make_room(command)

    def held(self) -> int:
        return self.jobs.count

    def counts(self) -> "dict[str, dict[str, str | int | float]]":
        return {
            "memory": {"maxmemory_policy": "acks" if self.memory.policy_acks else "noeviction"},
            "jobs": {"registered_jobs": self.jobs.count},
            "queues": {"registered_queues": self.queue_index.count},
            "stats": {
                "total_jobs_added": self.total_added,
                "total_jobs_delivered": self.total_delivered,
                "total_jobs_acked": self.total_acked,
                "total_jobs_requeued": self.total_requeued,
                "total_jobs_expired": self.total_expired,
                "total_jobs_evicted": self.total_evicted,
            },
        }

    def name_client(self, client: Client) -> str:
        client.label = super().name_client(client) or self.host.address(client)
        return client.label

    def reset_stats(self) -> None:
        super().reset_stats()
        self.total_added = 0
        self.total_delivered = 0
        self.total_acked = 0
        self.total_requeued = 0
        self.total_expired = 0
        self.total_evicted = 0

    def flush(self) -> None:
        """Forget all jobs and queues; clients that wait for jobs are told that there are none."""
        self.unblock_all()
        super().flush()


def job_entry(job: Job, queue: Queue, withcounters: bool) -> bytes:
    """``job`` as GETJOB gives it: queue, id and body, and the counters if asked for."""
    body = job.body
    if body is None:
        body = b""
    if withcounters:
        return (
            b"*7\r\n%b%b\r\n$%d\r\n%b\r\n$5\r\nnacks\r\n:%d\r\n"
            b"$21\r\nadditional-deliveries\r\n:%d\r\n"
        ) % (queue.reply_head, job.id, len(body), body, job.nacks, job.deliveries)
    return b"*3\r\n%b%b\r\n$%d\r\n%b\r\n" % (queue.reply_head, job.id, len(body), body)
